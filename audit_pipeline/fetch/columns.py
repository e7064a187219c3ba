"""Rows side by side: the readable rows of a piece of a file as columns, for those who read hundreds of thousands.

What belongs here: a piece of columns, and putting rows side by side. What does not: how a format comes to its columns
(its module), reading a whole file so (read.py), what a cell means.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.fetch.rows import Row, Skipped, unicode_problem

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
    while some := list(itertools.islice(entries, ROWS_OF_A_PIECE)):
        yield piece_of(some)


def piece_of(entries: Iterable[Row | Skipped]) -> Piece:
    """These rows side by side; one that holds a string which is not valid Unicode cannot be read."""
    entries = list(entries)
    rows = [entry for entry in entries if isinstance(entry, Row)]
    values = [row.values for row in rows]
    names = dict.fromkeys(itertools.chain.from_iterable(values))
    try:
        columns = {name: _cells([one.get(name) for one in values]) for name in names}
    except UnicodeEncodeError:
        return piece_of(_valid(entry) for entry in entries)
    return Piece(
        columns,
        pa.array([row.location for row in rows], pa.string()),
        pa.array([row.index for row in rows], pa.int64()),
        tuple(entry for entry in entries if isinstance(entry, Skipped)),
    )


def locations_of(name: str, numbers: pa.Array) -> pa.Array:
    """Where rows stand in the file ``name``, by the numbers of their lines, or rows."""
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


def _valid(entry: Row | Skipped) -> Row | Skipped:
    if isinstance(entry, Skipped):
        return entry
    for name, value in entry.values.items():
        problem = unicode_problem(value) if isinstance(value, str) else None
        if problem is not None:
            return Skipped(entry.location, entry.index, f"column '{name}' {problem}")
    return entry
