"""The warehouse and the report: rebuilt from Parquet, unpartitioned.

What belongs here: wiring. What does not: building them (audit_pipeline/warehouse, audit_pipeline/report), what is
shown of them (audit_pipeline/operate/stages).
"""

from collections.abc import Iterator

import dagster as dg
from pydantic import Field

from assets import OWNERS
from audit_pipeline.catalogue.paths import texts_are_quoted
from audit_pipeline.operate.dagster.automation import FOLLOWS, REBUILT, WEEKLY
from audit_pipeline.operate.dagster.metadata import metadata_of
from audit_pipeline.operate.dagster.resources import AuditData
from audit_pipeline.operate.published import note_published
from audit_pipeline.operate.stages.warehouse import (
    RebuiltWarehouse,
    rebuild,
    shown_of_checks,
    shown_of_report,
    shown_of_warehouse,
)
from audit_pipeline.report.write import build_reports

CODE_VERSION = "1"


class QuotingConfig(dg.Config):
    """Whether excerpts of the audited texts, at most 50 words each, may be quoted."""

    include_text: bool = Field(
        default=texts_are_quoted(),
        description="quote excerpts of at most 50 words; the environment variable CORPUS_AUDIT_NO_TEXT turns it off",
    )


@dg.asset(
    group_name="reports",
    description="data/audit.duckdb: every table and the views an analyst wants first, rebuilt from Parquet beside the "
    "old file and swapped in, so that readers are never disturbed.",
    kinds={"duckdb", "sql"},
    owners=OWNERS,
    code_version=CODE_VERSION,
    deps=["benchmark", "split_quality", "control_study", "extraction", "scores", "evaluations"],
    pool="duckdb_writer",
    automation_condition=REBUILT,
    freshness_policy=WEEKLY,
    check_specs=[
        dg.AssetCheckSpec(
            "every_number_has_one_lineage_row",
            asset="warehouse",
            description="Every row that a run wrote (documents, examples, scores, findings of every table) joins to "
            "exactly one lineage row.",
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
    """Rebuild the warehouse."""
    made = rebuild(data.paths, include_text=config.include_text)
    if made.report.moved_wal is not None:
        context.log.warning(
            f"the log of somebody's read-write session was in the way and was moved to {made.report.moved_wal}"
        )
    return dg.MaterializeResult(metadata=metadata_of(shown_of_warehouse(made)), check_results=list(_checks(made)))


def _checks(made: RebuiltWarehouse) -> Iterator[dg.AssetCheckResult]:
    shown = shown_of_checks(made)
    yield dg.AssetCheckResult(
        check_name="every_number_has_one_lineage_row",
        passed=made.explains_every_number,
        metadata=metadata_of(shown["lineage"]),
    )
    yield dg.AssetCheckResult(
        check_name="every_key_once", passed=not made.report.doubled, metadata=metadata_of(shown["keys"])
    )
    yield dg.AssetCheckResult(
        check_name="every_file_readable",
        passed=not made.report.unreadable,
        severity=dg.AssetCheckSeverity.WARN,
        metadata=metadata_of(shown["files"]),
    )


@dg.asset(
    group_name="reports",
    description="The findings as self-contained HTML pages, one per model and one across models, all with a JSON copy: "
    "the answer in words with its claim level, the evidence, limits, and the lineage of every number.",
    kinds={"html"},
    owners=OWNERS,
    code_version=CODE_VERSION,
    deps=["warehouse"],
    automation_condition=FOLLOWS,
    freshness_policy=WEEKLY,
)
def contamination_report(config: QuotingConfig, data: AuditData) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Write the report."""
    paths = data.paths
    summary = build_reports(paths.warehouse, paths.reports, include_text=config.include_text)
    note_published(paths, include_text=config.include_text)
    return dg.MaterializeResult(metadata=metadata_of(shown_of_report(summary)))
