"""Measures of how much of a document an answer contains beyond its prompt.

Words of the prompt do not count. A word of the answer is *quoted* if it lies in a run of at least 5 words that the
prompt also contains. Fewer words at the beginning of an answer are quoted, too, if they repeat the end of the prompt. A
model that continues a text may repeat the last words of that text. A quoted word matches no word of the document.

There is one exception, because texts repeat their phrases. A quoted phrase of at most 12 words does not count as quoted
if it lies within a longer run that answer and document share. Most words of that run must not be quoted. On each side
of the phrase, at least 5 words of the run must not be quoted.

A *common run* is a run of unquoted words that answer and document share and that cannot be extended. If words at its
beginning or at its end are a run of the prompt, they are removed, at most 4 at each end. For these rules, a prompt of
fewer than 5 words is repeated until it is longer. So an answer that only repeats its prompt has no common run, even if
the document repeats these words, too.

Words of the prompt in a different order are not quoted, because all measures compare words in order. ``near_span`` and
``edits`` count every word that is not quoted. They may include up to 4 words of the prompt next to a new passage.

The time is linear in the words of document and answers, except for ``near_span``. Its time depends on the number of
positions at which six words of the answer occur in the document.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

import numpy as np

from audit_pipeline.extras.chat.sequence_matching import Flags, NearStretches, SuffixAutomaton, Symbols, count_edits
from audit_pipeline.extras.corpora.word_hashes import Hashes, Offsets, Places, Words, hash_runs, hash_words_of_texts

MIN_RUN_WORDS = 5
"""Minimum number of words of a common run that counts, and of a run that counts as quoted from the prompt."""
MAX_MISMATCHES = 5
"""Maximum number of words in which a near stretch differs from the document."""
MIN_NEAR_WORDS = 40
"""Minimum number of words of a near stretch, and number of words of the passage that ``edits`` compares."""
MAX_PHRASE_WORDS = 12
"""Maximum number of words of a quoted phrase that may belong to a longer run."""

_HYPHENS = re.compile("[-\u2010\u2011\u00ad][^\\S\r\n]*(?:\r\n?|\n)[^\\S\r\n]*|\u00ad")
_SOFT_HYPHEN = "\u00ad"


@dataclass(frozen=True)
class AnswerMeasures:
    """Measures of an answer against a document, in words. The module's docstring defines the terms.

    Attributes:
        answer_words: Number of words of the answer.
        longest_run: Length of the longest common run.
        run_start: Start of this run's first occurrence in the document, in characters, or None without a run.
        run_end: End of this run's first occurrence in the document, in characters, or None without a run.
        output_start: Start of this run in the answer, in characters, or None without a run.
        words_out: Number of words of the answer in common runs of at least 5 words.
        answer_coverage: ``words_out`` as a share of the words of the answer. It is 0 for an empty answer.
        passage_coverage: Share of the passage's words in runs of at least 5 words that the answer contains. None
            without a passage, or if it has no words.
        near_span: Number of words of the longest near stretch, or 0 below 40 words. A near stretch begins and ends with
            words of a stretch of the document, and differs from that stretch in at most 5 replaced words.
        edits: Fewest insertions, deletions and replacements of words that turn a stretch of the answer into the first
            40 words of the passage. None without a passage, or if it has no words.
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


@dataclass(frozen=True)
class _CommonRuns:
    """Common runs of two sequences of words, as positions in one of them. The arrays are int64, of shape (n_runs,).

    Attributes:
        starts: First word of each run after the words of the prompt at its ends were removed.
        stops: End of each run after the words of the prompt at its ends were removed.
        untrimmed_stops: End of each run before the words of the prompt were removed.
    """

    starts: Places
    stops: Places
    untrimmed_stops: Places

    def count_covered_words(self) -> int:
        """Count the words that lie in runs of at least 5 words."""
        n_covered = 0
        covered_until = 0
        for start, stop in sorted(zip(self.starts.tolist(), self.stops.tolist(), strict=True)):
            if stop - start >= MIN_RUN_WORDS and stop > covered_until:
                n_covered += stop - max(start, covered_until)
                covered_until = stop
        return n_covered


class DocumentMatcher:
    """A document that answers are compared with. Its index is built once, in time linear in the text."""

    def __init__(self, text: str) -> None:
        self._words = hash_normalised_words(text)
        self._automaton = SuffixAutomaton(self._words.hashes.tolist())
        self._near_stretches = NearStretches(self._words.hashes, MAX_MISMATCHES, MIN_NEAR_WORDS)

    def measure_answer(self, answer: str, prompt: str | None, passage: tuple[int, int] | None) -> AnswerMeasures:
        """Measure how much of the document an answer contains beyond its prompt.

        Args:
            answer: Text of the answer.
            prompt: The whole prompt, or None if it is unknown. Then no word counts as quoted.
            passage: Start and end of the requested passage in the document, in characters, or None if it is unknown.
        """
        words = hash_normalised_words(answer)
        prompt_words = hash_normalised_words(prompt or "").hashes
        quoted, n_prompt_words_after, n_prompt_words_before = _find_prompt_words(words.hashes, prompt_words)
        if quoted.any():
            lengths, _ = self._automaton.match(words.hashes.tolist())
            quoted &= ~_find_phrases_of_document(quoted, lengths)
        symbols: list[int | None] = words.hashes.tolist()
        for position in np.flatnonzero(quoted).tolist():
            symbols[position] = None
        lengths, ends = self._automaton.match(symbols)
        runs = _trim_runs(lengths, n_prompt_words_after, n_prompt_words_before)
        words_out = runs.count_covered_words()
        longest_run, run_start, run_end, output_start = self._locate_longest_run(runs, ends, words)
        passage_coverage, edits = self._compare_passage(passage, symbols, prompt_words)
        return AnswerMeasures(
            answer_words=len(words),
            longest_run=longest_run,
            run_start=run_start,
            run_end=run_end,
            output_start=output_start,
            words_out=words_out,
            answer_coverage=words_out / max(len(words), 1),
            passage_coverage=passage_coverage,
            near_span=self._near_stretches.measure_longest(words.hashes, quoted),
            edits=edits,
        )

    def _locate_longest_run(
        self, runs: _CommonRuns, ends: Places, answer: Words
    ) -> tuple[int, int | None, int | None, int | None]:
        """Return the length of the longest run, its start and end in the document, and its start in the answer."""
        if not len(runs.starts):
            return 0, None, None, None
        longest = int(np.argmax(runs.stops - runs.starts))
        first_word = int(runs.starts[longest])
        n_words = int(runs.stops[longest]) - first_word
        untrimmed_stop = int(runs.untrimmed_stops[longest])
        first_document_word = int(ends[untrimmed_stop - 1]) - (untrimmed_stop - first_word)
        run_start = int(self._words.starts[first_document_word])
        run_end = int(self._words.ends[first_document_word + n_words - 1])
        return n_words, run_start, run_end, int(answer.starts[first_word])

    def _compare_passage(
        self, passage: tuple[int, int] | None, answer: Symbols, prompt_words: Hashes
    ) -> tuple[float | None, int | None]:
        """Return the passage's coverage by the answer and its edit distance, or None for both without a passage."""
        if passage is None:
            return None, None
        first_word = np.searchsorted(self._words.starts, passage[0])
        end_word = np.searchsorted(self._words.ends, passage[1], side="right")
        passage_words = self._words.hashes[first_word:end_word]
        if not len(passage_words):
            return None, None
        lengths, _ = SuffixAutomaton(answer).match(passage_words.tolist())
        _, n_prompt_words_after, n_prompt_words_before = _find_prompt_words(passage_words, prompt_words)
        runs = _trim_runs(lengths, n_prompt_words_after, n_prompt_words_before)
        edits = count_edits(passage_words[:MIN_NEAR_WORDS].tolist(), answer)
        return runs.count_covered_words() / len(passage_words), edits


def hash_normalised_words(text: str) -> Words:
    """Return the hashes of a text's words. Words hyphenated at line ends are joined, and soft hyphens are removed.

    Returns:
        The hashes of the words, and their starts and ends in the text (int64), of shape (n_words,).
    """
    kept_spans: list[tuple[int, int]] = []
    n_removed = [0]
    previous_end = 0
    for match in _HYPHENS.finditer(text):
        removed = _find_removed_span(text, *match.span())
        if removed is not None:
            kept_spans.append((previous_end, removed[0]))
            n_removed.append(n_removed[-1] + removed[1] - removed[0])
            previous_end = removed[1]
    kept_spans.append((previous_end, len(text)))
    words, _ = hash_words_of_texts(["".join(text[start:end] for start, end in kept_spans)])
    shifts = np.array(n_removed)
    shortened_starts = np.array([start for start, _ in kept_spans]) - shifts

    def to_original(positions: Offsets) -> Places:
        original: Places = positions + shifts[np.searchsorted(shortened_starts, positions, side="right") - 1]
        return original

    return Words(words.hashes, to_original(words.starts), to_original(words.ends - 1) + 1)


def _find_removed_span(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the characters to remove for a hyphen and the white space after it, or None if the hyphen stays."""
    if end - start > 1 and _is_letter(text[start - 1 : start]) and _is_letter(text[end : end + 1]):
        return start, end
    if text[start] == _SOFT_HYPHEN:
        return start, start + 1
    return None


def _is_letter(character: str) -> bool:
    """Return True for a letter, and for a mark, which belongs to the letter before it."""
    return character != "" and unicodedata.category(character)[0] in "LM"


def _find_prompt_words(words: Hashes, prompt: Hashes) -> tuple[Flags, Places, Places]:
    """Find the words of an answer or a passage that the prompt contains.

    Returns:
        Flags of the quoted words, of shape (n_words,), and two int64 arrays of shape (n_words + 1,). The first array
        contains for each position the length of the longest run of the prompt that begins there. The second array
        contains the length of the longest run of the prompt that ends before it. Lengths are at most 4.
    """
    if 0 < len(prompt) < MIN_RUN_WORDS:
        prompt = np.tile(prompt, MIN_RUN_WORDS)
    quoted = np.zeros(len(words), np.bool_)
    n_words_after = np.zeros(len(words) + 1, np.int64)
    n_words_before = np.zeros(len(words) + 1, np.int64)
    for length in range(1, MIN_RUN_WORDS):
        is_in_prompt = np.isin(hash_runs(words, length), hash_runs(prompt, length))
        n_words_after[: len(is_in_prompt)] += is_in_prompt
        n_words_before[length : length + len(is_in_prompt)] += is_in_prompt
        if np.array_equal(words[:length], prompt[-length:]):
            quoted[:length] = True
    is_in_prompt = np.isin(hash_runs(words, MIN_RUN_WORDS), hash_runs(prompt, MIN_RUN_WORDS))
    for shift in range(MIN_RUN_WORDS):
        quoted[shift : shift + len(is_in_prompt)] |= is_in_prompt
    return quoted, n_words_after, n_words_before


def _find_phrases_of_document(quoted: Flags, lengths: Places) -> Flags:
    """Return flags of the words in short quoted phrases that lie within a longer run of the document.

    Args:
        quoted: Flags of the quoted words, of shape (n_words,).
        lengths: Length of the longest run of the document that ends with each word, including quoted words.
    """
    stops = _find_stops(lengths)
    starts = stops - lengths[stops - 1]
    unquoted = np.flatnonzero(~quoted)
    n_quoted_before = np.cumsum([0, *quoted])
    # The first and the last unquoted word of each run, as positions in the array of unquoted words.
    first = np.searchsorted(unquoted, starts)
    last = np.searchsorted(unquoted, stops) - 1
    is_long = last - first + 1 >= 2 * MIN_RUN_WORDS
    first = first[is_long]
    last = last[is_long]
    n_quoted_inside = n_quoted_before[unquoted[last]] - n_quoted_before[unquoted[first]]
    is_mostly_unquoted = n_quoted_inside < last - first + 1
    # A word lies inside a run if it has at least 5 unquoted words of the run on both sides.
    depth_changes = np.zeros(len(quoted) + 1, np.int64)
    np.add.at(depth_changes, unquoted[first[is_mostly_unquoted] + MIN_RUN_WORDS - 1], 1)
    np.add.at(depth_changes, unquoted[last[is_mostly_unquoted] - MIN_RUN_WORDS + 1], -1)
    is_inside = np.cumsum(depth_changes)[:-1] > 0
    return _flag_short_phrases(quoted) & is_inside


def _flag_short_phrases(quoted: Flags) -> Flags:
    """Return flags of the words in quoted phrases of at most 12 words."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], quoted, [False]]).astype(np.int8)))
    is_phrase = np.zeros(len(quoted), np.bool_)
    for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        is_phrase[start:stop] = stop - start <= MAX_PHRASE_WORDS
    return is_phrase


def _find_stops(lengths: Places) -> Places:
    """Return the ends of the runs that cannot be extended, as an int64 array of shape (n_runs,).

    Args:
        lengths: Length of the longest run that ends with each word.
    """
    next_lengths = np.append(lengths[1:], 0)
    return np.flatnonzero((lengths > 0) & (next_lengths <= lengths)) + 1


def _trim_runs(lengths: Places, n_prompt_words_after: Places, n_prompt_words_before: Places) -> _CommonRuns:
    """Remove the words of the prompt from both ends of each common run.

    Args:
        lengths: Length of the longest run that ends with each word.
        n_prompt_words_after: Length of the longest run of the prompt that begins at each position.
        n_prompt_words_before: Length of the longest run of the prompt that ends before each position.
    """
    untrimmed_stops = _find_stops(lengths)
    untrimmed_starts = untrimmed_stops - lengths[untrimmed_stops - 1]
    starts = untrimmed_starts + n_prompt_words_after[untrimmed_starts]
    stops = untrimmed_stops - n_prompt_words_before[untrimmed_stops]
    has_words = starts < stops
    return _CommonRuns(starts[has_words], stops[has_words], untrimmed_stops[has_words])
