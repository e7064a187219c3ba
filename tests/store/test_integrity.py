"""Digests of documents and folders."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from audit_pipeline.errors import DataError
from audit_pipeline.store import integrity
from audit_pipeline.store.files import read_json, write_json
from audit_pipeline.store.integrity import (
    REST_SHA256,
    DamagedError,
    cached_sha256,
    digests_of_folder,
    file_sha256,
    require_matching_digests,
)

DOCUMENT = {"z": 1, "a": "é<script>", "n": [1.5, None, {"day": date(2026, 1, 2)}], "digest": "0" * 64, "last": True}


def test_a_flipped_bit_of_a_json_file_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, DOCUMENT)
    whole, value = path.read_bytes(), read_json(path)
    assert value == json.loads(json.dumps(DOCUMENT, default=str))
    noticed = 0
    # Every third bit: each byte has changed bits, and all places in a byte occur.
    bits = range(0, 8 * len(whole), 3)
    for bit in bits:
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(flipped))
        try:
            assert read_json(path) == value, f"bit {bit} of {whole[bit // 8 :][:20]!r}"
        except ValueError:
            noticed += 1
    assert noticed > 0.9 * len(bits)


def test_json_without_a_digest_is_read_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for content in ("{}", '{"a": 1}', "[1, 2]", "3", f'{{"a": "{"0" * 64}"}}'):
        path.write_text(content)
        assert read_json(path) == json.loads(content)
    write_json(path, [1, 2])
    assert path.read_text().split() == ["[", "1,", "2", "]"]
    write_json(path, {})
    assert read_json(path) == {}
    assert REST_SHA256 in path.read_text()


def test_a_document_is_written_with_a_new_digest(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"a": 1, "b": 2})
    raw = json.loads(path.read_text())
    write_json(path, {**raw, "a": 3, "c": 4})
    assert read_json(path) == {"a": 3, "b": 2, "c": 4}
    path.write_text(json.dumps({**json.loads(path.read_text()), "by hand": 1}))
    with pytest.raises(DataError, match=r"x\.json is damaged"):
        read_json(path)


def test_the_digests_of_a_folder_detect_changed_and_missing_files(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "texts").write_text("one")
    (tmp_path / ".texts.tmp").write_text("half")
    digests = digests_of_folder(tmp_path)
    assert digests == {name: file_sha256(tmp_path / name) for name in ("model/config.json", "texts")}
    (tmp_path / "another").write_text("not in the digests")
    require_matching_digests(tmp_path, digests, "the model")
    (tmp_path / "model" / "config.json").write_text("{ }")
    with pytest.raises(DamagedError, match=r"the model is damaged: .*model/config\.json is missing or corrupt"):
        require_matching_digests(tmp_path, digests, "the model")
    (tmp_path / "texts").unlink()
    with pytest.raises(DamagedError, match="texts is missing"):
        require_matching_digests(tmp_path, {"texts": digests["texts"]}, "the model")


def test_the_digest_of_an_unchanged_file_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
