"""Makes the warehouse's tables, views and macros in an open database, and fills what is derived from other tables.

What belongs here: running the SQL of schema.py and of catalogue/ddl.py. What does not: that SQL, filling tables from
files (build.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import duckdb
import pyarrow as pa

from audit_pipeline.catalogue.contracts import KEYS
from audit_pipeline.catalogue.ddl import create_table, is_enforced, key_of, rows_by_run
from audit_pipeline.catalogue.lineage_files import MissingFile
from audit_pipeline.catalogue.sql import literal, quoted
from audit_pipeline.catalogue.table import Table
from audit_pipeline.warehouse.schema import DEFINED, DERIVED, EXPLAINED, OF_FILES, VIEWS, fill_of

WrittenFile = tuple[str, str, str]
"""A file of an append-only table that was read: table, partition, run_id."""

_LATEST_SCORES = "SELECT benchmark, model, run_id FROM runs WHERE \"table\" = 'scores' AND is_current"
_INTERVAL_ENDS = {"low": "lower end of its 95% interval", "high": "upper end of its 95% interval"}
"""What a column of a view means by the end of its name, where nothing else says."""
_FILES = pa.schema([("table", pa.string()), ("partition", pa.string()), ("run_id", pa.string())])
_GONE = pa.schema([*_FILES, ("run_went_on", pa.bool_()), ("left_out", pa.string())])


def create_tables(connection: duckdb.DuckDBPyConnection, tables: Iterable[Table]) -> None:
    """Make the tables, empty, with their comments."""
    _execute_in_transaction(connection, map(create_table, tables))


def create_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the views and macros, every column commented: by the view's own file, else as in what it reads, else by
    the end of its name."""
    _execute_in_transaction(connection, (one.sql for one in DEFINED))
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
                inherited.append(f"COMMENT ON COLUMN {view.name}.{quoted(column)} IS {literal(str(own[column]))};")
    _execute_in_transaction(connection, inherited)


def remake_tables(connection: duckdb.DuckDBPyConnection, tables: Iterable[Table]) -> None:
    """Make tables that are there anew, empty."""
    tables = list(tables)
    _execute_in_transaction(connection, (f"DROP TABLE {table.name};" for table in tables))
    create_tables(connection, tables)


def _execute_in_transaction(connection: duckdb.DuckDBPyConnection, statements: Iterable[str]) -> None:
    # Each of hundreds of comments would else be a transaction of its own, flushed to the log.
    connection.execute("\n".join(("BEGIN;", *statements, "COMMIT;")))


def changed_relation(table: str) -> str:
    """The name of the relation that says of what the rows of a table are that a build loaded or took out."""
    return f"changed_{table}"


def fill_derived(
    connection: duckdb.DuckDBPyConnection,
    files: Iterable[WrittenFile] = (),
    missing: Iterable[MissingFile] = (),
    left_out: Mapping[Path, str] | None = None,
) -> None:
    """Bring the derived tables up to date, by what :func:`changed_relation` names for scores and examples.

    ``files`` are those that were read, for the runs that no row names; ``missing`` those that entries of the
    lineage explain and that are not there, or were ``left_out`` for the reason that is given with the path.
    """
    rows = [dict(zip(_FILES.names, file, strict=True)) for file in files]
    gone = [
        {
            **{name: getattr(one.entry, name) for name in _FILES.names},
            "run_went_on": one.run_went_on,
            "left_out": (left_out or {}).get(one.path),
        }
        for one in missing
    ]
    given = {
        "written_files": pa.Table.from_pylist(rows, schema=_FILES),
        "missing_files": pa.Table.from_pylist(gone, schema=_GONE),
    }
    for name, table in given.items():
        connection.register(name, table)
    connection.execute(f"CREATE TEMP VIEW rows_by_run AS {rows_by_run(EXPLAINED)}")
    connection.execute(f"CREATE TEMP TABLE earlier_runs AS {_LATEST_SCORES}")
    for one in DERIVED:
        connection.execute(fill_of(one))
    connection.execute("DROP VIEW rows_by_run")
    for name in given:
        connection.unregister(name)


def read_doubled_counts(connection: duckdb.DuckDBPyConnection) -> Mapping[str, int]:
    """How many rows too many each table of an earlier warehouse has, by its table of keys."""
    return dict(connection.execute(f'SELECT "table", doubled FROM {KEYS.name}').fetchall())  # noqa: S608 - a declared name


def check_keys(
    connection: duckdb.DuckDBPyConnection, tables: Iterable[Table], before: Mapping[str, int]
) -> Mapping[str, int]:
    """Fill the table of keys; how many rows too many each table has whose key does not hold.

    ``before``: :func:`read_doubled_counts` of the rows that are carried over. Where these had none too many, and rows
    of one key agree in what tells of what they are, only the rows that :func:`changed_relation` names are looked at.
    """
    broken = {}
    of_files = {table.name for table in OF_FILES}
    for table in tables:
        of = table.name
        if before.get(of) == 0 and of in of_files and set(table.partition_columns) <= set(table.key):
            of = f"(FROM {of} SEMI JOIN {changed_relation(of)} USING ({_names(table.partition_columns)}))"
        doubled = 0 if is_enforced(table) else _doubled(connection, of, key_of(table))
        row = [table.name, ", ".join(table.key), is_enforced(table), doubled]
        connection.execute(f"INSERT INTO {KEYS.name} VALUES (?, ?, ?, ?)", row)  # noqa: S608 - a declared name
        if doubled:
            broken[table.name] = doubled
    return broken


def _doubled(connection: duckdb.DuckDBPyConnection, rows: str, key: str) -> int:
    # A third of the time by hash; what one collision would feign is looked at again.
    return _more_rows_than(connection, rows, f"hash({key})") and _more_rows_than(connection, rows, f"row({key})")


def _more_rows_than(connection: duckdb.DuckDBPyConnection, rows: str, what: str) -> int:
    counted = connection.execute(f"SELECT count(*) - count(DISTINCT {what}) FROM {rows}").fetchone()  # noqa: S608 - declared names
    return int(counted[0]) if counted else 0


def _names(columns: Iterable[str]) -> str:
    return ", ".join(map(quoted, columns))
