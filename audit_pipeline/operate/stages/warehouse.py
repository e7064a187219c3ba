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

from audit_pipeline.catalogue.contracts import PAIR_STATES
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.operate.coverage import judge
from audit_pipeline.operate.stages.evaluations import answer_missing
from audit_pipeline.operate.ui_summary import Shown
from audit_pipeline.warehouse.build import LineageGap, WarehouseReport, build_warehouse_file, read_lineage_gaps
from audit_pipeline.warehouse.query import open_read_only

if TYPE_CHECKING:
    from audit_pipeline.report.files import ReportSummary

_LISTED = 50


@dataclass(frozen=True)
class RebuiltWarehouse:
    """What a rebuild did, and where rows and lineage entries of the new warehouse do not go together."""

    report: WarehouseReport
    gaps: Sequence[LineageGap]
    states: Mapping[str, int]
    """How many pairs of a model and a benchmark are in each state (table coverage)."""

    @property
    def explains_every_number(self) -> bool:
        """Whether every row has its entry. An entry without its file is no number: a run that was killed at the wrong
        moment leaves one."""
        return not any(gap.rows for gap in self.gaps)


def build_warehouse(
    paths: DataPaths, *, include_text: bool = True, config: Path | None = None, everything: bool = False
) -> WarehouseReport:
    """Build the warehouse with the planner's word on every pair (warehouse/build.py, build_with); pairs without an
    answer get one first."""
    answer_missing(paths, config)
    return build_warehouse_file(judge, paths, include_text=include_text, config=config, everything=everything)


def rebuild_warehouse(paths: DataPaths, *, include_text: bool, everything: bool) -> RebuiltWarehouse:
    """Bring the warehouse up to date, with or without excerpts of the texts, or build everything again; and compare its
    rows with the lineage."""
    report = build_warehouse(paths, include_text=include_text, everything=everything)
    with open_read_only(report.path) as connection:
        counted = connection.execute("SELECT status, count(*) FROM coverage GROUP BY ALL").fetchall()
        return RebuiltWarehouse(report, read_lineage_gaps(connection), dict(counted))


def summarise_warehouse(warehouse: RebuiltWarehouse) -> Shown:
    """Of a warehouse: the states of the pairs, how large its tables are, and of how many files it was made."""
    report = warehouse.report
    states = [(name, warehouse.states.get(name, 0), meaning) for name, meaning in PAIR_STATES.items()]
    return Shown(
        sum(report.rows.values()),
        {
            "bytes": report.bytes,
            "seconds": report.seconds,
            "files loaded": report.files_loaded,
            "files carried over": report.files_carried_over,
        },
        {
            "pairs": (("state", "pairs", "what it means"), states),
            "tables": (("table", "rows"), list(report.rows.items())),
        },
        paths={"path": report.path},
    )


def summarise_warehouse_checks(warehouse: RebuiltWarehouse) -> Mapping[str, Shown]:
    """What each check of a warehouse found: of ``lineage``, ``keys`` and ``files``."""
    gaps = [astuple(gap) for gap in warehouse.gaps[:_LISTED]]
    left_out = [(item.path, item.reason) for item in warehouse.report.unreadable[:_LISTED]]
    return {
        "lineage": Shown(tables={"gaps": (("table", "partition", "run", "rows", "lineage rows", "what"), gaps)}),
        "keys": Shown(values={"rows too many": dict(warehouse.report.doubled)}),
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
