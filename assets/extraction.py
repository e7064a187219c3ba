"""The asset ``extraction``: the passages of a benchmark's documents that a model reproduces verbatim."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from pydantic import BaseModel, Field

from audit_pipeline import tables
from audit_pipeline.benchmarks.model_inputs import TEMPLATE
from audit_pipeline.benchmarks.settings import ExtractionSettings
from audit_pipeline.extras.extraction import COARSE_TO_FINE, PREFIX, SUFFIX
from audit_pipeline.extras.extraction.pair_extraction import (
    EXTRACTION_VERSION,
    build_search_version,
    extract_pair,
    find_extraction_settings,
    find_spec,
)
from audit_pipeline.pipeline.stage import AUDIT_PAIRS, PAIR, StageJob, StageResult, StageRun, UiMetadata, audit_asset
from audit_pipeline.pipeline.workspace_state import Inputs, Scope, WorkspaceState, get_recorded_inputs, join_versions


class ExtractionOptions(BaseModel):
    """The options of a search of documents for passages that a model reproduces."""

    every_pair: bool = Field(
        default=False,
        description="search the documents of every pair; false: only of benchmarks with extraction: true",
    )
    prefix: int | None = Field(
        default=None, description=f"prompt length in tokens; null: the benchmark's setting, by default {PREFIX}"
    )
    suffix: int | None = Field(
        default=None,
        description=f"continuation length in tokens; null: the benchmark's setting, by default {SUFFIX}",
    )
    stride: str | None = Field(
        default=None,
        description="start positions of windows: coarse-to-fine | tiled | chars:N; null: the benchmark's setting, by "
        f"default {COARSE_TO_FINE}",
    )
    grid: bool = Field(
        default=False,
        description="search with every setting of a grid of prefix and suffix lengths; false: the benchmark's setting",
    )


@audit_asset(
    partitions=PAIR,
    # It runs after the evaluation, so a failure does not affect the findings, and the model is still in memory.
    deps=["benchmark", "evaluations"],
    tables=[tables.DOCUMENT_MEMORISATION, tables.EXTRACTION_WINDOWS, tables.EXTRACTION_RATES, tables.EXTRACTION_GRID],
    code_version=EXTRACTION_VERSION,
    group="4_findings",
    job=AUDIT_PAIRS,
    kinds={"torch", "transformers", "parquet"},
    options=ExtractionOptions,
    lock="gpu",
    standalone_job=StageJob(
        "extract",
        "Search the whole documents of benchmarks for passages that models reproduce verbatim.",
        "documents searched",
    ),
    standalone_options={"every_pair": True},
    blocked_message="the documents of {0} are searched with {1} first",
    missing_message="its documents have not been searched for passages that the model reproduces",
    change_messages={
        "code": "its documents were searched with other settings, or by an earlier version of the code",
        "statistics": "the start token or the window changed since its documents were searched",
        "reference_model": "the reference model changed since its documents were searched",
        "chat template": "the model's chat template changed since its answers were searched",
    },
)
def extraction(run: StageRun) -> StageResult:
    """Search a benchmark's whole documents for passages that a model reproduces verbatim.

    The model receives a prefix of each window of a document. The result is how likely it is to continue with the
    original text, compared with held-out documents. Audits run the search for benchmarks with extraction: true. The
    job extract runs it for any pair.
    """
    pair = run.pair
    options = run.options
    settings = find_extraction_settings(pair.benchmark)
    if settings is None and not options.every_pair:
        reason = {"reason": f"the entry of {pair.benchmark} does not set extraction: true"}
        return StageResult(None, UiMetadata(values=reason), status="not_requested")
    search_settings = (settings or ExtractionSettings()).override(
        prefix=options.prefix, suffix=options.suffix, stride=options.stride, grid=options.grid or None
    )
    model = run.models.load_for_run(pair.model, run.paths, run.log)
    backend_of = partial(run.models.backend, paths=run.paths, log=run.log)
    step = run.step(build_search_version(search_settings, find_spec(pair.benchmark)))
    with run.progress(f"documents of {pair.benchmark}, {pair.model}") as notify:
        return extract_pair(pair, model, run.paths, backend_of, step, search_settings, notify)


@extraction.partitions
def list_searched_pairs(scope: Scope, state: WorkspaceState) -> Iterable[str]:
    """Return the pairs of the scope on benchmarks whose entries set extraction."""
    searched = {name for name, spec in state.specs.items() if spec.settings.extraction is not None}
    return [pair.partition for pair in scope.pairs if pair.benchmark in searched]


@extraction.inputs
def get_extraction_inputs(partition: str, state: WorkspaceState) -> Inputs:
    """Return the versions of the benchmark, the model, the settings of the search, and the reference model."""
    pair = tables.parse_pair(partition)
    spec = state.specs.get(pair.benchmark)
    model = state.models.get(pair.model)
    # The plan reports the first changed input, so the order matters.
    inputs: dict[str, str | None] = {
        f"examples/{pair.benchmark}": state.find_built_digest(pair.benchmark),
        "code": None,
    }
    if spec is not None and spec.settings.extraction is not None:
        inputs["code"] = build_search_version(spec.settings.extraction, spec)
    if model is not None:
        is_on_server = model.identity.before is not None
        inputs["endpoint" if is_on_server else "model"] = model.identity.model_fingerprint
    # The key is not ``token_statistics/...``, because the search would then wait for the pass over the texts.
    inputs["statistics"] = state.find_statistics_version(pair)
    inputs["chat template"] = state.find_template_version(pair, tables.DOCUMENT_MEMORISATION.name)
    inputs |= state.find_needed_versions(pair.model, "reference_model") or {}
    return inputs


@extraction.recorded
def get_recorded_extraction_inputs(partition: str, state: WorkspaceState) -> Inputs | None:
    """Return the recorded inputs of the search."""
    entry = state.find_latest_entry(tables.DOCUMENT_MEMORISATION.name, partition)
    if entry is None:
        return None
    return {
        **get_recorded_inputs(entry),
        "statistics": entry.upstream.get(f"token_statistics/{partition}"),
        "chat template": join_versions(TEMPLATE, entry.upstream),
    }
