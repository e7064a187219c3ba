"""The direction of scores by labelled texts."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from audit_pipeline.statistics.group_means import detect_score_direction


def test_members_that_score_higher_and_lower() -> None:
    labels = np.repeat([1, 0], 10)
    scores = np.concatenate([np.arange(10) + 8.0, np.arange(10)])
    groups = np.arange(20)
    assert detect_score_direction(scores, labels, groups) == "training"
    assert detect_score_direction(-scores, labels, groups) == "opposite"
    assert detect_score_direction(np.tile(np.arange(10.0), 2), labels, groups) == "none"
    assert detect_score_direction(np.ones(20), labels, groups) == "none"


def test_a_group_counts_once_and_texts_of_unknown_label_not_at_all() -> None:
    """There are two books per side with fifty windows each. A difference of two books may be chance."""
    labels, groups = np.repeat([1, 0], 100), np.repeat(np.arange(4), 50)
    scores = np.repeat([2.0, 3.0, 0.0, 1.0], 50)
    assert detect_score_direction(scores, labels, groups) == "none"
    unknown = np.full(200, -1)
    assert detect_score_direction(scores, np.where(labels == 1, unknown, 0), groups) is None
    assert detect_score_direction(scores, np.where(labels == 0, unknown, 1), groups) is None
    assert detect_score_direction([], [], np.array([])) is None


def test_group_means_that_are_equal_but_for_rounding_are_tied() -> None:
    """Ten groups contain 0.1 and 0.7, ten contain 0.3 and 0.5. Their float64 means differ in the last digit."""
    scores = np.concatenate([np.tile([0.3, 0.5], 10), np.tile([0.1, 0.7], 10)])
    labels, groups = np.repeat([1, 0], 20), np.repeat(np.arange(20), 2)
    assert detect_score_direction(scores, labels, groups) == "none"


@given(st.lists(st.tuples(st.floats(-5, 5), st.sampled_from([1, 0, -1]), st.integers(0, 9)), max_size=60))
def test_the_other_sign_is_the_other_direction_and_the_test_is_two_sided(rows: list[tuple[float, int, int]]) -> None:
    scores, labels, groups = (np.array([row[place] for row in rows]) for place in range(3))
    found = detect_score_direction(scores, labels, groups)
    turned = {"training": "opposite", "opposite": "training", "none": "none", None: None}
    assert detect_score_direction(-scores, labels, groups) == turned[found]
    sides = [
        [scores[(labels == side) & (groups == group)].mean() for group in set(groups[labels == side].tolist())]
        for side in (1, 0)
    ]
    if not all(sides):
        assert found is None
        return
    two_sided = 2 * min(mannwhitneyu(*sides, alternative=one).pvalue for one in ("greater", "less"))
    assert (found != "none") == (two_sided <= 0.05)
