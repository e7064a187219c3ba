import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.catalogue.contracts import COMPARISONS
from audit_pipeline.evidence.evaluation import Comparison, compare_detectors
from audit_pipeline.evidence.sides import ScoreColumn
from audit_pipeline.metrics.intervals import GroupBootstrap, Interval
from audit_pipeline.metrics.roc import compute_metrics


def made(n_groups=30, size=2, seed=0, better=1.2, worse=0.4, shared=0.5):
    """Two detectors that share part of their noise; members in every second group."""
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


def compare(first, second, labels, groups, **how):
    """The one comparison of two detectors' scores of the same texts."""
    labels = np.asarray(labels)
    pair = (column(name, scores, labels, groups) for name, scores in (("first", first), ("second", second)))
    (row,) = compare_detectors(list(pair), model="m", benchmark="b", run_id="r", **how).to_pylist()
    interval = Interval(row["ci_low"], row["ci_high"])
    return Comparison(row["difference"], row["standard_error"], interval, row["p_value"], row["method"])


def twin(first, second, labels, groups, iterations, seed):
    """Every resample spelled out: groups repeated, both AUROCs counted anew."""
    names = sorted(set(groups))
    differences = []
    for counts in np.concatenate(list(GroupBootstrap(groups, labels, resamples=iterations, seed=seed).counts())):
        copies = [
            index for name, count in zip(names, counts, strict=True) for _ in range(count)
            for index, group in enumerate(groups) if group == name
        ]  # fmt: skip
        one, other = (compute_metrics(scores[copies], labels[copies])["auroc"] for scores in (first, second))
        differences.append(one - other)
    return np.array(differences)


def test_equals_the_resamples_spelled_out():
    first, second, labels, groups = made(n_groups=14)
    found = compare(first, second, labels, groups, iterations=99, seed=3)
    differences = twin(first, second, labels, groups, 99, 3)
    observed = compute_metrics(first, labels)["auroc"] - compute_metrics(second, labels)["auroc"]
    distances = np.sort(np.abs(differences - observed))
    assert found.difference == pytest.approx(observed)
    assert found.standard_error == pytest.approx(differences.std(ddof=1))
    assert found.p_value == pytest.approx(max(2**-6, (1 + (distances >= abs(observed) - 1e-9).sum()) / 100))
    width = distances[94]  # the 95th of 99
    assert (found.interval.low, found.interval.high) == pytest.approx((observed - width, observed + width))
    assert "99 bootstrap resamples of 14 groups (seed 3)" in found.method


def test_a_clear_difference_is_seen_and_none_is_not():
    first, second, labels, groups = made(n_groups=300, size=1)
    found = compare(first, second, labels, groups)
    assert found.p_value <= 0.01
    assert 0 < found.interval.low < found.difference < found.interval.high
    same = compare(first, 2 * first + 1, labels, groups)
    assert (same.difference, same.standard_error, same.p_value) == (0.0, 0.0, 1.0)
    assert same.interval == Interval(0.0, 0.0)


def test_what_detectors_share_cancels():
    alone = compare(*made(n_groups=200, size=1, shared=0.0))
    together = compare(*made(n_groups=200, size=1, shared=0.95))
    assert together.standard_error < 0.5 * alone.standard_error


@given(st.integers(0, 1000), st.randoms())
@max_examples(20)
def test_swapping_order_and_monotone_changes(seed, random):
    first, second, labels, groups = made(n_groups=16, seed=seed, better=0.9)
    found = compare(first, second, labels, groups, iterations=60)
    swapped = compare(second, first, labels, groups, iterations=60)
    assert swapped.difference == -found.difference
    assert swapped.p_value == found.p_value
    assert (-swapped.interval.high, -swapped.interval.low) == (found.interval.low, found.interval.high)
    order = list(range(len(labels)))
    random.shuffle(order)
    shuffled = compare(
        np.exp(first[order]), second[order] ** 3, labels[order], [groups[i] for i in order], iterations=60
    )
    assert shuffled == found


@given(st.integers(0, 300))
@max_examples(30)
def test_the_p_value_is_small_exactly_where_the_interval_leaves_zero_out(seed):
    first, second, labels, groups = made(n_groups=40, size=1, seed=seed, better=1.0)
    found = compare(first, second, labels, groups, iterations=199)
    # An end that is 0 but for rounding holds 0.
    holds_zero = found.interval.low <= 1e-12 and found.interval.high >= -1e-12
    assert (found.p_value <= 0.05) == (not holds_zero)


def test_few_groups_cannot_give_a_small_p_value():
    # Five groups per side, told apart by one and not at all by the other: no resample differs.
    labels = np.arange(10) % 2
    groups = [str(index) for index in range(10)]
    found = compare(labels.astype(float), np.zeros(10), labels, groups)
    assert (found.difference, found.standard_error, found.p_value) == (0.5, 0.0, 2**-4)
    assert found.interval == Interval(None, None)
    assert "no p-value below 2^(1-k) with k = 5" in found.method
    assert "no 95% interval: six are needed" in found.method
    labels = np.arange(12) % 2
    found = compare(labels.astype(float), np.zeros(12), labels, [str(index) for index in range(12)])
    assert found.p_value == 2**-5
    assert found.interval == Interval(0.5, 0.5)


def test_without_two_groups_a_side_there_is_a_difference_only():
    found = compare([3.0, 1.0, 2.0], [1.0, 2.0, 3.0], [1, 0, 0], ["a", "b", "c"])
    assert (found.difference, found.standard_error, found.p_value) == (1.0, None, None)
    assert found.interval == Interval(None, None)
    assert "no interval: all members are of one group" in found.method


def rows(*columns, **how):
    table = compare_detectors(columns, model="m", benchmark="b", run_id="r", **{"iterations": 50, **how})
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
    alone = compare(first, second, labels, groups, iterations=50)
    assert found[0]["difference"] == alone.difference
    assert (found[0]["standard_error"], found[0]["p_value"]) == (alone.standard_error, alone.p_value)
    assert (found[0]["ci_low"], found[0]["ci_high"]) == (alone.interval.low, alone.interval.high)
    assert found[0]["method"] == alone.method


def test_the_blind_control_is_the_other_wherever_it_stands():
    first, second, labels, groups = made()
    found = rows(column("blind_control", second, labels, groups), column("loss", first, labels, groups))
    assert [(row["detector"], row["other"]) for row in found] == [("loss", "blind_control")]


def test_only_texts_that_both_have_scored_count():
    first, second, labels, groups = made()
    without_some = np.arange(len(labels)) % 7 != 0
    without_others = np.arange(len(labels)) % 5 != 0
    both = without_some & without_others
    (found,) = rows(
        column("loss", first, labels, groups, without_some), column("zlib", second, labels, groups, without_others)
    )
    expected = compare(
        first[both], second[both], labels[both], [g for g, one in zip(groups, both, strict=True) if one], iterations=50
    )
    assert (found["difference"], found["p_value"]) == (expected.difference, expected.p_value)
    assert found["n_members"] + found["n_nonmembers"] == both.sum()


def test_a_pair_without_texts_of_both_classes_has_no_row():
    first, second, labels, groups = made()
    half = np.arange(len(labels)) < len(labels) // 2
    assert rows(column("loss", first, labels, groups, half), column("zlib", second, labels, groups, ~half)) == []
    members = labels == 1
    assert rows(column("loss", first, labels, groups, members), column("zlib", second, labels, groups)) == []
    assert rows() == rows(column("loss", first, labels, groups)) == []


def test_equal_detectors_are_told_apart_as_seldom_as_stated():
    generator = np.random.default_rng(17)
    labels = np.arange(60) % 2
    groups = [f"{index:02d}" for index in range(60)]
    rejected = 0
    for repeat in range(300):
        common = generator.normal(size=60)
        first, second = (common + generator.normal(size=60) + 1.0 * labels for _ in range(2))
        rejected += compare(first, second, labels, groups, iterations=199, seed=repeat).p_value <= 0.05
    assert 0.012 <= rejected / 300 <= 0.088  # 5% and three standard errors
