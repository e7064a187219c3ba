"""Reader of .xlsx and .ods files: the rows below the header of the only visible sheet with content.

Hidden rows, columns and sheets are skipped and reported. Rows that a filter hides count as hidden.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from python_calamine import CalamineSheet, CalamineWorkbook, PasswordError, SheetTypeEnum, SheetVisibleEnum

from audit_pipeline.errors import to_one_line
from audit_pipeline.readers.file_bytes import InputFile, require_regular_file
from audit_pipeline.readers.row_stream import Entries, RowFormat, RowStream
from audit_pipeline.readers.text_rows import USUAL_TEXT_COLUMNS, Row, Skipped, UnreadableFileError, clean_header

if TYPE_CHECKING:
    from audit_pipeline.readers.sheet_metadata import SheetMetadata

_HIDDEN_ROW = "is hidden. Show the row to include it."
_REPEATED_HEADER = "repeats the header"
# Number of non-blank rows that are searched for the header.
_SEARCHED_ROWS = 10


@dataclass(frozen=True)
class _Header:
    """The row with the names of the columns.

    Attributes:
        row: Its number in the sheet, from 1.
        names: The names. Columns with an empty name are not read.
    """

    row: int
    names: Sequence[str]


def open_spreadsheet(file: InputFile) -> RowStream:
    """Open a spreadsheet.

    Raises:
        UnreadableFileError: If it cannot be read, has several visible sheets with content, or no header.
    """
    # This module is always imported for its suffixes. The XML parser is imported only if a spreadsheet is opened.
    from audit_pipeline.readers.sheet_metadata import read_sheet_metadata  # noqa: PLC0415

    sheet, hidden_sheets = _load_sheet(file)
    if sheet is None:
        raise UnreadableFileError(file.path, _explain_no_rows(hidden_sheets))
    sheet_metadata = read_sheet_metadata(file.path, sheet.name)
    header = _find_header(file, sheet, sheet_metadata)
    remarks = tuple(_describe_skipped_content(sheet, sheet_metadata, header, hidden_sheets))

    def read(columns: object) -> Entries:
        current_sheet, _ = _load_sheet(file)
        if current_sheet is None:
            return iter(())
        return _iterate_rows(file, current_sheet, sheet_metadata, header)

    listed = ", ".join(filter(None, header.names))
    note = f"{file.name}: read the sheet '{sheet.name}' with row {header.row} as header; columns: {listed}"
    for part, reason in remarks:
        note += f"\n{file.name}, {part}: {reason}"
    return RowStream(file, read, columns=tuple(filter(None, header.names)), note=note, remarks=remarks)


def _load_sheet(file: InputFile) -> tuple[CalamineSheet | None, list[str]]:
    """Return the only visible sheet with content (or None), and the names of hidden sheets with content."""
    visible: list[CalamineSheet] = []
    hidden: list[str] = []
    try:
        require_regular_file(file.path)
        with CalamineWorkbook.from_path(file.path) as workbook:
            for metadata in workbook.sheets_metadata:
                if metadata.typ is not SheetTypeEnum.WorkSheet:
                    continue
                sheet = workbook.get_sheet_by_name(metadata.name)
                if not sheet.height:
                    continue
                if metadata.visible is SheetVisibleEnum.Visible:
                    visible.append(sheet)
                else:
                    hidden.append(sheet.name)
    except PasswordError as error:
        raise UnreadableFileError(
            file.path, "the file is locked with a password. Save it without a password."
        ) from error
    except (KeyboardInterrupt, SystemExit, UnreadableFileError):
        raise
    except BaseException as error:
        # A panic in calamine, which is written in Rust, raises a BaseException that is not an Exception.
        reason = to_one_line(error) or type(error).__name__
        raise UnreadableFileError(file.path, f"the file is not a readable spreadsheet ({reason})") from error
    if len(visible) > 1:
        named = ", ".join(sheet.name for sheet in visible)
        raise UnreadableFileError(
            file.path, f"several sheets have content: {named}. Save the sheet to read as a separate file."
        )
    if not visible:
        return None, hidden
    return visible[0], hidden


def _explain_no_rows(hidden_sheets: Sequence[str]) -> str:
    if not hidden_sheets:
        return "the file contains no rows"
    return f"all sheets with content are hidden ({', '.join(hidden_sheets)}). Show the sheet to read."


def _iterate_cells(file: InputFile, sheet: CalamineSheet) -> Iterator[tuple[int, list[object]]]:
    """Yield number (in the sheet, from 1) and cells of each row that is not blank, and update ``file.meter``."""
    number = 0
    file.meter.size = _find_last_row(sheet)
    file.meter.position = lambda: number
    for cells in sheet.iter_rows():
        number += 1
        if any(cell != "" for cell in cells):
            yield number, [_to_json_value(cell) for cell in cells]
    file.meter.position = None


def _find_header(file: InputFile, sheet: CalamineSheet, sheet_metadata: SheetMetadata) -> _Header:
    """Find the row with the names of the columns.

    It is the first non-blank row. If that row has a single cell, it may be a title. Then the header is the first row
    below it that has several cells. A row with the name of a text column after a blank row is also a header.
    """
    hidden = sheet_metadata.list_hidden_rows(_find_last_row(sheet))
    first_rows: list[tuple[int, list[object]]] = []
    for number, cells in _iterate_cells(file, sheet):
        if number not in hidden:
            first_rows.append((number, cells))
        if len(first_rows) == _SEARCHED_ROWS:
            break
    file.meter.position = None
    if not first_rows:
        raise UnreadableFileError(file.path, "all rows are hidden. Show the rows to include them.")
    number, cells = _choose_header_row(first_rows)
    names: list[str] = []
    for column, name in enumerate(clean_header(file.path, cells), _find_first_column(sheet)):
        names.append("" if sheet_metadata.is_column_hidden(column) else name)
    return _Header(number, names)


def _choose_header_row(rows: Sequence[tuple[int, list[object]]]) -> tuple[int, list[object]]:
    """Return the header among the first non-blank rows (see :func:`_find_header`)."""
    if _count_filled(rows[0][1]) > 1:
        return rows[0]
    for (number_before, _), (number, cells) in pairwise(rows):
        is_after_gap = number - number_before > 1
        if _count_filled(cells) > 1 or (is_after_gap and _contains_text_column(cells)):
            return number, cells
    return rows[0]


def _count_filled(cells: Sequence[object]) -> int:
    return len(cells) - cells.count("")


def _contains_text_column(cells: Iterable[object]) -> bool:
    return any(isinstance(cell, str) and cell.strip().casefold() in USUAL_TEXT_COLUMNS for cell in cells)


def _find_last_row(sheet: CalamineSheet) -> int:
    """Return the number of the last row with content."""
    if sheet.end is None:
        return 0
    return sheet.end[0] + 1


def _find_first_column(sheet: CalamineSheet) -> int:
    """Return the number of the first column with content, which is the first column of calamine's rows."""
    if sheet.start is None:
        return 1
    return sheet.start[1] + 1


def _iterate_rows(file: InputFile, sheet: CalamineSheet, sheet_metadata: SheetMetadata, header: _Header) -> Entries:
    hidden = sheet_metadata.list_hidden_rows(_find_last_row(sheet))
    first_column = _find_first_column(sheet)
    last_merged_rows: dict[tuple[int, int], int] = {}
    for merged in sheet_metadata.merged:
        last_merged_rows[merged.first_row, merged.column - first_column] = merged.last_row
    # For each column (from 0): the value of the merged cells that were read last, and the last row of these cells.
    merged_values: dict[int, tuple[object, int]] = {}
    index = -1
    for number, cells in _iterate_cells(file, sheet):
        if number <= header.row:
            continue
        index += 1
        for column, value in enumerate(cells):
            if (number, column) in last_merged_rows:
                merged_values[column] = (value, last_merged_rows[number, column])
            elif value == "" and column in merged_values and number <= merged_values[column][1]:
                cells[column] = merged_values[column][0]
        location = f"{file.name}:{number}"
        values = {name: cell for name, cell in zip(header.names, cells, strict=True) if name}
        if number in hidden:
            yield Skipped(location, index, _HIDDEN_ROW)
        elif all(name == str(value).strip() for name, value in values.items()):
            yield Skipped(location, index, _REPEATED_HEADER)
        else:
            yield Row(location, index, values)


def _describe_skipped_content(
    sheet: CalamineSheet, sheet_metadata: SheetMetadata, header: _Header, hidden_sheets: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield the parts of the file that are skipped or changed, each with the reason."""
    from audit_pipeline.readers.sheet_metadata import format_column  # noqa: PLC0415

    if header.row > 1 and sheet.start is not None and sheet.start[0] + 1 < header.row:
        first_row = sheet.start[0] + 1
        above = f"row {first_row}"
        if first_row < header.row - 1:
            above = f"rows {first_row} to {header.row - 1}"
        listed = ", ".join(filter(None, header.names))
        yield above, f"content above the header is not read. The header is row {header.row} ({listed})."
    for name in hidden_sheets:
        yield f"sheet {name}", "the sheet is hidden. Show the sheet to include it."
    first_column = _find_first_column(sheet)
    columns_of_header = range(first_column, first_column + len(header.names))
    hidden_columns = list(filter(sheet_metadata.is_column_hidden, columns_of_header))
    if hidden_columns:
        listed = ", ".join(map(format_column, hidden_columns))
        yield f"column(s) {listed}", "hidden columns are not read. Show a column to include it."
    columns = Counter(format_column(cells.column) for cells in sheet_metadata.merged if cells.first_row > header.row)
    for column, count in columns.items():
        yield f"{count:,} merged cell(s) of column {column}", "the value of merged cells is used for each of their rows"
    if sheet_metadata.errors.count:
        yield str(sheet_metadata.errors), "these cells contain an error such as #REF! instead of a value"
    if sheet_metadata.without_value.count:
        reason = (
            "these cells contain a formula without a stored value. Open the file in a spreadsheet program and save it."
        )
        yield str(sheet_metadata.without_value), reason


def _to_json_value(cell: object) -> object:
    """Return a cell as a JSON value. 1.0 becomes 1, because spreadsheets have no integers. Dates become ISO 8601."""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return int(cell)
    if isinstance(cell, str | int | float):
        return cell
    return str(cell)


FORMATS = (RowFormat((".xlsx", ".ods"), open_spreadsheet),)
