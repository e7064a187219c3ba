"""Read-only access to the warehouse: nothing can be written, no other file read, no setting changed back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from audit_pipeline.errors import AuditError, DataError, to_one_line
from audit_pipeline.store.bucket_folder import refresh_warehouse
from audit_pipeline.store.duckdb_connections import open_in_memory
from audit_pipeline.tables.sql import quote_identifier, quote_literal

_READ_ONLY = (
    "this command reads the warehouse and nothing else; to write, or to read other files, "
    "open a copy of it or the Parquet files with DuckDB directly"
)


def open_read_only(warehouse: Path) -> duckdb.DuckDBPyConnection:
    """Open a connection that sees the warehouse as it is now, and keeps seeing that while it is rebuilt.

    The file is attached read-only to an in-memory database of its own, not opened with ``duckdb.connect(file)``: one
    process has one instance a path, so a second connection there would be handed the first one's old snapshot.
    Raises DataError where the warehouse is missing or cannot be read.
    """
    refresh_warehouse(warehouse)
    if not warehouse.exists():
        raise DataError(
            f"there is no warehouse at {warehouse} yet: audit a model first "
            "(corpus-audit audit --model smollm2-135m --benchmark release_notes)"
        )
    wal = warehouse.with_name(f"{warehouse.name}.wal")
    if wal.exists():
        # Of the storage version that is written here DuckDB would apply it to whatever file it lies next to.
        raise DataError(
            f"the warehouse cannot be read: {wal} belongs to a read-write session of another program: end that "
            "session, or move the file aside"
        )
    connection = open_in_memory()
    try:
        connection.execute(f"ATTACH {quote_literal(str(warehouse))} AS warehouse (TYPE duckdb, READ_ONLY)")
    except duckdb.Error as error:
        connection.close()
        raise DataError(
            f"the warehouse cannot be read ({to_one_line(error)}); build it again: corpus-audit report"
        ) from error
    connection.execute(
        "USE warehouse; SET TimeZone = 'UTC'; SET temp_directory = ''; SET python_enable_replacements = false;"
        " SET enable_external_access = false; SET lock_configuration = true"
    )
    return connection


def find_block_damage(warehouse: Path) -> str | None:
    """What is wrong with a warehouse that does not show until all of it is read; None where nothing is."""
    try:
        with open_read_only(warehouse) as connection:
            for (name,) in connection.execute("SELECT table_name FROM duckdb_tables() WHERE NOT internal").fetchall():
                connection.execute(f"SELECT bit_xor(hash(COLUMNS(*))) FROM {quote_identifier(name)}").fetchall()  # noqa: S608 - names of tables
    except (duckdb.Error, AuditError) as error:
        return to_one_line(error)
    return None


def query_warehouse(warehouse: Path, sql: str) -> pa.Table:
    """The rows that one reading statement yields.

    Raises AuditError, in one line, where the statement is wrong, does more than read, or reaches outside the warehouse.
    """
    with open_read_only(warehouse) as connection:
        try:
            statements = connection.extract_statements(sql)
        except duckdb.Error as error:
            raise AuditError(f"the SQL is wrong: {to_one_line(error)}") from error
        if len(statements) != 1:
            raise AuditError(f"one statement at a time: the SQL holds {len(statements)}")
        kind = statements[0].type.name
        # SHOW, DESCRIBE and SUMMARIZE count as SELECT; PRAGMA and CALL could switch on logging to a file.
        if kind not in ("SELECT", "EXPLAIN"):
            raise AuditError(f"{kind} is refused: {_READ_ONLY}")
        try:
            return connection.sql(sql).to_arrow_table()
        except duckdb.PermissionException as error:
            raise AuditError(f"refused ({to_one_line(error)}): {_READ_ONLY}") from error
        except duckdb.Error as error:
            raise AuditError(f"the SQL cannot be run: {to_one_line(error)}") from error


def read_latest_findings(warehouse: Path, model: str, benchmarks: Sequence[str]) -> pa.Table:
    """Return the latest findings of a model on some benchmarks: a row a detector, as the view leaderboard has them.

    Raises DataError where there is no warehouse that can be read.
    """
    statement = """
        SELECT * EXCLUDE (finished_at, is_latest) FROM leaderboard_history
        WHERE is_latest AND model = $model AND list_contains($benchmarks, benchmark)
        ORDER BY benchmark, auroc DESC NULLS LAST, detector, parameters
    """
    with open_read_only(warehouse) as connection:
        return connection.sql(statement, params={"model": model, "benchmarks": list(benchmarks)}).to_arrow_table()


def read_comparisons(warehouse: Path, model: str, benchmark: str, detector: str | None) -> pa.Table:
    """Return every two detectors that were compared on the same texts, as the view detector_comparison has them; with
    ``detector``, it against each other one. Raises DataError where there is no warehouse that can be read."""
    statement = """
        WITH compared AS (FROM detector_comparison WHERE model = $model AND benchmark = $benchmark)
        SELECT detector, parameters, other, other_parameters, difference, ci_low, ci_high, p_value FROM compared
        WHERE $detector IS NULL OR detector = $detector
        UNION ALL
        SELECT other, other_parameters, detector, parameters, -difference, -ci_high, -ci_low, p_value FROM compared
        WHERE other = $detector
        ORDER BY ALL
    """
    parameters = {"model": model, "benchmark": benchmark, "detector": detector}
    with open_read_only(warehouse) as connection:
        return connection.sql(statement, params=parameters).to_arrow_table()
