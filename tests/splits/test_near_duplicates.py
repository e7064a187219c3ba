import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.splits.shared_text import MOST_MISSED, choose_bands, find_near_duplicates


def shingles(text, n=5):
    words = text.lower().split()
    return {tuple(words[i : i + n]) for i in range(len(words) - n + 1)} if len(words) >= n else {tuple(words)}


def brute_force(texts, threshold):
    sets = [shingles(text) for text in texts]
    pairs = []
    for first, one in enumerate(sets):
        for second in range(first + 1, len(sets)):
            similarity = len(one & sets[second]) / len(one | sets[second])
            if similarity >= threshold:
                pairs.append((first, second, similarity))
    return pairs


def found(texts, threshold, **more):
    return [(pair.first, pair.second, pair.similarity) for pair in find_near_duplicates(texts, threshold, **more)]


def made(n, copies, seed):
    """n texts of 60 words from a skewed vocabulary, ``copies`` of them partly rewritten copies of others."""
    generator = np.random.default_rng(seed)
    vocabulary = np.array([f"w{index}" for index in range(1000)])
    chance = 1 / np.arange(1, 1001)
    texts = generator.choice(vocabulary, (n, 60), p=chance / chance.sum())
    for copy in range(copies):
        kept = generator.integers(15, 60)
        texts[n - 1 - copy, :kept] = texts[copy, 60 - kept :]
    return [" ".join(text) for text in texts.tolist()]


def test_similarity_by_hand():
    # 10 words have 6 shingles; shifting by one word shares 5 of 7, by three words 3 of 9.
    words = [f"w{index}" for index in range(13)]
    base, by_one, by_three = (" ".join(words[start : start + 10]) for start in (0, 1, 3))
    assert found([base, by_one.upper(), by_three], 0.3) == [(0, 1, 5 / 7), (0, 2, 3 / 9), (1, 2, 4 / 8)]
    assert found([base, by_one, by_three], 0.5) == [(0, 1, 5 / 7), (1, 2, 4 / 8)]


@max_examples(60)
@given(
    texts=st.lists(st.lists(st.sampled_from(["a", "A", "b", "c", "ab"]), max_size=12).map(" ".join), max_size=14),
    threshold=st.sampled_from([0.01, 0.25, 0.5, 0.75, 1.0]),
)
def test_the_pairs_are_those_of_a_brute_force(texts, threshold):
    assert found(texts, threshold) == brute_force(texts, threshold)


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.8])
def test_no_pair_is_missed_among_hundreds_of_copies(threshold):
    texts = made(400, 190, seed=3)
    expected = brute_force(texts, threshold)
    assert len(expected) > 10
    assert found(texts, threshold) == expected


def test_words_are_those_of_the_unit():
    assert found(["甲乙丙丁戊己", "甲乙丙丁戊庚"], 0.3, split=list) == [(0, 1, 1 / 3)]


@pytest.mark.parametrize("threshold", [0.01, 0.06, 0.2, 0.5, 0.53, 0.8, 0.95, 1.0])
def test_a_pair_at_the_threshold_is_hardly_ever_missed(threshold):
    number, length = choose_bands(threshold)
    assert number >= 2
    assert (1 - threshold**length) ** number <= MOST_MISSED


def test_a_threshold_outside_its_range_is_refused():
    for threshold in (0, -1, 1.5):
        with pytest.raises(ValueError, match="threshold"):
            find_near_duplicates(["a", "b"], threshold)
