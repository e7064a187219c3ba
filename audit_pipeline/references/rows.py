"""Texts out of the files of a corpus, one row in memory at a time, compressed files included.

What belongs here: .jsonl, .json.gz, .jsonl.gz, .parquet, .csv, .txt and .txt.gz as streams of texts. What does not:
users' small files, which are read at once with all their columns (text_rows.py).

A row is what it is there: a non-blank line of a .jsonl or .txt file, a record of a .csv file, a row of a .parquet file.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from audit_pipeline.errors import DataError
from audit_pipeline.tables import open_parquet
from audit_pipeline.text_rows import TXT_COLUMN, Row, Skipped, chosen_column, text_of, unicode_problem
from audit_pipeline.yaml_files import one_line

SUFFIXES = (".jsonl", ".jsonl.gz", ".json.gz", ".parquet", ".csv", ".txt", ".txt.gz")

_CSV_FIELD_LIMIT = 2**31 - 1
_PARQUET_BATCH = 256


class UnreadableFileError(DataError):
    """Why a file, or the rest of it, cannot be read, without its name."""


def is_readable(path: Path) -> bool:
    """Whether the file's name says that :func:`read_texts` can read it."""
    return path.name.lower().endswith(SUFFIXES)


def read_texts(path: Path, name: str, column: str | None) -> Iterator[str | Skipped]:
    """Every row of a file: its text, or why it has none; ``name`` is the file in the rows' locations.

    Without ``column`` it is ``text``, else ``input``, else the only one there is, as the file's first row has it; the
    texts of a .txt file are its lines. Raises UnreadableFileError where the file cannot be read, breaks off, holds no
    row, or no row has the column.
    """
    try:
        yield from _texts(path, name, column)
    except OSError as error:
        raise UnreadableFileError(f"cannot be read ({error.strerror or one_line(error)})") from error
    except (EOFError, zlib.error) as error:
        raise UnreadableFileError(f"breaks off or is damaged ({one_line(error)}): fetch it again") from error
    except pa.ArrowException as error:
        raise UnreadableFileError(f"is not a readable Parquet file ({one_line(error)})") from error
    except csv.Error as error:
        raise UnreadableFileError(f"its header cannot be read: {one_line(error)}") from error


def json_text(line: bytes, location: str, index: int, column: str) -> str | Skipped:
    """The text in ``column`` of one line of JSON, or why there is none."""
    row = json_row(line, location, index)
    return row if isinstance(row, Skipped) else _text(row, column)


def json_row(line: bytes, location: str, index: int) -> Row | Skipped:
    """One line of JSON as a row; skipped where it is not an object in UTF-8."""
    try:
        value = json.loads(line.decode())
    except UnicodeDecodeError as error:
        return Skipped(location, index, f"invalid UTF-8 at byte {error.start} of the line")
    except json.JSONDecodeError as error:
        return Skipped(location, index, f"broken JSON: {error.msg} at character {error.pos + 1}")
    except (ValueError, RecursionError) as error:
        return Skipped(location, index, f"JSON that cannot be read: {one_line(error)}")
    if not isinstance(value, dict):
        return Skipped(location, index, f"not a JSON object but {type(value).__name__}")
    return Row(location, index, value)


def texts_of(rows: Iterable[Row | Skipped], path: Path, column: str | None) -> Iterator[str | Skipped]:
    """The texts of ``rows``; raises UnreadableFileError where there is no row, or none has the column."""
    chosen = column
    empty, found = True, False
    for row in rows:
        empty = False
        if isinstance(row, Skipped):
            yield row
            continue
        if chosen is None:
            try:
                chosen = chosen_column(path, [row], None)
            except DataError as error:
                raise UnreadableFileError(one_line(error).removeprefix(f"{path}: ")) from error
        found = found or chosen in row.values
        yield _text(row, chosen)
    if empty:
        raise UnreadableFileError("the file holds no rows")
    if chosen is not None and not found:
        raise UnreadableFileError(f"no row has the column '{chosen}'")


def _texts(path: Path, name: str, column: str | None) -> Iterator[str | Skipped]:
    kind = path.name.lower().removesuffix(".gz")
    if kind.endswith(".parquet"):
        yield from _parquet_texts(path, name, column)
    elif kind.endswith(".csv"):
        yield from texts_of(_csv_rows(path, name), path, column)
    elif kind.endswith(".txt"):
        yield from texts_of(_txt_rows(path, name), path, TXT_COLUMN)
    else:
        yield from texts_of((json_row(*line) for line in _lines(path, name)), path, column)


def _text(row: Row, column: str) -> str | Skipped:
    text, problem = text_of(row.values, column)
    return text if problem is None else Skipped(row.location, row.index, problem)


def _lines(path: Path, name: str) -> Iterator[tuple[bytes, str, int]]:
    """Non-blank lines with their locations and numbers among the rows; only \\n ends a line."""
    with ExitStack() as stack:
        file: BinaryIO = stack.enter_context(path.open("rb"))
        if path.name.lower().endswith(".gz"):
            # A BinaryIO in all but name.
            file = cast(BinaryIO, stack.enter_context(gzip.open(file, "rb")))
        index = 0
        for number, line in enumerate(file, start=1):
            if number == 1:
                _refuse_utf16(line)
                line = line.removeprefix(codecs.BOM_UTF8)  # noqa: PLW2901
            if line.strip():
                yield line.rstrip(b"\r\n"), f"{name}:{number}", index
                index += 1


def _refuse_utf16(start: bytes) -> None:
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UnreadableFileError("is in UTF-16; save it as UTF-8")


def _txt_rows(path: Path, name: str) -> Iterator[Row | Skipped]:
    for line, location, index in _lines(path, name):
        try:
            yield Row(location, index, {TXT_COLUMN: line.decode()})
        except UnicodeDecodeError as error:
            yield Skipped(location, index, f"invalid UTF-8 at byte {error.start} of the line")


def _csv_rows(path: Path, name: str) -> Iterator[Row | Skipped]:
    csv.field_size_limit(max(csv.field_size_limit(), _CSV_FIELD_LIMIT))
    with path.open("rb") as binary:
        _refuse_utf16(binary.read(2))
    # strict, because a quote that is never closed otherwise swallows the rest of the file into one field.
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.reader(file, strict=True)
        header = next((record for record in reader if record), None)
        if header is None:
            return
        if len(set(header)) != len(header):
            raise UnreadableFileError(f"its header names a column twice: {', '.join(header)}")
        index = 0
        while True:
            location = f"{name}:{reader.line_num + 1}"
            try:
                record = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield Skipped(location, index, f"broken CSV: {error}")
                index += 1
                continue
            if record:
                yield _csv_row(location, index, header, record)
                index += 1


def _csv_row(location: str, index: int, header: list[str], record: list[str]) -> Row | Skipped:
    if len(record) != len(header):
        return Skipped(location, index, f"has {len(record)} fields where the header has {len(header)}")
    if any(unicode_problem(value) for value in record):
        return Skipped(location, index, "invalid UTF-8")
    return Row(location, index, dict(zip(header, record, strict=True)))


def _parquet_texts(path: Path, name: str, column: str | None) -> Iterator[str | Skipped]:
    with open_parquet(path) as file:
        names: list[str] = file.schema_arrow.names
        if len(set(names)) != len(names):
            raise UnreadableFileError(f"names a column twice: {', '.join(names)}")
        if column is None or column not in names:
            # A row without values, to have the usual column chosen, or the file refused, by the one rule.
            columns: Mapping[str, object] = dict.fromkeys(names)
            try:
                column = chosen_column(path, [Row(name, 0, columns)], column)
            except DataError as error:
                raise UnreadableFileError(one_line(error).removeprefix(f"{path}: ")) from error
        if not file.metadata.num_rows:
            raise UnreadableFileError("the file holds no rows")
        index = 0
        for batch in file.iter_batches(_PARQUET_BATCH, columns=[column]):
            values = batch.column(0)
            for value in values:
                yield _parquet_text(value, f"{name}:{index + 1}", index, column)
                index += 1


def _parquet_text(value: pa.Scalar, location: str, index: int, column: str) -> str | Skipped:
    try:
        return _text(Row(location, index, {column: value.as_py()}), column)
    except UnicodeDecodeError as error:
        # Arrow does not check that strings are UTF-8.
        return Skipped(location, index, f"invalid UTF-8 at byte {error.start} of a value")
    except (ValueError, OverflowError) as error:
        return Skipped(location, index, f"a value that cannot be read: {one_line(error)}")
