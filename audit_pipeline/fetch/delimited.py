"""Rows of .csv and .tsv files: a record each, which may span lines, behind a header.

What belongs here: records as rows. What does not: how the file is punctuated (dialect.py).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from audit_pipeline.fetch.dialect import Dialect, dialect_of
from audit_pipeline.fetch.opened import LINE_LIMIT, SAMPLE_BYTES, InputFile, opened, refuse_utf16, require_length
from audit_pipeline.fetch.rows import Row, Skipped, UnreadableFileError, unicode_problem
from audit_pipeline.fetch.stream import Entries, RowStream

_NAMED_COLUMNS = 12

_Numbered = tuple[int, int, "list[str] | csv.Error"]
"""The first and the last line of a record, and its fields, or why it has none."""


def delimited(file: InputFile, string_lines: str | None) -> RowStream:
    """The rows of a .csv or .tsv file; its note says what was taken for a delimiter and a quote.

    Raises UnreadableFileError where the header cannot be read, names a column twice, or leaves more than one delimiter
    possible.
    """
    # As large as a line may be: what a quote that is never closed swallows is bounded by it too.
    csv.field_size_limit(max(csv.field_size_limit(), LINE_LIMIT))
    dialect = _dialect(file)
    with _records(file, dialect) as records:
        header = _header(file, records)
    note = f"{file.path}: read as {dialect}; columns: {_listed(header)}"
    return RowStream(file, lambda columns: _rows(file, dialect), columns=tuple(header), note=note)


def _dialect(file: InputFile) -> Dialect:
    with opened(file) as binary:
        sample = binary.read(SAMPLE_BYTES)
        complete = not binary.read(1)
    refuse_utf16(file, sample)
    text = sample.decode("utf-8-sig", errors="replace")
    try:
        return dialect_of(text, complete=complete, tabs=file.kind == ".tsv")
    except ValueError as error:
        raise UnreadableFileError(file.path, str(error)) from error


@dataclass
class _Records:
    """The records of a file, each with the numbers of its first and last line; blank ones are left out."""

    reader: Any

    def __iter__(self) -> Iterator[_Numbered]:
        while True:
            line = self.reader.line_num + 1
            try:
                record = next(self.reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield line, self.reader.line_num, error
            else:
                if record:
                    yield line, self.reader.line_num, record


@contextmanager
def _records(file: InputFile, dialect: Dialect) -> Iterator[_Records]:
    with opened(file) as binary:
        text = io.TextIOWrapper(binary, encoding="utf-8-sig", errors="surrogateescape", newline="")
        try:
            yield _Records(dialect.reader(_lines(file, text)))
        finally:
            # The block that opened the bytes closes them.
            text.detach()


def _lines(file: InputFile, text: io.TextIOWrapper) -> Iterator[str]:
    number = 0
    while line := text.readline(LINE_LIMIT + 1):
        number += 1
        require_length(file, line, number)
        yield line


def _header(file: InputFile, records: _Records) -> list[str]:
    """The first record. Raises UnreadableFileError where it cannot be one of column names."""
    *_, header = next(iter(records), (0, 0, None))
    if header is None:
        raise UnreadableFileError(file.path, "the file holds no rows")
    if isinstance(header, csv.Error):
        raise UnreadableFileError(file.path, f"its header cannot be read: {header}")
    if any(unicode_problem(name) for name in header):
        raise UnreadableFileError(file.path, "its header is not valid UTF-8; save the file as UTF-8")
    if len(set(header)) != len(header):
        raise UnreadableFileError(file.path, f"its header names a column twice: {', '.join(header)}")
    return header


def _rows(file: InputFile, dialect: Dialect) -> Entries:
    with _records(file, dialect) as records:
        header = _header(file, records)
        for index, record in enumerate(records):
            yield _row(file, index, header, record)


def _row(file: InputFile, index: int, header: Sequence[str], numbered: _Numbered) -> Row | Skipped:
    line, last, record = numbered
    location = f"{file.name}:{line}"
    if isinstance(record, csv.Error):
        lines = f", lines {line} to {last}" if last > line else ""
        return Skipped(location, index, f"broken CSV: {record}{lines}")
    if len(record) != len(header):
        return Skipped(location, index, f"has {len(record)} fields where the header has {len(header)}")
    if any(unicode_problem(field) for field in record):
        return Skipped(location, index, "invalid UTF-8")
    return Row(location, index, dict(zip(header, record, strict=True)))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_COLUMNS} more" if len(names) > _NAMED_COLUMNS else ""
    return ", ".join(names[:_NAMED_COLUMNS]) + more
