"""How much of one side's texts is found, word for word, on the other: overlap of n-grams.

What belongs here: the share of a text's n-grams that some text of the other side has too. What does not: whether two
texts nearly are each other (near_duplicates.py).

After MIMIR (Duan et al. 2024), whose splits keep non-members of which at most 20% or 80% of the 7- or
13-grams are found among the members. There the members are the whole training corpus; here they are those of the
benchmark, which is less: a small overlap here does not say that the overlap with what the model has read is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from audit_pipeline.metrics.curves import Floats

SIZES = (7, 13)
LIMITS = (0.2, 0.8)


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


def overlap_of_words(texts: Sequence[Sequence[str]], others: Sequence[Sequence[str]], size: int) -> Overlap:
    """What of ``texts`` is found in ``others``, both as words in lower case, by sequences of ``size`` words.

    An n-gram that stands twice in a text counts twice.
    """
    there = {gram for words in others for gram in _grams(words, size)}
    shares = []
    for words in texts:
        grams = _grams(words, size)
        if grams:
            shares.append(sum(gram in there for gram in grams) / len(grams))
    return Overlap(np.asarray(shares, dtype=np.float64), len(texts) - len(shares))


def _grams(words: Sequence[str], size: int) -> list[tuple[str, ...]]:
    return [tuple(words[start : start + size]) for start in range(len(words) - size + 1)]
