"""What the warehouse holds: which of the declared tables, and its views and macros in the order they are made.

What belongs here: names, their order, reading the files under sql/. What does not: running any of it (define.py,
build.py), tables and their columns (catalogue/contracts/), the SQL that follows from them (catalogue/ddl.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

from audit_pipeline.catalogue.contracts import RUN_TABLES, TABLES
from audit_pipeline.catalogue.ddl import as_of_macro, current_runs_view, current_view
from audit_pipeline.catalogue.table import Table

BLIND_CONTROL = "blind_control"
"""The detector that never sees the model; sql/views/leaderboard_history.sql sets it apart by this name."""


@dataclass(frozen=True)
class View:
    """One view. ``sql`` makes it; a column that it does not comment on means what it means in ``columns_of``.

    ``columns_of``: tables and earlier views, of which the first that has such a column counts.
    """

    name: str
    sql: str
    columns_of: tuple[str, ...]


@dataclass(frozen=True)
class Macro:
    """One macro: a view with an argument."""

    name: str
    sql: str


def tables(*, include_text: bool) -> tuple[Table, ...]:
    """Every table of the warehouse, in the order they are made; without text, what would quote the audited texts is
    empty."""
    return tuple(table if include_text else table.without_text() for table in _OF_WAREHOUSE)


def fill_of(table: Table) -> str:
    """The SQL that fills a derived table."""
    return _read("fills", table.name)


def _read(kind: str, name: str) -> str:
    return files("audit_pipeline.warehouse").joinpath("sql", kind, f"{name}.sql").read_text(encoding="utf-8")


def _view(name: str, *columns_of: str) -> View:
    return View(name, _read("views", name), columns_of)


def _macro(name: str) -> Macro:
    return Macro(name, _read("macros", name))


_OF_WAREHOUSE = tuple(table for table in TABLES.values() if table.in_warehouse)
OF_FILES = tuple(table for table in _OF_WAREHOUSE if table.kept not in ("given", "derived"))
"""Filled from Parquet files."""
OF_RUNS = tuple(TABLES[name] for name in RUN_TABLES)
"""A run adds one file for a benchmark and model to each."""
DERIVED = tuple(table for table in _OF_WAREHOUSE if table.kept == "derived")
"""Filled from other tables by sql/fills/, in this order, so that views need not read every score."""
EXPLAINED = tuple(table for table in OF_FILES if table.has_files and not table.is_record)
"""Every row of these joins to one lineage entry."""
_WITH_CURRENT = tuple(table for table in OF_RUNS if table.current)

DEFINED: tuple[View | Macro, ...] = (
    View("current_runs", current_runs_view(OF_RUNS), ("runs",)),
    *(View(f"current_{table.name}", current_view(table), (table.name,)) for table in _WITH_CURRENT),
    _view("current_corpus_tests", "corpus_tests"),
    _view("current_unlearning", "unlearning"),
    _view("split_summary", "split_quality", "lineage"),
    _view("leaderboard_history", "evaluations", "lineage"),
    _view("control_models"),
    _view("leaderboard", "leaderboard_history"),
    _view("scores_with_examples", "scores", "examples"),
    _view("findings", "evaluations", "lineage"),
    _view("instrument_check", "leaderboard_history"),
    _view("lineage_gaps", "runs"),
    _view("lineage_of_finding", "evaluations", "lineage"),
    _view("not_audited", "coverage"),
    _view("model_releases", "configured_models"),
    _view("model_timeline", "leaderboard_history", "configured_models"),
    _view("older_model_control", "leaderboard_history"),
    _view("detector_comparison", "comparisons"),
    _view("book_contamination", "contamination_rates", "group_tests"),
    _view("multiplicity_ledger", "evaluations"),
    _view("cost", "evaluations", "lineage"),
    _macro("end_of_run"),
    _macro("runs_as_of"),
    *(Macro(f"{table.name}_as_of", as_of_macro(table)) for table in _WITH_CURRENT),
    _macro("leaderboard_as_of"),
    _macro("evaluations_of_run"),
    _macro("leaderboard_of_run"),
    _macro("changes_since"),
    _view("changes_since_last_audit", "leaderboard_history"),
)
"""Views and macros in the order they are made: each after those that it reads."""

VIEWS = tuple(one for one in DEFINED if isinstance(one, View))
MACROS = tuple(one for one in DEFINED if isinstance(one, Macro))
