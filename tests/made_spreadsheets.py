"""Builders of spreadsheets in the formats .xlsx and .ods."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

Sheet = Sequence[Sequence[object]]

_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OASIS = "urn:oasis:names:tc:opendocument:xmlns"
_RELATIONS = '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
# Style 0 is plain, style 1 is a date.
_STYLES = f'<styleSheet xmlns="{_MAIN}"><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs></styleSheet>'


def write_sheets(path: Path, sheets: Mapping[str, Sheet]) -> Path:
    """Write sheets (rows of cells by name) in the format of the suffix. A pair is a formula and its value."""
    if path.suffix.lower() == ".ods":
        tables = ""
        for name, rows in sheets.items():
            written = "".join(f"<table:table-row>{''.join(map(_ods_cell, row))}</table:table-row>" for row in rows)
            tables += f"<table:table table:name={quoteattr(name)}>{written}</table:table>"
        write_ods_tables(path, tables)
    else:
        contents = ["".join(f"<row>{''.join(map(_xlsx_cell, row))}</row>" for row in rows) for rows in sheets.values()]
        write_sheet_xml(path, *contents, names=list(sheets))
    return path


def write_sheet_xml(
    path: Path, *sheets: str, names: Sequence[str] = "ABC", state: str = "visible", before: str = "", after: str = ""
) -> None:
    """Write an .xlsx file whose sheets contain XML.

    Args:
        state: State of the last sheet, such as hidden.
        before: XML before the rows of every sheet.
        after: XML after the rows of every sheet.
    """
    listed = ""
    related = _RELATIONS
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, sheet in enumerate(sheets, 1):
            shown = state if number == len(sheets) else "visible"
            listed += (
                f'<sheet name={quoteattr(names[number - 1])} sheetId="{number}" state="{shown}" r:id="r{number}"/>'
            )
            related += f'<Relationship Id="r{number}" Type="{_OFFICE}/worksheet" Target="worksheets/{number}.xml"/>'
            content = f'<worksheet xmlns="{_MAIN}">{before}<sheetData>{sheet}</sheetData>{after}</worksheet>'
            archive.writestr(f"xl/worksheets/{number}.xml", content)
        workbook = f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>{listed}</sheets></workbook>'
        main = f'<Relationship Id="r0" Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/>'
        archive.writestr("xl/styles.xml", _STYLES)
        archive.writestr("xl/workbook.xml", workbook)
        archive.writestr("_rels/.rels", f"{_RELATIONS}{main}</Relationships>")
        archive.writestr("xl/_rels/workbook.xml.rels", f"{related}</Relationships>")


def write_ods_tables(path: Path, tables: str) -> None:
    """Write an .ods file with tables. Tables of the style ``off`` are hidden."""
    style = (
        '<office:automatic-styles><style:style style:name="off" style:family="table">'
        '<style:table-properties table:display="false"/></style:style></office:automatic-styles>'
    )
    names = " ".join(f'xmlns:{name}="{_OASIS}:{name}:1.0"' for name in ("office", "table", "text", "style"))
    body = f"<office:body><office:spreadsheet>{tables}</office:spreadsheet></office:body>"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("META-INF/manifest.xml", f'<manifest xmlns="{_OASIS}:manifest:1.0"/>')
        archive.writestr("content.xml", f"<office:document-content {names}>{style}{body}</office:document-content>")


def _xlsx_cell(value: object) -> str:
    match value:
        case None:
            return "<c/>"
        case str():
            return f'<c t="inlineStr"><is><t xml:space="preserve">{escape(value)}</t></is></c>'
        case date():
            return f'<c s="1"><v>{(value - date(1899, 12, 30)).days}</v></c>'
        case tuple():
            formula, result = value
            return f"<c><f>{escape(formula)}</f><v>{result}</v></c>"
    return f"<c><v>{value}</v></c>"


def _ods_cell(value: object) -> str:
    match value:
        case None:
            return "<table:table-cell/>"
        case str():
            return f'<table:table-cell office:value-type="string"><text:p>{escape(value)}</text:p></table:table-cell>'
        case date():
            return f'<table:table-cell office:value-type="date" office:date-value="{value}"/>'
        case tuple():
            formula, result = value
            attribute = f"table:formula={quoteattr('of:=' + formula)}"
            return f'<table:table-cell {attribute} office:value-type="float" office:value="{result}"/>'
    return f'<table:table-cell office:value-type="float" office:value="{value}"/>'
