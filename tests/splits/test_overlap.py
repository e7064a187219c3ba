"""Overlap of word n-grams between the sides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.splits.shared_text import compute_word_overlap


def overlap(texts, others, size):
    return compute_word_overlap(*([text.lower().split() for text in side] for side in (texts, others)), size)


TEXTS = st.lists(st.lists(st.sampled_from(["a", "A", "b", "ab"]), max_size=9).map(" ".join), max_size=6)


def test_by_hand():
    # 4 words have two 3-grams. The other side has one 3-gram of the first text and none of the second. The third text
    # has no 3-gram.
    shares, too_short = overlap(["One two three four", "four three two one", "one two"], ["zero one TWO three"], 3)
    assert (shares.tolist(), too_short) == ([0.5, 0.0], 1)
    # An n-gram counts as often as it occurs.
    assert overlap(["a b a b c"], ["a b"], 2)[0].tolist() == [0.5]


@given(texts=TEXTS, others=TEXTS, size=st.integers(1, 4))
def test_shares_equal_those_of_a_brute_force_search(texts, others, size):
    expected = []
    for text in texts:
        words = text.lower().split()
        grams = [words[i : i + size] for i in range(len(words)) if i + size <= len(words)]
        there = [
            any(gram == other[i : i + size] for other in (o.lower().split() for o in others) for i in range(len(other)))
            for gram in grams
        ]
        if grams:
            expected.append(sum(there) / len(there))
    shares, too_short = overlap(texts, others, size)
    assert shares.tolist() == pytest.approx(expected)
    assert too_short == len(texts) - len(expected)
