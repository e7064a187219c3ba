"""Reader of .json files: an array of objects, lines of objects (as in files of C4), or an object of columns.

An array is parsed value by value, so that its file may be larger than memory. An object of columns, which pandas writes
by default, contains one list of values per column. It is read at once, up to a limit.
"""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence

from audit_pipeline.readers.file_bytes import LINE_LIMIT, MEBIBYTE, InputFile, decode_text, iterate_lines, open_bytes
from audit_pipeline.readers.row_formats.lines import build_json_row, open_json_lines
from audit_pipeline.readers.row_stream import Entries, RowFormat, RowStream
from audit_pipeline.readers.text_rows import Row, UnreadableFileError

_WHOLE_LIMIT = 256 * MEBIBYTE
_PIECE = 64 * 1024
_BLANKS = re.compile(r"[ \t\r\n]*")


def open_json_document(file: InputFile) -> RowStream:
    """Open the rows of a .json file with an array of objects, lines of objects, or an object of columns.

    Any other content is read as lines, so that each line is skipped with its reason.

    Raises:
        UnreadableFileError: If the file cannot be opened.
    """
    with open_bytes(file) as binary:
        start = binary.read(_PIECE).removeprefix(codecs.BOM_UTF8).lstrip()
    if start.startswith(b"["):
        # An array is often a single line, which may exceed the limit of a line.
        return _open_array(file)
    with open_bytes(file) as binary:
        lines = iterate_lines(file, binary)
        first_line = next(lines, (0, b""))[1]
        is_single_line = next(lines, None) is None
    if not is_single_line and isinstance(_parse_json(first_line), dict):
        return open_json_lines(file)
    document = _read_document(file)
    if not isinstance(document, dict):
        return open_json_lines(file)
    columns = _extract_columns(document)
    if columns is not None:
        rows = [dict(zip(document, cells, strict=True)) for cells in zip(*columns, strict=True)]
        return _open_rows_in_memory(file, rows)
    if is_single_line:
        return open_json_lines(file)
    # An object without columns is one row.
    return _open_rows_in_memory(file, [document])


def _read_document(file: InputFile) -> object:
    """Return the parsed content of a file, or None if it is too large or not JSON."""
    with open_bytes(file) as binary:
        content = binary.read(_WHOLE_LIMIT + 1)
    if len(content) > _WHOLE_LIMIT:
        return None
    return _parse_json(content.removeprefix(codecs.BOM_UTF8))


def _open_array(file: InputFile) -> RowStream:
    def read(columns: object) -> Entries:
        with open_bytes(file) as binary, decode_text(binary) as text:
            for index, value in enumerate(_ArrayParser(file, text).iterate_values()):
                yield build_json_row(value, f"{file.name}:{index + 1}", index, file.string_lines)

    return RowStream(file, read)


def _open_rows_in_memory(file: InputFile, rows: Sequence[Mapping[str, object]]) -> RowStream:
    def read(columns: object) -> Entries:
        for index, values in enumerate(rows):
            yield Row(f"{file.name}:{index + 1}", index, values)

    return RowStream(file, read, count=len(rows))


def _parse_json(content: bytes) -> object:
    """Return the parsed content, or None if it is not JSON in UTF-8."""
    try:
        return json.loads(content.decode())
    except (ValueError, RecursionError):
        return None


def _extract_columns(content: Mapping[str, object]) -> Sequence[Sequence[object]] | None:
    """Return the columns of an object, or None if it has no columns.

    Columns are lists of equal length, or objects with the same row names.
    """
    columns: list[Sequence[object]] = []
    labels: list[Sequence[object]] = []
    for column in content.values():
        if isinstance(column, list):
            columns.append(column)
            labels.append(range(len(column)))
        elif isinstance(column, dict):
            columns.append(list(column.values()))
            labels.append(list(column))
    if not columns or len(columns) < len(content) or any(label != labels[0] for label in labels):
        return None
    return columns


class _ArrayParser:
    """A parser of a JSON array that never loads the whole array into memory.

    The json module parses only whole documents. So this class passes the text of one value at a time to its decoder.
    """

    def __init__(self, file: InputFile, text: io.TextIOWrapper) -> None:
        self._file = file
        self._text = text
        self._decoder = json.JSONDecoder()
        # The text in memory, the parser's position in it, and the number of characters of the file before it.
        self._buffer = ""
        self._position = 0
        self._n_released = 0
        self._has_ended = False

    def iterate_values(self) -> Iterator[object]:
        """Yield the values of the array in their order.

        Raises:
            UnreadableFileError: If the array is broken.
        """
        self._consume("[")
        has_values = self._peek() != "]"
        if has_values:
            yield self._parse_value()
            while self._consume(",]") == ",":
                yield self._parse_value()
        else:
            self._consume("]")
        if self._peek():
            raise self._build_error("more text follows the end of the array")

    def _parse_value(self) -> object:
        self._peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._position)
            except json.JSONDecodeError as error:
                if self._has_ended or len(self._buffer) - self._position > LINE_LIMIT:
                    raise self._build_error(error.msg) from error
            except (ValueError, RecursionError) as error:
                raise self._build_error(str(error)) from error
            else:
                # A number at the end of the buffer may continue.
                if end < len(self._buffer) or self._has_ended:
                    self._position = end
                    return value
            # The text in memory doubles until the value is complete.
            self._read_more(max(_PIECE, len(self._buffer) - self._position))

    def _read_more(self, size: int) -> None:
        piece = self._text.read(size)
        self._n_released += self._position
        self._buffer = self._buffer[self._position :] + piece
        self._position = 0
        self._has_ended = not piece

    def _peek(self) -> str:
        """Skip white space and return the next character, or "" at the end of the file."""
        while True:
            self._position = _BLANKS.match(self._buffer, self._position).end()  # type: ignore[union-attr]
            if self._position < len(self._buffer) or self._has_ended:
                return self._buffer[self._position : self._position + 1]
            self._read_more(_PIECE)

    def _consume(self, expected: str) -> str:
        """Skip white space, consume one of the expected characters, and return it."""
        character = self._peek()
        if not character or character not in expected:
            listed = " or ".join(f"'{candidate}'" for candidate in expected)
            actual = repr(character) if character else "the end of the file"
            raise self._build_error(f"expected {listed}, found {actual}")
        self._position += 1
        return character

    def _build_error(self, reason: str) -> UnreadableFileError:
        position = self._n_released + self._position + 1
        return UnreadableFileError(
            self._file.path,
            f"the file is not valid JSON: {reason}. The value with this error begins at character {position:,}. "
            "Correct the file.",
        )


FORMATS = (RowFormat((".json",), open_json_document, is_compressible=True),)
