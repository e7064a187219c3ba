"""Whole documents from users' files."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_epubs import epub, page
from made_whole_files import docx, paragraph, pdf, scan

from audit_pipeline.errors import DataError
from audit_pipeline.extras.extraction.documents import cut_excerpt, read_documents
from audit_pipeline.sources.local_files import LocalFilesSettings, fetch_local_files
from audit_pipeline.tables import EXCERPT_WORDS


def test_a_folder_has_the_documents_and_skipped_files_of_check(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.txt").write_text("a text")
    (tmp_path / "deep" / "b.epub").write_bytes(epub({"1.xhtml": page("<p>one</p>"), "2.xhtml": page("<img src='p'/>")}))
    (tmp_path / "c.docx").write_bytes(docx(paragraph("a letter")))
    (tmp_path / "d.pdf").write_bytes(pdf([["printed"]]))
    (tmp_path / "e.html").write_text("<p>a page</p>")
    (tmp_path / "f.jsonl").write_text('{"text": "row"}\n{"text": 3}\n')
    (tmp_path / "g.mobi").write_text("x")
    (tmp_path / "h.pdf").write_bytes(scan())
    documents, skipped = read_documents(tmp_path, None)
    fetched = fetch_local_files(LocalFilesSettings(path=tmp_path))
    assert [(one.name, one.text, one.places) for one in documents] == [
        (one.name, one.text, one.places) for one in fetched.documents
    ]
    assert {one.name: one.text for one in documents} == {
        "a.txt": "a text",
        "deep/b.epub": "one",
        "c.docx": "a letter",
        "d.pdf": "printed",
        "e.html": "a page",
        "f.jsonl#0": "row",
    }
    assert {row.location: row.reason.removeprefix(f"{tmp_path}/") for row in skipped.first} == {
        "deep/b.epub!1 of 2 chapters (OPS/2.xhtml)": "there is no text, only pictures or nothing",
        "f.jsonl#1": "f.jsonl:2: column 'text' is not a string but int",
        "g.mobi": "Kindle books cannot be read. Convert them to EPUB.",
        "h.pdf": (
            "h.pdf: no text can be extracted (1 of 1 pages: these pages contain no text, only pictures (a scan?) or "
            "nothing). Run text recognition first."
        ),
    }


def test_rows_are_documents_with_a_name_or_a_number(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "x", "title": "X"}\n{"text": "y"}\n{"text": ""}\n', encoding="utf-8")
    documents, skipped = read_documents(file, None)
    assert [document.name for document in documents] == ["X", "row 1"]
    assert skipped.count == 1


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"ab\xff", "invalid UTF-8 at byte 3"),
        (
            "a.jsonl",
            b'{"text": "x", "id": 1}\n{"text": "y", "id": 1}\n',
            r"Several documents have the same name.*1 name\(s\) occur more than once",
        ),
        ("a.bin", b"x", "format"),
    ],
)
def test_unusable_files_are_refused(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=said):
        read_documents(tmp_path / name, None)


def test_no_file_and_no_document(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_documents(tmp_path / "none.txt", None)
    with pytest.raises(DataError, match=r"contains no readable document\. 0 file"):
        read_documents(tmp_path, None)
    (tmp_path / "x.txt").mkdir()
    (tmp_path / "Y.TXT").write_bytes(b"two\r\nlines")
    [document], _ = read_documents(tmp_path, None)
    assert (document.name, document.text) == ("Y.TXT", "two\nlines")


def test_excerpts_have_at_most_the_allowed_words() -> None:
    words = [str(number) for number in range(200)]
    first, last = cut_excerpt(" ".join(words)).split(), cut_excerpt(" ".join(words), last=True).split()
    assert (first, last) == (words[:25], words[-25:])
    # They stand side by side: a passage and the words before it.
    assert len(first) + len(last) == EXCERPT_WORDS
    assert len(cut_excerpt("x" * 9999)) == len(cut_excerpt("x" * 9999, last=True)) == 250
