"""Spreadsheets as programs write them, in the two formats that are read."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

Sheet = Sequence[Sequence[object]]

_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OASIS = "urn:oasis:names:tc:opendocument:xmlns"
# Style 0 is plain, style 1 a date.
_STYLES = f'<styleSheet xmlns="{_MAIN}"><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs></styleSheet>'


def write_sheets(path: Path, sheets: Mapping[str, Sheet]) -> Path:
    """These sheets, rows of cells, in the format that the name of ``path`` says. A pair is a formula and its value."""
    (_write_ods if path.suffix.lower() == ".ods" else _write_xlsx)(path, sheets)
    return path


def write_sheet_xml(
    path: Path,
    *sheets: str,
    names: Sequence[str] = "ABC",
    states: Sequence[str] = (),
    before: str = "",
    after: str = "",
) -> None:
    """Write an .xlsx file whose sheets hold this XML.

    Args:
        states: The state of each sheet, such as hidden; empty: visible.
        before: XML before the rows of every sheet.
        after: XML after them.
    """
    listed, related = "", ""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, (name, sheet) in enumerate(zip(names, sheets, strict=False), 1):
            state = f' state="{states[number - 1]}"' if states and states[number - 1] else ""
            listed += f'<sheet name={quoteattr(name)} sheetId="{number}"{state} r:id="r{number}"/>'
            related += f'<Relationship Id="r{number}" Type="{_OFFICE}/worksheet" Target="worksheets/{number}.xml"/>'
            content = f'<worksheet xmlns="{_MAIN}">{before}<sheetData>{sheet}</sheetData>{after}</worksheet>'
            archive.writestr(f"xl/worksheets/{number}.xml", content)
        archive.writestr("xl/styles.xml", _STYLES)
        archive.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{_PACKAGE}">'
            f'<Relationship Id="r0" Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        )
        archive.writestr(
            "xl/workbook.xml", f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>{listed}</sheets></workbook>'
        )
        archive.writestr("xl/_rels/workbook.xml.rels", f'<Relationships xmlns="{_PACKAGE}">{related}</Relationships>')


def _write_xlsx(path: Path, sheets: Mapping[str, Sheet]) -> None:
    written = ("".join(f"<row>{''.join(map(_xlsx_cell, row))}</row>" for row in sheet) for sheet in sheets.values())
    write_sheet_xml(path, *written, names=list(sheets))


def _xlsx_cell(value: object) -> str:
    formula = ""
    if isinstance(value, tuple):
        formula, value = f"<f>{escape(value[0])}</f>", value[1]
    if isinstance(value, date):
        return f'<c s="1"><v>{(value - date(1899, 12, 30)).days}</v></c>'
    if isinstance(value, str):
        return f'<c t="inlineStr"><is><t xml:space="preserve">{escape(value)}</t></is></c>'
    return "<c/>" if value is None else f"<c>{formula}<v>{value}</v></c>"


def _write_ods(path: Path, sheets: Mapping[str, Sheet]) -> None:
    tables = "".join(
        f"<table:table table:name={quoteattr(name)}>"
        + "".join(f"<table:table-row>{''.join(map(_ods_cell, row))}</table:table-row>" for row in sheet)
        + "</table:table>"
        for name, sheet in sheets.items()
    )
    write_ods_tables(path, tables)


def write_ods_tables(path: Path, tables: str, hidden_style: str = "hidden") -> None:
    """Write an .ods file with these tables. Tables of the style ``hidden_style`` are hidden."""
    style = (
        f'<office:automatic-styles><style:style style:name="{hidden_style}" style:family="table">'
        '<style:table-properties table:display="false"/></style:style></office:automatic-styles>'
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("META-INF/manifest.xml", f'<manifest xmlns="{_OASIS}:manifest:1.0"/>')
        archive.writestr(
            "content.xml",
            f'<office:document-content xmlns:office="{_OASIS}:office:1.0" xmlns:table="{_OASIS}:table:1.0" '
            f'xmlns:text="{_OASIS}:text:1.0" xmlns:style="{_OASIS}:style:1.0">'
            f"{style}<office:body><office:spreadsheet>{tables}</office:spreadsheet>"
            "</office:body></office:document-content>",
        )


def _ods_cell(value: object) -> str:
    formula = ""
    if isinstance(value, tuple):
        formula, value = f" table:formula={quoteattr('of:=' + value[0])}", value[1]
    if isinstance(value, date):
        return f'<table:table-cell office:value-type="date" office:date-value="{value}"/>'
    if isinstance(value, str):
        return f'<table:table-cell office:value-type="string"><text:p>{escape(value)}</text:p></table:table-cell>'
    if value is None:
        return "<table:table-cell/>"
    return f'<table:table-cell{formula} office:value-type="float" office:value="{value}"/>'
