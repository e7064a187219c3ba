"""Spreadsheets: cells as values, one sheet, and files that are damaged or want to do damage."""

from __future__ import annotations

import zipfile
from datetime import date
from pathlib import Path

import pytest
from made_spreadsheets import write_sheet_xml, write_sheets

from audit_pipeline.errors import DataError
from audit_pipeline.readers.formats import open_rows, open_texts, read_rows

both = pytest.mark.parametrize("suffix", [".xlsx", ".ods"])


@both
def test_cells_are_text_numbers_dates_and_what_a_formula_gave(tmp_path: Path, suffix: str) -> None:
    sheet = [
        [" text ", "label", "score", "published", None, "sum"],
        ["a first text", 1, 0.25, date(2024, 5, 31), "of no column", ("1+1", 2)],
        [None, None, None, None, None, None],
        ["a second", 0, -3, None, None, ("1/3", 0.5)],
        [7, 1, None, None, None, None],
    ]
    path = write_sheets(tmp_path / f"t{suffix}", {"Sheet": sheet, "Empty": []})
    assert open_rows(path).columns == ("text", "label", "score", "published", "sum")
    found = read_rows(path)
    assert [(row.location, row.index) for row in found.rows] == [
        (f"t{suffix}:{n}", n // 2 - 1 + n % 2) for n in (2, 4, 5)
    ]
    assert dict(found.rows[0].values) == {
        "text": "a first text",
        "label": 1,
        "score": 0.25,
        "published": "2024-05-31",
        "sum": 2,
    }
    assert list(found.rows[1].values.values()) == ["a second", 0, -3, "", 0.5]
    texts = open_texts(path)
    assert [row.text for row in texts] == ["a first text", "a second"]
    assert [row.reason for row in texts.skipped.first] == ["column 'text' is not a string but int"]


@both
def test_of_several_sheets_none_is_guessed(tmp_path: Path, suffix: str) -> None:
    path = write_sheets(tmp_path / f"t{suffix}", {"members": [["text"], ["a"]], "others": [["text"], ["b"]]})
    with pytest.raises(DataError, match="holds the sheets members, others: save the sheet to be read as a file of its"):
        read_rows(path)


@both
@pytest.mark.parametrize(
    ("sheet", "message"),
    [
        ([], "the file holds no rows"),
        ([["text", "label"]], "the file holds no rows"),
        ([["text", "label", "text"], ["a", 1, "b"]], "names a column twice: text, label, text"),
    ],
)
def test_headers_that_are_refused(tmp_path: Path, suffix: str, sheet: list[list[object]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_rows(write_sheets(tmp_path / f"t{suffix}", {"Sheet": sheet}))


@both
def test_what_is_no_spreadsheet_or_is_cut_is_refused(tmp_path: Path, suffix: str) -> None:
    path = write_sheets(tmp_path / f"t{suffix}", {"Sheet": [["text"], *([f"text {n}"] for n in range(200))]})
    whole = path.read_bytes()
    encrypted = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(2000)
    for content in (b"", b"PK\3\4", whole[: len(whole) // 2], whole[:300] + bytes(200) + whole[500:], encrypted):
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"t\{suffix}: is (not a readable spreadsheet \(.+\)|locked)"):
            read_rows(path)


def test_an_ods_file_with_a_password_is_named(tmp_path: Path) -> None:
    path = write_sheets(tmp_path / "t.ods", {"Sheet": [["text"], ["a"]]})
    with zipfile.ZipFile(path) as archive:
        content = archive.read("content.xml")
    oasis = "urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("content.xml", content)
        archive.writestr(
            "META-INF/manifest.xml",
            f'<manifest:manifest xmlns:manifest="{oasis}"><manifest:file-entry manifest:full-path="content.xml">'
            "<manifest:encryption-data/></manifest:file-entry></manifest:manifest>",
        )
    with pytest.raises(DataError, match="is locked with a password: save it without a password"):
        read_rows(path)


def test_twenty_thousand_rows(tmp_path: Path) -> None:
    rows = "".join(f'<row><c t="inlineStr"><is><t>text {n}</t></is></c><c><v>{n}</v></c></row>' for n in range(20_000))
    write_sheet_xml(tmp_path / "t.xlsx", f'<row><c t="str"><v>text</v></c><c t="str"><v>n</v></c></row>{rows}')
    texts = list(open_texts(tmp_path / "t.xlsx", extra_columns=["n"]))
    assert [row.values["n"] for row in texts] == list(range(20_000))
    assert texts[-1].location == "t.xlsx:20001"
