"""The audited texts as an index of their runs of n words: what is held in memory while a corpus streams by.

A run that is at more than 100 places of the audited texts is a *template* of the test set (its instructions, the
same sentence in every item): it says nothing about any text, and is not looked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from audit_pipeline.errors import DataError
from audit_pipeline.extras.corpora.words import Hashes, Offsets, Places, Words, hash_runs

MOST_PLACES = 100
_TEMPLATE = -1
_BITS_PER_HASH = 16
_MOST_BITS = 33


@dataclass(frozen=True, eq=False)
class HashTable:
    """Distinct hashes that others are looked up in.

    ``values``: uint64 [r], ascending. ``seen`` (uint8): a bit for every value of the first ``bits`` bits of a hash, so
    that few of a corpus's are searched for. ``buckets`` (int32): for every value of as many first bits as there are
    about hashes, the first hash that begins with it.
    """

    values: Hashes
    bits: int
    seen: npt.NDArray[np.uint8]
    buckets: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.values)

    def find(self, hashes: Hashes) -> tuple[Places, Places]:
        """Return which of ``hashes`` (uint64 [k]) the table holds: their positions, and each one's number in it."""
        top = hashes >> np.uint64(64 - self.bits)
        likely = np.flatnonzero(self.seen[top >> np.uint64(3)] >> (top & np.uint64(7)).astype(np.uint8) & 1)
        wanted = hashes[likely]
        # From the first run that begins with the same bits: a binary search would miss the processor's cache ten times.
        number = self.buckets[wanted >> np.uint64(64 - _count_bucket_bits(len(self.buckets)))].astype(np.int64)
        lower = np.flatnonzero((self.values[number] < wanted) & (number < len(self.values) - 1))
        while len(lower):
            number[lower] += 1
            further = number[lower]
            lower = lower[(self.values[further] < wanted[lower]) & (further < len(self.values) - 1)]
        found = self.values[number] == wanted
        return likely[found], number[found]


def build_hash_table(values: Hashes) -> HashTable:
    """Return the table of ``values`` (uint64 [r], ascending, at least one)."""
    bits = min(max(int(len(values) * _BITS_PER_HASH - 1).bit_length(), 3), _MOST_BITS)
    top = values >> np.uint64(64 - bits)
    seen = np.zeros(1 << (bits - 3), np.uint8)
    np.bitwise_or.at(seen, top >> np.uint64(3), np.uint8(1) << (top & np.uint64(7)).astype(np.uint8))
    bits_of_buckets = _count_bucket_bits(len(values))
    begin_of_bucket = np.arange(1 << bits_of_buckets, dtype=np.uint64) << np.uint64(64 - bits_of_buckets)
    buckets = np.minimum(np.searchsorted(values, begin_of_bucket), len(values) - 1).astype(np.int32)
    return HashTable(values, bits, seen, buckets)


@dataclass(frozen=True, eq=False)
class TextIndex:
    """The runs of n words of t texts with w words together.

    ``runs`` (r of them): the distinct runs that are looked for, and texts of fewer words as a whole (``lengths``: how
    many words they have). Those of run i stand at the words ``places[first[i] : first[i + 1]]``. ``run_at`` (int64
    [w]): which run begins at a word; -1: none does, or a template. ``templates`` (bool [w]): where a template begins.
    ``first_word`` (int64 [t + 1]): where each text begins among the words. ``starts``, ``ends`` (int32 [w]): each
    word's characters in its text.
    """

    n: int
    lengths: tuple[int, ...]
    runs: HashTable
    first: Places
    places: Places
    run_at: Places
    templates: npt.NDArray[np.bool_]
    first_word: Places
    starts: Offsets
    ends: Offsets

    def find_texts(self, words: Places) -> Places:
        """Return the text that each of these words is of."""
        return np.searchsorted(self.first_word, words, side="right") - 1


def build_index(words: Words, first_word: Places, n: int, shortest: int) -> TextIndex:
    """Index the runs of ``n`` words of texts that were split, and whole texts of ``shortest`` to n words.

    Raises DataError where no text has so many.
    """
    own = np.diff(first_word)
    # Of each text that is long enough, the word that each run begins at, and the run's length.
    lengths = np.minimum(own, n)
    counts = np.where(own >= shortest, own - lengths + 1, 0)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    places = np.repeat(first_word[:-1], counts) + within
    if not len(places):
        raise DataError(f"none of the {len(own):,} texts has {shortest} words: nothing can be looked for")
    length_at = np.repeat(lengths, counts)
    hashes = np.zeros(len(places), np.uint64)
    found_lengths = tuple(np.unique(length_at).tolist())
    for length in found_lengths:
        of_length = length_at == length
        hashes[of_length] = hash_runs(words.hashes, length)[places[of_length]]
    order = np.argsort(hashes)
    hashes, places = hashes[order], places[order]
    begins = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))
    counts = np.diff(np.append(begins, len(hashes)))
    wanted = counts <= MOST_PLACES
    of_wanted = np.repeat(wanted, counts)
    templates = np.zeros(first_word[-1], np.bool_)
    templates[places[~of_wanted]] = True
    run_at = np.full(first_word[-1], _TEMPLATE, np.int64)
    run_at[places[of_wanted]] = np.repeat(np.arange(np.count_nonzero(wanted)), counts[wanted])
    return TextIndex(
        n,
        found_lengths,
        build_hash_table(hashes[begins[wanted]]),
        np.concatenate([[0], np.cumsum(counts[wanted])]),
        places[of_wanted],
        run_at,
        templates,
        first_word,
        words.starts,
        words.ends,
    )


def _count_bucket_bits(count: int) -> int:
    return max(count, 2).bit_length() - 1
