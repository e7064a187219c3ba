"""The audited texts as an index of their runs of n words: what is held in memory while a corpus streams by.

A run that stands at more than 100 places of the audited texts is a *template* of the test set (its instructions, the
same sentence in every item): it tells nothing of any one text, and is not looked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from audit_pipeline.errors import DataError
from audit_pipeline.extras.corpora.words import Hashes, Offsets, Places, hash_runs, split_texts

MOST_PLACES = 100
_TEMPLATE = -1
_BITS_PER_RUN = 16
_MOST_BITS = 33


@dataclass(frozen=True, eq=False)
class TextIndex:
    """The runs of n words of t texts with w words together.

    ``runs`` (uint64 [r], ascending): the distinct runs that are looked for. Those of run i stand at the words
    ``places[first[i] : first[i + 1]]``. ``run_at`` (int64 [w]): which run begins at a word; -1: none does, or a
    template. ``templates`` (bool [w]): where a template begins. ``first_word`` (int64 [t + 1]): where each text begins
    among the words. ``starts``, ``ends`` (int32 [w]): each word's characters in its text. ``seen`` (uint8): a bit for
    every value of the first ``bits`` bits of a run's hash, so that few of a corpus's runs are searched for. ``buckets``
    (int32): for every value of as many first bits as there are about runs, the first run that begins with it.
    """

    n: int
    bits: int
    runs: Hashes
    first: Places
    places: Places
    run_at: Places
    templates: npt.NDArray[np.bool_]
    first_word: Places
    starts: Offsets
    ends: Offsets
    seen: npt.NDArray[np.uint8]
    buckets: npt.NDArray[np.int32]

    def find(self, hashes: Hashes) -> tuple[Places, Places]:
        """Which of ``hashes`` (uint64 [k]) are runs of the texts: their positions, and the number of each one's run."""
        top = hashes >> np.uint64(64 - self.bits)
        likely = np.flatnonzero(self.seen[top >> np.uint64(3)] >> (top & np.uint64(7)).astype(np.uint8) & 1)
        wanted = hashes[likely]
        # From the first run that begins with the same bits: a binary search would miss the processor's cache ten times.
        number = self.buckets[wanted >> np.uint64(64 - _bits_of_buckets(len(self.buckets)))].astype(np.int64)
        while (is_lower := (self.runs[number] < wanted) & (number < len(self.runs) - 1)).any():
            number += is_lower
        found = self.runs[number] == wanted
        return likely[found], number[found]

    def text_of(self, words: Places) -> Places:
        """Return the text that each of these words is of."""
        return np.searchsorted(self.first_word, words, side="right") - 1


def build_index(texts: Sequence[str], n: int) -> TextIndex:
    """Index the runs of ``n`` words of ``texts``; raises DataError where no text has one."""
    words, first_word = split_texts(texts)
    # The hash of every run of n words within a text, and the word that it begins at.
    counts = np.maximum(np.diff(first_word) - n + 1, 0)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    places = np.repeat(first_word[:-1], counts) + within
    hashes = hash_runs(words.hashes, n)[places]
    if not len(hashes):
        raise DataError(f"none of the {len(texts):,} texts has {n} words: nothing can be looked for")
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
    runs = hashes[begins[wanted]]
    bits = min(max(int(len(runs) * _BITS_PER_RUN - 1).bit_length(), 3), _MOST_BITS)
    top = runs >> np.uint64(64 - bits)
    seen = np.zeros(1 << (bits - 3), np.uint8)
    np.bitwise_or.at(seen, top >> np.uint64(3), np.uint8(1) << (top & np.uint64(7)).astype(np.uint8))
    bits_of_buckets = _bits_of_buckets(len(runs))
    begin_of_bucket = np.arange(1 << bits_of_buckets, dtype=np.uint64) << np.uint64(64 - bits_of_buckets)
    buckets = np.minimum(np.searchsorted(runs, begin_of_bucket), len(runs) - 1).astype(np.int32)
    return TextIndex(
        n,
        bits,
        runs,
        np.concatenate([[0], np.cumsum(counts[wanted])]),
        places[of_wanted],
        run_at,
        templates,
        first_word,
        words.starts,
        words.ends,
        seen,
        buckets,
    )


def _bits_of_buckets(count: int) -> int:
    return max(count, 2).bit_length() - 1
