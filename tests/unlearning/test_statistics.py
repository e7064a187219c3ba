"""Each statistic of forgetting against its definition, spelled out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.metrics.intervals import NO_INTERVAL, GroupBootstrap, Interval
from audit_pipeline.metrics.roc import rank, weighted_metrics
from audit_pipeline.unlearning.statistics import (
    difference_of_means,
    exact_memorization,
    extraction_strength,
    group_means,
    is_nearly_unchanged,
    kolmogorov_smirnov,
    mean_of,
    privleak,
    privleak_against_retrained,
)


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_memorisation_is_as_the_papers_define_it(matches: list[bool]) -> None:
    n = len(matches)
    assert exact_memorization(np.array(matches)) == pytest.approx(sum(matches) / n)
    shortest = next(k for k in range(n + 1) if all(matches[k:]))
    assert extraction_strength(np.array(matches)) == pytest.approx(1 - shortest / n)


def test_a_text_of_which_nothing_comes_has_no_strength() -> None:
    assert extraction_strength(np.array([True, True, False])) == 0
    assert extraction_strength(np.array([False, True, True])) == pytest.approx(2 / 3)
    assert extraction_strength(np.array([True])) == 1


def test_a_score_has_hardly_moved_within_the_factor_in_either_direction() -> None:
    before = np.array([-2.0, -2.0, -2.0, -2.0, 0.0, 0.0, -1.0])
    after = np.array([-2.0 * 1.149, -2.0 / 1.149, -2.0 * 1.151, -2.0 / 1.151, 0.0, -1.0, 0.0])
    assert is_nearly_unchanged(before, after).tolist() == [True, True, False, False, True, False, False]


def test_the_interval_of_a_mean_respects_groups() -> None:
    values = np.repeat(np.random.default_rng(3).normal(size=20), 10)
    alone = mean_of(values, [str(place) for place in range(200)])
    together = mean_of(values, [str(place // 10) for place in range(200)])
    assert alone.value == together.value == pytest.approx(values.mean())
    widths = [one.interval.high - one.interval.low for one in (alone, together)]  # type: ignore[operator]
    assert widths[1] == pytest.approx(2 * 1.96 * values.std() / math.sqrt(20), rel=0.15)
    assert widths[1] > 2.5 * widths[0]
    assert "20 groups" in together.method


def test_a_mean_without_an_interval_says_why() -> None:
    one = mean_of(np.array([1.0, 2.0]), ["a", "a"])
    same = mean_of(np.array([2.0, 2.0]), ["a", "b"])
    assert (one.value, one.interval, same.value, same.interval) == (1.5, NO_INTERVAL, 2.0, NO_INTERVAL)
    assert "of one group" in one.method
    assert "the same value" in same.method


def test_a_difference_of_means_is_of_groups_and_for_all_measures_together() -> None:
    forget, chance = np.arange(80) < 40, np.random.default_rng(1)
    values = chance.normal(size=80) - 3 * forget
    groups = [str(place) for place in range(80)]
    alone, four = (difference_of_means(values, forget, groups, n_measures=count) for count in (1, 4))
    assert alone.value == four.value == pytest.approx(values[forget].mean() - values[~forget].mean())
    error = math.sqrt(values[forget].var() / 40 + values[~forget].var() / 40)
    for found, ends in ((alone, 1.96), (four, 2.498)):
        assert found.interval.low == pytest.approx(found.value - ends * error, abs=0.1)
        assert found.interval.high == pytest.approx(found.value + ends * error, abs=0.1)
    assert four.interval.low < alone.interval.low < alone.interval.high < four.interval.high  # type: ignore[operator]
    assert "95% for 4 measures together" in four.method


@pytest.mark.parametrize(("together", "needed"), [(1, 6), (4, 8)])
def test_few_groups_give_no_difference_that_is_clear(together: int, needed: int) -> None:
    """As few as a sign test of pairs needs: 2^(1-k) is at most what the level leaves."""
    for pairs in (needed - 1, needed):
        forget = np.repeat([True, False], pairs)
        found = difference_of_means(
            -1.0 * forget, forget, [str(place) for place in range(2 * pairs)], n_measures=together
        )
        assert found.value == -1
        assert (found.interval == NO_INTERVAL) == (pairs < needed)
    one = difference_of_means(np.arange(4.0), np.arange(4) < 2, ["a", "a", "b", "c"], n_measures=1)
    assert one.interval == NO_INTERVAL
    assert "of one group" in one.method


def test_privleak_is_0_where_nothing_leaks_and_negative_where_texts_are_known() -> None:
    known = privleak(1.0, Interval(0.9, 1.0), 0.5, "how")
    assert (known.value, known.interval) == (-100, Interval(-100, pytest.approx(-80)))
    assert privleak(0.5, Interval(0.4, 0.6), 0.5, "how").value == 0
    assert privleak(0.0, NO_INTERVAL, 0.5, "how").value == 100, "less likely than what was never read"
    # With the constant of MUSE's News model.
    assert privleak(0.6, NO_INTERVAL, 0.4772, "how").value == pytest.approx(100 * (0.4 - 0.4772) / 0.4772)


def drawn(shift: float, side: int = 30) -> tuple[float, np.ndarray, GroupBootstrap]:
    """An AUROC of members that lie ``shift`` higher, its resamples, and what drew them."""
    labels = np.repeat([1, 0], side)
    ranking = rank(np.random.default_rng(7).normal(size=2 * side) + shift * labels, labels)
    bootstrap = GroupBootstrap([str(place) for place in range(2 * side)], labels, resamples=200)
    auroc = float(weighted_metrics(ranking, names=("auroc",))[0, 0])
    return auroc, bootstrap.metrics([ranking], ("auroc",))[0, :, 0], bootstrap


def test_the_retrained_model_is_resampled_with_the_other() -> None:
    auroc, resampled, bootstrap = drawn(1.0)
    itself = privleak_against_retrained(auroc, auroc, resampled, resampled, bootstrap)
    assert (itself.value, itself.interval) == (0, Interval(0, 0)), "the same texts are drawn of both"
    reference, other, _ = drawn(0.0)
    found = privleak_against_retrained(auroc, reference, resampled, other, bootstrap)
    assert found.value == pytest.approx(100 * ((1 - auroc) / (1 - reference) - 1))
    low, high = np.percentile(100 * ((1 - resampled) / (1 - other) - 1), (2.5, 97.5))
    assert found.interval == Interval(pytest.approx(low), pytest.approx(high))
    assert "the retrained model" in found.method


def test_texts_that_all_stand_out_have_the_exact_bound() -> None:
    auroc, resampled, bootstrap = drawn(50.0)
    assert auroc == 1
    found = privleak_against_retrained(auroc, 0.5, resampled, np.full_like(resampled, 0.5), bootstrap)
    assert found.value == -100
    assert found.interval == Interval(-100, pytest.approx(100 * ((1 - 0.025 ** (1 / 30)) / 0.5 - 1)))


def test_no_interval_where_there_may_be_nothing_to_divide_by() -> None:
    auroc, resampled, bootstrap = drawn(1.0)
    found = privleak_against_retrained(auroc, 0.99, resampled, np.linspace(0.9, 1.0, len(resampled)), bootstrap)
    assert found.interval == NO_INTERVAL
    assert "no interval" in found.method


def test_two_models_are_compared_by_one_value_a_group() -> None:
    assert group_means(np.array([1.0, 3.0, 5.0]), ["a", "b", "a"]).tolist() == [3.0, 3.0]
    p_value, distance = kolmogorov_smirnov(np.arange(10.0), np.arange(10.0) + 100)
    assert distance == 1
    assert p_value == pytest.approx(2 / math.comb(20, 10))
    assert kolmogorov_smirnov(np.arange(10.0), np.arange(10.0)) == (1, 0)
