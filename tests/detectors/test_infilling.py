"""The Infilling Score: computed by hand, and against loops that follow eq. 10 and 11 of the paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.detectors import infilling, registry
from audit_pipeline.detectors.detector_inputs import BranchStatistics, TextStatistics
from audit_pipeline.detectors.infilling import INFILLING, choose_future_token_count, compute_token_ratios


def floats(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


# Three tokens; the second is the model's own choice, the last has nothing behind it.
BRANCHES = BranchStatistics(m=2, offsets=ints(0, 2, 2, 2), logprob=floats(-2.5, -5), z=floats(0.1, -2))
TEXT = TextStatistics(
    "three tokens here",
    {
        "token_id": ints(0, 1, 2),
        "logprob": floats(-1, -2, -4),
        "mean": floats(-3, -3, -3),
        "std": floats(1, 2, 1),
        "max_logprob": floats(-0.5, -2, -1),
        "argmax_id": ints(9, 1, 7),
        "rank": ints(3, 0, 5),
    },
    extras={infilling.BRANCHES: BRANCHES},
)


# z of the text: 2, 0.5, -1; of the model's own choices: 2.5, 0.5, 2.
@pytest.mark.parametrize(
    ("m", "how", "expected"),
    [
        (0, {}, [2 - 2.5, 0, -1 - 2]),
        (1, {}, [-0.5 + (0.5 - 0.1), 0, -3]),
        (2, {}, [-0.5 + (0.5 - 0.1) + (-1 + 2), 0, -3]),
        (2, {"last_token": False}, [-0.5 + (0.5 - 0.1), 0, -3]),
        # By the original's moments the branch's values are (-2.5 + 3) / 2 and -5 + 3.
        (2, {"own_moments": False}, [-0.5 + (0.5 - 0.25) + (-1 + 2), 0, -3]),
    ],
)
def test_ratios_by_hand(m: int, how: dict[str, bool], expected: list[float]) -> None:
    np.testing.assert_allclose(compute_token_ratios(TEXT, BRANCHES, m, **how), expected, atol=1e-6)


def test_the_score_is_the_mean_of_the_lowest() -> None:
    settings = [{"k": 1.0, "m": 2}, {"k": 0.4, "m": 2}, {"k": 1.0, "m": 1, "last_token_as_future": False}]
    found = [one.score for one in INFILLING.score(TEXT, settings)]
    assert found == pytest.approx([(0.9 + 0 - 3) / 3, -3, (-0.1 + 0 - 3) / 3], abs=1e-6)


def test_an_m_longer_than_the_cached_branches_is_not_applicable() -> None:
    [two, three] = INFILLING.score(TEXT, [{"m": 2}, {"m": 3}])
    assert two.status == "ok"
    assert (three.status, three.score) == ("not_applicable", None)
    assert "m=3 requires branches of 3 tokens, but the cache has 2" in str(three.reason)


def test_values_that_are_not_finite_fail() -> None:
    broken = replace(BRANCHES, z=floats(0.1, np.nan))
    [found] = INFILLING.score(replace(TEXT, extras={infilling.BRANCHES: broken}), [{"m": 2}])
    assert found.status == "failed"


def test_labels_name_an_ablation_and_not_the_default() -> None:
    assert INFILLING.to_json({"k": 0.2, "m": 1}) == '{"k":0.2,"m":1}'
    assert INFILLING.to_json({"last_token_as_future": False}) == '{"k":0.2,"last_token_as_future":false,"m":5}'
    assert INFILLING.to_json({"branch_moments": "original"}) == '{"branch_moments":"original","k":0.2,"m":5}'
    assert registry.parse_overrides(["infilling.last_token_as_future=false"]) == {
        "infilling": {"last_token_as_future": False}
    }


def test_m_by_length() -> None:
    assert [choose_future_token_count(words) for words in (8, 32, 33, 256)] == [1, 1, 5, 5]


@given(
    n=st.integers(1, 12),
    branch_m=st.integers(1, 6),
    m=st.integers(0, 6),
    own=st.booleans(),
    last=st.booleans(),
    seed=st.integers(0, 1 << 20),
)
def test_ratios_equal_a_loop(
    text_statistics: Callable[..., TextStatistics], n: int, branch_m: int, m: int, own: bool, last: bool, seed: int
) -> None:
    number = np.random.default_rng(seed)
    is_argmax = number.random(n) < 0.4
    lengths = [0 if is_argmax[i] else min(branch_m, n - 1 - i) for i in range(n)]
    logprobs, z_values = number.normal(-4, 2, sum(lengths)), number.normal(0, 1, sum(lengths))
    branches = BranchStatistics(branch_m, ints(0, *np.cumsum(lengths)), floats(*logprobs), floats(*z_values))
    logprob = -np.abs(number.normal(4, 2, n))
    text = text_statistics(
        logprob,
        mean=number.normal(-6, 1, n),
        std=np.abs(number.normal(2, 1, n)),
        max_logprob=np.where(is_argmax, logprob, 0),
        argmax_id=np.where(is_argmax, np.arange(n), n + 1),
    )
    m = min(m, branch_m)

    def z(place: int, logprob: float) -> float:
        return (logprob - float(text.mean[place])) / max(float(text.std[place]), 1e-6)

    expected = []
    for i in range(n):
        if text.argmax_id[i] == text.token_id[i]:
            expected.append(0.0)
            continue
        ratio = z(i, float(text.logprob[i])) - z(i, float(text.max_logprob[i]))
        for step, j in enumerate(range(i + 1, min(i + m, n - 1 if last else n - 2) + 1)):
            at = int(branches.offsets[i]) + step
            branch = float(branches.z[at]) if own else z(j, float(branches.logprob[at]))
            ratio += z(j, float(text.logprob[j])) - branch
        expected.append(ratio)
    found = compute_token_ratios(text, branches, m, own_moments=own, last_token=last)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
