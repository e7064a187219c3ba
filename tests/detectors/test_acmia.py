"""ACMIA: both scores by hand, first occurrences, and the accepted temperatures."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.detectors.acmia import ACMIA_AC, ACMIA_NORM_AC, TEMPERATURES
from audit_pipeline.detectors.detector import Detector
from audit_pipeline.detectors.detector_inputs import Temperatures, TextStatistics
from audit_pipeline.detectors.registry import parse_overrides
from audit_pipeline.errors import ConfigError
from audit_pipeline.tables import BETAS

Make = Callable[..., TextStatistics]


def statistics_of(make: Make, p: np.ndarray, tokens: list[int]) -> TextStatistics:
    """Return the statistics of a text whose i-th token is tokens[i], under the distributions p of shape (n, V)."""
    log_p = np.log(p)
    places = np.arange(len(tokens))
    sums, means, deviations = [], [], []
    for beta in BETAS:
        q = p**beta
        sums.append(np.log(q.sum(1)))
        log_q = beta * log_p - sums[-1][:, None]
        q = np.exp(log_q)
        means.append((q * log_q).sum(1))
        deviations.append(np.sqrt((q * (log_q - means[-1][:, None]) ** 2).sum(1)))
    columns = [np.stack(one, axis=1).astype(np.float32) for one in (sums, means, deviations)]
    mean = (p * log_p).sum(1)
    std = np.sqrt((p * (log_p - mean[:, None]) ** 2).sum(1))
    own = make(log_p[places, tokens].tolist(), token_id=tokens, mean=mean.tolist(), std=std.tolist())
    return replace(own, extras={TEMPERATURES: Temperatures(*columns, vocab_size=p.shape[1])})


# Token 0, then 1, then 0 again, which does not count.
P = np.array([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25], [0.98, 0.01, 0.01]])
TOKENS = [0, 1, 0]


@pytest.mark.parametrize(
    ("beta", "by_hand"),
    [
        # log(1/2) and log(1/4) less log(1/3).
        (0.0, (math.log(1 / 2) + math.log(1 / 4)) / 2 + math.log(3)),
        # q is sqrt(p) over their sum s: log p - log q = log(p) / 2 + log s.
        (0.5, (math.log(1 / 2) + math.log(1 / 4)) / 4 + math.log(math.sqrt(0.5) + 1.0)),
        # q is p^2 over 3/8.
        (2.0, (math.log(1 / 2) + math.log(1 / 4)) / 2 - math.log(3 / 8)),
    ],
)
def test_ac_by_hand(text_statistics: Make, beta: float, by_hand: float) -> None:
    [outcome] = ACMIA_AC.score(statistics_of(text_statistics, P, TOKENS), [{"beta": beta}])
    assert outcome.score == pytest.approx(by_hand, abs=1e-6)


def test_norm_ac_by_hand(text_statistics: Make) -> None:
    statistics = statistics_of(text_statistics, P, TOKENS)
    at_two, at_one = ACMIA_NORM_AC.score(statistics, [{"beta": 2.0}, {"beta": 1.0}])
    # q is (4, 1, 1) / 6: log q is log 4 more at the first, so deviations from the mean are log 4 / 3 and -2 log 4 / 3.
    deviation = math.log(4) * math.sqrt(2) / 3
    assert at_two.score == pytest.approx((math.log(4) / 3 - 2 * math.log(4) / 3) / 2 / deviation, abs=1e-6)
    # p itself: log 2 apart, half and half.
    assert at_one.score == pytest.approx(0.0, abs=1e-6)


def test_a_deviation_of_zero_is_clamped(text_statistics: Make) -> None:
    flat = statistics_of(text_statistics, np.full((2, 4), 0.25), [0, 1])
    [outcome] = ACMIA_NORM_AC.score(flat, [{"beta": 0.5}])
    assert outcome.score == pytest.approx(0.0, abs=0.2), "rounding of 1e-7 over 1e-6"


def test_the_default_is_fixed_and_only_cached_temperatures_are_accepted() -> None:
    assert ACMIA_AC.default == ACMIA_NORM_AC.default == {"beta": 0.5}
    for beta in ACMIA_AC.parameters["beta"].values:
        assert parse_overrides([f"acmia_ac.beta={beta}"]) == {"acmia_ac": {"beta": beta}}
    assert parse_overrides(["acmia_ac.beta=4", "acmia_norm_ac.beta=2"]) == {
        "acmia_ac": {"beta": 4.0},
        "acmia_norm_ac": {"beta": 2.0},
    }
    for wrong in ("acmia_ac.beta=1", "acmia_ac.beta=0.66", "acmia_norm_ac.beta=4", "acmia_norm_ac.beta=0"):
        with pytest.raises(ConfigError, match=r"is not 2\^\(j/10\) for a whole number j, from 0\.177 to"):
            parse_overrides([wrong])
    assert ACMIA_AC.on_request
    assert ACMIA_NORM_AC.on_request


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("detector", "column"),
    [(ACMIA_AC, "log_sum_p_beta"), *((ACMIA_NORM_AC, column) for column in ("log_sum_p_beta", "mean", "std"))],
)
def test_one_bad_value_of_a_temperature_fails_its_settings_alone(
    text_statistics: Make, detector: Detector, column: str, bad: float
) -> None:
    statistics = statistics_of(text_statistics, P, TOKENS)
    temperatures = statistics.get_extra(TEMPERATURES)
    values = getattr(temperatures, column).copy()
    values[1, BETAS.index(0.5)] = bad
    extras = {TEMPERATURES: replace(temperatures, **{column: values})}
    found = detector.score(replace(statistics, extras=extras), [{"beta": 0.5}, {"beta": 2.0}])
    assert [one.status for one in found] == ["failed", "ok"]


@given(st.lists(st.lists(st.floats(0.01, 1.0), min_size=5, max_size=5), min_size=1, max_size=12), st.data())
def test_a_likelier_text_never_scores_lower(
    text_statistics: Make, weights: list[list[float]], data: st.DataObject
) -> None:
    p = np.array(weights)
    p /= p.sum(1, keepdims=True)
    # Every token occurs once: what counts does not change with the tokens.
    tokens = data.draw(st.lists(st.integers(0, 4), min_size=len(p), max_size=len(p)))
    worse = statistics_of(text_statistics, p, tokens)
    likelier = statistics_of(text_statistics, p, p.argmax(1).tolist())
    ids = np.arange(len(p), dtype=np.int32)
    worse, likelier = (replace(one, columns={**one.columns, "token_id": ids}) for one in (worse, likelier))
    for detector in (ACMIA_AC, ACMIA_NORM_AC):
        settings = [{"beta": beta} for beta in detector.parameters["beta"].values]
        for low, high in zip(detector.score(worse, settings), detector.score(likelier, settings), strict=True):
            assert low.score is not None
            assert high.score is not None
            assert low.score <= high.score + 1e-4 * max(1.0, abs(high.score))
