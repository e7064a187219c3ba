"""Reading rows out of users' files: .jsonl (also .jsonl.gz), .csv, .parquet and .txt.

What belongs here: turning a file into rows, and saying of every row that cannot be read which one it is and why.
What does not: what the rows mean (sources, benchmarks and the command line decide), and the project's own tables
(tables.py).

A row is: a non-blank line of a .jsonl or .txt file, a record of a .csv file after its header (a record may span
lines), a row of a .parquet file. In a .txt file every non-blank line is one text; whoever wants the whole file as
one document (sources/local_files.py) reads it as such.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from audit_pipeline.errors import DataError
from audit_pipeline.tables import read_parquet

SUFFIXES = (".jsonl", ".csv", ".parquet", ".txt", ".jsonl.gz")
TXT_COLUMN = "text"
USUAL_TEXT_COLUMNS = ("text", "input")

_CSV_FIELD_LIMIT = 2**31 - 1
_PARQUET_BATCH = 1024
_MEBIBYTE = 1024 * 1024
_LINE_LIMIT = 64 * _MEBIBYTE
_UNPACKED_LIMIT = 1024 * _MEBIBYTE


@dataclass(frozen=True)
class Row:
    """One readable row: where it stands (``texts.jsonl:3``), its 0-based position among all rows, its values."""

    location: str
    index: int
    values: Mapping[str, object]


@dataclass(frozen=True)
class Skipped:
    """One row that could not be used, and why; it keeps its position, so later rows keep theirs."""

    location: str
    index: int
    reason: str


@dataclass(frozen=True)
class RowFile:
    """The rows of a file, and those left out."""

    rows: tuple[Row, ...]
    skipped: tuple[Skipped, ...]


@dataclass(frozen=True)
class TextRow:
    """One row with a usable text; ``values`` are all its columns."""

    location: str
    index: int
    text: str
    values: Mapping[str, object]


def read_rows(path: Path, string_lines: str | None = None) -> RowFile:
    """Every row of the file at ``path``, readable or skipped with a reason.

    ``location`` counts lines from 1 in text files (where the row begins) and rows from 1 in Parquet; ``index``
    counts rows from 0, bad ones included, blank lines not. ``string_lines`` is the column of a .jsonl line that is a
    JSON string and no object (MIMIR has such files); without it such a line is skipped.

    Raises DataError where the file is missing, empty, of another kind, has no readable row at all, or is a .gz that
    is damaged or unpacks to more than 1 GiB.
    """
    suffix = next((one for one in sorted(SUFFIXES, key=len, reverse=True) if path.name.lower().endswith(one)), "")
    reader = _READERS.get(suffix)
    if reader is None:
        raise DataError(f"{path}: cannot tell its format from its name; use one of {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise DataError(f"{path}: {'is not a file' if path.exists() else 'no such file'}")
    if reader is _read_jsonl and string_lines is not None:
        reader = partial(_read_jsonl, string_lines=string_lines)
    try:
        entries = list(reader(path))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: is not a readable .gz file ({_first_line(error)}); fetch it again") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    rows = tuple(entry for entry in entries if isinstance(entry, Row))
    skipped = tuple(entry for entry in entries if isinstance(entry, Skipped))
    if not entries:
        raise DataError(f"{path}: the file holds no rows")
    if not rows:
        raise DataError(_nothing_left(path, skipped))
    return RowFile(rows, skipped)


def read_texts(path: Path, text_column: str | None = None) -> tuple[list[TextRow], list[Skipped]]:
    """The texts of a file, and the rows that have none, in file order.

    Without ``text_column`` the column is ``text``, else ``input``, else the only column there is. In a .txt file the
    lines are the texts, whatever ``text_column`` says.

    Raises DataError as :func:`read_rows` does, where no row has the column, and where every row is bad.
    """
    file = read_rows(path)
    column = TXT_COLUMN if path.suffix.lower() == ".txt" else text_column
    column = chosen_column(path, file.rows, column)
    texts: list[TextRow] = []
    skipped = list(file.skipped)
    for row in file.rows:
        text, problem = text_of(row.values, column)
        if problem is not None:
            skipped.append(Skipped(row.location, row.index, problem))
        else:
            texts.append(TextRow(row.location, row.index, text, row.values))
    skipped.sort(key=lambda entry: entry.index)
    if not texts:
        raise DataError(_nothing_left(path, skipped))
    return texts, skipped


def chosen_column(path: Path, rows: Sequence[Row], column: str | None) -> str:
    """``column``, or the usual text column where it is None; raises DataError, naming the columns there are."""
    columns = column_names(rows)
    there = ", ".join(columns) or "none"
    if column is not None:
        if column not in columns:
            raise DataError(f"{path}: no column '{column}'; the columns are: {there}")
        return column
    for usual in USUAL_TEXT_COLUMNS:
        if usual in columns:
            return usual
    if len(columns) == 1:
        return columns[0]
    raise DataError(f"{path}: say which column holds the text; the columns are: {there}")


def column_names(rows: Iterable[Row]) -> list[str]:
    """Every column that some row has, in the order they are met."""
    return list(dict.fromkeys(name for row in rows for name in row.values))


def text_of(values: Mapping[str, object], column: str) -> tuple[str, str | None]:
    """The text in ``column`` and None; or an empty text and the reason why there is none."""
    if column not in values:
        return "", f"no column '{column}'"
    value = values[column]
    problem = text_problem(value)
    if problem is not None or not isinstance(value, str):
        return "", f"column '{column}' {problem}"
    return value, None


def text_problem(value: object) -> str | None:
    """Why ``value`` is not a text (null, not a string, blank, not valid Unicode); None where it is one."""
    if value is None:
        return "is null"
    if not isinstance(value, str):
        return f"is not a string but {type(value).__name__}"
    if not value.strip():
        return "is empty"
    return unicode_problem(value)


def unicode_problem(value: str) -> str | None:
    """Why ``value`` cannot be written as UTF-8 (a lone surrogate); None where it can."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        return f"is not valid Unicode: lone surrogate at character {error.start}"
    return None


def _nothing_left(path: Path, skipped: Sequence[Skipped]) -> str:
    first = skipped[0]
    return f"{path}: none of its {len(skipped)} rows can be used; the first, {first.location}: {first.reason}"


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Non-blank lines with their 1-based numbers, without line ends and byte-order mark; only \\n ends a line."""
    with ExitStack() as stack:
        file: BinaryIO = stack.enter_context(path.open("rb"))
        lines: Iterable[bytes] = file
        if path.name.lower().endswith(".gz"):
            # A BinaryIO in all but name.
            lines = _unpacked_lines(path, cast(BinaryIO, stack.enter_context(gzip.open(file, "rb"))))
        for number, line in enumerate(lines, start=1):
            if number == 1:
                _refuse_utf16(path, line)
                line = line.removeprefix(codecs.BOM_UTF8)  # noqa: PLW2901
            if line.strip():
                yield number, line.rstrip(b"\r\n")


def _unpacked_lines(path: Path, file: BinaryIO) -> Iterator[bytes]:
    """The lines of a compressed file: a few bytes may stand for more than there is memory."""
    unpacked = 0
    while line := file.readline(_LINE_LIMIT + 1):
        unpacked += len(line)
        if len(line) > _LINE_LIMIT or unpacked > _UNPACKED_LIMIT:
            most = f"{_LINE_LIMIT // _MEBIBYTE} MiB a line, {_UNPACKED_LIMIT // _MEBIBYTE} MiB in all"
            raise DataError(f"{path}: unpacks to more than is read ({most}); unpack it yourself")
        yield line


def _refuse_utf16(path: Path, start: bytes) -> None:
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{path}: is in UTF-16; save it as UTF-8")


def _decoded(line: bytes) -> tuple[str, str | None]:
    try:
        return line.decode(), None
    except UnicodeDecodeError as error:
        return "", f"invalid UTF-8 at byte {error.start} of the line"


def _read_txt(path: Path) -> Iterator[Row | Skipped]:
    for index, (number, line) in enumerate(_lines(path)):
        location = f"{path.name}:{number}"
        text, problem = _decoded(line)
        yield Skipped(location, index, problem) if problem else Row(location, index, {TXT_COLUMN: text})


def _read_jsonl(path: Path, string_lines: str | None = None) -> Iterator[Row | Skipped]:
    for index, (number, line) in enumerate(_lines(path)):
        location = f"{path.name}:{number}"
        text, problem = _decoded(line)
        if problem:
            yield Skipped(location, index, problem)
            continue
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            yield Skipped(location, index, f"broken JSON: {error.msg} at character {error.pos + 1}")
        except (ValueError, RecursionError) as error:
            yield Skipped(location, index, f"JSON that cannot be read: {error}")
        else:
            if isinstance(value, dict):
                yield Row(location, index, value)
            elif string_lines is not None and isinstance(value, str):
                yield Row(location, index, {string_lines: value})
            else:
                yield Skipped(location, index, f"not a JSON object but {type(value).__name__}")


def _read_csv(path: Path) -> Iterator[Row | Skipped]:
    csv.field_size_limit(max(csv.field_size_limit(), _CSV_FIELD_LIMIT))
    with path.open("rb") as file:
        _refuse_utf16(path, file.read(2))
    # strict, because a quote that is never closed otherwise swallows the rest of the file into one field.
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = next((record for record in reader if record), None)
        except csv.Error as error:
            raise DataError(f"{path}: its header cannot be read: {error}") from error
        if not header:
            raise DataError(f"{path}: the file holds no rows")
        if any(unicode_problem(name) for name in header):
            raise DataError(f"{path}: its header is not valid UTF-8; save the file as UTF-8")
        if len(set(header)) != len(header):
            raise DataError(f"{path}: its header names a column twice: {', '.join(header)}")
        index = 0
        while True:
            line = reader.line_num + 1
            try:
                record = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                lines = f", lines {line} to {reader.line_num}" if reader.line_num > line else ""
                yield Skipped(f"{path.name}:{line}", index, f"broken CSV: {error}{lines}")
                index += 1
                continue
            if record:
                yield _csv_row(f"{path.name}:{line}", index, header, record)
                index += 1


def _csv_row(location: str, index: int, header: Sequence[str], record: Sequence[str]) -> Row | Skipped:
    if len(record) != len(header):
        return Skipped(location, index, f"has {len(record)} fields where the header has {len(header)}")
    if any(unicode_problem(field) for field in record):
        return Skipped(location, index, "invalid UTF-8")
    return Row(location, index, dict(zip(header, record, strict=True)))


def _read_parquet(path: Path) -> Iterator[Row | Skipped]:
    try:
        table = read_parquet(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: is not a readable Parquet file ({_first_line(error)})") from error
    if len(set(table.column_names)) != table.num_columns:
        raise DataError(f"{path}: names a column twice: {', '.join(table.column_names)}")
    for start in range(0, table.num_rows, _PARQUET_BATCH):
        batch = table.slice(start, _PARQUET_BATCH)
        try:
            for offset, values in enumerate(batch.to_pylist()):
                yield Row(f"{path.name}:{start + offset + 1}", start + offset, values)
        except (ValueError, OverflowError):
            yield from _one_by_one(path.name, start, batch)


def _one_by_one(name: str, start: int, batch: pa.Table) -> Iterator[Row | Skipped]:
    """The rows of a batch that does not convert as a whole: Arrow does not check that strings are UTF-8."""
    for offset in range(batch.num_rows):
        location, index = f"{name}:{start + offset + 1}", start + offset
        try:
            yield Row(location, index, batch.slice(offset, 1).to_pylist()[0])
        except UnicodeDecodeError as error:
            yield Skipped(location, index, f"invalid UTF-8 at byte {error.start} of a value")
        except (ValueError, OverflowError) as error:
            yield Skipped(location, index, f"a value that cannot be read: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


_READERS: Mapping[str, Callable[[Path], Iterator[Row | Skipped]]] = {
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".txt": _read_txt,
    ".jsonl.gz": _read_jsonl,
}
