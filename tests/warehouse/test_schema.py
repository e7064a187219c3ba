"""The schema of the warehouse: declared columns, comments and keys."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from ledger_lines import explain_files
from made_data_folder import Folder

from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.store.files import read_parquet, write_table
from audit_pipeline.tables.table import Table
from audit_pipeline.warehouse import schema
from audit_pipeline.warehouse.query import open_read_only, query_warehouse
from audit_pipeline.warehouse.schema import BLIND_CONTROL, DEFINITIONS, DERIVED_TABLES, MACROS, RUN_TABLES, list_tables

FOLDER = Path(schema.__file__).with_name("sql")
EVERY = list_tables(include_text=True)


@pytest.mark.parametrize("table", EVERY, ids=lambda table: table.name)
def test_a_table_has_its_declared_columns_with_their_meaning(warehouse: Path, table: Table) -> None:
    found = query_warehouse(
        warehouse,
        f"SELECT column_name, is_nullable, comment FROM duckdb_columns() WHERE table_name = '{table.name}'"
        " AND NOT internal ORDER BY column_index",
    )
    assert [(row["column_name"], row["is_nullable"], row["comment"]) for row in found.to_pylist()] == [
        (column.warehouse_name, column.null, column.description) for column in table.stored
    ]


def test_types_in_the_warehouse_are_the_declared_ones(warehouse: Path) -> None:
    """As DuckDB itself hands them on to Arrow; JSON apart, which Arrow has no type of."""

    def plain(type_: pa.DataType) -> str:
        """A type by its name, whatever the elements of a list are called."""
        return f"{plain(type_.value_type)}[]" if pa.types.is_list(type_) else str(type_)

    with open_read_only(warehouse) as connection:
        for table in EVERY:
            stored = connection.table(table.name).to_arrow_table().schema
            declared = {column.warehouse_name: column for column in table.stored if not column.sql_type}
            assert {name: plain(stored.field(name).type) for name in declared} == {
                name: plain(column.type) for name, column in declared.items()
            }, table.name


def test_everything_is_commented(warehouse: Path) -> None:
    for sql in (
        "SELECT table_name, column_name FROM duckdb_columns() WHERE coalesce(comment, '') = '' AND NOT internal",
        "SELECT table_name FROM duckdb_tables() WHERE coalesce(comment, '') = '' AND NOT internal",
        "SELECT view_name FROM duckdb_views() WHERE coalesce(comment, '') = '' AND NOT internal",
        "SELECT function_name FROM duckdb_functions() WHERE database_name = 'warehouse' AND NOT internal"
        " AND coalesce(comment, '') = ''",
    ):
        assert query_warehouse(warehouse, sql).to_pylist() == []
    found = query_warehouse(
        warehouse,
        "SELECT DISTINCT function_name AS name FROM duckdb_functions()"
        " WHERE database_name = 'warehouse' AND NOT internal",
    )
    assert sorted(found["name"].to_pylist()) == sorted(macro.name for macro in MACROS)


def test_every_sql_file_is_used_once() -> None:
    generated = {f"current_{table.name}" for table in RUN_TABLES if table.current} | {"current_runs"}
    generated |= {f"{table.name}_as_of" for table in RUN_TABLES if table.current}
    used = [f"fills/{table.name}.sql" for table in DERIVED_TABLES]
    used += [
        f"{'macros' if one in MACROS else 'views'}/{one.name}.sql" for one in DEFINITIONS if one.name not in generated
    ]
    assert sorted(used) == sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.sql"))


def test_names_that_python_and_sql_share() -> None:
    assert f"'{BLIND_CONTROL}'" in (FOLDER / "views" / "leaderboard_history.sql").read_text(encoding="utf-8")


def test_every_table_has_a_key_that_holds(warehouse: Path) -> None:
    found = query_warehouse(warehouse, "FROM keys").to_pylist()
    assert sorted(row["table"] for row in found) == sorted(table.name for table in EVERY)
    assert {row["doubled"] for row in found} == {0}
    assert {row["table"] for row in found if row["is_enforced"]} == {
        *(
            "models",
            "benchmarks",
            "configured_models",
            "configured_benchmarks",
            "coverage",
            "keys",
            "lineage",
            "outcomes",
        )
    }
    assert all(row["key"] for row in found)


def test_rows_of_one_key_are_counted(audited: Folder) -> None:
    paths = audited.paths
    file = paths.run_file("scores", "notes_32|tiny-125m", "again-notes")
    rows = read_parquet(file)
    write_table(file, pa.concat_tables([rows, rows]))
    explain_files(paths)
    report = build_warehouse(paths)
    assert report.doubled == {"scores": 60 * 22}
    assert query_warehouse(paths.warehouse, 'SELECT "table", doubled FROM keys WHERE doubled > 0').to_pylist() == [
        {"table": "scores", "doubled": 60 * 22}
    ]


def test_a_second_card_of_a_model_is_reported_and_skipped(audited: Folder) -> None:
    card = next(audited.paths.model_card("any").parent.glob("*.json"))
    copy = card.with_name("zz-copy.json")
    copy.write_bytes(card.read_bytes())
    report = build_warehouse(audited.paths)
    assert [one.path for one in report.left_out] == [copy]
    assert report.rows["models"] == 2


def test_the_warehouse_contains_no_context(folder: Folder) -> None:
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
