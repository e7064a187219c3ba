"""Counterfactual branches: what becomes of the next tokens when one token is replaced by the model's own choice.

What belongs here: which branches a window has, and how they are laid out in rows and batches. What does not: tensors
and running them (packed.py, rerun.py).

The branch of position i reads x*_i in the place of x_i and then the text's own tokens behind it; it shares with the
text all that stands before i (paper 000, eq. 10 and 11).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from audit_pipeline.token_statistics.encode import EncodedText, IntArray
from audit_pipeline.token_statistics.windows import Window


@dataclass(frozen=True, eq=False)
class Branch:
    """One branch of window number ``window`` of a batch, at its scored token number ``scored``.

    ``start`` is the replaced token's position in the window's sequence, start token included. ``tokens`` are read
    behind the shared prefix, the replacement first; ``targets`` are the text's tokens that each of them predicts: both
    [steps], steps >= 1.
    """

    window: int
    scored: int
    start: int
    tokens: IntArray
    targets: IntArray


@dataclass(frozen=True)
class Row:
    """Branches of one window that go through the model side by side, as one row of a batch."""

    window: int
    branches: Sequence[Branch]

    @property
    def length(self) -> int:
        """Tokens of the row."""
        return sum(len(branch.tokens) for branch in self.branches)

    @property
    def prefix(self) -> int:
        """Tokens of the window's sequence that the row's last branch sees."""
        return max(branch.start for branch in self.branches)


def branches_of(number: int, window: Window, text: EncodedText, argmax: IntArray, steps: int) -> list[Branch]:
    """The branches of a window: one for each scored token that is not the argmax and has a token behind it.

    ``argmax`` [scored tokens of the window] is the model's own choice at each. A branch has ``steps`` tokens, fewer
    where the window ends: in a text longer than the model's context it ends with the window that scores its token.
    """
    shift = int(window.has_start_token)
    found = []
    for scored, position in enumerate(range(window.score_from, window.end)):
        count = min(steps, window.end - 1 - position)
        if count < 1 or argmax[scored] == text.token_id[position]:
            continue
        tokens = np.concatenate([argmax[scored : scored + 1], text.token_id[position + 1 : position + count]])
        targets = text.token_id[position + 1 : position + 1 + count]
        found.append(Branch(number, scored, position - window.begin + shift, tokens, targets))
    return found


def rows_of(branches: Sequence[Branch], row_tokens: int) -> list[Row]:
    """The branches of one window in as few rows of at most ``row_tokens`` tokens as an even filling allows.

    A branch is never cut: one longer than ``row_tokens`` is a row of its own. In order of their positions, so that the
    first rows see little of the prefix.
    """
    if not branches:
        return []
    total = sum(len(branch.tokens) for branch in branches)
    # Even rows: a short last one would be padded to the length of the others.
    even = -(-total // max(1, -(-total // row_tokens)))
    rows: list[list[Branch]] = []
    filled = row_tokens + 1
    for branch in branches:
        if filled >= even or filled + len(branch.tokens) > row_tokens:
            rows.append([])
            filled = 0
        rows[-1].append(branch)
        filled += len(branch.tokens)
    return [Row(row[0].window, row) for row in rows]


def row_batches(rows: Iterable[Row], token_budget: int) -> Iterator[Sequence[Row]]:
    """Rows in batches of at most ``token_budget`` padded tokens, rows of like length and prefix together."""
    batch: list[Row] = []
    for row in sorted(rows, key=lambda row: (-row.length, -row.prefix, row.window)):
        if batch and (len(batch) + 1) * batch[0].length > token_budget:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
