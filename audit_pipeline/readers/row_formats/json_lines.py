"""Reader of .jsonl files with one JSON object per line, and the conversion of JSON values to rows."""

from __future__ import annotations

import json

from audit_pipeline.readers.file_bytes import InputFile, iterate_lines, open_bytes
from audit_pipeline.readers.row_stream import Entries, RowFormat, RowStream
from audit_pipeline.readers.text_rows import Row, Skipped


def open_json_lines(file: InputFile) -> RowStream:
    """Open a file that has one row per line."""

    def read(columns: object) -> Entries:
        with open_bytes(file) as binary:
            for index, (number, line) in enumerate(iterate_lines(file, binary)):
                yield parse_json_row(line, f"{file.name}:{number}", index, file.string_lines)

    return RowStream(file, read)


def parse_json_row(line: bytes, location: str, index: int, string_lines: str | None = None) -> Row | Skipped:
    """Parse one line as a row. For a line that is not a JSON object in UTF-8, return a skipped row with the reason.

    Args:
        line: The line.
        location: The location of the row.
        index: The index of the row.
        string_lines: The column for lines that are JSON strings, as in files of the benchmark MIMIR. By default such
            lines are skipped.
    """
    try:
        value = json.loads(line.decode())
    except UnicodeDecodeError as error:
        return Skipped(location, index, f"invalid UTF-8 at byte {error.start} of the line")
    except json.JSONDecodeError as error:
        return Skipped(location, index, f"broken JSON: {error.msg} at character {error.pos + 1}")
    except (ValueError, RecursionError) as error:
        return Skipped(location, index, f"JSON that cannot be read: {error}")
    return build_json_row(value, location, index, string_lines)


def build_json_row(value: object, location: str, index: int, string_lines: str | None = None) -> Row | Skipped:
    """Build a row from a JSON value, or a skipped row if it is not an object (see :func:`parse_json_row`)."""
    if isinstance(value, dict):
        return Row(location, index, value)
    if string_lines is not None and isinstance(value, str):
        return Row(location, index, {string_lines: value})
    return Skipped(location, index, f"not a JSON object but {type(value).__name__}")


FORMAT = RowFormat((".jsonl",), open_json_lines, is_compressible=True)
