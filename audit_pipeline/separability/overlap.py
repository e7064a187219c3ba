"""How much of one side's texts is found, word for word, on the other: overlap of n-grams.

What belongs here: the share of a text's n-grams that some text of the other side has too. What does not: whether two
texts nearly are each other (near_duplicates.py).

After MIMIR (Duan et al. 2024), whose splits keep non-members of which at most 20% or 80% of the 7- or
13-grams are found among the members. There the members are the whole training corpus; here they are those of the
benchmark, which is less: a small overlap here does not say that the overlap with what the model has read is small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from audit_pipeline.metrics.curves import Floats

SIZES = (7, 13)
LIMITS = (0.2, 0.8)

Split = Callable[[str], list[str]]


@dataclass(frozen=True, eq=False)
class Overlap:
    """``shares`` [n texts that have an n-gram]: of each text's n-grams, how many are found on the other side.

    ``too_short`` counts the texts of fewer than n words, which have none.
    """

    shares: Floats
    too_short: int

    @property
    def mean(self) -> float | None:
        """The mean share; None without a text."""
        return float(self.shares.mean()) if len(self.shares) else None

    @property
    def most(self) -> float | None:
        """The largest share; None without a text."""
        return float(self.shares.max()) if len(self.shares) else None

    def above(self, limit: float) -> float | None:
        """The share of texts of which more than ``limit`` is found on the other side; None without a text."""
        return float(np.mean(self.shares > limit)) if len(self.shares) else None


def overlap(texts: Sequence[str], others: Sequence[str], size: int, split: Split = str.split) -> Overlap:
    """What of ``texts`` is found in ``others``, by sequences of ``size`` words; case does not matter.

    Words are those of ``split``. An n-gram that stands twice in a text counts twice. Raises ValueError for a size
    below 1.
    """
    if size < 1:
        raise ValueError(f"an n-gram has at least one word, not {size}")
    return overlap_of_words(lowered(texts, split), lowered(others, split), size)


def lowered(texts: Sequence[str], split: Split) -> list[list[str]]:
    """The words of each text in lower case, for :func:`overlap_of_words`."""
    return [split(text.lower()) for text in texts]


def overlap_of_words(texts: Sequence[Sequence[str]], others: Sequence[Sequence[str]], size: int) -> Overlap:
    """As :func:`overlap`, of texts that are words already: taking apart once serves every size and both directions."""
    there = {gram for words in others for gram in _grams(words, size)}
    shares = []
    for words in texts:
        grams = _grams(words, size)
        if grams:
            shares.append(sum(gram in there for gram in grams) / len(grams))
    return Overlap(np.asarray(shares, dtype=np.float64), len(texts) - len(shares))


def _grams(words: Sequence[str], size: int) -> list[tuple[str, ...]]:
    return [tuple(words[start : start + size]) for start in range(len(words) - size + 1)]
