"""The assets ``warehouse``, all results in one DuckDB file, and ``contamination_report``, the HTML report."""

from __future__ import annotations

from pydantic import BaseModel, Field

from audit_pipeline.pipeline import stage
from audit_pipeline.pipeline.coverage import build_warehouse_with_coverage
from audit_pipeline.pipeline.evaluate_pair import write_missing_answers
from audit_pipeline.pipeline.publication_state import record_report_inputs, record_warehouse_inputs
from audit_pipeline.store.ledger import read_ledger
from audit_pipeline.store.paths import is_text_output_allowed
from audit_pipeline.tables import PAIR_STATES
from audit_pipeline.warehouse.build import WarehouseReport
from audit_pipeline.warehouse.query import open_read_only

_MAX_LISTED = 50


class QuotingOptions(BaseModel):
    """The options for quoting the audited texts."""

    include_text: bool = Field(
        default=is_text_output_allowed(),
        description="quote excerpts of at most 50 words; set CORPUS_AUDIT_NO_TEXT to change the default to false",
    )


@stage.audit_asset(
    partitions=(),
    deps=[stage.ALL_RESULTS],
    group="5_reports",
    job=stage.PUBLISH,
    kinds={"duckdb", "sql"},
    checks={
        "every_number_has_one_lineage_row": stage.StageCheck(
            "Every file of rows (documents, examples, scores, findings of every table) has a ledger line that explains "
            "it. Files without a ledger line are skipped.",
            is_warning=False,
        ),
        "every_key_once": stage.StageCheck("No table has two rows with the same key.", is_warning=False),
        "every_file_readable": stage.StageCheck("No Parquet, JSON or configuration file was unreadable."),
    },
    options=QuotingOptions,
    lock="warehouse",
    late_after_days=8,
)
def warehouse(run: stage.StageRun) -> stage.StageResult:
    """Build one DuckDB file of all results, data/audit.duckdb, for queries in SQL.

    The inputs are the tables of all other assets. The new file is built next to the old one and then replaces it, so
    open connections are not disturbed.
    """
    write_missing_answers(run.paths)
    # The head is read before the build, so rows that are written during the build make the warehouse stale.
    head = read_ledger(run.paths).head
    report = build_warehouse_with_coverage(run.paths, run.stages, include_text=run.options.include_text)
    record_warehouse_inputs(run.paths, head)
    if report.moved_wal is not None:
        run.log.warning(
            "another program had opened the old warehouse for writing and left a write-ahead log, which was moved to "
            f"{report.moved_wal}"
        )
    return stage.StageResult(metadata=summarise_warehouse(report), checks=_list_check_results(report))


def summarise_warehouse(report: WarehouseReport) -> stage.UiMetadata:
    """Return the number of pairs per state (table coverage), the sizes of the tables, and the number of files."""
    with open_read_only(report.path) as connection:
        counted = dict(connection.execute("SELECT status, count(*) FROM coverage GROUP BY ALL").fetchall())
    states = [(name, counted.get(name, 0), meaning) for name, meaning in PAIR_STATES.items()]
    return stage.UiMetadata(
        sum(report.rows.values()),
        {"bytes": report.bytes, "seconds": report.seconds, "files loaded": report.files},
        {
            "pairs": (("state", "pairs", "what it means"), states),
            "tables": (("table", "rows"), list(report.rows.items())),
        },
        paths={"path": report.path},
    )


def _list_check_results(report: WarehouseReport) -> dict[str, stage.CheckResult]:
    with open_read_only(report.path) as connection:
        gaps = connection.table("lineage_gaps").limit(_MAX_LISTED).fetchall()
    left_out = [(item.path, item.reason) for item in report.left_out[:_MAX_LISTED]]
    shown_gaps = stage.UiMetadata(tables={"gaps": (("table", "partition", "run", "is skipped", "problem"), gaps)})
    doubled = stage.UiMetadata(values={"duplicate rows": dict(report.doubled)})
    shown_left_out = stage.UiMetadata(tables={"skipped files": (("file", "reason"), left_out)})
    return {
        "every_number_has_one_lineage_row": stage.CheckResult(not report.unexplained, metadata=shown_gaps),
        "every_key_once": stage.CheckResult(not report.doubled, metadata=doubled),
        "every_file_readable": stage.CheckResult(not report.left_out, metadata=shown_left_out),
    }


@stage.audit_asset(
    partitions=(),
    deps=["warehouse"],
    group="5_reports",
    job=stage.PUBLISH,
    kinds={"html"},
    options=QuotingOptions,
    late_after_days=8,
)
def contamination_report(run: stage.StageRun) -> stage.StageResult:
    """Build the HTML report from the warehouse: one page per model, and one page across models.

    Each page states the question, the answer, how certain it is, and what would change it. It shows the evidence, its
    limits and the origin of every number.
    """
    # Imported here, because it imports matplotlib.
    from audit_pipeline.report.files import build_reports  # noqa: PLC0415

    include_text = run.options.include_text
    summary = build_reports(run.paths.warehouse, run.paths.reports, include_text=include_text)
    record_report_inputs(run.paths, include_text=include_text)
    values: dict[str, object] = {"pages written": summary.written}
    values |= {name: getattr(summary, name) for name in ("models", "benchmarks", "pairs", "findings", "bytes")}
    tables = {"pages": (("model", "page"), list(summary.pages.items()))}
    metadata = stage.UiMetadata(values=values, tables=tables, paths={"path": summary.path}, page=summary.path)
    return stage.StageResult(metadata=metadata)
