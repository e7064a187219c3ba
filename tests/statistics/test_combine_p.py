"""Combination of dependent p-values: cases computed by hand, bounds, and the size under dependence."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from audit_pipeline.errors import DataError
from audit_pipeline.statistics.dataset_inference import combine_p_values

P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("p_values", "expected"),
    [
        ([0.2, 0.01, 0.04], 0.08),
        ([0.2, 0.01, 0.05, 0.03], 0.08),
        ([0.7, 0.6], 1.0),
        ([0.3], 0.6),
        ([0.0, 0.0, 1.0], 0.0),
    ],
)
def test_twice_the_median_by_hand(p_values: list[float], expected: float) -> None:
    assert combine_p_values(p_values) == pytest.approx(expected)


@given(P_VALUES, st.randoms(use_true_random=False))
def test_the_result_is_a_probability_whatever_the_order(p_values: list[float], random: object) -> None:
    shuffled = list(p_values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert 0 <= combine_p_values(p_values) <= 1
    assert combine_p_values(shuffled) == pytest.approx(combine_p_values(p_values), abs=1e-12)


@given(P_VALUES, st.floats(0, 1))
def test_smaller_p_values_give_no_larger_one(p_values: list[float], share: float) -> None:
    assert combine_p_values([share * p for p in p_values]) <= combine_p_values(p_values) + 1e-12


@pytest.mark.parametrize("wrong", [[], [0.2, 1.1], [-0.1], [math.nan], [[0.1], [0.2]]])
def test_values_outside_0_and_1_are_refused(wrong: list[float]) -> None:
    with pytest.raises(DataError, match="between 0 and 1"):
        combine_p_values(wrong)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_size_under_dependence_and_why_not_fisher(correlation: float) -> None:
    generator = np.random.default_rng(31)
    normals = np.sqrt(correlation) * generator.standard_normal((2000, 1)) + np.sqrt(
        1 - correlation
    ) * generator.standard_normal((2000, 10))
    p_values = stats.norm.sf(normals)
    size = np.mean([combine_p_values(row) <= 0.05 for row in p_values])
    assert size <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)
    if correlation:
        fisher = stats.chi2.sf(-2 * np.log(p_values).sum(axis=1), 20)
        assert np.mean(fisher <= 0.05) > 0.10
