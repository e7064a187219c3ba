"""Rows of .csv and .tsv files: a record each, which may span lines, after a header.

What belongs here: recognising from a file's beginning the delimiter and the quote of its fields, and
records as rows. What does not: the bytes below, and what a row is (rows.py).

The header decides between the usual delimiters: names of columns hardly ever hold one, texts do all the time. Where
the header holds several of them, the one that fits most rows is taken, and of equals the one that DuckDB's sniffer
finds. A first line such as Excel's sep=; says it. The quote is the usual one, unless rows do not fit with it and all do
with what the sniffer found.
"""

from __future__ import annotations

import csv
import io
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import duckdb

from audit_pipeline.catalogue.duckdb_connections import open_in_memory
from audit_pipeline.fetch.file_bytes import (
    LINE_LIMIT,
    SAMPLE_BYTES,
    InputFile,
    open_bytes,
    refuse_utf16,
    require_length,
)
from audit_pipeline.fetch.rows import Row, Skipped, UnreadableFileError, unicode_problem
from audit_pipeline.fetch.stream import Entries, RowStream

USUAL = {",": "','", ";": "';'", "\t": "a tab", "|": "'|'"}

_EMPTY = "(empty)"
# The first line of files for Excel.
_STATED_DELIMITER = re.compile(r"\A\"?sep=([^\r\n\"])\"?(?:\r\n|\r|\n)", re.IGNORECASE)
_SNIFF = "SELECT Delimiter, Quote, Escape FROM sniff_csv(?, header=true, skip=0, ignore_errors=true{})"


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


def dialect_of(sample: str, *, is_complete: bool, is_tsv: bool) -> Dialect:
    """The dialect of a file that begins with ``sample``; ``is_tsv``: its name says that it is .tsv.

    If the sample is not the whole file (``is_complete``), its last record may be cut and is ignored. Raises ValueError,
    saying what to do, if the header leaves several delimiters possible and the rows do not decide.
    """
    stated = _STATED_DELIMITER.match(sample)
    sample = _STATED_DELIMITER.sub("", sample)
    in_header = [delimiter for delimiter in USUAL if len(_read_sample_header(sample, Dialect(delimiter))) > 1]
    possible = [stated[1]] if stated else ["\t"] if is_tsv else in_header or [","]
    sniffed = _sniff_dialect(sample, possible[0] if len(possible) == 1 else None)
    usual = Dialect(possible[0] if len(possible) == 1 else _choose_delimiter(sample, possible, sniffed, is_complete))
    seconds = [record[1] for record in _iterate_sample_records(sample, usual) if record and len(record) > 1]
    usual = replace(usual, has_gaps=bool(seconds) and all(second.startswith(" ") for second in seconds))
    if sniffed is None:
        return usual
    found = replace(usual, quote=sniffed.quote, escape=sniffed.escape)
    # Quotes are part of a .csv file; a .tsv file may hold them as characters like any other.
    takes = (
        (found.quote is not None or is_tsv)
        and not _has_uniform_width(sample, usual, is_complete)
        and _has_uniform_width(sample, found, is_complete)
    )
    return found if takes else usual


def _choose_delimiter(
    sample: str, candidates: Sequence[str], sniffed_dialect: Dialect | None, is_complete: bool
) -> str:
    """Of several delimiters that the header holds, the one that divides the rows; raises ValueError."""
    fitting = {delimiter: _count_fitting_records(sample, Dialect(delimiter), is_complete) for delimiter in candidates}
    best = [delimiter for delimiter, count in fitting.items() if count and count == max(fitting.values())]
    if len(best) > 1 and sniffed_dialect is not None and sniffed_dialect.delimiter in best:
        best = [sniffed_dialect.delimiter]
    if len(best) != 1:
        named = " and ".join(USUAL[delimiter] for delimiter in candidates)
        raise ValueError(
            f"its header holds {named}, and its rows do not show which of them stands between fields: "
            "save it as .tsv, .jsonl or .parquet"
        )
    return best[0]


def _sniff_dialect(sample: str, delimiter: str | None) -> Dialect | None:
    """The dialect that DuckDB finds in the sample, or None; DuckDB reads files only, so the sample goes into one."""
    given = f", delim='{delimiter}'" if delimiter else ""
    with tempfile.NamedTemporaryFile(suffix=".csv") as file, open_in_memory() as connection:
        file.write(sample.encode(errors="replace"))
        file.flush()
        try:
            row = connection.execute(_SNIFF.format(given), [file.name]).fetchone()
        except duckdb.Error:
            return None
    if row is None:
        return None
    between, quote, escape = (None if value == _EMPTY else value for value in row)
    return Dialect(between or ",", quote, None if escape == quote else escape)


def _read_sample_header(sample: str, dialect: Dialect) -> list[str]:
    """The header's fields; none where it cannot be read so."""
    return next(_iterate_sample_records(sample, dialect), None) or []


def _has_uniform_width(sample: str, dialect: Dialect, is_complete: bool) -> bool:
    """Whether every record after the header can be read and has as many fields as that."""
    return _count_fitting_records(sample, dialect, is_complete) == len(
        _split_header_and_records(sample, dialect, is_complete)[1]
    )


def _count_fitting_records(sample: str, dialect: Dialect, is_complete: bool) -> int:
    """How many records after the header have as many fields as that."""
    width, records = _split_header_and_records(sample, dialect, is_complete)
    return sum(record is not None and len(record) == width for record in records)


def _split_header_and_records(sample: str, dialect: Dialect, is_complete: bool) -> tuple[int, list[list[str] | None]]:
    """The header's number of fields, and the records after it that are whole."""
    header, *records = list(_iterate_sample_records(sample, dialect)) or [None]
    return len(header or ()), records if is_complete else records[:-1]


def _iterate_sample_records(sample: str, dialect: Dialect) -> Iterator[list[str] | None]:
    """The sample's records that are not blank; None for one that cannot be read."""
    reader = dialect.reader(io.StringIO(sample, newline=""))
    while True:
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield None
        else:
            if record:
                yield record


_NAMED_COLUMNS = 12

_Numbered = tuple[int, int, "list[str] | csv.Error"]
"""The first and the last line of a record, and its fields, or why it has none."""


def open_delimited_rows(file: InputFile, string_lines: str | None) -> RowStream:
    """The rows of a .csv or .tsv file; its note says what was taken for a delimiter and a quote.

    Raises UnreadableFileError where the header cannot be read, names a column twice, or leaves more than one delimiter
    possible.
    """
    # As large as a line may be: what a quote that is never closed swallows is bounded by it too.
    csv.field_size_limit(max(csv.field_size_limit(), LINE_LIMIT))
    dialect = _detect_file_dialect(file)
    with _open_records(file, dialect) as records:
        header = _read_header(file, records)
    names = tuple(filter(None, header))
    note = f"{file.path}: read as {dialect}; columns: {_format_names(names)}"
    return RowStream(file, lambda columns: _read_rows(file, dialect), columns=names, note=note)


def _detect_file_dialect(file: InputFile) -> Dialect:
    with open_bytes(file) as binary:
        sample = binary.read(SAMPLE_BYTES)
        complete = not binary.read(1)
    refuse_utf16(file, sample)
    text = sample.decode("utf-8-sig", errors="replace")
    try:
        return dialect_of(text, is_complete=complete, is_tsv=file.kind == ".tsv")
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
def _open_records(file: InputFile, dialect: Dialect) -> Iterator[_Records]:
    with open_bytes(file) as binary:
        text = io.TextIOWrapper(binary, encoding="utf-8-sig", errors="surrogateescape", newline="")
        try:
            yield _Records(dialect.reader(_iterate_lines(file, text)))
        finally:
            # The block that opened the bytes closes them.
            text.detach()


def _iterate_lines(file: InputFile, text: io.TextIOWrapper) -> Iterator[str]:
    number = 0
    while line := text.readline(LINE_LIMIT + 1):
        number += 1
        require_length(file, line, number)
        # An empty line in its place: lines keep their numbers.
        yield "\n" if number == 1 and _STATED_DELIMITER.match(line) else line


def _read_header(file: InputFile, records: _Records) -> list[str]:
    """The first record: names without the blanks around them, empty for a column that is not read.

    Raises UnreadableFileError where it cannot be one of column names.
    """
    *_, header = next(iter(records), (0, 0, None))
    if header is None:
        raise UnreadableFileError(file.path, "the file holds no rows")
    if isinstance(header, csv.Error):
        raise UnreadableFileError(file.path, f"its header cannot be read: {header}")
    if any(unicode_problem(name) for name in header):
        raise UnreadableFileError(file.path, "its header is not valid UTF-8; save the file as UTF-8")
    header = [name.strip().strip("\ufeff\u200b") for name in header]
    named = [name for name in header if name]
    if len(set(named)) != len(named):
        raise UnreadableFileError(file.path, f"its header names a column twice: {', '.join(header)}")
    return header


def _read_rows(file: InputFile, dialect: Dialect) -> Entries:
    with _open_records(file, dialect) as records:
        header = _read_header(file, records)
        for index, record in enumerate(records):
            yield _row(file, index, header, record)


def _row(file: InputFile, index: int, header: Sequence[str], numbered_record: _Numbered) -> Row | Skipped:
    line, last, record = numbered_record
    location = f"{file.name}:{line}"
    if isinstance(record, csv.Error):
        lines = f", lines {line} to {last}" if last > line else ""
        return Skipped(location, index, f"broken CSV: {record}{lines}")
    if len(record) != len(header):
        return Skipped(location, index, f"has {len(record)} fields where the header has {len(header)}")
    if any(unicode_problem(field) for field in record):
        return Skipped(location, index, "invalid UTF-8")
    return Row(location, index, {name: field for name, field in zip(header, record, strict=True) if name})


def _format_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_COLUMNS} more" if len(names) > _NAMED_COLUMNS else ""
    return ", ".join(names[:_NAMED_COLUMNS]) + more
