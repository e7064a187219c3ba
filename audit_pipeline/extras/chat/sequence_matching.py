"""Algorithms on sequences of word hashes: longest common runs, near stretches, edit distance.

Sources: suffix automaton, Blumer et al. 1985 (doi:10.1016/0304-3975(85)90157-4). Edit distance of a stretch, Sellers
1980 (doi:10.1016/0196-6774(80)90016-4), by the bit-parallel algorithm of Myers 1999 (doi:10.1145/316542.316550).

No library has them for words in linear time: difflib is quadratic, and edit distance libraries compare characters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from audit_pipeline.extras.corpora.word_hashes import Hashes, Places, hash_runs

Flags = npt.NDArray[np.bool_]
Symbols = Sequence[int | None]
"""Hashes of words. None stands for a quoted word, which equals no word of a document."""

# Maximum number of pairs of words that are compared at once.
_MAX_PAIRS = 1 << 22


class SuffixAutomaton:
    """An index of all runs (consecutive words) of a sequence of words. It has at most two states per word.

    A state stands for all runs that end at the same positions of the sequence. The index contains four facts per state:

    - the next state after each word
    - the state of the longest suffix of its runs that occurs at more positions, or -1 for the first state
    - the number of words of its longest run
    - the end of that run's first occurrence
    """

    def __init__(self, words: Symbols) -> None:
        self._next_states: list[dict[int | None, int]] = [{}]
        self._suffix_states = [-1]
        self._lengths = [0]
        self._ends = [0]
        last_state = 0
        for end, word in enumerate(words, 1):
            last_state = self._append(word, end, last_state)

    def _append(self, word: int | None, end: int, last_state: int) -> int:
        """Append a word to the sequence, and return the state of the whole sequence."""
        new_state = self._add_state({}, suffix_state=0, length=end, end=end)
        state = last_state
        while state != -1 and word not in self._next_states[state]:
            self._next_states[state][word] = new_state
            state = self._suffix_states[state]
        if state == -1:
            return new_state
        target = self._next_states[state][word]
        if self._lengths[target] == self._lengths[state] + 1:
            self._suffix_states[new_state] = target
            return new_state
        # The shorter runs of the target now end at one more position than its longer runs. They get their own state.
        shorter = self._add_state(
            self._next_states[target].copy(),
            suffix_state=self._suffix_states[target],
            length=self._lengths[state] + 1,
            end=self._ends[target],
        )
        self._suffix_states[target] = shorter
        self._suffix_states[new_state] = shorter
        while state != -1 and self._next_states[state].get(word) == target:
            self._next_states[state][word] = shorter
            state = self._suffix_states[state]
        return new_state

    def _add_state(self, next_states: dict[int | None, int], *, suffix_state: int, length: int, end: int) -> int:
        self._next_states.append(next_states)
        self._suffix_states.append(suffix_state)
        self._lengths.append(length)
        self._ends.append(end)
        return len(self._next_states) - 1

    def match(self, words: Symbols) -> tuple[Places, Places]:
        """Find, up to each of the given words, the longest run of given words that occurs in the sequence.

        Returns:
            The number of words of each run, and the end of its first occurrence in the sequence. Both are int64 arrays
            of shape (n_words,).
        """
        state = 0
        length = 0
        lengths: list[int] = []
        ends: list[int] = []
        for word in words:
            while state and word not in self._next_states[state]:
                state = self._suffix_states[state]
                length = self._lengths[state]
            if word in self._next_states[state]:
                state = self._next_states[state][word]
                length += 1
            lengths.append(length)
            ends.append(self._ends[state])
        return np.array(lengths, np.int64), np.array(ends, np.int64)


class NearStretches:
    """An index of a document to find the longest stretch of an answer that differs from the document in a few words.

    A near stretch contains a run without a mismatch. The run has at least (min_words - max_mismatches) /
    (max_mismatches + 1) words, rounded up: 6 words of 40 with 5 mismatches. Only diagonals with such a run are
    compared. A diagonal is a position in the document minus a position in the answer.
    """

    def __init__(self, words: Hashes, max_mismatches: int, min_words: int) -> None:
        self._words = words
        self._max_mismatches = max_mismatches
        self._min_words = min_words
        self._run_length = -(-(min_words - max_mismatches) // (max_mismatches + 1))
        runs = hash_runs(words, self._run_length)
        self._positions = np.argsort(runs, kind="stable")
        self._sorted_runs = runs[self._positions]

    def measure_longest(self, answer: Hashes, quoted: Flags) -> int:
        """Return the number of words of the longest near stretch of the answer, or 0 if it is too short.

        Args:
            answer: Words of the answer, of shape (n_words,).
            quoted: Flags of the words that match nothing, of shape (n_words,).
        """
        diagonals = self._find_diagonals(answer, quoted)
        answer_positions = np.arange(len(answer))
        diagonals_per_step = max(_MAX_PAIRS // (len(answer) + 1), 1)
        longest = 0
        for first in range(0, len(diagonals), diagonals_per_step):
            positions = diagonals[first : first + diagonals_per_step, None] + answer_positions
            is_inside = (positions >= 0) & (positions < len(self._words))
            is_equal = self._words[np.where(is_inside, positions, 0)] == answer
            longest = max(longest, _measure_stretch(is_inside & is_equal & ~quoted, self._max_mismatches))
        if longest < self._min_words:
            return 0
        return longest

    def _find_diagonals(self, answer: Hashes, quoted: Flags) -> Places:
        """Return the diagonals along which answer and document share a run, as an int64 array without duplicates.

        If the diagonals contain more words than the document, diagonals with equal words of the document count once.
        """
        n_answer = len(answer)
        n_document = len(self._words)
        runs = hash_runs(answer, self._run_length)
        unquoted_positions = np.empty(0, np.int64)
        if len(runs):
            n_quoted_before = np.cumsum([0, *quoted])
            has_no_quoted_word = n_quoted_before[self._run_length :] == n_quoted_before[: len(runs)]
            unquoted_positions = np.flatnonzero(has_no_quoted_word)
        lows = np.searchsorted(self._sorted_runs, runs[unquoted_positions], "left")
        highs = np.searchsorted(self._sorted_runs, runs[unquoted_positions], "right")
        is_diagonal = np.zeros(n_answer + n_document, np.bool_)
        for position, low, high in zip(unquoted_positions.tolist(), lows.tolist(), highs.tolist(), strict=True):
            is_diagonal[self._positions[low:high] - position + n_answer] = True
        diagonals = np.flatnonzero(is_diagonal) - n_answer
        if len(diagonals) * n_answer <= n_document:
            return diagonals
        is_inside = (diagonals >= 0) & (diagonals + n_answer <= n_document)
        inside = diagonals[is_inside]
        _, distinct = np.unique(hash_runs(self._words, n_answer)[inside], return_index=True)
        return np.concatenate([diagonals[~is_inside], inside[distinct]])


def _measure_stretch(matches: Flags, max_mismatches: int) -> int:
    """Return the number of words of the longest stretch of any row that begins and ends with a match.

    Args:
        matches: Flags of equal words, of shape (n_diagonals, n_words).
        max_mismatches: Maximum number of mismatches within the stretch.
    """
    # The rows are joined into one. Between them lie more mismatches than a stretch may contain.
    separator = max_mismatches + 1
    row = np.pad(matches, ((0, 0), (0, separator))).ravel()
    row = np.concatenate([np.zeros(separator, np.bool_), row])
    match_positions = np.flatnonzero(row)
    mismatch_positions = np.flatnonzero(~row)
    # The number of matches before the k-th mismatch (from 0) is its position minus k.
    n_matches_before = mismatch_positions - np.arange(len(mismatch_positions))
    first_match = n_matches_before[:-separator]
    end_match = n_matches_before[separator:]
    has_match = first_match < end_match
    ends = match_positions[end_match[has_match] - 1]
    starts = match_positions[first_match[has_match]]
    return int((ends - starts).max(initial=-1)) + 1


def count_edits(target: Symbols, answer: Symbols) -> int:
    """Count the fewest insertions, deletions and replacements that turn a stretch of the answer into the target.

    The variables have the names of Myers 1999, and one bit per word of the target. ``pv`` and ``mv`` are the vertical
    differences of +1 and -1. ``ph`` and ``mh`` are the horizontal ones. ``xv`` and ``xh`` are intermediate results.
    """
    all_bits = (1 << len(target)) - 1
    highest_bit = 1 << len(target) >> 1
    bits_of_word: dict[int | None, int] = {}
    for position, word in enumerate(target):
        bits_of_word[word] = bits_of_word.get(word, 0) | 1 << position
    pv = all_bits
    mv = 0
    edits = len(target)
    fewest_edits = edits
    for word in answer:
        eq = bits_of_word.get(word, 0)
        xv = eq | mv
        xh = (((eq & pv) + pv) ^ pv) | eq
        ph = mv | ~(xh | pv)
        mh = pv & xh
        edits += bool(ph & highest_bit) - bool(mh & highest_bit)
        fewest_edits = min(fewest_edits, edits)
        ph <<= 1
        mh <<= 1
        pv = (mh | ~(xv | ph)) & all_bits
        mv = ph & xv & all_bits
    return fewest_edits
