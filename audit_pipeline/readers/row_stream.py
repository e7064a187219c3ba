"""Streams of rows and texts of a file that can be read repeatedly, and the declaration of a format."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from audit_pipeline.readers.file_bytes import InputFile, convert_read_errors
from audit_pipeline.readers.text_rows import (
    Row,
    Skipped,
    SkippedRows,
    TextRow,
    UnreadableFileError,
    build_unusable_file_error,
    choose_column,
    find_column,
    list_columns,
    read_text_row,
    require_no_preferred_column,
)

Entries: TypeAlias = Iterator[Row | Skipped]

# If a file has no header, its columns are determined from this number of rows at the beginning.
_SEARCHED_ROWS = 1000
# The number of rows of a file is estimated from this number of texts at the beginning.
_COUNTED_TEXTS = 2000


@dataclass(frozen=True)
class RowFormat:
    """A format of files that contain rows, such as CSV.

    Attributes:
        suffixes: The suffixes of file names.
        open: A function that opens a file. It raises UnreadableFileError if the file does not have this format.
        is_compressible: True if the files may be compressed as .gz or .zst.
        has_columns: False if each row consists of a text only.
    """

    suffixes: tuple[str, ...]
    open: Callable[[InputFile], RowStream]
    is_compressible: bool = False
    has_columns: bool = True


@dataclass(frozen=True)
class RowCount:
    """The number of rows or texts of a file, exact or estimated.

    Attributes:
        rows: The number of rows or texts.
        is_estimated: True if the number is an estimate from the first rows.
    """

    rows: int
    is_estimated: bool


@dataclass(frozen=True)
class RowStream:
    """The rows of one file in their order. An unreadable row is yielded as :class:`Skipped` with the reason.

    Attributes:
        file: The file.
        read: A function that reads the file from the beginning. Its argument is the names of the columns to read, or
            None for all columns. Only columnar formats such as Parquet omit the other columns.
        columns: The columns in the file's header or schema, or None if the file has neither.
        count: The number of rows in the file's metadata, or None.
        note: A message to the user about the detected dialect, sheet or columns, or None if nothing was detected. It
            includes the remarks.
        remarks: Parts of the file that are skipped or changed, each with the reason.
    """

    file: InputFile
    read: Callable[[Sequence[str] | None], Entries]
    columns: tuple[str, ...] | None = None
    count: int | None = None
    note: str | None = None
    remarks: tuple[tuple[str, str], ...] = ()

    def entries(self, columns: Sequence[str] | None = None) -> Entries:
        """Yield every row of the file, including skipped rows.

        Args:
            columns: The columns to read in columnar formats. By default all.

        Raises:
            UnreadableFileError: If the file cannot be read to its end, or contains no rows.
        """
        is_empty = True
        with convert_read_errors(self.file):
            for entry in self.read(columns):
                is_empty = False
                yield entry
        if is_empty:
            raise UnreadableFileError(self.file.path, "the file contains no rows")

    def find_columns(self) -> Sequence[str]:
        """Return the columns of the file. If it has no header, they are those of its first 1,000 rows.

        Raises:
            UnreadableFileError: As :meth:`entries`.
        """
        if self.columns is not None:
            return self.columns
        return list_columns(itertools.islice(self.entries(), _SEARCHED_ROWS))

    def estimate_total(self, rows_read: int) -> RowCount:
        """Estimate the total number of rows when ``rows_read`` rows have been read and more rows follow."""
        if self.count is not None:
            return RowCount(self.count, is_estimated=False)
        share = self.file.meter.share
        if not share:
            return RowCount(rows_read, is_estimated=True)
        return RowCount(max(rows_read, round(rows_read / share)), is_estimated=True)


class TextStream:
    """The texts of a file in file order.

    Attributes:
        rows: The rows of the file.
        skipped: The rows that have been skipped so far.
        n_yielded: The number of texts that have been yielded so far.
    """

    def __init__(self, rows: RowStream, column: str | None, extra_columns: Sequence[str] = ()) -> None:
        """Store the rows and the columns to read. The file is read only when texts are requested.

        Args:
            rows: The rows of the file.
            column: The column with the text. None selects ``text``, ``input`` or the only column.
            extra_columns: Other columns that are read if they exist.
        """
        self.rows = rows
        self.skipped = SkippedRows()
        self.n_yielded = 0
        self._column = column
        self._extra_columns = extra_columns

    @property
    def scores_parts(self) -> bool:
        """Return True if only parts of the texts are scored."""
        return False

    @property
    def note(self) -> str | None:
        """Return a message to the user about what the texts are made of, or None."""
        return None

    def __iter__(self) -> Iterator[TextRow]:
        """Read the file from the beginning and yield every text. Rows without a usable text are added to ``skipped``.

        Raises:
            UnreadableFileError: As :meth:`entries`, or if no row can be used.
        """
        self.skipped = SkippedRows()
        self.n_yielded = 0
        for entry in self.entries():
            if isinstance(entry, Skipped):
                self.skipped.add(entry)
            else:
                self.n_yielded += 1
                yield entry
        if not self.n_yielded:
            raise build_unusable_file_error(self.rows.file.path, self.skipped)

    def estimate_total(self) -> RowCount:
        """Estimate the total number of texts from the rows that have been read so far."""
        rows_read = self.n_yielded + self.skipped.count
        rows = self.rows.estimate_total(rows_read)
        return RowCount(
            round(rows.rows * self.n_yielded / max(rows_read, 1)), rows.is_estimated or self.skipped.count > 0
        )

    def estimate_rows(self) -> RowCount:
        """Return the number of rows of the file.

        The number is exact for short files and for files with the number in their metadata. Otherwise it is estimated
        from the first rows.

        Raises:
            UnreadableFileError: As :meth:`__iter__`, for the first rows.
        """
        texts = iter(self)
        for _ in itertools.islice(texts, _COUNTED_TEXTS):
            pass
        has_more = next(texts, None) is not None
        rows_read = self.n_yielded + self.skipped.count
        if has_more:
            return self.rows.estimate_total(rows_read)
        return RowCount(rows_read, is_estimated=False)

    def include_column(self, name: str, *, required: bool) -> str:
        """Add a column to the columns that later iterations read.

        Args:
            name: The column, regardless of upper and lower case. It is searched in the header, or in the first 1,000
                rows if the file has no header.
            required: If True, a missing column is an error.

        Returns:
            The name in the file, or ``name`` if the column is missing.

        Raises:
            UnreadableFileError: If a required column is missing.
        """
        columns = self.rows.find_columns()
        column = find_column(columns, name)
        if column is None and required:
            choose_column(self.rows.file.path, columns, name)
        self._extra_columns = [*self._extra_columns, column or name]
        return column or name

    def entries(self) -> Iterator[TextRow | Skipped]:
        """Yield every row with its text, or with the reason for skipping it.

        Raises:
            UnreadableFileError: If :meth:`RowStream.entries` raises it, or if no row has the text column. Also if the
                user named no column and a later row shows that the chosen column was wrong (see
                :func:`require_no_preferred_column`).
        """
        if self.rows.columns is None:
            yield from self._search_column()
            return
        column = choose_column(self.rows.file.path, self.rows.columns, self._column)
        selected = [name for name in dict.fromkeys((column, *self._extra_columns)) if name in self.rows.columns]
        for entry in self.rows.entries(selected):
            yield read_text_row(entry, column)

    def _search_column(self) -> Iterator[TextRow | Skipped]:
        """Yield every row of a file without a header. The first rows decide which column contains the text."""
        path = self.rows.file.path
        entries = self.rows.entries()
        first_entries = list(itertools.islice(entries, _SEARCHED_ROWS))
        has_more = len(first_entries) == _SEARCHED_ROWS
        names = list_columns(first_entries)
        if all(isinstance(entry, Skipped) for entry in first_entries):
            for entry in first_entries:
                yield read_text_row(entry, "")
            if has_more:
                raise UnreadableFileError(path, f"none of the first {_SEARCHED_ROWS:,} rows can be read")
            return
        column = self._column
        if column is None or not has_more:
            # A column that the user named may occur only after the first rows.
            column = choose_column(path, names, column)
        has_column = column in names
        for entry in itertools.chain(first_entries, entries):
            if isinstance(entry, Row):
                has_column = has_column or column in entry.values
                if self._column is None:
                    require_no_preferred_column(path, entry, column)
            yield read_text_row(entry, column)
        if not has_column:
            choose_column(path, names, column)
