"""Print how many rows a spreadsheet's only sheet has, and their cells, as lines of JSON.

Run as a script by row_formats/spreadsheet.py, in a process of its own: the library makes room for every cell between
the first and the last of a sheet. A file of a kilobyte can so ask for more memory than there is, and end the process.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator

from python_calamine import CalamineWorkbook, PasswordError, SheetTypeEnum

NO_MEMORY = 3
"""The exit code where the memory does not suffice."""


class SeveralSheetsError(Exception):
    """A spreadsheet of which more than one sheet holds something."""


def iterate_sheet_rows(path: str) -> Iterator[int | list[object]]:
    """How many rows the only sheet has that is not empty, and these rows from its first; raises SeveralSheetsError."""
    with CalamineWorkbook.from_path(path) as workbook:
        names = [sheet.name for sheet in workbook.sheets_metadata if sheet.typ is SheetTypeEnum.WorkSheet]
        sheets = [sheet for sheet in map(workbook.get_sheet_by_name, names) if sheet.height]
        if len(sheets) > 1:
            names = [sheet.name for sheet in sheets]
            raise SeveralSheetsError(
                f"holds the sheets {', '.join(names)}: save the sheet to be read as a file of its own"
            )
        for sheet in sheets:
            yield sheet.total_height
            for row in sheet.iter_rows():
                yield [_convert(cell) for cell in row]


def _convert(cell: object) -> object:
    """A spreadsheet has no whole numbers: 1.0 is a 1. Dates are written as ISO 8601 has them."""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return int(cell)
    return cell if isinstance(cell, str | int | float) else str(cell)


def main() -> None:
    """Print the rows of the file that the first argument names, within the bytes of memory of the second."""
    path, memory = sys.argv[1], int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    try:
        for row in iterate_sheet_rows(path):
            sys.stdout.write(json.dumps(row) + "\n")
    except PasswordError:
        sys.exit("is locked with a password: save it without a password")
    except SeveralSheetsError as error:
        sys.exit(str(error))
    except MemoryError:
        sys.exit(NO_MEMORY)
    except BaseException as error:  # noqa: BLE001 a panic of the library is an error of no narrower class
        sys.exit(f"is not a readable spreadsheet ({' '.join(str(error).split()) or type(error).__name__})")


if __name__ == "__main__":
    main()
