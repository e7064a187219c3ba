"""Spreadsheets: values of cells, the choice of the sheet, hidden cells, and damaged or hostile files."""

from __future__ import annotations

import zipfile
from datetime import date
from pathlib import Path

import pytest
from made_spreadsheets import write_ods_tables, write_sheet_xml, write_sheets

from audit_pipeline.errors import DataError
from audit_pipeline.readers.formats import open_rows, open_texts, read_rows

both = pytest.mark.parametrize("suffix", [".xlsx", ".ods"])


@both
def test_cells_are_text_numbers_dates_and_results_of_formulas(tmp_path: Path, suffix: str) -> None:
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
def test_several_sheets_with_content_are_refused(tmp_path: Path, suffix: str) -> None:
    path = write_sheets(tmp_path / f"t{suffix}", {"members": [["text"], ["a"]], "others": [["text"], ["b"]]})
    with pytest.raises(
        DataError, match=r"several sheets have content: members, others\. Save the sheet to read as a separate file\."
    ):
        read_rows(path)


@both
@pytest.mark.parametrize(
    ("sheet", "message"),
    [
        ([], "the file contains no rows"),
        ([["text", "label"]], "the file contains no rows"),
        ([["text", "label", "text"], ["a", 1, "b"]], "contains a column name twice: text, label, text"),
    ],
)
def test_headers_that_are_refused(tmp_path: Path, suffix: str, sheet: list[list[object]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_rows(write_sheets(tmp_path / f"t{suffix}", {"Sheet": sheet}))


@both
def test_damaged_spreadsheets_are_refused(tmp_path: Path, suffix: str) -> None:
    path = write_sheets(tmp_path / f"t{suffix}", {"Sheet": [["text"], *([f"text {n}"] for n in range(200))]})
    whole = path.read_bytes()
    encrypted = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(2000)
    for content in (b"", b"PK\3\4", whole[: len(whole) // 2], whole[:300] + bytes(200) + whole[500:], encrypted):
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"t\{suffix}: the file is (not a readable spreadsheet \(.+\)|locked)"):
            read_rows(path)


def test_an_ods_file_with_a_password_is_refused(tmp_path: Path) -> None:
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
    with pytest.raises(DataError, match=r"is locked with a password\. Save it without a password."):
        read_rows(path)


def _cells(row: int, *values: str, more: str = "") -> str:
    cells = "".join(f'<c r="{"ABCDE"[n]}{row}" t="str"><v>{value}</v></c>' for n, value in enumerate(values) if value)
    return f'<row r="{row}"{more}>{cells}</row>'


def _read(path: Path) -> tuple[list[dict[str, object]], list[tuple[str, str]], dict[str, str]]:
    file = read_rows(path)
    rows = [dict(row.values) for row in file.rows]
    return rows, [(row.location, row.reason) for row in file.skipped], dict(file.remarks)


HIDDEN = "is hidden. Show the row to include it."


@pytest.mark.parametrize("mark", [' hidden="1"', ' hidden="true"', ' ht="0" customHeight="1"'])
def test_hidden_rows_are_skipped_and_the_other_rows_keep_their_numbers(tmp_path: Path, mark: str) -> None:
    rows = [_cells(1, "text"), _cells(2, "a"), _cells(3, "b", more=mark), _cells(4, "c"), _cells(5, "d", more=mark)]
    write_sheet_xml(tmp_path / "t.xlsx", "".join(rows))
    file = read_rows(tmp_path / "t.xlsx")
    assert [(row.index, row.values["text"]) for row in file.rows] == [(0, "a"), (2, "c")]
    assert [(row.index, row.location, row.reason) for row in file.skipped] == [
        (1, "t.xlsx:3", HIDDEN),
        (3, "t.xlsx:5", HIDDEN),
    ]


def test_a_sheet_whose_rows_are_all_hidden_is_refused(tmp_path: Path) -> None:
    write_sheet_xml(tmp_path / "t.xlsx", _cells(1, "text", more=' hidden="1"') + _cells(2, "a", more=' hidden="1"'))
    with pytest.raises(DataError, match=r"all rows are hidden\. Show the rows to include them."):
        read_rows(tmp_path / "t.xlsx")


@pytest.mark.parametrize("state", ["hidden", "veryHidden"])
def test_hidden_sheets_are_reported_and_the_visible_sheet_is_read(tmp_path: Path, state: str) -> None:
    path = tmp_path / "t.xlsx"
    write_sheet_xml(path, _cells(1, "text") + _cells(2, "a"), _cells(1, "text") + _cells(2, "b"), state=state)
    reason = "the sheet is hidden. Show the sheet to include it."
    assert _read(path) == ([{"text": "a"}], [], {"sheet B": reason})
    write_sheet_xml(path, "", _cells(1, "text") + _cells(2, "b"), state=state)
    with pytest.raises(DataError, match=r"all sheets with content are hidden \(B\). Show the sheet"):
        read_rows(path)


def test_hidden_columns_are_skipped_and_reported(tmp_path: Path) -> None:
    columns = '<cols><col min="2" max="2" width="9" hidden="1"/><col min="4" max="4" width="0"/></cols>'
    sheet = _cells(1, "text", "secret", "note", "old") + _cells(2, "a", "b", "c", "d")
    write_sheet_xml(tmp_path / "t.xlsx", sheet, before=columns)
    reason = "hidden columns are not read. Show a column to include it."
    assert _read(tmp_path / "t.xlsx") == ([{"text": "a", "note": "c"}], [], {"column(s) B, D": reason})


def test_merged_cells_have_their_value_in_every_row(tmp_path: Path) -> None:
    rows = [
        _cells(1, "book", "text"),
        _cells(2, "One", "a"),
        _cells(3, "", "b"),
        _cells(4, "", "c"),
        _cells(6, "Two", "d"),
    ]
    merged = '<mergeCells><mergeCell ref="A2:A3"/><mergeCell ref="B6:C6"/></mergeCells>'
    write_sheet_xml(tmp_path / "t.xlsx", "".join(rows), after=merged)
    found, _, remarks = _read(tmp_path / "t.xlsx")
    assert [row["book"] for row in found] == ["One", "One", "", "Two"]
    assert remarks == {"1 merged cell(s) of column A": "the value of merged cells is used for each of their rows"}


@pytest.mark.parametrize(
    ("rows", "header", "above"),
    [
        ([_cells(1, "My texts"), _cells(3, "text", "date"), _cells(4, "a", "b")], 3, "rows 1 to 2"),
        (
            [_cells(1, "My texts"), _cells(2, "Harbour"), _cells(3, "text", "date"), _cells(4, "a", "b")],
            3,
            "rows 1 to 2",
        ),
        ([_cells(1, "My texts"), _cells(3, "text"), _cells(4, "a")], 3, "rows 1 to 2"),
        ([_cells(2, "", "My texts"), _cells(3, "", "text", "date"), _cells(4, "", "a", "b")], 3, "row 2"),
        ([_cells(3, "text", "date"), _cells(4, "a", "b")], 3, None),
        ([_cells(1, "text"), _cells(2, "a")], 1, None),
    ],
)
def test_the_note_names_the_row_of_the_header(tmp_path: Path, rows: list[str], header: int, above: str | None) -> None:
    write_sheet_xml(tmp_path / "t.xlsx", "".join(rows))
    stream = open_rows(tmp_path / "t.xlsx")
    assert f"read the sheet 'A' with row {header} as header; columns: text" in str(stream.note)
    assert [part for part, _ in stream.remarks] == ([above] if above else [])
    assert [row.values["text"] for row in read_rows(tmp_path / "t.xlsx").rows] == ["a"]


def test_a_repeated_header_is_skipped(tmp_path: Path) -> None:
    rows = [_cells(n, *values) for n, values in enumerate((("text", "n"), ("a", "1"), ("text", "n"), ("b", "2")), 1)]
    write_sheet_xml(tmp_path / "t.xlsx", "".join(rows))
    found, skipped, _ = _read(tmp_path / "t.xlsx")
    assert [row["text"] for row in found] == ["a", "b"]
    assert skipped == [("t.xlsx:3", "repeats the header")]


def test_errors_and_formulas_without_a_value_are_reported(tmp_path: Path) -> None:
    error = '<row r="2"><c r="A2" t="e"><f>X1</f><v>#REF!</v></c><c r="B2"><f>1+1</f></c></row>'
    kept = '<row r="3"><c r="A3" t="str"><f>A9</f><v>a</v></c><c r="B3" t="str"><f>A1</f><v></v></c></row>'
    write_sheet_xml(tmp_path / "t.xlsx", _cells(1, "text", "n") + error + kept)
    found, _, remarks = _read(tmp_path / "t.xlsx")
    assert found == [{"text": "a", "n": ""}]
    assert remarks == {
        "1 cell(s) (A2)": "these cells contain an error such as #REF! instead of a value",
        "2 cell(s) (B2, B3)": (
            "these cells contain a formula without a stored value. Open the file in a spreadsheet program and save it."
        ),
    }


def test_hidden_and_merged_cells_of_an_ods_file_are_treated_as_in_xlsx(tmp_path: Path) -> None:
    def cell(text: str, more: str = "") -> str:
        return f'<table:table-cell office:value-type="string"{more}><text:p>{text}</text:p></table:table-cell>'

    def row(*cells: str, more: str = "") -> str:
        return f"<table:table-row{more}>{''.join(cells)}</table:table-row>"

    covered = "<table:covered-table-cell/>"
    tables = (
        '<table:table table:name="S"><table:table-column table:number-columns-repeated="2"/>'
        '<table:table-column table:visibility="collapse"/>'
        + row("<table:table-cell/>", more=' table:number-rows-repeated="2"')
        + row(cell("book"), cell("text"), cell("secret"))
        + row(cell("One", ' table:number-rows-spanned="2"'), cell("a"), cell("x"))
        + row(covered, cell("b"), cell("x"))
        + row(cell("Two"), cell("c"), more=' table:visibility="filter"')
        + "<table:table-row-group table:display='false'>" + row(cell("Two"), cell("d")) + "</table:table-row-group>"
        + row(cell("Two"), '<table:table-cell table:formula="of:=A1"/>', cell("x"))
        + '</table:table><table:table table:name="T" table:style-name="off">' + row(cell("text")) + "</table:table>"
    )  # fmt: skip
    write_ods_tables(tmp_path / "t.ods", tables)
    found, skipped, remarks = _read(tmp_path / "t.ods")
    assert found == [{"book": "One", "text": "a"}, {"book": "One", "text": "b"}, {"book": "Two", "text": ""}]
    assert skipped == [("t.ods:6", HIDDEN), ("t.ods:7", HIDDEN)]
    assert list(remarks) == ["sheet T", "column(s) C", "1 merged cell(s) of column A", "1 cell(s) (B8)"]


def test_a_sheet_that_defines_entities_is_refused(tmp_path: Path) -> None:
    path = write_sheets(tmp_path / "t.xlsx", {"Sheet": [["text"], ["a"]]})
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            head = b'<!DOCTYPE w [<!ENTITY a "aaaa">]>' if name.startswith("xl/worksheets/") else b""
            archive.writestr(name, head + content)
    with pytest.raises(DataError, match="is not a readable spreadsheet"):
        read_rows(path)


def test_rows_of_a_long_sheet_keep_their_order(tmp_path: Path) -> None:
    rows = "".join(f'<row><c t="inlineStr"><is><t>text {n}</t></is></c><c><v>{n}</v></c></row>' for n in range(2_000))
    write_sheet_xml(tmp_path / "t.xlsx", f'<row><c t="str"><v>text</v></c><c t="str"><v>n</v></c></row>{rows}')
    texts = list(open_texts(tmp_path / "t.xlsx", extra_columns=["n"]))
    assert [row.values["n"] for row in texts] == list(range(2_000))
    assert texts[-1].location == "t.xlsx:2001"
