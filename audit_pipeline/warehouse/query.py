"""Read-only access to the warehouse: nothing can be written, no other file read, no setting changed back; exports."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from audit_pipeline.config.problems import did_you_mean, find_nearest_names
from audit_pipeline.errors import AuditError, DataError, to_one_line
from audit_pipeline.store.duckdb_connections import open_in_memory
from audit_pipeline.store.files import write_atomically
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


BATCH_ROWS = 100_000
"""Rows in memory at once."""

FORMULA = r"^[=+\-@\t\r\n＝＋－＠]"
"""How a cell begins that a spreadsheet takes for a formula (OWASP's list of CSV injection), full-width forms too."""


def export(warehouse: Path, name: str, out: Path) -> int:
    """Write the table or view ``name`` to ``out``, .parquet or .csv, and return the number of its rows.

    What was there before is replaced as one. Parquet is exact. CSV (UTF-8, a header, empty for null, "" for an empty
    text) is for people: lists are JSON, and a text that a spreadsheet would take for a formula has an apostrophe in
    front, since audited texts and their titles are anybody's. Texts that are a number stay as they are.

    Raises DataError where there is no such table or view, the suffix is neither, or the file cannot be written.
    """
    suffix = out.suffix.lower()
    if suffix not in (".parquet", ".csv"):
        raise DataError(f"{out}: the name must end in .parquet or .csv")
    if out.is_dir():
        raise DataError(f"{out} is a folder: give the file a name of its own")
    rows = 0
    with open_read_only(warehouse) as connection:
        relation = _find_relation(connection, name)
        columns = zip(map(quote_identifier, relation.columns), map(str, relation.types), strict=True)
        if suffix == ".csv":
            cells = ", ".join(itertools.starmap(_build_csv_cell_sql, columns))
        else:
            # JSON is an extension type of Arrow, which not every reader of Parquet knows.
            cells = ", ".join(f"{cell}::VARCHAR AS {cell}" if type_ == "JSON" else cell for cell, type_ in columns)
        try:
            with (
                write_atomically(out) as temporary,
                closing(relation.project(cells).to_arrow_reader(BATCH_ROWS)) as reader,
                pa_csv.CSVWriter(temporary, reader.schema)
                if suffix == ".csv"
                else pq.ParquetWriter(temporary, reader.schema, compression="zstd", write_page_checksum=True) as writer,
            ):
                for batch in reader:
                    writer.write(batch)
                    rows += batch.num_rows
        except (OSError, duckdb.Error, pa.ArrowException) as error:
            raise DataError(
                f"{name} could not be written to {out} ({to_one_line(error)}): is the disk full, or its folder closed?"
            ) from error
    return rows


def _find_relation(connection: duckdb.DuckDBPyConnection, name: str) -> duckdb.DuckDBPyRelation:
    found = connection.execute("SELECT DISTINCT table_name FROM information_schema.tables ORDER BY table_name")
    known = [str(table) for (table,) in found.fetchall()]
    if name in known:
        return connection.table(quote_identifier(name))
    is_near = find_nearest_names(name, known)
    hint = did_you_mean(name, known) if is_near else 'corpus-audit sql "SHOW TABLES" lists them'
    raise DataError(f"the warehouse has no table or view {name!r}; {hint}")


def _build_csv_cell_sql(column: str, type_: str) -> str:
    if type_ in {"DOUBLE[]", "FLOAT[]"}:
        # As `sql --json` writes them: JSON has no number for these.
        return f"""regexp_replace(to_json({column})::VARCHAR, '-?Infinity|NaN', '"\\0"', 'g') AS {column}"""
    if type_.endswith("]"):
        return f"to_json({column})::VARCHAR AS {column}"
    if type_ in {"VARCHAR", "JSON"}:
        guarded = f"regexp_matches({column}, {quote_literal(FORMULA)}) AND TRY_CAST({column} AS DOUBLE) IS NULL"
        return f"CASE WHEN {guarded} THEN '''' || {column} ELSE {column} END::VARCHAR AS {column}"
    return column
