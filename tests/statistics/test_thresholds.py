import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples
from scipy.stats import beta, binom, binomtest
from scored_texts import build_scored_texts

from audit_pipeline.statistics.thresholds import (
    ScoredTexts,
    choose_largest_accuracy,
    choose_order_statistic,
    choose_thresholds,
    compute_sampling_keys,
    estimate_achieved_rates,
    find_certified_rank,
    find_marginal_rank,
    min_certified_groups,
    min_marginal_groups,
)


def test_the_marginal_threshold_lies_just_above_the_order_statistic():
    scores = np.random.default_rng(5).permutation(np.arange(39.0))
    # (39 + 1) * 0.95 = 38: the 38th smallest of 0 .. 38 is 37.
    found = choose_order_statistic("marginal", build_scored_texts(scores), 0.05)
    assert found.threshold == np.nextafter(37.0, np.inf)
    assert (found.order_statistic, found.status, found.reason) == (37.0, "ok", None)
    assert (scores >= found.threshold).sum() == 1
    assert "38 of 39" in found.method


def test_a_text_tied_with_the_order_statistic_is_not_called_a_member():
    found = choose_order_statistic("marginal", build_scored_texts([1.0] * 30 + [0.0] * 9), 0.05)
    assert estimate_achieved_rates(found.threshold, build_scored_texts([1.0, 1.0, 2.0]))[0].value == pytest.approx(
        1 / 3
    )


@pytest.mark.parametrize(
    ("alpha", "marginal_n", "certified_n"), [(0.05, 19, 59), (0.01, 99, 299), (0.1, 9, 29), (0.3, 3, 9)]
)
def test_both_rules_refuse_below_their_smallest_number_of_groups(alpha, marginal_n, certified_n):
    assert min_marginal_groups(alpha) == marginal_n
    assert min_certified_groups(alpha) == certified_n
    for rule, n in (("marginal", marginal_n), ("certified", certified_n)):
        # Two texts per group: the number that counts is that of groups.
        few = build_scored_texts(np.arange(2.0 * (n - 1)), groups=[f"g{index // 2}" for index in range(2 * (n - 1))])
        refused = choose_order_statistic(rule, few, alpha)
        assert (refused.status, refused.threshold) == ("refused", None)
        assert f"needs {n}" in refused.reason
        assert f"{n - 1} groups" in refused.reason
        enough = choose_order_statistic(rule, build_scored_texts(np.arange(float(n))), alpha)
        assert enough.threshold == np.nextafter(n - 1.0, np.inf)


@given(st.integers(1, 600), st.sampled_from([0.01, 0.05, 0.1, 0.2, 0.5]))
@max_examples(60)
def test_ranks_against_their_definitions(n, alpha):
    hundredths = round(100 * alpha)
    wanted = -(-(n + 1) * (100 - hundredths) // 100)
    assert find_marginal_rank(n, alpha) == (wanted if wanted <= n else None)
    allowed = [k for k in range(1, n + 1) if binom.pmf(np.arange(k, n + 1), n, 1 - alpha).sum() <= 0.05]
    assert find_certified_rank(n, alpha) == (allowed[0] if allowed else None)
    if allowed:
        # The share of the population at or below the k-th smallest is Beta(k, n - k + 1): P(FPR > alpha) <= 5%.
        assert beta.cdf(1 - alpha, allowed[0], n - allowed[0] + 1) <= 0.05 + 1e-12
        assert allowed[0] >= (find_marginal_rank(n, alpha) or 0)


def test_a_calibration_of_nobody_is_refused():
    for found in choose_thresholds(build_scored_texts([]), (0.05, 0.01)):
        assert found.status == "refused"
        assert found.reason.startswith("there are no ")
    assert find_certified_rank(0, 0.05) is None


@given(st.data())
@max_examples(80)
def test_largest_accuracy_against_every_threshold_tried(data):
    n = data.draw(st.integers(2, 25))
    scores = np.array(data.draw(st.lists(st.integers(-3, 3), min_size=n, max_size=n)), dtype=float)
    labels = np.array(data.draw(st.lists(st.integers(-1, 1), min_size=n, max_size=n)))
    labels[:2] = 0, 1
    found = choose_largest_accuracy(build_scored_texts(scores, labels)).threshold
    known = labels >= 0

    def right(threshold):
        return int(((scores >= threshold) == (labels == 1))[known].sum())

    best = max(right(one) for one in np.arange(-4, 5, 0.5))
    assert right(found) == best
    assert not any(right(one) == best for one in np.unique(scores[known]) if one > found)


def test_largest_accuracy_by_hand():
    # Members at 1, 2, 3, 4; non-members at 0, 1, 2.5: from 3, from 2 and from 1 upwards 5 of 7 are right.
    found = choose_largest_accuracy(build_scored_texts([2, 3, 4, 1, 0, 1, 2.5], [1, 1, 1, 1, 0, 0, 0]))
    assert found.threshold == 3
    # Nothing to gain by calling anybody: a threshold that no text reaches.
    assert choose_largest_accuracy(build_scored_texts([0, 1, 2], [1, 0, 0])).threshold == np.nextafter(2.0, 3)


def test_largest_accuracy_needs_both_sides():
    for labels, missing in (([0, 0], "members"), ([1, 1], "non-members"), ([-1, -1], "non-members and no members")):
        found = choose_largest_accuracy(build_scored_texts([1.0, 2.0], labels))
        assert found.status == "refused"
        assert f"no calibration {missing} with" in found.reason


@given(st.permutations(range(60)), st.integers(0, 3))
@max_examples(20)
def test_the_order_of_rows_is_irrelevant_and_thresholds_follow_monotone_transformations(order, seed):
    scores = np.random.default_rng(1).normal(size=60)
    labels, groups = np.arange(60) % 4 == 3, [f"g{index // 2}" for index in range(60)]
    given_texts = build_scored_texts(scores, labels, groups, seed=seed)
    found = choose_thresholds(given_texts, (0.05, 0.1))
    assert choose_thresholds(given_texts.take(np.array(order)), (0.05, 0.1)) == found
    changed = ScoredTexts(np.exp(scores), given_texts.labels, given_texts.groups, given_texts.keys)
    for one, other in zip(found, choose_thresholds(changed, (0.05, 0.1)), strict=True):
        assert one.status == other.status
        if one.threshold is not None:
            assert ((scores >= one.threshold) == (np.exp(scores) >= other.threshold)).all()


def test_one_text_is_drawn_of_each_group_and_each_as_often():
    groups = ["a"] * 4 + ["b"] * 2
    drawn = [
        build_scored_texts(np.arange(6.0), groups=groups, seed=seed).draw_one_per_group().scores for seed in range(800)
    ]
    assert {len(one) for one in drawn} == {2}
    first, second = np.array(drawn).T
    # 200 and 400 expected, standard deviations 12 and 14.
    assert np.abs(np.bincount(first.astype(int), minlength=4) - 200).max() < 45
    assert abs((second == 4).sum() - 400) < 50


def limits_of_draws(rule, n, alpha, seed):
    """Return the false-positive rates of 1,500 thresholds, each chosen from n uniform scores."""
    generator = np.random.default_rng(seed)
    ids = np.array([f"e{index}" for index in range(n)])
    keys, zeros = compute_sampling_keys(ids, ids, 0), np.zeros(n, dtype=np.int8)
    draws = (ScoredTexts(generator.random(n), zeros, ids, keys) for _ in range(1500))
    return np.array([1 - choose_order_statistic(rule, drawn, alpha).threshold for drawn in draws])


def test_a_marginal_threshold_keeps_its_rate_on_average_and_not_by_much_less():
    rates = limits_of_draws("marginal", 40, 0.1, 20240601)
    # Beta(4, 37): floor(41 * 0.1) = 4 of 41 lie above it on average.
    assert np.mean(rates) == pytest.approx(4 / 41, abs=3 * np.std(rates) / np.sqrt(1500))


def test_a_certified_threshold_fails_in_at_most_5_of_100_calibrations():
    over = limits_of_draws("certified", 59, 0.05, 20240602) > 0.05
    # 0.95^59 = 0.0485
    assert np.mean(over) == pytest.approx(0.95**59, abs=3 * np.sqrt(0.0485 * 0.9515 / 1500))


def test_rates_of_one_text_a_group_are_plain_and_a_refused_threshold_only_counts():
    evaluated = build_scored_texts([0.1, 0.5, 0.7, 0.2, 0.9, 0.4, 9.0], [0, 0, 0, 0, 1, 1, -1], groups=list("abcdefg"))
    fpr, tpr = estimate_achieved_rates(0.5, evaluated)
    assert (fpr.value, fpr.n, fpr.n_groups, fpr.n_effective) == (0.5, 4, 4, 4.0)
    assert (tpr.value, tpr.n) == (0.5, 2)
    wanted = binomtest(2, 4).proportion_ci(0.95, method="exact")
    assert (fpr.low, fpr.high) == pytest.approx((wanted.low, wanted.high))
    fpr, tpr = estimate_achieved_rates(None, build_scored_texts([1.0, 2.0]))
    assert (fpr.value, fpr.n, tpr.n) == (None, 2, 0)
