"""The schema of the warehouse: its tables, views and macros, and the tables that are derived from others."""

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
from audit_pipeline.tables import sql as table_sql
from audit_pipeline.tables.table import Table

BLIND_CONTROL = "blind_control"
"""The name of the detector that never sees the model. sql/views/leaderboard_history.sql treats it separately."""


@dataclass(frozen=True)
class Definition:
    """A view, or a macro, which is a view with an argument.

    Attributes:
        name: The name.
        sql: The statements that create the view or macro and its comments.
        columns_of: Tables and earlier views. A column without a comment in ``sql`` gets the comment of the same column
            in the first of these tables and views that has the column.
    """

    name: str
    sql: str
    columns_of: tuple[str, ...] = ()


@cache
def list_tables(*, include_text: bool) -> tuple[Table, ...]:
    """Return all tables in the order of creation.

    If ``include_text`` is False, columns that quote audited texts stay empty.
    """
    if include_text:
        return _WAREHOUSE_TABLES
    return tuple(table.without_text() for table in _WAREHOUSE_TABLES)


def _read_sql(kind: str, name: str) -> str:
    return files("audit_pipeline.warehouse").joinpath("sql", kind, f"{name}.sql").read_text(encoding="utf-8")


def _read_definitions(kind: str, names: str) -> Iterable[Definition]:
    for name in names.split():
        sql = _read_sql(kind, name)
        columns_of: tuple[str, ...] = ()
        head = re.match("-- Columns without a comment are those of: (.*)", sql)
        if head is not None:
            columns_of = tuple(head[1].split(", "))
        yield Definition(name, sql, columns_of)


_WAREHOUSE_TABLES = tuple(table for table in TABLES.values() if table.in_warehouse)
RUN_TABLES = tuple(table for table in TABLES.values() if table.append_only)
"""The tables to which every run adds a file."""
DERIVED_TABLES = tuple(table for table in _WAREHOUSE_TABLES if table.storage == "derived")
"""The tables that sql/fills/ computes from other tables, in this order. Views read them instead of all scores."""
_WITH_CURRENT = tuple(table for table in RUN_TABLES if table.current)

_CURRENT = (
    Definition("current_runs", table_sql.build_current_runs_view_sql(RUN_TABLES), ("runs",)),
    *(
        Definition(f"current_{table.name}", table_sql.build_current_view_sql(table), (table.name,))
        for table in _WITH_CURRENT
    ),
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
    *(Definition(f"{table.name}_as_of", table_sql.build_as_of_macro_sql(table)) for table in _WITH_CURRENT),
    *_read_definitions("macros", "leaderboard_as_of changes_since"),
)
VIEWS = (*_CURRENT, *_read_definitions("views", _VIEWS))
DEFINITIONS = (*VIEWS[:-1], *MACROS, VIEWS[-1])
"""All views and macros in the order of creation. Each comes after the views and macros that it reads."""

_INTERVAL_ENDS = {
    "low": "lower end of the 95% interval of the column with this name without _low",
    "high": "upper end of the 95% interval of the column with this name without _high",
}
"""The comments of view columns that have no other comment, by the last part of the column's name."""
_LOADED = pa.schema(dict.fromkeys(("table", "partition", "benchmark", "model", "run_id"), pa.string()))
_MISSING = pa.schema(
    {**dict.fromkeys(("table", "partition", "run_id", "left_out"), pa.string()), "run_went_on": pa.bool_()}
)


def create_schema(connection: duckdb.DuckDBPyConnection, tables: Iterable[Table]) -> None:
    """Create the empty tables, the views and the macros, with comments on the columns.

    The comment of a view column is in the file of the view. If it is missing there, the column inherits the comment of
    a table that the view reads. Otherwise, the columns ``…_low`` and ``…_high`` get a comment on ends of intervals.
    """
    statements = (*map(table_sql.build_create_table_sql, tables), *(definition.sql for definition in DEFINITIONS))
    _execute_in_transaction(connection, statements)
    comments: dict[str, dict[str, str | None]] = {}
    rows = connection.execute("SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal")
    for name, column, comment in rows.fetchall():
        comments.setdefault(name, {})[column] = comment
    inherited: list[str] = []
    for view in VIEWS:
        for column, comment in comments[view.name].items():
            if comment is not None:
                continue
            found_comment = _find_inherited_comment(view, column, comments)
            # Later views may read this view, so they inherit the comment, too.
            comments[view.name][column] = found_comment
            if found_comment is not None:
                name = f"{view.name}.{table_sql.quote_identifier(column)}"
                inherited.append(f"COMMENT ON COLUMN {name} IS {table_sql.quote_literal(found_comment)};")
    _execute_in_transaction(connection, inherited)


def _find_inherited_comment(
    view: Definition, column: str, comments: Mapping[str, Mapping[str, str | None]]
) -> str | None:
    for name in view.columns_of:
        comment = comments[name].get(column)
        if comment:
            return comment
    return _INTERVAL_ENDS.get(column.rpartition("_")[2])


def _execute_in_transaction(connection: duckdb.DuckDBPyConnection, statements: Iterable[str]) -> None:
    # In autocommit mode, each of hundreds of comments would be flushed to the log separately.
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

    Args:
        connection: The connection to the new warehouse.
        loaded_files: The ledger entries of the loaded files.
        missing_files: The ledger entries whose file is missing or was skipped.
        entries: All entries of the ledger.
        left_out: The reasons for skipping files, by path.
        paths: The data folder.
    """
    last_lines = {}
    for entry in entries:
        last_lines[entry.run_id, entry.asset_key] = entry.line_number
    loaded: list[dict[str, object]] = []
    for entry in loaded_files:
        table = TABLES[entry.table]
        if entry.rows or table.append_only:
            names = entry.partition.split("|", 1)
            loaded.append({**dict(zip(table.partition_columns, names, strict=False)), **vars(entry)})
    missing: list[dict[str, object]] = []
    for entry in missing_files:
        file = entry.file(paths)
        row = dict(vars(entry))
        row["run_went_on"] = last_lines[entry.run_id, entry.asset_key] > entry.line_number
        row["left_out"] = None
        if file is not None:
            row["left_out"] = left_out.get(file)
        missing.append(row)
    connection.register("loaded_files", pa.Table.from_pylist(loaded, schema=_LOADED))
    connection.register("missing_files", pa.Table.from_pylist(missing, schema=_MISSING))
    for derived in DERIVED_TABLES:
        connection.execute(_read_sql("fills", derived.name))


def fill_keys_table(
    connection: duckdb.DuckDBPyConnection, tables: Iterable[Table], rows: Mapping[str, int]
) -> Mapping[str, int]:
    """Fill the table ``keys``, which describes the key of each table.

    Args:
        connection: The connection to the new warehouse.
        tables: All tables.
        rows: The number of rows of each table. Tables with fewer than two rows are not searched for duplicates.

    Returns:
        The number of duplicate rows, for each table that has duplicate rows.
    """
    doubled: dict[str, int] = {}
    keys: list[list[object]] = []
    for table in tables:
        key = table_sql.build_key_sql(table)
        # Counting by hash takes a third of the time of counting by value. If it finds duplicates, the values are
        # counted, because hashes may collide.
        is_searched = rows[table.name] > 1 and not table_sql.is_key_enforced(table)
        if is_searched and _count_doubled(connection, table, f"hash({key})"):
            doubled[table.name] = _count_doubled(connection, table, f"row({key})")
        keys.append([table.name, ", ".join(table.key), table_sql.is_key_enforced(table), doubled.get(table.name, 0)])
    columns = [list(column) for column in zip(*keys, strict=True)]
    connection.execute("INSERT INTO keys SELECT unnest(?), unnest(?), unnest(?), unnest(?)", columns)
    return {name: n_rows for name, n_rows in doubled.items() if n_rows}


def _count_doubled(connection: duckdb.DuckDBPyConnection, table: Table, key: str) -> int:
    [(doubled,)] = connection.execute(f"SELECT count(*) - count(DISTINCT {key}) FROM {table.name}").fetchall()  # noqa: S608 - declared names
    return int(doubled)
