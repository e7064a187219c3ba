"""What the warehouse holds (which of the declared tables, its views and macros in their order) and making it.

What belongs here: names, their order, reading the files under sql/, running them and the SQL of catalogue/sql.py in an
open database, and filling what is derived from other tables. What does not: tables and their columns
(catalogue/contracts/), the SQL that follows from them (catalogue/sql.py), filling tables from files (table_files.py,
fill.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import duckdb
import pyarrow as pa

from audit_pipeline.catalogue.contracts import KEYS, TABLES
from audit_pipeline.catalogue.ledger import Entry, file_of
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.sql import (
    build_as_of_macro_sql,
    build_create_table_sql,
    build_current_runs_view_sql,
    build_current_view_sql,
    build_key_sql,
    is_enforced,
    quote_identifier,
    quote_literal,
)
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


def list_tables(*, include_text: bool) -> tuple[Table, ...]:
    """Every table of the warehouse, in the order they are made; without text, what would quote the audited texts is
    empty."""
    return tuple(table if include_text else table.without_text() for table in _OF_WAREHOUSE)


def read_fill_sql(table: Table) -> str:
    """The SQL that fills a derived table."""
    return _read_sql("fills", table.name)


def _read_sql(kind: str, name: str) -> str:
    return files("audit_pipeline.warehouse").joinpath("sql", kind, f"{name}.sql").read_text(encoding="utf-8")


def _read_view(name: str, *columns_of: str) -> View:
    return View(name, _read_sql("views", name), columns_of)


def _read_macro(name: str) -> Macro:
    return Macro(name, _read_sql("macros", name))


_OF_WAREHOUSE = tuple(table for table in TABLES.values() if table.in_warehouse)
OF_FILES = tuple(table for table in _OF_WAREHOUSE if table.kept not in ("given", "derived"))
"""Filled from Parquet files."""
OF_RUNS = tuple(table for table in TABLES.values() if table.append_only)
"""A run adds one file for a benchmark and model to each."""
DERIVED = tuple(table for table in _OF_WAREHOUSE if table.kept == "derived")
"""Filled from other tables by sql/fills/, in this order, so that views need not read every score."""
_WITH_CURRENT = tuple(table for table in OF_RUNS if table.current)

DEFINED: tuple[View | Macro, ...] = (
    View("current_runs", build_current_runs_view_sql(OF_RUNS), ("runs",)),
    *(View(f"current_{table.name}", build_current_view_sql(table), (table.name,)) for table in _WITH_CURRENT),
    _read_view("current_corpus_tests", "corpus_tests"),
    _read_view("current_unlearning", "unlearning"),
    _read_view("split_summary", "split_quality", "lineage"),
    _read_view("overlap_summary", "corpus_overlap", "lineage"),
    _read_view("control_models"),
    _read_view("leaderboard_history", "evaluations", "lineage"),
    _read_view("leaderboard", "leaderboard_history"),
    _read_view("scores_with_examples", "scores", "examples"),
    _read_view("findings", "evaluations", "lineage"),
    _read_view("instrument_check", "leaderboard_history"),
    _read_view("lineage_gaps", "files_gone"),
    _read_view("lineage_of_finding", "evaluations", "lineage"),
    _read_view("not_audited", "coverage"),
    _read_view("model_releases", "configured_models"),
    _read_view("model_timeline", "leaderboard_history", "configured_models"),
    _read_view("older_model_control", "leaderboard_history"),
    _read_view("detector_comparison", "comparisons"),
    _read_view("book_contamination", "contamination_rates", "group_tests"),
    _read_view("multiplicity_ledger", "evaluations"),
    _read_view("cost", "evaluations", "lineage"),
    _read_view("attempts"),
    _read_view("plan_deviations"),
    _read_view("plan_in_force"),
    _read_view("rival_explanations"),
    _read_view("dose_response"),
    _read_macro("end_of_run"),
    _read_macro("runs_as_of"),
    *(Macro(f"{table.name}_as_of", build_as_of_macro_sql(table)) for table in _WITH_CURRENT),
    _read_macro("leaderboard_as_of"),
    _read_macro("evaluations_of_run"),
    _read_macro("leaderboard_of_run"),
    _read_macro("changes_since"),
    _read_view("changes_since_last_audit", "leaderboard_history"),
)
"""Views and macros in the order they are made: each after those that it reads."""

VIEWS = tuple(view for view in DEFINED if isinstance(view, View))
MACROS = tuple(macro for macro in DEFINED if isinstance(macro, Macro))


_INTERVAL_ENDS = {"low": "lower end of its 95% interval", "high": "upper end of its 95% interval"}
"""What a column of a view means by the end of its name, where nothing else says."""
_LOADED = pa.schema([(name, pa.string()) for name in ("table", "partition", "benchmark", "model", "run_id")])
_MISSING = pa.schema(
    [
        *((name, pa.string()) for name in ("table", "partition", "run_id")),
        ("run_went_on", pa.bool_()),
        ("left_out", pa.string()),
    ]
)


def create_tables(connection: duckdb.DuckDBPyConnection, tables: Iterable[Table]) -> None:
    """Make the tables, empty, with their comments."""
    _execute_in_transaction(connection, map(build_create_table_sql, tables))


def create_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the views and macros, every column commented: by the view's own file, else as in what it reads, else by
    the end of its name."""
    _execute_in_transaction(connection, (definition.sql for definition in DEFINED))
    comments: dict[str, dict[str, str | None]] = {}
    found = connection.execute("SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal")
    for name, column, comment in found.fetchall():
        comments.setdefault(name, {})[column] = comment
    inherited = []
    for view in VIEWS:
        own = comments[view.name]
        for column in (column for column, comment in own.items() if comment is None):
            read = next((comments[name][column] for name in view.columns_of if comments[name].get(column)), None)
            own[column] = read or _INTERVAL_ENDS.get(column.rpartition("_")[2])
            if own[column] is not None:
                inherited.append(
                    f"COMMENT ON COLUMN {view.name}.{quote_identifier(column)} IS {quote_literal(str(own[column]))};"
                )
    _execute_in_transaction(connection, inherited)


def _execute_in_transaction(connection: duckdb.DuckDBPyConnection, statements: Iterable[str]) -> None:
    # Each of hundreds of comments would else be a transaction of its own, flushed to the log.
    connection.execute("\n".join(("BEGIN;", *statements, "COMMIT;")))


def fill_derived_tables(
    connection: duckdb.DuckDBPyConnection,
    loaded_files: Iterable[Entry],
    missing_files: Iterable[Entry],
    entries: Iterable[Entry],
    left_out: Mapping[Path, str],
    paths: DataPaths,
) -> None:
    """Fill the tables that are derived from others.

    ``loaded_files``: the entries of the files whose rows were loaded; ``missing_files``: those whose file is not there
    or was left out, for the reason that ``left_out`` gives by its path; ``entries``: all of them.
    """
    last_of_step = {(entry.run_id, entry.asset_key): entry.place for entry in entries}
    loaded = [_loaded_row(entry) for entry in loaded_files if entry.rows or TABLES[entry.table].append_only]
    missing = [
        {
            "table": entry.table,
            "partition": entry.partition,
            "run_id": entry.run_id,
            "run_went_on": last_of_step[entry.run_id, entry.asset_key] > entry.place,
            "left_out": left_out.get(file_of(paths, TABLES[entry.table], entry.partition, entry.run_id)),
        }
        for entry in missing_files
    ]
    connection.register("loaded_files", pa.Table.from_pylist(loaded, schema=_LOADED))
    connection.register("missing_files", pa.Table.from_pylist(missing, schema=_MISSING))
    for table in DERIVED:
        connection.execute(read_fill_sql(table))
    connection.unregister("loaded_files")
    connection.unregister("missing_files")


def _loaded_row(entry: Entry) -> Mapping[str, str | None]:
    per = TABLES[entry.table].per
    first, _, second = entry.partition.partition("|")
    return {
        "table": entry.table,
        "partition": entry.partition,
        "benchmark": first if per in ("pair", "overlap", "benchmark") else None,
        "model": second if per == "pair" else None,
        "run_id": entry.run_id,
    }


def check_keys(connection: duckdb.DuckDBPyConnection, tables: Iterable[Table]) -> Mapping[str, int]:
    """Fill the table of keys; how many rows too many each table has whose key does not hold."""
    broken = {}
    for table in tables:
        doubled = 0 if is_enforced(table) else _count_duplicate_rows(connection, table.name, build_key_sql(table))
        row = [table.name, ", ".join(table.key), is_enforced(table), doubled]
        connection.execute(f"INSERT INTO {KEYS.name} VALUES (?, ?, ?, ?)", row)  # noqa: S608 - a declared name
        if doubled:
            broken[table.name] = doubled
    return broken


def _count_duplicate_rows(connection: duckdb.DuckDBPyConnection, rows: str, key: str) -> int:
    # A third of the time by hash; what one collision would feign is looked at again.
    return _count_surplus_rows(connection, rows, f"hash({key})") and _count_surplus_rows(
        connection, rows, f"row({key})"
    )


def _count_surplus_rows(connection: duckdb.DuckDBPyConnection, rows: str, key_expression: str) -> int:
    counted = connection.execute(f"SELECT count(*) - count(DISTINCT {key_expression}) FROM {rows}").fetchone()  # noqa: S608 - declared names
    return int(counted[0]) if counted else 0
