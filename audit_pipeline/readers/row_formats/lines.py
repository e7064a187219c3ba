"""Readers of files with one row per line: JSON objects (.jsonl) and texts (.txt).

readers/whole_files/ reads a .txt file as one document.
"""

from __future__ import annotations

import json

from audit_pipeline.readers.file_bytes import InputFile, describe_invalid_bytes, iterate_lines, open_bytes
from audit_pipeline.readers.row_stream import Entries, RowFormat, RowStream
from audit_pipeline.readers.text_rows import TXT_COLUMN, Row, Skipped


def open_json_lines(file: InputFile) -> RowStream:
    """Open a file that has one row per line."""

    def read(columns: object) -> Entries:
        with open_bytes(file) as binary:
            for index, (number, line) in enumerate(iterate_lines(file, binary)):
                yield parse_json_row(line, f"{file.name}:{number}", index, file.string_lines)

    return RowStream(file, read)


def open_text_lines(file: InputFile) -> RowStream:
    """Open a file that has one text per line."""

    def read(columns: object) -> Entries:
        with open_bytes(file) as binary:
            for index, (number, line) in enumerate(iterate_lines(file, binary)):
                location = f"{file.name}:{number}"
                try:
                    yield Row(location, index, {TXT_COLUMN: line.decode()})
                except UnicodeDecodeError as error:
                    yield Skipped(location, index, f"{describe_invalid_bytes(error)} of the line")

    return RowStream(file, read, columns=(TXT_COLUMN,))


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
        return Skipped(location, index, f"{describe_invalid_bytes(error)} of the line")
    except json.JSONDecodeError as error:
        return Skipped(location, index, f"broken JSON: {error.msg} at character {error.pos + 1}")
    except (ValueError, RecursionError) as error:
        return Skipped(location, index, f"unreadable JSON: {error}")
    return build_json_row(value, location, index, string_lines)


def build_json_row(value: object, location: str, index: int, string_lines: str | None = None) -> Row | Skipped:
    """Build a row from a JSON value, or a skipped row if it is not an object (see :func:`parse_json_row`)."""
    if isinstance(value, dict):
        return Row(location, index, value)
    if string_lines is not None and isinstance(value, str):
        return Row(location, index, {string_lines: value})
    return Skipped(location, index, f"not a JSON object but {type(value).__name__}")


FORMATS = (
    RowFormat((".jsonl",), open_json_lines, is_compressible=True),
    RowFormat((".txt",), open_text_lines, is_compressible=True, has_columns=False),
)
