"""Rows of .json files: an array of objects, lines of objects (as C4 names them), or an object of columns.

An array is read an object at a time, so that its file may be larger than memory. An object of columns, which is what
pandas writes by default, has each column's first value at its beginning: it is read whole, and bounded.
"""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence

from audit_pipeline.readers.file_bytes import LINE_LIMIT, MEBIBYTE, InputFile, decode_text, iterate_lines, open_bytes
from audit_pipeline.readers.row_formats.json_lines import build_json_row, open_json_lines
from audit_pipeline.readers.row_stream import Entries, RowFormat, RowStream
from audit_pipeline.readers.text_rows import Row, UnreadableFileError

_WHOLE_LIMIT = 256 * MEBIBYTE
_PIECE = 64 * 1024
_BLANKS = re.compile(r"[ \t\r\n]*")


def open_json_document(file: InputFile) -> RowStream:
    """The rows of a .json file, whichever of the three it is.

    What is none of them is read as lines, each of which then says what is wrong with it. Raises UnreadableFileError
    where the file cannot be opened.
    """
    with open_bytes(file) as binary:
        start = binary.read(_PIECE).removeprefix(codecs.BOM_UTF8).lstrip()
    if start.startswith(b"["):
        # On one line as a rule, which may be longer than a line may be.
        def read(columns: object) -> Entries:
            with open_bytes(file) as binary, decode_text(binary) as text:
                for index, value in enumerate(_iterate_array(file, text)):
                    yield build_json_row(value, f"{file.name}:{index + 1}", index, file.string_lines)

        return RowStream(file, read)
    with open_bytes(file) as binary:
        lines = iterate_lines(file, binary)
        first = next(lines, (0, b""))[1]
        single = next(lines, None) is None
    whole = None
    if single or not isinstance(_parse_json(first), dict):
        with open_bytes(file) as binary:
            content = binary.read(_WHOLE_LIMIT + 1)
        whole = _parse_json(content.removeprefix(codecs.BOM_UTF8)) if len(content) <= _WHOLE_LIMIT else None
    columns = _columns_from_object(whole) if isinstance(whole, dict) else None
    if not isinstance(whole, dict) or (single and columns is None):
        return open_json_lines(file)
    # An object that holds no columns is one row.
    rows = [whole] if columns is None else [dict(zip(whole, row, strict=True)) for row in zip(*columns, strict=True)]
    return RowStream(
        file,
        lambda columns: (Row(f"{file.name}:{index + 1}", index, values) for index, values in enumerate(rows)),
        count=len(rows),
    )


def _parse_json(text: bytes) -> object:
    """What ``text`` is in JSON; None where it is none."""
    try:
        return json.loads(text.decode())
    except (ValueError, RecursionError):
        return None


def _columns_from_object(content: Mapping[str, object]) -> Sequence[Sequence[object]] | None:
    """The columns of an object that holds them as lists of one length, or by the same rows' names; else None."""
    lists = [value for value in content.values() if isinstance(value, list)]
    named = [value for value in content.values() if isinstance(value, dict)]
    if lists and len(lists) == len(content) and len({len(values) for values in lists}) == 1:
        return lists
    if named and len(named) == len(content) and all(list(values) == list(named[0]) for values in named):
        return [list(values.values()) for values in named]
    return None


def _iterate_array(file: InputFile, text: io.TextIOWrapper) -> Iterator[object]:
    """The values of an array in order; only what has not been taken yet is in memory.

    Raises UnreadableFileError where the array is broken.
    """
    decoder = json.JSONDecoder()
    held, taken, released, has_ended = "", 0, 0, False

    def read_more(size: int) -> None:
        nonlocal held, taken, released, has_ended
        piece = text.read(size)
        held, released, taken, has_ended = held[taken:] + piece, released + taken, 0, not piece

    def skip_blanks() -> str:
        """The next character that is not white space, not taken yet; empty at the end of the file."""
        nonlocal taken
        while True:
            taken = _BLANKS.match(held, taken).end()  # type: ignore[union-attr]
            if taken < len(held) or has_ended:
                return held[taken : taken + 1]
            read_more(_PIECE)

    def take(expected: str) -> str:
        nonlocal taken
        found = skip_blanks()
        if not found or found not in expected:
            what = " or ".join(f"'{character}'" for character in expected)
            raise broken(f"expected {what}, found {repr(found) if found else 'the end of the file'}")
        taken += 1
        return found

    def broken(reason: str) -> UnreadableFileError:
        place = f"in what begins at character {released + taken + 1:,}"
        return UnreadableFileError(file.path, f"is not readable JSON: {reason}, {place}; write it again")

    take("[")
    is_open = skip_blanks() != "]"
    if not is_open:
        take("]")
    while is_open:
        skip_blanks()
        try:
            value, end = decoder.raw_decode(held, taken)
            # A number may go on after what is held.
            is_whole = end < len(held) or has_ended
        except json.JSONDecodeError as error:
            if has_ended or len(held) - taken > LINE_LIMIT:
                raise broken(error.msg) from error
            is_whole = False
        except (ValueError, RecursionError) as error:
            raise broken(str(error)) from error
        if is_whole:
            taken = end
            yield value
            is_open = take(",]") == ","
        else:
            # Twice as much each time, until the value is whole.
            read_more(max(_PIECE, len(held) - taken))
    if skip_blanks():
        raise broken("more text follows the end of the array")


FORMAT = RowFormat((".json",), open_json_document, is_compressible=True)
