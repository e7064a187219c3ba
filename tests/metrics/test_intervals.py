import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.errors import DataError
from audit_pipeline.metrics import intervals
from audit_pipeline.metrics.intervals import (
    GroupBootstrap,
    Interval,
    metric_intervals,
    percentile_interval,
)
from audit_pipeline.metrics.roc import RESAMPLED, compute_metrics, rank


def drawn(groups, labels, **how):
    return np.concatenate(list(GroupBootstrap(groups, labels, **how).counts()))


def scored(n_groups, size, seed=0, shift=0.8):
    """n_groups groups of one label each, members in every second."""
    generator = np.random.default_rng(seed)
    groups = [f"g{index // size:03d}" for index in range(n_groups * size)]
    labels = (np.arange(n_groups) % 2).repeat(size)
    return generator.normal(size=n_groups * size) + shift * labels, labels, groups


def test_groups_are_drawn_within_strata_of_label_composition():
    # a, b: members; c, d, e: non-members; f, g: both
    groups = ["a", "b", "c", "d", "e", "f", "f", "g", "g", "a"]
    labels = [1, 1, 0, 0, 0, 0, 1, 0, 1, 1]
    counts = drawn(groups, labels, resamples=500)
    assert counts.shape == (500, 7)
    assert (counts[:, :2].sum(axis=1) == 2).all()
    assert (counts[:, 2:5].sum(axis=1) == 3).all()
    assert (counts[:, 5:].sum(axis=1) == 2).all()
    assert counts.std(axis=0).min() > 0.3


def test_each_group_is_drawn_once_on_average():
    counts = drawn([str(index) for index in range(40)], np.arange(40) % 2, resamples=4000)
    assert counts.mean(axis=0) == pytest.approx(np.ones(40), abs=0.08)
    # Binomial(20, 1/20) within a stratum of 20
    assert counts.var(axis=0) == pytest.approx(np.full(40, 0.95), abs=0.15)


@given(st.integers(2, 5), st.integers(0, 2), st.integers(0, 5))
@max_examples(40)
def test_a_lone_group_is_drawn_from_all_and_both_classes_stay(n_mixed, n_members, seed):
    groups = [f"x{index // 2}" for index in range(2 * n_mixed)] + [f"m{index}" for index in range(n_members)]
    labels = [index % 2 for index in range(2 * n_mixed)] + [1] * n_members
    counts = drawn(groups, labels, resamples=200, seed=seed)
    assert (counts.sum(axis=1) == n_mixed + n_members).all()
    names = sorted(set(groups))
    has_nonmember = np.array([name.startswith("x") for name in names])
    assert (counts @ has_nonmember > 0).all()
    if n_members == 1:
        assert counts[:, names.index("m0")].std() > 0  # a stratum of one would be taken once every time


def test_a_resample_equals_literally_repeated_groups():
    values, labels, groups = scored(12, 5)
    values = np.round(values, 1)  # ties
    bootstrap = GroupBootstrap(groups, labels, resamples=30, seed=3)
    resampled = bootstrap.metrics([rank(values, labels)])[0]
    names = sorted(set(groups))
    for counts, found in zip(drawn(groups, labels, resamples=30, seed=3), resampled, strict=True):
        copies = [
            index for name, count in zip(names, counts, strict=True) for _ in range(count)
            for index, group in enumerate(groups) if group == name
        ]  # fmt: skip
        expected = compute_metrics(values[copies], labels[copies])
        assert list(found) == pytest.approx([expected[name] for name in RESAMPLED], rel=1e-12)


def test_the_interval_is_the_percentiles_of_the_resamples():
    values, labels, groups = scored(30, 3)
    resampled = GroupBootstrap(groups, labels, resamples=400, seed=1).metrics([rank(values, labels)])[0]
    found = metric_intervals(values, labels, groups, resamples=400, seed=1)
    ordered = np.sort(resampled[:, RESAMPLED.index("fpr_at_95_tpr")])
    assert ordered[9] <= found["fpr_at_95_tpr"].low <= ordered[10]
    assert ordered[389] <= found["fpr_at_95_tpr"].high <= ordered[390]
    assert percentile_interval(np.arange(41.0)) == Interval(1.0, 39.0)
    assert percentile_interval([]) == Interval(None, None)


def test_the_interval_of_the_auroc_is_normal_on_the_logit_scale():
    values, labels, groups = scored(30, 3)
    bootstrap = GroupBootstrap(groups, labels, resamples=400, seed=1)
    aurocs = bootstrap.metrics([rank(values, labels)])[0][:, 0]
    found = metric_intervals(values, labels, groups, resamples=400, seed=1)["auroc"]
    auroc = compute_metrics(values, labels)["auroc"]
    odds = auroc / (1 - auroc)
    factor = np.exp(1.959964 * np.std(np.log(aurocs / (1 - aurocs)), ddof=1))
    assert found.low == pytest.approx(odds / factor / (1 + odds / factor), abs=1e-6)
    assert found.high == pytest.approx(odds * factor / (1 + odds * factor), abs=1e-6)
    assert bootstrap.describe_auroc_method(auroc) == (
        "95% interval: logit of the AUROC ± 1.96 of its standard deviations over 400 bootstrap resamples of 30 groups "
        "(seed 1)"
    )


def test_resamples_of_zero_or_one_are_clipped_by_half_a_pair():
    bootstrap = GroupBootstrap([str(index) for index in range(9)], [1] * 4 + [0] * 5, resamples=4)
    found = bootstrap.auroc_interval(0.9, [0.9, 1.0, 1.0, 0.0])
    # 20 pairs: 1 is taken for 39/40, 0 for 1/40; the logits' standard deviation with three degrees of freedom
    logits = np.log([9.0, 39.0, 39.0, 1 / 39])
    odds = 9 * np.exp(-1.959964 * logits.std(ddof=1))
    assert found.low == pytest.approx(odds / (1 + odds), rel=1e-5)
    assert 0.9 < found.high < 1


@pytest.mark.parametrize(("n_members", "n_nonmembers", "pairs"), [(3, 8, 3), (8, 3, 3), (20, 20, 20)])
def test_complete_separation_has_the_exact_bound_of_independent_pairs(n_members, n_nonmembers, pairs):
    labels = [1] * n_members + [0] * n_nonmembers
    groups = [str(index) for index in range(len(labels))]
    bound = 0.025 ** (1 / pairs)  # all of that many pairs agree by chance this rarely
    above = metric_intervals(np.array(labels, dtype=float), labels, groups, resamples=20)["auroc"]
    below = metric_intervals(-np.array(labels, dtype=float), labels, groups, resamples=20)["auroc"]
    assert (above.low, above.high) == (pytest.approx(bound), 1.0)
    assert (below.low, below.high) == (0.0, pytest.approx(1 - bound))
    bootstrap = GroupBootstrap(groups, labels)
    assert f"exact bound of {pairs} independent pairs" in bootstrap.describe_auroc_method(1.0)
    assert (
        bootstrap.describe_auroc_method(1.0)
        == bootstrap.describe_auroc_method(0.0)
        != bootstrap.describe_auroc_method(0.999)
    )


def most_pairs(groups, labels):
    """Disjoint pairs of groups, a member from one and a non-member from the other, by trying all."""
    inside = sorted({group for group, label in zip(groups, labels, strict=True) if label == 1})
    outside = {group for group, label in zip(groups, labels, strict=True) if label == 0}

    def most(free, members):
        if not members:
            return 0
        first, *rest = members
        taken = [1 + most(free - {first, other}, rest) for other in free & outside if first in free and other != first]
        return max([most(free, rest), *taken])

    return most(frozenset(groups), inside)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1)), min_size=1, max_size=10))
@max_examples(60)
def test_independent_pairs_share_no_group(rows):
    groups, labels = [str(group) for group, _ in rows], [label for _, label in rows]
    bootstrap = GroupBootstrap(groups, labels)
    if bootstrap.problem is None:
        assert bootstrap.independent_pairs == most_pairs(groups, labels)


@given(st.integers(0, 1000))
@max_examples(25)
def test_the_interval_holds_the_auroc_mirrors_and_ignores_monotone_changes(seed):
    generator = np.random.default_rng(seed)
    values, labels, groups = scored(int(generator.integers(4, 16)), 2, seed=seed, shift=generator.uniform(-3, 3))
    found = metric_intervals(values, labels, groups, resamples=40)["auroc"]
    assert 0 <= found.low <= compute_metrics(values, labels)["auroc"] <= found.high <= 1
    assert metric_intervals(np.exp(values), labels, groups, resamples=40)["auroc"] == found
    mirrored = metric_intervals(-values, labels, groups, resamples=40)["auroc"]
    assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx((found.low, found.high), abs=1e-9)


@given(st.randoms())
@max_examples(20)
def test_row_order_does_not_matter(random):
    values, labels, groups = scored(10, 4)
    order = list(range(len(values)))
    random.shuffle(order)
    shuffled = metric_intervals(values[order], labels[order], [groups[index] for index in order], resamples=100)
    assert shuffled == metric_intervals(values, labels, groups, resamples=100)


def test_blocks_do_not_show(monkeypatch):
    values, labels, groups = scored(14, 3)
    expected = metric_intervals(values, labels, groups, resamples=150)
    monkeypatch.setattr(intervals, "_BLOCK_ELEMENTS", 100)
    assert metric_intervals(values, labels, groups, resamples=150) == expected


def test_detectors_share_their_resamples():
    values, labels, groups = scored(20, 2)
    ranking = rank(values, labels)
    bootstrap = GroupBootstrap(groups, labels, resamples=50)
    first, second = bootstrap.metrics([ranking, rank(3 * values + 1, labels)])
    assert (first == second).all()
    assert (first == bootstrap.metrics([ranking])[0]).all()
    assert (first != GroupBootstrap(groups, labels, resamples=50, seed=1).metrics([ranking])[0]).any()


def test_fewer_texts_of_the_same_groups_are_drawn_alike():
    _, labels, groups = scored(20, 2)
    every_second = slice(None, None, 2)
    assert (
        drawn(groups, labels, resamples=20) == drawn(groups[every_second], labels[every_second], resamples=20)
    ).all()


@pytest.mark.parametrize(
    ("groups", "labels", "reason"),
    [
        (["a", "b", "c"], [1, 0, 0], "no interval: all members are of one group"),
        (["a", "b", "c", "c"], [1, 1, 0, 0], "no interval: all non-members are of one group"),
        (["a", "a"], [1, 0], "no interval: all members are of one group"),
        (["a", "b"], [1, 1], "not defined: there are no non-members with a score"),
    ],
)
def test_no_interval_without_two_groups_on_each_side(groups, labels, reason):
    bootstrap = GroupBootstrap(groups, labels)
    assert bootstrap.problem == reason
    assert list(bootstrap.counts()) == []
    assert bootstrap.auroc_interval(0.7, []) == Interval(None, None)
    assert bootstrap.describe_auroc_method(0.7) == bootstrap.percentile_method == reason


def test_a_column_without_interval_still_gets_an_answer():
    found = metric_intervals([1.0, 2.0, 3.0], [0, 1, 0], ["a", "b", "c"])
    assert found == dict.fromkeys(RESAMPLED, Interval(None, None))


def test_bad_input_is_refused():
    with pytest.raises(DataError, match="one group for each label"):
        GroupBootstrap(["a"], [0, 1])
    with pytest.raises(DataError, match="at least one resample"):
        GroupBootstrap(["a", "b"], [0, 1], resamples=0)


def coverage(n_groups, size, within, by_group, repeats=150):
    """How often the interval holds the true AUROC, Phi(d / sqrt 2) at d = 0: one half."""
    generator = np.random.default_rng(7)
    labels = (np.arange(n_groups) % 2).repeat(size)
    group = np.arange(n_groups).repeat(size)
    hits = 0
    for repeat in range(repeats):
        effect = np.sqrt(within) * generator.normal(size=n_groups)[group]
        values = effect + np.sqrt(1 - within) * generator.normal(size=n_groups * size)
        names = [f"{name:03d}" for name in (group if by_group else np.arange(len(group)))]
        found = metric_intervals(values, labels, names, resamples=200, seed=repeat)["auroc"]
        hits += found.low <= 0.5 <= found.high
    return hits / repeats


def test_coverage_is_near_95_percent_and_needs_the_groups():
    assert 0.88 <= coverage(60, 1, 0.0, by_group=True) <= 0.99
    assert 0.88 <= coverage(40, 6, 0.7, by_group=True) <= 0.99
    assert coverage(40, 6, 0.7, by_group=False) < 0.75


def test_more_groups_make_a_narrower_interval():
    widths = []
    for n_groups in (20, 200):
        found = metric_intervals(*scored(n_groups, 1, shift=0.5), resamples=300)["auroc"]
        widths.append(found.high - found.low)
    assert widths[1] < 0.5 * widths[0]
