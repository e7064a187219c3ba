import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples
from scipy.stats import binom, mannwhitneyu, norm

from audit_pipeline.statistics.power import (
    PowerGoal,
    compute_binormal_tpr,
    compute_flagged_power,
    compute_mann_whitney_power,
    find_flagged_sample_size,
    find_mean_score_sample_size,
    power_report_from_auroc,
    power_report_from_scores,
    simulate_power,
)

GENERATOR = np.random.default_rng(23)


def test_noether_by_hand():
    # AUROC .6, 5%, 80%: N = (1.645 + 0.842)^2 / (12 * 1/4 * 0.1^2) = 206.1, so 103.04 per side; N + 1 for N adds 0.5
    assert find_mean_score_sample_size(0.6, 0.05, 0.8) == 104


@given(
    st.floats(0.51, 0.99), st.floats(0.001, 0.2), st.floats(0.5, 0.99), st.none() | st.integers(1, 5000)
)  # fmt: skip
def test_the_fewest_texts_are_the_fewest(auroc, level, power, held_out):
    n = find_mean_score_sample_size(auroc, level, power, held_out)
    if n is None:
        assert compute_mann_whitney_power(auroc, 10**6, held_out or 10**6, level) < power + 1e-9
        return
    assert compute_mann_whitney_power(auroc, n, held_out or n, level) >= power - 1e-6
    if n > 1:
        assert compute_mann_whitney_power(auroc, n - 1, held_out or n - 1, level) < power + 1e-6


def test_too_few_held_out_texts_are_too_few_for_any_number():
    assert find_mean_score_sample_size(0.55, 0.05, 0.8, n_held_out=20) is None
    assert find_mean_score_sample_size(0.5, 0.05, 0.8) is None
    assert find_mean_score_sample_size(0.4, 0.05, 0.8) is None


@pytest.mark.parametrize(("auroc", "effect", "held_out"), [(0.6, 1.0, None), (0.75, 0.5, None), (0.65, 1.0, 200)])
def test_noethers_number_has_its_power_in_simulated_audits(auroc, effect, held_out):
    n = find_mean_score_sample_size(0.5 + effect * (auroc - 0.5), 0.05, 0.8, held_out)
    draws = 1500
    shift = math.sqrt(2) * norm.ppf(auroc) * (GENERATOR.random((draws, n)) < effect)
    audited = GENERATOR.normal(size=(draws, n)) + shift
    others = GENERATOR.normal(size=(draws, held_out or n))
    p_values = mannwhitneyu(audited, others, alternative="greater", axis=1, method="asymptotic").pvalue
    assert (p_values <= 0.05).mean() == pytest.approx(0.8, abs=0.05)


def test_resampled_power_agrees_with_the_formula_and_keeps_the_level():
    inside, outside = GENERATOR.normal(size=2000) + 0.4, GENERATOR.normal(size=2000)
    auroc = mannwhitneyu(inside, outside).statistic / 2000**2
    found = simulate_power(inside, outside, 80, 80, level=0.05)
    assert found == pytest.approx(compute_mann_whitney_power(auroc, 80, 80, 0.05), abs=0.06)
    diluted = simulate_power(inside, outside, 80, 300, level=0.05, effect=0.5)
    assert diluted == pytest.approx(compute_mann_whitney_power(0.5 + 0.5 * (auroc - 0.5), 80, 300, 0.05), abs=0.06)
    assert simulate_power(outside, outside, 40, 40, level=0.05) == pytest.approx(0.05, abs=0.03)
    assert simulate_power(inside, outside, 80, 80, level=0.05) == found


@pytest.mark.filterwarnings("error")
def test_scores_that_are_all_equal_are_never_told_apart():
    assert simulate_power([1.0, 1.0], [1.0], 20, 20, level=0.05, draws=10) == 0.0


def test_the_power_of_flagged_texts_by_enumeration():

    def by_enumeration(n, tpr, fpr, effect, level):
        clean, found = binom(n, fpr), binom(n, fpr + effect * (tpr - fpr))
        least = next(count for count in range(n + 2) if clean.sf(count - 1) <= level)
        return sum(found.pmf(count) for count in range(least, n + 1))

    for n in (1, 7, 40):
        expected = by_enumeration(n, 0.4, 0.05, 0.5, 0.05)
        assert compute_flagged_power(n, 0.4, 0.05, 0.5, 0.05)[0] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("tpr", "fpr", "effect", "power"),
    [
        (0.4, 0.05, 1.0, 0.8),
        (0.2, 0.05, 0.5, 0.8),
        (0.9, 0.01, 0.1, 0.95),
        (1.0, 0.05, 1.0, 0.8),
        (0.02, 0.001, 1, 0.5),
    ],
)
def test_from_the_fewest_flagged_texts_on_every_number_has_the_power(tpr, fpr, effect, power):
    n = find_flagged_sample_size(tpr, fpr, effect, fpr, power)
    ahead = compute_flagged_power(np.arange(1, 6 * n + 50), tpr, fpr, effect, fpr) >= power
    assert ahead[n - 1 :].all()
    assert n == 1 or not ahead[n - 2]


def test_a_threshold_without_power_has_no_sample_size():
    assert find_flagged_sample_size(0.05, 0.05, 1.0, 0.05, 0.8) is None
    assert find_flagged_sample_size(0.02, 0.05, 1.0, 0.05, 0.8) is None
    assert find_flagged_sample_size(0.0501, 0.05, 0.5, 0.05, 0.8) is None


def test_binormal_tpr_is_that_of_shifted_normal_scores():
    inside, outside = GENERATOR.normal(size=200_000) + math.sqrt(2) * norm.ppf(0.7), GENERATOR.normal(size=200_000)
    assert compute_binormal_tpr(0.7, 0.05) == pytest.approx((inside >= np.quantile(outside, 0.95)).mean(), abs=0.006)
    assert compute_binormal_tpr(0.5, 0.01) == pytest.approx(0.01)


def test_a_report_from_scores():
    inside, outside = GENERATOR.normal(size=150) + 1.0, GENERATOR.normal(size=120)
    found = power_report_from_scores(inside, outside, PowerGoal(sizes=(20, 50), effect=0.5), draws=100)
    auroc = (inside[:, None] > outside[None, :]).mean()
    threshold = np.sort(outside)[-7]  # six of 120 may lie above
    assert found.auroc == pytest.approx(auroc)
    assert found.tpr == (inside > threshold).mean()
    assert (found.groups_to_resolve, found.groups_to_certify) == (20, 59)
    assert found.n_mean_score == find_mean_score_sample_size(0.5 + 0.5 * (auroc - 0.5), 0.05, 0.8)
    assert found.n_flagged == find_flagged_sample_size(found.tpr, 0.05, 0.5, 0.05, 0.8)
    assert [point.n for point in found.curve] == [20, 50]
    assert found.curve[1].resampled == simulate_power(
        inside, outside, 50, 50, level=0.05, effect=0.5, draws=100, seed=1
    )
    assert found.curve[1].flagged == compute_flagged_power(50, found.tpr, 0.05, 0.5, 0.05)[0]
    for part in (
        "FPR of 5%",
        "20 groups",
        "59 groups for",
        "150 members and 120 non-members",
        f"{found.n_mean_score} texts",
        f"{found.n_flagged} texts",
        "50% of the audited",
    ):
        assert part in found.sentence


def test_too_few_nonmembers_say_nothing_of_flagged_texts():
    goal = PowerGoal(fpr=0.01, sizes=(10,))
    found = power_report_from_scores(GENERATOR.normal(size=30) + 1, GENERATOR.normal(size=30), goal, draws=20)
    assert (found.tpr, found.n_flagged, found.curve[0].flagged) == (None, None, None)
    assert found.n_mean_score is not None
    assert "Nothing can be said" in found.sentence


def test_a_report_from_an_auroc():
    found = power_report_from_auroc(0.6, PowerGoal(fpr=0.01, n_held_out=500))
    assert found.tpr == compute_binormal_tpr(0.6, 0.01)
    assert (found.groups_to_resolve, found.groups_to_certify) == (100, 299)
    assert found.n_mean_score == find_mean_score_sample_size(0.6, 0.01, 0.8, 500)
    assert "compared with 500 held-out texts" in found.sentence
    assert all(point.resampled is None for point in found.curve)
    assert "or is impossible" in power_report_from_auroc(0.5, PowerGoal()).sentence


@given(st.floats(0.52, 0.95), st.floats(0.05, 1.0), st.floats(0.3, 0.95))
@max_examples(40)
def test_more_effect_needs_fewer_texts_and_more_power_more(auroc, effect, power):
    few, many = (find_mean_score_sample_size(0.5 + one * (auroc - 0.5), 0.05, power) for one in (effect, effect / 2))
    # None: more than a million texts.
    assert many is None or (few is not None and few <= many)
    powers = [compute_mann_whitney_power(auroc, n, n, 0.05) for n in (5, 20, 100)]
    assert powers == sorted(powers)
