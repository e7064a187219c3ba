"""A table or view of the warehouse as one Parquet or CSV file."""

from __future__ import annotations

import itertools
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from audit_pipeline.config.hints import did_you_mean, find_nearest_names
from audit_pipeline.errors import DataError, to_one_line
from audit_pipeline.store.files import write_atomically
from audit_pipeline.tables.sql import quote_identifier, quote_literal
from audit_pipeline.warehouse.query import open_read_only

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
