"""What the cells of a table of scores come to, whole columns at a time.

What belongs here: cells as plain strings and as scores. What does not: which columns there may be and which rows can be
used (given_rows.py), and how a file comes to its cells (fetch/stream.py).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.fetch.labels import as_written
from audit_pipeline.fetch.stream import Cells

NO_SCORE = "the file has no score of the text"
NAN = "the score is not a number (NaN)"
NO_NUMBER = "score is no number"
PROBLEMS: Final = (None, NO_SCORE, NAN, NO_NUMBER)
"""Of a score, by the codes of :class:`Scores`."""

_LARGEST = 1e100
"""Beyond it sums of squares are no numbers any more: such a score is taken as infinite."""
# What Python and Arrow read alike, and no longer than that both round it.
_USUAL_NUMBER = r"^-?([0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})([eE][+-]?[0-9]{1,2})?$"

Codes = npt.NDArray[np.integer]
Truth = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]
Name = TypeVar("Name")
Meaning = TypeVar("Meaning")
Check = tuple[Codes, Sequence[str | None]]
"""For each of n rows a place in a list of what is wrong with it."""

_DICTIONARY = pa.dictionary(pa.int32(), pa.large_string())


@dataclass(frozen=True, eq=False)
class DictionaryColumn:
    """n cells as places in the list of the distinct strings among them (large_string), in the order they are met."""

    codes: Codes
    names: pa.LargeStringArray

    def take(self, rows: Places) -> DictionaryColumn:
        """The cells of these rows."""
        return DictionaryColumn(self.codes[rows], self.names)

    def at(self, row: int) -> str:
        """The cell of one row."""
        cell: str = self.names[self.codes[row]].as_py()
        return cell

    def strings(self) -> pa.LargeStringArray:
        """The cells themselves."""
        return self.names.take(pa.array(self.codes))


@dataclass(frozen=True, eq=False)
class InterpretedCells(Generic[Meaning]):
    """What n cells mean: places in the list of the distinct meanings; -1 where a cell means nothing."""

    codes: Codes
    values: Sequence[Meaning]

    def take(self, rows: Places) -> InterpretedCells[Meaning]:
        """What the cells of these rows mean."""
        return InterpretedCells(self.codes[rows], self.values)

    def at(self, row: int) -> Meaning:
        """What the cell of one row means."""
        meaning: Meaning = self.values[int(self.codes[row])]
        return meaning

    def each(self) -> list[Meaning]:
        """What each cell means, where all mean something."""
        return [self.values[code] for code in self.codes.tolist()]


@dataclass(frozen=True, eq=False)
class Scores:
    """``values`` [n], infinite where they are too large, NaN where there is none; ``problems`` [n] says why."""

    values: npt.NDArray[np.float64]
    problems: npt.NDArray[np.int8]

    def take(self, rows: Places) -> Scores:
        """The scores of these rows."""
        return Scores(self.values[rows], self.problems[rows])


def merge_dictionary_pieces(pieces: Iterable[pa.DictionaryArray]) -> DictionaryColumn:
    """The strings of pieces, encoded each for itself, as one column."""
    encoded = pa.chunked_array(list(pieces), _DICTIONARY).unify_dictionaries()
    return DictionaryColumn(
        np.concatenate([one.indices.to_numpy() for one in encoded.chunks]), encoded.chunk(0).dictionary
    )


def pairs_of(one: DictionaryColumn, other: DictionaryColumn) -> tuple[Codes, list[tuple[str, str]]]:
    """Two columns as one of pairs: n places in the list of the distinct pairs."""
    found, codes = np.unique(one.codes.astype(np.int64) * len(other.names) + other.codes, return_inverse=True)
    firsts, seconds = (
        names.take(pa.array(places)).to_pylist()
        for names, places in zip((one.names, other.names), np.divmod(found, len(other.names)), strict=True)
    )
    return codes, list(zip(firsts, seconds, strict=True))


def meant(
    codes: Codes, names: Iterable[Name], meaning: Callable[[Name], Meaning]
) -> tuple[InterpretedCells[Meaning], Check]:
    """What n cells mean, which are places in ``names``; the check says what is wrong with those that mean nothing.

    ``meaning`` raises ValueError for them.
    """
    places: dict[Meaning, int] = {}
    of_name: list[int] = []
    reasons: list[str | None] = []
    for name in names:
        try:
            of_name.append(places.setdefault(meaning(name), len(places)))
            reasons.append(None)
        except ValueError as error:
            of_name.append(-1)
            reasons.append(str(error))
    return InterpretedCells(np.array(of_name, dtype=np.int32)[codes], list(places)), (codes, reasons)


def plain(cells: Cells) -> pa.LargeStringArray:
    """Every cell as Python writes it, without the white space around it; empty where there is nothing (null, NaN)."""
    if not isinstance(cells, pa.Array):
        return pa.array(list(map(as_written, cells)), pa.large_string())
    if pa.types.is_floating(cells.type):
        # By their bits, which tell -0.0 from 0.0.
        met = cells.view(pa.int64()).dictionary_encode()
        return plain(met.dictionary.view(cells.type).to_pylist()).take(met.indices).fill_null("")
    if pa.types.is_boolean(cells.type):
        return pc.if_else(cells, *map(str, (True, False))).cast(pa.large_string()).fill_null("")
    strings = cells.cast(pa.large_string())
    return pc.fill_null(pc.utf8_trim_whitespace(strings), "")


def plain_json(cells: Cells) -> pa.LargeStringArray:
    """As :func:`plain`, with objects written as JSON."""
    if isinstance(cells, pa.Array):
        return plain(cells)
    return plain([json.dumps(cell) if isinstance(cell, dict) else cell for cell in cells])


def scores_of(cells: Cells) -> Scores:
    """The scores that cells hold. An empty cell is a text that was not scored."""
    if not isinstance(cells, pa.Array):
        return _one_by_one(cells)
    if pa.types.is_floating(cells.type):
        return _scores(_floats(cells), _is(pc.is_null(cells)))
    if pa.types.is_integer(cells.type):
        return _scores(_floats(cells.cast(pa.float64(), safe=False)), _is(pc.is_null(cells)))
    strings = plain(cells)
    usual = pc.match_substring_regex(strings, _USUAL_NUMBER)
    values = _floats(pc.if_else(usual, strings, None).cast(pa.float64()))
    found = _scores(values, np.zeros(len(values), np.bool_))
    others = np.flatnonzero(~_is(usual))
    rest = _one_by_one(strings.take(pa.array(others)).to_pylist())
    found.values[others], found.problems[others] = rest.values, rest.problems
    return found


def _floats(cells: pa.Array) -> npt.NDArray[np.float64]:
    return np.array(cells.fill_null(math.nan).to_numpy(zero_copy_only=False), dtype=np.float64)


def _is(truth: pa.Array) -> Truth:
    return np.asarray(truth.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _scores(values: npt.NDArray[np.float64], missing: Truth) -> Scores:
    problems = np.where(np.isnan(values), PROBLEMS.index(NAN), 0).astype(np.int8)
    problems[missing] = PROBLEMS.index(NO_SCORE)
    too_large = np.abs(values) > _LARGEST
    values[too_large] = np.copysign(np.inf, values[too_large])
    return Scores(values, problems)


def _one_by_one(cells: Sequence[object]) -> Scores:
    found = [_score(cell) for cell in cells]
    problems = np.array([PROBLEMS.index(problem) for _, problem in found], np.int8)
    scored = _scores(np.array([value for value, _ in found], np.float64), np.zeros(len(found), np.bool_))
    return Scores(scored.values, problems)


def _score(cell: object) -> tuple[float, str | None]:
    if isinstance(cell, float) and math.isnan(cell):
        return math.nan, NAN
    written = as_written(cell)
    if not written:
        return math.nan, NO_SCORE
    try:
        score = float(written)
    except ValueError:
        return math.nan, NO_NUMBER
    return score, NAN if math.isnan(score) else None
