"""The statistics of unlearning against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from audit_pipeline.extras.unlearning.measures import (
    compute_difference_of_means,
    compute_exact_memorization,
    compute_extraction_strength,
    compute_kolmogorov_smirnov,
    compute_mean,
    compute_privleak,
    compute_relative_privleak,
    is_nearly_unchanged,
)
from audit_pipeline.statistics.intervals import (
    NO_INTERVAL,
    NOTHING_VARIES,
    GroupedSides,
    Interval,
    MeasuredAuroc,
    measure_auroc,
)
from audit_pipeline.statistics.roc import compute_roc_points


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_memorisation_follows_the_definitions_of_the_papers(matches: list[bool]) -> None:
    n = len(matches)
    assert compute_exact_memorization(np.array(matches)) == pytest.approx(sum(matches) / n)
    shortest = next(k for k in range(n + 1) if all(matches[k:]))
    assert compute_extraction_strength(np.array(matches)) == pytest.approx(1 - shortest / n)


def test_a_score_has_hardly_moved_within_the_factor_in_either_direction() -> None:
    before = np.array([-2.0, -2.0, -2.0, -2.0, 0.0, 0.0, -1.0])
    after = np.array([-2.0 * 1.149, -2.0 / 1.149, -2.0 * 1.151, -2.0 / 1.151, 0.0, -1.0, 0.0])
    assert is_nearly_unchanged(before, after).tolist() == [True, True, False, False, True, False, False]


def test_the_interval_of_a_mean_respects_groups() -> None:
    values = np.repeat(np.random.default_rng(3).normal(size=20), 10)
    alone = compute_mean(values, [str(place) for place in range(200)])
    together = compute_mean(values, [str(place // 10) for place in range(200)])
    assert alone.value == together.value == pytest.approx(values.mean())
    widths = [one.interval.high - one.interval.low for one in (alone, together)]  # type: ignore[operator]
    assert widths[1] == pytest.approx(2 * 1.96 * values.std() / math.sqrt(20), rel=0.15)
    assert widths[1] > 2.5 * widths[0]
    assert "20 groups" in together.method


def test_the_interval_of_a_mean_is_students_interval_within_bounds() -> None:
    values = np.array([0.1, 0.9, 0.4])
    reach = t.ppf(0.975, 2) * values.std(ddof=1) / math.sqrt(3)
    found = compute_mean(values, ["a", "b", "c"])
    assert found.interval == Interval(pytest.approx(values.mean() - reach), pytest.approx(values.mean() + reach))
    assert compute_mean(values, ["a", "b", "c"], bounds=(0.0, 1.0)).interval == Interval(0.0, 1.0)


def test_a_mean_without_an_interval_has_a_reason() -> None:
    one = compute_mean(np.array([1.0, 2.0]), ["a", "a"])
    same = compute_mean(np.array([2.0, 2.0]), ["a", "b"])
    assert (one.value, one.interval, same.value, same.interval) == (1.5, NO_INTERVAL, 2.0, NO_INTERVAL)
    assert "of one group" in one.method
    assert "the same value" in same.method


def test_a_difference_of_means_has_a_simultaneous_interval_over_groups() -> None:
    forget, chance = np.arange(80) < 40, np.random.default_rng(1)
    values = chance.normal(size=80) - 3 * forget
    groups = [str(place) for place in range(80)]
    alone, four = (compute_difference_of_means(values, forget, groups, n_measures=count) for count in (1, 4))
    assert alone.value == four.value == pytest.approx(values[forget].mean() - values[~forget].mean())
    error = math.sqrt(values[forget].var() / 40 + values[~forget].var() / 40)
    for found, ends in ((alone, 1.991), (four, 2.560)):  # of 78 degrees of freedom
        assert found.interval.low == pytest.approx(found.value - ends * error, abs=0.1)
        assert found.interval.high == pytest.approx(found.value + ends * error, abs=0.1)
    assert four.interval.low < alone.interval.low < alone.interval.high < four.interval.high  # type: ignore[operator]
    assert "simultaneous 95% interval for 4 measures (Bonferroni)" in four.method


@pytest.mark.parametrize(("together", "needed"), [(1, 6), (4, 8)])
def test_few_groups_give_no_interval(together: int, needed: int) -> None:
    """A sign test of k pairs requires that 2^(1-k) is at most the level."""
    for pairs in (needed - 1, needed):
        forget = np.repeat([True, False], pairs)
        values, groups = np.where(np.arange(2 * pairs) % 2, 0.1, -0.1) - forget, list(map(str, range(2 * pairs)))
        found = compute_difference_of_means(values, forget, groups, n_measures=together)
        assert found.value == pytest.approx(values[forget].mean() - values[~forget].mean())
        assert (found.interval == NO_INTERVAL) == (pairs < needed)
    same = compute_difference_of_means(-1.0 * forget, forget, groups, n_measures=together)
    assert (same.value, same.interval) == (-1, NO_INTERVAL)
    assert same.method.endswith(NOTHING_VARIES)
    one = compute_difference_of_means(np.arange(4.0), np.arange(4) < 2, ["a", "a", "b", "c"], n_measures=1)
    assert one.interval == NO_INTERVAL
    assert "of one group" in one.method


def test_privleak_is_0_without_a_leak_and_negative_for_known_texts() -> None:
    known = compute_privleak(1.0, Interval(0.9, 1.0), 0.5, "how")
    assert (known.value, known.interval) == (-100, Interval(-100, pytest.approx(-80)))
    assert compute_privleak(0.5, Interval(0.4, 0.6), 0.5, "how").value == 0
    assert compute_privleak(0.0, NO_INTERVAL, 0.5, "how").value == 100, "less likely than what was never read"
    # The reference is the constant of MUSE's News model.
    assert compute_privleak(0.6, NO_INTERVAL, 0.4772, "how").value == pytest.approx(100 * (0.4 - 0.4772) / 0.4772)


SIDES = GroupedSides([str(place) for place in range(60)], np.repeat([1, 0], 30))


def made(shift: float, seed: int = 7) -> MeasuredAuroc:
    """Return the AUROC of members whose scores are ``shift`` higher."""
    scores = np.random.default_rng(seed).normal(size=60) + shift * SIDES.labels
    return measure_auroc(compute_roc_points(scores, SIDES.labels), SIDES)


def test_the_retrained_models_uncertainty_is_in_the_interval() -> None:
    auroc, reference = made(1.0), made(0.0)
    itself = compute_relative_privleak(auroc, auroc, SIDES)
    assert (itself.value, itself.interval) == (0, NO_INTERVAL), "of one model there is nothing to compare"
    found = compute_relative_privleak(auroc, reference, SIDES)
    assert found.value == pytest.approx(100 * ((1 - auroc.value) / (1 - reference.value) - 1))
    # The jackknife omits each text in turn.
    ratio = math.log((1 - auroc.value) / (1 - reference.value))
    moved = -auroc.parts / (1 - auroc.value) + reference.parts / (1 - reference.value)
    error = math.sqrt(29 / 30 * (moved**2).sum())
    for end, sign in ((found.interval.low, -1), (found.interval.high, 1)):
        assert math.log(end / 100 + 1) == pytest.approx(ratio + sign * 2.0 * error, abs=0.03 * error)
    assert "the retrained model" in found.method


def test_perfectly_separated_texts_have_the_exact_bound() -> None:
    auroc = made(50.0)
    assert auroc.value == 1
    reference = made(0.0)
    found = compute_relative_privleak(auroc, reference, SIDES)
    assert found.value == -100
    bound = 100 * ((1 - 0.025 ** (1 / 30)) / (1 - reference.value) - 1)
    assert found.interval == Interval(-100, pytest.approx(bound))


def test_two_models_are_compared_by_one_value_per_group() -> None:
    p_value, distance = compute_kolmogorov_smirnov(np.arange(10.0), np.arange(10.0) + 100)
    assert distance == 1
    assert p_value == pytest.approx(2 / math.comb(20, 10))
    assert compute_kolmogorov_smirnov(np.arange(10.0), np.arange(10.0)) == (1, 0)
    assert compute_kolmogorov_smirnov(np.zeros(20_000), np.ones(20_000))[0] > 0, "no p-value is 0"
