"""Benchmarks: documents to labelled examples, one partition a benchmark.

What belongs here: wiring, and the builder's checks as asset checks. What does not: building and checking
(audit_pipeline/benchmarks).
"""

from typing import Any

import dagster as dg

from assets import OWNERS
from audit_pipeline.benchmarks.build import BuildReport
from audit_pipeline.benchmarks.checks import CHECKS, CheckResult
from audit_pipeline.contracts import EXAMPLES
from audit_pipeline.lineage import Step
from audit_pipeline.orchestration.metadata import markdown_table, rows, schema_metadata
from audit_pipeline.orchestration.partitions import benchmark_partitions
from audit_pipeline.orchestration.resources import AuditData
from audit_pipeline.orchestration.retries import with_retries
from audit_pipeline.sources.registry import SOURCES
from audit_pipeline.stages import build_benchmark, spec_to_build

CODE_VERSION = "1"


@dg.asset(
    group_name="benchmarks",
    description="Labelled examples of one length: members published before the model could be trained, non-members "
    "after, in windows of exactly so many words, balanced over the projects of a source; or a published data set.",
    kinds={"python", "parquet"},
    owners=OWNERS,
    code_version=CODE_VERSION,
    partitions_def=benchmark_partitions,
    deps=[dg.AssetKey(["documents", name]) for name in SOURCES],
    metadata=schema_metadata(EXAMPLES),
    check_specs=[
        dg.AssetCheckSpec(name, asset="benchmark", description=check.description, blocking=check.blocking)
        for name, check in CHECKS.items()
    ],
)
def benchmark(context: dg.AssetExecutionContext, data: AuditData) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Build the examples of one benchmark."""
    spec = spec_to_build(context.partition_key, data.paths)
    step = Step.now(context.run.run_id, "benchmark", CODE_VERSION)
    report = with_retries(lambda: build_benchmark(spec, data.paths, step), f"building {spec.name}", context.log)
    for row in report.skipped[:20]:
        context.log.warning(f"skipped {row.location}: {row.reason}")
    return dg.MaterializeResult(
        data_version=dg.DataVersion(report.digest),
        metadata=_metadata(report),
        check_results=[_check_result(name, report.checks) for name in CHECKS],
    )


def _metadata(report: BuildReport) -> dict[str, Any]:
    counts = report.counts
    left_out = {**report.documents_left_out, **report.texts_left_out}
    return {
        **rows(report.examples.num_rows),
        "members": counts["members"],
        "non-members": counts["nonmembers"],
        "groups": counts["groups"],
        "by collection": markdown_table(
            ("collection", "members", "non-members"),
            [(name, side["members"], side["nonmembers"]) for name, side in counts["by_collection"].items()],
        ),
        "left out": markdown_table(("reason", "count"), list(left_out.items())),
        "skipped rows": len(report.skipped),
        "digest": report.digest,
    }


def _check_result(name: str, results: tuple[CheckResult, ...]) -> dg.AssetCheckResult:
    """The result of one check; a check that has nothing to look at in this benchmark passes and says so."""
    result = next((result for result in results if result.name == name), None)
    if result is None:
        return dg.AssetCheckResult(check_name=name, passed=True, description="nothing to check in this benchmark")
    return dg.AssetCheckResult(
        check_name=name,
        passed=result.passed,
        severity=dg.AssetCheckSeverity.ERROR if result.blocking else dg.AssetCheckSeverity.WARN,
        description=result.what,
        metadata={**result.counts, "offenders": list(result.offenders)},
    )
