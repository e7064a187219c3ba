"""Atomic writes and checked reads of Parquet and JSON files."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from written import read_all

from audit_pipeline.errors import DataError
from audit_pipeline.store.files import (
    cast_to_columns,
    read_json,
    read_table,
    require_usable_output,
    table_from_rows,
    write_atomically,
    write_json,
    write_table,
)

SCHEMA = pa.schema([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())])


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.txt"
    with write_atomically(path) as temporary:
        temporary.write_text("old")

    def write_half() -> None:
        with write_atomically(path) as temporary:
            temporary.write_text("ne")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_half()
    assert path.read_text() == "old"
    assert [entry.name for entry in path.parent.iterdir()] == ["file.txt"]


def test_the_new_file_is_invisible_until_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"

    with write_atomically(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
        assert list(tmp_path.glob("*.txt")) == []
    assert path.read_text() == "new"


def test_files_get_the_umask_permissions(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_json(tmp_path / "x.json", {"a": 1})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x.json").stat().st_mode) == 0o640


def test_json_keeps_order_and_letters(tmp_path: Path) -> None:
    value = {"z": 1, "a": "é<script>", "n": [1.5, None]}
    write_json(tmp_path / "x.json", value)
    assert read_json(tmp_path / "x.json") == value
    assert list(read_json(tmp_path / "x.json")) == ["z", "a", "n"]
    assert "é" in (tmp_path / "x.json").read_text(encoding="utf-8")


def test_rows_must_have_exactly_the_columns() -> None:
    assert table_from_rows([{"a": 1, "b": None}], SCHEMA).to_pylist() == [{"a": 1, "b": None}]
    assert table_from_rows([], SCHEMA).schema == SCHEMA
    with pytest.raises(DataError, match="b"):
        table_from_rows([{"a": 1}], SCHEMA)
    with pytest.raises(DataError, match="c"):
        table_from_rows([{"a": 1, "b": "x", "c": 2}], SCHEMA)
    with pytest.raises(DataError, match="column a contains a null"):
        table_from_rows([{"a": None, "b": "x"}], SCHEMA)


def test_casting_selects_orders_and_casts_columns() -> None:
    table = pa.table({"extra": [1.0], "b": ["x"], "a": pa.array([7], pa.int64())})
    assert cast_to_columns(table, SCHEMA).schema == SCHEMA
    assert cast_to_columns(table, SCHEMA).to_pylist() == [{"a": 7, "b": "x"}]
    with pytest.raises(DataError, match="columns are missing: a"):
        cast_to_columns(table.drop_columns(["a"]), SCHEMA)


def test_missing_and_damaged_tables_raise_errors(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    with pytest.raises(DataError, match="the examples has not been built yet"):
        read_table(path, SCHEMA, label="the examples")
    write_table(path, table_from_rows([{"a": 1, "b": "x"}], SCHEMA))
    assert read_table(path, SCHEMA, label="the examples").to_pylist() == [{"a": 1, "b": "x"}]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="the examples cannot be read"):
        read_table(path, SCHEMA, label="the examples")


def test_folder_names_do_not_become_columns(tmp_path: Path) -> None:
    for name in ("b=two", "b=one"):
        write_table(tmp_path / name / "x.parquet", table_from_rows([{"a": len(name), "b": "from file"}], SCHEMA))
    assert read_all(tmp_path, SCHEMA).column("b").to_pylist() == ["from file", "from file"]
    assert read_all(tmp_path / "nothing", SCHEMA).num_rows == 0
    assert read_table(tmp_path / "b=one" / "x.parquet", SCHEMA, label="it").column("b").to_pylist() == ["from file"]


def test_tables_are_compressed(tmp_path: Path) -> None:
    write_table(tmp_path / "t.parquet", table_from_rows([{"a": 1, "b": "x" * 1000}], SCHEMA))
    assert pq.ParquetFile(tmp_path / "t.parquet").metadata.row_group(0).column(1).compression == "ZSTD"


def test_an_output_never_overwrites_an_input(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    given = corpus / "texts.parquet"
    given.touch()
    require_usable_output(tmp_path / "scores.parquet", given)
    (tmp_path / "link.parquet").symlink_to(given)
    for out in (given, corpus / ".." / "corpus" / "texts.parquet", tmp_path / "link.parquet"):
        with pytest.raises(DataError, match="would overwrite the input"):
            require_usable_output(out, given)
    with pytest.raises(DataError, match="would overwrite the input"):
        require_usable_output(corpus / "new.parquet", corpus)
    with pytest.raises(DataError, match=r"Choose a name that ends in \.parquet"):
        require_usable_output(tmp_path / "texts.jsonl", given)


def test_a_page_with_a_wrong_checksum_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write_table(path, pa.table({"a": pa.array(range(1000), pa.int32()), "b": [str(n) for n in range(1000)]}))
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    content = bytearray(path.read_bytes())
    content[column.data_page_offset + column.total_compressed_size - 20] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"the table cannot be read .*(?i:crc|checksum)"):
        read_table(path, SCHEMA, label="the table")
