import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples
from scipy.stats import beta, binomtest
from scored_texts import build_scored_texts

from audit_pipeline.statistics.contamination_rate import (
    GroupSpread,
    compute_corrected_shares,
    compute_unit_rates,
    measure_threshold,
    select_assumption,
)
from audit_pipeline.statistics.share_bounds import Rate, estimate_grouped_rate
from audit_pipeline.statistics.thresholds import (
    Threshold,
    choose_largest_accuracy,
    choose_order_statistic,
)

SHIFT = 1.898  # TPR .6 at FPR .05


def normal_texts(generator, n_nonmembers, n_members, prefix="e", shift=SHIFT):
    labels = np.repeat([0, 1], [n_nonmembers, n_members])
    return build_scored_texts(generator.normal(size=len(labels)) + shift * labels, labels, prefix=prefix)


def marginal(calibration):
    return choose_order_statistic("marginal", calibration, 0.05)


def rate(value, low, high):
    return Rate(value, low, high, 100, 100, 100.0)


def corrected(flagged, low, high, fpr, tpr, *spread):
    return [
        float(one[0])
        for one in compute_corrected_shares(*(np.array([x]) for x in (flagged, low, high)), fpr, tpr, *spread)
    ]


def test_the_corrected_share_by_hand():
    # No uncertainty in FPR and TPR: the interval is the flagged share's, corrected.
    fpr, tpr = rate(0.1, 0.1, 0.1), rate(0.6, 0.6, 0.6)
    assert corrected(0.35, 0.25, 0.5, fpr, tpr) == pytest.approx([0.5, 0.3, 0.8])
    assert corrected(0.05, 0.0, 0.2, fpr, tpr) == pytest.approx([0.0, 0.0, 0.2])
    # More is flagged than of members, or less than of non-members, by all three intervals: no share explains it.
    assert corrected(0.9, 0.8, 1.0, fpr, tpr) == pytest.approx([1.0, np.nan, np.nan], nan_ok=True)
    assert corrected(0.02, 0.01, 0.09, fpr, tpr) == pytest.approx([0.0, np.nan, np.nan], nan_ok=True)
    assert corrected(0.9, 0.55, 1.0, fpr, tpr) == pytest.approx([1.0, 0.9, 1.0])
    # Only the FPR is uncertain: at the lower end p, 0.35 - (1 - p) 0.1 - 0.6 p = (1 - p) 0.1, so p = 0.15 / 0.4.
    assert corrected(0.35, 0.35, 0.35, rate(0.1, 0.0, 0.2), tpr) == pytest.approx([0.5, 0.15 / 0.4, 0.35 / 0.6])


@given(st.data())
@max_examples(60)
def test_the_interval_holds_exactly_the_shares_that_the_three_intervals_allow(data):
    def interval(least, most):
        low, value, high = sorted(data.draw(st.floats(least, most)) for _ in range(3))
        return low, value, high

    flagged_low, flagged, flagged_high = interval(0, 1)
    fpr_low, false, fpr_high = interval(0, 0.2)
    tpr_low, true, tpr_high = interval(0.5, 1)
    fpr, tpr = rate(false, fpr_low, fpr_high), rate(true, tpr_low, tpr_high)
    spread = GroupSpread(*(data.draw(st.sampled_from([0.0, 0.0, 0.1, 0.4])) for _ in range(4)))
    share, low, high = corrected(flagged, flagged_low, flagged_high, fpr, tpr, spread)
    if np.isnan(low):
        # Nothing of 0 to 1 is allowed.
        low, high = (2.0, 2.0) if share == 1 else (-1.0, -1.0)
        share = low
    assert low <= share <= high
    assert np.clip(share, 0, 1) == pytest.approx(np.clip((flagged - false) / (true - false), 0, 1))
    for p in np.linspace(0, 1, 41):
        excess = flagged - (1 - p) * false - p * true
        groups_up = (1 - p) * spread.fpr_up + p * spread.tpr_up
        groups_down = (1 - p) * spread.fpr_down + p * spread.tpr_down
        down = np.linalg.norm([flagged - flagged_low, (1 - p) * (fpr_high - false), p * (tpr_high - true), groups_up])
        up = np.linalg.norm([flagged_high - flagged, (1 - p) * (false - fpr_low), p * (true - tpr_low), groups_down])
        if low + 1e-9 < p < share or share < p < high - 1e-9:
            # One side of the estimate may have a gap where groups differ much; the ends still are the outermost.
            assert spread != GroupSpread(0, 0, 0, 0) or -up - 1e-9 <= excess <= down + 1e-9
        if p < low - 1e-9:
            assert excess > down - 1e-9
        if p > high + 1e-9:
            assert excess < -up + 1e-9


def test_the_spread_of_a_group_by_hand():
    # All else is certain, one group's FPR may be 0.1 higher and its TPR 0.1 lower:
    # 0.35 - (1 - p) 0.1 - 0.6 p = (1 - p) 0.1 at the lower end, and -0.1 p at the upper.
    found = corrected(0.35, 0.35, 0.35, rate(0.1, 0.1, 0.1), rate(0.6, 0.6, 0.6), GroupSpread(0.0, 0.1, 0.1, 0.0))
    assert found == pytest.approx([0.5, 0.15 / 0.4, 0.25 / 0.4])


def test_the_spread_of_groups_and_what_it_is_said_to_assume():
    # Groups of 10 non-members: half have 4 above the threshold that all choose, half none. ANOVA by hand:
    # shares 0.4 and 0, mean 0.2, between 10 * 0.04 * 40 / 39, within 20 * 10 * 0.24 / 360, n0 = 10.
    high = np.tile([1, 1, 1, 1, 0, 0, 0, 0, 0, 0], 20)
    scores = np.r_[high, np.zeros(200), np.tile([2.0, 0.0], 100)]
    calibration = build_scored_texts(
        scores, np.repeat([0, 1], [400, 200]), np.r_[np.repeat(np.arange(40), 10), 100 + np.arange(200)]
    )
    chosen = Threshold("marginal", 0.05, 0.5, None, "", 0.5)
    alone = measure_threshold(chosen, calibration)
    assert alone.spread is None  # members of one text per group
    paired = build_scored_texts(
        scores, calibration.labels, np.r_[np.repeat(np.arange(40), 10), 100 + np.arange(200) // 2]
    )
    found = measure_threshold(chosen, paired)
    between, within = 10 * 0.04 * 40 / 39, 20 * 10 * 0.24 / 360
    alike = (between - within) / (between + 9 * within)
    of_groups = beta(0.2 * (1 / alike - 1), 0.8 * (1 / alike - 1))
    assert found.spread.fpr_down == pytest.approx(0.2 - of_groups.ppf(0.025))
    assert found.spread.fpr_up == pytest.approx(of_groups.ppf(0.975) - 0.2)
    # Every pair of members has one above: less alike than chance.
    assert (found.spread.tpr_down, found.spread.tpr_up) == (0.0, 0.0)

    audited = build_scored_texts(np.tile([1.0] * 7 + [0.0] * 13, 30), [-1] * 600, np.repeat(["a", "b", "c"], 200))
    one, average = (compute_unit_rates(audited, audited.groups, each) for each in (found, alone))
    assert (one.corrected == average.corrected).all()
    assert (one.corrected_high - one.corrected_low > average.corrected_high - average.corrected_low).all()
    together = [compute_unit_rates(audited, np.zeros(600, dtype=int), each).corrected_low[0] for each in (found, alone)]
    assert together[0] == pytest.approx(together[1], abs=0.02)  # the mean over groups needs no spread of one
    assert len({select_assumption(found, 1), select_assumption(alone, 1), select_assumption(found, 2)}) == 3
    assert select_assumption(found, 2) == select_assumption(alone, 2)


def test_the_instrument_of_an_order_statistic_counts_the_text_that_it_is():
    generator = np.random.default_rng(1)
    calibration = normal_texts(generator, 99, 80)
    for rule, flagged in (("marginal", 5), ("certified", 2)):  # the 95th and the 98th of 99
        chosen = choose_order_statistic(rule, calibration, 0.05)
        found = measure_threshold(chosen, calibration)
        assert found.thresholds == (chosen.threshold,)
        assert found.fpr.value == pytest.approx(flagged / 99)
        assert found.tpr == estimate_grouped_rate(calibration.members.scores >= chosen.threshold, np.arange(80))
        assert found.reason is None


def test_the_instrument_of_the_largest_accuracy_is_measured_where_it_was_not_chosen():
    generator = np.random.default_rng(2)
    calibration = normal_texts(generator, 60, 60)
    chosen = choose_largest_accuracy(calibration)
    found = measure_threshold(chosen, calibration)
    assert len(found.thresholds) == 10
    assert found.threshold == chosen.threshold
    order = generator.permutation(120)
    assert measure_threshold(chosen, calibration.take(order)) == found
    # Scores that say nothing: where it was chosen the threshold separates, elsewhere it does not.
    seen, fresh, refused = [], [], []
    for _ in range(60):
        blind = normal_texts(generator, 15, 15, shift=0.0)
        chosen = choose_largest_accuracy(blind)
        measured = measure_threshold(chosen, blind)
        fresh.append(measured.tpr.value - measured.fpr.value)
        seen.append(
            np.mean(blind.members.scores >= chosen.threshold) - np.mean(blind.nonmembers.scores >= chosen.threshold)
        )
        refused.append(measured.reason is not None)
    assert np.mean(refused) > 0.9
    # One-sided Kolmogorov-Smirnov, 15 against 15: about 0.63 * sqrt(2 / 15) = 0.23, less for steps of 1/15.
    assert np.mean(seen) > 0.15
    assert np.mean(fresh) < 0.05


def test_groups_are_never_divided_between_choosing_and_measuring():
    # Each group has one member above and one non-member below a level of its own, all levels far apart: thresholds
    # that other groups choose call either both texts of a group or none.
    groups = np.repeat(np.arange(12), 2)
    calibration = build_scored_texts(10.0 * groups + np.tile([0, 1], 12), np.tile([0, 1], 12), groups)
    found = measure_threshold(choose_largest_accuracy(calibration), calibration)
    assert found.tpr.value == pytest.approx(found.fpr.value)


def test_conditions_that_refuse_a_correction():
    generator = np.random.default_rng(3)
    nobody = normal_texts(generator, 40, 0)
    assert measure_threshold(choose_largest_accuracy(nobody), nobody) is None
    unnamed = measure_threshold(marginal(nobody), nobody)
    assert "no calibration members are named" in unnamed.reason
    found = compute_unit_rates(build_scored_texts([9.0, -9.0], [-1, -1]), np.array(["u", "u"]), unnamed)
    assert (found.n_flagged.tolist(), found.flagged.tolist()) == ([1], [0.5])
    assert np.isnan(found.corrected).all()

    blind = normal_texts(generator, 40, 40, shift=0.0)
    assert "the lower bound of TPR - FPR is" in measure_threshold(marginal(blind), blind).reason

    one_group = build_scored_texts(np.r_[np.arange(40.0), 50.0, 51.0], [0] * 40 + [1] * 2, [*range(40), "m", "m"])
    assert "members are all of one group" in measure_threshold(marginal(one_group), one_group).reason
    assert "too few groups" in measure_threshold(choose_largest_accuracy(one_group), one_group).reason


def test_units_of_one_group_and_of_several():
    generator = np.random.default_rng(4)
    calibration = normal_texts(generator, 99, 80)
    found = measure_threshold(marginal(calibration), calibration)
    groups = np.repeat(["a", "b", "c", "d"], [10, 10, 10, 1])
    units = np.repeat(["one", "several", "single"], [10, 20, 1])
    scores = np.where(np.arange(31) % 3 == 0, 9.0, -9.0)
    rates = compute_unit_rates(build_scored_texts(scores, [-1] * 31, groups, prefix="a"), units, found)
    assert rates.name.tolist() == ["one", "several", "single"]
    assert rates.n_texts.tolist() == [10, 20, 1]
    assert rates.n_groups.tolist() == [1, 2, 1]
    assert rates.n_flagged.tolist() == [4, 6, 1]
    assert rates.flagged.tolist() == pytest.approx([0.4, 0.3, 1.0])
    plain = binomtest(4, 10).proportion_ci(0.95, method="exact")
    assert (rates.flagged_low[0], rates.flagged_high[0]) == pytest.approx((plain.low, plain.high))
    grouped = estimate_grouped_rate(scores[10:30] > 0, groups[10:30])
    assert (rates.flagged_low[1], rates.flagged_high[1]) == (grouped.low, grouped.high)
    false, true = found.fpr.value, found.tpr.value
    assert rates.corrected[:2] == pytest.approx((np.array([0.4, 0.3]) - false) / (true - false))
    assert (rates.corrected_low <= rates.corrected).all()
    assert (rates.corrected <= rates.corrected_high).all()


@pytest.mark.parametrize("n", [20, pytest.param(60, marks=pytest.mark.slow)])
def test_intervals_hold_the_true_share_in_mixtures(n):
    generator = np.random.default_rng(20240604)
    for share in (0.0, 0.5, 1.0):
        for rule in (choose_largest_accuracy, marginal):
            held = []
            for _ in range(n):
                calibration = normal_texts(generator, 100, 100)
                members = round(100 * share)
                audited = normal_texts(generator, 100 - members, members, prefix="a")
                found = measure_threshold(rule(calibration), calibration)
                rates = compute_unit_rates(audited, np.zeros(100, dtype=int), found)
                held.append(rates.corrected_low[0] <= share <= rates.corrected_high[0])
            # 95% less 3 standard errors of n mixtures; 2,000 are in bench/bench_decisions.py
            assert np.mean(held) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / n)
