"""Matching chooses members and non-members that are hard to separate without a model."""

import inspect

import numpy as np
import pytest

from audit_pipeline.errors import DataError
from audit_pipeline.splits.matching import match_sides


def made():
    """Return texts of 30 words. 130 texts per side share a vocabulary, and 50 have four words of their side."""
    generator = np.random.default_rng(0)
    shared = [f"word{index}" for index in range(400)]
    texts = []
    for label in (0, 1):
        own = [f"{'xy'[label]}{index}own" for index in range(12)]
        for index in range(180):
            words = generator.choice(shared, 30).tolist()
            if index >= 130:
                words[:4] = generator.choice(own, 4)
            texts.append(" ".join(words))
    groups = [f"g{index // 2}" for index in range(360)]
    return texts, np.repeat([0, 1], 180), groups, np.tile(np.arange(180) < 130, 2)


@pytest.fixture(scope="module")
def matched():
    texts, labels, groups, _ = made()
    return match_sides(texts, labels, groups, 100, 0, "en")


def test_a_hidden_subset_that_is_alike_is_found(matched):
    _, labels, _, same = made()
    chosen = list(matched.indices)
    assert chosen == sorted(set(chosen))
    assert labels[chosen].sum() == 100
    assert len(chosen) == 200
    assert same.mean() < 0.73
    assert same[chosen].mean() > 0.85


def test_the_effect_is_compared_with_a_random_sample_of_the_same_size(matched):
    assert matched.before.value > 0.65
    assert matched.before.n == 360
    assert matched.at_random.n == matched.after.n == matched.after_by_all.n == 200
    assert matched.after.value < 0.6 < matched.at_random.value
    assert matched.after_by_all.value < 0.6
    assert matched.after.interval.low < matched.after.value < matched.after.interval.high
    assert "learnt from all 360 texts" in matched.after_by_all.method


def test_the_choice_depends_on_texts_and_seed_not_on_their_order(matched):
    texts, labels, groups, _ = made()
    order = np.random.default_rng(1).permutation(len(texts))
    again = match_sides([texts[i] for i in order], labels[order], [groups[i] for i in order], 100, 0, "en")
    assert sorted(order[list(again.indices)].tolist()) == list(matched.indices)
    assert (again.before, again.after, again.at_random) == (matched.before, matched.after, matched.at_random)


def test_few_texts_are_matched_by_topic_and_length_without_a_control():
    cats, ships = "cats purr and sleep on warm mats", "ships sail with cargo from far ports"
    texts = [f"{cats} {word}" for word in ("one", "two", "three")] + [f"{ships} today", f"{cats} today", f"{ships} now"]
    found = match_sides(texts, [1, 1, 1, 0, 0, 0], list("abcdef"), 1, 0, "en")
    assert 4 in found.indices
    assert found.after.value is None
    assert "there are 2 labelled examples, but 200 are required" in found.after.method
    assert found.before.value is None


def test_length_counts():
    texts = ["a b " * 5, "a b " * 50, "a b " * 51]
    assert match_sides(texts, [1, 1, 0], list("xyz"), 1, 0, "en").indices == (1, 2)


def test_all_texts_can_be_chosen_even_without_words():
    texts = ["🙂" * 3, "🙂" * 4, "🙁", "🙁 🙁"]
    assert match_sides(texts, [1, 1, 0, 0], list("abcd"), 2, 0, "zh").indices == (0, 1, 2, 3)


def test_matching_receives_no_scores_of_a_model():
    assert list(inspect.signature(match_sides).parameters) == [
        "texts", "labels", "groups", "per_side", "seed", "language",
    ]  # fmt: skip


def test_invalid_input_is_refused():
    for labels, per_side, problem in (
        ([1, 0, 0], 2, "2 members out of 1"),
        ([1, 1, 0], 2, "2 non-members out of 1"),
        ([1, 0, 2], 1, "neither 1"),
        ([1, 0, 0], 0, "at least one text"),
        ([1, 0], 1, "for each example"),
    ):
        with pytest.raises(DataError, match=problem):
            match_sides(["a", "b", "c"], labels, list("xyz"), per_side, 0, "en")
