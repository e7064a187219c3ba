"""The observed input ``benchmark_entries``: what a benchmark would be built of now."""

from __future__ import annotations

from audit_pipeline.benchmarks.build import compute_wanted_digest
from audit_pipeline.pipeline.stage import observed_input
from audit_pipeline.pipeline.workspace_state import WorkspaceState


@observed_input(dimension="benchmark", group="2_benchmarks", kinds={"yaml"})
def benchmark_entries(benchmark: str, state: WorkspaceState) -> str | None:
    """The digest of what a benchmark would be built of now: its entry in config/benchmarks.yaml, its documents and its
    local rows. It is unknown until all of them are there. Rows of the hub are not looked at."""
    spec = state.specs.get(benchmark)
    if spec is None:
        return None
    documents = [version for source in spec.sources for version in state.build_documents_input(source).values()]
    control = {} if spec.control is None else state.build_control_input(spec.control)
    if None in documents or None in control.values():
        return None
    # Without the digest of what is built, which holds the hub's answer.
    return compute_wanted_digest(spec, None, state.paths, state.read_source_version)
