"""The SQL (DuckDB's) that declarations are made of and that follows from them, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from audit_pipeline.tables.table import Column, Table

EXCERPT_WORDS = 50
EXCERPT_CHARACTERS = 500
"""The most of an audited text that is quoted outside of the tables of texts."""

BLANKS = r"\s\x0B\x1C-\x1F\x{85}\p{Z}"
"""Regex class (RE2) of what ``str.split`` treats as whitespace."""

UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
"""Regex class of scripts written without blanks: each character counts as a word of an excerpt."""


def quote_identifier(name: str) -> str:
    """``name`` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """``text`` as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


WORDS_OF_TEXT = f"len(regexp_extract_all(text, '[^{BLANKS}]+'))"
"""SQL: the whitespace words of a column ``text``."""

_FLAT = f"trim(regexp_replace(left(text, {4 * EXCERPT_CHARACTERS}), '[{BLANKS}]+', ' ', 'g'))"
_CUT = (
    f"left(regexp_extract({_FLAT}, '^(?:(?:[{UNSPACED}]|[^{BLANKS}{UNSPACED}]+) ?){{0,{EXCERPT_WORDS}}}'),"
    f" {EXCERPT_CHARACTERS})"
)

EXCERPT = (
    f"CASE WHEN length({_CUT}) < length({_FLAT}) OR length(text) > {4 * EXCERPT_CHARACTERS}"
    f" THEN rtrim({_CUT}) || '…' ELSE {_CUT} END"
)
"""SQL: the first words of a column ``text``."""


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
    """Whether the key is a primary key. One of millions of rows is counted by every build instead: an index on it makes
    a build several times as long and the file ten times as large."""
    return table.storage == "given"


def build_create_table_sql(table: Table) -> str:
    """The empty table with its comments; a key that is enforced is its primary key."""
    names = {column: quote_identifier(column.warehouse_name) for column in table.stored}
    lines = [f"{name} {sql_type(column)}{'' if column.null else ' NOT NULL'}" for column, name in names.items()]
    if is_key_enforced(table):
        lines.append(f"PRIMARY KEY ({build_key_sql(table)})")
    comment = f"{table.comment}; current_{table.name} holds the latest" if table.current else table.comment
    comments = [f"TABLE {table.name} IS {quote_literal(comment)}"]
    comments += [f"COLUMN {table.name}.{name} IS {quote_literal(column.description)}" for column, name in names.items()]
    created = f"CREATE TABLE {table.name} (\n    " + ",\n    ".join(lines) + "\n);"
    return "\n".join((created, *(f"COMMENT ON {target};" for target in comments)))


def sql_type(column: Column) -> str:
    """A column's type in the warehouse; raises KeyError for a type that the warehouse has no column of."""
    return column.sql_type or _sql_type(column.type)


def build_column_expressions(table: Table) -> Mapping[str, str]:
    """By the warehouse's columns: SQL that fills each from the columns of the table's Parquet files."""
    return {column.warehouse_name: column.sql or quote_identifier(column.name) for column in table.stored}


def build_key_sql(table: Table) -> str:
    """SQL for the columns that no two rows have in common."""
    return ", ".join(map(quote_identifier, table.key))


def build_current_view_sql(table: Table) -> str:
    """The view current_NAME: the rows that the latest run of every pair wrote."""
    name = f"current_{table.name}"
    comment = f"{table.current} of the latest run of every model on every benchmark"
    rows = _build_rows_of_runs_sql(table, "current_runs")
    return f"CREATE VIEW {name} AS\n{rows};\nCOMMENT ON VIEW {name} IS {quote_literal(comment)};"


def build_as_of_macro_sql(table: Table) -> str:
    """The macro NAME_as_of(moment): what the view held then."""
    name = f"{table.name}_as_of"
    comment = f"what current_{table.name} held at a moment (a date is its first moment, UTC)"
    return (
        f"CREATE MACRO {name}(moment) AS TABLE\n{_build_rows_of_runs_sql(table, 'runs_as_of(moment)')};\n"
        f"COMMENT ON MACRO TABLE {name} IS {quote_literal(comment)};"
    )


def build_current_runs_view_sql(run_tables: Sequence[Table]) -> str:
    """The view current_runs: the latest run of every pair, of the tables of which that run's rows are all that counts.

    Of the others (several commands add to them) the latest run does not hold the latest rows.
    """
    others = [table.name for table in run_tables if not table.current]
    left_out = "".join(f' AND "table" <> {quote_literal(name)}' for name in others)
    see = f"; {', '.join(others)}: see its own view" if others else ""
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
