"""An answer against a whole document: how much of the document came out that was not in the prompt.

**Nothing that was in the prompt counts.** A word of the answer is *quoted* where it lies in a run of 5 or more words
that the prompt has, too, or in the longest beginning of the answer that is an end of the prompt, however short: who
goes on with a text may say its last words again. A quoted word matches nothing, in no measure. But texts repeat their
phrases: a quoted phrase of at most 12 words in the midst of a longer run of the document, most of which is not quoted,
with 5 words and more on either side that are not, belongs to that run and counts as quoted no more. A *common run* is a
longest run of words, none of them quoted, that answer and document share: none lies within another. Off its ends are
taken its longest beginning and its longest end that occur in the prompt (each at most 4 words; where they meet, nothing
is left). A prompt of fewer than 5 words counts as itself, repeated.

So an answer that repeats its prompt, in stretches of 5 or more words with a shorter rest before and after them, has no
run, no words out, no coverage and no near stretch, whatever the document repeats. Words of the prompt in an order that
the prompt does not have are not quoted: what is measured is order. In ``near_span`` and ``edits`` words match that are
not quoted, so up to 4 words of the prompt on either side of what is new, but for an end of the prompt that the answer
begins with.

The time is linear in the words of document and answers, whatever repeats in them, but for ``near_span``: that takes
time by the places where six words of the answer occur in the document.

Sources: suffix automaton, Blumer et al. 1985 (doi:10.1016/0304-3975(85)90157-4); edits of a stretch, Sellers 1980
(doi:10.1016/0196-6774(80)90016-4), by the bit-parallel algorithm of Myers 1999 (doi:10.1145/316542.316550).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from audit_pipeline.extras.corpora.word_hashes import Hashes, Offsets, Places, Words, hash_runs, hash_words_of_texts

_HYPHENS = re.compile("[-\u2010\u2011\u00ad][^\\S\r\n]*(?:\r\n?|\n)[^\\S\r\n]*|\u00ad")
_SOFT = "\u00ad"


def hash_normalised_words(text: str) -> Words:
    """Return the words of ``text`` in order: hashes, first characters and ends after the last (int64)."""
    spans = (_find_dropped(text, *match.span()) for match in _HYPHENS.finditer(text))
    dropped = [span for span in spans if span is not None]
    bounds = [0, *(bound for span in dropped for bound in span), len(text)]
    kept = list(zip(bounds[::2], bounds[1::2], strict=True))
    words, _ = hash_words_of_texts(["".join(text[start:end] for start, end in kept)])
    shifts = np.cumsum([0, *(end - start for start, end in dropped)])
    begins = np.array([start for start, _ in kept]) - shifts

    def to_original(places: Offsets) -> Places:
        original: Places = places + shifts[np.searchsorted(begins, places, side="right") - 1]
        return original

    return Words(words.hashes, to_original(words.starts), to_original(words.ends - 1) + 1)


def _find_dropped(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return what vanishes of a hyphen and the white space after it: all, the soft hyphen alone, or nothing (None)."""
    if end - start > 1 and _is_letter(text[start - 1 : start]) and _is_letter(text[end : end + 1]):
        return start, end
    return (start, start + 1) if text[start] == _SOFT else None


def _is_letter(character: str) -> bool:
    """Return whether it is a letter, or a mark, which belongs to the letter before it; the empty text is none."""
    return character != "" and unicodedata.category(character)[0] in "LM"


RUN = 5
"""Words of the shortest run that counts as common, or as quoted from the prompt."""
MISMATCHES, LEAST = 5, 40
"""A near stretch has at most so many words that differ, and at least so many words."""
NEXT_WORDS = LEAST
"""Words of the passage that ``edits`` compares."""
PHRASE = 12
"""Words of the longest quoted phrase that may belong to a longer run."""
_CELLS = 1 << 22
"""Pairs of words that are compared at once."""

Flags = npt.NDArray[np.bool_]
Symbols = Sequence[int | None]
"""Words' hashes; None: a quoted word, which is equal to no word of a document."""


@dataclass(frozen=True)
class AnswerMeasures:
    """What an answer gave of a document beyond its prompt, in words (see the module).

    ``answer_words``: all words of the answer. ``longest_run``: the longest common run; ``run_start`` and ``run_end``:
    its first place in the document, in characters, ``output_start``: where it begins in the answer; None without a run.
    ``words_out``: words of the answer in common runs of 5 and more; ``answer_coverage``: their share of its words (0
    without words). ``passage_coverage``: share of the passage's words in runs of 5 and more within the passage that the
    answer has, cut in the same way. ``near_span``: longest stretch of the answer that begins and ends with words of the
    document and differs from it in at most 5 words between, none inserted or left out; 0 below 40. ``edits``: fewest
    words to insert, delete or replace in some stretch of the answer (it may be empty) for the passage's first 40 words
    (all, where it has fewer). ``passage_coverage`` and ``edits`` are None without a passage, or where it has no words.
    """

    answer_words: int
    longest_run: int
    run_start: int | None
    run_end: int | None
    output_start: int | None
    words_out: int
    answer_coverage: float
    passage_coverage: float | None
    near_span: int
    edits: int | None


class DocumentMatcher:
    """A document that answers are measured against; built once, in time linear in the text."""

    def __init__(self, text: str) -> None:
        self._words = hash_normalised_words(text)
        self._automaton = SuffixAutomaton(self._words.hashes.tolist())
        self._near = NearStretches(self._words.hashes, MISMATCHES, LEAST)

    def measure(self, answer: str, prompt: str | None, passage: tuple[int, int] | None) -> AnswerMeasures:
        """Return the measures of ``answer``. ``prompt``: the whole prompt; None: not known, and nothing is discounted.
        ``passage``: the characters [start, end) of the document that the answer should give; None: not known.
        """
        words = hash_normalised_words(answer)
        in_prompt = hash_normalised_words(prompt or "").hashes
        quoted, beginnings, endings = _find_in_prompt(words.hashes, in_prompt)
        if quoted.any():
            lengths, _ = self._automaton.match(words.hashes.tolist())
            quoted &= ~_find_phrases(quoted, lengths)
        symbols = [
            None if is_quoted else word for word, is_quoted in zip(words.hashes.tolist(), quoted.tolist(), strict=True)
        ]
        lengths, ends = self._automaton.match(symbols)
        firsts, lasts, stops = _find_runs(lengths, beginnings, endings)
        longest, run_start, run_end, output_start = 0, None, None, None
        if len(firsts):
            at = int(np.argmax(lasts - firsts))
            first, longest = int(firsts[at]), int(lasts[at] - firsts[at])
            place = int(ends[stops[at] - 1] - (stops[at] - first))
            run_start, run_end = int(self._words.starts[place]), int(self._words.ends[place + longest - 1])
            output_start = int(words.starts[first])
        words_out = _count_covered(firsts, lasts)
        coverage, edits = None, None
        target = self._words.hashes[:0]
        if passage is not None:
            first_word = np.searchsorted(self._words.starts, passage[0])
            target = self._words.hashes[first_word : np.searchsorted(self._words.ends, passage[1], side="right")]
        if len(target):
            lengths, _ = SuffixAutomaton(symbols).match(target.tolist())
            _, beginnings, endings = _find_in_prompt(target, in_prompt)
            firsts, lasts, _ = _find_runs(lengths, beginnings, endings)
            coverage = _count_covered(firsts, lasts) / len(target)
            edits = count_edits(target[:NEXT_WORDS].tolist(), symbols)
        return AnswerMeasures(
            answer_words=len(words),
            longest_run=longest,
            run_start=run_start,
            run_end=run_end,
            output_start=output_start,
            words_out=words_out,
            answer_coverage=words_out / max(len(words), 1),
            passage_coverage=coverage,
            near_span=self._near.measure_longest(words.hashes, quoted),
            edits=edits,
        )


class SuffixAutomaton:
    """All runs of a sequence of words: a state for the runs that end at the same places, at most two states a word."""

    def __init__(self, words: Symbols) -> None:
        # Of every state: the state after each word, that of its longest run's longest end that occurs elsewhere, too
        # (-1: the root has none), the words of its longest run, and the end of that run's first place.
        nexts: list[dict[int | None, int]] = [{}]
        links, lengths, ends = [-1], [0], [0]
        last = 0
        for end, word in enumerate(words, 1):
            state, last = last, len(nexts)
            nexts.append({})
            links.append(0)
            lengths.append(end)
            ends.append(end)
            while state != -1 and word not in nexts[state]:
                nexts[state][word] = last
                state = links[state]
            if state == -1:
                continue
            target = nexts[state][word]
            if lengths[target] == lengths[state] + 1:
                links[last] = target
                continue
            # The target's shorter runs now end at one place more than its longer ones.
            shorter = len(nexts)
            nexts.append(nexts[target].copy())
            links.append(links[target])
            lengths.append(lengths[state] + 1)
            ends.append(ends[target])
            links[target] = links[last] = shorter
            while state != -1 and nexts[state].get(word) == target:
                nexts[state][word] = shorter
                state = links[state]
        self._nexts, self._links, self._lengths, self._ends = nexts, links, lengths, ends

    def match(self, words: Symbols) -> tuple[Places, Places]:
        """At every word the length of the longest run that ends with it and occurs in the sequence, and one past where
        that run first ends there (int64 [n] each).
        """
        nexts, links = self._nexts, self._links
        state = length = 0
        lengths: list[int] = []
        ends: list[int] = []
        for word in words:
            while state and word not in nexts[state]:
                state = links[state]
                length = self._lengths[state]
            if word in nexts[state]:
                state = nexts[state][word]
                length += 1
            lengths.append(length)
            ends.append(self._ends[state])
        return np.array(lengths, np.int64), np.array(ends, np.int64)


class NearStretches:
    """Where runs of a document's words are, for the longest stretch with at most ``mismatches`` words that differ.

    Such a stretch of ``least`` words or more has a run without a mismatch of (least - mismatches) / (mismatches + 1)
    words, rounded up: 6 of 40 with 5. So only diagonals (place in the document minus place in the answer) with such a
    run are compared.
    """

    def __init__(self, words: Hashes, mismatches: int, least: int) -> None:
        self._words, self._mismatches, self._least = words, mismatches, least
        self._size = -(-(least - mismatches) // (mismatches + 1))
        runs = hash_runs(words, self._size)
        self._places = np.argsort(runs, kind="stable")
        self._runs = runs[self._places]

    def measure_longest(self, answer: Hashes, quoted: Flags) -> int:
        """Words of the longest such stretch of the answer, whose ``quoted`` words match nothing; 0 below ``least``."""
        diagonals = self._find_diagonals(answer, quoted)
        places = np.arange(len(answer))
        longest = 0
        step = max(_CELLS // (len(answer) + 1), 1)
        for some in (diagonals[first : first + step, None] + places for first in range(0, len(diagonals), step)):
            inside = (some >= 0) & (some < len(self._words))
            same = self._words[np.where(inside, some, 0)] == answer
            longest = max(longest, _measure_window(inside & same & ~quoted, self._mismatches))
        return longest if longest >= self._least else 0

    def _find_diagonals(self, answer: Hashes, quoted: Flags) -> Places:
        """Return each diagonal along which answer and document share a run, once (int64); where they are so many that
        they hold more words than the document, of those with the same words of the document one.
        """
        n, total, size = len(answer), len(self._words), self._size
        runs = hash_runs(answer, size)
        n_quoted = np.cumsum([0, *quoted])
        places = np.flatnonzero(n_quoted[size:] == n_quoted[: len(runs)]) if len(runs) else np.empty(0, np.int64)
        lows = np.searchsorted(self._runs, runs[places], "left")
        highs = np.searchsorted(self._runs, runs[places], "right")
        is_diagonal = np.zeros(n + total, np.bool_)
        for place, low, high in zip(places.tolist(), lows.tolist(), highs.tolist(), strict=True):
            is_diagonal[self._places[low:high] - place + n] = True
        diagonals = np.flatnonzero(is_diagonal) - n
        if len(diagonals) * n > total:
            is_inside = (diagonals >= 0) & (diagonals + n <= total)
            inside = diagonals[is_inside]
            _, distinct = np.unique(hash_runs(self._words, n)[inside], return_index=True)
            diagonals = np.concatenate([diagonals[~is_inside], inside[distinct]])
        return diagonals


def _measure_window(matches: Flags, mismatches: int) -> int:
    """Return the longest stretch of any row that begins and ends with a match, with at most so many mismatches."""
    # Between two rows are more mismatches than a stretch may have.
    row = np.pad(matches, ((0, 0), (0, mismatches + 1))).ravel()
    row = np.concatenate([np.zeros(mismatches + 1, np.bool_), row])
    good, bad = np.flatnonzero(row), np.flatnonzero(~row)
    # Between a mismatch and the one that is too many after it: as many matches are before the k-th mismatch (from 0)
    # as its place minus k says.
    order = np.arange(len(bad))
    n_before = bad - order
    first, end = n_before[: -(mismatches + 1)], n_before[mismatches + 1 :]
    held = first < end
    return int((good[end[held] - 1] - good[first[held]]).max(initial=-1)) + 1


def _find_in_prompt(words: Hashes, prompt: Hashes) -> tuple[Flags, Places, Places]:
    """Return which words of an answer are quoted (bool [n]); of every word how many from it on are in the prompt as a
    run, and of every gap how many before it do (int64 [n + 1] each), at most one word less than makes a run quoted.
    """
    if 0 < len(prompt) < RUN:
        prompt = np.tile(prompt, RUN)
    quoted = np.zeros(len(words), np.bool_)
    beginnings, endings = np.zeros((2, len(words) + 1), np.int64)
    for size in range(1, RUN + 1):
        is_there = np.isin(hash_runs(words, size), hash_runs(prompt, size))
        if size < RUN:
            beginnings[: len(is_there)] += is_there
            endings[size : size + len(is_there)] += is_there
            if np.array_equal(words[:size], prompt[-size:]):
                quoted[:size] = True
        else:
            for shift in range(size):
                quoted[shift : shift + len(is_there)] |= is_there
    return quoted, beginnings, endings


def _find_phrases(quoted: Flags, lengths: Places) -> Flags:
    """Return which of the quoted words [n] are phrases within a longer run of the document; ``lengths``: of the longest
    run that ends with each word, quoted ones among them.
    """
    stops = _find_stops(lengths)
    starts = stops - lengths[stops - 1]
    free = np.flatnonzero(~quoted)
    n_quoted = np.cumsum([0, *quoted])
    # Off the ends of a run goes what is quoted: from its first to its last word that is not.
    first, last = np.searchsorted(free, starts), np.searchsorted(free, stops) - 1
    is_long = last - first + 1 >= 2 * RUN
    first, last = first[is_long], last[is_long]
    n_inside = n_quoted[free[last]] - n_quoted[free[first]]
    belongs = n_inside < last - first + 1
    depth = np.zeros(len(quoted) + 1, np.int64)
    np.add.at(depth, free[first[belongs] + RUN - 1], 1)
    np.add.at(depth, free[last[belongs] - RUN + 1], -1)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], quoted, [False]]).astype(np.int8)))
    is_phrase = np.zeros(len(quoted), np.bool_)
    for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        is_phrase[start:stop] = stop - start <= PHRASE
    return is_phrase & (np.cumsum(depth)[:-1] > 0)


def _find_stops(lengths: Places) -> Places:
    """Return where the runs end that lie within no other (int64 [r])."""
    return np.flatnonzero((lengths > 0) & (np.append(lengths[1:], 0) <= lengths)) + 1


def _find_runs(lengths: Places, beginnings: Places, endings: Places) -> tuple[Places, Places, Places]:
    """Return what is left of each common run, [first, last) in words, and where the whole one ends (int64 [r] each).

    ``lengths``: of the longest run that ends with each word; the others as :func:`_find_in_prompt` gives them.
    """
    stops = _find_stops(lengths)
    starts = stops - lengths[stops - 1]
    firsts, lasts = starts + beginnings[starts], stops - endings[stops]
    is_left = firsts < lasts
    return firsts[is_left], lasts[is_left], stops[is_left]


def _count_covered(firsts: Places, lasts: Places) -> int:
    """Return how many words lie in runs [first, last) of 5 and more."""
    covered = 0
    reached = 0
    for first, last in sorted(zip(firsts.tolist(), lasts.tolist(), strict=True)):
        if last - first >= RUN and last > reached:
            covered += last - max(first, reached)
            reached = last
    return covered


def count_edits(target: Symbols, answer: Symbols) -> int:
    """Return fewest insertions, deletions and replacements of words that make some stretch of the answer the target."""
    every, highest = (1 << len(target)) - 1, 1 << len(target) >> 1
    places: dict[int | None, int] = {}
    for at, word in enumerate(target):
        places[word] = places.get(word, 0) | 1 << at
    # As Myers names them: in which rows of a column the distance is one more, one less than in the row above.
    pv, mv = every, 0
    fewest = edits = len(target)
    for word in answer:
        eq = places.get(word, 0)
        xv = eq | mv
        xh = (((eq & pv) + pv) ^ pv) | eq
        ph, mh = mv | ~(xh | pv), pv & xh
        edits += bool(ph & highest) - bool(mh & highest)
        fewest = min(fewest, edits)
        ph, mh = ph << 1, mh << 1
        pv, mv = (mh | ~(xv | ph)) & every, ph & xv & every
    return fewest
