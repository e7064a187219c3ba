"""The rows of a file as a stream that can be read more than once, its texts, and the declaration of a format."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from audit_pipeline.readers.file_bytes import InputFile, faults_as_errors
from audit_pipeline.readers.text_rows import (
    Row,
    Skipped,
    SkippedRows,
    TextRow,
    UnreadableFileError,
    build_unusable_file_error,
    choose_column,
    column_names,
    find_column,
    read_text_row,
    require_no_more_usual_column,
)

Entries: TypeAlias = Iterator[Row | Skipped]

# How many rows are searched for a column if the file itself does not name its columns.
_SEARCHED = 1000
_COUNTED = 2000


@dataclass(frozen=True)
class RowFormat:
    """A format of files of rows: the suffixes of its names, and what opens a file.

    ``is_compressible``: its files are also read as .gz and .zst. ``has_columns``: False where a row is a text alone.
    ``open`` raises UnreadableFileError where the file cannot be opened as one of the format.
    """

    suffixes: tuple[str, ...]
    open: Callable[[InputFile], RowStream]
    is_compressible: bool = False
    has_columns: bool = True


@dataclass(frozen=True)
class Expected:
    """How many rows a file has: ``rows``, counted or, where ``estimated``, reckoned from its beginning."""

    rows: int
    estimated: bool


@dataclass(frozen=True)
class RowStream:
    """The rows of one file, readable or skipped with a reason, in their order.

    ``read`` reads the file anew each time; it gets the columns to read (None: all), and a format that keeps
    columns apart leaves the others out. ``columns`` are the file's, where it names them in one place, ``count`` is the
    number of its rows, where it says it. ``note`` says how the file was read, where that is not plain from its name.
    ``remarks`` are parts of the file that are not read as they stand, each with the reason; the note has them too.
    """

    file: InputFile
    read: Callable[[Sequence[str] | None], Entries]
    columns: tuple[str, ...] | None = None
    count: int | None = None
    note: str | None = None
    remarks: tuple[tuple[str, str], ...] = ()

    def entries(self, columns: Sequence[str] | None = None) -> Entries:
        """Every row; of formats that keep columns apart only ``columns``, where given.

        Raises UnreadableFileError where the file, or the rest of it, cannot be read, and where it holds no row.
        """
        empty = True
        with faults_as_errors(self.file):
            for entry in self.read(columns):
                empty = False
                yield entry
        if empty:
            raise UnreadableFileError(self.file.path, "the file holds no rows")

    def estimate_total(self, rows_read: int) -> Expected:
        """How many rows there are, once the first ``rows_read`` have been read and more are to come."""
        if self.count is not None:
            return Expected(self.count, estimated=False)
        share = self.file.meter.share
        return Expected(max(rows_read, round(rows_read / share)) if share else rows_read, estimated=True)


class TextStream:
    """The texts of a file, in file order; ``skipped`` are the rows without a text that have been read so far,
    ``taken`` is how many texts have been taken.

    ``column`` holds the text (None: ``text``, else ``input``, else the only column); of the other columns a row
    keeps at least those of ``extra_columns`` that exist.
    """

    def __init__(self, rows: RowStream, column: str | None, extra_columns: Sequence[str] = ()) -> None:
        self.rows = rows
        self.skipped = SkippedRows()
        self.taken = 0
        self._column, self._extra_columns = column, extra_columns

    def __iter__(self) -> Iterator[TextRow]:
        """Every text, from the beginning.

        Raises UnreadableFileError as :meth:`RowStream.entries` does, and if no row has the column or none can be used.
        """
        self.skipped, self.taken = SkippedRows(), 0
        for entry in self.entries():
            if isinstance(entry, Skipped):
                self.skipped.add(entry)
            else:
                self.taken += 1
                yield entry
        if not self.taken:
            raise build_unusable_file_error(self.rows.file.path, self.skipped)

    def estimate_total(self) -> Expected:
        """How many texts there are, estimated from those that have been taken."""
        rows_read = self.taken + self.skipped.count
        rows = self.rows.estimate_total(rows_read)
        return Expected(round(rows.rows * self.taken / max(rows_read, 1)), rows.estimated or self.skipped.count > 0)

    def estimate_rows(self) -> Expected:
        """How many rows there are: counted if the file says it or is short, else estimated from its first rows.

        Raises as :meth:`__iter__` does, for these rows.
        """
        texts = iter(self)
        for _ in itertools.islice(texts, _COUNTED):
            pass
        goes_on = next(texts, None) is not None
        rows_read = self.taken + self.skipped.count
        return self.rows.estimate_total(rows_read) if goes_on else Expected(rows_read, estimated=False)

    def include_column(self, name: str, *, required: bool) -> str:
        """The column called so, or so but for capitals, among those that the file names or its first 1,000 rows have;
        it is read from now on. ``name`` where there is none, and UnreadableFileError if it is ``required``."""
        columns: Sequence[str] | None = self.rows.columns
        if columns is None:
            columns = column_names(itertools.islice(self.rows.entries(), _SEARCHED))
        found = find_column(columns, name)
        if found is None and required:
            choose_column(self.rows.file.path, columns, name)
        self._extra_columns = [*self._extra_columns, found or name]
        return found or name

    def entries(self) -> Iterator[TextRow | Skipped]:
        """Yield every row, with its text or the reason why there is none.

        Raises:
            UnreadableFileError: As :meth:`RowStream.entries`; if no row has the column; or if nobody named the column,
                and a later row has one that would have been chosen in its place.
        """
        path, columns, column = self.rows.file.path, self.rows.columns, self._column
        if columns is not None:
            column = choose_column(path, columns, column)
            wanted = [name for name in dict.fromkeys((column, *self._extra_columns)) if name in columns]
            yield from (read_text_row(entry, column) for entry in self.rows.entries(wanted))
            return
        entries = self.rows.entries()
        first = list(itertools.islice(entries, _SEARCHED))
        goes_on = len(first) == _SEARCHED
        names = column_names(first)
        if all(isinstance(entry, Skipped) for entry in first):
            yield from (read_text_row(entry, "") for entry in first)
            if goes_on:
                raise UnreadableFileError(path, f"none of its first {_SEARCHED:,} rows can be read")
            return
        # A column that is named may begin after the first rows.
        is_chosen = column is None
        column = column if column is not None and goes_on else choose_column(path, names, column)
        found = column in names
        for entry in itertools.chain(first, entries):
            if isinstance(entry, Row):
                found = found or column in entry.values
                if is_chosen:
                    require_no_more_usual_column(path, entry, column)
            yield read_text_row(entry, column)
        if not found:
            choose_column(path, names, column)
