"""Measures of an answer against a document: by hand, against brute force, and without words of the prompt."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.extras.chat.matching import (
    MAX_MISMATCHES,
    MAX_PHRASE_WORDS,
    MIN_NEAR_WORDS,
    MIN_RUN_WORDS,
    AnswerMeasures,
    DocumentMatcher,
    hash_normalised_words,
)
from audit_pipeline.extras.chat.sequence_matching import NearStretches

NOTHING = AnswerMeasures(0, 0, None, None, None, 0, 0.0, None, 0, None)
DOCUMENT = "The miller rose at four. He lit the lamp, fed the grey cat and opened the sluice before anyone woke."
PASSAGE = (DOCUMENT.index("fed"), len(DOCUMENT))


def numbers(first: int, end: int) -> str:
    """Return the words n0, n1 and so on. All words differ."""
    return " ".join(f"n{number}" for number in range(first, end))


def measure(answer: str, prompt: str | None = None, passage: tuple[int, int] | None = None) -> AnswerMeasures:
    return DocumentMatcher(DOCUMENT).measure_answer(answer, prompt, passage)


# By hand


def test_a_run_has_a_length_in_words_and_a_position_in_both_texts() -> None:
    answer = "Surely: HE LIT THE LAMP; fed the gray cat and opened the sluice. Goodbye"
    found = measure(answer)
    # He lit the lamp fed the | gray | cat and opened the sluice
    assert (found.answer_words, found.longest_run, found.words_out) == (14, 6, 11)
    assert DOCUMENT[found.run_start : found.run_end] == "He lit the lamp, fed the"
    assert answer[found.output_start :].startswith("HE LIT")
    assert found.answer_coverage == 11 / 14
    assert (found.passage_coverage, found.edits) == (None, None)


def test_passage_coverage_counts_runs_within_the_passage() -> None:
    found = measure("He lit the lamp, fed the gray cat and opened the sluice", None, PASSAGE)
    # The answer has 11 words from "fed" on. "fed the" is no run of 5 words within the passage.
    # "cat and opened the sluice" is a run. Four edits: "gray", and "before anyone woke" is missing.
    assert found.passage_coverage == 5 / 11
    assert found.edits == 4


def test_words_of_the_prompt_break_runs() -> None:
    prompt = "Go on after: The miller rose at four. He lit"
    answer = "The miller rose at four. He lit the lamp, fed the grey cat"
    assert measure(answer).longest_run == 13
    found = measure(answer, prompt)
    # "the" begins the run, and it stands in the prompt.
    assert (found.longest_run, found.words_out, found.answer_coverage) == (5, 5, 5 / 13)
    assert DOCUMENT[found.run_start : found.run_end] == "lamp, fed the grey cat"
    assert answer[found.output_start :] == "lamp, fed the grey cat"
    assert measure("The miller rose at four. He lit", prompt) == replace(NOTHING, answer_words=7)


def test_a_near_stretch_has_forty_words_and_at_most_five_mismatches() -> None:
    document = DocumentMatcher(numbers(0, 200))
    words = numbers(50, 90).split()
    for at in (1, 9, 17, 25, 33):
        words[at] = "x"
    assert document.measure_answer(" ".join(words), None, None).near_span == MIN_NEAR_WORDS
    assert document.measure_answer(f"y z {' '.join(words)} y z", None, None).near_span == MIN_NEAR_WORDS
    assert document.measure_answer(" ".join(words[1:]), None, None).near_span == 0
    sixth = [*words[:37], "x", *words[38:]]
    assert document.measure_answer(" ".join(sixth), None, None).near_span == 0
    # The sixth word ends the stretch: of 50 words those before it or those after the first.
    longer = [*words, *numbers(90, 95).split(), "x", *numbers(96, 100).split()]
    assert document.measure_answer(" ".join(longer), None, None).near_span == 48
    # A word that is left out ends the diagonal.
    assert document.measure_answer(numbers(0, 45) + " " + numbers(46, 80), None, None).near_span == 45


# The smallest and the largest


def test_an_empty_answer_gives_nothing() -> None:
    assert measure("") == measure("… 😀 …", "prompt") == NOTHING
    assert measure("", "fed", PASSAGE) == replace(NOTHING, passage_coverage=0.0, edits=15 - 4)


def test_chinese_counts_by_characters_and_emoji_are_no_words() -> None:
    document = DocumentMatcher("山上有一座旧磨坊，磨坊里住着一只灰猫。")
    # 有一座旧磨坊磨坊里住着 | 狗
    found = document.measure_answer("😀有一座旧磨坊😀磨坊里住着狗", "磨坊", None)
    assert (found.answer_words, found.longest_run, found.words_out, found.run_start) == (12, 11, 11, 2)


def test_a_quoted_phrase_within_a_longer_run_belongs_to_the_run() -> None:
    chorus = "and so they said again"
    text = " ".join([numbers(0, 20), chorus, numbers(20, 50), chorus, numbers(50, 80)]).split()
    document = DocumentMatcher(" ".join(text))
    prompt, rest = " ".join(text[:25]), " ".join(text[25:])
    assert document.measure_answer(rest, prompt, None).longest_run == 65
    assert document.measure_answer(rest, prompt, None).near_span == 65
    alone = document.measure_answer(" ".join([numbers(200, 210), chorus, numbers(210, 220)]), prompt, None)
    assert (alone.longest_run, alone.words_out) == (0, 0), "by itself it is quoted"
    # A long quotation in the midst is one: the answer begins before the prompt and says it again.
    within = " ".join(text[15:55])
    assert document.measure_answer(" ".join(text), within, None).longest_run == 30
    assert document.measure_answer(within, within, None).longest_run == 0


def test_a_whole_book_is_measured() -> None:
    chosen = random.Random(1)
    words = [f"w{chosen.randrange(5000)}" for _ in range(30_000)]
    text = " ".join(words)
    matcher, whole = DocumentMatcher(text), len(words)
    found = matcher.measure_answer(text, None, (0, len(text)))
    assert found == AnswerMeasures(whole, whole, 0, len(text), 0, whole, 1.0, 1.0, whole, 0)
    assert matcher.measure_answer(text, text, (0, len(text))) == replace(
        NOTHING, answer_words=whole, passage_coverage=0.0, edits=MIN_NEAR_WORDS
    )


# Brute force. Every word is one letter, so a text without spaces is a sequence of words.


class Case(NamedTuple):
    """Texts of a few words, so that many words repeat."""

    document: str
    answer: str
    prompt: str
    passage: tuple[int, int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    letters = draw(st.sampled_from(["a", "ab", "abc", "abcdef"]))

    def draw_words(most: int) -> str:
        # All lengths have the same probability. Lists of hypothesis are mostly short.
        size = draw(st.integers(0, most))
        return "".join(draw(st.lists(st.sampled_from(letters), min_size=size, max_size=size)))

    def draw_pieces() -> str:
        pieces = ""
        for is_quotation in draw(st.lists(st.booleans(), max_size=4)):
            at = draw(st.integers(0, 40))
            pieces += document[at : at + draw(st.integers(0, 25))] if is_quotation else draw_words(12)
        return pieces

    document = draw_words(40)
    first = draw(st.integers(0, len(document)))
    return Case(document, draw_pieces(), draw_pieces()[:15], (first, draw(st.integers(first, len(document)))))


def find_stretches(words: str, fits: Callable[[int, int], bool]) -> list[tuple[int, int]]:
    """Return the stretches [a, b) that fit and lie in no longer one that fits."""
    spans = [(a, b) for a in range(len(words)) for b in range(a + 1, len(words) + 1) if fits(a, b)]
    return [(a, b) for a, b in spans if not any(c <= a and b <= d and (a, b) != (c, d) for c, d in spans)]


def repeat_prompt(prompt: str) -> str:
    """Return a prompt, repeated if it is shorter than a run."""
    return prompt if len(prompt) >= MIN_RUN_WORDS else prompt * MIN_RUN_WORDS


def quoted_by_force(case: Case) -> set[int]:
    answer = case.answer
    prompt = repeat_prompt(case.prompt)
    long = find_stretches(answer, lambda a, b: b - a >= MIN_RUN_WORDS and answer[a:b] in prompt)
    said_again = max(k for k in range(len(answer) + 1) if k == 0 or prompt.endswith(answer[:k]))
    quoted = {at for a, b in [*long, (0, said_again)] for at in range(a, b)}
    return quoted - phrases_by_force(case, quoted)


def phrases_by_force(case: Case, quoted: set[int]) -> set[int]:
    """Return the quoted words of short phrases within longer runs, if most of the run is new."""
    found: set[int] = set()
    for a, b in find_stretches(case.answer, lambda a, b: case.answer[a:b] in case.document):
        new = [at for at in range(a, b) if at not in quoted]
        if len(new) >= 2 * MIN_RUN_WORDS and new[-1] - new[0] + 1 < 2 * len(new):
            found |= quoted & set(range(new[MIN_RUN_WORDS - 1], new[-MIN_RUN_WORDS]))
    for at in set(found):
        phrase = [at]
        while phrase[0] - 1 in quoted:
            phrase.insert(0, phrase[0] - 1)
        while phrase[-1] + 1 in quoted:
            phrase.append(phrase[-1] + 1)
        if len(phrase) > MAX_PHRASE_WORDS:
            found.discard(at)
    return found


def mask(answer: str, quoted: set[int]) -> str:
    """Replace quoted words by a word that occurs in no document."""
    return "".join("?" if at in quoted else word for at, word in enumerate(answer))


def near_by_force(document: str, answer: str, mismatches: int, least: int) -> int:
    longest = 0
    for at in range(len(answer)):
        for place in range(len(document)):
            differ = 0
            for length, (word, other) in enumerate(zip(document[place:], answer[at:], strict=False), 1):
                differ += word != other
                if differ > mismatches or (length == 1 and differ):
                    break
                if word == other:
                    longest = max(longest, length)
    return longest if longest >= least else 0


@max_examples(600, deadline=None)
@given(cases())
def test_measures_equal_brute_force(case: Case) -> None:

    def count_covered(runs: list[range]) -> int:
        return len({at for run in runs if len(run) >= MIN_RUN_WORDS for at in run})

    def runs_by_force(words: str, others: Sequence[str], quoted: set[int], prompt: str) -> list[range]:
        """Return the common runs of ``words`` with any of ``others``, in order, without words of the prompt."""
        prompt = repeat_prompt(prompt)
        left = []
        for a, b in find_stretches(
            words, lambda a, b: not quoted & set(range(a, b)) and any(words[a:b] in other for other in others)
        ):
            # At most one word less than a quoted run: a passage may contain a phrase that an answer does not quote.
            lengths = range(min(b - a, MIN_RUN_WORDS - 1) + 1)
            begin = a + max(k for k in lengths if words[a : a + k] in prompt)
            end = b - max(k for k in lengths if words[b - k : b] in prompt)
            if begin < end:
                left.append(range(begin, end))
        return left

    text = " ".join(case.document)
    first, last = case.passage
    target = case.document[first:last]
    passage = (2 * first, max(2 * last - 1, 2 * first))
    found = DocumentMatcher(text).measure_answer(" ".join(case.answer), " ".join(case.prompt), passage)
    quoted = quoted_by_force(case)
    runs = runs_by_force(case.answer, [case.document], quoted, case.prompt)
    assert found.longest_run == max(map(len, runs), default=0)
    assert found.words_out == count_covered(runs)
    assert found.answer_words == len(case.answer)
    assert found.answer_coverage == (count_covered(runs) / len(case.answer) if case.answer else 0)
    if runs:
        longest = max(runs, key=len)
        assert found.output_start == 2 * longest.start
        run = case.answer[longest.start : longest.stop]
        assert text[found.run_start : found.run_end] == " ".join(run)
    masked = mask(case.answer, quoted)
    if target:
        covered = count_covered(runs_by_force(target, masked.split("?"), set(), case.prompt))
        assert found.passage_coverage == covered / len(target)
        edits = [0] * (len(masked) + 1)
        for number, word in enumerate(target[:MIN_NEAR_WORDS], 1):
            above = edits
            edits = [number]
            for at, other in enumerate(masked):
                edits.append(min(above[at] + (word != other), above[at + 1] + 1, edits[at] + 1))
        assert found.edits == min(edits)
    else:
        assert (found.passage_coverage, found.edits) == (None, None)
    assert found.near_span == near_by_force(case.document, masked, MAX_MISMATCHES, MIN_NEAR_WORDS)


@max_examples(600, deadline=None)
@given(cases(), st.sampled_from([(0, 1), (0, 3), (1, 4), (1, 6), (2, 9), (3, 7)]))
def test_near_stretches_equal_brute_force(case: Case, limits: tuple[int, int]) -> None:
    quoted = quoted_by_force(case)
    flags = np.isin(np.arange(len(case.answer)), list(quoted))
    stretches = NearStretches(hash_normalised_words(" ".join(case.document)).hashes, *limits)
    found = stretches.measure_longest(hash_normalised_words(" ".join(case.answer)).hashes, flags)
    assert found == near_by_force(case.document, mask(case.answer, quoted), *limits)


# The prompt


@max_examples(300, deadline=None)
@given(cases(), st.data())
def test_an_answer_that_repeats_its_prompt_scores_nothing(case: Case, data: st.DataObject) -> None:
    """The answer has stretches of its prompt: at least 5 words each, with a shorter one at each end."""
    prompt = case.prompt + data.draw(st.sampled_from("abc"))
    whole = repeat_prompt(prompt)

    def draw_stretch(least: int, most: int) -> str:
        size = data.draw(st.integers(least, most))
        at = data.draw(st.integers(0, len(whole) - size))
        return whole[at : at + size]

    answer = draw_stretch(0, MIN_RUN_WORDS - 1)
    for _ in range(data.draw(st.integers(0, 5))):
        answer += draw_stretch(MIN_RUN_WORDS, len(whole))
    answer += draw_stretch(0, MIN_RUN_WORDS - 1)
    document = " ".join(case.document + answer + case.document)
    for passage in ((0, len(document)), (2 * case.passage[0], len(document))):
        found = DocumentMatcher(document).measure_answer(" ".join(answer), " ".join(prompt), passage)
        coverage = None if found.edits is None else 0.0
        expected = replace(NOTHING, answer_words=len(answer), passage_coverage=coverage, edits=found.edits)
        assert found == expected
