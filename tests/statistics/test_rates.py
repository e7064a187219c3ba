import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples
from scipy.stats import binom, binomtest, t

from audit_pipeline.errors import DataError
from audit_pipeline.statistics.intervals import GroupedSides, Interval
from audit_pipeline.statistics.roc import METRICS, compute_metrics, compute_roc_points
from audit_pipeline.statistics.share_bounds import (
    Rate,
    compute_clopper_pearson_bounds,
    compute_difference_interval,
    compute_effective_size,
    count_groups_to_resolve,
    describe_interval_method,
    estimate_grouped_rate,
    measure_share,
)


def clopper_pearson(hits, n):
    low, high = compute_clopper_pearson_bounds(hits, n)
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
    # Three groups of 2, 2 and 4 texts with 2, 1 and 1 hits: 4 of 8. Residual totals: 2-1, 1-1, 1-2,
    # over the 6, 6 and 4 texts of the other groups.
    hits = [1, 1, 1, 0, 1, 0, 0, 0]
    groups = ["a", "a", "b", "b", "c", "c", "c", "c"]
    variance = 2 / 3 * (1 / 6**2 + 0 + 1 / 4**2)
    simple = 0.25 / 7
    freedom = (t.ppf(0.975, 7) / t.ppf(0.975, 2)) ** 2
    assert simple < variance
    assert compute_effective_size(hits, groups) == pytest.approx(8 * simple / variance * freedom)
    found = estimate_grouped_rate(hits, groups)
    size = found.n_effective
    assert found.value == 0.5
    assert found.interval == clopper_pearson(size / 2, size)
    assert "8 texts in 3 groups" in describe_interval_method(found)


def test_equal_texts_of_a_group_count_as_one():
    # 40 groups of 5 texts that agree: the size of 40 texts, less what estimating the variance costs.
    hits = np.repeat(np.arange(40) % 4 == 0, 5)
    groups = [f"g{index // 5}" for index in range(200)]
    freedom = (t.ppf(0.975, 199) / t.ppf(0.975, 39)) ** 2
    assert compute_effective_size(hits, groups) == pytest.approx(40 * freedom * 199 / 200 * 39 / 40, rel=0.03)
    assert compute_effective_size(hits, groups) < 40


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.integers(1, 9)), min_size=6, max_size=40))
def test_the_variance_is_that_of_leaving_out_each_group(rows):
    flags, groups, weights = (np.array(column) for column in zip(*rows, strict=True))
    share, n, n_groups = np.average(flags, weights=weights), weights.sum(), len(set(groups.tolist()))
    if n_groups <= 2:
        return
    moved = [np.average(flags[groups != name], weights=weights[groups != name]) - share for name in set(groups)]
    variance = (n_groups - 1) / n_groups * sum(one**2 for one in moved)
    with_hits, with_misses = (len(set(groups[flags == hit].tolist())) for hit in (True, False))
    if min(with_hits, with_misses) <= 2 or variance < 1e-15:
        return
    t_ratio = t.ppf(0.975, n - 1) / t.ppf(0.975, n_groups - 1)
    expected = min(n, n * share * (1 - share) / (n - 1) / variance * t_ratio**2)
    assert compute_effective_size(flags, groups, weights.astype(float)) == pytest.approx(expected)


def test_hits_of_two_groups_or_fewer_count_groups():
    # One or two texts of 100 in 20 groups: the variance between groups is hardly known, as with none.
    groups = np.repeat(np.arange(20), 5)
    for hits in ((0,), (0, 5)):
        hit = np.isin(np.arange(100), hits)
        assert compute_effective_size(hit, groups) == compute_effective_size(~hit, groups) == 20
        assert estimate_grouped_rate(hit, groups).interval == clopper_pearson(20 * len(hits) / 100, 20)
    assert compute_effective_size(np.isin(np.arange(100), (0, 5, 10)), groups) > 20


def test_groups_of_equal_shares_count_as_groups():
    assert estimate_grouped_rate([1, 0] * 6, np.repeat(np.arange(3), 4)).interval == clopper_pearson(1.5, 3)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(1, 50)), min_size=1, max_size=40),
    st.booleans(),
)
def test_an_interval_has_a_width_and_holds_its_share(rows, weighted):
    flags, groups, weights = (np.array(column) for column in zip(*rows, strict=True))
    found = estimate_grouped_rate(flags / 2, groups, weights.astype(float) if weighted else None)
    if found.low is not None:
        assert 0 <= found.low <= found.value <= found.high <= 1
        assert found.low < found.high


def test_all_or_none_are_bounded_by_the_groups():
    groups = [f"g{index // 5}" for index in range(50)]
    assert estimate_grouped_rate([False] * 50, groups).interval == clopper_pearson(0, 10)
    assert estimate_grouped_rate([True] * 50, groups).interval == clopper_pearson(10, 10)


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.randoms())
def test_one_text_a_group_is_plain_clopper_pearson(hits, random):
    found = estimate_grouped_rate(hits, [str(index) for index in range(len(hits))])
    assert found.interval == clopper_pearson(sum(hits), len(hits))
    assert found.n_effective == len(hits)
    assert "one per group" in describe_interval_method(found)
    random.shuffle(hits)
    assert estimate_grouped_rate(hits, [str(index) for index in range(len(hits))]) == found


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=2, max_size=60), st.randoms())
def test_the_effective_size_is_never_above_n(rows, random):
    hits, groups = [hit for hit, _ in rows], [str(group) for _, group in rows]
    size = compute_effective_size(hits, groups)
    assert 0 <= size <= len(rows)
    assert (size == 0) == (len(set(groups)) == 1 and len(rows) > 1)
    random.shuffle(rows)
    assert compute_effective_size([hit for hit, _ in rows], [str(group) for _, group in rows]) == pytest.approx(size)


def test_texts_of_one_group_have_no_interval():
    found = estimate_grouped_rate([True, False, True], ["a"] * 3)
    assert (found.value, found.interval) == (2 / 3, Interval(None, None))
    assert describe_interval_method(found) == "no interval: all 3 texts are of one group"
    assert estimate_grouped_rate([], []).value is None
    with pytest.raises(DataError, match="one group per text"):
        estimate_grouped_rate([True], ["a", "b"])


def test_grouped_bounds_cover_where_plain_ones_do_not():
    generator = np.random.default_rng(3)
    groups = [f"g{index // 5}" for index in range(100)]
    grouped = plain = 0
    for _ in range(300):
        scores = np.sqrt(0.6) * generator.normal(size=(20, 1)) + np.sqrt(0.4) * generator.normal(size=(20, 5))
        hits = scores.ravel() > 0  # true share: one half
        found = estimate_grouped_rate(hits, groups).interval
        alone = clopper_pearson(hits.sum(), 100)
        grouped += found.low <= 0.5 <= found.high
        plain += alone.low <= 0.5 <= alone.high
    assert grouped >= 0.92 * 300
    assert plain < 0.88 * 300


@pytest.mark.parametrize(("fpr", "groups"), [(0.05, 20), (0.01, 100), (0.001, 1000), (0.3, 4), (1 / 3, 3)])
def test_a_rate_needs_its_inverse_in_groups(fpr, groups):
    assert count_groups_to_resolve(fpr) == groups


def case(n_members, n_nonmembers, size=1, seed=0):
    generator = np.random.default_rng(seed)
    labels = np.repeat([1, 0], [n_members, n_nonmembers])
    scores = np.round(generator.normal(size=len(labels)) + labels, 2)
    return scores, labels, [f"g{index // size}" for index in range(len(labels))]


def share(name, scores, labels, groups):
    return measure_share(METRICS[name], compute_roc_points(scores, labels), GroupedSides(groups, labels))


def test_tpr_at_fpr_is_the_metric_with_the_bounds_of_a_share():
    scores, labels, groups = case(40, 100)
    for name, fpr in (("tpr_at_5_fpr", 0.05), ("tpr_at_1_fpr", 0.01)):
        found = share(name, scores, labels, groups)
        assert found.value == compute_metrics(scores, labels)[name]
        assert found.interval == clopper_pearson(round(found.value * 40), 40)
        assert f"largest TPR with FPR <= {fpr:g}" in found.method
        assert "for a fixed threshold: the threshold's uncertainty is not included" in found.method
    missing = share("tpr_at_01_fpr", scores, labels, groups)
    assert (missing.value, missing.interval) == (None, Interval(None, None))
    assert missing.method == "not resolvable with 100 non-members: the smallest FPR that can be measured is 1/100"


def test_fpr_at_tpr_has_the_bounds_of_a_share_of_nonmembers():
    scores, labels, groups = case(100, 40)
    found = share("fpr_at_95_tpr", scores, labels, groups)
    assert found.value == compute_metrics(scores, labels)["fpr_at_95_tpr"]
    assert found.interval == clopper_pearson(round(found.value * 40), 40)
    assert found.method.startswith("smallest FPR with TPR >= 0.95; 95% Clopper-Pearson interval of 40 texts")
    # No non-member lies as high as a member: 0 of 20, and all of them the other way round.
    labels = np.repeat([1, 0], 20)
    groups = [str(text) for text in range(40)]
    assert share("fpr_at_95_tpr", labels, labels, groups).interval == clopper_pearson(0, 20)
    assert share("fpr_at_95_tpr", -labels, labels, groups).interval == clopper_pearson(20, 20)


@given(st.integers(0, 200), st.sampled_from([0.0, 0.5, 4.0]))
def test_a_difference_of_shares_has_a_width_and_holds_it(seed, shift):
    first, second = (
        estimate_grouped_rate(
            np.random.default_rng([seed, side]).normal(size=12) + shift * side > 0, np.arange(12) // 3
        )
        for side in (0, 1)
    )
    found = compute_difference_interval(first, second)
    assert found.low <= first.value - second.value <= found.high
    assert found.low < found.high
    turned = compute_difference_interval(second, first)
    assert (turned.low, turned.high) == (-found.high, -found.low)


def test_a_difference_of_shares_is_newcombes():
    # Newcombe 1998, table II: 56/70 less 48/80; method 10 has Wilson's intervals in it, given here.
    first, second = Rate(0.8, 0.6916, 0.8773, 70, 70, 70), Rate(0.6, 0.4904, 0.7007, 80, 80, 80)
    found = compute_difference_interval(first, second)
    assert (found.low, found.high) == (pytest.approx(0.0524, abs=1e-3), pytest.approx(0.3339, abs=1e-3))
    nothing = Rate(None, None, None, 0, 0, None)
    assert (
        compute_difference_interval(first, nothing)
        == compute_difference_interval(nothing, first)
        == Interval(None, None)
    )


@given(st.integers(0, 500), st.randoms())
@max_examples(30)
def test_order_and_monotone_changes_do_not_matter(seed, random):
    scores, labels, groups = case(30, 60, size=3, seed=seed)
    found = share("tpr_at_5_fpr", scores, labels, groups)
    order = list(range(90))
    random.shuffle(order)
    shuffled = share("tpr_at_5_fpr", scores[order], labels[order], [groups[index] for index in order])
    assert (shuffled.value, shuffled.method) == (found.value, found.method)
    assert (shuffled.interval.low, shuffled.interval.high) == pytest.approx((found.interval.low, found.interval.high))
    assert share("tpr_at_5_fpr", np.exp(scores), labels, groups) == found
