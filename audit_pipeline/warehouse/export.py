"""A table or view of the warehouse as one Parquet or CSV file.

What belongs here: the file's format, and what CSV needs: lists as JSON, text that no spreadsheet takes for a formula.
What does not: which rows (schema.py), opening the warehouse (query.py), what a user's own SQL yields (cli/).
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from audit_pipeline.catalogue.files import write_atomically
from audit_pipeline.catalogue.sql import quote_identifier, quote_literal
from audit_pipeline.config.hints import did_you_mean, find_nearest_names
from audit_pipeline.errors import DataError
from audit_pipeline.warehouse.query import error_to_one_line, open_read_only

FORMATS = (".parquet", ".csv")
BATCH_ROWS = 100_000
"""Rows in memory at once."""

FORMULA = r"^[=+\-@\t\r\n＝＋－＠]"
"""How a cell begins that a spreadsheet takes for a formula (OWASP's list of CSV injection), full-width forms too."""


@dataclass(frozen=True)
class Exported:
    """What was written, where."""

    path: Path
    rows: int
    bytes: int


def export(warehouse: Path, name: str, out: Path) -> Exported:
    """Write the table or view ``name`` to ``out``, .parquet or .csv; what was there before is replaced as one.

    Parquet is exact. CSV (UTF-8, a header, empty for null, "" for an empty text) is for people: lists are JSON, and a
    text that a spreadsheet would take for a formula has an apostrophe in front, since audited texts and their titles
    are anybody's. Texts that are a number stay as they are.

    Raises DataError where there is no such table or view, the suffix is neither, or the file cannot be written.
    """
    suffix = out.suffix.lower()
    if suffix not in FORMATS:
        raise DataError(f"{out}: the name must end in {' or '.join(FORMATS)}")
    if out.is_dir():
        raise DataError(f"{out} is a folder: give the file a name of its own")
    with open_read_only(warehouse) as connection:
        columns = _list_columns(connection, name)
        write, cell = (
            (_write_parquet, _build_exact_cell_sql) if suffix == ".parquet" else (_write_csv, _build_csv_cell_sql)
        )
        selected = ", ".join(cell(quote_identifier(column), type_) for column, type_ in columns)
        sql = f"SELECT {selected} FROM {quote_identifier(name)}"  # noqa: S608 - a name of the catalogue
        try:
            with (
                write_atomically(out) as temporary,
                closing(connection.sql(sql).to_arrow_reader(BATCH_ROWS)) as reader,
            ):
                counted = write(reader, temporary)
        except (OSError, duckdb.Error, pa.ArrowException) as error:
            raise DataError(
                f"{name} could not be written to {out} ({error_to_one_line(error)}): is the disk full, or its "
                "folder closed?"
            ) from error
    return Exported(out, counted, out.stat().st_size)


def list_exportable_names(warehouse: Path) -> list[str]:
    """Every table and view that can be exported; raises DataError where there is no warehouse."""
    with open_read_only(warehouse) as connection:
        return _list_names(connection)


def _list_names(connection: duckdb.DuckDBPyConnection) -> list[str]:
    found = connection.execute("SELECT DISTINCT table_name FROM information_schema.tables ORDER BY table_name")
    return [str(name) for (name,) in found.fetchall()]


def _list_columns(connection: duckdb.DuckDBPyConnection, name: str) -> list[tuple[str, str]]:
    known = _list_names(connection)
    if name not in known:
        hint = (
            did_you_mean(name, known)
            if find_nearest_names(name, known)
            else 'corpus-audit sql "SHOW TABLES" lists them'
        )
        raise DataError(f"the warehouse has no table or view {name!r}; {hint}")
    relation = connection.table(quote_identifier(name))
    return list(zip(relation.columns, map(str, relation.types), strict=True))


def _build_exact_cell_sql(column: str, type_: str) -> str:
    # JSON is an extension type of Arrow, which not every reader of Parquet knows.
    return f"{column}::VARCHAR AS {column}" if type_ == "JSON" else column


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


def _write_parquet(reader: pa.RecordBatchReader, path: Path) -> int:
    rows = 0
    with pq.ParquetWriter(path, reader.schema, compression="zstd", write_page_checksum=True) as writer:
        for batch in reader:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _write_csv(reader: pa.RecordBatchReader, path: Path) -> int:
    rows = 0
    with pa_csv.CSVWriter(path, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows
