"""The permutation test of ordered items: by hand, over every order, and its refusals."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from audit_pipeline.errors import DataError
from audit_pipeline.statistics.sharded_permutation import Rule, draw_orders, run_sharded_permutation_test
from audit_pipeline.statistics.shards import (
    MIN_ORDERS,
    choose_shard_count,
    count_items_needed,
    count_orders,
    divide_into_shards,
)
from audit_pipeline.statistics.twin_ranks import compute_rank_sum_p


def test_the_numbers_by_hand() -> None:
    # In nine shards the published order beats nine of ten others; in the tenth it beats none. Others have a mean of 5.
    others = [[0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0, 9.0, 10.0]] * 10
    own = [9.5] * 9 + [-0.5]
    done = run_sharded_permutation_test(own, others)
    assert (done.status, done.shards, done.orders) == ("ok", 10, 100)
    assert done.statistic == pytest.approx((9 * 4.5 - 5.5) / 10)
    assert "mean rank 2.9," in done.method
    # A rank among eleven has the variance 10 as a number, and the mean share of ten ranks sqrt(0.1 / 10). The exact
    # power is close to the normal approximation, 0.5 + (1.645 + 0.842) * 0.1.
    assert done.detectable_auroc == pytest.approx(0.749, abs=0.02)
    assert done.p_value == pytest.approx(compute_rank_sum_p([2] * 9 + [11], [10] * 10))
    # Differences of 4.5 (nine) and -5.5: mean 3.5, variance (9 + 81) / 9 = 10, t = 3.5 / sqrt(10 / 10).
    assert run_sharded_permutation_test(own, others, rule="t_test").p_value == pytest.approx(stats.t.sf(3.5, 9))


def test_shards_may_have_unequal_numbers_of_orders() -> None:
    others = [[1.0] * size for size in (1, 5, 23, 25, 25, 25, 25, 25, 25, 25)]
    done = run_sharded_permutation_test([2.0] * 10, others)
    assert done.orders == 204
    assert done.p_value == pytest.approx(1 / math.prod(len(one) + 1 for one in others))
    p_t_test = run_sharded_permutation_test([2.0] * 10, others, rule="t_test").p_value
    assert p_t_test == 1.0, "equal differences have no spread to compare them with"


def test_the_same_log_likelihoods_added_in_another_order_are_tied() -> None:

    def _draw_permutations(shard: int) -> list[np.ndarray]:
        generator = np.random.default_rng(shard)
        return [generator.permutation(500) for _ in range(10)]

    tokens = np.random.default_rng(3).normal(-3, 2, 500)
    others = [[float(np.cumsum(tokens[order])[-1]) for order in _draw_permutations(shard)] for shard in range(10)]
    assert max(map(np.ptp, others)) > 0, "float64 sums differ by the order of their terms"
    own = [max(row) for row in others]
    assert run_sharded_permutation_test(own, others).p_value == 1.0
    assert run_sharded_permutation_test(own, others, rule="t_test").p_value == 1.0


def test_no_p_value_is_zero() -> None:
    jitter = np.random.default_rng(0).normal(0, 1e-5, 200)
    others = [[0.0, 1.0]] * 200
    for rule in ("exact", "t_test"):
        assert run_sharded_permutation_test(1e6 + jitter, others, rule=rule).p_value > 0


def test_over_every_order_the_exact_p_value_keeps_its_level() -> None:
    # Ten shards are too many to go through every order of all: one shard's ranks over its 24 orders are uniform.
    generator = np.random.default_rng(2)
    likelihood = {order: float(generator.standard_normal()) for order in itertools.permutations(range(4))}
    ranks = Counter(
        1 + sum(likelihood[tuple(one)] >= likelihood[given] for one in draw_orders(given, 5, seed=seed, number=0))
        for given in likelihood
        for seed in range(100)
    )
    counts = [ranks[rank] for rank in range(1, 7)]
    assert sum(counts) == 2400
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("n", [60, pytest.param(300, marks=pytest.mark.slow)])
def test_both_rules_keep_their_level(n: int) -> None:
    generator = np.random.default_rng(11)
    scale = generator.gamma(1.0, 1.0, (n, 20, 1))
    drawn = generator.standard_normal((n, 20, 1)) + scale * generator.standard_normal((n, 20, 12))
    limit = 0.05 + 3 * math.sqrt(0.05 * 0.95 / n)
    for rule in get_args(Rule):
        p_values = [run_sharded_permutation_test(one[:, 0], one[:, 1:], rule=rule).p_value for one in drawn]
        assert np.mean([p_value <= 0.05 for p_value in p_values]) <= limit  # type: ignore[operator]
    drawn[:, :, 0] += 2.0
    assert np.mean([run_sharded_permutation_test(one[:, 0], one[:, 1:]).p_value <= 0.05 for one in drawn]) > 0.9  # type: ignore[operator]


@given(st.floats(-100, 100), st.floats(0.1, 10), st.randoms(use_true_random=False))
def test_order_of_shards_level_and_scale_do_not_matter(level: float, scale: float, random: object) -> None:
    drawn = np.random.default_rng(4).standard_normal((12, 11)).round(3)
    rows = list(range(12))
    random.shuffle(rows)  # type: ignore[attr-defined]
    changed = level + scale * drawn[rows]
    for rule in get_args(Rule):
        expected = run_sharded_permutation_test(drawn[:, 0], drawn[:, 1:], rule=rule)
        found = run_sharded_permutation_test(changed[:, 0], changed[:, 1:], rule=rule)
        assert found.p_value == pytest.approx(expected.p_value)


def test_too_few_shards_or_orders_are_refused() -> None:
    def reason(shards: int, orders: int, own: float = 1.0) -> str | None:
        done = run_sharded_permutation_test([own] * shards, [[0.0] * orders] * shards)
        assert (done.status == "refused") == (done.reason is not None) == (done.p_value is None)
        return done.reason

    assert reason(9, 25) == "there are 9 shards, but the test requires 10"
    assert reason(10, 9) == "there are 90 random orders in all shards together, but the test requires 100"
    assert reason(10, 10) is None
    assert reason(10, 10, math.nan) == "a log-likelihood is not finite"
    assert reason(10, 10, -math.inf) == "a log-likelihood is not finite"
    assert (
        run_sharded_permutation_test([1.0] * 11, [[0.0] * 20] * 10 + [[]]).reason
        == "a shard has no random order with which its published order could be compared"
    )
    with pytest.raises(DataError, match="one row"):
        run_sharded_permutation_test([1.0] * 10, [[0.0] * 20] * 11)


def test_how_many_items_are_needed() -> None:
    # Ten shards, seven of three items (five other orders each) and three of four (23): 35 + 69 orders.
    assert count_items_needed() == 33
    assert count_items_needed(10) == 40, "ten orders of each of ten shards, so all of them have four items"
    assert count_items_needed(9) == 120, "twelve shards"
    assert count_items_needed(25, 30) == 78
    assert count_items_needed(25, 9) is None
    assert count_items_needed(9, 10) is None
    assert count_items_needed(1) is None, "there are at most fifty shards"


@given(st.integers(1, 40), st.integers(10, 60) | st.none(), st.integers(0, 200))
def test_the_minimum_number_of_items_suffices_and_fewer_do_not(
    permutations: int, shards: int | None, more: int
) -> None:
    needed = count_items_needed(permutations, shards)
    if needed is None:
        return

    def orders(n_items: int) -> int:
        return count_orders(divide_into_shards(n_items, shards or choose_shard_count(n_items)), permutations)

    assert orders(needed + more) >= MIN_ORDERS
    if needed > 2 * (shards or 10):
        assert orders(needed - 1) < MIN_ORDERS


@given(st.integers(2, 400), st.data())
def test_items_are_dealt_in_order_and_evenly(n: int, data: st.DataObject) -> None:
    shards = data.draw(st.integers(1, n // 2))
    dealt = divide_into_shards(n, shards)
    assert list(itertools.chain.from_iterable(dealt)) == list(range(n))
    assert len(dealt) == shards
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
    assert min(map(len, dealt)) >= 2


@pytest.mark.parametrize(("items", "asked", "given"), [(2, 25, 1), (3, 25, 5), (4, 25, 23), (4, 7, 7), (9, 25, 25)])
def test_orders_are_distinct_and_never_the_published_one(items: int, asked: int, given: int) -> None:
    shard = range(40, 40 + items)
    orders = draw_orders(shard, asked, seed=3, number=1)
    assert len(orders) == len({tuple(one) for one in orders}) == given
    assert all(sorted(one) == list(shard) for one in orders)
    assert list(shard) not in orders
    assert orders == draw_orders(shard, asked, seed=3, number=1)
    if given > 5:
        assert orders != draw_orders(shard, asked, seed=4, number=1)
        assert orders != draw_orders(shard, asked, seed=3, number=2)


def test_drawn_orders_are_equally_likely() -> None:
    counts = Counter(tuple(draw_orders(range(3), 1, seed=seed, number=0)[0]) for seed in range(2000))
    assert len(counts) == 5
    assert stats.chisquare(list(counts.values())).pvalue > 1e-4
    first = Counter(draw_orders(range(9), 1, seed=seed, number=0)[0][0] for seed in range(2000))
    assert stats.chisquare([first[place] for place in range(9)]).pvalue > 1e-4
