"""Reader of .csv and .tsv files with a header. A record may span several lines.

A first line such as Excel's sep=; states the delimiter. Otherwise the header decides between the usual delimiters,
because column names rarely contain a delimiter, but texts often do. If the header contains several delimiters, the
delimiter that fits most rows is used. A delimiter fits a row if the row has as many fields as the header. If two
delimiters fit equally many rows, the delimiter with more columns is used. An unusual quote is used only if all rows fit
with it, but not with the usual quote.

Python's csv module reads the records. DuckDB is not used, because it returns no line numbers of rows, and refuses a
whole file if one quote is never closed.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from audit_pipeline.readers import file_bytes
from audit_pipeline.readers.row_stream import Entries, RowFormat, RowStream
from audit_pipeline.readers.text_rows import Row, Skipped, UnreadableFileError, clean_header, explain_invalid_unicode

USUAL = {",": "','", ";": "';'", "\t": "a tab", "|": "'|'"}
# Pairs of quote and escape character. Without an escape character, a quote within a quoted field is doubled.
_UNUSUAL_QUOTES = (('"', "\\"), ("'", None), ("'", "\\"))
# The first line of some files for Excel, such as sep=;
_STATED_DELIMITER = re.compile(r"\A\"?sep=([^\r\n\"])\"?(?:\r\n|\r|\n)", re.IGNORECASE)
_MAX_NAMED_COLUMNS = 12


@dataclass(frozen=True)
class Dialect:
    """The dialect of a CSV file.

    Attributes:
        delimiter: The character between fields.
        quote: The character around quoted fields, or None if fields are not quoted.
        escape: The character before a quote within a quoted field, or None if the quote is doubled.
        has_gaps: True if blanks follow each delimiter. They are not part of a field.
    """

    delimiter: str
    quote: str | None = '"'
    escape: str | None = None
    has_gaps: bool = False

    def __str__(self) -> str:
        quoted = "no quotes"
        if self.quote is not None:
            quoted = f"'{self.quote}' as quote"
        if self.escape:
            quoted += f", '{self.escape}' before a quote within quotes"
        return f"CSV with {USUAL.get(self.delimiter, repr(self.delimiter))} between fields and {quoted}"

    def build_reader(self, lines: Iterable[str]) -> Any:
        """Return the csv module's reader of the lines.

        The reader is strict. Otherwise it would read the rest of the file as one field after a quote that is never
        closed.
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
    """A record of the file: the fields between two line ends outside quotes. Blank lines are no records.

    Attributes:
        line: The number of its first line, from 1.
        last_line: The number of its last line.
        fields: Its fields, empty if it cannot be read.
        problem: The reason why it cannot be read, or None.
    """

    line: int
    last_line: int
    fields: list[str]
    problem: str | None = None


def open_delimited_rows(file: file_bytes.InputFile) -> RowStream:
    """Open the rows of a .csv or .tsv file. The note of the stream describes the detected dialect.

    Raises:
        UnreadableFileError: If the header cannot be read or contains a name twice, or if several delimiters are
            possible.
    """
    # A field may be as long as a line. The limit also bounds the field after a quote that is never closed.
    csv.field_size_limit(max(csv.field_size_limit(), file_bytes.LINE_LIMIT))
    dialect = _detect_dialect(file)

    def read(columns: object) -> Entries:
        with _open_records(file, dialect) as records:
            header = _read_header(file, records)
            for index, record in enumerate(records):
                yield _build_row(file, index, header, record)

    with _open_records(file, dialect) as records:
        names = tuple(filter(None, _read_header(file, records)))
    note = f"{file.path}: read as {dialect}; columns: {', '.join(names[:_MAX_NAMED_COLUMNS])}"
    if len(names) > _MAX_NAMED_COLUMNS:
        note += f" and {len(names) - _MAX_NAMED_COLUMNS} more"
    return RowStream(file, read, columns=names, note=note)


def _detect_dialect(file: file_bytes.InputFile) -> Dialect:
    """Detect the dialect of a file from its beginning.

    Raises:
        UnreadableFileError: If the header contains several delimiters and the rows fit with more than one of them.
    """
    with file_bytes.open_bytes(file) as binary:
        start = binary.read(file_bytes.SAMPLE_BYTES)
        is_complete = not binary.read(1)
    file_bytes.refuse_utf16(file, start)
    text = start.decode("utf-8-sig", errors="replace")
    sample = _Sample(_STATED_DELIMITER.sub("", text), is_complete)
    is_tsv = file.kind == ".tsv"
    stated = _STATED_DELIMITER.match(text)
    if stated:
        delimiter = stated[1]
    elif is_tsv:
        delimiter = "\t"
    else:
        delimiter = _detect_delimiter(file, sample)
    usual = replace(Dialect(delimiter), has_gaps=sample.has_gaps(delimiter))
    if sample.measure_fit(usual).is_complete:
        return usual
    for dialect in _list_unusual_dialects(usual, sample.text, is_tsv=is_tsv):
        if sample.measure_fit(dialect).is_complete:
            return dialect
    return usual


class _Fit(NamedTuple):
    """The fit of a dialect to a sample.

    Attributes:
        n_columns: The number of fields in the header.
        n_fitting: The number of records below the header that have as many fields as the header.
        is_complete: True if all records below the header fit. A last record that may be cut off is not counted.
    """

    n_columns: int
    n_fitting: int
    is_complete: bool


class _Sample(NamedTuple):
    """The beginning of a file.

    Attributes:
        text: The text without the line that states the delimiter.
        is_complete: True if the text is the whole file.
    """

    text: str
    is_complete: bool

    def read_records(self, dialect: Dialect) -> list[_Record]:
        """Return the records of the sample, including the header."""
        return list(_iterate_records(io.StringIO(self.text, newline=""), dialect))

    def measure_fit(self, dialect: Dialect) -> _Fit:
        """Measure the fit of a dialect. The last record is ignored if the sample is not the whole file."""
        records = self.read_records(dialect) or [_Record(0, 0, [])]
        n_columns = len(records[0].fields)
        complete_records = records[1:]
        if not self.is_complete:
            complete_records = records[1:-1]
        n_fitting = sum(record.problem is None and len(record.fields) == n_columns for record in complete_records)
        return _Fit(n_columns, n_fitting, n_fitting == len(complete_records))

    def has_gaps(self, delimiter: str) -> bool:
        """Return True if the second field of every record begins with a blank."""
        has_second_field = False
        for record in self.read_records(Dialect(delimiter)):
            if len(record.fields) > 1:
                has_second_field = True
                if not record.fields[1].startswith(" "):
                    return False
        return has_second_field


def _detect_delimiter(file: file_bytes.InputFile, sample: _Sample) -> str:
    """Return the usual delimiter in the header that fits most rows, or a comma if the header contains none.

    Raises:
        UnreadableFileError: If the rows do not show which delimiter is right.
    """
    ranks: dict[str, tuple[int, int]] = {}
    for delimiter in USUAL:
        fit = sample.measure_fit(Dialect(delimiter))
        if fit.n_columns > 1:
            ranks[delimiter] = (fit.n_fitting, fit.n_columns)
    if not ranks:
        return ","
    if len(ranks) == 1:
        return next(iter(ranks))
    best_rank = max(ranks.values())
    best = [delimiter for delimiter, rank in ranks.items() if rank == best_rank]
    if len(best) > 1 or best_rank[0] == 0:
        listed = " and ".join(USUAL[delimiter] for delimiter in ranks)
        raise UnreadableFileError(
            file.path,
            f"the header contains {listed}, and the rows do not show which of these characters separates fields. "
            "Save the file as .tsv, .jsonl or .parquet.",
        )
    return best[0]


def _list_unusual_dialects(usual: Dialect, sample: str, *, is_tsv: bool) -> Iterator[Dialect]:
    """Yield the dialects with an unusual quote that begins a field of the sample.

    For .tsv, also yield the dialect without quotes.
    """
    for quote, escape in _UNUSUAL_QUOTES:
        starts_field = usual.delimiter + quote in sample or "\n" + quote in sample
        if starts_field and (escape or "") + quote in sample:
            yield replace(usual, quote=quote, escape=escape)
    if is_tsv:
        # In a .tsv file quotes may be ordinary characters.
        yield replace(usual, quote=None)


def _iterate_records(lines: Iterable[str], dialect: Dialect) -> Iterator[_Record]:
    reader = dialect.build_reader(lines)
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
def _open_records(file: file_bytes.InputFile, dialect: Dialect) -> Iterator[Iterator[_Record]]:
    with file_bytes.open_bytes(file) as binary, file_bytes.decode_text(binary) as text:
        yield _iterate_records(_iterate_lines(file, text), dialect)


def _iterate_lines(file: file_bytes.InputFile, text: io.TextIOWrapper) -> Iterator[str]:
    number = 0
    while line := text.readline(file_bytes.LINE_LIMIT + 1):
        number += 1
        file_bytes.require_line_within_limit(file, line, number)
        if number == 1 and _STATED_DELIMITER.match(line):
            # An empty line in its place preserves the line numbers.
            line = "\n"
        yield line


def _read_header(file: file_bytes.InputFile, records: Iterator[_Record]) -> list[str]:
    """Return the column names in the first record.

    Raises:
        UnreadableFileError: If the record is missing or no valid header.
    """
    header = next(records, None)
    if header is None:
        raise UnreadableFileError(file.path, "the file contains no rows")
    if header.problem is not None:
        raise UnreadableFileError(file.path, f"the header cannot be read: {header.problem}")
    if any(map(explain_invalid_unicode, header.fields)):
        raise UnreadableFileError(file.path, "the header is not valid UTF-8. Save the file as UTF-8.")
    return clean_header(file.path, header.fields)


def _build_row(file: file_bytes.InputFile, index: int, header: Sequence[str], record: _Record) -> Row | Skipped:
    location = f"{file.name}:{record.line}"
    if record.problem is not None:
        reason = f"broken CSV: {record.problem}"
        if record.last_line > record.line:
            reason += f", lines {record.line} to {record.last_line}"
        return Skipped(location, index, reason)
    if len(record.fields) != len(header):
        return Skipped(location, index, f"has {len(record.fields)} fields, but the header has {len(header)}")
    # ASCII is always valid, and testing the joined fields takes a tenth of the time of testing each field.
    if not "".join(record.fields).isascii() and any(map(explain_invalid_unicode, record.fields)):
        return Skipped(location, index, "invalid UTF-8")
    return Row(location, index, {name: field for name, field in zip(header, record.fields, strict=True) if name})


FORMATS = (RowFormat((".csv", ".tsv"), open_delimited_rows, is_compressible=True),)
