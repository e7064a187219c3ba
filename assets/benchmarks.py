"""Benchmarks: documents to labelled examples, and the quality of their splits, one partition per benchmark.

What belongs here: wiring, and the builder's checks as asset checks. What does not: building and checking
(audit_pipeline/benchmarks), measuring the quality (audit_pipeline/separability), what is shown of both
(audit_pipeline/operate/stages).
"""

import dagster as dg
from pydantic import Field

from audit_pipeline.benchmarks.build import build
from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.checks import CHECKS, CheckResult
from audit_pipeline.catalogue.contracts import EXAMPLES, SPLIT_QUALITY
from audit_pipeline.catalogue.ledger import LineageStep
from audit_pipeline.metrics.claims import VERDICT_IN_WORDS
from audit_pipeline.operate.dagster.jobs import BENCHMARKS
from audit_pipeline.operate.dagster.metadata import metadata_of, schema_metadata
from audit_pipeline.operate.dagster.partitions import benchmark_partitions
from audit_pipeline.operate.dagster.resources import AuditData
from audit_pipeline.operate.dagster.retries import with_retries
from audit_pipeline.operate.stages.benchmarks import (
    SPLIT_VERSION,
    SplitReport,
    assess_split,
    resolve_spec_to_build,
    summarise_build,
    summarise_split,
)
from audit_pipeline.separability.quality import MOST_PER_SIDE
from audit_pipeline.sources.config import all_sources

CODE_VERSION = "1"


@dg.asset(
    group_name=BENCHMARKS,
    description="The texts that models are audited on: members, which the model may have read, and non-members, "
    "which it cannot have read. Cut into windows of so many words, as many of each project on both "
    "sides; or a published data set as it is.",
    kinds={"python", "parquet"},
    code_version=CODE_VERSION,
    partitions_def=benchmark_partitions,
    deps=[
        *(dg.AssetKey(["documents", name]) for name in all_sources()),
        dg.AssetDep("controlled_contamination", partition_mapping=dg.AllPartitionMapping()),
    ],
    metadata=schema_metadata(EXAMPLES),
    check_specs=[
        dg.AssetCheckSpec(
            name,
            asset="benchmark",
            description=check.description,
            blocking=check.blocking,
            partitions_def=benchmark_partitions,
        )
        for name, check in CHECKS.items()
    ],
)
def benchmark(context: dg.AssetExecutionContext, data: AuditData) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Build the examples of one benchmark."""
    spec = resolve_spec_to_build(context.partition_key, data.paths)
    report = with_retries(
        lambda: build(spec, data.paths, context.run.run_id, code_version=CODE_VERSION),
        f"building {spec.name}",
        context.log,
    )
    for row in report.skipped[:20]:
        context.log.warning(f"skipped {row.location}: {row.reason}")
    return dg.MaterializeResult(
        data_version=dg.DataVersion(report.digest),
        metadata=metadata_of(summarise_build(report)),
        check_results=[_select_check_result(name, report.checks) for name in CHECKS],
    )


def _select_check_result(name: str, results: tuple[CheckResult, ...]) -> dg.AssetCheckResult:
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


class AssessmentConfig(dg.Config):
    """How much of a benchmark is read."""

    most_per_side: int = Field(
        default=MOST_PER_SIDE,
        ge=1,
        description="members, and non-members, that are read, drawn at random where there are more; the blind control "
        "of words reads all",
    )


@dg.asset(
    group_name=BENCHMARKS,
    description="How far the two sides of a benchmark can be told apart without any model: by their words, "
    "length, dates, language. Where they can, no audit on it says anything about training. It is made "
    "with every build.",
    kinds={"scikitlearn", "parquet"},
    code_version=SPLIT_VERSION,
    partitions_def=benchmark_partitions,
    deps=["benchmark"],
    metadata=schema_metadata(SPLIT_QUALITY),
    check_specs=[
        dg.AssetCheckSpec(
            "sides_alike",
            asset="split_quality",
            description="The two sides cannot be separated by their words alone.",
            partitions_def=benchmark_partitions,
        )
    ],
)
def split_quality(context: dg.AssetExecutionContext, config: AssessmentConfig, data: AuditData) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Measure what tells the sides of one benchmark apart without any model."""
    step = LineageStep.now(context.run.run_id, "split_quality", SPLIT_VERSION)
    built = read_built(data.paths, context.partition_key)
    built.require_passed_checks()
    report = assess_split(built, data.paths, step, most_per_side=config.most_per_side)
    return dg.MaterializeResult(
        data_version=dg.DataVersion(report.data_version),
        metadata=metadata_of(summarise_split(report)),
        check_results=[_check_sides_alike(report)],
    )


def _check_sides_alike(report: SplitReport) -> dg.AssetCheckResult:
    """A warning where the sides can be separated by their words; what cannot be read passes and says so."""
    quality = report.quality
    was_read = quality.summary["blind_auroc"] is not None
    return dg.AssetCheckResult(
        check_name="sides_alike",
        passed=quality.verdict != "separable without a model",
        severity=dg.AssetCheckSeverity.WARN,
        description=VERDICT_IN_WORDS[quality.verdict] if was_read else str(quality.summary["blind_method"]),
        metadata={
            "verdict": quality.verdict,
            **({"blind AUROC": quality.summary["blind_auroc"]} if was_read else {}),
        },
    )
