"""The rank test of canaries: by hand, against every possible draw, and what it refuses."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.statistics.canary_rank import canary_rank_test, rank_sum_p, smallest_p

SCORES = st.lists(st.integers(-3, 3).map(float), min_size=2, max_size=5)


def test_one_set_by_hand() -> None:
    done = canary_rank_test([5.0], [[1.0, 5.0, 7.0, 2.0]], alpha=0.2)
    assert (done.status, done.reason) == ("ok", None)
    assert done.ranks == (3,), "the tie and the 7 stand before it"
    assert done.p_value == pytest.approx(3 / 5)
    assert (done.statistic, done.n_alternatives) == (3.0, 4)
    assert canary_rank_test([8.0], [list(range(8))], alpha=0.2).p_value == pytest.approx(1 / 9)
    assert canary_rank_test([-1.0], [list(range(8))], alpha=0.2).p_value == pytest.approx(1.0)


def test_two_sets_by_hand() -> None:
    # Ranks 1 of 3 and 2 of 3: of nine pairs (1, 1), (1, 2) and (2, 1) have a sum of at most 3.
    done = canary_rank_test([9.0, 5.0], [[1.0, 2.0], [7.0, 2.0]], alpha=0.2)
    assert done.ranks == (1, 2)
    assert done.p_value == pytest.approx(3 / 9)
    assert done.statistic == 1.5


@pytest.mark.parametrize("sizes", [(4,), (2, 3, 1), (5, 5, 5, 5), (1, 9, 2)])
def test_the_sum_of_ranks_is_that_of_every_combination(sizes: tuple[int, ...]) -> None:
    every = [sum(one) for one in itertools.product(*(range(1, size + 2) for size in sizes))]
    for ranks in itertools.product(*(range(1, size + 2) for size in sizes)):
        exact = Fraction(sum(one <= sum(ranks) for one in every), len(every))
        assert rank_sum_p(ranks, sizes) == pytest.approx(float(exact), rel=1e-12)


def test_tails_of_many_sets_keep_their_digits() -> None:
    # Only one combination has the smallest sum; 30 more have one more.
    assert rank_sum_p([1] * 30, [9] * 30) == pytest.approx(1e-30, rel=1e-9)
    assert rank_sum_p([2] + [1] * 29, [9] * 30) == pytest.approx(31e-30, rel=1e-9)
    assert rank_sum_p([1] * 400, [99] * 400) == 1e-300
    # By symmetry of the sum about its mean.
    middle = rank_sum_p([50] * 100, [99] * 100)
    assert middle == pytest.approx(1 - rank_sum_p([51] * 99 + [50], [99] * 100), abs=1e-9)


@given(st.lists(SCORES, min_size=1, max_size=3))
def test_over_every_draw_of_the_published_one_the_p_value_keeps_its_level(sets: list[list[float]]) -> None:
    p_values = []
    for drawn in itertools.product(*(range(len(one)) for one in sets)):
        published = [one[place] for one, place in zip(sets, drawn, strict=True)]
        others = [one[:place] + one[place + 1 :] for one, place in zip(sets, drawn, strict=True)]
        done = canary_rank_test(published, others, alpha=1.0)
        assert done.p_value is not None
        p_values.append(done.p_value)
    for alpha in p_values:
        assert np.mean(np.array(p_values) <= alpha) <= alpha + 1e-9
    if all(len(set(one)) == len(one) for one in sets):
        assert min(p_values) == pytest.approx(smallest_p([len(one) - 1 for one in sets]))
        for alpha in p_values:
            assert np.mean(np.array(p_values) <= alpha + 1e-12) == pytest.approx(alpha), "exact without ties"


@given(st.lists(SCORES, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_order_and_scale_do_not_matter(sets: list[list[float]], random: object) -> None:
    expected = canary_rank_test([one[0] for one in sets], [one[1:] for one in sets], alpha=1.0)
    shuffled = [[one[0], *random.sample(one[1:], len(one) - 1)] for one in sets]  # type: ignore[attr-defined]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    scaled = [[math.exp(score) - 7 for score in one] for one in shuffled]
    found = canary_rank_test([one[0] for one in scaled], [one[1:] for one in scaled], alpha=1.0)
    assert found.p_value == pytest.approx(expected.p_value)
    assert sorted(found.ranks) == sorted(expected.ranks)


def test_too_few_alternatives_for_alpha_are_refused() -> None:
    refused = canary_rank_test([9.0], [[1.0] * 18])
    assert (refused.status, refused.p_value, refused.statistic, refused.ranks) == ("refused", None, None, ())
    assert refused.reason is not None
    assert "0.0526" in refused.reason
    assert "at least 19 alternatives" in refused.reason
    assert canary_rank_test([9.0], [[1.0] * 19]).p_value == pytest.approx(0.05)
    assert canary_rank_test([9.0], [[1.0] * 99], alpha=0.01).status == "ok"
    assert canary_rank_test([9.0], [[1.0] * 98], alpha=0.01).status == "refused"
    assert canary_rank_test([9.0] * 5, [[1.0]] * 5).p_value == pytest.approx(1 / 32), "five sets of two reach it"
    assert canary_rank_test([9.0] * 4, [[1.0]] * 4).status == "refused"


@pytest.mark.parametrize("missing", [math.nan, math.inf])
def test_a_canary_without_a_score_is_refused(missing: float) -> None:
    done = canary_rank_test([1.0, missing], [[0.0] * 9, [0.0] * 8 + [missing]])
    assert (done.status, done.p_value) == ("refused", None)
    assert done.reason == "2 canaries of set 2 without a score"
