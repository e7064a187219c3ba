"""The last stage: the warehouse of all that was found, and what the UI shows of it and of the report.

What belongs here: building it with the planner's word on every pair, whether it explains its numbers, and choosing what
is shown. What does not: reading and writing the files (warehouse/), writing the report (report/), and Dagster's own
types (operate/dagster/metadata.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from audit_pipeline.catalogue.bucket_folder import refresh_warehouse
from audit_pipeline.catalogue.contracts import PAIR_STATES
from audit_pipeline.catalogue.ledger import read_ledger
from audit_pipeline.catalogue.paths import DataPaths, texts_are_quoted
from audit_pipeline.operate.coverage import judge
from audit_pipeline.operate.stage import Shown
from audit_pipeline.operate.stages.evaluations import answer_missing
from audit_pipeline.warehouse.build import LineageGap, WarehouseReport, build_warehouse_file, read_lineage_gaps
from audit_pipeline.warehouse.query import open_read_only

if TYPE_CHECKING:
    from audit_pipeline.report.files import ReportSummary

_LISTED = 50


@dataclass(frozen=True)
class RebuiltWarehouse:
    """What a rebuild did, and where rows and lineage entries of the new warehouse do not go together."""

    report: WarehouseReport
    head: str
    """The digest of the last line of the ledger when the build began."""
    gaps: Sequence[LineageGap]
    states: Mapping[str, int]
    """How many pairs of a model and a benchmark are in each state (table coverage)."""


def build_warehouse(paths: DataPaths, *, include_text: bool = True, config: Path | None = None) -> WarehouseReport:
    """Build the warehouse with the planner's word on every pair (warehouse/build.py, build_with); pairs without an
    answer get one first."""
    answer_missing(paths, config)
    return build_warehouse_file(judge, paths, include_text=include_text, config=config)


def ensure_warehouse(paths: DataPaths) -> Path:
    """The warehouse, built first where something was audited and there is none. Raises as the build does."""
    refresh_warehouse(paths.warehouse)
    if paths.ledger.exists() and not paths.warehouse.exists():
        build_warehouse(paths, include_text=texts_are_quoted())
    return paths.warehouse


def rebuild_warehouse(paths: DataPaths, *, include_text: bool) -> RebuiltWarehouse:
    """Build the warehouse, with or without excerpts of the texts, and compare its files with the lineage."""
    answer_missing(paths)
    # Before the build: what is written meanwhile is built next time.
    head = read_ledger(paths).head
    report = build_warehouse_file(judge, paths, include_text=include_text)
    with open_read_only(report.path) as connection:
        counted = connection.execute("SELECT status, count(*) FROM coverage GROUP BY ALL").fetchall()
        return RebuiltWarehouse(report, head, read_lineage_gaps(connection), dict(counted))


def summarise_warehouse(warehouse: RebuiltWarehouse) -> Shown:
    """Of a warehouse: the states of the pairs, how large its tables are, and of how many files it was made."""
    report = warehouse.report
    states = [(name, warehouse.states.get(name, 0), meaning) for name, meaning in PAIR_STATES.items()]
    return Shown(
        sum(report.filled.rows.values()),
        {
            "bytes": report.bytes,
            "seconds": report.seconds,
            "files loaded": report.filled.files,
        },
        {
            "pairs": (("state", "pairs", "what it means"), states),
            "tables": (("table", "rows"), list(report.filled.rows.items())),
        },
        paths={"path": report.path},
    )


def summarise_warehouse_checks(warehouse: RebuiltWarehouse) -> Mapping[str, Shown]:
    """What each check of a warehouse found: of ``lineage``, ``keys`` and ``files``."""
    gaps = [astuple(gap) for gap in warehouse.gaps[:_LISTED]]
    left_out = [(item.path, item.reason) for item in warehouse.report.filled.left_out[:_LISTED]]
    return {
        "lineage": Shown(tables={"gaps": (("table", "partition", "run", "is left out", "what"), gaps)}),
        "keys": Shown(values={"rows too many": dict(warehouse.report.filled.doubled)}),
        "files": Shown(tables={"left out": (("file", "reason"), left_out)}),
    }


def summarise_report(summary: ReportSummary) -> Shown:
    """Of the report: its pages, and what they are of."""
    counted = ("models", "benchmarks", "pairs", "findings", "bytes")
    return Shown(
        values={"pages written": summary.written, **{name: getattr(summary, name) for name in counted}},
        tables={"pages": (("model", "page"), list(summary.pages.items()))},
        paths={"path": summary.path},
    )
