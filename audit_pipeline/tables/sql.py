"""SQL fragments (DuckDB) for column declarations, and SQL statements that are generated from table declarations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from audit_pipeline.tables.table import Column, Table

EXCERPT_WORDS = 50
EXCERPT_CHARACTERS = 500
"""The maximum length of quotes of audited texts. It does not apply to tables that contain whole texts."""

BLANKS = r"\s\x0B\x1C-\x1F\x{85}\p{Z}"
"""The regex class (RE2) of the characters that ``str.split`` treats as whitespace."""

UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
"""The regex class of scripts without blanks between words. Each character counts as a word of an excerpt."""


def quote_identifier(name: str) -> str:
    """Quote a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """Quote a text as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


WORDS_OF_TEXT = f"len(regexp_extract_all(text, '[^{BLANKS}]+'))"
"""SQL expression: the number of whitespace-separated words of a column ``text``."""

_FLAT = f"trim(regexp_replace(left(text, {4 * EXCERPT_CHARACTERS}), '[{BLANKS}]+', ' ', 'g'))"
_CUT = (
    f"left(regexp_extract({_FLAT}, '^(?:(?:[{UNSPACED}]|[^{BLANKS}{UNSPACED}]+) ?){{0,{EXCERPT_WORDS}}}'),"
    f" {EXCERPT_CHARACTERS})"
)

EXCERPT = (
    f"CASE WHEN length({_CUT}) < length({_FLAT}) OR length(text) > {4 * EXCERPT_CHARACTERS}"
    f" THEN rtrim({_CUT}) || '…' ELSE {_CUT} END"
)
"""SQL expression: the first words of a column ``text``."""


_SQL_TYPES: Mapping[str, str] = {
    "string": "VARCHAR",
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date32[day]": "DATE",
    "timestamp[us, tz=UTC]": "TIMESTAMPTZ",
}


def is_key_enforced(table: Table) -> bool:
    """Return True if the table's key is a primary key of the warehouse.

    Keys of large tables are checked by counting duplicates instead. An index on millions of rows would make a build
    several times slower, and the file ten times larger.
    """
    return table.storage == "given"


def build_create_table_sql(table: Table) -> str:
    """Build the statements that create the empty table, its comments, and its primary key if it is enforced."""
    comment = table.comment
    if table.current:
        comment += f"; current_{table.name} has the rows of the latest runs"
    definitions: list[str] = []
    comments = [f"COMMENT ON TABLE {table.name} IS {quote_literal(comment)};"]
    for column in table.stored:
        name = quote_identifier(column.warehouse_name)
        constraint = "" if column.null else " NOT NULL"
        definitions.append(f"{name} {sql_type(column)}{constraint}")
        comments.append(f"COMMENT ON COLUMN {table.name}.{name} IS {quote_literal(column.description)};")
    if is_key_enforced(table):
        definitions.append(f"PRIMARY KEY ({build_key_sql(table)})")
    created = f"CREATE TABLE {table.name} (\n    " + ",\n    ".join(definitions) + "\n);"
    return "\n".join([created, *comments])


def sql_type(column: Column) -> str:
    """Return the type of a column in the warehouse.

    Raises:
        KeyError: If no type of the warehouse corresponds to the column's type.
    """
    return column.sql_type or _sql_type(column.type)


def build_column_expressions(table: Table) -> Mapping[str, str]:
    """Return an SQL expression over the Parquet columns for each column of the warehouse, by column name."""
    return {column.warehouse_name: column.sql or quote_identifier(column.name) for column in table.stored}


def build_key_sql(table: Table) -> str:
    """Build the comma-separated list of the key columns."""
    return ", ".join(map(quote_identifier, table.key))


def build_current_view_sql(table: Table) -> str:
    """Build the view current_NAME, which has the rows of the latest run of every pair."""
    name = f"current_{table.name}"
    comment = f"{table.current} of the latest run of every model on every benchmark"
    rows = _build_rows_of_runs_sql(table, "current_runs")
    return f"CREATE VIEW {name} AS\n{rows};\nCOMMENT ON VIEW {name} IS {quote_literal(comment)};"


def build_as_of_macro_sql(table: Table) -> str:
    """Build the macro NAME_as_of(moment), which returns the rows that the view current_NAME had at a moment."""
    name = f"{table.name}_as_of"
    comment = f"the rows that current_{table.name} had at a moment (a date is its first moment, UTC)"
    return (
        f"CREATE MACRO {name}(moment) AS TABLE\n{_build_rows_of_runs_sql(table, 'runs_as_of(moment)')};\n"
        f"COMMENT ON MACRO TABLE {name} IS {quote_literal(comment)};"
    )


def build_current_runs_view_sql(run_tables: Sequence[Table]) -> str:
    """Build the view current_runs, which has the latest run of every pair and table.

    Tables without a view current_NAME are excluded. Several commands add rows to them, so their current rows may be
    from several runs.
    """
    others = [table.name for table in run_tables if not table.current]
    left_out = "".join(f' AND "table" <> {quote_literal(name)}' for name in others)
    see = f"; {', '.join(others)} have views of their own" if others else ""
    comment = f"the latest run of every model on every benchmark, for every table that runs add to{see}"
    return (
        'CREATE VIEW current_runs AS\nSELECT "table", benchmark, model, run_id, finished_at FROM runs\n'
        f"WHERE is_current AND model IS NOT NULL{left_out};\nCOMMENT ON VIEW current_runs IS {quote_literal(comment)};"
    )


def _build_rows_of_runs_sql(table: Table, runs: str) -> str:
    return (
        f"SELECT every.* FROM {table.name} AS every\n"  # noqa: S608 - declared names
        f'SEMI JOIN (SELECT * FROM {runs} WHERE "table" = {quote_literal(table.name)}) AS latest\n'
        "    ON latest.benchmark = every.benchmark AND latest.model = every.model AND latest.run_id = every.run_id"
    )


def _sql_type(type_: pa.DataType) -> str:
    return f"{_sql_type(type_.value_type)}[]" if pa.types.is_list(type_) else _SQL_TYPES[str(type_)]
