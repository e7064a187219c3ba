"""Near-duplicates: exact pairs from MinHash candidates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.splits.shared_text import MAX_MISSED_SHARE, choose_bands, find_near_duplicates


def brute_force(texts, threshold):
    sets = []
    for text in texts:
        words = text.lower().split()
        sets.append({tuple(words[i : i + 5]) for i in range(len(words) - 4)} or {tuple(words)})
    pairs = []
    for first, one in enumerate(sets):
        for second in range(first + 1, len(sets)):
            similarity = len(one & sets[second]) / len(one | sets[second])
            if similarity >= threshold:
                pairs.append((first, second, similarity))
    return pairs


def found(texts, threshold, **more):
    return [(pair.first, pair.second, pair.similarity) for pair in find_near_duplicates(texts, threshold, **more)]


def test_similarity_by_hand():
    # 10 words have 6 shingles. A shift by one word shares 5 of 7 shingles, and a shift by three words 3 of 9.
    words = [f"w{index}" for index in range(13)]
    base, by_one, by_three = (" ".join(words[start : start + 10]) for start in (0, 1, 3))
    assert found([base, by_one.upper(), by_three], 0.3) == [(0, 1, 5 / 7), (0, 2, 3 / 9), (1, 2, 4 / 8)]
    assert found([base, by_one, by_three], 0.5) == [(0, 1, 5 / 7), (1, 2, 4 / 8)]


@max_examples(60)
@given(
    texts=st.lists(st.lists(st.sampled_from(["a", "A", "b", "c", "ab"]), max_size=12).map(" ".join), max_size=14),
    threshold=st.sampled_from([0.01, 0.25, 0.5, 0.75, 1.0]),
)
def test_the_pairs_equal_those_of_a_brute_force_search(texts, threshold):
    assert found(texts, threshold) == brute_force(texts, threshold)


def test_no_pair_is_missed_among_hundreds_of_copies():
    # 400 texts of 60 words from a skewed vocabulary. 190 texts are partly rewritten copies of others.
    generator = np.random.default_rng(3)
    chance = 1 / np.arange(1, 1001)
    words = generator.choice(np.array([f"w{index}" for index in range(1000)]), (400, 60), p=chance / chance.sum())
    for copy in range(190):
        kept = generator.integers(15, 60)
        words[399 - copy, :kept] = words[copy, 60 - kept :]
    texts = [" ".join(text) for text in words.tolist()]
    pairs = brute_force(texts, 0.3)
    for threshold in (0.3, 0.5, 0.8):
        expected = [pair for pair in pairs if pair[2] >= threshold]
        assert len(expected) > 10
        assert found(texts, threshold) == expected


def test_the_word_unit_defines_the_words():
    assert found(["甲乙丙丁戊己", "甲乙丙丁戊庚"], 0.3, split=list) == [(0, 1, 1 / 3)]


@pytest.mark.parametrize("threshold", [0.01, 0.06, 0.2, 0.5, 0.53, 0.8, 0.95, 1.0])
def test_the_probability_of_a_missed_pair_is_tiny(threshold):
    number, length = choose_bands(threshold)
    assert number >= 2
    assert (1 - threshold**length) ** number <= MAX_MISSED_SHARE


def test_a_threshold_outside_its_range_is_refused():
    for threshold in (0, -1, 1.5):
        with pytest.raises(ValueError, match="threshold"):
            find_near_duplicates(["a", "b"], threshold)
