"""The asset ``benchmark``, the labelled examples of a benchmark, and its input ``benchmark_entries``."""

from __future__ import annotations

from collections.abc import Iterator

from audit_pipeline.benchmarks.build import BenchmarkReport, build, compute_wanted_digest
from audit_pipeline.benchmarks.builder_interface import UNDATED
from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.checks import CHECKS
from audit_pipeline.benchmarks.config import BenchmarkSpec, resolve_spec_to_build
from audit_pipeline.pipeline import stage
from audit_pipeline.pipeline.workspace_state import Inputs, Scope, WorkspaceState
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import EXAMPLES

_MAX_LOGGED = 20


@stage.observed_input(dimension="benchmark", group="2_benchmarks", kinds={"yaml"})
def benchmark_entries(benchmark: str, state: WorkspaceState) -> str | None:
    """Observe everything that a benchmark is built from.

    The version covers its entry in config/benchmarks.yaml, its documents and its local rows. It is unknown while an
    entry, a document or a file of rows is missing. Data sets on the Hugging Face hub are not checked for changes.
    """
    spec = state.specs.get(benchmark)
    if spec is None:
        return None
    if None in _list_input_versions(spec, state).values():
        return None
    # None is passed in place of the built digest, so that the version does not depend on an earlier response of the
    # hub.
    return compute_wanted_digest(spec, None, state.paths, state.read_source_version)


@stage.audit_asset(
    partitions=stage.BENCHMARK,
    deps=["documents", "controlled_contamination"],
    observes=("benchmark_entries",),
    tables=[EXAMPLES],
    group="2_benchmarks",
    job=stage.BUILD_BENCHMARKS,
    kinds={"python", "parquet"},
    checks={
        name: stage.StageCheck(check.description, not check.blocking, check.blocking) for name, check in CHECKS.items()
    },
    progress_message="building benchmark: {}",
    blocked_message="the benchmark {} is built first",
    missing_message="it has not been built",
    change_messages={"entry": "its entry in the configuration or its sources changed since it was built"},
)
def benchmark(run: stage.StageRun) -> stage.StageResult:
    """Build the texts on which models are audited.

    Members are texts that a model may have read in training. Non-members are texts that it cannot have read. Documents
    are cut into windows of a fixed number of words, with the same number per project on both sides. A published data
    set is used unchanged.
    """
    spec = resolve_spec_to_build(run.partition, run.paths)
    report = build(spec, run.paths, run.run_id, code_version=run.stage.code_version)
    for row in report.skipped[:_MAX_LOGGED]:
        run.log.warning(f"skipped {row.location}: {row.reason}")
    return stage.StageResult(report.digest, _summarise_build(report), _list_check_results(report))


@benchmark.inputs
def get_benchmark_inputs(name: str, state: WorkspaceState) -> Inputs:
    """Return the versions of the benchmark's documents and control, and the digest that a build would have now."""
    spec = state.specs.get(name)
    if spec is None:
        return {}
    inputs = _list_input_versions(spec, state)
    if None in inputs.values():
        # The digest is unknown while an input of the benchmark is missing.
        return inputs
    built = state.find_built_digest(name)
    wanted = compute_wanted_digest(spec, built, state.paths, state.read_source_version, ask_hub=state.ask_hub)
    return {**inputs, "entry": wanted}


@benchmark.recorded
def get_recorded_benchmark_inputs(name: str, state: WorkspaceState) -> Inputs | None:
    """Return the digest of the built benchmark."""
    built = state.find_built_digest(name)
    if not built:
        return None
    return {"entry": built}


@benchmark.sources
def list_benchmark_sources(scope: Scope, state: WorkspaceState) -> list[str]:
    """Return the sources of the scope's benchmarks."""
    sources: list[str] = []
    for name in scope.benchmarks:
        if name in state.specs:
            sources += state.specs[name].sources
    return sources


@benchmark.notes
def list_build_notes(name: str, paths: DataPaths) -> Iterator[str]:
    """Yield a message about skipped rows, and a message about rows that were kept without a date.

    Raises:
        DataError: If a blocking check found the benchmark unfit.
    """
    built = read_built(paths, name)
    built.require_passed_checks()
    skipped = built.manifest["skipped"]
    if skipped["rows"]:
        example = skipped["first"][0]
        yield f"{name}: {skipped['rows']} row(s) were skipped, the first is {example['row']}: {example['reason']}"
    undated = built.manifest.get(UNDATED)
    if undated is not None:
        example = undated["first"][0]
        rows = undated["rows"]
        yield f"{name}: {rows} row(s) have no date, the first is {example['row']}: {example['reason']}"


def _list_input_versions(spec: BenchmarkSpec, state: WorkspaceState) -> dict[str, str | None]:
    """Return the versions of a benchmark's documents and of its control. A missing input has the version None."""
    inputs: dict[str, str | None] = {}
    for source in spec.sources:
        inputs |= state.build_documents_input(source)
    if spec.control is not None:
        inputs |= state.build_control_input(spec.control)
    return inputs


def _summarise_build(report: BenchmarkReport) -> stage.UiMetadata:
    counts = report.counts
    left_out = {**report.documents_left_out, **report.texts_left_out}
    return stage.UiMetadata(
        report.examples.num_rows,
        {
            "members": counts["members"],
            "non-members": counts["nonmembers"],
            "groups": counts["groups"],
            "skipped rows": len(report.skipped),
            "digest": report.digest,
        },
        {"skipped": (("reason", "count"), list(left_out.items()))},
    )


def _list_check_results(report: BenchmarkReport) -> dict[str, stage.CheckResult]:
    results = dict.fromkeys(CHECKS, stage.CheckResult(True, "the check does not apply to this benchmark"))
    for check in report.checks:
        metadata = stage.UiMetadata(values={**check.counts, "offenders": list(check.offenders)})
        results[check.name] = stage.CheckResult(check.passed, check.what, metadata)
    return results
