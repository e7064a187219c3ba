"""The observed input ``benchmark_entries``: what a benchmark would be built of now."""

from __future__ import annotations

from assets.benchmark import get_benchmark_inputs
from audit_pipeline.pipeline.stage import observed_input
from audit_pipeline.pipeline.workspace_state import WorkspaceState


@observed_input(dimension="benchmark", group="2_benchmarks", kinds={"yaml"})
def benchmark_entries(benchmark: str, state: WorkspaceState) -> str | None:
    """The digest that a benchmark would have if it were built now: of its entry in config/benchmarks.yaml, its
    documents and its rows. It is unknown until everything that the benchmark is made of is there."""
    return get_benchmark_inputs(benchmark, state).get("entry")
