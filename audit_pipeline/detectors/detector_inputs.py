"""What a detector reads of a text: its cached statistics as arrays, and what it can need apart from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from audit_pipeline.errors import DataError
from audit_pipeline.store.files import cast_to_columns
from audit_pipeline.tables import MEASURED, TOKEN_STATISTICS, text_sha256

T = TypeVar("T")

OWN_PASS = "one pass"


@dataclass(frozen=True)
class Need(Generic[T]):
    """Something that a detector reads apart from a text's own statistics: a ``T`` per text.

    A provider in scoring/needs/ has it by its ``name``; ``summary`` says in the list of detectors what it is, so that
    an audit's cost is known before it starts. ``statistics`` are those of every token that the model's back end has to
    give for it, by the names of CachedKind.statistics.
    """

    name: str
    summary: str
    statistics: tuple[str, ...] = ()


@dataclass(frozen=True)
class UnmetNeed:
    """That a need is not met for a text, and why."""

    reason: str


def list_need_summaries(needs: Iterable[Need[Any]]) -> list[str]:
    """The text's own pass and ``needs``, as the list of detectors shows them."""
    return sorted([OWN_PASS, *(need.summary for need in needs)])


Float32s = npt.NDArray[np.float32]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]


NOT_GIVEN = "the model's interface does not give"
"""How a reason begins where a back end lacks what a detector reads."""


def explain_missing_columns(has_statistic: Callable[[str], bool], columns: Sequence[str]) -> str | None:
    """Why a back end that ``gives`` some statistics of each token does not let ``columns`` be read; None: it does."""
    absent = [name for name in columns if not has_statistic(name)]
    return f"{NOT_GIVEN}: {', '.join(absent)} of each token" if absent else None


_LISTS = ("token_id", *(measured.name for measured in MEASURED))
_REMEDY = "clear the cache and run the model again"
_READ = pa.schema([TOKEN_STATISTICS.field(name) for name in ("text_sha256", "char_end", *_LISTS)])


@dataclass(frozen=True, slots=True, eq=False)
class BranchStatistics:
    """The tokens after position i when x_i is replaced by the model's own choice x*_i.

    ``offsets`` [n + 1] cut ``logprob`` and ``z`` into one branch a scored token: up to ``m`` values, those of the
    tokens i + 1, i + 2, … in the branch's own distributions; none where x_i is the argmax. ``z`` is standardised by the
    branch's own mu and sigma.
    """

    m: int
    offsets: Int32s
    logprob: Float32s
    z: Float32s

    def slice_from(self, start: int) -> BranchStatistics:
        """The branches of the tokens from position ``start`` on."""
        first = self.offsets[start]
        return BranchStatistics(self.m, self.offsets[start:] - first, self.logprob[first:], self.z[first:])


@dataclass(frozen=True, slots=True, eq=False)
class PowerSums:
    """Sums over powers of the probabilities at each scored token, their logs [n] each: of p^2, and of
    sqrt(max(p, 1e-10))."""

    log_sum_p2: Float32s
    log_sum_sqrt_p: Float32s


@dataclass(frozen=True, slots=True, eq=False)
class Temperatures:
    """The distribution q proportional to p^beta at each scored token, for each of the cached inverse temperatures.

    [n, k] each: log of the sum of p^beta, and mean and standard deviation of log q under q. ``vocab_size`` is how many
    tokens there are.
    """

    log_sum_p_beta: Float32s
    mean: Float32s
    std: Float32s
    vocab_size: int


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
class TextStatistics:
    """One text and, for each of its n scored tokens (n may be 0), what the forward pass left; all arrays are [n].

    ``columns`` are ``token_id`` and what contracts.MEASURED declares, float32 or int32, as far as the model's back end
    gives it; each can be read as an attribute: ``statistics.logprob`` is l_t = log p(x_t | x_<t) in nats. ``extras`` is
    what the needs of detectors have brought for the text, or why they have not.
    """

    text: str
    columns: Mapping[str, npt.NDArray[Any]]
    extras: Mapping[Need[Any], object] = field(default_factory=dict)

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        # Called for names that are no field; a field that is not set yet (during a copy) must not recurse.
        columns: Mapping[str, npt.NDArray[Any]] = object.__getattribute__(self, "columns")
        try:
            return columns[name]
        except KeyError:
            raise AttributeError(f"there is no token statistic '{name}', there are: {', '.join(columns)}") from None

    def __len__(self) -> int:
        return len(self.columns["logprob"])

    def of(self, need: Need[T]) -> T:
        """The value of ``need``; only for a need that is met (:meth:`lacking`)."""
        return cast(T, self.extras[need])

    def explain_absent_columns(self, columns: Sequence[str]) -> str | None:
        """Why these ``columns`` give no score; None where all are present."""
        return explain_missing_columns(self.columns.__contains__, columns)

    def explain_unmet_need(self, need: Need[Any]) -> str | None:
        """Why ``need`` is not met; None where it is."""
        found = self.extras.get(need, UnmetNeed(f"there is no {need.summary} for the text"))
        return found.reason if isinstance(found, UnmetNeed) else None


class _Rows:
    """One record batch of the table: flat values and offsets, shared with Arrow's memory."""

    def __init__(self, batch: pa.RecordBatch, has_statistic: Callable[[str], bool]) -> None:
        self.text_sha256: list[str] = batch.column("text_sha256").to_pylist()
        self._columns: dict[str, tuple[npt.NDArray[Any], npt.NDArray[np.int32]]] = {}
        lengths = None
        for name in _LISTS:
            column = batch.column(name)
            if column.null_count or column.values.null_count:
                raise DataError(f"token statistics: column {name} holds a null; {_REMEDY}")
            offsets = column.offsets.to_numpy()
            if lengths is None:
                lengths = np.diff(offsets)
            elif not offsets[-1] and lengths.any() and not has_statistic(name):
                continue
            elif not np.array_equal(lengths, np.diff(offsets)):
                raise DataError(f"token statistics: {name} and {_LISTS[0]} differ in length; {_REMEDY}")
            self._columns[name] = column.values.to_numpy(zero_copy_only=True), offsets
        self._char_end = batch.column("char_end")

    def statistics(self, row: int, text: str, context_length: int) -> TextStatistics:
        first = 0
        if context_length:
            # A token that crosses the border is the text's: most begin with the blank before their word.
            first = int(np.searchsorted(self._char_end[row].values.to_numpy(), context_length, side="right"))
        return TextStatistics(
            text[context_length:],
            {
                name: values[offsets[row] + first : offsets[row + 1]]
                for name, (values, offsets) in self._columns.items()
            },
        )


class StatisticsIndex:
    """The rows of a token-statistics table, found by text; holds the table's memory, copies no value of a token.

    ``has_statistic`` returns whether the back end provides a column. A missing column is empty for every text.
    Raises DataError where the table lacks a column, holds a null, or a row's lists differ in length.
    """

    def __init__(self, table: pa.Table, has_statistic: Callable[[str], bool] = lambda _: True) -> None:
        columns = table.select([name for name in _READ.names if name in table.column_names])
        self._batches = [_Rows(batch, has_statistic) for batch in cast_to_columns(columns, _READ).to_batches()]
        self._places = {
            sha256: (number, row)
            for number, rows in enumerate(self._batches)
            for row, sha256 in enumerate(rows.text_sha256)
        }

    def __len__(self) -> int:
        return len(self._places)

    def find(self, text: str, context_length: int = 0) -> TextStatistics | None:
        """The statistics of ``text`` after its first ``context_length`` characters; None where it has no row.

        A token belongs to what it ends in: one that begins before the border and ends after it is kept.
        """
        place = self._places.get(text_sha256(text))
        return None if place is None else self._batches[place[0]].statistics(place[1], text, context_length)
