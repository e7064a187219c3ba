"""The stages that are made of all others: the warehouse, with the planner's word on every pair, and the report."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, Field

from audit_pipeline.pipeline.coverage import judge_data_folder
from audit_pipeline.pipeline.publication_state import note_report, note_warehouse
from audit_pipeline.pipeline.stage import Check, Finding, Job, Made, Shown, Stage, StageRun
from audit_pipeline.pipeline.stages.evaluations import write_missing_answers
from audit_pipeline.pipeline.stages.registry import STAGES
from audit_pipeline.store.bucket_folder import refresh_warehouse
from audit_pipeline.store.ledger import read_ledger
from audit_pipeline.store.paths import DataPaths, is_text_output_allowed
from audit_pipeline.tables import PAIR_STATES
from audit_pipeline.warehouse.build import WarehouseReport, build_warehouse_file
from audit_pipeline.warehouse.query import open_read_only

PUBLISH = Job(
    "publish", "Bring the warehouse and the report up to date with what has been audited.", "warehouse and report built"
)
_LISTED = 50


def build_warehouse(paths: DataPaths, *, include_text: bool = True, config: Path | None = None) -> WarehouseReport:
    """Build the warehouse (warehouse/build.py, build_warehouse_file), with or without excerpts of the texts; pairs
    without an answer get one first."""
    write_missing_answers(paths, config)
    return build_warehouse_file(judge_data_folder, paths, include_text=include_text, config=config)


def ensure_warehouse(paths: DataPaths) -> Path:
    """The warehouse, built first where something was audited and there is none. Raises as the build does."""
    refresh_warehouse(paths.warehouse)
    if paths.ledger.exists() and not paths.warehouse.exists():
        build_warehouse(paths, include_text=is_text_output_allowed())
    return paths.warehouse


class QuotingOptions(BaseModel):
    """Whether excerpts of the audited texts, at most 50 words each, may be quoted."""

    include_text: bool = Field(
        default=is_text_output_allowed(),
        description="quote excerpts of at most 50 words; the environment variable CORPUS_AUDIT_NO_TEXT turns it off",
    )


def summarise_warehouse(report: WarehouseReport) -> Shown:
    """How many pairs are in each state (table coverage), how large the tables are, and of how many files."""
    with open_read_only(report.path) as connection:
        counted = dict(connection.execute("SELECT status, count(*) FROM coverage GROUP BY ALL").fetchall())
    states = [(name, counted.get(name, 0), meaning) for name, meaning in PAIR_STATES.items()]
    return Shown(
        sum(report.rows.values()),
        {"bytes": report.bytes, "seconds": report.seconds, "files loaded": report.files},
        {
            "pairs": (("state", "pairs", "what it means"), states),
            "tables": (("table", "rows"), list(report.rows.items())),
        },
        paths={"path": report.path},
    )


def _build(run: StageRun) -> Made:
    write_missing_answers(run.paths)
    # Before the build: what is written meanwhile is built next time.
    head = read_ledger(run.paths).head
    report = build_warehouse(run.paths, include_text=run.options.include_text)
    note_warehouse(run.paths, head)
    if report.moved_wal is not None:
        run.log.warning(f"the log of somebody's read-write session was in the way and was moved to {report.moved_wal}")
    with open_read_only(report.path) as connection:
        gaps = connection.table("lineage_gaps").limit(_LISTED).fetchall()
    left_out = [(item.path, item.reason) for item in report.left_out[:_LISTED]]
    shown_gaps = Shown(tables={"gaps": (("table", "partition", "run", "is left out", "what"), gaps)})
    return Made(
        shown=summarise_warehouse(report),
        checks={
            "every_number_has_one_lineage_row": Finding(not report.unexplained, shown=shown_gaps),
            "every_key_once": Finding(not report.doubled, shown=Shown(values={"rows too many": dict(report.doubled)})),
            "every_file_readable": Finding(
                not report.left_out, shown=Shown(tables={"left out": (("file", "reason"), left_out)})
            ),
        },
    )


WAREHOUSE_STAGE = Stage(
    name="warehouse",
    description="All results in one DuckDB file, data/audit.duckdb, for queries in SQL. It is built next to the old "
    "file and then takes its place, so nobody who reads that is disturbed.",
    dimensions=(),
    group="5_reports",
    job=PUBLISH,
    make=_build,
    after=tuple(stage.name for stage in STAGES if stage.is_in_warehouse),
    checks={
        "every_number_has_one_lineage_row": Check(
            "Every file of rows (documents, examples, scores, findings of every table) has the line of the ledger that "
            "explains it; what has none is left out.",
            False,
        ),
        "every_key_once": Check("No table holds two rows of one key.", False),
        "every_file_readable": Check("No Parquet, JSON or configuration file had to be left out."),
    },
    options=QuotingOptions,
    kinds=frozenset({"duckdb", "sql"}),
    lock="warehouse",
    late_after_days=8,
)


def _write_report(run: StageRun) -> Made:
    from audit_pipeline.report.files import build_reports  # noqa: PLC0415 - it imports matplotlib

    include_text = run.options.include_text
    summary = build_reports(run.paths.warehouse, run.paths.reports, include_text=include_text)
    note_report(run.paths, include_text=include_text)
    counted = ("models", "benchmarks", "pairs", "findings", "bytes")
    return Made(
        shown=Shown(
            values={"pages written": summary.written, **{name: getattr(summary, name) for name in counted}},
            tables={"pages": (("model", "page"), list(summary.pages.items()))},
            paths={"path": summary.path},
            page=summary.path,
        )
    )


REPORT_STAGE = Stage(
    name="contamination_report",
    description="The report: a page for each model and one across models, which say what was asked, the answer, "
    "how sure it is and what would change it; its evidence, its limits, and where every "
    "number comes from.",
    dimensions=(),
    group="5_reports",
    job=PUBLISH,
    make=_write_report,
    after=(WAREHOUSE_STAGE.name,),
    options=QuotingOptions,
    kinds=frozenset({"html"}),
    late_after_days=8,
)
REPORT_STAGES = (WAREHOUSE_STAGE, REPORT_STAGE)
