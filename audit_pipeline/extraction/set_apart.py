"""Windows that a model gives word for word although nobody has to have shown it the document.

What belongs here: telling such windows from others. What does not: probabilities (conclude.py), running models.

Only windows that the model reproduces are looked at. Three things make one no sign of memorisation: its suffix goes on
as its prefix did (a list, a refrain); the same words stand in several of the documents (a licence, a preface of the
publisher); a reference model, which was not trained on the document, reproduces it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from audit_pipeline.catalogue.contracts import SetApart

COMMON_RUN = 20
"""A run of so many tokens on end is not there twice by chance; of a shorter suffix, all of it."""
SEVERAL = 3
"""What stands in so many documents is boilerplate."""

Ints = npt.NDArray[np.integer]
Hashes = npt.NDArray[np.uint64]

_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def repeats(prefix: Ints, suffix: Ints) -> bool:
    """Whether a run of ``COMMON_RUN`` tokens of the suffix [k] begins in the prefix [a], too.

    It may end in the suffix: what repeats itself goes on repeating, also behind a prefix that is shorter than a run.
    """
    length = run_of(len(suffix))
    begun = _runs(np.concatenate([prefix, suffix]), length)[: len(prefix)]
    return bool(np.isin(_runs(suffix, length), begun).any())


def boilerplate(documents: Sequence[Ints], length: int) -> Hashes:
    """The runs of ``length`` tokens that stand in ``SEVERAL`` of the documents or more, as hashes, sorted.

    documents: the tokens of each, none given twice.
    """
    if len(documents) < SEVERAL:
        return np.empty(0, dtype=np.uint64)
    of_each = [np.unique(_runs(document, length)) for document in documents]
    runs, counts = np.unique(np.concatenate(of_each), return_counts=True)
    return np.asarray(runs[counts >= SEVERAL])


def is_boilerplate(suffix: Ints, known: Hashes) -> bool:
    """Whether a run of the suffix [k] is among those that :func:`boilerplate` gave for ``run_of(suffix)``."""
    return bool(np.isin(_runs(suffix, run_of(len(suffix))), known).any())


def run_of(suffix: int) -> int:
    """How long the runs are that suffixes of so many tokens are looked through for."""
    return min(COMMON_RUN, suffix)


def why(prefix: Ints, suffix: Ints, known: Callable[[], Hashes]) -> SetApart | None:
    """Why the text alone sets a window that the model reproduces apart; None where it does not.

    known: gives what :func:`boilerplate` found; it is asked only where the suffix does not repeat its prefix.
    """
    if repeats(prefix, suffix):
        return "repeats its prefix"
    return "in several documents" if is_boilerplate(suffix, known()) else None


def _runs(tokens: Ints, length: int) -> Hashes:
    """A hash of every run of ``length`` tokens: [max(0, n - length + 1)]."""
    count = len(tokens) - length + 1
    if count < 1:
        return np.empty(0, dtype=np.uint64)
    values = tokens.astype(np.uint64) + np.uint64(1)
    hashes = np.zeros(count, dtype=np.uint64)
    for place in range(length):
        hashes = (hashes ^ values[place : place + count]) * _FACTOR
        hashes ^= hashes >> np.uint64(29)
    return hashes
