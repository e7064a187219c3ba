"""The SQL files say what the contracts say, comment on everything, and name a key for every table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from audit_pipeline.catalogue.contracts import CONTROL_STUDIES, SCHEMAS, description_of
from audit_pipeline.warehouse import schema
from audit_pipeline.warehouse.build import build_warehouse
from audit_pipeline.warehouse.query import open_read_only, query
from audit_pipeline.warehouse.schema import BLIND_CONTROL, DEFINED, EXCERPT_WORDS, MACROS, PARQUET_TABLES, tables

from .conftest import Folder

CONTRACTS: Mapping[str, pa.Schema] = {**SCHEMAS, "control_studies": CONTROL_STUDIES}
SQL_TYPES = {
    "string": "VARCHAR",
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "double": "DOUBLE",
    "date32[day]": "DATE",
    "timestamp[us, tz=UTC]": "TIMESTAMP WITH TIME ZONE",
}
LEFT_OUT = {
    "documents": {"text"},
    "examples": {"text", "context"},
    "token_statistics": {field.name for field in SCHEMAS["token_statistics"]} - {"key", "text_sha256"},
    "outcomes": {"at"},
}
ADDED = {
    "documents": {"words"},
    "examples": {"excerpt", "text_sha256", "has_context"},
    "token_statistics": {"model_fingerprint", "tokens", "mean_logprob"},
    "outcomes": {"recorded_at"},
}
FOLDER = Path(schema.__file__).with_name("sql")


def sql_type(type_: pa.DataType) -> str:
    return f"{sql_type(type_.value_type)}[]" if pa.types.is_list(type_) else SQL_TYPES[str(type_)]


def columns_of(warehouse: Path, table: str) -> dict[str, tuple[str, bool, str]]:
    found = query(
        warehouse,
        f"SELECT column_name, data_type, is_nullable, comment FROM duckdb_columns()"
        f" WHERE table_name = '{table}' AND NOT internal ORDER BY column_index",
    )
    return {name: (type_, null, comment) for name, type_, null, comment in (row.values() for row in found.to_pylist())}


@pytest.mark.parametrize("table", PARQUET_TABLES)
def test_a_table_has_the_columns_of_its_contract(warehouse: Path, table: str) -> None:
    """Names in order, types, nullability and meaning; what is left out or added is listed above, and nothing else."""
    stored = columns_of(warehouse, table)
    contract = {
        field.name: (sql_type(field.type), field.nullable, description_of(field))
        for field in CONTRACTS[table]
        if field.name not in LEFT_OUT.get(table, set())
    }
    shared = {name: column for name, column in stored.items() if name not in ADDED.get(table, set())}
    assert shared == contract
    assert list(shared) == list(contract)
    assert set(stored) - set(contract) == ADDED.get(table, set())


def test_every_contract_has_a_table() -> None:
    assert set(PARQUET_TABLES) == set(CONTRACTS)


def test_everything_is_commented(warehouse: Path) -> None:
    for sql in (
        "SELECT table_name, column_name FROM duckdb_columns() WHERE coalesce(comment, '') = '' AND NOT internal",
        "SELECT table_name FROM duckdb_tables() WHERE coalesce(comment, '') = '' AND NOT internal",
        "SELECT view_name FROM duckdb_views() WHERE coalesce(comment, '') = '' AND NOT internal",
        "SELECT function_name FROM duckdb_functions() WHERE database_name = 'warehouse' AND NOT internal"
        " AND coalesce(comment, '') = ''",
    ):
        assert query(warehouse, sql).to_pylist() == []
    found = query(
        warehouse,
        "SELECT DISTINCT function_name AS name FROM duckdb_functions()"
        " WHERE database_name = 'warehouse' AND NOT internal",
    )
    assert sorted(found["name"].to_pylist()) == sorted(macro.name for macro in MACROS)


def test_every_sql_file_is_used_once() -> None:
    used = [f"tables/{table.name}.sql" for table in tables(include_text=True)]
    used += [f"fills/{name}.sql" for name in schema.DERIVED_TABLES]
    used += [f"{'macros' if one in MACROS else 'views'}/{one.name}.sql" for one in DEFINED]
    assert sorted(used) == sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.sql"))


def test_numbers_and_names_that_python_and_sql_share() -> None:
    assert f", {EXCERPT_WORDS} at most" in (FOLDER / "tables" / "examples.sql").read_text(encoding="utf-8")
    assert f"'{BLIND_CONTROL}'" in (FOLDER / "views" / "leaderboard_history.sql").read_text(encoding="utf-8")


def test_every_table_has_a_key_that_holds(warehouse: Path) -> None:
    found = query(warehouse, "FROM keys").to_pylist()
    assert sorted(row["table"] for row in found) == sorted(table.name for table in tables(include_text=True))
    assert {row["doubled"] for row in found} == {0}
    assert {row["table"] for row in found if row["is_enforced"]} == {
        *schema.GIVEN_TABLES,
        *schema.PLANNED_TABLES,
        schema.KEYS,
    }
    assert all(row["key"] for row in found)


def test_rows_of_one_key_are_counted(audited: Folder) -> None:
    paths = audited.paths
    assert build_warehouse(paths).doubled == {}
    file = paths.run_file("scores", "notes_32|tiny-125m", "again-notes")
    file.with_name("copy.parquet").write_bytes(file.read_bytes())
    report = build_warehouse(paths)
    assert report.doubled == {"scores": 60 * 22}
    assert query(paths.warehouse, 'SELECT "table", doubled FROM keys WHERE doubled > 0').to_pylist() == [
        {"table": "scores", "doubled": 60 * 22}
    ]


def test_a_second_card_of_one_model_is_named_and_left_out(audited: Folder) -> None:
    card = next(audited.paths.model_card("any").parent.glob("*.json"))
    copy = card.with_name("zz-copy.json")
    copy.write_bytes(card.read_bytes())
    report = build_warehouse(audited.paths)
    assert [one.path for one in report.unreadable] == [copy]
    assert report.rows["models"] == 2


def test_a_context_is_nowhere_in_the_warehouse(folder: Folder) -> None:
    """What a model reads in front of a text is text as well: it stays in Parquet, whole or not at all."""
    folder.write_examples("notes_32", ["read alone", "read behind"], n=2)
    folder.examples["notes_32"][1]["context"] = "a chapter of somebody's novel "
    folder.rewrite_examples("notes_32")
    build_warehouse(folder.paths)
    assert b"somebody's novel" not in folder.paths.warehouse.read_bytes()
    with open_read_only(folder.paths.warehouse) as connection:
        rows = connection.sql(
            "SELECT excerpt, has_context, text_sha256 = sha256('read alone'),"
            " text_sha256 = sha256('a chapter of somebody''s novel read behind') FROM examples ORDER BY excerpt"
        ).fetchall()
    assert rows == [("read alone", False, True, False), ("read behind", True, False, True)]
