import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.detectors import registry
from audit_pipeline.detectors.gap_k import GAP_K, compute_standardised_gaps

tokens = st.lists(
    st.tuples(st.floats(-30, 0, width=32), st.floats(0, 20, width=32), st.floats(0.0625, 8, width=32)),
    min_size=1,
    max_size=40,
)
GRID = registry.expand_settings(GAP_K, grid=True)


def of(text_statistics, drawn):
    """Return statistics of (log-probability of the argmax, difference to the token, sigma)."""
    best, below, std = (np.array(column, np.float32) for column in zip(*drawn, strict=True))
    return text_statistics(best - below, max_logprob=best, std=std)


def scores(statistics, settings):
    return [one.score for one in GAP_K.score(statistics, settings)]


def test_gap_k_by_hand(text_statistics):
    drawn = [(-1.0, 0.0, 1.0), (-1.0, 2.0, 2.0), (-0.5, 6.0, 1.0), (-2.0, 1.0, 0.5), (-3.0, 0.0, 3.0)]
    statistics = of(text_statistics, drawn)
    # gaps 0, -1, -6, -2, 0; windows of three: -7/3, -3, -8/3
    assert scores(statistics, [{"k": 0.2, "window": 1}, {"k": 0.4, "window": 1}]) == [-6.0, -4.0]
    assert scores(statistics, [{}, {"k": 0.7, "window": 3}]) == pytest.approx([-3.0, (-3 - 8 / 3) / 2])
    assert GAP_K.to_json({}) == '{"k":0.2,"window":3}'


def test_k_counts_windows_not_tokens(text_statistics):
    drawn = [(-1.0, float(step), 1.0) for step in range(7)]
    # 7 tokens are 5 windows, of means -1 ... -5: int(5 * .3) is 1 where int(7 * .3) is 2.
    assert scores(of(text_statistics, drawn), [{"k": 0.3}, {"k": 0.4}]) == [-5.0, -4.5]


def test_a_text_shorter_than_the_window_is_not_smoothed(text_statistics):
    drawn = [(-1.0, 4.0, 1.0), (-1.0, 2.0, 1.0)]
    statistics = of(text_statistics, drawn)
    assert scores(statistics, [{"window": 3}, {"window": 3, "k": 1.0}, {"window": 2}]) == [-4.0, -3.0, -3.0]


def test_the_floor_applies_to_the_variance(text_statistics):
    statistics = text_statistics([-1.5], max_logprob=[-1.0], std=[1e-6])
    assert scores(statistics, [{"window": 1}]) == [pytest.approx(-0.5 / 1e-4)]
    lower = {"window": 1, "variance_floor": 1e-10}
    assert scores(statistics, [lower]) == [pytest.approx(-0.5 / 1e-5)]
    none = {"window": 1, "variance_floor": 0.0}
    assert scores(statistics, [none]) == [pytest.approx(-0.5 / 1e-6, rel=1e-6)]
    assert GAP_K.to_json(none) == '{"k":0.2,"variance_floor":0.0,"window":1}'


def test_a_deviation_of_zero_without_a_floor_fails(text_statistics):
    certain = text_statistics([0.0], max_logprob=[0.0], std=[0.0])
    assert scores(certain, [{"window": 1}]) == [0.0]
    [outcome] = GAP_K.score(certain, [{"window": 1, "variance_floor": 0.0}])
    assert (outcome.score, outcome.status) == (None, "failed")


@given(drawn=tokens)
def test_gap_k_equals_its_twin(text_statistics, drawn):
    found = scores(of(text_statistics, drawn), GRID)
    largest = max(below / std for _, below, std in drawn)
    expected = []
    for setting in GRID:
        values = [(np.float32(best - below) - float(best)) / std for best, below, std in drawn]
        window = setting["window"]
        if len(values) >= window:
            values = [math.fsum(values[at : at + window]) / window for at in range(len(values) - window + 1)]
        lowest = sorted(values)[: max(1, int(len(values) * setting["k"]))]
        expected.append(math.fsum(lowest) / len(lowest))
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-5 * largest + 1e-4)


@given(drawn=tokens)
def test_gaps_are_never_above_zero_and_a_likelier_text_never_scores_lower(text_statistics, drawn):
    statistics = of(text_statistics, drawn)
    assert (compute_standardised_gaps(statistics, 1e-8) <= 0).all()
    nearer = of(text_statistics, [(best, below / 2, std) for best, below, std in drawn])
    pairs = zip(scores(nearer, GRID), scores(statistics, GRID), strict=True)
    assert all(after >= before - 1e-4 for after, before in pairs)
