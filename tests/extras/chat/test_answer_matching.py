"""Measures of an answer against a document: by hand, against brute force, and without words of the prompt."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

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
    return DocumentMatcher(DOCUMENT).measure(answer, prompt, passage)


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
    assert document.measure(" ".join(words), None, None).near_span == MIN_NEAR_WORDS
    assert document.measure(f"y z {' '.join(words)} y z", None, None).near_span == MIN_NEAR_WORDS
    assert document.measure(" ".join(words[1:]), None, None).near_span == 0
    sixth = [*words[:37], "x", *words[38:]]
    assert document.measure(" ".join(sixth), None, None).near_span == 0
    # The sixth word ends the stretch: of 50 words those before it or those after the first.
    longer = [*words, *numbers(90, 95).split(), "x", *numbers(96, 100).split()]
    assert document.measure(" ".join(longer), None, None).near_span == 48
    # A word that is left out ends the diagonal.
    assert document.measure(numbers(0, 45) + " " + numbers(46, 80), None, None).near_span == 45


# The smallest and the largest


def test_an_empty_answer_gives_nothing() -> None:
    assert measure("") == measure("… 😀 …", "prompt") == NOTHING
    assert measure("", "fed", PASSAGE) == replace(NOTHING, passage_coverage=0.0, edits=15 - 4)


def test_chinese_counts_by_characters_and_emoji_are_no_words() -> None:
    document = DocumentMatcher("山上有一座旧磨坊，磨坊里住着一只灰猫。")
    # 有一座旧磨坊磨坊里住着 | 狗
    found = document.measure("😀有一座旧磨坊😀磨坊里住着狗", "磨坊", None)
    assert (found.answer_words, found.longest_run, found.words_out, found.run_start) == (12, 11, 11, 2)


def test_a_quoted_phrase_within_a_longer_run_belongs_to_the_run() -> None:
    chorus = "and so they said again"
    text = " ".join([numbers(0, 20), chorus, numbers(20, 50), chorus, numbers(50, 80)]).split()
    document = DocumentMatcher(" ".join(text))
    prompt, rest = " ".join(text[:25]), " ".join(text[25:])
    assert document.measure(rest, prompt, None).longest_run == 65
    assert document.measure(rest, prompt, None).near_span == 65
    alone = document.measure(" ".join([numbers(200, 210), chorus, numbers(210, 220)]), prompt, None)
    assert (alone.longest_run, alone.words_out) == (0, 0), "by itself it is quoted"
    # A long quotation in the midst is one: the answer begins before the prompt and says it again.
    within = " ".join(text[15:55])
    assert document.measure(" ".join(text), within, None).longest_run == 30
    assert document.measure(within, within, None).longest_run == 0


def test_a_whole_book_is_measured() -> None:
    chosen = random.Random(1)
    words = [f"w{chosen.randrange(5000)}" for _ in range(30_000)]
    text = " ".join(words)
    matcher, whole = DocumentMatcher(text), len(words)
    found = matcher.measure(text, None, (0, len(text)))
    assert found == AnswerMeasures(whole, whole, 0, len(text), 0, whole, 1.0, 1.0, whole, 0)
    assert matcher.measure(text, text, (0, len(text))) == replace(
        NOTHING, answer_words=whole, passage_coverage=0.0, edits=MIN_NEAR_WORDS
    )


# Brute force


class Case(NamedTuple):
    """Texts of a few words, so that many words repeat."""

    document: list[str]
    answer: list[str]
    prompt: list[str]
    passage: tuple[int, int]


def lists(values: Sequence[Any], most: int) -> st.SearchStrategy[list[Any]]:
    """Return lists of all lengths with equal probability. Lists of hypothesis are mostly short."""
    return st.integers(0, most).flatmap(lambda size: st.lists(st.sampled_from(values), min_size=size, max_size=size))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    letters = draw(st.sampled_from(["a", "ab", "abc", "abcdef"]))
    document = draw(lists(letters, 40))
    pieces = st.lists(
        st.one_of(lists(letters, 12), st.tuples(st.integers(0, 40), st.integers(0, 25)).map(list)), max_size=4
    )

    def put_together(parts: list[list[str]] | list[list[int]]) -> list[str]:
        joined: list[str] = []
        for part in parts:
            if part and isinstance(part[0], int):
                joined += document[part[0] : part[0] + part[1]]
            else:
                joined += part
        return joined

    first = draw(st.integers(0, len(document)))
    last = draw(st.integers(first, len(document)))
    return Case(document, put_together(draw(pieces)), put_together(draw(pieces))[:15], (first, last))


def is_in(run: list[str], words: list[str]) -> bool:
    return any(words[at : at + len(run)] == run for at in range(len(words) - len(run) + 1))


def said_over(prompt: list[str]) -> list[str]:
    """Return a prompt, repeated if it is shorter than a run."""
    return prompt if len(prompt) >= MIN_RUN_WORDS else prompt * MIN_RUN_WORDS


def quoted_by_force(case: Case) -> set[int]:
    prompt = said_over(case.prompt)
    spans = [(a, b) for a in range(len(case.answer)) for b in range(a + 1, len(case.answer) + 1)]
    long = [(a, b) for a, b in spans if b - a >= MIN_RUN_WORDS and is_in(case.answer[a:b], prompt)]
    said_again = max(k for k in range(len(case.answer) + 1) if k == 0 or case.answer[:k] == prompt[-k:])
    quoted = {at for a, b in [*long, (0, said_again)] for at in range(a, b)}
    return quoted - phrases_by_force(case, quoted)


def phrases_by_force(case: Case, quoted: set[int]) -> set[int]:
    """Return the quoted words that belong to a longer run, because their phrase is short and most of the run is new."""
    n = len(case.answer)
    common = [(a, b) for a in range(n) for b in range(a + 1, n + 1) if is_in(case.answer[a:b], case.document)]
    found: set[int] = set()
    for a, b in common:
        if any(c <= a and b <= d and (a, b) != (c, d) for c, d in common):
            continue
        new = [at for at in range(a, b) if at not in quoted]
        midst = [] if not new else [at for at in range(new[0], new[-1]) if at in quoted]
        if len(midst) < len(new):
            found |= {
                at
                for at in midst
                if new[MIN_RUN_WORDS - 1 : MIN_RUN_WORDS] < [at]
                and new[-MIN_RUN_WORDS] > at
                and len(new) >= 2 * MIN_RUN_WORDS
            }
    for at in set(found):
        phrase = [at]
        while phrase[0] - 1 in quoted:
            phrase.insert(0, phrase[0] - 1)
        while phrase[-1] + 1 in quoted:
            phrase.append(phrase[-1] + 1)
        if len(phrase) > MAX_PHRASE_WORDS:
            found.discard(at)
    return found


def runs_by_force(words: list[str], others: list[list[str]], quoted: set[int], prompt: list[str]) -> list[range]:
    """Return the rest of the common runs of ``words`` with any of ``others``, in order, without words of the prompt."""
    prompt = said_over(prompt)
    spans = [
        (a, b)
        for a in range(len(words))
        for b in range(a + 1, len(words) + 1)
        if not quoted & set(range(a, b)) and any(is_in(words[a:b], other) for other in others)
    ]
    left = []
    for a, b in spans:
        if any(c <= a and b <= d and (a, b) != (c, d) for c, d in spans):
            continue
        # At most one word less than a quoted run: a passage may contain a phrase that an answer does not quote.
        longest = min(b - a, MIN_RUN_WORDS - 1)
        beginning = max(k for k in range(longest + 1) if is_in(words[a : a + k], prompt) or k == 0)
        end = max(k for k in range(longest + 1) if is_in(words[b - k : b], prompt) or k == 0)
        if a + beginning < b - end:
            left.append(range(a + beginning, b - end))
    return left


def covered(runs: list[range]) -> int:
    return len({at for run in runs if len(run) >= MIN_RUN_WORDS for at in run})


def edits_by_force(target: list[str], answer: list[str | None]) -> int:
    row = [0] * (len(answer) + 1)
    for number, word in enumerate(target, 1):
        above, row = row, [number]
        for at, other in enumerate(answer):
            row.append(min(above[at] + (word != other), above[at + 1] + 1, row[at] + 1))
    return min(row)


def near_by_force(document: list[str], answer: list[str | None], mismatches: int, least: int) -> int:
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
    text, answer = " ".join(case.document), " ".join(case.answer)
    first, last = case.passage
    passage = (2 * first, max(2 * last - 1, 2 * first))
    target = case.document[first:last]
    found = DocumentMatcher(text).measure(answer, " ".join(case.prompt), passage)
    quoted = quoted_by_force(case)
    runs = runs_by_force(case.answer, [case.document], quoted, case.prompt)
    assert found.longest_run == max(map(len, runs), default=0)
    assert found.words_out == covered(runs)
    assert found.answer_words == len(case.answer)
    assert found.answer_coverage == (covered(runs) / len(case.answer) if case.answer else 0)
    if runs:
        longest = max(runs, key=len)
        assert found.output_start == 2 * longest.start
        assert text[found.run_start : found.run_end].split() == [case.answer[at] for at in longest]
    masked = [None if at in quoted else word for at, word in enumerate(case.answer)]
    if target:
        segments = [
            [case.answer[at] for at in range(a, b)]
            for a in range(len(case.answer))
            for b in range(a + 1, len(case.answer) + 1)
            if not quoted & set(range(a, b))
        ]
        assert found.passage_coverage == covered(runs_by_force(target, segments, set(), case.prompt)) / len(target)
        assert found.edits == edits_by_force(target[:MIN_NEAR_WORDS], masked)
    else:
        assert (found.passage_coverage, found.edits) == (None, None)
    assert found.near_span == near_by_force(case.document, masked, MAX_MISMATCHES, MIN_NEAR_WORDS)


@max_examples(600, deadline=None)
@given(cases(), st.sampled_from([(0, 1), (0, 3), (1, 4), (1, 6), (2, 9), (3, 7)]))
def test_near_stretches_equal_brute_force(case: Case, limits: tuple[int, int]) -> None:
    quoted = quoted_by_force(case)
    masked = [None if at in quoted else word for at, word in enumerate(case.answer)]
    flags = np.isin(np.arange(len(case.answer)), list(quoted))
    stretches = NearStretches(hash_normalised_words(" ".join(case.document)).hashes, *limits)
    found = stretches.measure_longest(hash_normalised_words(" ".join(case.answer)).hashes, flags)
    assert found == near_by_force(case.document, masked, *limits)


# The prompt


@st.composite
def repeated_prompts(draw: st.DrawFn) -> Case:
    """Return an answer of stretches of its prompt: at least 5 words each, with a shorter one at each end."""
    case = draw(cases())
    prompt = [*case.prompt, draw(st.sampled_from("abc"))]
    whole = said_over(prompt)

    def draw_stretch(least: int, most: int) -> list[str]:
        size = draw(st.integers(least, most))
        at = draw(st.integers(0, len(whole) - size))
        return whole[at : at + size]

    answer = draw_stretch(0, MIN_RUN_WORDS - 1)
    for _ in range(draw(st.integers(0, 5))):
        answer += draw_stretch(MIN_RUN_WORDS, len(whole))
    answer += draw_stretch(0, MIN_RUN_WORDS - 1)
    return Case([*case.document, *answer, *case.document], answer, prompt, case.passage)


@max_examples(500, deadline=None)
@given(repeated_prompts())
def test_an_answer_that_repeats_its_prompt_scores_nothing(case: Case) -> None:
    document = " ".join(case.document)
    for passage in ((0, len(document)), (2 * case.passage[0], len(document))):
        found = DocumentMatcher(document).measure(" ".join(case.answer), " ".join(case.prompt), passage)
        coverage = None if found.edits is None else 0.0
        expected = replace(NOTHING, answer_words=len(case.answer), passage_coverage=coverage, edits=found.edits)
        assert found == expected
