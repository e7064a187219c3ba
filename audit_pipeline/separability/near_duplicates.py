"""Texts that nearly are each other, found by MinHash and confirmed exactly.

What belongs here: candidate pairs from datasketch's MinHash and locality-sensitive hashing (Broder 1997; Leskovec,
Rajaraman and Ullman, Mining of Massive Datasets, 3.3 and 3.4), and their exact similarity. What does not: what such a
pair means for a benchmark (quality.py, benchmarks/checks.py).

Of a text's sets of hash values, bands of r are compared; a pair of similarity s agrees in one of b bands with
probability 1 - (1 - s^r)^b. Bands are chosen so that a pair just at the threshold is missed with probability 1e-6 at
most, a more similar one with less. Every candidate is then compared exactly, so no pair is wrong, and the similarity
is the exact one: hashing only decides what is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

SHINGLE_WORDS = 5
MOST_MISSED = 1e-6
_PERMUTATIONS = 256
_MOST_LONG = 33
_SEED = 20240101

Shingles = frozenset[tuple[str, ...]]


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
    seed: int = _SEED,
) -> list[NearPair]:
    """The pairs of ``texts`` whose sets of ``shingle``-word sequences overlap by at least ``threshold``.

    Similarity is Jaccard's, |A and B| / |A or B|, exact; case does not matter; a text shorter than a shingle is one
    shingle. Pairs are in order of position. Raises ValueError for a threshold outside (0, 1].
    """
    return near_pairs_of([split(text.lower()) for text in texts], threshold, shingle=shingle, seed=seed)


def near_pairs_of(
    texts: Sequence[Sequence[str]], threshold: float, *, shingle: int = SHINGLE_WORDS, seed: int = _SEED
) -> list[NearPair]:
    """As :func:`near_pairs`, of texts that are words already, case as given.

    Shingles are kept of such texts only as are compared, so memory is that of the words and of 256 numbers per text.
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must be in (0, 1], not {threshold}")
    kept: dict[int, Shingles] = {}

    def of(place: int) -> Shingles:
        if place not in kept:
            kept[place] = shingles(texts[place], shingle)
        return kept[place]

    pairs = []
    for second, first in _candidates(texts, threshold, shingle, seed):
        shared = len(of(first) & of(second))
        similarity = shared / (len(of(first)) + len(of(second)) - shared)
        if similarity >= threshold:
            pairs.append(NearPair(first, second, similarity))
    return sorted(pairs, key=lambda pair: (pair.first, pair.second))


def shingles(words: Sequence[str], size: int = SHINGLE_WORDS) -> Shingles:
    """The set of ``size``-word sequences; all words together where there are fewer."""
    return frozenset(tuple(words[start : start + size]) for start in range(max(1, len(words) - size + 1)))


def bands(threshold: float) -> tuple[int, int]:
    """How many bands of how many hash values: the longest bands, within 256 hash values, of which there are enough for
    a pair at the threshold to be missed with probability 1e-6 at most.

    Longer bands make fewer candidates. For thresholds below 0.053 more than 256 hash values are taken.
    """
    if threshold >= 1:
        return 2, 16  # equal sets agree everywhere; two bands are the library's least
    enough = {
        length: math.ceil(math.log(MOST_MISSED) / math.log1p(-(threshold**length))) for length in range(1, _MOST_LONG)
    }
    length = max((length for length, number in enough.items() if number * length <= _PERMUTATIONS), default=1)
    return max(2, enough[length]), length


def _candidates(texts: Sequence[Sequence[str]], threshold: float, shingle: int, seed: int) -> Iterator[tuple[int, int]]:
    """Positions of pairs of texts that agree in a band, each pair once, the smaller position second."""
    # Imported where pairs are looked for: it brings pieces of scipy that take a while.
    from datasketch import MinHash, MinHashLSH  # noqa: PLC0415

    number, length = bands(threshold)
    values = ([_bytes(one) for one in shingles(words, shingle)] for words in texts)
    index = MinHashLSH(num_perm=number * length, params=(number, length))
    for place, sketch in enumerate(MinHash.generator(values, num_perm=number * length, seed=seed)):
        yield from ((place, other) for other in index.query(sketch))
        index.insert(place, sketch, check_duplication=False)


def _bytes(shingle: tuple[str, ...]) -> bytes:
    return "\x1f".join(shingle).encode()
