"""The warehouse and the report: rebuilt from Parquet, unpartitioned.

What belongs here: wiring. What does not: building them (audit_pipeline/warehouse, audit_pipeline/report), what is
shown of them (audit_pipeline/operate/stages).
"""

from collections.abc import Iterator

import dagster as dg
from pydantic import Field

from audit_pipeline.catalogue.paths import texts_are_quoted
from audit_pipeline.operate.dagster.audit_locks import hold_run_lock
from audit_pipeline.operate.dagster.jobs import REBUILT, REPORTS
from audit_pipeline.operate.dagster.metadata import link_report, metadata_of
from audit_pipeline.operate.dagster.resources import AuditData
from audit_pipeline.operate.dagster.stage_assets import late_after
from audit_pipeline.operate.publication import note_report, note_warehouse
from audit_pipeline.operate.stages.registry import STAGES
from audit_pipeline.operate.stages.warehouse import (
    RebuiltWarehouse,
    rebuild_warehouse,
    summarise_report,
    summarise_warehouse,
    summarise_warehouse_checks,
)

CODE_VERSION = "1"


class QuotingConfig(dg.Config):
    """Whether excerpts of the audited texts, at most 50 words each, may be quoted."""

    include_text: bool = Field(
        default=texts_are_quoted(),
        description="quote excerpts of at most 50 words; the environment variable CORPUS_AUDIT_NO_TEXT turns it off",
    )


@dg.asset(
    group_name=REPORTS,
    description="All results in one DuckDB file, data/audit.duckdb, for queries in SQL. It is built beside the old "
    "file and then takes its place, so nobody who reads that is disturbed.",
    kinds={"duckdb", "sql"},
    code_version=CODE_VERSION,
    deps=[stage.name for stage in STAGES if stage.is_published],
    automation_condition=REBUILT,
    freshness_policy=late_after(8),
    check_specs=[
        dg.AssetCheckSpec(
            "every_number_has_one_lineage_row",
            asset="warehouse",
            description="Every file of rows (documents, examples, scores, findings of every table) has the line of the "
            "ledger that explains it; what has none is left out.",
        ),
        dg.AssetCheckSpec(
            "every_key_once",
            asset="warehouse",
            description="No table holds two rows of one key.",
        ),
        dg.AssetCheckSpec(
            "every_file_readable",
            asset="warehouse",
            description="No Parquet, JSON or configuration file had to be left out.",
        ),
    ],
)
def warehouse(context: dg.AssetExecutionContext, config: QuotingConfig, data: AuditData) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Build the warehouse."""
    with hold_run_lock(data.paths, "warehouse", context.log.info):
        made = rebuild_warehouse(data.paths, include_text=config.include_text)
        note_warehouse(data.paths, made.head)
    if made.report.moved_wal is not None:
        context.log.warning(
            f"the log of somebody's read-write session was in the way and was moved to {made.report.moved_wal}"
        )
    return dg.MaterializeResult(
        metadata=metadata_of(summarise_warehouse(made)), check_results=list(_iterate_check_results(made))
    )


def _iterate_check_results(rebuild_result: RebuiltWarehouse) -> Iterator[dg.AssetCheckResult]:
    shown, filled = summarise_warehouse_checks(rebuild_result), rebuild_result.report.filled
    yield dg.AssetCheckResult(
        check_name="every_number_has_one_lineage_row",
        passed=not filled.unexplained,
        metadata=metadata_of(shown["lineage"]),
    )
    yield dg.AssetCheckResult(
        check_name="every_key_once", passed=not filled.doubled, metadata=metadata_of(shown["keys"])
    )
    yield dg.AssetCheckResult(
        check_name="every_file_readable",
        passed=not filled.left_out,
        severity=dg.AssetCheckSeverity.WARN,
        metadata=metadata_of(shown["files"]),
    )


@dg.asset(
    group_name=REPORTS,
    description="The report: a page for each model and one across models, which say what was asked, the answer, "
    "how sure it is and what would change it; the evidence behind it, its limits, and where every "
    "number comes from.",
    kinds={"html"},
    code_version=CODE_VERSION,
    deps=["warehouse"],
    automation_condition=REBUILT,
    freshness_policy=late_after(8),
    metadata=link_report(),
)
def contamination_report(config: QuotingConfig, data: AuditData) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Write the report."""
    from audit_pipeline.report.files import build_reports  # noqa: PLC0415 - it imports matplotlib

    paths = data.paths
    summary = build_reports(paths.warehouse, paths.reports, include_text=config.include_text)
    note_report(paths, include_text=config.include_text)
    return dg.MaterializeResult(metadata=metadata_of(summarise_report(summary)))
