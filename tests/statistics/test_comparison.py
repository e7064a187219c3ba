import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples
from scipy.stats import t

from audit_pipeline.statistics.evaluation import Comparison, compare_detectors
from audit_pipeline.statistics.intervals import Interval
from audit_pipeline.statistics.score_columns import ScoreColumn
from audit_pipeline.tables import COMPARISONS, Pair


def made(n_groups=30, size=2, seed=0, better=1.2, worse=0.4, shared=0.5):
    """Return scores of two detectors that share part of their noise. Every second group has members."""
    generator = np.random.default_rng(seed)
    n = n_groups * size
    labels = (np.arange(n_groups) % 2).repeat(size)
    common = generator.normal(size=n)
    first, second = (
        np.sqrt(shared) * common + np.sqrt(1 - shared) * generator.normal(size=n) + d * labels for d in (better, worse)
    )
    return first, second, labels, [f"g{index // size:03d}" for index in range(n)]


def column(detector, scores, labels, groups, scored=None, *, parameters="{}", is_default=True):
    kept = np.ones(len(labels), dtype=bool) if scored is None else scored
    own = [group for group, one in zip(groups, kept, strict=True) if one]
    return ScoreColumn(
        detector, parameters, np.asarray(scores)[kept], labels[kept], own, kept, int((~kept).sum()), is_default
    )


def compare(first, second, labels, groups):
    """Return the comparison of two detectors' scores of the same texts."""
    labels = np.asarray(labels)
    pair = (column(name, scores, labels, groups) for name, scores in (("first", first), ("second", second)))
    (row,) = compare_detectors(list(pair), Pair("b", "m"), "r").to_pylist()
    interval = Interval(row["ci_low"], row["ci_high"])
    return Comparison(row["difference"], interval, row["method"], row["standard_error"], row["p_value"])


def test_equals_the_definition_spelled_out():
    """Groups have texts of one side: every pair of texts is counted, and every group is left out once."""
    first, second, labels, groups = made(n_groups=14)
    found = compare(first, second, labels, groups)
    names_of_texts = np.array(groups)

    def difference(chosen):
        members, others = ((labels == side) & chosen for side in (1, 0))
        won = [
            (scores[members][:, None] > scores[others]) + (scores[members][:, None] == scores[others]) / 2
            for scores in (first, second)
        ]
        return float((won[0] - won[1]).mean())

    observed = difference(np.ones(len(labels), dtype=bool))
    variances, freedoms = [], []
    for side in (1, 0):
        names = sorted(set(names_of_texts[labels == side].tolist()))
        moved = [difference(names_of_texts != name) - observed for name in names]
        variances.append((len(names) - 1) / len(names) * sum(one**2 for one in moved))
        freedoms.append(len(names) - 1)
    error = math.sqrt(sum(variances))
    freedom = sum(variances) ** 2 / sum(v**2 / f for v, f in zip(variances, freedoms, strict=True))
    assert found.value == pytest.approx(observed)
    assert found.standard_error == pytest.approx(error)
    assert found.p_value == pytest.approx(2 * t.sf(abs(observed) / error, freedom))
    reach = t.ppf(0.975, freedom) * error
    assert (found.interval.low, found.interval.high) == pytest.approx((observed - reach, observed + reach))
    assert "standard error over 14 groups" in found.method


def test_with_one_text_a_group_it_is_delongs_test():
    first, second, labels, groups = made(n_groups=60, size=1)
    found = compare(first, second, labels, groups)
    parts = []
    for scores in (first, second):
        won = (scores[labels == 1][:, None] > scores[labels == 0]).astype(float)
        parts.append((won.mean(axis=1), won.mean(axis=0)))
    variance = sum((one - other).var(ddof=1) / 30 for one, other in zip(*parts, strict=True))
    assert found.standard_error == pytest.approx(math.sqrt(variance))


def test_shared_noise_of_detectors_cancels():
    alone = compare(*made(n_groups=200, size=1, shared=0.0))
    together = compare(*made(n_groups=200, size=1, shared=0.95))
    assert together.standard_error < 0.5 * alone.standard_error


@given(st.integers(0, 1000), st.randoms())
@max_examples(20)
def test_swapping_order_and_monotone_changes(seed, random):
    first, second, labels, groups = made(n_groups=16, seed=seed, better=0.9)
    found = compare(first, second, labels, groups)
    swapped = compare(second, first, labels, groups)
    assert swapped.value == -found.value
    assert swapped.p_value == found.p_value
    assert (-swapped.interval.high, -swapped.interval.low) == (found.interval.low, found.interval.high)
    order = list(range(len(labels)))
    random.shuffle(order)
    shuffled = compare(np.exp(first[order]), second[order] ** 3, labels[order], [groups[i] for i in order])
    assert shuffled == found


@given(st.integers(0, 300))
@max_examples(30)
def test_the_p_value_is_small_exactly_if_the_interval_excludes_zero(seed):
    first, second, labels, groups = made(n_groups=40, size=1, seed=seed, better=1.0)
    found = compare(first, second, labels, groups)
    # An end that is 0 but for rounding holds 0.
    holds_zero = found.interval.low <= 1e-12 and found.interval.high >= -1e-12
    assert (found.p_value <= 0.05) == (not holds_zero)


def test_a_difference_of_few_groups_holds_its_level():
    """Detectors are equal, with two or five groups per side. Texts of a group share half of their variance."""
    generator = np.random.default_rng(5)
    for n_groups in (4, 10):
        labels, groups = (np.arange(n_groups) % 2).repeat(8), [str(text // 8) for text in range(8 * n_groups)]
        found = []
        for _ in range(200):
            noise = [generator.normal(size=n_groups).repeat(8) + generator.normal(size=8 * n_groups) for _ in range(3)]
            found.append(compare(noise[0] + noise[1] + labels, noise[0] + noise[2] + labels, labels, groups))
        rejected = sum(one.p_value is not None and one.p_value <= 0.05 for one in found)
        assert rejected / 200 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)


def test_without_two_groups_per_side_there_is_no_interval():
    found = compare([3.0, 1.0, 2.0], [1.0, 2.0, 3.0], [1, 0, 0], ["a", "b", "c"])
    assert (found.value, found.standard_error, found.p_value) == (1.0, None, None)
    assert found.interval == Interval(None, None)
    assert "no interval: all members are of one group" in found.method


def rows(*columns):
    table = compare_detectors(columns, Pair("b", "m"), "r")
    assert table.schema.equals(COMPARISONS.schema)
    return table.to_pylist()


def test_every_pair_of_defaults_and_each_against_the_blind_control():
    first, second, labels, groups = made()
    found = rows(
        column("loss", first, labels, groups),
        column("min_k", second, labels, groups, parameters='{"k":0.2}'),
        column("min_k", first, labels, groups, parameters='{"k":0.5}', is_default=False),
        column("zlib", first + second, labels, groups),
        column("blind_control", -first, labels, groups),
    )
    assert [(row["detector"], row["other"]) for row in found] == [
        ("loss", "min_k"),
        ("loss", "zlib"),
        ("loss", "blind_control"),
        ("min_k", "zlib"),
        ("min_k", "blind_control"),
        ("zlib", "blind_control"),
    ]
    assert found[0]["other_parameters"] == found[3]["parameters"] == '{"k":0.2}'
    for row in found:
        assert (row["n_members"], row["n_nonmembers"], row["n_groups"]) == (30, 30, 30)
        assert (row["model"], row["benchmark"], row["run_id"]) == ("m", "b", "r")
        assert ("too narrow" in row["method"]) == (row["other"] == "blind_control")
    alone = compare(first, second, labels, groups)
    assert found[0]["difference"] == alone.value
    assert (found[0]["standard_error"], found[0]["p_value"]) == (alone.standard_error, alone.p_value)
    assert (found[0]["ci_low"], found[0]["ci_high"]) == (alone.interval.low, alone.interval.high)
    assert found[0]["method"] == alone.method


def test_only_texts_that_both_have_scored_count():
    first, second, labels, groups = made()
    without_some = np.arange(len(labels)) % 7 != 0
    without_others = np.arange(len(labels)) % 5 != 0
    both = without_some & without_others
    (found,) = rows(
        column("loss", first, labels, groups, without_some), column("zlib", second, labels, groups, without_others)
    )
    expected = compare(first[both], second[both], labels[both], [g for g, one in zip(groups, both, strict=True) if one])
    assert (found["difference"], found["p_value"]) == (expected.value, expected.p_value)
    assert found["n_members"] + found["n_nonmembers"] == both.sum()


def test_a_pair_without_texts_of_both_classes_has_no_row():
    first, second, labels, groups = made()
    half = np.arange(len(labels)) < len(labels) // 2
    assert rows(column("loss", first, labels, groups, half), column("zlib", second, labels, groups, ~half)) == []
    members = labels == 1
    assert rows(column("loss", first, labels, groups, members), column("zlib", second, labels, groups)) == []
    assert rows() == rows(column("loss", first, labels, groups)) == []
