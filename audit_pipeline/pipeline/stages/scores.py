"""The stages up to a pair's scores: the model is run into the cache of token statistics, detectors score from that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import BaseModel, Field, create_model

from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark, read_built
from audit_pipeline.detectors.registry import BROUGHT_BY, mark_defaults, select
from audit_pipeline.errors import AuditError, DataError, TransientError
from audit_pipeline.extras.servers.client import UnansweredError
from audit_pipeline.models.tokenized_model import KnownModel, TokenizedModel
from audit_pipeline.pipeline.freshness import inputs_of_entry, pair_of
from audit_pipeline.pipeline.seen_models import SeenModel
from audit_pipeline.pipeline.stage import AUDIT_PAIRS, UNKNOWN, Check, Finding, Inputs, Made, Shown, Stage, StageRun
from audit_pipeline.scoring.highlights import build_highlights
from audit_pipeline.scoring.session import PassesSummary, Session, build_audit_session
from audit_pipeline.store import store
from audit_pipeline.store.files import cast_to_columns
from audit_pipeline.store.ledger import LineageStep, RowOrigin, record_entry
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.versions import table_version
from audit_pipeline.tables import (
    HIGHLIGHTS,
    KINDS,
    OPTIONAL_KINDS,
    SCORES,
    TOKEN_STATISTICS,
    Kind,
    Pair,
    digest,
)
from audit_pipeline.token_statistics.backend import Backend, BackendOf
from audit_pipeline.token_statistics.run import DEFAULT_LOGITS_BUDGET, Progress
from audit_pipeline.token_statistics.tokens import window_and_stride

if TYPE_CHECKING:
    from audit_pipeline.pipeline.situation import Situation
    from audit_pipeline.store.ledger import Entry

_REASONS = 20


def run_other_models(
    model: TokenizedModel,
    pairs: Sequence[Pair],
    paths: DataPaths,
    backend_of: BackendOf,
    notify: Callable[[str], None],
    on_progress: Callable[[Progress], None] | None = None,
) -> None:
    """Run what audits need of other models than the audited model (a reference model) over the texts of its pairs.

    To be called once for all pairs of a model, before the first is run: the models would take turns otherwise. Pairs
    that cannot be audited are left to their own run. ``notify`` is called with the reason where something could
    not be run: some detectors go without then. Raises TransientError where a hub could not be reached: it may be
    reached later.
    """
    session = Session(model, select(), paths)
    try:
        if session.runs_other_models:
            session.run_other_models(_texts_of_all(pairs, model, paths), backend_of, on_progress=on_progress)
        problems = session.missing_of_other_models
    except AuditError as error:
        # A server of a model was asked patiently by then; a hub is tried again.
        if isinstance(error, TransientError) and not isinstance(error, UnansweredError):
            raise
        problems = [str(error)]
    for problem in problems:
        notify(f"{model.entry.name}: detectors that need another model are not computed: {problem}")


def _texts_of_all(pairs: Sequence[Pair], model: TokenizedModel, paths: DataPaths) -> list[str]:
    texts: list[str] = []
    for pair in pairs:
        with suppress(DataError):
            texts.extend(_read_auditable_benchmark(pair, model, paths).texts)
    return texts


def _read_auditable_benchmark(pair: Pair, model: TokenizedModel, paths: DataPaths) -> BuiltBenchmark:
    """The pair's benchmark; raises DataError where it is not built, is not fit, or is another control's."""
    benchmark = read_built(paths, pair.benchmark)
    benchmark.require_passed_checks()
    benchmark.require_matching_control(
        pair.model, model.entry.control.name if model.entry.control is not None else None
    )
    return benchmark


def run_tokens(
    pair: Pair,
    model: TokenizedModel,
    paths: DataPaths,
    backend: Callable[[], Backend],
    step: LineageStep,
    *,
    kinds: Sequence[Kind],
    logits_budget: int,
    on_progress: Callable[[Progress], None] | None = None,
) -> PassesSummary:
    """Bring the caches of token statistics up to the benchmark's texts, and to what detectors need too.

    Passes of other models are not among them: see :func:`run_other_models`.
    """
    benchmark = _read_auditable_benchmark(pair, model, paths)
    summary = build_audit_session(benchmark, model, paths).run(
        benchmark.texts, lambda _: backend(), kinds=kinds, logits_budget=logits_budget, on_progress=on_progress
    )
    record_entry(
        paths,
        step,
        TOKEN_STATISTICS,
        pair,
        data_version=statistics_version(model, benchmark.digest),
        upstream={f"examples/{pair.benchmark}": benchmark.digest},
        **build_origin(model, benchmark),
    )
    return summary


def build_origin(
    model: TokenizedModel, benchmark: BuiltBenchmark, settings: Mapping[str, object] | None = None
) -> RowOrigin:
    """The origin of the rows of a model on a benchmark."""
    return RowOrigin(
        model_fingerprint=model.identity.model_fingerprint,
        tokenizer_fingerprint=model.identity.tokenizer_fingerprint,
        benchmark_digest=benchmark.digest,
        settings=settings,
    )


def statistics_version(model: KnownModel, benchmark_digest: str) -> str:
    """The data version of a pair's token statistics: what they were computed from.

    The length of branches is the benchmark's, so its digest covers it.
    """
    policy = model.entry.start_token_policy
    return digest(
        benchmark_digest,
        model.identity.model_fingerprint,
        model.identity.tokenizer_fingerprint,
        policy,
        model.start_token if policy == "always" else None,
        *window_and_stride(model),
        *(kind.version for kind in KINDS.values() if kind.of_audits),
    )[:16]


SCORES_VERSION = "+".join(("2", *BROUGHT_BY))
"""Of the code that makes the scores, the packages that bring detectors among it: where it changes, pairs that are done
are done again."""


@dataclass(frozen=True)
class ScoreReport:
    """How many scores of each status were written for a pair."""

    rows: int
    by_status: Mapping[str, int]
    reasons: Mapping[str, int]
    data_version: str


def score_pair(pair: Pair, model: TokenizedModel, paths: DataPaths, step: LineageStep) -> ScoreReport:
    """Score a benchmark's examples with every detector, at every setting of its grid, from the cache.

    Raises DataError where the benchmark is not fit to be audited, or the model has been run on none of its texts.
    """
    benchmark = read_built(paths, pair.benchmark)
    benchmark.require_passed_checks()
    examples = benchmark.examples
    session = build_audit_session(benchmark, model, paths)
    ids, texts = examples.column("example_id").to_pylist(), examples.column("text").to_pylist()
    scored = session.score(ids, texts, benchmark.contexts)
    table = (
        mark_defaults(scored, session.limit_overrides(benchmark.overrides))
        .append_column("model", pa.repeat(pair.model, len(scored)))
        .append_column("benchmark", pa.repeat(pair.benchmark, len(scored)))
        .append_column("run_id", pa.repeat(step.run_id, len(scored)))
    )
    table = cast_to_columns(table, SCORES)
    version = table_version(table)
    upstream = {
        f"examples/{pair.benchmark}": benchmark.digest,
        f"token_statistics/{pair.partition}": statistics_version(model, benchmark.digest),
    }
    highlighted = build_highlights(table, examples, pair, model, paths)
    origin = build_origin(model, benchmark)
    from_scores = {**upstream, f"scores/{pair.partition}": version}
    store.write(paths, step, HIGHLIGHTS, pair, highlighted, upstream=from_scores, **origin)
    # Last: where they are, everything is that later stages read.
    from_needs = {**upstream, **session.upstream}
    store.write(paths, step, SCORES, pair, table, data_version=version, upstream=from_needs, **origin)
    reasons = Counter(reason for reason in table.column("reason").to_pylist() if reason is not None)
    return ScoreReport(len(table), Counter(table.column("status").to_pylist()), reasons, version)


def _build_pass_options() -> type[BaseModel]:
    """What is cached of a pass apart from the statistics of every token: a switch for each kind on request."""
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
        pairs = [own for own in map(pair_of, run.partitions) if own.model == pair.model]
        with run.progress(f"other models that detectors of {pair.model} need") as notify:
            run_other_models(model, pairs, paths, backend_of, run.log.info, notify)
        with_others.add(pair.model)
    kinds: list[Kind] = ["base", *(kind for kind in OPTIONAL_KINDS if getattr(run.options, kind))]
    with run.progress(f"{pair.model} on {pair.benchmark}") as notify:
        summary = run_tokens(
            pair,
            model,
            paths,
            partial(backend_of, model),
            run.step(),
            kinds=kinds,
            logits_budget=int(run.options.logits_budget_gb * 1e9),
            on_progress=notify,
        )
    run.log.info(f"{pair.partition}: {summary.in_words}")
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
    pair = pair_of(partition)
    model, built = situation.models.get(pair.model), situation.built(pair.benchmark)
    inputs: dict[str, str | None] = {f"examples/{pair.benchmark}": built}
    if (control := situation.control_of(pair.model)) is not None:
        inputs |= situation.presence("controlled_contamination", control)
    if model is None:
        return inputs
    identity = model.identity
    return {
        **inputs,
        "model" if identity.before is None else "endpoint": identity.model_fingerprint,
        "tokenizer": identity.tokenizer_fingerprint,
        "settings": _find_version_now(pair, situation),
        "reference model": join_versions("reference_model", situation.needs(pair.model, "reference_model")),
    }


def _find_version_now(pair: Pair, situation: Situation) -> str | None:
    """The version that the pair's token statistics would have now; None where too little is known of the model."""
    model, built = situation.models.get(pair.model), situation.built(pair.benchmark)
    if model is None or built is None or (isinstance(model, SeenModel) and not model.is_known):
        return None
    return statistics_version(model, built)


def _recorded_of_statistics(partition: str, situation: Situation) -> Inputs | None:
    """What the ledger says of the pass, and the scores' line of the reference models, whose passes are their own.

    Scores that were handed over have no pass: they take its place.
    """
    scores = situation.latest(SCORES.name, partition)
    passes = situation.ledger.of(TOKEN_STATISTICS.name, partition)
    entry: Entry | None = passes[-1] if passes else scores
    if entry is None:
        return None
    of_pass = passes[-1].data_version if passes else entry.upstream.get(f"token_statistics/{partition}")
    return {
        **inputs_of_entry(entry),
        # Its settings have the versions of the code.
        "code": None,
        f"examples/{pair_of(partition).benchmark}": entry.benchmark_digest,
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
    pair = pair_of(partition)
    entry = situation.entries.get(pair.model)
    corpus = None if entry is None else entry.reference_corpus
    return {
        f"token_statistics/{partition}": _find_version_now(pair, situation) or UNKNOWN,
        **({f"token_frequencies/{corpus}|{pair.model}": UNKNOWN} if corpus is not None else {}),
        "token frequencies": join_versions("token_frequencies", situation.needs(pair.model, "token_frequencies")),
    }


def _recorded_of_scores(partition: str, situation: Situation) -> Inputs | None:
    entry = situation.latest(SCORES.name, partition)
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
