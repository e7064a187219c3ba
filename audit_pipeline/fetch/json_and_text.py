"""Rows of .jsonl, .txt and .json files: a line each, or what a document of JSON holds.

What belongs here: one row per line that is not blank; and of a .json file, which of three it is (an array of objects,
lines of objects, as C4 names them, or an object of columns), and its rows. What does not: the bytes below, and a single
line of JSON as a row (rows.py). Code that takes a whole .txt file as one document (sources/local_files.py) reads it as
such.

An array is read an object at a time, so that its file may be larger than memory. An object of columns, which is what
pandas writes by default, has each column's first value at its beginning: it is read whole, and bounded.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

from audit_pipeline.fetch.file_bytes import LINE_LIMIT, MEBIBYTE, InputFile, lines_of, open_bytes
from audit_pipeline.fetch.rows import TXT_COLUMN, JsonDecoder, Row, Skipped, UnreadableFileError, json_row, row_of
from audit_pipeline.fetch.stream import Entries, RowStream


def open_json_lines(file: InputFile, string_lines: str | None) -> RowStream:
    """One row per line of JSON; ``string_lines`` is the column of a line that is a string and no object."""

    def read(columns: object) -> Entries:
        with open_bytes(file) as binary:
            for index, (number, line) in enumerate(lines_of(file, binary)):
                yield json_row(line, f"{file.name}:{number}", index, string_lines)

    return RowStream(file, read)


def open_text_lines(file: InputFile, string_lines: str | None) -> RowStream:
    """One row per line of text."""

    def read(columns: object) -> Entries:
        with open_bytes(file) as binary:
            for index, (number, line) in enumerate(lines_of(file, binary)):
                location = f"{file.name}:{number}"
                try:
                    yield Row(location, index, {TXT_COLUMN: line.decode()})
                except UnicodeDecodeError as error:
                    yield Skipped(location, index, f"invalid UTF-8 at byte {error.start} of the line")

    return RowStream(file, read, columns=(TXT_COLUMN,))


_WHOLE_LIMIT = 256 * MEBIBYTE
_PIECE = 64 * 1024
_BLANKS = re.compile(r"[ \t\r\n]*")


def open_json_document(file: InputFile, string_lines: str | None) -> RowStream:
    """The rows of a .json file, whichever of the three it is.

    What is none of them is read as lines, each of which then says what is wrong with it. Raises UnreadableFileError
    where the file cannot be opened.
    """
    with open_bytes(file) as binary:
        start = binary.read(_PIECE).removeprefix(codecs.BOM_UTF8).lstrip()
    if start.startswith(b"["):
        # On one line as a rule, which may be longer than a line may be.
        return RowStream(file, lambda columns: _read_array(file, string_lines))
    with open_bytes(file) as binary:
        lines = lines_of(file, binary)
        first = next(lines, (0, b""))[1]
        single = next(lines, None) is None
    decoder = JsonDecoder()
    whole = _load_whole_json(file, decoder) if single or not isinstance(_parse_json(first, decoder), dict) else None
    if not isinstance(whole, dict) or (single and _columns_from_object(whole) is None):
        return open_json_lines(file, string_lines)
    if decoder.repeated is not None:
        raise UnreadableFileError(file.path, decoder.explain_repeated())
    rows = _rows_from_object(whole)
    return RowStream(file, lambda columns: _number_rows(file, rows), count=len(rows))


def _parse_json(text: bytes, decoder: JsonDecoder) -> object:
    """What ``text`` is in JSON; None where it is none."""
    try:
        return decoder.decode(text.decode())
    except (ValueError, RecursionError):
        return None


def _load_whole_json(file: InputFile, decoder: JsonDecoder) -> object:
    with open_bytes(file) as binary:
        content = binary.read(_WHOLE_LIMIT + 1)
    return _parse_json(content.removeprefix(codecs.BOM_UTF8), decoder) if len(content) <= _WHOLE_LIMIT else None


def _rows_from_object(content: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
    """The rows of an object of columns; any other object is one row."""
    columns = _columns_from_object(content)
    return (
        [content] if columns is None else [dict(zip(content, row, strict=True)) for row in zip(*columns, strict=True)]
    )


def _number_rows(file: InputFile, rows: Sequence[Mapping[str, object]]) -> Entries:
    for index, values in enumerate(rows):
        yield Row(f"{file.name}:{index + 1}", index, values)


def _columns_from_object(content: Mapping[str, object]) -> Sequence[Sequence[object]] | None:
    """The columns of an object that holds them as lists of one length, or by the same rows' names; else None."""
    lists = [value for value in content.values() if isinstance(value, list)]
    named = [value for value in content.values() if isinstance(value, dict)]
    if lists and len(lists) == len(content) and len({len(values) for values in lists}) == 1:
        return lists
    if named and len(named) == len(content) and all(list(values) == list(named[0]) for values in named):
        return [list(values.values()) for values in named]
    return None


def _read_array(file: InputFile, string_lines: str | None) -> Entries:
    with open_bytes(file) as binary:
        values = _ArrayReader(file, binary)
        for index, value in enumerate(values):
            yield row_of(value, values.decoder, f"{file.name}:{index + 1}", index, string_lines)


class _ArrayReader:
    """The values of an array one after another; only what has not been taken yet is in memory.

    Bytes that are not UTF-8 become lone surrogates, which costs the row that holds them and no other.
    """

    def __init__(self, file: InputFile, binary: BinaryIO) -> None:
        self._file, self._binary = file, binary
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape")
        self.decoder = JsonDecoder()
        self._held, self._taken, self._let_go = "", 0, 0
        self._ended = False

    def __iter__(self) -> Iterator[object]:
        self._next("[")
        if self._skip_blanks() == "]":
            self._next("]")
        else:
            more = True
            while more:
                yield self._read_element()
                more = self._next(",]") == ","
        if self._skip_blanks():
            raise self._broken("more text follows the end of the array")

    def _read_element(self) -> object:
        """The next value. What is held grows until it is whole, twice as long each time."""
        self._skip_blanks()
        while True:
            try:
                value, end = self.decoder.raw_decode(self._held, self._taken)
            except json.JSONDecodeError as error:
                if self._ended or len(self._held) - self._taken > LINE_LIMIT:
                    raise self._broken(error.msg) from error
            except (ValueError, RecursionError) as error:
                raise self._broken(str(error)) from error
            else:
                # A number may go on after what is held.
                if end < len(self._held) or self._ended:
                    self._taken = end
                    return value
            self._read(max(_PIECE, len(self._held) - self._taken))

    def _next(self, expected: str) -> str:
        found = self._skip_blanks()
        if not found or found not in expected:
            what = " or ".join(f"'{character}'" for character in expected)
            raise self._broken(f"expected {what}, found {repr(found) if found else 'the end of the file'}")
        self._taken += 1
        return found

    def _skip_blanks(self) -> str:
        """The next character that is not white space, not taken yet; empty at the end of the file."""
        while True:
            self._taken = _find_end_of_blanks(self._held, self._taken)
            if self._taken < len(self._held):
                return self._held[self._taken]
            if self._ended:
                return ""
            self._read(_PIECE)

    def _read(self, size: int) -> None:
        piece = self._binary.read(size)
        self._ended = not piece
        self._held = self._held[self._taken :] + self._decoder.decode(piece, final=self._ended)
        self._let_go += self._taken
        self._taken = 0

    def _broken(self, reason: str) -> UnreadableFileError:
        place = f"in what begins at character {self._let_go + self._taken + 1:,}"
        return UnreadableFileError(self._file.path, f"is not readable JSON: {reason}, {place}; write it again")


def _find_end_of_blanks(text: str, start: int) -> int:
    found = _BLANKS.match(text, start)
    return found.end() if found else start
