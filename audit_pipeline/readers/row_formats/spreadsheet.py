"""Rows of .xlsx and .ods files: those of the only sheet that is not empty, below its header."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from python_calamine import CalamineWorkbook, PasswordError, SheetTypeEnum

from audit_pipeline.errors import to_one_line
from audit_pipeline.readers.file_bytes import InputFile
from audit_pipeline.readers.regular_files import require_regular_file
from audit_pipeline.readers.row_stream import Entries, RowFormat, RowStream
from audit_pipeline.readers.text_rows import Row, UnreadableFileError, clean_header


def open_spreadsheet(file: InputFile) -> RowStream:
    """Open a spreadsheet; raises UnreadableFileError where it cannot be read, has several sheets, or no header."""

    def read(columns: object) -> Entries:
        records = _iterate_records(file)
        header = clean_header(file.path, next(records)[1])
        for index, (number, cells) in enumerate(records):
            values = {name: cell for name, cell in zip(header, cells, strict=True) if name}
            yield Row(f"{file.name}:{number}", index, values)

    _, names = next(_iterate_records(file), (0, []))
    if not names:
        raise UnreadableFileError(file.path, "the file holds no rows")
    return RowStream(file, read, columns=tuple(filter(None, clean_header(file.path, names))))


def _iterate_records(file: InputFile) -> Iterator[tuple[int, list[object]]]:
    """The rows that are not blank, with their numbers in the sheet."""
    try:
        require_regular_file(file.path)
        with CalamineWorkbook.from_path(file.path) as workbook:
            names = [sheet.name for sheet in workbook.sheets_metadata if sheet.typ is SheetTypeEnum.WorkSheet]
            sheets = [sheet for sheet in map(workbook.get_sheet_by_name, names) if sheet.height]
    except PasswordError as error:
        raise UnreadableFileError(file.path, "is locked with a password: save it without a password") from error
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the library is an error of no narrower class
        reason = to_one_line(error) or type(error).__name__
        raise UnreadableFileError(file.path, f"is not a readable spreadsheet ({reason})") from error
    if len(sheets) > 1:
        named = ", ".join(sheet.name for sheet in sheets)
        raise UnreadableFileError(
            file.path, f"holds the sheets {named}: save the sheet to be read as a file of its own"
        )
    number = 0
    file.meter.size, file.meter.position = sum(sheet.total_height for sheet in sheets), lambda: number
    for cells in itertools.chain.from_iterable(sheet.iter_rows() for sheet in sheets):
        number += 1
        if any(cell != "" for cell in cells):
            yield number, [_to_json_value(cell) for cell in cells]
    file.meter.position = None


def _to_json_value(cell: object) -> object:
    """A spreadsheet has no whole numbers: 1.0 is a 1. Dates are written as ISO 8601 has them."""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return int(cell)
    return cell if isinstance(cell, str | int | float) else str(cell)


FORMAT = RowFormat((".xlsx", ".ods"), open_spreadsheet)
