"""Rows of .csv and .tsv files: a record each, which may span lines, after a header.

The header decides between the usual delimiters: names of columns hardly ever hold one, texts do all the time. Where
the header holds several of them, the one that fits most rows is taken, and of equals the one that makes more columns.
A first line such as Excel's sep=; says it. The quote is the usual one, unless rows do not fit with it and all do with
another.

Python's csv module reads the records: DuckDB gives no row its line, counts the line of a rejected row without the lines
within fields, and refuses a whole file for a quote that is never closed.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from audit_pipeline.readers.file_bytes import (
    LINE_LIMIT,
    SAMPLE_BYTES,
    InputFile,
    decode_text,
    open_bytes,
    refuse_utf16,
    require_line_within_limit,
)
from audit_pipeline.readers.row_stream import Entries, RowFormat, RowStream
from audit_pipeline.readers.text_rows import Row, Skipped, UnreadableFileError, clean_header, explain_invalid_unicode

USUAL = {",": "','", ";": "';'", "\t": "a tab", "|": "'|'"}
# A quote, and what precedes it within a quoted field (None: it is doubled there).
_UNUSUAL_QUOTES = (('"', "\\"), ("'", None), ("'", "\\"))
# The first line of files for Excel.
_STATED_DELIMITER = re.compile(r"\A\"?sep=([^\r\n\"])\"?(?:\r\n|\r|\n)", re.IGNORECASE)
_NAMED_COLUMNS = 12


@dataclass(frozen=True)
class Dialect:
    """``quote``: None if nothing is quoted. ``escape`` precedes a quote within a quoted field; None: it is doubled
    there. ``has_gaps``: blanks follow each delimiter, and belong to no field."""

    delimiter: str
    quote: str | None = '"'
    escape: str | None = None
    has_gaps: bool = False

    def __str__(self) -> str:
        quoted = "nothing quoted" if self.quote is None else f"'{self.quote}' as quote"
        escaped = f", '{self.escape}' before a quote within quotes" if self.escape else ""
        return f"CSV with {USUAL.get(self.delimiter, repr(self.delimiter))} between fields and {quoted}{escaped}"

    def reader(self, lines: Iterable[str]) -> Any:
        """The csv module's reader of ``lines``.

        It is strict, because a quote that is never closed otherwise swallows the rest of the file into one field.
        """
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quotechar=self.quote,
            escapechar=self.escape,
            doublequote=self.escape is None,
            skipinitialspace=self.has_gaps,
            quoting=csv.QUOTE_NONE if self.quote is None else csv.QUOTE_MINIMAL,
            strict=True,
        )


class _Record(NamedTuple):
    """A record that is not blank: its first and last line, and its fields, or why it cannot be read."""

    line: int
    last_line: int
    fields: list[str]
    problem: str | None = None


def open_delimited_rows(file: InputFile) -> RowStream:
    """The rows of a .csv or .tsv file; its note says what was taken for a delimiter and a quote.

    Raises UnreadableFileError where the header cannot be read, names a column twice, or leaves more than one delimiter
    possible.
    """
    # As large as a line may be: what a quote that is never closed swallows is bounded by it too.
    csv.field_size_limit(max(csv.field_size_limit(), LINE_LIMIT))
    dialect = _detect_dialect(file)

    def read(columns: object) -> Entries:
        with _open_records(file, dialect) as records:
            header = _read_header(file, records)
            for index, record in enumerate(records):
                yield _build_row(file, index, header, record)

    with _open_records(file, dialect) as records:
        names = tuple(filter(None, _read_header(file, records)))
    more = f" and {len(names) - _NAMED_COLUMNS} more" if len(names) > _NAMED_COLUMNS else ""
    note = f"{file.path}: read as {dialect}; columns: {', '.join(names[:_NAMED_COLUMNS])}{more}"
    return RowStream(file, read, columns=names, note=note)


def _detect_dialect(file: InputFile) -> Dialect:
    """The dialect of a file by its beginning.

    Raises UnreadableFileError, saying what to do, if the header leaves several delimiters possible and the rows do not
    decide.
    """
    with open_bytes(file) as binary:
        start = binary.read(SAMPLE_BYTES)
        is_complete = not binary.read(1)
    refuse_utf16(file, start)
    sample = start.decode("utf-8-sig", errors="replace")
    stated = _STATED_DELIMITER.match(sample)
    sample = _STATED_DELIMITER.sub("", sample)
    is_tsv = file.kind == ".tsv"
    # The header's width, how many whole records after it are as wide, and whether all of them are.
    fits: dict[Dialect, tuple[int, int, bool]] = {}

    def measure(dialect: Dialect) -> tuple[int, int, bool]:
        header, *records = list(_iterate_records(io.StringIO(sample, newline=""), dialect)) or [_Record(0, 0, [])]
        # The last record of a sample may be cut.
        whole = records if is_complete else records[:-1]
        fitting = sum(record.problem is None and len(record.fields) == len(header.fields) for record in whole)
        fits[dialect] = (len(header.fields), fitting, fitting == len(whole))
        return fits[dialect]

    in_header = [delimiter for delimiter in USUAL if measure(Dialect(delimiter))[0] > 1]
    possible = [stated[1]] if stated else ["\t"] if is_tsv else in_header or [","]
    if len(possible) > 1:
        ranks = {delimiter: fits[Dialect(delimiter)][1::-1] for delimiter in possible}
        best = max(ranks.values())
        fitting = [delimiter for delimiter in possible if ranks[delimiter] == best and best[0]]
        if len(fitting) != 1:
            named = " and ".join(USUAL[delimiter] for delimiter in possible)
            raise UnreadableFileError(
                file.path,
                f"its header holds {named}, and its rows do not show which of them separates fields: "
                "save it as .tsv, .jsonl or .parquet",
            )
        possible = fitting
    usual = Dialect(possible[0])
    records = _iterate_records(io.StringIO(sample, newline=""), usual)
    seconds = [record.fields[1] for record in records if len(record.fields) > 1]
    usual = replace(usual, has_gaps=bool(seconds) and all(second.startswith(" ") for second in seconds))
    if measure(usual)[2]:
        return usual
    others = [
        replace(usual, quote=quote, escape=escape)
        for quote, escape in _UNUSUAL_QUOTES
        if (escape or "") + quote in sample and any(before + quote in sample for before in (usual.delimiter, "\n"))
    ]
    # Quotes are part of a .csv file; a .tsv file may hold them as characters like any other.
    others += [replace(usual, quote=None)] if is_tsv else []
    return next((dialect for dialect in others if measure(dialect)[2]), usual)


def _iterate_records(lines: Iterable[str], dialect: Dialect) -> Iterator[_Record]:
    reader = dialect.reader(lines)
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield _Record(line, reader.line_num, [], str(error))
        else:
            if fields:
                yield _Record(line, reader.line_num, fields)


@contextmanager
def _open_records(file: InputFile, dialect: Dialect) -> Iterator[Iterator[_Record]]:
    with open_bytes(file) as binary, decode_text(binary) as text:
        yield _iterate_records(_iterate_lines(file, text), dialect)


def _iterate_lines(file: InputFile, text: io.TextIOWrapper) -> Iterator[str]:
    number = 0
    while line := text.readline(LINE_LIMIT + 1):
        number += 1
        require_line_within_limit(file, line, number)
        # An empty line in its place: lines keep their numbers.
        yield "\n" if number == 1 and _STATED_DELIMITER.match(line) else line


def _read_header(file: InputFile, records: Iterator[_Record]) -> list[str]:
    """The first record as names of columns; raises UnreadableFileError where it cannot be one."""
    header = next(records, None)
    if header is None:
        raise UnreadableFileError(file.path, "the file holds no rows")
    if header.problem is not None:
        raise UnreadableFileError(file.path, f"its header cannot be read: {header.problem}")
    if any(map(explain_invalid_unicode, header.fields)):
        raise UnreadableFileError(file.path, "its header is not valid UTF-8; save the file as UTF-8")
    return clean_header(file.path, header.fields)


def _build_row(file: InputFile, index: int, header: Sequence[str], record: _Record) -> Row | Skipped:
    location = f"{file.name}:{record.line}"
    if record.problem is not None:
        lines = f", lines {record.line} to {record.last_line}" if record.last_line > record.line else ""
        return Skipped(location, index, f"broken CSV: {record.problem}{lines}")
    if len(record.fields) != len(header):
        return Skipped(location, index, f"has {len(record.fields)} fields where the header has {len(header)}")
    if any(map(explain_invalid_unicode, record.fields)):
        return Skipped(location, index, "invalid UTF-8")
    return Row(location, index, {name: field for name, field in zip(header, record.fields, strict=True) if name})


FORMAT = RowFormat((".csv", ".tsv"), open_delimited_rows, is_compressible=True)
