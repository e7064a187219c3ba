"""Digests of rows, documents and folders: one form in Python and SQL, and no bit that can change unseen."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.catalogue import integrity
from audit_pipeline.catalogue.contracts import OUTCOMES
from audit_pipeline.catalogue.files import read_json, write_json
from audit_pipeline.catalogue.integrity import (
    REST_SHA256,
    ROW_SHA256,
    DamagedError,
    cached_sha256,
    digests_of_folder,
    file_sha256,
    require_matching_digests,
    require_row_digest,
    row_sha256,
    row_sha256_sql,
    with_row_sha256,
)
from audit_pipeline.errors import DataError

COLUMNS = pa.schema([("b", pa.string()), ("a", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
TEXT = st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
ROWS = st.fixed_dictionaries(
    {"a": TEXT, "b": TEXT, "at": st.none() | st.datetimes(datetime(1900, 1, 1), timezones=st.just(UTC))}
)


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_duckdb_computes_the_same_digest_of_a_row(rows: list[dict[str, object]]) -> None:
    table = pa.Table.from_pylist(rows, schema=COLUMNS)
    with duckdb.connect() as connection:
        connection.register("given", table)
        found = connection.execute(f"SELECT {row_sha256_sql(COLUMNS)} FROM given").fetchall()
    assert [digest for (digest,) in found] == [row_sha256(row) for row in rows]


@given(ROWS, ROWS)
def test_rows_that_differ_have_other_digests(one: dict[str, object], other: dict[str, object]) -> None:
    assert (row_sha256(one) == row_sha256(other)) == (one == other)


def test_a_row_says_when_it_is_not_what_it_was(tmp_path: Path) -> None:
    row = with_row_sha256({"a": "1", "b": None, "at": datetime(2026, 1, 1, tzinfo=UTC)})
    assert with_row_sha256(row) == row
    require_row_digest(row, tmp_path)
    require_row_digest({**row, "added later": None}, tmp_path)
    require_row_digest({"a": "of an earlier version"}, tmp_path)
    for changed in ({"a": "2"}, {"b": ""}, {"at": datetime(2026, 1, 2, tzinfo=UTC)}, {ROW_SHA256: "0" * 64}):
        with pytest.raises(DamagedError, match=r"its row is not as it was written"):
            require_row_digest({**row, **changed}, tmp_path)
    with pytest.raises(TypeError, match="text and times"):
        row_sha256({"a": 1})
    assert ROW_SHA256 in OUTCOMES.names


DOCUMENT = {"z": 1, "a": "é<script>", "n": [1.5, None, {"day": date(2026, 1, 2)}], "digest": "0" * 64, "last": True}


def test_no_bit_of_a_json_file_changes_unseen(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, DOCUMENT)
    whole, value = path.read_bytes(), read_json(path)
    assert value == json.loads(json.dumps(DOCUMENT, default=str))
    noticed = 0
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(flipped))
        try:
            assert read_json(path) == value, f"bit {bit} of {whole[bit // 8 :][:20]!r}"
        except ValueError:
            noticed += 1
    assert noticed > 0.9 * 8 * len(whole)


def test_json_that_carries_no_digest_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for content in ("{}", '{"a": 1}', "[1, 2]", "3", f'{{"a": "{"0" * 64}"}}'):
        path.write_text(content)
        assert read_json(path) == json.loads(content)
    write_json(path, [1, 2])
    assert path.read_text().split() == ["[", "1,", "2", "]"]
    write_json(path, {})
    assert read_json(path) == {}
    assert REST_SHA256 in path.read_text()


def test_what_was_read_with_its_digest_is_written_with_its_own(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"a": 1, "b": 2})
    raw = json.loads(path.read_text())
    write_json(path, {**raw, "a": 3, "c": 4})
    assert read_json(path) == {"a": 3, "b": 2, "c": 4}
    path.write_text(json.dumps({**json.loads(path.read_text()), "by hand": 1}))
    with pytest.raises(DataError, match=r"x\.json is damaged"):
        read_json(path)


def test_a_folder_is_compared_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "texts").write_text("one")
    (tmp_path / ".texts.tmp").write_text("half")
    digests = digests_of_folder(tmp_path)
    assert digests == {name: file_sha256(tmp_path / name) for name in ("model/config.json", "texts")}
    (tmp_path / "another").write_text("nobody asked for it")
    require_matching_digests(tmp_path, digests, "the model")
    (tmp_path / "model" / "config.json").write_text("{ }")
    with pytest.raises(DamagedError, match=r"the model is damaged: .*model/config\.json is missing or not as it was"):
        require_matching_digests(tmp_path, digests, "the model")
    (tmp_path / "texts").unlink()
    with pytest.raises(DamagedError, match="texts is missing"):
        require_matching_digests(tmp_path, {"texts": digests["texts"]}, "the model")


def test_a_file_is_read_once_as_long_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = tmp_path / "file", []
    compute = integrity.file_sha256
    monkeypatch.setattr(integrity, "file_sha256", lambda file: (read.append(file), compute(file))[1])
    path.write_bytes(b"one")
    assert cached_sha256(path) == cached_sha256(path) == compute(path)
    assert len(read) == 1
    other = tmp_path / "other"
    other.write_bytes(b"two")
    other.replace(path)
    assert cached_sha256(path) == compute(path)
    assert len(read) == 2
