"""Rows of .jsonl files: an object of JSON a line; and what every value of JSON that is a row has to be.

Python reads each line: DuckDB takes an object that names a key twice, and the first of both values.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from audit_pipeline.readers.file_bytes import InputFile, iterate_lines, open_bytes
from audit_pipeline.readers.rows import Row, Skipped
from audit_pipeline.readers.stream import Entries, RowFormat, RowStream


def open_json_lines(file: InputFile) -> RowStream:
    """Open a file that has one row per line."""

    def read(columns: object) -> Entries:
        with open_bytes(file) as binary:
            for index, (number, line) in enumerate(iterate_lines(file, binary)):
                yield parse_json_row(line, f"{file.name}:{number}", index, file.string_lines)

    return RowStream(file, read)


class JsonDecoder(json.JSONDecoder):
    """Reads values of JSON, and notes a key that an object, at any depth, names twice: ``repeated`` is the first such
    key of the last value, or None."""

    repeated: str | None

    def __init__(self) -> None:
        super().__init__(object_pairs_hook=self._build_object)

    def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
        """The value at ``idx``, and where it ends; raises ValueError or RecursionError."""
        self.repeated = None
        return super().raw_decode(s, idx)

    def explain_repeated(self) -> str:
        """What is wrong with the last value, if a key is ``repeated``."""
        return f"the key '{self.repeated}' is given twice in one object: keep one of them"

    def _build_object(self, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs) and self.repeated is None:
            counted = Counter(key for key, _ in pairs)
            self.repeated = next(key for key, count in counted.items() if count > 1)
        return values


_DECODER = JsonDecoder()


def parse_json_row(line: bytes, location: str, index: int, string_lines: str | None = None) -> Row | Skipped:
    """One line of JSON as a row; skipped where it is not an object in UTF-8.

    ``string_lines`` is the column of a line that is a JSON string and no object (MIMIR has such files).
    """
    try:
        value = _DECODER.decode(line.decode())
    except UnicodeDecodeError as error:
        return Skipped(location, index, f"invalid UTF-8 at byte {error.start} of the line")
    except json.JSONDecodeError as error:
        return Skipped(location, index, f"broken JSON: {error.msg} at character {error.pos + 1}")
    except (ValueError, RecursionError) as error:
        return Skipped(location, index, f"JSON that cannot be read: {error}")
    return build_json_row(value, _DECODER, location, index, string_lines)


def build_json_row(
    value: object, decoder: JsonDecoder, location: str, index: int, string_lines: str | None = None
) -> Row | Skipped:
    """A value of JSON that ``decoder`` has read as a row; skipped where it is no object, or names a key twice."""
    if decoder.repeated is not None:
        return Skipped(location, index, decoder.explain_repeated())
    if isinstance(value, dict):
        return Row(location, index, value)
    if string_lines is not None and isinstance(value, str):
        return Row(location, index, {string_lines: value})
    return Skipped(location, index, f"not a JSON object but {type(value).__name__}")


FORMAT = RowFormat((".jsonl",), open_json_lines, is_compressible=True)
