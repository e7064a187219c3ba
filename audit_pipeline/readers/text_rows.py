"""What a row of a user's file is, which of its columns holds the text, and why a text cannot be used."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from audit_pipeline.errors import DataError
from audit_pipeline.readers.whole_files.legible import count_illegible_characters

TXT_COLUMN = "text"
EMPTY = "is empty"
"""How the reason ends why a row without any text is skipped."""
USUAL_TEXT_COLUMNS = ("text", "input")

_NAMED_SKIPS = 1000
_WORDS_OF_A_NAME = 5
_HOW_TO_SAY = "(--text-column NAME; of a corpus that is searched --corpus-column; in config/ text_column)"
_LEAST_NO_CHARACTERS, _MOST_NO_CHARACTERS = 20, 0.5


# Not frozen, which would take as long as reading a row of a Parquet file.
@dataclass(slots=True)
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
    """The rows of a file, those left out, and parts of the file that are not read as they stand, with the reason."""

    rows: tuple[Row, ...]
    skipped: tuple[Skipped, ...]
    remarks: tuple[tuple[str, str], ...] = ()


class UnusableRowError(Exception):
    """Why a row cannot be used."""


class UnreadableFileError(DataError):
    """A file, or the rest of it, that cannot be read; ``reason`` says why, without the file's name."""

    def __init__(self, name: object, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.reason = reason


def read_text_row(row: Row | Skipped, column: str) -> TextRow | Skipped:
    """The row with the text in ``column``, or why there is none."""
    if isinstance(row, Skipped):
        return row
    try:
        return TextRow(row.location, row.index, read_text(row.values, column), row.values)
    except UnusableRowError as error:
        return Skipped(row.location, row.index, str(error))


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
    raise UnreadableFileError(name, f"say which column holds the text; the columns are: {names} {_HOW_TO_SAY}")


def require_no_more_usual_column(name: object, row: Row, chosen: str) -> None:
    """Raise UnreadableFileError if a row has a more usual text column than the one that the first rows had.

    Texts would be read from two columns otherwise, or the later rows' texts would be left out.
    """
    for usual in USUAL_TEXT_COLUMNS:
        later = chosen if chosen.casefold() == usual else find_column(tuple(row.values), usual)
        if later == chosen:
            return
        if later is not None:
            raise UnreadableFileError(
                name,
                f"its first rows have no column '{later}', and '{chosen}' was read until {row.location}, which has it: "
                f"say which column holds the text {_HOW_TO_SAY}",
            )


def find_column(columns: Sequence[str], name: str) -> str | None:
    """The column of that name, else the only one that differs from it in capitals alone; None where there is none."""
    alike = [column for column in columns if column.casefold() == name.casefold()]
    return name if name in columns else alike[0] if len(alike) == 1 else None


def column_names(entries: Iterable[Row | Skipped]) -> list[str]:
    """Every column that a row has, in order of first occurrence."""
    rows = (entry.values for entry in entries if isinstance(entry, Row))
    return list(dict.fromkeys(itertools.chain.from_iterable(rows)))


def require_unique_columns(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    """The names of a file's columns; raises UnreadableFileError where two are the same."""
    if len(set(names)) != len(names):
        raise UnreadableFileError(path, f"its header names a column twice: {', '.join(names)}")
    return tuple(names)


def clean_header(path: Path, cells: Iterable[object]) -> list[str]:
    """The names of columns in the first row of a table: without the blanks and invisible marks around them, empty for a
    column that is not read. Raises UnreadableFileError where two are the same."""
    names = [str(cell).strip().strip("\ufeff\u200b") for cell in cells]
    require_unique_columns(path, [name for name in names if name])
    return names


def read_text(values: Mapping[str, object], column: str) -> str:
    """The text in ``column``; raises UnusableRowError where there is none."""
    if column not in values:
        raise UnusableRowError(f"no column '{column}'")
    value = values[column]
    problem = explain_unusable_text(value)
    if problem is not None or not isinstance(value, str):
        raise UnusableRowError(f"column '{column}' {problem}")
    return value


def read_name(values: Mapping[str, object], column: str) -> str | None:
    """The name in ``column`` (a title, a group), a string or a whole number; None where it is null, blank or not there.

    Raises UnusableRowError for anything else.
    """
    value = values.get(column)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else read_text(values, column)


def read_own_id(values: Mapping[str, object], column: str) -> str | None:
    """Return the user's own id of a row, or None. No value in this column makes a row unusable."""
    try:
        return read_name(values, column)
    except UnusableRowError:
        return None


def explain_unusable_text(value: object) -> str | None:
    """Why ``value`` is not a text (null, not a string, blank, not valid Unicode, hardly any characters); None where it
    is one. Whether letters form words is not asked: rows are texts that the user gives."""
    if value is None:
        return "is null"
    if not isinstance(value, str):
        return f"is not a string but {type(value).__name__}"
    if not value.strip():
        return EMPTY
    strange = count_illegible_characters(value)
    if strange >= _LEAST_NO_CHARACTERS and strange > _MOST_NO_CHARACTERS * len(value):
        return "is for the most part control, private-use or replacement characters"
    return explain_invalid_unicode(value)


def explain_invalid_unicode(value: str) -> str | None:
    """Why ``value`` cannot be written as UTF-8 (a lone surrogate); None where it can."""
    try:
        if not value.isascii():
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
