"""The stages up to a pair's scores: the model is run into the cache of token statistics, detectors score from that."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, create_model

from audit_pipeline.pipeline.freshness import inputs_of_entry, parse_pair
from audit_pipeline.pipeline.remembered_models import SeenModel
from audit_pipeline.pipeline.stage import AUDIT_PAIRS, UNKNOWN, Check, Finding, Inputs, Made, Shown, Stage, StageRun
from audit_pipeline.scoring.pair_scores import SCORES_VERSION, run_other_models, run_passes, score_pair
from audit_pipeline.tables import HIGHLIGHTS, KINDS, OPTIONAL_KINDS, SCORES, TOKEN_STATISTICS, Kind, Pair
from audit_pipeline.token_statistics.pair_origin import compute_statistics_version
from audit_pipeline.token_statistics.run import DEFAULT_LOGITS_BUDGET

if TYPE_CHECKING:
    from audit_pipeline.pipeline.situation import Situation
    from audit_pipeline.store.ledger import Entry

_REASONS = 20


def _build_pass_options() -> type[BaseModel]:
    """What is cached of a pass besides the statistics of every token: a switch for each kind on request."""
    switches: dict[str, Any] = {
        kind: (bool, Field(default=False, description=f"also {KINDS[kind].on_request}")) for kind in OPTIONAL_KINDS
    }
    budget = Field(
        default=DEFAULT_LOGITS_BUDGET / 1e9, description="the most that the kind 'logits' may add in one partition"
    )
    return create_model("PassOptions", **switches, logits_budget_gb=(float, budget))


def _run_model(run: StageRun) -> Made:
    """Bring the cache up to the texts of one pair; a model's pairs share what other models have to be run on."""
    pair, paths = run.pair, run.paths
    backend_of = partial(run.models.backend, paths=paths, log=run.log)
    model = run.models.load_for_run(pair.model, paths, run.log)
    with_others: set[str] = run.shared.setdefault("run with other models", set())
    if pair.model not in with_others:
        pairs = [own for own in map(parse_pair, run.partitions) if own.model == pair.model]
        with run.progress(f"other models that detectors of {pair.model} need") as notify:
            run_other_models(model, pairs, paths, backend_of, run.log.info, notify)
        with_others.add(pair.model)
    kinds: list[Kind] = ["base", *(kind for kind in OPTIONAL_KINDS if getattr(run.options, kind))]
    with run.progress(f"{pair.model} on {pair.benchmark}") as notify:
        summary = run_passes(
            pair,
            model,
            paths,
            partial(backend_of, model),
            run.step(),
            kinds=kinds,
            logits_budget=int(run.options.logits_budget_gb * 1e9),
            on_progress=notify,
        )
    run.log.info(f"{pair.partition}: {summary.cache_summary}")
    # Of the run: the UI shows a check as it was for the last pair, whichever it was that met the damaged part.
    damaged: list[str] = run.shared.setdefault("set aside", [])
    damaged += summary.unreadable_parts
    words = f"{len(damaged)} set aside and their texts run again, the first {damaged[0]}" if damaged else None
    return Made(
        None,
        Shown(summary.own.texts, {**summary.numbers, "model_fingerprint": model.identity.model_fingerprint}),
        {"cache_intact": Finding(not damaged, words, Shown(values={"set aside": list(damaged)}))},
    )


def _inputs_of_statistics(partition: str, situation: Situation) -> Inputs:
    pair = parse_pair(partition)
    model, built = situation.models.get(pair.model), situation.find_built_digest(pair.benchmark)
    inputs: dict[str, str | None] = {f"examples/{pair.benchmark}": built}
    if (control := situation.find_control(pair.model)) is not None:
        inputs |= situation.build_presence_input("controlled_contamination", control)
    if model is None:
        return inputs
    identity = model.identity
    return {
        **inputs,
        "model" if identity.before is None else "endpoint": identity.model_fingerprint,
        "tokenizer": identity.tokenizer_fingerprint,
        "settings": _find_version_now(pair, situation),
        "reference model": join_versions(
            "reference_model", situation.find_needed_versions(pair.model, "reference_model")
        ),
    }


def _find_version_now(pair: Pair, situation: Situation) -> str | None:
    """The version that the pair's token statistics would have now; None where too little is known of the model."""
    model, built = situation.models.get(pair.model), situation.find_built_digest(pair.benchmark)
    if model is None or built is None or (isinstance(model, SeenModel) and not model.is_known):
        return None
    return compute_statistics_version(model, built)


def _recorded_of_statistics(partition: str, situation: Situation) -> Inputs | None:
    """What the ledger says of the pass, and the scores' line of the reference models, whose passes are their own.

    Scores that were handed over have no pass: they stand for it.
    """
    scores = situation.find_latest_entry(SCORES.name, partition)
    passes = situation.ledger.list_entries(TOKEN_STATISTICS.name, partition)
    entry: Entry | None = passes[-1] if passes else scores
    if entry is None:
        return None
    of_pass = passes[-1].data_version if passes else entry.upstream.get(f"token_statistics/{partition}")
    return {
        **inputs_of_entry(entry),
        # Its settings have the versions of the code.
        "code": None,
        f"examples/{parse_pair(partition).benchmark}": entry.benchmark_digest,
        "settings": of_pass,
        "reference model": None if scores is None else join_versions("reference_model", scores.upstream),
    }


def join_versions(kind: str, versions: Mapping[str, str] | None) -> str | None:
    """The versions of what is of a kind, as one; None where they are not known."""
    if versions is None:
        return None
    own = (f"{name}={version}" for name, version in sorted(versions.items()) if name.startswith(f"{kind}/"))
    return " ".join(own) or "none"


GRID_NOTE = (
    " The grid shows every known model on every known benchmark, so Missing there also counts pairs that were not "
    "requested or do not apply; how many pairs are to be audited is shown with `warehouse`."
)
"""Of an asset whose partitions are pairs: Dagster knows no grid with holes."""

STATISTICS_STAGE = Stage(
    name="token_statistics",
    description="What the model makes of every text: it reads each text once, and for every token is kept how "
    "likely it was, and what was likelier. A text that was read for one benchmark is never read "
    "again; a run that is stopped goes on where it was." + GRID_NOTE,
    dimensions=("benchmark", "model"),
    group="3_model_runs",
    job=AUDIT_PAIRS,
    make=_run_model,
    after=("benchmark",),
    tables=(TOKEN_STATISTICS,),
    checks={
        "cache_intact": Check(
            "No part file of the cache was damaged; damaged files are set aside and their texts run again."
        )
    },
    options=_build_pass_options(),
    kinds=frozenset({"torch", "transformers", "parquet"}),
    lock="gpu",
    concludes=False,
    first="{1} is run on {0} first",
    absent="never audited",
    words={
        "settings": "the start token, the window or the form of the token statistics changed since",
        "reference model": "the reference model changed since",
    },
    inputs=_inputs_of_statistics,
    recorded=_recorded_of_statistics,
)


def _score(run: StageRun) -> Made:
    pair = run.pair
    report = score_pair(pair, run.models.tokenized(pair.model, run.paths), run.paths, run.step())
    failed = report.by_status.get("failed", 0)
    reasons = list(report.reasons.items())[:_REASONS]
    shown = Shown(
        report.rows,
        {
            **{f"scores {status}": count for status, count in sorted(report.by_status.items())},
            "data_version": report.data_version,
        },
        {"reasons": (("reason", "scores"), reasons)} if reasons else {},
    )
    finding = Finding(not failed, shown=Shown(values={"scores failed": failed}))
    return Made(report.data_version, shown, {"no_score_failed": finding})


def _inputs_of_scores(partition: str, situation: Situation) -> Inputs:
    pair = parse_pair(partition)
    entry = situation.entries.get(pair.model)
    corpus = None if entry is None else entry.reference_corpus
    return {
        f"token_statistics/{partition}": _find_version_now(pair, situation) or UNKNOWN,
        **({f"token_frequencies/{corpus}|{pair.model}": UNKNOWN} if corpus is not None else {}),
        "token frequencies": join_versions(
            "token_frequencies", situation.find_needed_versions(pair.model, "token_frequencies")
        ),
    }


def _recorded_of_scores(partition: str, situation: Situation) -> Inputs | None:
    entry = situation.find_latest_entry(SCORES.name, partition)
    if entry is None:
        return None
    return {**inputs_of_entry(entry), "token frequencies": join_versions("token_frequencies", entry.upstream)}


SCORES_STAGE = Stage(
    name="scores",
    description="The score of every text by every detector, at every setting. The higher, the likelier the model "
    "has read the text. No model is run: scores are computed from the token statistics. Earlier "
    "scores are kept." + GRID_NOTE,
    dimensions=("benchmark", "model"),
    group="4_findings",
    job=AUDIT_PAIRS,
    make=_score,
    after=("benchmark", "token_statistics", "token_frequencies"),
    code=SCORES_VERSION,
    tables=(SCORES, HIGHLIGHTS),
    checks={
        "no_score_failed": Check(
            "No detector failed on a text; a text that a detector does not apply to is no failure.", False
        )
    },
    kinds=frozenset({"numpy", "parquet"}),
    concludes=False,
    first="{1} is scored on {0} first",
    absent="run, not scored",
    words={
        "token_statistics": "the model was run again since",
        "token frequencies": "the token frequencies changed since",
        "code": "the code that scores changed since",
    },
    inputs=_inputs_of_scores,
    recorded=_recorded_of_scores,
)
