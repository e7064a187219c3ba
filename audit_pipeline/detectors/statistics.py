"""One text's cached statistics as arrays, and the way from the token-statistics table to them.

What belongs here: reading rows of the table without copying their values. What does not: the cache's files
(token_statistics/cache.py) and what detectors make of the numbers (their own modules).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from audit_pipeline.catalogue.contracts import TOKEN_STATISTICS, text_sha256
from audit_pipeline.catalogue.tables import checked
from audit_pipeline.detectors.needs import Need
from audit_pipeline.errors import DataError

Float32s = npt.NDArray[np.float32]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]

_LISTS = ("token_id", "logprob", "mean", "std", "max_logprob", "argmax_id", "rank")
_REMEDY = "clear the cache and run the model again"
_READ = pa.schema([TOKEN_STATISTICS.field(name) for name in ("text_sha256", "char_end", *_LISTS)])


@dataclass(frozen=True, slots=True, eq=False)
class Branches:
    """What becomes of the tokens behind position i when x_i is replaced by the model's own choice x*_i.

    ``offsets`` [n + 1] cut ``logprob`` and ``z`` into one branch a scored token: up to ``m`` values, those of the
    tokens i + 1, i + 2, … in the branch's own distributions; none where x_i is the argmax. ``z`` is standardised by the
    branch's own mu and sigma.
    """

    m: int
    offsets: Int32s
    logprob: Float32s
    z: Float32s

    def behind(self, start: int) -> Branches:
        """The branches of the tokens from position ``start`` on."""
        first = self.offsets[start]
        return Branches(self.m, self.offsets[start:] - first, self.logprob[first:], self.z[first:])


@dataclass(frozen=True, eq=False)
class TokenFrequencies:
    """How often each token of one tokenizer occurs in a reference corpus: ``counts`` [at least V]."""

    counts: Int64s
    vocab_size: int

    @cached_property
    def log_frequency(self) -> Float64s:
        """log f of each token id, f = (count + 1) / (N + V) (Zhang et al. 2024, eq. 4): [at least V]."""
        return np.asarray(np.log((self.counts + 1.0) / (float(self.counts.sum()) + self.vocab_size)))


@dataclass(frozen=True, slots=True, eq=False)
class Extras:
    """What detectors need beyond a text's own pass; ``absent`` says why a need is not met."""

    branches: Branches | None = None
    lowercased: TextStatistics | None = None
    reference: TextStatistics | None = None
    neighbours: Sequence[TextStatistics] = ()
    frequencies: TokenFrequencies | None = None
    absent: Mapping[Need, str] = field(default_factory=dict)

    def lacking(self, need: Need) -> str | None:
        """Why ``need`` is not met; None where it is."""
        met = {
            Need.ONE_PASS: True,
            Need.BRANCHES: self.branches is not None,
            Need.LOWERCASED: self.lowercased is not None,
            Need.REFERENCE_MODEL: self.reference is not None,
            Need.NEIGHBOURS: len(self.neighbours) > 0,
            Need.FREQUENCY_TABLE: self.frequencies is not None,
            Need.CALIBRATION_SET: False,
        }
        return None if met[need] else self.absent.get(need, f"there is no {need.value} for the text")


@dataclass(frozen=True, slots=True, eq=False)
class TextStatistics:
    """One text and, for each of its n scored tokens (n may be 0), what the forward pass left; all arrays are [n].

    ``logprob`` is l_t = log p(x_t | x_<t) in nats; ``mean`` and ``std`` are mu_t and sigma_t of log p(z | x_<t) over z
    drawn from p, sigma not clamped (Min-K%++, eq. 3); ``rank`` is 0 where the token is the argmax.
    """

    text: str
    token_id: Int32s
    logprob: Float32s
    mean: Float32s
    std: Float32s
    max_logprob: Float32s
    argmax_id: Int32s
    rank: Int32s
    extras: Extras = field(default_factory=Extras)

    def __len__(self) -> int:
        return len(self.logprob)


class _Rows:
    """One record batch of the table: flat values and offsets, shared with Arrow's memory."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.text_sha256: list[str] = batch.column("text_sha256").to_pylist()
        self._values: list[npt.NDArray[Any]] = []
        self._offsets: list[npt.NDArray[np.int32]] = []
        lengths = None
        for name in _LISTS:
            column = batch.column(name)
            if column.null_count or column.values.null_count:
                raise DataError(f"token statistics: column {name} holds a null; {_REMEDY}")
            offsets = column.offsets.to_numpy()
            if lengths is None:
                lengths = np.diff(offsets)
            elif not np.array_equal(lengths, np.diff(offsets)):
                raise DataError(f"token statistics: {name} and {_LISTS[0]} differ in length; {_REMEDY}")
            self._values.append(column.values.to_numpy(zero_copy_only=True))
            self._offsets.append(offsets)
        self._char_end = batch.column("char_end")

    def statistics(self, row: int, text: str, behind: int) -> TextStatistics:
        first = 0
        if behind:
            # A token that stands across the border is the text's: most begin with the blank before their word.
            first = int(np.searchsorted(self._char_end[row].values.to_numpy(), behind, side="right"))
        return TextStatistics(
            text[behind:],
            extras=Extras(),
            **{
                name: values[offsets[row] + first : offsets[row + 1]]
                for name, values, offsets in zip(_LISTS, self._values, self._offsets, strict=True)
            },
        )


class StatisticsIndex:
    """The rows of a token-statistics table, found by text; holds the table's memory, copies no value of a token.

    Raises DataError where the table lacks a column, holds a null, or a row's lists differ in length.
    """

    def __init__(self, table: pa.Table) -> None:
        self._batches = [_Rows(batch) for batch in checked(_needed(table), _READ).to_batches()]
        self._places = {
            sha256: (number, row)
            for number, rows in enumerate(self._batches)
            for row, sha256 in enumerate(rows.text_sha256)
        }

    def __len__(self) -> int:
        return len(self._places)

    def find(self, text: str, behind: int = 0) -> TextStatistics | None:
        """The statistics of ``text`` behind its first ``behind`` characters; None where the table has no row for it.

        A token belongs to what it ends in: one that begins in front of the border and ends behind it is kept.
        """
        place = self._places.get(text_sha256(text))
        return None if place is None else self._batches[place[0]].statistics(place[1], text, behind)

    def of_examples(self, examples: Iterable[tuple[str, str]]) -> Iterator[tuple[str, TextStatistics | None]]:
        """For each (example_id, text) its id and statistics, None where the table has no row, in the given order.

        One row serves every example that has its text.
        """
        for example_id, text in examples:
            yield example_id, self.find(text)


def _needed(table: pa.Table) -> pa.Table:
    return table.select([name for name in _READ.names if name in table.column_names])
