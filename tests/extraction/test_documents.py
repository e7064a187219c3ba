"""Whole documents out of users' files."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit_pipeline.catalogue.contracts import EXCERPT_WORDS
from audit_pipeline.errors import DataError
from audit_pipeline.extraction.documents import cut_excerpt, read_documents


def test_a_text_file_is_one_document_and_a_folder_holds_many(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("two\nlines 🙂", encoding="utf-8")
    (tmp_path / "a.txt").write_text("\ufeffone", encoding="utf-8")
    (tmp_path / "notes.md").write_text("not a document", encoding="utf-8")
    [one], skipped = read_documents(tmp_path / "b.txt", None)
    assert (one.name, one.text, skipped.count) == ("b", "two\nlines 🙂", 0)
    documents, _ = read_documents(tmp_path, None)
    assert [(document.name, document.text) for document in documents] == [("a", "one"), ("b", "two\nlines 🙂")]


def test_rows_are_documents_by_their_name_or_number(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "x", "title": "X"}\n{"text": "y"}\n{"text": ""}\n', encoding="utf-8")
    documents, skipped = read_documents(file, None)
    assert [document.name for document in documents] == ["X", "row 1"]
    assert skipped.count == 1


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"", "holds no text"),
        ("a.txt", b"ab\xff", "not UTF-8 .byte 2"),
        ("a.jsonl", b'{"text": "x", "id": 1}\n{"text": "y", "id": 1}\n', "1 name.* several documents"),
        ("a.bin", b"x", "format"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=said):
        read_documents(tmp_path / name, None)


def test_no_file_and_no_document(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_documents(tmp_path / "none.txt", None)
    with pytest.raises(DataError, match=r"holds no \.txt file"):
        read_documents(tmp_path, None)
    (tmp_path / "x.txt").mkdir()
    (tmp_path / "Y.TXT").write_bytes(b"two\r\nlines")
    [document], _ = read_documents(tmp_path, None)
    assert document.text == "two\r\nlines", "places are counted in the file's own characters"


def test_no_more_is_quoted_than_may_be() -> None:
    words = [str(number) for number in range(200)]
    first, last = cut_excerpt(" ".join(words)).split(), cut_excerpt(" ".join(words), last=True).split()
    assert (first, last) == (words[:25], words[-25:])
    # They stand side by side: a passage and the words before it.
    assert len(first) + len(last) == EXCERPT_WORDS
    assert len(cut_excerpt("x" * 9999)) == len(cut_excerpt("x" * 9999, last=True)) == 250
