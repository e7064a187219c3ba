"""Intervals by group against their definition. Longer simulations are in bench/bench_coverage.py."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples
from scipy.stats import t

from audit_pipeline.statistics.intervals import (
    NO_INTERVAL,
    NOTHING_VARIES,
    GroupedSides,
    Interval,
    measure_auroc,
    measure_auroc_of_scores,
)
from audit_pipeline.statistics.roc import ALL_EQUAL, compute_metrics, compute_roc_points


def kernel(scores, labels):
    """Return for each pair of a member and a non-member 1 if the member scores higher, and 0.5 for ties."""
    members, others = scores[labels == 1], scores[labels == 0]
    return (members[:, None] > others) + (members[:, None] == others) / 2


def scored(n_groups, size, seed=0, shift=0.8):
    """Return scores, labels and groups. Every second group has members."""
    generator = np.random.default_rng(seed)
    groups = [f"g{index // size:03d}" for index in range(n_groups * size)]
    labels = (np.arange(n_groups) % 2).repeat(size)
    return generator.normal(size=n_groups * size) + shift * labels, labels, groups


@st.composite
def cases(draw):
    """Draw scores with ties, labels and groups, with at least two groups per side."""
    rows = draw(
        st.lists(st.tuples(st.integers(-4, 4), st.integers(0, 1), st.sampled_from("abcdef")), min_size=4, max_size=40)
    )
    rows += [(0, 1, "a"), (1, 0, "a"), (2, 1, "b"), (0, 0, "c")]
    scores, labels, groups = zip(*rows, strict=True)
    return np.array(scores, dtype=float), np.array(labels), list(groups)


@given(cases())
def test_the_interval_is_what_counting_every_pair_gives(case):
    """The AUROC, its standard error and degrees of freedom as docs/intervals.md defines them, group by group."""
    scores, labels, groups = case
    names = np.array(groups)
    pairs = kernel(scores, labels)
    auroc, members, others = pairs.mean(), names[labels == 1], names[labels == 0]
    parts = {}
    for name in sorted(set(groups)):
        own, other = members == name, others == name
        parts[name] = (pairs.mean(axis=1)[own] - auroc).sum() / max(1, (~own).sum())
        parts[name] += (pairs.mean(axis=0)[other] - auroc).sum() / max(1, (~other).sum())
    own, other = (1 / len(set(side.tolist())) for side in (members, others))
    kinds = {
        (True, False): (own, own**2),
        (False, True): (other, other**2),
        (True, True): (max(own, other), own**2 + other**2),
    }
    observed, alike, freedoms = [], [], []
    for kind, (lost, of_one) in kinds.items():
        chosen = [parts[name] for name in parts if (name in members, name in others) == kind]
        if chosen:
            observed.append((1 - lost) * sum(part**2 for part in chosen))
            alike.append(len(chosen) * of_one)
            freedoms.append(len(chosen) * (1 - lost))
    # Satterthwaite's degrees of freedom, for the observed variances and for equal variances.
    by_variances = [
        sum(variances) ** 2 / sum(one**2 / freedom for one, freedom in zip(variances, freedoms, strict=True))
        for variances in (observed, alike)
    ]
    error, freedom = math.sqrt(sum(observed)), max(1, min(by_variances))
    found = measure_auroc_of_scores(scores, labels, groups)
    assert found.value == pytest.approx(auroc)
    sides = GroupedSides(groups, labels)
    n_member_groups, n_other_groups = sides.groups_by_side
    if min(auroc, 1 - auroc) * n_member_groups * n_other_groups <= 0.5:
        return
    scatter = sides.compute_scatter(found.parts)
    if error < 1e-9:
        assert scatter is None
        assert (found.interval, found.method) == (NO_INTERVAL, NOTHING_VARIES)
        return
    assert (scatter.standard_error, scatter.freedom) == (pytest.approx(error), pytest.approx(freedom))
    reach = t.ppf(0.975, freedom) * error / (auroc * (1 - auroc))
    for end, sign in ((found.interval.low, -1), (found.interval.high, 1)):
        odds = auroc / (1 - auroc) * math.exp(min(sign * reach, 700))
        assert end == pytest.approx(odds / (1 + odds), abs=1e-9)


@given(st.lists(st.tuples(st.integers(-4, 4), st.integers(0, 1)), min_size=4, max_size=40))
def test_with_one_text_a_group_the_variance_is_delongs(rows):
    rows += [(0, 1), (1, 0), (3, 1), (2, 0)]
    scores, labels = (np.array(column) for column in zip(*rows, strict=True))
    pairs = kernel(scores, labels)
    above, below = pairs.mean(axis=1), pairs.mean(axis=0)
    delong = above.var(ddof=1) / len(above) + below.var(ddof=1) / len(below)
    sides = GroupedSides([str(text) for text in range(len(rows))], labels)
    scatter = sides.compute_scatter(measure_auroc(compute_roc_points(scores, labels), sides).parts)
    assert (0 if scatter is None else scatter.standard_error**2) == pytest.approx(delong, abs=1e-15)


def test_a_part_is_what_leaving_the_group_out_changes():
    scores, labels, groups = scored(12, 5, seed=2)
    found = measure_auroc_of_scores(scores, labels, groups)
    for place, name in enumerate(sorted(set(groups))):
        kept = np.array(groups) != name
        without = compute_metrics(scores[kept], labels[kept])["auroc"]
        assert found.parts[place] == pytest.approx(found.value - without, abs=1e-12)


def test_degrees_of_freedom_by_hand():
    both = GroupedSides(["a", "a", "b", "b", "c", "c"], [0, 1] * 3)
    assert both.compute_scatter(np.array([3.0, -1.0, -2.0])).freedom == 2
    assert both.compute_scatter(np.array([3.0, -1.0, -2.0])).standard_error == pytest.approx(math.sqrt(2 / 3 * 14))
    # Three groups a side: both sides scatter alike, so that their degrees of freedom add up.
    one = GroupedSides(["a", "b", "c", "d", "e", "f"], [1, 1, 1, 0, 0, 0])
    assert one.compute_scatter(np.array([1.0, 0, -1, 1, 0, -1])).freedom == pytest.approx(4)
    assert one.compute_scatter(np.array([1.0, 0, -1, 0, 0, 0])).freedom == pytest.approx(2)
    # Two against ten: never more than if all scattered alike, (1/2 + 1/10)^2 / (1/4 / 1 + 1/100 / 9).
    few = GroupedSides([str(group) for group in range(12)], [1, 1] + [0] * 10)
    calm = few.compute_scatter(np.array([0.01, -0.01, *np.linspace(-1, 1, 10)]))
    assert calm.freedom == pytest.approx(0.36 / (0.25 + 0.01 / 9))


@pytest.mark.parametrize(("n_members", "n_nonmembers", "pairs"), [(3, 8, 3), (8, 3, 3), (20, 20, 20)])
def test_complete_separation_has_the_exact_bound_of_independent_pairs(n_members, n_nonmembers, pairs):
    labels = np.repeat([1, 0], [n_members, n_nonmembers])
    groups = [str(index) for index in range(len(labels))]
    bound = 0.025 ** (1 / pairs)  # all of that many pairs agree by chance this rarely
    above, below = (measure_auroc_of_scores(sign * labels, labels, groups) for sign in (1.0, -1.0))
    assert above.interval == Interval(pytest.approx(bound), 1.0)
    assert below.interval == Interval(0.0, pytest.approx(1 - bound))
    assert f"exact bound of {pairs} independent pairs" in above.method


def test_less_than_half_a_pair_of_groups_out_of_order_counts_as_none():
    # Five groups of ten texts a side; of 2,500 pairs of texts 50 are two of 25 pairs of groups' worth.
    labels, groups = np.repeat([1, 0], 50), [str(index // 10) for index in range(100)]
    for out_of_order, extreme in ((50, True), (51, False)):
        scores = np.repeat([100.0, 0.0], 50)
        scores[50] = 200.0  # above all 50 members
        if not extreme:
            scores[0], scores[51] = 50.0, 60.0
        found = measure_auroc_of_scores(scores, labels, groups)
        assert found.value == pytest.approx(1 - out_of_order / 2500)
        assert (found.interval == Interval(pytest.approx(0.025 ** (1 / 5)), 1.0)) == extreme


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1)), min_size=1, max_size=10))
@max_examples(60)
def test_independent_pairs_share_no_group(rows):
    groups, labels = [f"g{group}" for group, _ in rows], [label for _, label in rows]
    sides = GroupedSides(groups, labels)
    outside = {group for group, label in rows if label == 0}

    def count_pairs(free, members):
        """Try all disjoint pairs of groups, a member from one group and a non-member from the other."""
        if not members:
            return 0
        first, *rest = members
        counts = [
            1 + count_pairs(free - {first, other}, rest) for other in free & outside if first in free and other != first
        ]
        return max([count_pairs(free, rest), *counts])

    if sides.problem is None:
        members = sorted({group for group, label in rows if label == 1})
        assert sides.independent_pairs == count_pairs(frozenset(group for group, _ in rows), members)


@given(cases())
def test_an_interval_has_a_width_holds_the_auroc_mirrors_and_ignores_monotone_changes(case):
    scores, labels, groups = case
    found = measure_auroc_of_scores(scores, labels, groups)
    if found.interval == NO_INTERVAL:
        assert found.method in (NOTHING_VARIES, ALL_EQUAL)
        return
    assert 0 <= found.interval.low <= found.value <= found.interval.high <= 1
    assert found.interval.low < found.interval.high
    assert measure_auroc_of_scores(np.exp(scores), labels, groups).interval == found.interval
    mirrored = measure_auroc_of_scores(-scores, labels, groups).interval
    assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx((found.interval.low, found.interval.high), abs=1e-9)


@given(st.randoms())
@max_examples(20)
def test_neither_row_order_nor_names_matter(random):
    values, labels, groups = scored(10, 4)
    order = list(range(len(values)))
    random.shuffle(order)
    expected = measure_auroc_of_scores(values, labels, groups).interval
    assert (
        measure_auroc_of_scores(values[order], labels[order], [groups[index] for index in order]).interval == expected
    )
    numbers = np.array([int(group[1:]) for group in groups])
    assert measure_auroc_of_scores(values, labels, numbers).interval == expected


@pytest.mark.parametrize(
    ("groups", "labels", "reason"),
    [
        (["a", "b", "c"], [1, 0, 0], "no interval: all members are of one group"),
        (["a", "b", "c", "c"], [1, 1, 0, 0], "no interval: all non-members are of one group"),
        (["a", "a"], [1, 0], "no interval: all members are of one group"),
    ],
)
def test_no_interval_without_two_groups_on_each_side(groups, labels, reason):
    found = measure_auroc_of_scores(np.arange(len(labels), dtype=float), labels, groups)
    assert (found.interval, found.method) == (NO_INTERVAL, reason)


def test_no_interval_if_nothing_differs():
    labels = [1, 0] * 6
    assert measure_auroc_of_scores([1.0] * 12, labels, [str(text) for text in range(12)]).method == ALL_EQUAL
    # In every group the member lies above the one non-member and below the other.
    found = measure_auroc_of_scores([2.0, 1.0, 3.0] * 4, [1, 0, 0] * 4, np.repeat(np.arange(4), 3))
    assert (found.value, found.interval, found.method) == (0.5, NO_INTERVAL, NOTHING_VARIES)


@pytest.mark.parametrize("sides", [2, 5])
@pytest.mark.parametrize("effect", [0.0, 0.5])
@pytest.mark.parametrize("auroc", [0.5, 0.8])
def test_intervals_of_few_groups_contain_the_true_value(sides, effect, auroc):
    """The interval holds the true AUROC of normal scores; ``effect`` of their variance belongs to the group."""
    generator = np.random.default_rng(7)
    groups, labels = np.arange(2 * sides).repeat(8), np.repeat([1, 0], sides * 8)
    shift = math.sqrt(2) * {0.5: 0.0, 0.8: 0.8416212}[auroc]
    held = 0
    for _ in range(150):
        noise = math.sqrt(1 - effect) * generator.normal(size=len(groups))
        noise += math.sqrt(effect) * generator.normal(size=2 * sides)[groups]
        found = measure_auroc_of_scores(noise + shift * labels, labels, groups).interval
        held += found.low is None or found.low <= auroc <= found.high
    assert held / 150 >= 0.9
