"""Alignment of a text with the copies of it that a document holds.

A run is a sequence of n consecutive words. The seeds of a text in a document are the runs that both contain. The
diagonal of a seed is its position in the document minus its position in the text, in words. Seeds on neighbouring
diagonals belong to one copy.

The alignment of a copy starts with the longest chain of equal words in the same order. Gaps in the chain, and the words
before and after it, are aligned by longest common subsequence. Words can be replaced, added or omitted, but words in
another order do not match.

The alignment is hand-written, because it compares 64-bit hashes and only near the seeds. Libraries such as ``difflib``
compare whole sequences, which takes too long for a corpus.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from audit_pipeline.extras.corpora.word_hashes import Hashes, Places

Flags = npt.NDArray[np.bool_]

_MIN_REACH = 5
"""Number of words that can be added or omitted between two neighbouring seeds, even if ``share`` allows fewer."""
_MAX_AROUND = 50
"""Maximum number of words that are compared before the first seed and after the last seed of a copy."""
_MAX_SEEDS = 20_000
"""Maximum number of seeds of a copy. If it has more (a table of zeros), only its diagonal with most seeds is used."""
_CLEAR_MARGIN = 1e-3
"""Number of matched words above the required share from which a whole stretch has enough of them for certain."""
_MAX_CELLS = 1 << 26
"""Maximum size of a gap, in words of the text times words of the document. A larger gap is not compared."""


@dataclass(frozen=True, eq=False)
class Alignment:
    """A copy of a text in a document.

    Attributes:
        first: Index in the text of the first aligned word.
        end: Index in the text after the last aligned word.
        matched: Whether each word of the text has a match in the document, bool array of shape (end - first,).
        begin: Index in the document of the first aligned word.
        stop: Index in the document after the last aligned word.
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
        places: Index in the document of each seed's first word, int64 array of shape (n_seeds,).
        words: Index in the text of each seed's first word, int64 array of shape (n_seeds,).
        length: Words per seed.
    """

    places: Places
    words: Places
    length: int


def align_copies(text: Hashes, document: Hashes, seeds: Seeds, share: float, min_seeds: int) -> list[Alignment]:
    """Align a text with its copies in a document.

    Args:
        text: Hashes of the text's words, uint64 array of shape (n_words,).
        document: Hashes of the document's words, uint64 array of shape (n_document_words,).
        seeds: The seeds of the text in the document.
        share: Minimum share of equal words in an alignment. Between two neighbouring seeds, (1 - share) * n_words words
            can be added or omitted, or ``_MIN_REACH`` words if this is more. The maximum is half of n_words.
        min_seeds: Minimum number of distinct positions in the text at which the seeds of a copy begin.

    Returns:
        Alignments in the order of their diagonals.
    """
    reach = min(max(_MIN_REACH, (1 - share) * len(text)), len(text) // 2)
    diagonals = seeds.places - seeds.words
    copies = [(seeds.places, seeds.words)]
    if int(diagonals.max()) - int(diagonals.min()) > reach:
        order = np.argsort(diagonals, kind="stable")
        diagonals = diagonals[order]
        cuts = np.flatnonzero(diagonals[1:] - diagonals[:-1] > reach) + 1
        copies = []
        for begin, end in pairwise([0, *cuts.tolist(), len(order)]):
            copy = order[begin:end]
            copies.append((seeds.places[copy], seeds.words[copy]))
    alignments: list[Alignment] = []
    for places, words in copies:
        if len(words) >= min_seeds and len(set(words.tolist())) >= min_seeds:
            alignments.append(_align_copy(text, document, Seeds(places, words, seeds.length), share))
    return alignments


def _align_copy(text: Hashes, document: Hashes, seeds: Seeds, share: float) -> Alignment:
    """Align a text with one copy of it, which has these seeds."""
    places = seeds.places
    words = seeds.words
    if len(places) > _MAX_SEEDS:
        diagonals = places - words
        values, counts = np.unique(diagonals, return_counts=True)
        is_used = diagonals == values[np.argmax(counts)]
        places = places[is_used]
        words = words[is_used]
    places, words = _chain_seeds(places, words, seeds.length)
    place_of_word = np.full(len(text), -1)
    place_of_word[words] = places
    first_word = int(words[0])
    last_word = int(words[-1])
    if last_word - first_word >= len(words):
        _fill_gaps(text, document, place_of_word, places, words)
    first_place = int(places[0])
    last_place = int(places[-1])
    tail = text[last_word + 1 : last_word + 1 + _MAX_AROUND].tolist()
    after = document[last_place + 1 : last_place + 1 + _count_compared_words(len(tail), share)].tolist()
    for word_offset, place_offset in match_in_order(tail, after):
        place_of_word[last_word + 1 + word_offset] = last_place + 1 + place_offset
    # The head of a text is the tail of the reversed text.
    head = text[max(0, first_word - _MAX_AROUND) : first_word].tolist()
    before = document[max(0, first_place - _count_compared_words(len(head), share)) : first_place].tolist()
    for word_offset, place_offset in match_in_order(head[::-1], before[::-1]):
        place_of_word[first_word - 1 - word_offset] = first_place - 1 - place_offset
    matched = place_of_word >= 0
    begin, end = find_longest_stretch(matched, share)
    return Alignment(begin, end, matched[begin:end], int(place_of_word[begin]), int(place_of_word[end - 1]) + 1)


def _count_compared_words(length: int, share: float) -> int:
    """Return how many words of a document are compared with the ``length`` words of a head or tail of a text."""
    return length + max(_MIN_REACH, round((1 - share) * length))


def _fill_gaps(text: Hashes, document: Hashes, place_of_word: Places, places: Places, words: Places) -> None:
    """Match the words in the gaps of a chain, and store their positions in ``place_of_word``.

    ``places`` and ``words`` are the positions of the chain's words in the document and in the text.
    """
    word_steps = words[1:] - words[:-1]
    place_steps = places[1:] - places[:-1]
    gaps = np.flatnonzero((word_steps > 1) & (place_steps > 1))
    # Most gaps are a single replaced word, which needs no search.
    is_single = (word_steps[gaps] == 2) & (place_steps[gaps] == 2)
    is_equal = text[words[gaps] + 1] == document[places[gaps] + 1]
    gaps = gaps[is_equal | ~is_single]
    for gap in gaps.tolist():
        word = int(words[gap]) + 1
        place = int(places[gap]) + 1
        gap_in_text = text[word : words[gap + 1]]
        gap_in_document = document[place : places[gap + 1]]
        if len(gap_in_text) * len(gap_in_document) <= _MAX_CELLS:
            for word_offset, place_offset in match_in_order(gap_in_text.tolist(), gap_in_document.tolist()):
                place_of_word[word + word_offset] = place + place_offset


def _chain_seeds(places: Places, words: Places, length: int) -> tuple[Places, Places]:
    """Return the longest chain of seed words whose positions rise in both the document and the text.

    Returns:
        The positions of the chain's words in the document, and their positions in the text.
    """
    within = np.arange(length)
    diagonals = places - words
    if (diagonals == diagonals[0]).all():
        is_in_seed = np.zeros(int(words.max()) + length, np.bool_)
        is_in_seed[(words[:, None] + within).ravel()] = True
        seed_words = np.flatnonzero(is_in_seed)
        return seed_words + diagonals[0], seed_words
    all_places = (places[:, None] + within).ravel()
    all_words = (words[:, None] + within).ravel()
    # Several words of the text can match one word of the document. They are sorted in descending order, so that a
    # strictly rising chain contains only one of them.
    # Both positions are packed into one integer, which sorts faster than two arrays.
    n_words = int(all_words.max()) + 1
    packed = np.sort(all_places * n_words + (n_words - 1 - all_words))
    is_new = np.empty(len(packed), np.bool_)
    is_new[0] = True
    np.not_equal(packed[1:], packed[:-1], out=is_new[1:])
    all_places, all_words = np.divmod(packed[is_new], n_words)
    all_words = n_words - 1 - all_words
    if (all_words[1:] > all_words[:-1]).all():
        return all_places, all_words
    last_words: list[int] = []
    last_links: list[int] = []
    previous: list[int] = []
    for number, word in enumerate(all_words.tolist()):
        at = bisect_left(last_words, word)
        if at:
            previous.append(last_links[at - 1])
        else:
            previous.append(-1)
        if at == len(last_words):
            last_words.append(word)
            last_links.append(number)
        else:
            last_words[at] = word
            last_links[at] = number
    chain: list[int] = []
    link = last_links[-1]
    while link >= 0:
        chain.append(link)
        link = previous[link]
    chain.reverse()
    return all_places[chain], all_words[chain]


def match_in_order(text: Sequence[int], document: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of positions in a longest common subsequence of two sequences, from the last pair to the first.

    If an element has several positions in ``document``, the earliest is taken. The table of the subsequences' lengths
    has one integer per element of ``document``. A zero bit marks an element of ``text`` at which the length rises
    (Hyyrö 2004, "Bit-parallel LCS-length computation revisited").
    """
    shared = set(text).intersection(document)
    if not shared:
        return
    # An element that only one sequence contains is in no pair, and the lengths do not rise at it. So it is left out.
    text_places = [at for at, word in enumerate(text) if word in shared]
    document_places = [place for place, word in enumerate(document) if word in shared]
    masks = dict.fromkeys(shared, 0)
    for at, text_place in enumerate(text_places):
        masks[text[text_place]] |= 1 << at
    everything = (1 << len(text_places)) - 1
    level = everything
    levels = [level]
    for document_place in document_places:
        common = level & masks[document[document_place]]
        level = ((level + common) | (level - common)) & everything
        levels.append(level)
    at = len(text_places)
    place = len(document_places)
    while at and place:
        if levels[place] >> (at - 1) & 1:
            at -= 1
        elif not levels[place - 1] >> (at - 1) & 1:
            place -= 1
        else:
            at -= 1
            place -= 1
            yield text_places[at], document_places[place]


def flag_run_starts(flags: Flags, length: int) -> Flags:
    """Return whether each word starts a run of ``length`` flagged words, bool array of shape (n_words,)."""
    whole: Flags = np.convolve(flags, np.ones(length))[length - 1 :] == length
    return whole


def find_longest_stretch(matched: Flags, share: float) -> tuple[int, int]:
    """Find the longest stretch that begins and ends with a matched word and has enough matched words.

    Args:
        matched: Bool array of shape (n_words,) with at least one True.
        share: Minimum share of matched words in the stretch.

    Returns:
        The bounds [begin, end) of the longest stretch, or of the first one if several are equally long.
    """
    begins = np.flatnonzero(matched)
    first = int(begins[0])
    end = int(begins[-1]) + 1
    # The margin is larger than all rounding errors of the sums below.
    if len(begins) >= share * (end - first) + _CLEAR_MARGIN:
        return first, end
    # A stretch has enough matched words if its sum of (matched - share) is not negative. The small term per word
    # compensates for rounding.
    sums = np.zeros(len(matched) + 1)
    np.cumsum(matched - share, out=sums[1:])
    sums += 1e-9 * np.arange(len(sums))
    # The largest sum of the later ends rises from right to left, so a binary search finds the last sufficient end.
    sums_at_ends = np.full(len(sums), -np.inf)
    sums_at_ends[begins + 1] = sums[begins + 1]
    largest = np.maximum.accumulate(sums_at_ends[::-1])
    ends = len(sums) - 1 - np.searchsorted(largest, sums[begins])
    best = int(np.argmax(ends - begins))
    return int(begins[best]), int(ends[best])
