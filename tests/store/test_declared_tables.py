"""Declarations of tables: their consistency, and the checks that follow from them."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from audit_pipeline import tables as contracts
from audit_pipeline.errors import DataError
from audit_pipeline.store import store
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import EXAMPLES, HIGHLIGHTS, KINDS, SCORES, TABLES, Pair, Table
from audit_pipeline.tables.common import BENCHMARK, MODEL, RUN_ID
from audit_pipeline.tables.sql import build_column_expressions, sql_type
from audit_pipeline.tables.table import Column

MADE = Table(
    "made",
    "a made-up finding",
    current="the made-up findings",
    key=("run_id", "benchmark", "model"),
    partitioned_by="pair",
    storage="runs",
    made_from=("scores",),
    columns=(
        MODEL,
        BENCHMARK,
        Column("number", pa.float64(), "a number", null=True, ge=0, le=1),
        Column("quoted", pa.string(), "some words of a text", null=True, quotes_text=True, one_of=("words", "secret")),
        Column("at", pa.date32(), "a day", null=True, stored_as="day"),
        RUN_ID,
    ),
)
PAIR = Pair("b_8", "one")


def rows(**changes: object) -> pa.Table:
    row = {"model": "one", "benchmark": "b_8", "number": 0.5, "quoted": "words", "at": None, "run_id": "run", **changes}
    return pa.Table.from_pylist([row])


def test_tables_are_listed_once_after_their_sources() -> None:
    declared = [one for one in vars(contracts).values() if isinstance(one, Table)]
    assert len(declared) == len(TABLES), "two tables have one name"
    names = list(TABLES)
    for name, table in TABLES.items():
        assert table.name == name
        assert all(names.index(other) < names.index(name) for other in table.made_from), name


@pytest.mark.parametrize("table", [table for table in TABLES.values() if table.in_warehouse], ids=lambda one: one.name)
def test_keys_and_partitions_are_warehouse_columns(table: Table) -> None:
    stored = {column.warehouse_name for column in table.stored}
    assert table.key
    assert {*table.key} <= stored
    assert all(sql_type(column) for column in table.stored)
    if table.has_files:
        assert {*table.partition_columns} <= stored
        assert "run_id" in stored
    assert {*table.text_columns} <= {*table.names}


def test_every_cache_table_is_a_kind_with_a_size_estimate() -> None:
    assert {kind.table.name for kind in KINDS.values()} == {
        one.name for one in TABLES.values() if one.storage == "cache"
    }
    assert all({"key", "text_sha256"} <= set(kind.table.schema.names) for kind in KINDS.values())
    assert all(kind.estimate_bytes_per_token(50_000, 5) for kind in KINDS.values())


def test_a_table_without_text_quotes_nothing(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        for table, file in ((EXAMPLES, "examples"), (HIGHLIGHTS, "highlights"), (MADE, "made")):
            path = tmp_path / f"{file}.parquet"
            # Text in every column that may hold text, and nulls in all other columns.
            row = {"text": "secret", "quoted": "secret", "pieces": ["secret"]}
            schema = pa.schema([field.with_nullable(True) for field in table.schema])
            pq.write_table(pa.Table.from_pylist([{name: row.get(name) for name in table.names}], schema=schema), path)
            for given, quoted in ((table, True), (table.without_text(), False)):
                filled = ", ".join(
                    f"{sql} AS {name}" for name, sql in build_column_expressions(given).items() if name != "group"
                )
                found = connection.sql(f"SELECT {filled} FROM '{path}'").to_arrow_table().to_pylist()[0]
                assert ("secret" in str(found)) == quoted, table.name


def test_rows_that_violate_the_declaration_are_not_written(tmp_path: Path) -> None:
    paths, step = DataPaths(tmp_path), LineageStep.now("run", "made", "1")
    for wrong, words in (
        (rows().drop_columns(["number"]), "columns are missing: number"),
        (rows(model=None), "column model contains a null"),
        (rows(number=-0.1), "made: column number has the value -0.1, but the minimum is 0"),
        (rows(number=1.3), "made: column number has the value 1.3, but the maximum is 1"),
        (
            rows(quoted="another"),
            "made: column quoted has the value 'another', but the allowed values are words, secret",
        ),
    ):
        with pytest.raises(DataError, match=words):
            store.write(paths, step, MADE, PAIR, wrong, upstream={})
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("changes", [{"number": None, "quoted": None}, {"number": 0.0}, {"number": 1.0}])
def test_limits_include_their_bounds_and_nulls(tmp_path: Path, changes: dict[str, object]) -> None:
    step = LineageStep.now("run", "made", "1")
    assert store.write(DataPaths(tmp_path), step, MADE, PAIR, rows(**changes), upstream={})


def test_written_rows_have_the_declared_columns_and_keep_metadata(tmp_path: Path) -> None:
    paths, step = DataPaths(tmp_path), LineageStep.now("run", "made", "1")
    shuffled = rows().select(["run_id", "quoted", "at", "number", "benchmark", "model"])
    version = store.write(paths, step, MADE, PAIR, shuffled.replace_schema_metadata({"of": "me"}), upstream={})
    assert version == store.write(paths, step, MADE, PAIR, shuffled, upstream={}), "a digest of the rows"
    (_, folder), *more = store.iterate_partitions(paths, MADE)
    assert not more
    written = pq.read_table(folder / "run_id=run.parquet", partitioning=None)
    assert written.column_names == MADE.names
    store.write(paths, step, MADE, PAIR, rows().replace_schema_metadata({"of": "me"}), upstream={}, data_version="v")
    assert pq.read_schema(folder / "run_id=run.parquet").metadata[b"of"] == b"me"


def test_a_table_without_files_cannot_be_written(tmp_path: Path) -> None:
    empty = TABLES["token_statistics"].empty_table()
    with pytest.raises(TypeError, match="the table token_statistics has no files"):
        store.write(
            DataPaths(tmp_path), LineageStep.now("r", "a", "1"), TABLES["token_statistics"], PAIR, empty, upstream={}
        )


def test_the_text_of_a_row_is_its_columns_one_behind_the_other() -> None:
    given = pa.table({"text": ["b", "d"], "context": ["a ", None]})
    assert EXAMPLES.texts(given) == ["a b", "d"]
    assert SCORES.text_columns == ()
