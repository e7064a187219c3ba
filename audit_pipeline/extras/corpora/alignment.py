"""Alignment of a text with the copies of it that a document holds.

The seeds of a text in a document are the runs of n words that both have. Seeds on neighbouring diagonals (word of the
document minus word of the text) are one copy. Within a copy the longest chain of equal words that stand in one order in
both is taken, and between the links of the chain, before its first and after its last, the longest common subsequence.
So words may be replaced, added or left out, but words in another order do not count.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from audit_pipeline.extras.corpora.word_hashes import Hashes, Places

Flags = npt.NDArray[np.bool_]

_LEAST_REACH = 5
_MOST_AROUND = 50
"""Words before the first and after the last seed of a copy that are compared, at most."""
_MOST_SEEDS = 20_000
"""Of a copy with more seeds, as in a grid of zeros, only the diagonal with most seeds is compared."""
_MOST_CELLS = 1 << 26
"""A larger gap between two seeds, in words of the text times words of the document, is not compared."""


@dataclass(frozen=True, eq=False)
class Alignment:
    """A copy of a text in a document.

    Attributes:
        first: First word of the text that is aligned.
        end: Word of the text after the last one that is aligned.
        matched: Whether the document holds each of these words, bool array of shape (end - first,).
        begin: First word of the document that is aligned.
        stop: Word of the document after the last one that is aligned.
    """

    first: int
    end: int
    matched: Flags
    begin: int
    stop: int


@dataclass(frozen=True, eq=False)
class Seeds:
    """The runs of ``length`` words that a document and a text share.

    Attributes:
        places: Word of the document at which each seed begins, int64 array of shape (n_seeds,).
        words: Word of the text at which each seed begins, int64 array of shape (n_seeds,).
        length: Words per seed.
    """

    places: Places
    words: Places
    length: int


def align_copies(own: Hashes, document: Hashes, seeds: Seeds, share: float, least_seeds: int) -> list[Alignment]:
    """Return the alignments of a text with its copies in a document.

    Args:
        own: Hashes of the text's words, uint64 array of shape (n_words,).
        document: Hashes of the document's words.
        share: Least share of an alignment's words that are equal. 1 - share of the text's words, or five, may be added
            or left out between two neighbouring seeds.
        least_seeds: Distinct words of the text at which seeds of one copy have to begin.

    Returns:
        Alignments in the order of their diagonals.
    """
    reach = min(max(_LEAST_REACH, (1 - share) * len(own)), len(own) // 2)
    diagonals = seeds.places - seeds.words
    order = np.argsort(diagonals, kind="stable")
    cuts = np.flatnonzero(np.diff(diagonals[order]) > reach) + 1
    copies = np.split(order, cuts)
    enough = [copy for copy in copies if len(np.unique(seeds.words[copy])) >= least_seeds]
    return [_align_copy(own, document, seeds, copy, share) for copy in enough]


def _align_copy(own: Hashes, document: Hashes, seeds: Seeds, copy: Places, share: float) -> Alignment:
    if len(copy) > _MOST_SEEDS:
        diagonals = seeds.places[copy] - seeds.words[copy]
        values, counts = np.unique(diagonals, return_counts=True)
        copy = copy[diagonals == values[np.argmax(counts)]]
    places, words = _chain_seeds(seeds.places[copy], seeds.words[copy], seeds.length)
    place_of_word = np.full(len(own), -1)
    place_of_word[words] = places
    gaps = np.flatnonzero((np.diff(words) > 1) & (np.diff(places) > 1))
    for gap in gaps.tolist():
        word, place = int(words[gap]) + 1, int(places[gap]) + 1
        between, other = own[word : words[gap + 1]], document[place : places[gap + 1]]
        if len(between) * len(other) <= _MOST_CELLS:
            for at, place_at in match_in_order(between.tolist(), other.tolist()):
                place_of_word[word + at] = place + place_at
    _extend_tail(own, document, place_of_word, int(words[-1]), int(places[-1]), share)
    # The head of a text is the tail of the reversed one.
    first, last = len(own) - 1 - int(words[0]), len(document) - 1 - int(places[0])
    reversed_places = np.full(len(own), -1)
    _extend_tail(own[::-1], document[::-1], reversed_places, first, last, share)
    heads = np.flatnonzero(reversed_places >= 0)
    place_of_word[len(own) - 1 - heads] = len(document) - 1 - reversed_places[heads]
    matched = place_of_word >= 0
    first, end = find_longest_stretch(matched, share)
    within = place_of_word[first:end][matched[first:end]]
    return Alignment(first, end, matched[first:end], int(within[0]), int(within[-1]) + 1)


def _extend_tail(own: Hashes, document: Hashes, place_of_word: Places, word: int, place: int, share: float) -> None:
    """Match the words of a text after the word ``word``, which stands at ``place`` in the document."""
    tail = own[word + 1 : word + 1 + _MOST_AROUND]
    other = document[place + 1 : place + 1 + len(tail) + max(_LEAST_REACH, round((1 - share) * len(tail)))]
    for at, place_at in match_in_order(tail.tolist(), other.tolist()):
        place_of_word[word + 1 + at] = place + 1 + place_at


def _chain_seeds(places: Places, words: Places, length: int) -> tuple[Places, Places]:
    """Return the longest chain of words of seeds whose places rise in document and text: both, in order."""
    within = np.arange(length)
    all_places = (places[:, None] + within).ravel()
    all_words = (words[:, None] + within).ravel()
    # By place, and of one place the last word first: a chain takes one word per place.
    order = np.lexsort((-all_words, all_places))
    all_places, all_words = all_places[order], all_words[order]
    is_new = np.append(True, (np.diff(all_places) != 0) | (np.diff(all_words) != 0))
    all_places, all_words = all_places[is_new], all_words[is_new]
    if (np.diff(all_words) > 0).all():
        return all_places, all_words
    last_words: list[int] = []
    last_links: list[int] = []
    previous: list[int] = []
    for number, word in enumerate(all_words.tolist()):
        at = bisect_left(last_words, word)
        previous.append(last_links[at - 1] if at else -1)
        last_words[at : at + 1] = [word]
        last_links[at : at + 1] = [number]
    chain: list[int] = []
    link = last_links[-1]
    while link >= 0:
        chain.append(link)
        link = previous[link]
    chain.reverse()
    return all_places[chain], all_words[chain]


def match_in_order(own: Sequence[int], other: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of places of a longest common subsequence of two sequences, the last pair first.

    Of several places in ``other`` the earliest one is taken. The table of lengths is held as one integer per element of
    ``other``, whose zero bits say at which elements of ``own`` the length rises (Hyyrö 2004, "Bit-parallel LCS-length
    computation revisited").
    """
    masks: dict[int, int] = defaultdict(int)
    for at, word in enumerate(own):
        masks[word] |= 1 << at
    everything = (1 << len(own)) - 1
    level = everything
    levels = [level]
    for word in other:
        common = level & masks.get(word, 0)
        level = ((level + common) | (level - common)) & everything
        levels.append(level)
    at, place = len(own), len(other)
    while at and place:
        if levels[place] >> (at - 1) & 1:
            at -= 1
        elif not levels[place - 1] >> (at - 1) & 1:
            place -= 1
        else:
            at -= 1
            place -= 1
            yield at, place


def flag_run_starts(flags: Flags, length: int) -> Flags:
    """Return at which words (bool [w]) a run of ``length`` words begins all of which ``flags`` names."""
    whole: Flags = np.convolve(flags, np.ones(length))[length - 1 :] == length
    return whole


def find_longest_stretch(matched: Flags, share: float) -> tuple[int, int]:
    """Return [first, end) of the longest stretch of ``matched`` (bool [w]) that begins and ends with True and of which
    at least ``share`` is True; of several the first. Some of ``matched`` has to be True.
    """
    # Sums minus the share: a stretch has enough where its sum does not fall. A little more a word pays for rounding.
    sums = np.concatenate([[0.0], np.cumsum(matched - share)]) + 1e-9 * np.arange(len(matched) + 1)
    # The last such end, by the largest sum of an end from there on.
    of_ends = np.where(np.append(False, matched), sums, -np.inf)
    largest = np.maximum.accumulate(of_ends[::-1])
    firsts = np.flatnonzero(matched)
    ends = len(sums) - 1 - np.searchsorted(largest, sums[firsts])
    best = int(np.argmax(ends - firsts))
    return int(firsts[best]), int(ends[best])
