"""What a row of a user's file is, which of its columns holds the text, and why a text cannot be used.

What belongs here: one row at a time, and the choice of a column. What does not: files and formats (formats.py and the
module of each format), and what a row means (sources, benchmarks, the commands).
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from audit_pipeline.errors import DataError
from audit_pipeline.whole_files.legible import count_no_characters

TXT_COLUMN = "text"
EMPTY = "is empty"
"""How the reason ends why a row without any text is skipped."""
USUAL_TEXT_COLUMNS = ("text", "input")

_NAMED_SKIPS = 1000
_WORDS_OF_A_NAME = 5
_LEAST_NO_CHARACTERS, _MOST_NO_CHARACTERS = 20, 0.5
# How many rows are searched for the text's column if the file itself does not name its columns.
LOOKED_AT = 1000


@dataclass(frozen=True, slots=True)
class Row:
    """One readable row: its location (``texts.jsonl:3``), its 0-based position among all rows, its values."""

    location: str
    index: int
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Skipped:
    """One row that could not be used, and why; it keeps its position, so later rows keep theirs."""

    location: str
    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class TextRow:
    """One row with a usable text; ``values`` are its columns."""

    location: str
    index: int
    text: str
    values: Mapping[str, object]


@dataclass
class SkippedRows:
    """Rows that could not be used: how many there are, and the first 1,000 of them."""

    count: int = 0
    first: list[Skipped] = field(default_factory=list)

    def add(self, row: Skipped) -> None:
        self.count += 1
        if len(self.first) < _NAMED_SKIPS:
            self.first.append(row)


@dataclass(frozen=True)
class RowFile:
    """The rows of a file, and those left out; ``note`` says how it was read, where its name does not."""

    rows: tuple[Row, ...]
    skipped: tuple[Skipped, ...]
    note: str | None = None


class UnreadableFileError(DataError):
    """A file, or the rest of it, that cannot be read; ``reason`` says why, without the file's name."""

    def __init__(self, name: object, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.reason = reason


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


def json_row(line: bytes, location: str, index: int, string_lines: str | None = None) -> Row | Skipped:
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
    return row_of(value, _DECODER, location, index, string_lines)


def row_of(
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


def texts_of(
    entries: Iterable[Row | Skipped], name: object, column: str | None, columns: Sequence[str] | None = None
) -> Iterator[TextRow | Skipped]:
    """The texts in ``entries``, and the rows that have none, in their order.

    Without ``column`` it is ``text``, else ``input``, else the only column there is. ``columns`` are all that the file
    has, where it names them itself; else they are those of its first 1,000 rows. Raises UnreadableFileError where no
    row has the column.
    """
    entries = iter(entries)
    first = [] if columns is not None else list(itertools.islice(entries, LOOKED_AT))
    rows = [row for row in first if isinstance(row, Row)]
    if columns is None and not rows:
        # No row to take the columns from: report why.
        yield from (entry for entry in first if isinstance(entry, Skipped))
        if len(first) == LOOKED_AT:
            raise UnreadableFileError(name, f"none of its first {LOOKED_AT:,} rows can be read")
        return
    known = columns if columns is not None else column_names(rows)
    goes_on = columns is None and len(first) == LOOKED_AT
    chosen = column if column is not None and goes_on else choose_column(name, known, column)
    found = chosen in known
    for entry in itertools.chain(first, entries):
        found = found or (isinstance(entry, Row) and chosen in entry.values)
        yield entry if isinstance(entry, Skipped) else text_row(entry, chosen)
    if not found:
        choose_column(name, known, chosen)


def text_row(row: Row, column: str) -> TextRow | Skipped:
    """The row with the text in ``column``, or why there is none."""
    text, problem = text_of(row.values, column)
    if problem is not None:
        return Skipped(row.location, row.index, problem)
    return TextRow(row.location, row.index, text, row.values)


def choose_column(name: object, columns: Sequence[str], column: str | None) -> str:
    """``column``, or the usual text column where it is None.

    Raises UnreadableFileError, naming the file and its columns.
    """
    names = ", ".join(columns) or "none"
    if column is not None:
        if column not in columns:
            raise UnreadableFileError(name, f"no column '{column}'; the columns are: {names}")
        return column
    for usual in USUAL_TEXT_COLUMNS:
        if (found := find_column(columns, usual)) is not None:
            return found
    if len(columns) == 1:
        if len(columns[0].split()) > _WORDS_OF_A_NAME:
            raise UnreadableFileError(
                name, f"its only column is called '{columns[0]}': if that is a text, put the line text above it"
            )
        return columns[0]
    raise UnreadableFileError(name, f"say which column holds the text; the columns are: {names}")


def find_column(columns: Sequence[str], name: str) -> str | None:
    """The column of that name, else the only one that differs from it in capitals alone; None where there is none."""
    alike = [column for column in columns if column.casefold() == name.casefold()]
    return name if name in columns else alike[0] if len(alike) == 1 else None


def column_names(rows: Iterable[Row]) -> list[str]:
    """Every column that a row has, in order of first occurrence."""
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
    """Why ``value`` is not a text (null, not a string, blank, not valid Unicode, hardly any characters); None where it
    is one. Whether letters form words is not asked: rows are texts that the user gives."""
    if value is None:
        return "is null"
    if not isinstance(value, str):
        return f"is not a string but {type(value).__name__}"
    if not value.strip():
        return EMPTY
    strange = count_no_characters(value)
    if strange >= _LEAST_NO_CHARACTERS and strange > _MOST_NO_CHARACTERS * len(value):
        return "is for the most part control, private-use or replacement characters"
    return unicode_problem(value)


def unicode_problem(value: str) -> str | None:
    """Why ``value`` cannot be written as UTF-8 (a lone surrogate); None where it can."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        return f"is not valid Unicode: lone surrogate at character {error.start}"
    return None


def build_unusable_file_error(name: object, skipped: SkippedRows) -> UnreadableFileError:
    """The error for a file of which no row can be used."""
    first = skipped.first[0]
    return UnreadableFileError(
        name, f"none of its {skipped.count} rows can be used; the first, {first.location}: {first.reason}"
    )
