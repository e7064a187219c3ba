"""Outcomes of requests, by finish reason, length and refusal phrases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.extras.chat.rows import REFUSAL_PHRASES, recognise_outcome

LONG = " ".join(["river"] * 40)


@pytest.mark.parametrize(
    ("text", "reason", "expected"),
    [
        (LONG, "stop", "answered"),
        ("The river was wide.", None, "answered"),
        ("", "stop", "empty"),
        (" \n …", "STOP", "empty"),
        # A filter stopped the answer. The text before is measured if it is long enough.
        ("", "content_filter", "filtered"),
        ("The river", "SAFETY", "filtered"),
        (LONG, "content_filter", "answered"),
        # An answer that was cut and is too short to measure.
        ("The river was", "length", "cut"),
        ("", "MAX_TOKENS", "cut"),
        (LONG, "length", "answered"),
        # Anthropic's servers report refusals, regardless of the text.
        ("", "refusal", "refused"),
        (LONG, "refusal", "refused"),
    ],
)
def test_finish_reason_and_length_decide_the_outcome(text: str, reason: str | None, expected: str) -> None:
    assert recognise_outcome(text, reason, 40) == (expected, None)


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("I’m sorry, but that is not possible.", "i'm sorry, but"),
        ("I  CAN’T\nprovide the text of it.", "i can't provide"),
        ("Der Text ist urheberrechtlich gesch\u0075\u0308tzt.", "urheberrechtlich geschützt"),
        ("对不起，我做不到。", "对不起,我"),
        # The earliest of several phrases.
        ("很抱歉，我无法提供这本书。", "很抱歉,"),
    ],
)
def test_a_refusal_is_recognised_by_the_first_phrase_near_the_beginning(text: str, phrase: str) -> None:
    for reason in ("stop", "length", None):
        assert recognise_outcome(text, reason, 40) == ("refused", phrase)


def test_a_late_refusal_phrase_is_part_of_an_answer() -> None:
    assert recognise_outcome("x" * 199 + " I can't help it", "stop", 1) == ("refused", "i can't help")
    assert recognise_outcome("x" * 200 + " I can't help it", "stop", 1) == ("answered", None)


@pytest.mark.parametrize("expected_words", [1, 40])
def test_a_long_text_after_a_refusal_phrase_is_an_answer(expected_words: int) -> None:
    most = 60 + expected_words
    for words, expected in ((most - 4, "refused"), (most - 3, "answered")):
        assert recognise_outcome("I can't give all of it: " + "river " * words, "stop", expected_words)[0] == expected


@given(phrase=st.sampled_from(REFUSAL_PHRASES), before=st.text("abc .,", max_size=190), upper=st.booleans())
@max_examples(100, deadline=None)
def test_every_phrase_is_recognised_near_the_beginning(phrase: str, before: str, upper: bool) -> None:
    text = f"{before} {phrase.replace(chr(39), chr(0x2019))} and so on"
    outcome, found = recognise_outcome(text.upper() if upper else text, "stop", 40)
    assert outcome == "refused"
    assert found in REFUSAL_PHRASES
    # Another that begins earlier, or at the same place, may be found in its stead.
    assert found == phrase or text.replace("’", "'").find(found) <= text.replace("’", "'").find(phrase)
