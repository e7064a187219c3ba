"""What the warehouse holds (which of the declared tables, its views and macros in their order), making it, and filling
what is derived from other tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import duckdb
import pyarrow as pa

from audit_pipeline.store.ledger_records import Entry
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import TABLES
from audit_pipeline.tables.sql import (
    build_as_of_macro_sql,
    build_create_table_sql,
    build_current_runs_view_sql,
    build_current_view_sql,
    build_key_sql,
    is_key_enforced,
    quote_identifier,
    quote_literal,
)
from audit_pipeline.tables.table import Table

BLIND_CONTROL = "blind_control"
"""The detector that never sees the model; sql/views/leaderboard_history.sql sets it apart by this name."""


@dataclass(frozen=True)
class Definition:
    """A view, or a macro, which is a view with an argument.

    ``columns_of``: tables and earlier views; a column that ``sql`` does not comment on means what it means in the first
    of these that has it.
    """

    name: str
    sql: str
    columns_of: tuple[str, ...] = ()


@cache
def list_tables(*, include_text: bool) -> tuple[Table, ...]:
    """Return every table in the order they are made; without text, what would quote the audited texts is empty."""
    return tuple(table if include_text else table.without_text() for table in _OF_WAREHOUSE)


def _read_sql(kind: str, name: str) -> str:
    return files("audit_pipeline.warehouse").joinpath("sql", kind, f"{name}.sql").read_text(encoding="utf-8")


def _read_definitions(kind: str, names: str) -> Iterable[Definition]:
    for name in names.split():
        sql = _read_sql(kind, name)
        named = re.match("-- Columns without a comment are those of: (.*)", sql)
        yield Definition(name, sql, tuple(named[1].split(", ")) if named else ())


_OF_WAREHOUSE = tuple(table for table in TABLES.values() if table.in_warehouse)
OF_RUNS = tuple(table for table in TABLES.values() if table.append_only)
"""A run adds one file for a benchmark and model to each."""
DERIVED = tuple(table for table in _OF_WAREHOUSE if table.storage == "derived")
"""Filled from other tables by sql/fills/, in this order, so that views need not read every score."""
_WITH_CURRENT = tuple(table for table in OF_RUNS if table.current)

_CURRENT = (
    Definition("current_runs", build_current_runs_view_sql(OF_RUNS), ("runs",)),
    *(Definition(f"current_{table.name}", build_current_view_sql(table), (table.name,)) for table in _WITH_CURRENT),
)
_VIEWS = """
    current_corpus_tests current_unlearning split_summary overlap_summary control_models leaderboard_history leaderboard
    scores_with_examples findings instrument_check lineage_gaps lineage_of_finding not_audited model_releases
    model_timeline older_model_control detector_comparison book_contamination multiplicity_ledger cost attempts
    plan_deviations plan_in_force rival_explanations dose_response series_findings series_documents
    changes_since_last_audit
"""
MACROS = (
    *_read_definitions("macros", "end_of_run runs_as_of"),
    *(Definition(f"{table.name}_as_of", build_as_of_macro_sql(table)) for table in _WITH_CURRENT),
    *_read_definitions("macros", "leaderboard_as_of changes_since"),
)
VIEWS = (*_CURRENT, *_read_definitions("views", _VIEWS))
DEFINED = (*VIEWS[:-1], *MACROS, VIEWS[-1])
"""Views and macros in the order they are made: each after those that it reads."""

_INTERVAL_ENDS = {"low": "lower end of its 95% interval", "high": "upper end of its 95% interval"}
"""What a column of a view means by the end of its name, where nothing else says."""
_LOADED = pa.schema([(name, pa.string()) for name in ("table", "partition", "benchmark", "model", "run_id")])
_MISSING = pa.schema(
    [(name, pa.string()) for name in ("table", "partition", "run_id", "left_out")] + [("run_went_on", pa.bool_())]
)


def create_schema(connection: duckdb.DuckDBPyConnection, tables: Iterable[Table]) -> None:
    """Make the tables, empty, the views and macros, every column commented: that of a view by the view's own file, else
    as in what it reads, else by the end of its name."""
    statements = (*map(build_create_table_sql, tables), *(definition.sql for definition in DEFINED))
    _execute_in_transaction(connection, statements)
    comments: dict[str, dict[str, str | None]] = {}
    found = connection.execute("SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal")
    for name, column, comment in found.fetchall():
        comments.setdefault(name, {})[column] = comment
    inherited = []
    for view in VIEWS:
        own = comments[view.name]
        for column in (column for column, comment in own.items() if comment is None):
            read = next((comments[name][column] for name in view.columns_of if comments[name].get(column)), None)
            own[column] = comment = read or _INTERVAL_ENDS.get(column.rpartition("_")[2])
            if comment is not None:
                name = f"{view.name}.{quote_identifier(column)}"
                inherited.append(f"COMMENT ON COLUMN {name} IS {quote_literal(comment)};")
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
    last_of_step = {(entry.run_id, entry.asset_key): entry.line_number for entry in entries}
    loaded = [
        {**dict(zip(TABLES[entry.table].partition_columns, entry.partition.split("|", 1), strict=False)), **vars(entry)}
        for entry in loaded_files
        if entry.rows or TABLES[entry.table].append_only
    ]
    missing = [
        {
            **vars(entry),
            "run_went_on": last_of_step[entry.run_id, entry.asset_key] > entry.line_number,
            "left_out": left_out.get(file) if (file := entry.file(paths)) else None,
        }
        for entry in missing_files
    ]
    connection.register("loaded_files", pa.Table.from_pylist(loaded, schema=_LOADED))
    connection.register("missing_files", pa.Table.from_pylist(missing, schema=_MISSING))
    for table in DERIVED:
        connection.execute(_read_sql("fills", table.name))


def fill_keys_table(connection: duckdb.DuckDBPyConnection, tables: Iterable[Table]) -> Mapping[str, int]:
    """Fill the table of keys; return how many rows too many each table has whose key does not hold."""
    doubled: dict[str, int] = {}
    keys = []
    for table in tables:
        key = build_key_sql(table)
        # A third of the time by hash; what a collision of hashes could pretend is counted again.
        if not is_key_enforced(table) and _count_doubled(connection, table, f"hash({key})"):
            doubled[table.name] = _count_doubled(connection, table, f"row({key})")
        keys.append([table.name, ", ".join(table.key), is_key_enforced(table), doubled.get(table.name, 0)])
    connection.begin()
    connection.executemany("INSERT INTO keys VALUES (?, ?, ?, ?)", keys)
    connection.commit()
    return {name: rows for name, rows in doubled.items() if rows}


def _count_doubled(connection: duckdb.DuckDBPyConnection, table: Table, key: str) -> int:
    [(doubled,)] = connection.execute(f"SELECT count(*) - count(DISTINCT {key}) FROM {table.name}").fetchall()  # noqa: S608 - declared names
    return int(doubled)
