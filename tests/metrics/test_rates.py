import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples
from scipy.stats import binom, binomtest, t

from audit_pipeline.errors import DataError
from audit_pipeline.metrics.intervals import Interval
from audit_pipeline.metrics.rates import (
    clopper_pearson_bounds,
    count_groups_to_resolve,
    describe_interval_method,
    effective_size,
    grouped_rate,
    is_resolvable,
    tpr_at_fpr,
)
from audit_pipeline.metrics.roc import compute_metrics, roc_points


def clopper_pearson(hits, n):
    low, high = clopper_pearson_bounds(hits, n)
    return Interval(float(low), float(high))


@given(st.integers(1, 400), st.data())
def test_bounds_of_whole_counts_are_scipys_exact_ones(n, data):
    hits = data.draw(st.integers(0, n))
    expected = binomtest(hits, n).proportion_ci(method="exact")
    assert clopper_pearson(hits, n) == Interval(pytest.approx(expected.low), pytest.approx(expected.high))


def test_bounds_by_hand():
    # 0 of n: (1 - high)^n = 0.025; n of n: the mirror image
    assert clopper_pearson(0, 20) == Interval(0.0, pytest.approx(1 - 0.025 ** (1 / 20)))
    assert clopper_pearson(7.5, 7.5) == Interval(pytest.approx(0.025 ** (1 / 7.5)), 1.0)
    # at either bound the tail beyond the count is 2.5%
    found = clopper_pearson(3, 30)
    assert binom.sf(2, 30, found.low) == pytest.approx(0.025)
    assert binom.cdf(3, 30, found.high) == pytest.approx(0.025)


@given(st.floats(0.5, 300), st.integers(0, 1000).map(lambda thousandth: thousandth / 1000))
def test_bounds_of_a_broken_count_lie_between_and_mirror(n, part):
    found, mirrored = clopper_pearson(part * n, n), clopper_pearson(n - part * n, n)
    assert 0 <= found.low <= part + 1e-9 <= found.high + 2e-9 <= 1 + 2e-9
    assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx((found.low, found.high), abs=1e-9)


def test_exact_coverage_is_never_below_95_percent():
    for n in (5, 30, 100):
        intervals = [clopper_pearson(hits, n) for hits in range(n + 1)]
        for p in np.linspace(0.001, 0.999, 97):
            held = [interval.low <= p <= interval.high for interval in intervals]
            assert binom.pmf(np.arange(n + 1), n, p)[held].sum() >= 0.95


def test_the_effective_size_by_hand():
    # Three groups of 2, 2 and 4 texts with 2, 1 and 1 hits: 4 of 8. Residual totals: 2-1, 1-1, 1-2.
    hits = [1, 1, 1, 0, 1, 0, 0, 0]
    groups = ["a", "a", "b", "b", "c", "c", "c", "c"]
    variance = 3 / 2 * (1 + 0 + 1) / 64
    simple = 0.25 / 7
    freedom = (t.ppf(0.975, 7) / t.ppf(0.975, 2)) ** 2
    assert simple < variance
    assert effective_size(hits, groups) == pytest.approx(8 * simple / variance * freedom)
    found = grouped_rate(hits, groups)
    size = found.n_effective
    assert found.value == 0.5
    assert found.interval == clopper_pearson(size / 2, size)
    assert "8 texts in 3 groups" in describe_interval_method(found)


def test_equal_texts_of_a_group_count_as_one():
    # 40 groups of 5 texts that agree: the size of 40 texts, less what estimating the variance costs.
    hits = np.repeat(np.arange(40) % 4 == 0, 5)
    groups = [f"g{index // 5}" for index in range(200)]
    freedom = (t.ppf(0.975, 199) / t.ppf(0.975, 39)) ** 2
    assert effective_size(hits, groups) == pytest.approx(40 * freedom * 199 / 200 * 39 / 40, rel=0.03)
    assert effective_size(hits, groups) < 40


def test_all_or_none_are_bounded_by_the_groups():
    groups = [f"g{index // 5}" for index in range(50)]
    assert grouped_rate([False] * 50, groups).interval == clopper_pearson(0, 10)
    assert grouped_rate([True] * 50, groups).interval == clopper_pearson(10, 10)


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.randoms())
def test_one_text_a_group_is_plain_clopper_pearson(hits, random):
    found = grouped_rate(hits, [str(index) for index in range(len(hits))])
    assert found.interval == clopper_pearson(sum(hits), len(hits))
    assert found.n_effective == len(hits)
    assert "one per group" in describe_interval_method(found)
    random.shuffle(hits)
    assert grouped_rate(hits, [str(index) for index in range(len(hits))]) == found


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=2, max_size=60), st.randoms())
def test_the_effective_size_is_never_above_n(rows, random):
    hits, groups = [hit for hit, _ in rows], [str(group) for _, group in rows]
    size = effective_size(hits, groups)
    assert 0 <= size <= len(rows)
    assert (size == 0) == (len(set(groups)) == 1 and len(rows) > 1)
    random.shuffle(rows)
    assert effective_size([hit for hit, _ in rows], [str(group) for _, group in rows]) == pytest.approx(size)


def test_texts_of_one_group_have_no_interval():
    found = grouped_rate([True, False, True], ["a"] * 3)
    assert (found.value, found.interval) == (2 / 3, Interval(None, None))
    assert describe_interval_method(found) == "no interval: all 3 texts are of one group"
    assert grouped_rate([], []).value is None
    with pytest.raises(DataError, match="one group for each"):
        grouped_rate([True], ["a", "b"])


def test_grouped_bounds_cover_where_plain_ones_do_not():
    generator = np.random.default_rng(3)
    groups = [f"g{index // 5}" for index in range(100)]
    grouped = plain = 0
    for _ in range(300):
        scores = np.sqrt(0.6) * generator.normal(size=(20, 1)) + np.sqrt(0.4) * generator.normal(size=(20, 5))
        hits = scores.ravel() > 0  # true share: one half
        found = grouped_rate(hits, groups).interval
        alone = clopper_pearson(hits.sum(), 100)
        grouped += found.low <= 0.5 <= found.high
        plain += alone.low <= 0.5 <= alone.high
    assert grouped >= 0.92 * 300
    assert plain < 0.88 * 300


@pytest.mark.parametrize(("fpr", "groups"), [(0.05, 20), (0.01, 100), (0.001, 1000), (0.3, 4), (1 / 3, 3)])
def test_a_rate_needs_its_inverse_in_groups(fpr, groups):
    assert count_groups_to_resolve(fpr) == groups
    assert is_resolvable(fpr, groups)
    assert not is_resolvable(fpr, groups - 1)


def case(n_members, n_nonmembers, size=1, seed=0):
    generator = np.random.default_rng(seed)
    labels = np.repeat([1, 0], [n_members, n_nonmembers])
    scores = np.round(generator.normal(size=len(labels)) + labels, 2)
    return scores, labels, [f"g{index // size}" for index in range(len(labels))]


def test_tpr_at_fpr_is_the_metric_with_the_bounds_of_a_share():
    scores, labels, groups = case(40, 100)
    for name, fpr in (("tpr_at_5_fpr", 0.05), ("tpr_at_1_fpr", 0.01)):
        found = tpr_at_fpr(scores, labels, groups, fpr)
        assert found.value == compute_metrics(scores, labels)[name]
        assert found.interval == clopper_pearson(round(found.value * 40), 40)
        assert f"largest TPR with FPR <= {fpr:g}" in found.method
        assert "for the threshold as it was met: its own uncertainty is not in them" in found.method
        assert tpr_at_fpr(scores, labels, groups, fpr, points=roc_points(scores, labels)) == found
    missing = tpr_at_fpr(scores, labels, groups, 0.001)
    assert (missing.value, missing.interval) == (None, Interval(None, None))
    assert missing.method == "not resolvable with 100 non-members: the smallest FPR that can be measured is 1/100"


def test_groups_of_nonmembers_decide_what_can_be_told():
    scores, labels, groups = case(50, 100, size=5)
    assert tpr_at_fpr(scores, labels, groups, 0.05).value is not None
    missing = tpr_at_fpr(scores, labels, groups, 0.01)
    assert missing.value is None
    assert missing.method == (
        "not resolvable with 20 groups of non-members (100 texts): the smallest FPR that can be measured is 1/20"
    )


@given(st.integers(0, 500), st.randoms())
@max_examples(30)
def test_order_and_monotone_changes_do_not_matter(seed, random):
    scores, labels, groups = case(30, 60, size=3, seed=seed)
    found = tpr_at_fpr(scores, labels, groups, 0.05)
    order = list(range(90))
    random.shuffle(order)
    shuffled = tpr_at_fpr(scores[order], labels[order], [groups[index] for index in order], 0.05)
    assert (shuffled.value, shuffled.method) == (found.value, found.method)
    assert (shuffled.interval.low, shuffled.interval.high) == pytest.approx((found.interval.low, found.interval.high))
    assert tpr_at_fpr(np.exp(scores), labels, groups, 0.05) == found


def test_bad_input_is_refused():
    with pytest.raises(DataError, match="not a number"):
        tpr_at_fpr([1.0, math.nan], [0, 1], ["a", "b"], 0.05)
    with pytest.raises(DataError, match="one group for each"):
        tpr_at_fpr([1.0, 2.0], [0, 1], ["a"], 0.05)
