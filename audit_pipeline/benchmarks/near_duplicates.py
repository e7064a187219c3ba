"""Texts that nearly are each other: exact Jaccard similarity of word shingles.

What belongs here: counting such pairs. What does not: removing them (they are reported; exact duplicates are the
builders' to remove).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

SHINGLE_WORDS = 5
_BLOCK = 512


@dataclass(frozen=True)
class NearPair:
    """Two texts by their positions among those that were given, ``first`` < ``second``, and their similarity."""

    first: int
    second: int
    similarity: float


def near_pairs(
    texts: Sequence[str],
    threshold: float,
    *,
    shingle: int = SHINGLE_WORDS,
    split: Callable[[str], list[str]] = str.split,
) -> list[NearPair]:
    """All pairs of ``texts`` whose sets of ``shingle``-word sequences overlap by at least ``threshold``.

    Similarity is Jaccard's, |A and B| / |A or B|, computed exactly from counts; case does not matter; a text shorter
    than a shingle is one shingle. ``threshold`` is in (0, 1]. Pairs are in order of position. Memory is that of the
    shingles and of a block of 512 rows of the product, so thousands of texts are no matter.
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must be in (0, 1], not {threshold}")
    if len(texts) < 2:
        return []

    def shingles(text: str) -> list[str]:
        words = split(text.lower())
        return [" ".join(words[start : start + shingle]) for start in range(max(1, len(words) - shingle + 1))]

    sets = CountVectorizer(analyzer=shingles, binary=True, dtype=np.int32).fit_transform(texts).tocsr()
    sizes = np.asarray(sets.sum(axis=1)).ravel()
    transposed = sets.T.tocsc()
    pairs: list[NearPair] = []
    for start in range(0, len(texts), _BLOCK):
        shared = (sets[start : start + _BLOCK] @ transposed).tocoo()
        first, second = shared.row + start, shared.col
        similarity = shared.data / (sizes[first] + sizes[second] - shared.data)
        near = (second > first) & (similarity >= threshold)
        found = zip(first[near].tolist(), second[near].tolist(), similarity[near].tolist(), strict=True)
        pairs += [NearPair(*pair) for pair in sorted(found)]
    return pairs
