"""Rows of users' files: the choice of the text column, and the checks of texts and names."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from audit_pipeline.errors import DataError
from audit_pipeline.readers.whole_files.legibility import count_illegible_characters

TXT_COLUMN = "text"
EMPTY = "is empty"
"""The end of the reason for skipping a row with an empty text."""
USUAL_TEXT_COLUMNS = ("text", "input")

_MAX_STORED_SKIPS = 1000
_MAX_NAME_WORDS = 5
_HOW_TO_NAME_COLUMN = (
    "Name the text column with --text-column (for a corpus to search: --corpus-column; in config/: text_column)."
)
_MIN_ILLEGIBLE_CHARACTERS = 20
_MAX_ILLEGIBLE_SHARE = 0.5


# The class is not frozen, because building a frozen row takes as long as reading it from a Parquet file.
@dataclass(slots=True)
class Row:
    """A readable row.

    Attributes:
        location: The location of the row for messages, such as ``texts.jsonl:3``.
        index: The position among all rows of the file, from 0, including skipped rows.
        values: The values by column.
    """

    location: str
    index: int
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that cannot be used.

    Attributes:
        location: The location of the row for messages, such as ``texts.jsonl:3``.
        index: The position among all rows of the file, from 0.
        reason: The reason for skipping it. The version of labelled rows includes the reasons, so that a changed wording
            makes built benchmarks stale.
    """

    location: str
    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class TextRow:
    """A row with a usable text.

    Attributes:
        location: The location of the row for messages, such as ``texts.jsonl:3``.
        index: The position among all rows of the file, from 0.
        text: The text that a model reads.
        values: All values of the row by column.
        spans: Start and end (exclusive) of each scored part of the text, in characters. None means the whole text.
        source_text: The text before a model's chat template was applied, or None if there is no template.
    """

    location: str
    index: int
    text: str
    values: Mapping[str, object]
    spans: Sequence[tuple[int, int]] | None = None
    source_text: str | None = None


@dataclass
class SkippedRows:
    """The number of rows that cannot be used, and the first 1,000 such rows."""

    count: int = 0
    first: list[Skipped] = field(default_factory=list)

    def add(self, row: Skipped) -> None:
        """Count a skipped row, and store it if fewer than 1,000 rows are stored so far."""
        self.count += 1
        if len(self.first) < _MAX_STORED_SKIPS:
            self.first.append(row)


@dataclass(frozen=True)
class RowFile:
    """All rows of a file.

    Attributes:
        rows: The readable rows.
        skipped: The skipped rows.
        remarks: Parts of the file that are skipped or changed, each with the reason.
    """

    rows: tuple[Row, ...]
    skipped: tuple[Skipped, ...]
    remarks: tuple[tuple[str, str], ...] = ()


class UnusableRowError(Exception):
    """An error for a row that cannot be used. The message contains the reason."""


class UnreadableFileError(DataError):
    """An error for a file that cannot be read completely. ``reason`` is the message without the file name."""

    def __init__(self, name: object, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.reason = reason


def read_text_row(row: Row | Skipped, column: str) -> TextRow | Skipped:
    """Return a row with its text from a column, or a skipped row with the reason if the text is not usable."""
    if isinstance(row, Skipped):
        return row
    try:
        return TextRow(row.location, row.index, read_text(row.values, column), row.values)
    except UnusableRowError as error:
        return Skipped(row.location, row.index, str(error))


def choose_column(name: object, columns: Sequence[str], column: str | None) -> str:
    """Return the column with the text.

    Args:
        name: The name of the file for error messages.
        columns: The columns of the file.
        column: The text column that the user named, or None.

    Returns:
        ``column``. If it is None: the column ``text`` or ``input``, or else the only column.

    Raises:
        UnreadableFileError: If the column is missing, or several columns are possible.
    """
    names = ", ".join(columns) or "none"
    if column is not None:
        if column not in columns:
            raise UnreadableFileError(name, f"there is no column '{column}'; the columns are: {names}")
        return column
    for usual_name in USUAL_TEXT_COLUMNS:
        usual_column = find_column(columns, usual_name)
        if usual_column is not None:
            return usual_column
    if len(columns) == 1:
        if len(columns[0].split()) > _MAX_NAME_WORDS:
            raise UnreadableFileError(
                name,
                f"the only column has the name '{columns[0]}'. If this is a text and not a name, insert a first line "
                "'text'.",
            )
        return columns[0]
    raise UnreadableFileError(
        name, f"it is unclear which column contains the text. The columns are: {names}. {_HOW_TO_NAME_COLUMN}"
    )


def require_no_preferred_column(name: object, row: Row, chosen: str) -> None:
    """Check that a later row has no text column that is preferred over the column chosen from the first rows.

    For example, the column ``text`` is preferred over ``input``. Without this check, the texts of later rows could be
    read from the wrong column or be skipped.

    Raises:
        UnreadableFileError: If the row has such a column.
    """
    for usual_name in USUAL_TEXT_COLUMNS:
        if chosen.casefold() == usual_name:
            return
        later = find_column(tuple(row.values), usual_name)
        if later == chosen:
            return
        if later is not None:
            raise UnreadableFileError(
                name,
                f"the first rows have no column '{later}', so the texts were read from the column '{chosen}'. "
                f"But {row.location} has a column '{later}', so it is unclear which column contains the text. "
                f"{_HOW_TO_NAME_COLUMN}",
            )


def find_column(columns: Sequence[str], name: str) -> str | None:
    """Return the column with a name.

    Returns:
        ``name`` if the column exists. Otherwise the column that differs from it only in upper and lower case, or None
        if there is no such column or several.
    """
    if name in columns:
        return name
    similar = [column for column in columns if column.casefold() == name.casefold()]
    return similar[0] if len(similar) == 1 else None


def list_columns(entries: Iterable[Row | Skipped]) -> list[str]:
    """Return the names of the columns of all rows, in order of first occurrence."""
    rows = (entry.values for entry in entries if isinstance(entry, Row))
    return list(dict.fromkeys(itertools.chain.from_iterable(rows)))


def require_unique_columns(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Return the column names of a file as a tuple.

    Raises:
        UnreadableFileError: If two names are equal.
    """
    if len(set(names)) != len(names):
        raise UnreadableFileError(path, f"the header contains a column name twice: {', '.join(names)}")
    return tuple(names)


def clean_header(path: Path, cells: Iterable[object]) -> list[str]:
    """Return the column names in the header of a table, without surrounding blanks and invisible characters.

    A column without a name has an empty string. Its cells are not read.

    Raises:
        UnreadableFileError: If two names are equal.
    """
    names = [str(cell).strip().strip("\ufeff\u200b") for cell in cells]
    require_unique_columns(path, [name for name in names if name])
    return names


def read_text(values: Mapping[str, object], column: str) -> str:
    """Return the text in a column.

    Raises:
        UnusableRowError: If the column is missing or its value is not a usable text.
    """
    if column not in values:
        raise UnusableRowError(f"no column '{column}'")
    value = values[column]
    problem = explain_unusable_text(value)
    if problem is not None or not isinstance(value, str):
        raise UnusableRowError(f"column '{column}' {problem}")
    return value


def read_name(values: Mapping[str, object], column: str) -> str | None:
    """Return the name in a column, such as a title or a group.

    Returns:
        The name, or None if the value is missing, null or blank.

    Raises:
        UnusableRowError: If the value is neither a usable text nor a whole number.
    """
    value = values.get(column)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return read_text(values, column)


def read_own_id(values: Mapping[str, object], column: str) -> str | None:
    """Return the id of a row in the user's file, or None if it is missing or cannot be used."""
    try:
        return read_name(values, column)
    except UnusableRowError:
        return None


def explain_unusable_text(value: object) -> str | None:
    """Return the reason why a value is not a usable text, as the end of a sentence such as "is empty", or None.

    A usable text is a valid Unicode string with mostly printable characters. It need not be meaningful text, because
    users choose the texts of their rows.
    """
    if value is None:
        return "is null"
    if not isinstance(value, str):
        return f"is not a string but {type(value).__name__}"
    if not value.strip():
        return EMPTY
    n_illegible = count_illegible_characters(value)
    if n_illegible >= _MIN_ILLEGIBLE_CHARACTERS and n_illegible > _MAX_ILLEGIBLE_SHARE * len(value):
        return "consists mostly of control, private-use or replacement characters"
    return explain_invalid_unicode(value)


def explain_invalid_unicode(value: str) -> str | None:
    """Return the reason why a string is not valid Unicode, as the end of a sentence, or None if it is valid."""
    try:
        if not value.isascii():
            value.encode()
    except UnicodeEncodeError as error:
        return f"is not valid Unicode: lone surrogate at character {error.start}"
    return None


def build_unusable_file_error(name: object, skipped: SkippedRows) -> UnreadableFileError:
    """Build the error for a file without a usable row."""
    first = skipped.first[0]
    return UnreadableFileError(
        name, f"none of the {skipped.count} rows can be used. The first row is {first.location}: {first.reason}"
    )
