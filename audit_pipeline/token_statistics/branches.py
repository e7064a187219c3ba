"""Counterfactual branches: what becomes of the next tokens when one token is replaced by the model's own choice.

What belongs here: which branches a batch of windows has, and how they are laid out in rows and batches. What does not:
tensors and running them (packed.py, rerun.py, forward.py).

The branch of position i reads x*_i in the place of x_i and then the text's own tokens behind it; it shares with the
text all that stands before i (Raoof et al. 2025, eq. 10 and 11).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from audit_pipeline.token_statistics.encode import IntArray
from audit_pipeline.token_statistics.windows import Window

Ints = npt.NDArray[np.int64]

PLACES_A_TOKEN = 1 << 13
PREFIX_A_TOKEN = 1 << 5


@dataclass(frozen=True, eq=False)
class Branches:
    """The B branches of a batch of windows, by window and position: [B] each.

    ``ids`` [windows, length] are the windows' sequences, start tokens included. ``window`` and ``scored`` say whose
    branch it is: which window's, which of its scored tokens'; ``start`` is that token's place in the sequence,
    ``replacement`` what stands there instead. ``length`` >= 1 tokens are read from ``start`` on, the replacement first,
    and as many predicted.
    """

    ids: Ints
    window: Ints
    scored: Ints
    start: Ints
    length: Ints
    replacement: Ints

    def __len__(self) -> int:
        return len(self.window)

    @cached_property
    def offsets(self) -> Ints:
        """Where each branch begins among the tokens of all branches: [B + 1]."""
        return np.concatenate([[0], np.cumsum(self.length)])

    @cached_property
    def owner(self) -> Ints:
        """Whose branch each token of all branches is: [tokens]."""
        return np.repeat(np.arange(len(self)), self.length)

    @cached_property
    def step(self) -> Ints:
        """How far behind its branch's start each token of all branches stands, from 0: [tokens]."""
        return np.arange(len(self.owner)) - self.offsets[self.owner]

    @cached_property
    def tokens(self) -> Ints:
        """What is read: [tokens]."""
        own = self.ids[self.window[self.owner], self.start[self.owner] + self.step]
        return np.where(self.step == 0, self.replacement[self.owner], own)

    @cached_property
    def targets(self) -> Ints:
        """What each token read predicts, the text's own next token: [tokens]."""
        return np.asarray(self.ids[self.window[self.owner], self.start[self.owner] + self.step + 1])


def branches_of(batch: Sequence[Window], ids: Ints, argmax: Sequence[IntArray], steps: int) -> Branches:
    """The branches of a batch: one for each scored token that is not the argmax and has a token behind it.

    ``argmax`` holds each window's modes, one a scored token. A branch has ``steps`` tokens, fewer where the window
    ends: in a text longer than the model's context it ends with the window that scores its token.
    """
    columns: list[tuple[Ints, ...]] = []
    for number, window in enumerate(batch):
        scored = np.arange(window.end - window.score_from)
        start = scored + window.score_from - window.begin + window.has_start_token
        length = np.minimum(steps, window.length - 1 - start)
        replacement = argmax[number].astype(np.int64)
        kept = (length > 0) & (replacement != ids[number, start])
        whose = np.full(int(kept.sum()), number)
        columns.append((whose, scored[kept], start[kept], length[kept], replacement[kept]))
    empty = np.empty(0, dtype=np.int64)
    return Branches(ids, *(np.concatenate([empty, *parts]) for parts in zip(*columns, strict=True)))


def rows_of(branches: Branches, row_tokens: int) -> Ints:
    """The number of the row that each branch goes through the model in: [B], rows counted from 0 without a gap.

    A row holds branches of one window, about ``row_tokens`` tokens at most: a branch is never cut, so its last one may
    reach beyond. A window's rows are filled evenly, since a short last one would be padded to the length of the others,
    and in the order of positions, so that the first ones see little of the window.
    """
    if not len(branches):
        return np.empty(0, dtype=np.int64)
    _, first, whose = np.unique(branches.window, return_index=True, return_inverse=True)
    ends = branches.offsets[np.append(first[1:], len(branches))]
    total = ends - branches.offsets[first]
    even = -(-total // -(-total // row_tokens))
    in_window = (branches.offsets[:-1] - branches.offsets[first][whose]) // even[whose]
    # A long branch may leave a number out.
    _, rows = np.unique(np.stack([whose, in_window]), axis=1, return_inverse=True)
    return rows.astype(np.int64)


def row_batches(branches: Branches, rows: Ints, token_budget: int) -> Iterator[Ints]:
    """Rows in batches of at most ``token_budget`` padded tokens, rows of like length and prefix together.

    The mask of a batch has at most ``PLACES_A_TOKEN`` places a token of the budget, and all of its rows' prefixes
    together at most ``PREFIX_A_TOKEN`` tokens: so memory does not grow with the texts. Yields the numbers of the
    branches in each batch, by row; a row over the budget is a batch of its own.
    """
    if not len(branches):
        return
    lengths = np.bincount(rows, weights=branches.length).astype(np.int64)
    prefixes = np.zeros(len(lengths), dtype=np.int64)
    np.maximum.at(prefixes, rows, branches.start)
    order = np.lexsort((-prefixes, -lengths))
    by_row = np.split(np.argsort(rows, kind="stable"), np.cumsum(np.bincount(rows))[:-1])
    begin = 0
    while begin < len(order):
        # Longest first: the batch's first row sets the padded length, and the longest prefix that of all.
        length = int(lengths[order[begin]])
        fitting = order[begin : begin + max(1, token_budget // length)]
        prefix = np.maximum.accumulate(prefixes[fitting])
        number = np.arange(1, len(fitting) + 1)
        places = number * length * (prefix + length) <= PLACES_A_TOKEN * token_budget
        count = max(1, int((places & (number * prefix <= PREFIX_A_TOKEN * token_budget)).sum()))
        yield np.concatenate([by_row[row] for row in fitting[:count]])
        begin += count


def halved(rows: Ints, chosen: Ints) -> list[Ints]:
    """The branches of a batch in two, no row cut; as they are where they are one row."""
    numbers = np.unique(rows[chosen])
    if len(numbers) == 1:
        return [chosen]
    first = np.isin(rows[chosen], numbers[: len(numbers) // 2])
    return [chosen[first], chosen[~first]]
