"""Max-Rényi: entropies by hand, the share of positions that is averaged, and missing power sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.detectors.detector import Settings
from audit_pipeline.detectors.detector_inputs import PowerSums, TextStatistics, UnmetNeed
from audit_pipeline.detectors.max_renyi import MAX_RENYI, POWER_SUMS
from audit_pipeline.detectors.registry import parse_overrides

Make = Callable[..., TextStatistics]
# A certain position, and one of two equal tokens among p = 0, which are taken for 1e-10 under the root.
P = np.array([[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])


def statistics_of(make: Make, p: np.ndarray) -> TextStatistics:
    log_p = np.log(np.where(p > 0, p, 1.0))
    best = np.log(p.max(1)).tolist()
    own = make(best, mean=(p * log_p).sum(1).tolist(), max_logprob=best)
    sums = PowerSums(
        np.log((p**2).sum(1)).astype(np.float32), np.log(np.sqrt(np.maximum(p, 1e-10)).sum(1)).astype(np.float32)
    )
    return replace(own, extras={POWER_SUMS: sums})


def scores(statistics: TextStatistics, settings: Sequence[Settings]) -> list[float | None]:
    return [outcome.score for outcome in MAX_RENYI.score(statistics, settings)]


@pytest.mark.parametrize("alpha", ["0.5", "1", "2", "inf"])
def test_the_entropy_of_k_equal_tokens_is_log_k_in_every_order(text_statistics: Make, alpha: str) -> None:
    statistics = statistics_of(text_statistics, P)
    # Of 3 positions 0 and .5 select one, 1 all of them.
    settings = [{"alpha": alpha, "k": k, "select": select} for select in ("max", "min") for k in (0.0, 0.5, 0.7, 1.0)]
    floor = [2 * math.log(1 + 3e-5), 2 * math.log(2 * math.sqrt(0.5) + 2e-5)] if alpha == "0.5" else [0.0, math.log(2)]
    one, two, four = *floor, math.log(4)
    highest, lowest, every = -four, -one, -(one + two + four) / 3
    by_hand = [highest, highest, -(two + four) / 2, every, lowest, lowest, -(one + two) / 2, every]
    assert scores(statistics, settings) == pytest.approx(by_hand, abs=1e-6)


def test_only_orders_that_read_power_sums_need_them(text_statistics: Make) -> None:
    statistics = replace(statistics_of(text_statistics, P), extras={POWER_SUMS: UnmetNeed("not run")})
    found = MAX_RENYI.score(statistics, [{"alpha": alpha} for alpha in ("0.5", "1", "2", "inf")])
    assert [(one.status, one.reason) for one in found] == [
        ("not_applicable", "not run"),
        ("ok", None),
        ("not_applicable", "not run"),
        ("ok", None),
    ]


@given(
    st.lists(st.lists(st.floats(1e-6, 1.0), min_size=4, max_size=4), min_size=1, max_size=20),
    st.floats(0.0, 1.0),
    st.sampled_from(["0.5", "1", "2", "inf"]),
)
def test_more_positions_and_higher_orders_never_score_lower(
    text_statistics: Make, weights: list[list[float]], k: float, alpha: str
) -> None:
    p = np.array(weights)
    p /= p.sum(1, keepdims=True)
    statistics = statistics_of(text_statistics, p)
    least, some, every = scores(statistics, [{"alpha": alpha, "k": share} for share in (0.0, k, 1.0)])
    assert least is not None
    assert some is not None
    assert every is not None
    assert least <= some + 1e-6
    assert some <= every + 1e-6
    low, high = scores(statistics, [{"alpha": alpha, "k": k, "select": select} for select in ("max", "min")])
    assert low is not None
    assert high is not None
    assert low <= high + 1e-9
    orders = scores(statistics, [{"alpha": order, "k": k} for order in ("0.5", "1", "2", "inf")])
    assert np.diff(np.array(orders, dtype=float)).min() >= -1e-4, "an entropy falls with its order"


def test_the_label_of_the_published_form_omits_its_switch() -> None:
    assert MAX_RENYI.to_json({"alpha": "2", "k": 0.0}) == '{"alpha":"2","k":0.0}'
    assert MAX_RENYI.to_json({"select": "min"}) == '{"alpha":"1","k":0.1,"select":"min"}'


@pytest.mark.parametrize(
    ("written", "order"), [("1.0", "1"), ("2.0", "2"), (".5", "0.5"), ("0.5", "0.5"), ("2", "2"), ("inf", "inf")]
)
def test_an_order_may_be_written_as_a_number(written: str, order: str) -> None:
    assert parse_overrides([f"max_renyi.alpha={written}"]) == {"max_renyi": {"alpha": order}}
