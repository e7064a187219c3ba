from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples
from scipy.stats import false_discovery_control
from scored_texts import build_scored_texts

from audit_pipeline.errors import DataError
from audit_pipeline.statistics.conformal import (
    choose_texts_per_group,
    compute_conformal_p_values,
    compute_joint_q_values,
    compute_q_values,
    run_group_tests,
)


def texts(groups, scores=None, labels=None, prefix="e"):
    scores = np.arange(len(groups)) if scores is None else scores
    return build_scored_texts(scores, labels, groups, prefix=prefix)


def of_sizes(sizes, name, generator):
    groups = [f"{name}{index:03d}" for index, size in enumerate(sizes) for _ in range(size)]
    return texts(groups, generator.normal(size=len(groups)), prefix=name)


def test_p_values_by_hand_with_ties_against_significance():
    assert compute_conformal_p_values([0, 1, 2, 3, 4], [1, 2, 2, 3]).tolist() == [1, 1, 0.8, 0.4, 0.2]
    assert compute_conformal_p_values([5.0], []).tolist() == [1.0]
    assert len(compute_conformal_p_values([], [1.0])) == 0
    for wrong in (([np.nan], [1.0]), ([1.0], [np.nan])):
        with pytest.raises(DataError, match="not a number"):
            compute_conformal_p_values(*wrong)


@given(st.lists(st.integers(-4, 4), max_size=12), st.lists(st.integers(-4, 4), max_size=12))
def test_p_values_against_counting(audited, known):
    found = compute_conformal_p_values(audited, known)
    assert found.tolist() == [(1 + sum(one >= value for one in known)) / (len(known) + 1) for value in audited]
    transformed = compute_conformal_p_values(np.exp(np.array(audited, float)), np.exp(np.array(known, float)))
    assert transformed.tolist() == found.tolist()


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ([7], 7),
        ([1, 5, 9], 1),  # fewer than 19 groups: all are kept
        ([1, *([4] * 19)], 4),  # 19 of 20 have 4; 16 would have been enough
        ([*([2] * 5), *([6] * 15)], 2),  # of 20 groups 15 have 6, too few
        ([*range(1, 101)], 21),  # 80 of 100 have at least 21
    ],
)
def test_how_many_texts_are_compared(sizes, wanted):
    assert choose_texts_per_group(sizes) == wanted


def test_no_groups_nothing_compared():
    with pytest.raises(DataError, match="no calibration groups"):
        choose_texts_per_group([])
    for audited, known, reason in ((["a"], [], "calibration non-members"), ([], ["k"], "audited texts")):
        found = run_group_tests(texts(audited), texts(known))
        assert len(found) == 0
        assert found.reason == f"there are no {reason}"
    assert run_group_tests(texts(["a"]), texts(["k"], labels=[1])).reason == "there are no calibration non-members"


def test_groups_of_unequal_size_against_a_brute_force_twin():
    generator = np.random.default_rng(3)
    known = of_sizes([*([3] * 2), *([5] * 12), *([8] * 16)], "k", generator)
    audited = of_sizes([1, 2, 4, 5, 6, 20], "a", generator)
    found = run_group_tests(audited, known)
    assert found.n_texts.tolist() == [1, 2, 4, 5, 6, 20]
    assert found.n_compared.tolist() == [1, 2, 4, 5, 5, 5]  # 28 of 30 groups have 5
    assert found.n_calibration_groups.tolist() == [30, 30, 28, 28, 28, 28]
    assert found.reason is None

    def mean_of(side, group, count):
        rows = [row for row in range(len(side)) if side.groups[row] == group]
        rows.sort(key=lambda row: side.keys[row])
        return sum(Fraction(float(side.scores[row])) for row in rows[:count]) / count if len(rows) >= count else None

    for index, group in enumerate(found.groups):
        count = int(found.n_compared[index])
        statistic = mean_of(audited, group, count)
        against = [mean_of(known, one, count) for one in sorted(set(known.groups))]
        against = [one for one in against if one is not None]
        assert found.statistic[index] == pytest.approx(float(statistic))
        assert found.p_value[index] == (1 + sum(one >= statistic for one in against)) / (len(against) + 1)


def test_calibration_members_are_no_comparison():
    known = texts([f"k{index}" for index in range(10)], labels=[0] * 5 + [1] * 5)
    found = run_group_tests(texts(["a"], [4.5]), known)
    assert (found.n_calibration_groups.tolist(), found.p_value.tolist()) == ([5], [1 / 6])


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9), st.randoms(use_true_random=False))
@max_examples(60)
def test_groups_of_the_same_scores_are_tied_whatever_their_order(values, random):
    shuffled = random.sample(values, len(values))
    known = texts(["k"] * len(values), shuffled, prefix="k")
    audited = texts(["a"] * len(values) + ["b"], [*values, 2e6])
    assert run_group_tests(audited, known).p_value.tolist() == [1.0, 0.5]


def test_means_that_are_equal_but_for_rounding_are_tied():
    """As float64, 0.1 + 0.7 is less than 0.3 + 0.5."""
    assert 0.1 + 0.7 != 0.3 + 0.5
    known = texts([f"k{index}" for index in range(19) for _ in range(2)], [0.1, 0.7] * 19, prefix="k")
    assert run_group_tests(texts(["a", "a"], [0.3, 0.5]), known).p_value.tolist() == [1.0]
    # A difference that is more than rounding counts.
    assert run_group_tests(texts(["a", "a"], [0.3, 0.5 + 1e-12]), known).p_value.tolist() == [1 / 20]


@given(st.permutations(range(30)))
@max_examples(20)
def test_the_order_of_rows_is_irrelevant(order):
    generator = np.random.default_rng(9)
    known, audited = of_sizes([3] * 20, "k", generator), of_sizes([2, 4, 4, 5, 7, 8], "a", generator)
    first, second = run_group_tests(audited, known), run_group_tests(audited.take(np.array(order)), known)
    assert first.p_value.tolist() == second.p_value.tolist()
    assert first.statistic.tolist() == second.statistic.tolist()


def test_p_values_of_exchangeable_groups_are_at_least_uniform():
    generator = np.random.default_rng(20240603)
    sizes = [1, 2, 3, 5, 5, 8, 13, 20]
    p_values = []
    for _ in range(150):
        both = []
        for name, n in (("k", 39), ("a", 8)):
            chosen = generator.permutation(sizes) if name == "a" else generator.choice(sizes, n)
            groups = [f"{name}{index:02d}" for index, size in enumerate(chosen) for _ in range(size)]
            effects = np.repeat(generator.normal(size=n), chosen)
            both.append(texts(groups, effects + generator.normal(size=len(groups)), prefix=name))
        p_values.extend(run_group_tests(both[1], both[0]).p_value)
    # 8 p-values of one calibration are dependent: an allowance of 3 standard errors of 150 calibrations.
    for level in (0.05, 0.1, 0.25, 0.5):
        assert np.mean(np.array(p_values) <= level) <= level + 3 * np.sqrt(level * (1 - level) / 150)
    assert np.mean(p_values) == pytest.approx(0.5, abs=0.06)


def test_q_values_by_hand():
    # BH: 0.01*4/1, 0.04*4/2, 0.04*4/3 (ties take the later rank), 0.5*4/4; BY: times 1 + 1/2 + 1/3 + 1/4.
    given_values = [0.04, 0.5, 0.01, 0.04]
    wanted = np.array([0.04 * 4 / 3, 0.5, 0.04, 0.04 * 4 / 3])
    assert compute_q_values(given_values, "bh") == pytest.approx(wanted)
    assert compute_q_values(given_values, "by") == pytest.approx(np.minimum(1, wanted * 25 / 12))
    assert compute_q_values([], "bh").tolist() == []


def test_the_ledger_counts_every_test_of_every_detector():
    generator = np.random.default_rng(2)
    families = [generator.random(5) ** 2, np.empty(0), generator.random(3)]
    found = compute_joint_q_values(families)
    assert [len(one) for one in found] == [5, 0, 3]
    assert np.concatenate(found) == pytest.approx(false_discovery_control(np.concatenate(families), method="by"))
    assert (found[0] >= compute_q_values(families[0], "by")).all()
    assert compute_joint_q_values([]) == []
