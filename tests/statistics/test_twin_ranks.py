"""The test of twins: by hand, over every possible draw, over simulated audits, and its refusals."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from audit_pipeline.errors import DataError
from audit_pipeline.statistics import twin_ranks
from audit_pipeline.statistics.twin_ranks import (
    compare_twins,
    compute_rank_shares,
    compute_rank_sum_p,
    compute_sum_p_value,
)

SCORES = st.lists(st.integers(-3, 3).map(float), min_size=2, max_size=4)


def test_shares_count_the_versions_below_and_half_of_the_ties() -> None:
    assert compute_rank_shares([5.0, 1.0, 7.0, 5.0, 2.0]).tolist() == [2.5 / 4, 0.0, 1.0, 2.5 / 4, 1 / 4]
    assert compute_rank_shares([3.0, 3.0]).tolist() == [0.5, 0.5]
    assert np.isnan(compute_rank_shares([1.0, math.inf, 0.0])).all()
    with pytest.raises(DataError, match="two versions"):
        compute_rank_shares([1.0])


def test_one_item_by_hand() -> None:
    # Of five versions two score at least as high: the published one and the 7.
    found = compare_twins([[compute_rank_shares([5.0, 1.0, 4.0, 7.0, 2.0])]], [0], alpha=0.2)
    assert found.p_value == pytest.approx(2 / 5)
    assert found.superiority == pytest.approx(3 / 4)
    assert (found.reason, found.items, found.others, found.left_out) == (None, 1, 4, 0)
    # A version that ties has the same rank: three of five draws give one as high.
    assert compare_twins([[compute_rank_shares([5, 1, 5, 7, 2])]], [0], alpha=0.2).p_value == pytest.approx(3 / 5)


def test_items_of_unequal_numbers_of_versions_by_hand() -> None:
    # Shares 1 and 1/2 of (0, 1) and (0, 1/2, 1): of six draws (1, 1/2) and (1, 1) have a sum of 3/2 at least.
    found = compare_twins([[compute_rank_shares([9, 1]), compute_rank_shares([5, 7, 2])]], [0, 0], alpha=0.2)
    assert found.p_value == pytest.approx(2 / 6)
    assert found.superiority == pytest.approx(3 / 4)
    # The standard deviations under the draw: 1/2 and sqrt(1/6).
    assert found.detectable_auroc == pytest.approx(0.5 + 2.486475 * math.sqrt(1 / 4 + 1 / 6) / 2)


@given(st.lists(SCORES, min_size=1, max_size=4), st.integers(1, 3), st.data())
def test_over_every_draw_the_p_value_is_that_of_enumeration(
    items: list[list[float]], detectors: int, data: st.DataObject
) -> None:
    """For any scores of any number of detectors, p is the share of draws with at least the same mean share."""
    orders = [[data.draw(st.permutations(row)) for row in items] for _ in range(detectors)]
    shares = [[compute_rank_shares(row) for row in of_detector] for of_detector in orders]
    every = list(itertools.product(*(range(len(row)) for row in items)))
    exact = [
        sum(
            Fraction(float(row[place])).limit_denominator(100)
            for of_detector in shares
            for row, place in zip(of_detector, draw, strict=True)
        )
        for draw in every
    ]
    drawn = data.draw(st.integers(0, len(every) - 1))
    expected = sum(value >= exact[drawn] for value in exact) / len(every)
    found = compare_twins(shares, every[drawn], alpha=1.0)
    assert found.p_value == pytest.approx(expected)
    assert found.superiority == pytest.approx(float(exact[drawn]) / detectors / len(items))


@pytest.mark.parametrize("n", [400, pytest.param(2000, marks=pytest.mark.slow)])
def test_p_values_are_uniform_over_simulated_audits_whatever_the_versions_are(n: int) -> None:
    """Scores have heavy tails, very different scales and ties, and some versions always score highest."""
    generator = np.random.default_rng(0)
    p_values = []
    for _ in range(n):
        shares = []
        for _ in range(12):
            scores = generator.standard_cauchy(generator.integers(2, 7)) * 10 ** generator.uniform(-3, 3)
            scores[0] += generator.choice([0.0, 1e6])
            shares.append(compute_rank_shares(np.round(scores) if generator.random() < 0.3 else scores))
        p_values.append(compare_twins([shares], [int(generator.integers(len(row))) for row in shares]).p_value)
    assert stats.kstest(p_values, "uniform").pvalue > 0.01
    for alpha in (0.01, 0.05, 0.2):
        assert np.mean(np.array(p_values) <= alpha) < alpha + 3 * math.sqrt(alpha * (1 - alpha) / n)


def test_a_draw_that_follows_the_scores_is_found_and_its_size_measured() -> None:
    generator = np.random.default_rng(1)
    scores = generator.standard_normal((60, 4))
    scores[:, 0] += 1.0
    found = compare_twins([[compute_rank_shares(row) for row in scores]], [0] * 60)
    # P(Z + 1 > Z') = Phi(1 / sqrt 2) = 0.76.
    assert found.superiority_low is not None
    assert found.superiority_high is not None
    assert found.superiority_low < stats.norm.cdf(math.sqrt(0.5)) < found.superiority_high
    assert found.p_value is not None
    assert found.p_value < 1e-6
    first = compare_twins([[compute_rank_shares([9.0, 1.0, 2.0])] * 10], [0] * 10)
    assert (first.superiority, first.superiority_high) == (1.0, 1.0)
    assert first.superiority_low == pytest.approx(0.025 ** (1 / 10)), "ten of ten: Clopper and Pearson's bound"
    assert first.p_value == pytest.approx(3.0**-10)


@pytest.mark.parametrize("n", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_the_interval_holds_the_superiority_in_19_of_20_audits(n: int) -> None:
    generator, held = np.random.default_rng(2), 0
    for _ in range(n):
        scores = generator.standard_normal((30, 4))
        scores[:, 0] += 0.5
        found = compare_twins([[compute_rank_shares(row) for row in scores]], [0] * 30, alpha=1.0)
        assert found.superiority_low is not None
        assert found.superiority_high is not None
        held += found.superiority_low <= stats.norm.cdf(0.5 / math.sqrt(2)) <= found.superiority_high
    assert held / n >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / n)


def test_redraws_stand_for_a_distribution_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(3)
    rows = [compute_rank_shares(generator.standard_normal(size)) for size in (2, 3, 4, 5, 6, 7) * 5]
    drawn = [int(generator.integers(len(row))) for row in rows]
    units = [2 * (len(row) - 1) for row in rows]
    exact, how = compute_sum_p_value(rows, drawn, units)
    assert how == "exact by convolution"
    monkeypatch.setattr(twin_ranks, "_MAX_ADDITIONS", 1)
    by_redraws, how = compute_sum_p_value(rows, drawn, units)
    assert how == "100,000 draws"
    assert by_redraws == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 1e5))
    best = [int(np.argmax(row)) for row in rows]
    assert compute_sum_p_value(rows, best, units)[1] == "exact by convolution", "one sum is as high: its own"
    best[-1] = int(np.argsort(rows[-1])[-2])
    assert compute_sum_p_value(rows, best, units)[0] == pytest.approx(1e-5), "the draw itself is counted"


def test_sizes_without_a_small_common_unit_have_exact_p_values() -> None:
    """The common unit of the shares of 43 items with 2 to 44 versions has 19 digits."""
    rows = [compute_rank_shares(np.arange(size, 0, -1.0)) for size in range(2, 45)]
    lowest_but_one = [0] * 42 + [1]
    # One of 44! draws has every item first, and two have at most the last item second.
    assert compare_twins([rows], [0] * 43).p_value == pytest.approx(1 / math.factorial(44), rel=1e-12)
    assert compare_twins([rows], lowest_but_one).p_value == pytest.approx(2 / math.factorial(44), rel=1e-12)
    assert compare_twins([rows] * 3, [0] * 43).p_value == pytest.approx(1 / math.factorial(44), rel=1e-12)
    many = [compute_rank_shares(np.arange(size, 0, -1.0)) for size in range(2, 802)]
    assert compare_twins([many], [0] * 800).p_value == 1e-300, "the common unit exceeds every float64"


def test_rounded_ranks_raise_the_p_value_by_a_hair(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(5)
    rows = [compute_rank_shares(generator.standard_normal(size)) for size in (2, 3, 4, 5, 6, 7) * 3]
    drawn = [int(generator.integers(len(row))) for row in rows]
    units = [2 * (len(row) - 1) for row in rows]
    exact, _ = compute_sum_p_value(rows, drawn, units)
    deficit = sum(float(row.max() - row[place]) for row, place in zip(rows, drawn, strict=True))
    # Exact work is deficit * 120 * the number of values. Nine tenths of it do not suffice.
    values = sum(map(len, rows))
    monkeypatch.setattr(twin_ranks, "_MAX_ADDITIONS", int(0.9 * deficit * 120 * values))
    monkeypatch.setattr(twin_ranks, "_MAX_RELATIVE_ROUNDING", 1.0)
    rounded, how = compute_sum_p_value(rows, drawn, units)
    assert "so that p can only rise" in how
    # 18 ranks are rounded by less than 1 / 100 each: as if the sum were lower by .18 at most.
    assert exact <= rounded
    assert rounded <= exact + 0.18


@given(st.lists(st.integers(2, 6), min_size=1, max_size=5), st.data())
def test_p_values_against_fractions(sizes: list[int], data: st.DataObject) -> None:
    drawn = [data.draw(st.integers(0, size - 1)) for size in sizes]
    exact: dict[Fraction, Fraction] = {Fraction(0): Fraction(1)}
    for size in sizes:
        added: dict[Fraction, Fraction] = {}
        for value, chance in exact.items():
            for rank in range(size):
                total = value + Fraction(rank, size - 1)
                added[total] = added.get(total, Fraction(0)) + chance / size
        exact = added
    seen = sum((Fraction(place, size - 1) for place, size in zip(drawn, sizes, strict=True)), Fraction(0))
    expected = sum(chance for value, chance in exact.items() if value >= seen)
    rows = [compute_rank_shares(np.arange(float(size))) for size in sizes]
    found, _ = compute_sum_p_value(rows, drawn, [2 * (size - 1) for size in sizes])
    # Every factor and every sum of at most 3^5 terms rounds once.
    assert found == pytest.approx(float(expected), rel=1e-12)


def test_what_two_versions_can_show_is_the_power_of_the_binomial_test() -> None:
    pair = compute_rank_shares([1.0, 0.0])
    for items in (37, 39, 40, 41, 42, 60):
        least = int(stats.binom.isf(0.05, items, 0.5)) + 1
        detectable = compare_twins([[pair] * items], [0] * items).detectable_auroc
        assert detectable is not None
        assert stats.binom.sf(least - 1, items, detectable) == pytest.approx(0.8, abs=1e-9)
    # What docs/twins.md says: at an effect of 0.7, 39 items have 74% power, and from 42 items on it is 80%.
    assert compare_twins([[pair] * 39], [0] * 39).detectable_auroc > 0.7
    assert all(compare_twins([[pair] * items], [0] * items).detectable_auroc < 0.7 for items in range(42, 80))
    four = compute_rank_shares([3.0, 2.0, 1.0, 0.0])
    assert compare_twins([[four] * 22], [0] * 22).detectable_auroc > 0.7
    assert all(compare_twins([[four] * items], [0] * items).detectable_auroc < 0.7 for items in range(23, 60))


def test_versions_that_all_tie_can_show_nothing() -> None:
    found = compare_twins([[compute_rank_shares([1.0, 1.0])] * 100], [0] * 100)
    assert found.p_value == 1.0
    assert found.detectable_auroc is not None
    assert found.detectable_auroc > 1


def test_items_without_a_score_of_every_version_are_left_out_whichever_was_published() -> None:
    shares = [compute_rank_shares(row) for row in ([1, 2], [math.nan, 3], [5, 4], [9, 8], [1, 0], [1, 0])]
    found = compare_twins([shares], [1, 1, 0, 0, 0, 0])
    assert (found.items, found.left_out, found.others) == (5, 1, 5)
    assert found.p_value == pytest.approx(1 / 32)
    # By several detectors: an item that one of them lacks.
    other = [compute_rank_shares([0.0, 1.0])] * 6
    assert compare_twins([shares, other], [1] * 6, alpha=1.0).left_out == 1


def test_a_test_that_cannot_reach_the_level_is_refused() -> None:
    def refuse(items: list[list[float]], alpha: float = 0.05) -> str | None:
        found = compare_twins([[compute_rank_shares(row) for row in items]], [0] * len(items), alpha=alpha)
        assert (found.p_value is None) == (found.superiority is None) == (found.reason is not None)
        return found.reason

    few = refuse([list(range(19))])
    assert few is not None
    assert "0.0526" in few
    assert "20 versions of a single item" in few
    assert refuse([list(range(20))]) is None
    assert refuse([list(range(99))], 0.01) is not None
    assert refuse([[1, 0]] * 4) is not None
    assert refuse([[1, 0]] * 5) is None, "1 / 32"
    assert refuse([[math.nan, 0]] * 9) == "no item has a score of every version"
    with pytest.raises(DataError, match="each item must have"):
        compare_twins([[compute_rank_shares([1, 2])]], [0, 1])


@pytest.mark.parametrize("sizes", [(4,), (2, 3, 1), (5, 5, 5, 5), (1, 9, 2)])
def test_the_sum_of_ranks_is_that_of_every_combination(sizes: tuple[int, ...]) -> None:
    every = [sum(ranks) for ranks in itertools.product(*(range(1, size + 2) for size in sizes))]
    for ranks in itertools.product(*(range(1, size + 2) for size in sizes)):
        exact = Fraction(sum(found <= sum(ranks) for found in every), len(every))
        assert compute_rank_sum_p(ranks, sizes) == pytest.approx(float(exact), rel=1e-12)


def test_tails_of_many_sets_keep_their_digits() -> None:
    # Only one combination has the smallest sum; 30 more have one more.
    assert compute_rank_sum_p([1] * 30, [9] * 30) == pytest.approx(1e-30, rel=1e-9)
    assert compute_rank_sum_p([2] + [1] * 29, [9] * 30) == pytest.approx(31e-30, rel=1e-9)
    assert compute_rank_sum_p([1] * 400, [99] * 400) == 1e-300
    # By symmetry of the sum about its mean.
    middle = compute_rank_sum_p([50] * 100, [99] * 100)
    assert middle == pytest.approx(1 - compute_rank_sum_p([51] * 99 + [50], [99] * 100), abs=1e-9)
