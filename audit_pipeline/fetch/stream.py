"""The rows of a file as a stream that can be read more than once, one by one or side by side, and its texts.

What belongs here: what every format offers, and what holds for all of them; a piece of rows side by side, as columns,
for code that reads hundreds of thousands. What does not: any one format and how its columns are read (its module),
reading a whole file (the table of formats), what a cell means.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.fetch.file_bytes import InputFile, faults_as_errors
from audit_pipeline.fetch.rows import (
    LOOKED_AT,
    Row,
    Skipped,
    SkippedRows,
    TextRow,
    UnreadableFileError,
    build_unusable_file_error,
    choose_column,
    column_names,
    find_column,
    texts_of,
    unicode_problem,
)

ROWS_OF_A_PIECE = 256

Cells: TypeAlias = pa.Array | Sequence[object]
"""The cells of a column: an array of strings, whole numbers, floats of 64 bits or truth values; or, where they are
anything else or of several types, the values that a Row has."""

_TYPES: Mapping[type, pa.DataType] = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows that follow each other in a file: ``columns`` of n cells each, by name, null where a row has no such cell.

    ``locations`` [n] (string) and ``indices`` [n] (int64) are those of :class:`Row`; ``skipped`` are the rows between
    them that cannot be read.
    """

    columns: Mapping[str, Cells]
    locations: pa.Array
    indices: pa.Array
    skipped: tuple[Skipped, ...] = ()

    def __len__(self) -> int:
        return len(self.locations)

    def entries(self) -> Iterator[Row | Skipped]:
        """The same rows one by one, those that cannot be read in their places."""
        cells = [cells.to_pylist() if isinstance(cells, pa.Array) else cells for cells in self.columns.values()]
        values = zip(*cells, strict=True) if cells else itertools.repeat((), len(self))
        rows = (
            Row(location, index, dict(zip(self.columns, row, strict=True)))
            for location, index, row in zip(self.locations.to_pylist(), self.indices.to_pylist(), values, strict=True)
        )
        return heapq.merge(rows, self.skipped, key=lambda entry: entry.index)


def pieces_of(entries: Iterable[Row | Skipped]) -> Iterator[Piece]:
    """Rows in their order, side by side."""
    entries = iter(entries)
    while rows := list(itertools.islice(entries, ROWS_OF_A_PIECE)):
        yield piece_of(rows)


def piece_of(entries: Iterable[Row | Skipped]) -> Piece:
    """These rows side by side; one that holds a string which is not valid Unicode cannot be read."""
    entries = list(entries)
    rows = [entry for entry in entries if isinstance(entry, Row)]
    values = [row.values for row in rows]
    names = dict.fromkeys(itertools.chain.from_iterable(values))
    try:
        columns = {name: _cells([row.get(name) for row in values]) for name in names}
    except UnicodeEncodeError:
        return piece_of(_skip_if_invalid(entry) for entry in entries)
    return Piece(
        columns,
        pa.array([row.location for row in rows], pa.string()),
        pa.array([row.index for row in rows], pa.int64()),
        tuple(entry for entry in entries if isinstance(entry, Skipped)),
    )


def locations_of(name: str, numbers: pa.Array) -> pa.Array:
    """Where rows are in the file ``name``, by the numbers of their lines, or rows."""
    return pc.binary_join_element_wise(pa.scalar(name), numbers.cast(pa.string()), ":")


def _cells(values: Sequence[object]) -> Cells:
    """Raises UnicodeEncodeError for a lone surrogate in a string."""
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return pa.nulls(len(values), pa.string())
    if len(kinds) == 1 and (kind := _TYPES.get(*kinds)) is not None:
        try:
            return pa.array(values, kind)
        except OverflowError:
            return values
    "".join(value for value in values if isinstance(value, str)).encode()
    return values


def _skip_if_invalid(entry: Row | Skipped) -> Row | Skipped:
    if isinstance(entry, Skipped):
        return entry
    for name, value in entry.values.items():
        problem = unicode_problem(value) if isinstance(value, str) else None
        if problem is not None:
            return Skipped(entry.location, entry.index, f"column '{name}' {problem}")
    return entry


Entries = Iterator[Row | Skipped]
Read = Iterator[Row | Skipped] | Iterator[Piece]
"""What a format gives: rows one by one, or side by side where it keeps them so."""

_GLANCED_AT = 2000


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
    """

    file: InputFile
    read: Callable[[Sequence[str] | None], Read]
    columns: tuple[str, ...] | None = None
    count: int | None = None
    note: str | None = None

    def pieces(self) -> Iterator[Piece]:
        """Every row of the file, side by side, a piece at a time; raises as :meth:`entries` does."""
        found = self._read(None)
        for first in found:
            every = itertools.chain([first], found)
            # A format gives either pieces or rows.
            yield from cast(Iterator[Piece], every) if isinstance(first, Piece) else pieces_of(cast(Entries, every))

    def entries(self, columns: Sequence[str] | None = None) -> Entries:
        """Every row; of formats that keep columns apart only ``columns``, where given.

        Raises UnreadableFileError where the file, or the rest of it, cannot be read, and where it holds no row.
        """
        for item in self._read(columns):
            if isinstance(item, Piece):
                yield from item.entries()
            else:
                yield item

    def _read(self, columns: Sequence[str] | None) -> Iterator[Row | Skipped | Piece]:
        empty = True
        with faults_as_errors(self.file):
            for item in self.read(columns):
                empty = False
                yield item
        if empty:
            raise UnreadableFileError(self.file.path, "the file holds no rows")

    def expected(self, rows_read: int) -> Expected:
        """How many rows there are, once the first ``rows_read`` have been read and more are to come."""
        if self.count is not None:
            return Expected(self.count, estimated=False)
        share = self.file.meter.share
        return Expected(max(rows_read, round(rows_read / share)) if share else rows_read, estimated=True)


class TextStream:
    """The texts of a file, in file order; ``skipped`` are the rows without a text that have been read so far,
    ``taken`` is how many texts have been taken.

    ``column`` holds the text (None: ``text``, else ``input``, else the only column); of the other columns a row
    keeps at least those of ``also`` that exist.
    """

    def __init__(self, rows: RowStream, column: str | None, extra_columns: Sequence[str] = ()) -> None:
        self.rows = rows
        self.skipped = SkippedRows()
        self.taken = 0
        self._column, self._also = column, extra_columns

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

    def expected(self) -> Expected:
        """How many texts there are, estimated from those that have been taken."""
        rows_read = self.taken + self.skipped.count
        rows = self.rows.expected(rows_read)
        return Expected(round(rows.rows * self.taken / max(rows_read, 1)), rows.estimated or self.skipped.count > 0)

    def estimate_rows(self) -> Expected:
        """How many rows there are: counted if the file says it or is short, else estimated from its first rows.

        Raises as :meth:`__iter__` does, for these rows.
        """
        texts = iter(self)
        for _ in itertools.islice(texts, _GLANCED_AT):
            pass
        goes_on = next(texts, None) is not None
        rows_read = self.taken + self.skipped.count
        return self.rows.expected(rows_read) if goes_on else Expected(rows_read, estimated=False)

    def find_column(self, name: str, *, required: bool) -> str:
        """The column called so, or so but for capitals, among those that the file names or its first 1,000 rows have;
        it is read from now on. ``name`` where there is none, and UnreadableFileError if it is ``required``."""
        columns: Sequence[str] | None = self.rows.columns
        if columns is None:
            first = itertools.islice(self.rows.entries(), LOOKED_AT)
            columns = column_names(row for row in first if isinstance(row, Row))
        found = find_column(columns, name)
        if found is None and required:
            choose_column(self.rows.file.path, columns, name)
        self._also = [*self._also, found or name]
        return found or name

    def entries(self) -> Iterator[TextRow | Skipped]:
        """Every row, with its text or the reason why there is none; raises as :meth:`RowStream.entries` does."""
        path, columns, column = self.rows.file.path, self.rows.columns, self._column
        columns_read: list[str] | None = None
        if columns is not None:
            column = choose_column(path, columns, column)
            columns_read = [name for name in dict.fromkeys((column, *self._also)) if name in columns]
        yield from texts_of(self.rows.entries(columns_read), path, column, columns)
