"""Which stretches of which texts go through the model together.

What belongs here: windows over long texts, length-sorted batches under a token budget, and a batch's token ids. What
does not: tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from audit_pipeline.token_statistics.encode import EncodedText, IntArray


@dataclass(frozen=True)
class Window:
    """Tokens ``begin:end`` of text number ``text``, of which ``score_from:end`` are scored in this window."""

    text: int
    begin: int
    end: int
    score_from: int
    has_start_token: bool

    @property
    def length(self) -> int:
        """Tokens that go through the model."""
        return self.end - self.begin + self.has_start_token


def windows_of(text: int, encoded: EncodedText, window: int, stride: int) -> list[Window]:
    """The windows that score every token of a text exactly once; none for a text without a scored token.

    A text that fits is one window. In a longer one, windows move on by ``stride`` tokens and the last ends with the
    text, so every token but the first window's is seen with at least ``window - stride - 1`` tokens before it.
    """
    if encoded.n_scored == 0:
        return []
    has_start = encoded.start_token_id is not None
    capacity = window - has_start
    n = len(encoded.token_id)
    end = min(capacity, n)
    windows = [Window(text, 0, end, encoded.first_scored, has_start)]
    while end < n:
        scored, end = end, min(end + stride, n)
        windows.append(Window(text, end - capacity, end, scored, has_start))
    return windows


def batches(
    windows: Iterable[Window],
    token_budget: int,
    *,
    equal_lengths: bool = False,
    length_step: int | None = None,
    before: int = 0,
) -> Iterator[Sequence[Window]]:
    """Windows sorted by length, longest first, in batches of at most ``token_budget`` padded tokens.

    A window over the budget is a batch of its own. ``equal_lengths`` is for models that padding would disturb; windows
    up to ``length_step`` tokens never share a batch with longer ones. ``before``: how many tokens are run in front of
    each window.
    """
    batch: list[Window] = []
    for window in sorted(windows, key=lambda window: (-window.length, window.text, window.begin)):
        # Longest first: the batch's first window sets the padded length, and memory trouble shows at once.
        if batch and (
            (len(batch) + 1) * (before + batch[0].length) > token_budget
            or (equal_lengths and window.length != batch[0].length)
            or (length_step is not None and before + window.length <= length_step < before + batch[0].length)
        ):
            yield batch
            batch = []
        batch.append(window)
    if batch:
        yield batch


def batch_arrays(
    encoded: Sequence[EncodedText], batch: Sequence[Window], length: int, before: Sequence[int] = ()
) -> tuple[npt.NDArray[np.int64], list[npt.NDArray[np.int64]], list[IntArray]]:
    """Token ids [windows, length], padded with 0; the flat places of the logits that predict scored tokens; these.

    The tokens ``before`` stand in front of every window, and are part of ``length``.
    """
    ids = np.zeros((len(batch), length), dtype=np.int64)
    ids[:, : len(before)] = before
    rows: list[npt.NDArray[np.int64]] = []
    targets: list[IntArray] = []
    for index, window in enumerate(batch):
        text = encoded[window.text]
        shift = len(before) + window.has_start_token
        if text.start_token_id is not None:
            ids[index, len(before)] = text.start_token_id
        ids[index, shift : len(before) + window.length] = text.token_id[window.begin : window.end]
        scored = np.arange(window.score_from, window.end)
        # The logits that predict a token stand at the position before it.
        rows.append(index * length + (scored - window.begin) + shift - 1)
        targets.append(text.token_id[window.score_from : window.end])
    return ids, rows, targets
