"""The inputs of a detector: the cached statistics of a text as arrays, and its requirements.

A requirement (class ``Need``) is other data that a detector reads, such as neighbours or a reference model.
"""

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

Spans = Sequence[tuple[int, int]]
"""The scored parts of a text that a model reads: start and end (exclusive) of each part, in characters, in order.

A token that crosses the border of a part belongs to the part in which it ends. Most such tokens begin with the blank
before the part.
"""

OWN_PASS = "one pass"


@dataclass(frozen=True)
class Need(Generic[T]):
    """A requirement of a detector: data per text, of type ``T``, besides the text's own statistics.

    Attributes:
        name: The name. A provider in scoring/needs/ supplies the data for this name.
        summary: A phrase about the data for the list of detectors, from which users can estimate the cost of an audit.
        statistics: The token statistics that the model's back end must provide (names in ``CachedKind.statistics``).
    """

    name: str
    summary: str
    statistics: tuple[str, ...] = ()


@dataclass(frozen=True)
class UnmetNeed:
    """The reason why the data of a requirement is missing for a text."""

    reason: str


def list_need_summaries(needs: Iterable[Need[Any]]) -> list[str]:
    """Return the sorted summaries of all data that a detector reads: the text's own pass, and ``needs``."""
    return sorted([OWN_PASS, *(need.summary for need in needs)])


Float32s = npt.NDArray[np.float32]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]


NOT_GIVEN = "the model's interface does not give"
"""The beginning of the reason for a missing score if a back end does not provide a statistic."""


def explain_missing_columns(has_statistic: Callable[[str], bool], columns: Sequence[str]) -> str | None:
    """Return the reason why a back end cannot supply all of ``columns``, or None if it can.

    Args:
        has_statistic: A function that returns True if the back end provides the statistic with this name.
        columns: The names of the required statistics.
    """
    absent = [name for name in columns if not has_statistic(name)]
    return f"{NOT_GIVEN}: {', '.join(absent)} of each token" if absent else None


_LISTS = ("token_id", *(measured.name for measured in MEASURED))
_REMEDY = "Clear the cache and run the model again."
_READ = pa.schema([TOKEN_STATISTICS.field(name) for name in ("text_sha256", "char_end", *_LISTS)])


def take_ranges(
    values: npt.NDArray[Any], ranges: Sequence[tuple[int, int]] | None, entries: int = 1
) -> npt.NDArray[Any]:
    """Return the values of some tokens.

    Args:
        values: A flat array with ``entries`` values per token.
        ranges: The first token of each range, and the token after its last. None means all tokens.
        entries: Values per token.
    """
    if ranges is None:
        return values
    pieces = [values[first * entries : stop * entries] for first, stop in ranges]
    if len(pieces) == 1:
        return pieces[0]
    return np.concatenate(pieces)


@dataclass(frozen=True, slots=True, eq=False)
class BranchStatistics:
    """The statistics of counterfactual branches: the text's next tokens after the token x_i is replaced.

    In the branch of position i, the model's most likely token x*_i replaces the text's token x_i.

    Attributes:
        m: Maximum number of tokens per branch: the tokens i + 1, ..., i + m.
        offsets: The start of each branch in ``logprob`` and ``z``, of shape (n_tokens + 1,). A branch is empty if x_i
            is the argmax.
        logprob: The log-probabilities of the branch tokens in nats, in the branch's distributions.
        z: These log-probabilities, standardised by mean and standard deviation of the branch's distributions.
    """

    m: int
    offsets: Int32s
    logprob: Float32s
    z: Float32s

    def slice_from(self, start: int) -> BranchStatistics:
        """Return the branches of the tokens from position ``start`` on."""
        offset = self.offsets[start]
        return BranchStatistics(self.m, self.offsets[start:] - offset, self.logprob[offset:], self.z[offset:])


@dataclass(frozen=True, slots=True, eq=False)
class PowerSums:
    """Sums of powers of the probabilities at each scored token, as logarithms of shape (n_tokens,).

    Attributes:
        log_sum_p2: log of the sum of p^2.
        log_sum_sqrt_p: log of the sum of sqrt(max(p, 1e-10)).
    """

    log_sum_p2: Float32s
    log_sum_sqrt_p: Float32s


@dataclass(frozen=True, slots=True, eq=False)
class Temperatures:
    """The distribution q, proportional to p^beta, at each scored token for k cached inverse temperatures beta.

    Attributes:
        log_sum_p_beta: log of the sum of p^beta, of shape (n_tokens, k).
        mean: Mean of log q under q, of shape (n_tokens, k).
        std: Standard deviation of log q under q, of shape (n_tokens, k).
        vocab_size: The number of tokens in the vocabulary.
    """

    log_sum_p_beta: Float32s
    mean: Float32s
    std: Float32s
    vocab_size: int


@dataclass(frozen=True, eq=False)
class TokenFrequencies:
    """Frequencies of the tokens of one tokenizer in a reference corpus.

    Attributes:
        counts: The count per token id, of shape (at least V,).
        vocab_size: The number V of tokens in the vocabulary.
    """

    counts: Int64s
    vocab_size: int

    @cached_property
    def log_frequency(self) -> Float64s:
        """Return log f per token id, of shape (at least V,).

        f = (count + 1) / (N + V), with N tokens in the corpus (Zhang et al. 2024, eq. 4).
        """
        return np.asarray(np.log((self.counts + 1.0) / (float(self.counts.sum()) + self.vocab_size)))


@dataclass(frozen=True, slots=True, eq=False)
class TextStatistics:
    """A text and the statistics of its n scored tokens. n may be 0.

    Each column can be read as an attribute. For example, ``statistics.logprob`` is l_t = log p(x_t | x_<t) in nats.

    Attributes:
        text: The text.
        columns: ``token_id`` and the columns of tables.MEASURED that the back end provides, float32 or int32, each of
            shape (n,).
        extras: The data of each requirement, or an ``UnmetNeed`` with the reason why it is missing.
        token_ranges: If only parts of the text that the model read are scored: the first token of each part, and the
            token after its last, counted among all tokens of the text that have statistics. Otherwise None.
    """

    text: str
    columns: Mapping[str, npt.NDArray[Any]]
    extras: Mapping[Need[Any], object] = field(default_factory=dict)
    token_ranges: tuple[tuple[int, int], ...] | None = None

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        # Python calls this method for names that are not fields. While an object is copied, ``columns`` may not be set
        # yet, and ``self.columns`` would call this method again without end.
        columns: Mapping[str, npt.NDArray[Any]] = object.__getattribute__(self, "columns")
        try:
            return columns[name]
        except KeyError:
            raise AttributeError(f"there is no token statistic '{name}'. There are: {', '.join(columns)}.") from None

    def __len__(self) -> int:
        return len(self.columns["logprob"])

    def get_extra(self, need: Need[T]) -> T:
        """Return the data of a requirement, which must be met (see :meth:`explain_unmet_need`)."""
        return cast(T, self.extras[need])

    def explain_absent_columns(self, columns: Sequence[str]) -> str | None:
        """Return the reason why some of ``columns`` cannot be read, or None if all are present."""
        return explain_missing_columns(self.columns.__contains__, columns)

    def explain_unmet_need(self, need: Need[Any]) -> str | None:
        """Return the reason why the data of ``need`` is missing, or None if it is available."""
        value = self.extras.get(need, UnmetNeed(f"there is no {need.summary} for the text"))
        return value.reason if isinstance(value, UnmetNeed) else None


class _Rows:
    """One record batch of a token-statistics table: values and offsets of each column, in Arrow's memory."""

    def __init__(self, batch: pa.RecordBatch, has_statistic: Callable[[str], bool]) -> None:
        self.text_sha256: list[str] = batch.column("text_sha256").to_pylist()
        self._columns: dict[str, tuple[npt.NDArray[Any], npt.NDArray[np.int32]]] = {}
        lengths = None
        for name in _LISTS:
            column = batch.column(name)
            if column.null_count or column.values.null_count:
                raise DataError(f"token statistics: column {name} contains a null. {_REMEDY}")
            offsets = column.offsets.to_numpy()
            if lengths is None:
                lengths = np.diff(offsets)
            elif not offsets[-1] and lengths.any() and not has_statistic(name):
                # The back end does not provide this column, so its lists are empty.
                continue
            elif not np.array_equal(lengths, np.diff(offsets)):
                raise DataError(f"token statistics: {name} and {_LISTS[0]} differ in length. {_REMEDY}")
            self._columns[name] = (column.values.to_numpy(zero_copy_only=True), offsets)
        self._char_end = batch.column("char_end")

    def slice_statistics(self, row: int, text: str, spans: Spans | None) -> TextStatistics:
        ranges = None
        scored_text = text
        if spans is not None:
            ranges = self._find_token_ranges(row, text, spans)
            scored_text = "".join(text[start:end] for start, end in spans)
        columns = {}
        for name, (values, offsets) in self._columns.items():
            columns[name] = take_ranges(values[offsets[row] : offsets[row + 1]], ranges)
        return TextStatistics(scored_text, columns, token_ranges=ranges)

    def _find_token_ranges(self, row: int, text: str, spans: Spans) -> tuple[tuple[int, int], ...]:
        """Return the scored tokens of each part of a text: the first one, and the one after the last."""
        char_end = self._char_end[row].values.to_numpy()
        ranges = []
        for start, end in spans:
            first = int(np.searchsorted(char_end, start, side="right"))
            # Tokens that the tokenizer appends to a text have no characters. They belong to the last part.
            stop = len(char_end) if end == len(text) else int(np.searchsorted(char_end, end, side="right"))
            ranges.append((first, stop))
        return tuple(ranges)


class StatisticsIndex:
    """An index of a token-statistics table by text. It shares the table's memory and copies no values.

    If a back end does not provide a column, the column is empty for every text.

    Raises:
        DataError: If the table lacks a column or holds a null, or if the lists of a row differ in length.
    """

    def __init__(self, table: pa.Table, has_statistic: Callable[[str], bool] = lambda _: True) -> None:
        columns = table.select([name for name in _READ.names if name in table.column_names])
        self._batches = [_Rows(batch, has_statistic) for batch in cast_to_columns(columns, _READ).to_batches()]
        self._positions: dict[str, tuple[int, int]] = {}
        for number, rows in enumerate(self._batches):
            for row, sha256 in enumerate(rows.text_sha256):
                self._positions[sha256] = (number, row)

    def __len__(self) -> int:
        return len(self._positions)

    def find(self, text: str, spans: Spans | None = None) -> TextStatistics | None:
        """Return the statistics of a text, or None if the table has no row for the text.

        Args:
            text: The text that the model has read.
            spans: The scored parts. None means the whole text.
        """
        position = self._positions.get(text_sha256(text))
        if position is None:
            return None
        number, row = position
        return self._batches[number].slice_statistics(row, text, spans)
