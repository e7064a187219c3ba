"""Rows of .jsonl and .txt files: a line each.

What belongs here: one row per line that is not blank. What does not: the bytes below (opened.py), JSON that is no line
(json_document.py). Whoever wants a whole .txt file as one document (sources/local_files.py) reads it as such.
"""

from __future__ import annotations

from audit_pipeline.fetch.opened import InputFile, lines_of, opened
from audit_pipeline.fetch.rows import TXT_COLUMN, Row, Skipped, json_row
from audit_pipeline.fetch.stream import Entries, RowStream


def json_lines(file: InputFile, string_lines: str | None) -> RowStream:
    """One row per line of JSON; ``string_lines`` is the column of a line that is a string and no object."""

    def read(columns: object) -> Entries:
        with opened(file) as binary:
            for index, (number, line) in enumerate(lines_of(file, binary)):
                yield json_row(line, f"{file.name}:{number}", index, string_lines)

    return RowStream(file, read)


def text_lines(file: InputFile, string_lines: str | None) -> RowStream:
    """One row per line of text."""

    def read(columns: object) -> Entries:
        with opened(file) as binary:
            for index, (number, line) in enumerate(lines_of(file, binary)):
                location = f"{file.name}:{number}"
                try:
                    yield Row(location, index, {TXT_COLUMN: line.decode()})
                except UnicodeDecodeError as error:
                    yield Skipped(location, index, f"invalid UTF-8 at byte {error.start} of the line")

    return RowStream(file, read, columns=(TXT_COLUMN,))
