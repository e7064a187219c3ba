import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.detectors.loss import LOWERCASE, LOWERCASED, has_cased_characters

logprobs = st.lists(st.floats(-30, -(2**-10), width=32), min_size=1, max_size=40)


def scored(text_statistics, own, lowercased, text="Some Text"):
    extras = {LOWERCASED: text_statistics(lowercased, text=text.lower())}
    return LOWERCASE.score(text_statistics(own, text, extras), [{}])[0]


def test_lowercase_by_hand(text_statistics):
    # mean l(lower) = -5, mean l = -2
    assert scored(text_statistics, [-1.0, -3.0], [-4.0, -5.0, -6.0]) == (2.5, "ok", None)


@given(own=logprobs, lowercased=logprobs)
def test_lowercase_equals_its_twin(text_statistics, own, lowercased):
    twin = (math.fsum(lowercased) / len(lowercased)) / (math.fsum(own) / len(own))
    assert scored(text_statistics, own, lowercased).score == pytest.approx(twin, rel=1e-12)


@given(own=logprobs, lowercased=logprobs)
def test_a_likelier_text_scores_higher(text_statistics, own, lowercased):
    likelier = [value / 2 for value in own]
    assert scored(text_statistics, likelier, lowercased).score > scored(text_statistics, own, lowercased).score


@pytest.mark.parametrize("text", ["数据集 2021。", "12 + 30 = 42", "🙂 ... !", "אבג", ""])
def test_text_without_cased_characters_is_not_applicable(text_statistics, text):
    assert not has_cased_characters(text)
    outcome = scored(text_statistics, [-1.0], [-1.0], text=text)
    assert outcome == (None, "not_applicable", "the text has no cased characters")


@pytest.mark.parametrize("text", ["a", "A", "数a", "ǅ", "é", "Ж", "x²"])
def test_texts_with_cased_characters(text):
    assert has_cased_characters(text)


def test_a_mean_of_zero_or_no_token_is_not_applicable(text_statistics):
    assert scored(text_statistics, [-1.0], []).reason == "the text in lower case has no scored token"
    zero = scored(text_statistics, [0.0, 0.0], [-1.0])
    assert (zero.score, zero.status) == (None, "not_applicable")
    assert "is 0" in zero.reason
    assert scored(text_statistics, [-2.0], [0.0]) == (0.0, "ok", None)


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
@pytest.mark.parametrize("where", [0, 1])
def test_a_bad_value_on_either_side_fails(text_statistics, bad, where):
    # -1 / -inf is 0, a number that nobody would look at twice.
    sides = [[-1.0, bad], [-1.0]] if where == 0 else [[-1.0], [bad, -1.0]]
    outcome = scored(text_statistics, *sides)
    assert (outcome.score, outcome.status) == (None, "failed")
