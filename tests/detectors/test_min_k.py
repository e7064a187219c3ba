import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.detectors.detector import Detector
from audit_pipeline.detectors.min_k import (
    MIN_K,
    MIN_K_PLUS_PLUS,
    compute_lowest_means,
    compute_moving_means,
    count_selected,
)

GRID = [{"k": step / 10} for step in range(1, 11)]
logprobs = st.lists(st.floats(-30, 0, width=32), min_size=1, max_size=80)
shares = st.floats(0, 1, exclude_min=True)


def twin(values: list[float], k: float) -> float:
    """Compute the mean of the lowest values by its definition, with Python's own numbers."""
    chosen = sorted(values)[: max(1, int(len(values) * k))]
    return math.fsum(chosen) / len(chosen)


def scores(detector: Detector, statistics, settings):
    outcomes = detector.score(statistics, settings)
    assert all(outcome.status == "ok" and outcome.reason is None for outcome in outcomes)
    return [outcome.score for outcome in outcomes]


@pytest.mark.parametrize(
    ("n", "k", "count"),
    [
        (1, 0.1, 1),
        (9, 0.1, 1),
        (10, 0.1, 1),
        (19, 0.1, 1),
        (20, 0.1, 2),
        (90, 0.7, 62),  # 90 * .7 is 62.99999999999999 in float64
        (10, 0.3, 3),
        (100, 0.29, 28),
        (7, 1.0, 7),
        (3, 1e-9, 1),
    ],
)
def test_how_many_tokens_k_selects(n, k, count):
    assert count_selected(n, k) == count


def test_min_k_by_hand(text_statistics):
    statistics = text_statistics([-1.0, -4.0, -2.0, -8.0, -0.5])
    assert scores(MIN_K, statistics, [{"k": 0.2}, {"k": 0.4}, {"k": 0.5}, {"k": 1.0}]) == [-8.0, -6.0, -6.0, -3.1]


def test_min_k_plus_plus_by_hand(text_statistics):
    statistics = text_statistics([-1.0, -4.0, -2.0], mean=[-3.0, -3.0, -3.0], std=[2.0, 0.5, 4.0])
    # z: 1, -2, 0.25
    assert scores(MIN_K_PLUS_PLUS, statistics, [{"k": 0.1}, {"k": 0.7}, {"k": 1.0}]) == [-2.0, -0.875, -0.25]


def test_sigma_is_clamped(text_statistics):
    statistics = text_statistics([-1.0], mean=[-1.5], std=[0.0])
    assert scores(MIN_K_PLUS_PLUS, statistics, [{"k": 0.2}]) == [pytest.approx(0.5 / 1e-6)]
    certain = text_statistics([0.0], mean=[0.0], std=[0.0])
    assert scores(MIN_K_PLUS_PLUS, certain, [{"k": 0.2}]) == [0.0]


@given(values=logprobs, ks=st.lists(shares, min_size=1, max_size=12))
def test_min_k_equals_its_twin(text_statistics, values, ks):
    found = scores(MIN_K, text_statistics(values), [{"k": k} for k in ks])
    assert found == pytest.approx([twin(values, k) for k in ks], rel=1e-12, abs=1e-300)


@given(data=st.data(), values=logprobs)
def test_min_k_plus_plus_equals_its_twin(text_statistics, data, values):
    n = len(values)
    means = data.draw(st.lists(st.floats(-12, 0, width=32), min_size=n, max_size=n))
    stds = data.draw(st.lists(st.floats(0, 8, width=32), min_size=n, max_size=n))
    z = [(value - mean) / max(std, 1e-6) for value, mean, std in zip(values, means, stds, strict=True)]
    found = scores(MIN_K_PLUS_PLUS, text_statistics(values, mean=means, std=stds), GRID)
    largest = max(map(abs, z))
    assert found == pytest.approx([twin(z, one["k"]) for one in GRID], rel=1e-9, abs=1e-12 * largest + 1e-300)


def test_the_reduction_is_in_float64():
    values = np.full(200_000, -0.1, dtype=np.float32)
    values[0] = -1e7
    assert compute_lowest_means(values, [1.0])[0] == pytest.approx(math.fsum(values.tolist()) / 200_000, rel=1e-12)


def test_min_k_plus_plus_without_mu_or_sigma(text_statistics):
    """Zhang et al. 2025, table 3: the ablations omit the mean, the standard deviation, or both."""
    statistics = text_statistics([-1.0, -2.0, -6.0], mean=[-3.0, -4.0, -4.0], std=[2.0, 4.0, 1.0])
    settings = [{"k": 1.0, "mu": mu, "sigma": sigma} for mu in (True, False) for sigma in (True, False)]
    found = [one.score for one in MIN_K_PLUS_PLUS.score(statistics, settings)]
    both, mu_only = (1 + 0.5 - 2) / 3, (2 + 2 - 2) / 3
    sigma_only, neither = (-0.5 - 0.5 - 6) / 3, -9 / 3
    assert found == pytest.approx([both, mu_only, sigma_only, neither], abs=1e-6)


def smoothed(values, window):
    """Compute moving means by their definition, with Python's own numbers."""
    return [math.fsum(values[at : at + window]) / window for at in range(len(values) - window + 1)]


@given(values=logprobs, window=st.integers(1, 12))
def test_moving_means_equal_their_twin(values, window):
    found = compute_moving_means(values, window).tolist()
    assert found == pytest.approx(smoothed(values, window), rel=1e-12, abs=1e-12)


def test_windows_by_hand(text_statistics):
    statistics = text_statistics([-1.0, -4.0, -1.0, -7.0], mean=[-2.0] * 4, std=[1.0, 2.0, 1.0, 1.0])
    # Of the means -2, -4 the lowest; three in a row of 1, -1, 1, -5 have the means 1/3, -5/3.
    assert scores(MIN_K, statistics, [{"window": 3}, {"k": 1.0, "window": 3}]) == [-4.0, -3.0]
    assert scores(MIN_K_PLUS_PLUS, statistics, [{"window": 3}]) == [pytest.approx(-5 / 3)]
    # k counts windows: int(3 * .5) is 1 where int(4 * .5) is 2.
    assert scores(MIN_K, statistics, [{"k": 0.5, "window": 2}]) == [-4.0]


@given(values=logprobs, window=st.integers(2, 9))
def test_a_window_equals_its_twin_and_needs_as_many_tokens(text_statistics, values, window):
    settings = [{**one, "window": window} for one in GRID]
    if len(values) < window:
        outcomes = MIN_K.score(text_statistics(values), settings)
        assert {(one.score, one.status) for one in outcomes} == {(None, "not_applicable")}
        assert outcomes[0].reason == f"the text has fewer than {window} scored tokens, the length of a window"
        return
    expected = [twin(smoothed(values, window), one["k"]) for one in GRID]
    assert scores(MIN_K, text_statistics(values), settings) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("detector", [MIN_K, MIN_K_PLUS_PLUS])
@given(values=logprobs)
def test_a_window_of_one_is_the_plain_score_under_its_plain_label(text_statistics, detector, values):
    statistics = text_statistics(values)
    plain, one = scores(detector, statistics, GRID), scores(detector, statistics, [{**k, "window": 1} for k in GRID])
    assert plain == one
    assert detector.to_json({"k": 0.2, "window": 1}) == '{"k":0.2}'
    assert detector.to_json({"k": 0.2, "window": 3}) == '{"k":0.2,"window":3}'
