"""The asset ``token_statistics``: one forward pass per text, kept in the cache."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from pydantic import BaseModel, Field, create_model

from audit_pipeline.benchmarks.build import read_built_digest
from audit_pipeline.pipeline.stage import (
    AUDIT_PAIRS,
    PAIR,
    CheckResult,
    StageCheck,
    StageResult,
    StageRun,
    UiMetadata,
    audit_asset,
)
from audit_pipeline.pipeline.workspace_state import Inputs, WorkspaceState, get_recorded_inputs, join_versions
from audit_pipeline.scoring.pair_scores import run_other_models, run_passes
from audit_pipeline.store.ledger import Entry
from audit_pipeline.tables import KINDS, OPTIONAL_KINDS, SCORES, TOKEN_STATISTICS, Kind, parse_pair
from audit_pipeline.token_statistics.pair_origin import compute_statistics_version
from audit_pipeline.token_statistics.run import DEFAULT_LOGITS_BUDGET


def _build_pass_options() -> type[BaseModel]:
    """Return the options of a pass: a switch for each kind of statistics on request, and the budget of logits."""
    switches: dict[str, Any] = {
        kind: (bool, Field(default=False, description=f"also {KINDS[kind].on_request}")) for kind in OPTIONAL_KINDS
    }
    budget = Field(
        default=DEFAULT_LOGITS_BUDGET / 1e9, description="the most that the kind 'logits' may add in one partition"
    )
    return create_model("PassOptions", **switches, logits_budget_gb=(float, budget))


@audit_asset(
    partitions=PAIR,
    deps=["benchmark"],
    observes=("model_files",),
    tables=[TOKEN_STATISTICS],
    group="3_model_runs",
    job=AUDIT_PAIRS,
    kinds={"torch", "transformers", "parquet"},
    checks={
        "cache_intact": StageCheck(
            "No part file of the cache was damaged; damaged files are set aside and their texts run again."
        )
    },
    options=_build_pass_options(),
    lock="gpu",
    has_findings=False,
    blocked_message="{1} is run on {0} first",
    missing_message="never audited",
    change_messages={
        "settings": "the start token, the window or the form of the token statistics changed since",
        "reference model": "the reference model changed since",
    },
)
def token_statistics(run: StageRun) -> StageResult:
    """One forward pass of the model over every text. For each token, the cache keeps how likely the token was and how
    it compares with the rest of the vocabulary. A text that was read for one benchmark is never read again. A run that
    was stopped continues where it ended."""
    pair = run.pair
    model = run.models.load_for_run(pair.model, run.paths, run.log)
    backend_of = partial(run.models.backend, paths=run.paths, log=run.log)
    _run_other_models_once(run, model, backend_of)
    kinds: list[Kind] = ["base", *(kind for kind in OPTIONAL_KINDS if getattr(run.options, kind))]
    with run.progress(f"{pair.model} on {pair.benchmark}") as notify:
        summary = run_passes(
            pair,
            model,
            run.paths,
            partial(backend_of, model),
            run.step(),
            kinds=kinds,
            logits_budget=int(run.options.logits_budget_gb * 1e9),
            on_progress=notify,
        )
    run.log.info(f"{pair.partition}: {summary.cache_summary}")
    metadata = UiMetadata(summary.text_pass.texts, {**summary.numbers, "model_fingerprint": model.identity.model_fingerprint})
    built = read_built_digest(pair.benchmark, run.paths)
    version = None if built is None else compute_statistics_version(model, built)
    return StageResult(version, metadata, {"cache_intact": _check_cache(run, summary.unreadable_parts)})


@token_statistics.inputs
def get_statistics_inputs(partition: str, state: WorkspaceState) -> Inputs:
    """Return the benchmark, the model with its tokenizer, the conventions of the pass, and the reference model."""
    pair = parse_pair(partition)
    model = state.models.get(pair.model)
    inputs: dict[str, str | None] = {f"examples/{pair.benchmark}": state.find_built_digest(pair.benchmark)}
    control = state.find_control(pair.model)
    if control is not None:
        inputs |= state.build_control_input(control)
    if model is None:
        return inputs
    identity = model.identity
    references = join_versions("reference_model", state.find_needed_versions(pair.model, "reference_model"))
    return {
        **inputs,
        "model" if identity.before is None else "endpoint": identity.model_fingerprint,
        "tokenizer": identity.tokenizer_fingerprint,
        "settings": state.find_statistics_version(pair),
        "reference model": references,
    }


@token_statistics.recorded
def get_recorded_statistics_inputs(partition: str, state: WorkspaceState) -> Inputs | None:
    """Return what the ledger records of the pass, and the reference models from the entry of the scores.

    The passes of reference models are their own. External scores have no pass and stand in for it.
    """
    scores = state.find_latest_entry(SCORES.name, partition)
    passes = state.ledger.list_entries(TOKEN_STATISTICS.name, partition)
    entry: Entry | None = passes[-1] if passes else scores
    if entry is None:
        return None
    version = passes[-1].data_version if passes else entry.upstream.get(f"token_statistics/{partition}")
    return {
        **get_recorded_inputs(entry),
        # The settings cover the versions of the code.
        "code": None,
        f"examples/{parse_pair(partition).benchmark}": entry.benchmark_digest,
        "settings": version,
        "reference model": None if scores is None else join_versions("reference_model", scores.upstream),
    }


def _run_other_models_once(run: StageRun, model: Any, backend_of: Any) -> None:
    """Run the models that detectors need besides, once for all pairs of the model in a run."""
    name = run.pair.model
    finished: set[str] = run.shared.setdefault("models whose other models ran", set())
    if name in finished:
        return
    pairs = [pair for pair in map(parse_pair, run.partitions) if pair.model == name]
    with run.progress(f"other models that detectors of {name} need") as notify:
        run_other_models(model, pairs, run.paths, backend_of, run.log.info, notify)
    finished.add(name)


def _check_cache(run: StageRun, unreadable_parts: Iterable[str]) -> CheckResult:
    """Return the check of the whole run so far: the UI shows a check as it was for the last pair."""
    damaged: list[str] = run.shared.setdefault("set aside", [])
    damaged.extend(unreadable_parts)
    description = None
    if damaged:
        description = f"{len(damaged)} set aside and their texts run again, the first {damaged[0]}"
    return CheckResult(not damaged, description, UiMetadata(values={"set aside": list(damaged)}))
