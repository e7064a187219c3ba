"""The asset ``token_statistics``, one forward pass per text, and its input ``model_files``."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from pydantic import BaseModel, Field, create_model

from audit_pipeline.benchmarks.build import read_built_digest
from audit_pipeline.benchmarks.model_inputs import TEMPLATE
from audit_pipeline.models.fingerprint import entry_version
from audit_pipeline.pipeline import stage
from audit_pipeline.pipeline.workspace_state import Inputs, WorkspaceState, get_recorded_inputs, join_versions
from audit_pipeline.scoring.pair_scores import run_other_models, run_passes
from audit_pipeline.store.ledger_records import Entry
from audit_pipeline.tables import KINDS, OPTIONAL_KINDS, SCORES, TOKEN_STATISTICS, Kind, digest, parse_pair
from audit_pipeline.token_statistics.cached_texts import compute_statistics_version
from audit_pipeline.token_statistics.run import DEFAULT_LOGITS_BUDGET


@stage.observed_input(dimension="model", group="3_model_runs", kinds={"yaml", "safetensors"})
def model_files(model: str, state: WorkspaceState) -> str | None:
    """Observe the entry and the files of a model.

    The version covers the model's entry in config/models.yaml, and the names, sizes and times of its files. It covers
    the same facts of its reference model. No file is opened, so a copy of the same weights counts as a change.
    """
    entry = state.entries.get(model)
    if entry is None:
        return None
    reference = state.entries.get(entry.detector_reference or "")
    if reference is None:
        return entry_version(entry)
    return digest(entry_version(entry), entry_version(reference))[:16]


def _build_pass_options() -> type[BaseModel]:
    """Return the class of the options: one boolean per optional kind of statistics, and the maximum size of logits."""
    switches: dict[str, Any] = {
        kind: (bool, Field(default=False, description=f"also cache {KINDS[kind].on_request}"))
        for kind in OPTIONAL_KINDS
    }
    budget = Field(
        default=DEFAULT_LOGITS_BUDGET / 1e9,
        description="maximum size of the logits of a pair in gigabytes; a pair with larger logits fails before the "
        "model is run",
    )
    return create_model("PassOptions", **switches, logits_budget_gb=(float, budget))


@stage.audit_asset(
    partitions=stage.PAIR,
    deps=["benchmark"],
    observes=("model_files",),
    tables=[TOKEN_STATISTICS],
    group="3_model_runs",
    job=stage.AUDIT_PAIRS,
    kinds={"torch", "transformers", "parquet"},
    checks={
        "cache_intact": stage.StageCheck(
            "No part file of the cache was damaged. Damaged files are renamed, and their texts are run again."
        )
    },
    options=_build_pass_options(),
    lock="gpu",
    has_findings=False,
    blocked_message="{1} is run on {0} first",
    missing_message="it was never audited",
    change_messages={
        "settings": "the model's start token, its window, or the version of the computation of token statistics "
        "changed",
        "reference model": "the reference model changed",
        "chat template": "the model's chat template changed",
    },
)
def token_statistics(run: stage.StageRun) -> stage.StageResult:
    """Run the model once over every text of a benchmark.

    For each token, the cache stores its log-likelihood and how it compares with the rest of the vocabulary. The inputs
    are the benchmark and the model's files. A text that is in several benchmarks is run only once. A run that was
    stopped continues with the next text.
    """
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
    metadata = stage.UiMetadata(
        summary.text_pass.texts, {**summary.numbers, "model_fingerprint": model.identity.model_fingerprint}
    )
    built = read_built_digest(pair.benchmark, run.paths)
    version = None
    if built is not None:
        version = compute_statistics_version(model, built)
    return stage.StageResult(version, metadata, {"cache_intact": _check_cache(run, summary.unreadable_parts)})


@token_statistics.inputs
def get_statistics_inputs(partition: str, state: WorkspaceState) -> Inputs:
    """Return the versions of the benchmark, model, tokenizer, settings of the pass, and reference model."""
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
    model_input = "model" if identity.before is None else "endpoint"
    return {
        **inputs,
        model_input: identity.model_fingerprint,
        "tokenizer": identity.tokenizer_fingerprint,
        "settings": state.find_statistics_version(pair),
        "reference model": references,
        "chat template": state.find_template_version(pair, TOKEN_STATISTICS.name),
    }


@token_statistics.recorded
def get_recorded_statistics_inputs(partition: str, state: WorkspaceState) -> Inputs | None:
    """Return the recorded inputs of a pair's latest pass, and the versions of its reference model.

    A pass of the reference model has its own ledger entry, so its versions are read from the entry of the scores.
    External scores have no pass, so all their inputs are read from the entry of the scores.
    """
    scores = state.find_latest_entry(SCORES.name, partition)
    passes = state.ledger.list_entries(TOKEN_STATISTICS.name, partition)
    version: str | None
    if passes:
        entry: Entry = passes[-1]
        version = entry.data_version
    elif scores is not None:
        entry = scores
        version = entry.upstream.get(f"token_statistics/{partition}")
    else:
        return None
    references = None
    if scores is not None:
        references = join_versions("reference_model", scores.upstream)
    return {
        **get_recorded_inputs(entry),
        # The version of the settings covers the version of the code.
        "code": None,
        f"examples/{parse_pair(partition).benchmark}": entry.benchmark_digest,
        "settings": version,
        "reference model": references,
        "chat template": join_versions(TEMPLATE, entry.upstream),
    }


def _run_other_models_once(run: stage.StageRun, model: Any, backend_of: Any) -> None:
    """Run the other models that detectors need, such as a reference model, once for all pairs of a model in a run."""
    name = run.pair.model
    finished: set[str] = run.shared.setdefault("models whose other models ran", set())
    if name in finished:
        return
    pairs = [pair for pair in map(parse_pair, run.partitions) if pair.model == name]
    with run.progress(f"other models that detectors of {name} need") as notify:
        run_other_models(model, pairs, run.paths, backend_of, run.log.info, notify)
    finished.add(name)


def _check_cache(run: stage.StageRun, unreadable_parts: Iterable[str]) -> stage.CheckResult:
    """Return the check for all pairs of the run so far, because the UI shows only the check of the last pair."""
    damaged: list[str] = run.shared.setdefault("damaged files", [])
    damaged.extend(unreadable_parts)
    description = None
    if damaged:
        description = f"{len(damaged)} damaged files were renamed and their texts run again, the first is {damaged[0]}"
    return stage.CheckResult(not damaged, description, stage.UiMetadata(values={"damaged files": list(damaged)}))
