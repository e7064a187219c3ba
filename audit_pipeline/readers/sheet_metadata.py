"""Metadata of sheets: hidden rows and columns, merged cells, and cells with errors or without a stored value.

The library that reads the cells (calamine) does not report the metadata, so the XML of the sheet is parsed here. It is
parsed as a stream, so that memory is bounded.
"""

from __future__ import annotations

import posixpath
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from xml.etree.ElementTree import Element
from xml.sax import SAXException
from xml.sax.handler import ContentHandler

import defusedxml.sax
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import ParseError, fromstring

from audit_pipeline.errors import to_one_line
from audit_pipeline.readers.file_bytes import MEBIBYTE
from audit_pipeline.readers.text_rows import UnreadableFileError

_MAX_SHEET_BYTES = 2048 * MEBIBYTE
_MAX_INDEX_BYTES = 8 * MEBIBYTE
_MAX_NAMED_CELLS = 3
_CELL = re.compile(r"([A-Z]{1,3})(\d{1,7})")
_TRUE = ("1", "true")
_LETTERS = 26


@dataclass(frozen=True)
class MergedCells:
    """Cells of several rows that are merged and shown as one cell. Rows and columns count from 1.

    Attributes:
        first_row: The first row. Its cell contains the value.
        last_row: The last row.
        column: The first column.
    """

    first_row: int
    last_row: int
    column: int


@dataclass
class CellCount:
    """A count of cells, and the names of the first three cells, such as B7."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        """Count a cell, and store its name if fewer than three names are stored."""
        self.count += 1
        if len(self.first) < _MAX_NAMED_CELLS:
            self.first.append(name)

    def __str__(self) -> str:
        more = ", …" if self.count > len(self.first) else ""
        return f"{self.count:,} cell(s) ({', '.join(self.first)}{more})"


@dataclass
class SheetMetadata:
    """The metadata of one sheet. Rows and columns count from 1.

    Attributes:
        hidden_rows: First and last row of each block of hidden rows.
        hidden_columns: First and last column of each block of hidden columns.
        merged: Merged cells that span several rows.
        errors: Cells with an error such as #REF!.
        without_value: Cells with a formula, but without a stored value.
    """

    hidden_rows: list[tuple[int, int]] = field(default_factory=list)
    hidden_columns: list[tuple[int, int]] = field(default_factory=list)
    merged: list[MergedCells] = field(default_factory=list)
    errors: CellCount = field(default_factory=CellCount)
    without_value: CellCount = field(default_factory=CellCount)

    def list_hidden_rows(self, last_row: int) -> set[int]:
        """Return the hidden rows up to ``last_row``."""
        return {row for first, last in self.hidden_rows for row in range(first, min(last, last_row) + 1)}

    def is_column_hidden(self, column: int) -> bool:
        """Return True if a column is hidden."""
        return any(first <= column <= last for first, last in self.hidden_columns)


def format_column(column: int) -> str:
    """Return the letters of a column: A for 1, AA for 27."""
    letters = ""
    while column > 0:
        column, letter = divmod(column - 1, _LETTERS)
        letters = chr(ord("A") + letter) + letters
    return letters


def read_sheet_metadata(path: Path, sheet: str) -> SheetMetadata:
    """Read the metadata of a sheet in an .xlsx or .ods file.

    Raises:
        UnreadableFileError: If the file's XML is damaged or too large.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if path.suffix.lower() == ".ods":
                return _parse_member(archive, "content.xml", _OdsHandler(sheet))
            return _parse_member(archive, _find_xlsx_sheet(archive, sheet), _XlsxHandler())
    except (zipfile.BadZipFile, OSError, SAXException, DefusedXmlException, ParseError, ValueError, KeyError) as error:
        reason = to_one_line(error) or type(error).__name__
        raise UnreadableFileError(path, f"the file is not a readable spreadsheet ({reason})") from error


class _MetadataHandler(ContentHandler):
    """A handler of XML events that collects the metadata of a sheet."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata = SheetMetadata()


class _XlsxHandler(_MetadataHandler):
    """A handler of the XML of one sheet of an .xlsx file."""

    def __init__(self) -> None:
        super().__init__()
        self._row = 0
        self._column = 0
        self._cell = ""
        self._has_formula = False
        self._has_value = False
        self._is_in_value = False

    def startElement(self, name: str, attrs: Mapping[str, str]) -> None:  # type: ignore[override]  # noqa: N802
        element = name.rpartition(":")[2]
        if element == "row":
            self._row = int(attrs.get("r", self._row + 1))
            self._column = 0
            if attrs.get("hidden") in _TRUE or _is_zero(attrs.get("ht")):
                self.metadata.hidden_rows.append((self._row, self._row))
        elif element == "c":
            self._start_cell(attrs)
        elif element == "f":
            self._has_formula = True
        elif element in ("v", "t"):
            self._is_in_value = True
        elif element == "col":
            if attrs.get("hidden") in _TRUE or _is_zero(attrs.get("width")):
                self.metadata.hidden_columns.append((int(attrs["min"]), int(attrs["max"])))
        elif element == "mergeCell":
            self._add_merged(attrs["ref"])

    def _start_cell(self, attrs: Mapping[str, str]) -> None:
        named = _CELL.fullmatch(attrs.get("r", ""))
        self._column = _parse_column(named[1]) if named else self._column + 1
        self._cell = f"{format_column(self._column)}{self._row}"
        self._has_formula = False
        self._has_value = False
        if attrs.get("t") == "e":
            self.metadata.errors.add(self._cell)
            # The error counts as the stored value of the cell.
            self._has_value = True

    def characters(self, content: str) -> None:
        self._has_value = self._has_value or self._is_in_value

    def endElement(self, name: str) -> None:  # noqa: N802
        element = name.rpartition(":")[2]
        if element in ("v", "t"):
            self._is_in_value = False
        elif element == "c" and self._has_formula and not self._has_value:
            self.metadata.without_value.add(self._cell)

    def _add_merged(self, reference: str) -> None:
        first, _, last = reference.partition(":")
        begin = _CELL.fullmatch(first)
        end = _CELL.fullmatch(last or first)
        if begin and end and int(begin[2]) < int(end[2]):
            self.metadata.merged.append(MergedCells(int(begin[2]), int(end[2]), _parse_column(begin[1])))


class _OdsHandler(_MetadataHandler):
    """A handler of the XML of an .ods file that collects the metadata of one sheet."""

    def __init__(self, sheet: str) -> None:
        super().__init__()
        self._sheet = sheet
        self._depth = 0
        self._hidden_groups = 0
        self._row = 0
        self._rows = 1
        self._column = 0
        self._groups: list[bool] = []

    def startElement(self, name: str, attrs: Mapping[str, str]) -> None:  # type: ignore[override]  # noqa: N802
        element = name.rpartition(":")[2]
        # Cells may contain tables. The depth of nested tables is counted to find the end of the sheet's own table.
        if element == "table" and (self._depth > 0 or attrs.get("table:name") == self._sheet):
            self._depth += 1
        if self._depth != 1:
            return
        if element == "table":
            self._row = 0
            self._column = 0
        elif element == "table-row-group":
            self._groups.append(attrs.get("table:display") == "false")
        elif element == "table-column":
            count = int(attrs.get("table:number-columns-repeated", 1))
            if attrs.get("table:visibility") in ("collapse", "filter"):
                self.metadata.hidden_columns.append((self._column + 1, self._column + count))
            self._column += count
        elif element == "table-row":
            self._row += 1
            self._rows = int(attrs.get("table:number-rows-repeated", 1))
            self._column = 0
            if attrs.get("table:visibility") in ("collapse", "filter") or any(self._groups):
                self.metadata.hidden_rows.append((self._row, self._row + self._rows - 1))
        elif element in ("table-cell", "covered-table-cell"):
            self._read_cell(attrs)

    def _read_cell(self, attrs: Mapping[str, str]) -> None:
        self._column += 1
        cell = f"{format_column(self._column)}{self._row}"
        rows = int(attrs.get("table:number-rows-spanned", 1))
        if rows > 1:
            self.metadata.merged.append(MergedCells(self._row, self._row + rows - 1, self._column))
        if attrs.get("calcext:value-type") == "error":
            self.metadata.errors.add(cell)
        elif "table:formula" in attrs and "office:value-type" not in attrs:
            self.metadata.without_value.add(cell)
        self._column += int(attrs.get("table:number-columns-repeated", 1)) - 1

    def endElement(self, name: str) -> None:  # noqa: N802
        element = name.rpartition(":")[2]
        if self._depth == 1 and element == "table-row":
            self._row += self._rows - 1
        elif self._depth == 1 and element == "table-row-group":
            self._groups.pop()
        if element == "table" and self._depth:
            self._depth -= 1


def _is_zero(size: str | None) -> bool:
    return size is not None and float(size) == 0


def _parse_column(letters: str) -> int:
    column = 0
    for letter in letters:
        column = column * _LETTERS + ord(letter) - ord("A") + 1
    return column


class _BoundedReader:
    """A reader of an archive member that raises ValueError if the member has more than ``limit`` bytes."""

    def __init__(self, member: IO[bytes], limit: int) -> None:
        self._member = member
        self._remaining = limit

    def read(self, size: int = -1) -> bytes:
        content = self._member.read(size if size >= 0 else self._remaining + 1)
        self._remaining -= len(content)
        if self._remaining < 0:
            raise ValueError("the XML of the sheet is too large")
        return content

    def close(self) -> None:
        self._member.close()


@contextmanager
def _open_member(archive: zipfile.ZipFile, name: str, limit: int) -> Iterator[_BoundedReader]:
    # Programs write the names of members with different upper and lower case.
    names = {member_name.lower(): member_name for member_name in archive.namelist()}
    with archive.open(names[name.lower()]) as member:
        yield _BoundedReader(member, limit)


def _parse_member(archive: zipfile.ZipFile, name: str, handler: _MetadataHandler) -> SheetMetadata:
    with _open_member(archive, name, _MAX_SHEET_BYTES) as member:
        defusedxml.sax.parse(member, handler, forbid_dtd=True)
    return handler.metadata


def _read_index(archive: zipfile.ZipFile, name: str) -> Element:
    with _open_member(archive, name, _MAX_INDEX_BYTES) as member:
        root: Element = fromstring(member.read(), forbid_dtd=True)
        return root


def _find_xlsx_sheet(archive: zipfile.ZipFile, sheet: str) -> str:
    """Return the path of a sheet's XML in an .xlsx archive.

    Raises:
        KeyError: If the workbook does not list the sheet.
    """
    documents = _read_targets(archive, "_rels/.rels", "", lambda kind: kind.endswith("/officeDocument"))
    workbook = next(iter(documents.values()), "xl/workbook.xml")
    folder, name = posixpath.split(workbook)
    targets = _read_targets(archive, f"{folder}/_rels/{name}.rels".lstrip("/"), folder, lambda kind: True)
    for element in _read_index(archive, workbook).iter():
        if element.tag.rpartition("}")[2] == "sheet" and element.get("name") == sheet:
            relations = [value for key, value in element.attrib.items() if key.rpartition("}")[2] == "id"]
            return targets[relations[0]]
    raise KeyError(f"the workbook does not list the sheet {sheet}")


def _read_targets(
    archive: zipfile.ZipFile, name: str, folder: str, is_selected: Callable[[str], bool]
) -> dict[str, str]:
    """Return the paths of the selected targets in a .rels file, by relationship id.

    Args:
        archive: The .xlsx archive.
        name: The path of the .rels file in the archive.
        folder: The folder that relative targets count from.
        is_selected: Returns True for a relationship type to return.
    """
    targets: dict[str, str] = {}
    for element in _read_index(archive, name).iter():
        target = element.get("Target")
        if target is not None and is_selected(element.get("Type", "")):
            targets[element.get("Id", "")] = posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")
    return targets
