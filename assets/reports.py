"""The warehouse and the report: rebuilt from Parquet, unpartitioned.

What belongs here: wiring. What does not: building them (audit_pipeline/warehouse).
"""

import dataclasses

import dagster as dg
from pydantic import Field

from assets import OWNERS
from audit_pipeline.catalogue.paths import texts_are_quoted
from audit_pipeline.operate.dagster.automation import FOLLOWS, REBUILT, WEEKLY
from audit_pipeline.operate.dagster.metadata import markdown_table
from audit_pipeline.operate.dagster.resources import AuditData
from audit_pipeline.operate.published import note_published
from audit_pipeline.report.write import build_reports
from audit_pipeline.warehouse.build import build_warehouse, lineage_gaps
from audit_pipeline.warehouse.query import open_read_only

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
    deps=["benchmark", "split_quality", "control_study", "scores", "evaluations"],
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
    report = build_warehouse(data.paths, include_text=config.include_text)
    if report.moved_wal is not None:
        context.log.warning(
            f"the log of somebody's read-write session was in the way and was moved to {report.moved_wal}"
        )
    with open_read_only(report.path) as connection:
        gaps = lineage_gaps(connection)
    return dg.MaterializeResult(
        metadata={
            "dagster/row_count": sum(report.rows.values()),
            "tables": markdown_table(("table", "rows"), list(report.rows.items())),
            "bytes": report.bytes,
            "seconds": report.seconds,
            "path": dg.MetadataValue.path(report.path),
        },
        check_results=[
            dg.AssetCheckResult(
                check_name="every_number_has_one_lineage_row",
                # An entry without its file is no number: of a run that was killed at the wrong moment there is one.
                passed=not any(gap.rows for gap in gaps),
                metadata={
                    "gaps": markdown_table(
                        ("table", "partition", "run", "rows", "lineage rows", "what"),
                        [dataclasses.astuple(gap) for gap in gaps[:50]],
                    )
                },
            ),
            dg.AssetCheckResult(
                check_name="every_key_once",
                passed=not report.doubled,
                metadata={"rows too many": dict(report.doubled)},
            ),
            dg.AssetCheckResult(
                check_name="every_file_readable",
                passed=not report.unreadable,
                severity=dg.AssetCheckSeverity.WARN,
                metadata={
                    "left out": markdown_table(
                        ("file", "reason"), [(item.path, item.reason) for item in report.unreadable[:50]]
                    )
                },
            ),
        ],
    )


@dg.asset(
    group_name="reports",
    description="The findings as self-contained HTML pages, one a model and one across models, each with a JSON copy: "
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
    return dg.MaterializeResult(
        metadata={
            "path": dg.MetadataValue.path(summary.path),
            "pages": markdown_table(("model", "page"), [(model, page) for model, page in summary.pages.items()]),
            "pages written": summary.written,
            "models": summary.models,
            "benchmarks": summary.benchmarks,
            "pairs": summary.pairs,
            "findings": summary.findings,
            "bytes": summary.bytes,
        }
    )
