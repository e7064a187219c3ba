"""Read-only queries of the warehouse, without access to other files and settings, and exports of tables."""

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
    "This command only reads the warehouse. To write, or to read other files, open a copy of the warehouse or the "
    "Parquet files with DuckDB."
)


def open_read_only(warehouse: Path) -> duckdb.DuckDBPyConnection:
    """Open a connection to the current warehouse. The connection keeps its snapshot if the warehouse is rebuilt.

    The file is attached read-only to a new in-memory database. If an earlier connection of this process is still open,
    ``duckdb.connect(file)`` would return the old snapshot of that connection.

    Raises:
        DataError: If the warehouse is missing or unreadable.
    """
    if not warehouse.exists():
        raise DataError(
            f"the warehouse {warehouse} does not exist yet. Audit a model first: "
            "corpus-audit audit --model smollm2-135m --benchmark release_notes"
        )
    wal = warehouse.with_name(f"{warehouse.name}.wal")
    if wal.exists():
        # With our storage version, DuckDB would apply a .wal to any database file with the matching name.
        raise DataError(
            f"the warehouse cannot be read, because another program opened it for writing ({wal}). End that program, "
            f"or move {wal.name} to another folder."
        )
    connection = open_in_memory()
    try:
        connection.execute(f"ATTACH {quote_literal(str(warehouse))} AS warehouse (TYPE duckdb, READ_ONLY)")
    except duckdb.Error as error:
        connection.close()
        raise DataError(
            f"the warehouse cannot be read ({to_one_line(error)}). Build it again: corpus-audit report"
        ) from error
    connection.execute(
        "USE warehouse; SET TimeZone = 'UTC'; SET temp_directory = ''; SET python_enable_replacements = false;"
        " SET enable_external_access = false; SET lock_configuration = true"
    )
    return connection


def find_block_damage(warehouse: Path) -> str | None:
    """Read the whole warehouse, and return a message if any part is corrupt, else None."""
    try:
        with open_read_only(warehouse) as connection:
            for (name,) in connection.execute("SELECT table_name FROM duckdb_tables() WHERE NOT internal").fetchall():
                connection.execute(f"SELECT bit_xor(hash(COLUMNS(*))) FROM {quote_identifier(name)}").fetchall()  # noqa: S608 - names of tables
    except (duckdb.Error, AuditError) as error:
        return to_one_line(error)
    return None


def query_warehouse(warehouse: Path, sql: str) -> pa.Table:
    """Return the rows of one SQL statement.

    Raises:
        AuditError: If the statement is invalid, does more than read, or accesses anything outside of the warehouse.
    """
    with open_read_only(warehouse) as connection:
        try:
            statements = connection.extract_statements(sql)
        except duckdb.Error as error:
            raise AuditError(f"the SQL is invalid: {to_one_line(error)}") from error
        if len(statements) != 1:
            raise AuditError(f"the SQL has {len(statements)} statements. Run one statement at a time.")
        kind = statements[0].type.name
        # SHOW, DESCRIBE and SUMMARIZE count as SELECT. PRAGMA and CALL could enable logging to a file.
        if kind not in ("SELECT", "EXPLAIN"):
            raise AuditError(f"{kind} statements are refused. {_READ_ONLY}")
        try:
            return connection.sql(sql).to_arrow_table()
        except duckdb.PermissionException as error:
            raise AuditError(f"the SQL is refused ({to_one_line(error)}). {_READ_ONLY}") from error
        except duckdb.Error as error:
            raise AuditError(f"the SQL failed: {to_one_line(error)}") from error


def read_latest_findings(warehouse: Path, model: str, benchmarks: Sequence[str]) -> pa.Table:
    """Return the latest findings of a model on some benchmarks, one row per detector as in the view leaderboard.

    Raises:
        DataError: If the warehouse is missing or unreadable.
    """
    statement = """
        SELECT * EXCLUDE (finished_at, is_latest) FROM leaderboard_history
        WHERE is_latest AND model = $model AND list_contains($benchmarks, benchmark)
        ORDER BY benchmark, auroc DESC NULLS LAST, detector, parameters
    """
    with open_read_only(warehouse) as connection:
        return connection.sql(statement, params={"model": model, "benchmarks": list(benchmarks)}).to_arrow_table()


def read_comparisons(warehouse: Path, model: str, benchmark: str, detector: str | None) -> pa.Table:
    """Return the comparisons of detectors on the same texts, as in the view detector_comparison.

    Args:
        warehouse: The warehouse file.
        model: The name of the model.
        benchmark: The name of the benchmark.
        detector: Return only the comparisons of this detector with the others. None for all comparisons.

    Raises:
        DataError: If the warehouse is missing or unreadable.
    """
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
"""The number of rows that an export holds in memory at a time."""

FORMULA = r"^[=+\-@\t\r\n＝＋－＠]"
"""The start of a cell that a spreadsheet treats as a formula (OWASP, CSV injection), including full-width forms."""


def export(warehouse: Path, name: str, out: Path) -> int:
    """Write a table or view to a .parquet or .csv file, and return the number of rows. An existing file is replaced.

    Parquet is exact. CSV is for people: UTF-8 with a header, an empty cell for null, "" for an empty text, and lists as
    JSON. Audited texts are untrusted. So a CSV text that a spreadsheet would treat as a formula starts with an
    apostrophe. Numbers are unchanged.

    Raises:
        DataError: If the table or view does not exist, the suffix is not .parquet or .csv, or the file cannot be
            written.
    """
    require_export_file(out)
    with open_read_only(warehouse) as connection:
        return _write_relation(_find_relation(connection, name), name, out)


def export_table(table: pa.Table, label: str, out: Path) -> int:
    """Write the rows of a table that is not in the warehouse, as :func:`export` does, and return their number.

    Args:
        table: The rows.
        label: The name of the rows in error messages.
        out: The .parquet or .csv file.

    Raises:
        DataError: If the suffix is not .parquet or .csv, or the file cannot be written.
    """
    require_export_file(out)
    with open_in_memory() as connection:
        return _write_relation(connection.from_arrow(table), label, out)


def require_export_file(out: Path) -> None:
    """Raise DataError if the path is a folder or does not end in .parquet or .csv."""
    if out.suffix.lower() not in (".parquet", ".csv"):
        raise DataError(f"cannot export to {out}. Choose a file name that ends in .parquet or .csv.")
    if out.is_dir():
        raise DataError(f"cannot export to {out}, because it is a folder. Choose the name of a file.")


def _write_relation(relation: duckdb.DuckDBPyRelation, label: str, out: Path) -> int:
    """Write the rows of a relation to a .parquet or .csv file, and return their number."""
    suffix = out.suffix.lower()
    columns = zip(map(quote_identifier, relation.columns), map(str, relation.types), strict=True)
    if suffix == ".csv":
        cells = ", ".join(itertools.starmap(_build_csv_cell_sql, columns))
    else:
        cells = ", ".join(itertools.starmap(_build_parquet_cell_sql, columns))
    rows = 0
    try:
        with (
            write_atomically(out) as temporary,
            closing(relation.project(cells).to_arrow_reader(BATCH_ROWS)) as reader,
            _open_writer(temporary, suffix, reader.schema) as writer,
        ):
            for batch in reader:
                writer.write(batch)
                rows += batch.num_rows
    except (OSError, duckdb.Error, pa.ArrowException) as error:
        raise DataError(
            f"cannot write {label} to {out}: {to_one_line(error)}. Check that the disk is not full and that the "
            "folder is writable."
        ) from error
    return rows


def _open_writer(file: Path, suffix: str, schema: pa.Schema) -> pa_csv.CSVWriter | pq.ParquetWriter:
    if suffix == ".csv":
        return pa_csv.CSVWriter(file, schema)
    return pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True)


def _find_relation(connection: duckdb.DuckDBPyConnection, name: str) -> duckdb.DuckDBPyRelation:
    rows = connection.execute("SELECT DISTINCT table_name FROM information_schema.tables ORDER BY table_name")
    known = [str(table) for (table,) in rows.fetchall()]
    if name in known:
        return connection.table(quote_identifier(name))
    hint = '. To list all names, run: corpus-audit sql "SHOW TABLES"'
    if find_nearest_names(name, known):
        hint = f"; {did_you_mean(name, known)}"
    raise DataError(f"the warehouse has no table or view {name!r}{hint}")


def _build_parquet_cell_sql(cell: str, type_name: str) -> str:
    # JSON is an extension type of Arrow, and some readers of Parquet do not know it.
    if type_name == "JSON":
        return f"{cell}::VARCHAR AS {cell}"
    return cell


def _build_csv_cell_sql(column: str, type_: str) -> str:
    if type_ in {"DOUBLE[]", "FLOAT[]"}:
        # JSON has no infinities and NaN, so these become strings, as in `sql --json`.
        return f"""regexp_replace(to_json({column})::VARCHAR, '-?Infinity|NaN', '"\\0"', 'g') AS {column}"""
    if type_.endswith("]"):
        return f"to_json({column})::VARCHAR AS {column}"
    if type_ in {"VARCHAR", "JSON"}:
        guarded = f"regexp_matches({column}, {quote_literal(FORMULA)}) AND TRY_CAST({column} AS DOUBLE) IS NULL"
        return f"CASE WHEN {guarded} THEN '''' || {column} ELSE {column} END::VARCHAR AS {column}"
    return column
