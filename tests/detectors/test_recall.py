"""The text after a prefix compared with the text alone, computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from audit_pipeline.detectors.detector import Outcome
from audit_pipeline.detectors.detector_inputs import TextStatistics, UnmetNeed
from audit_pipeline.detectors.recall import CON_RECALL, MEMBER_PREFIX, NONMEMBER_PREFIX, RECALL
from audit_pipeline.errors import ConfigError

OWN = [-4.0, -2.0]
NON, MEM = [-3.0, -6.0, -6.0], [-1.0, -2.0, -3.0]


def statistics(own: list[float] = OWN, **extras: list[float] | UnmetNeed) -> TextStatistics:
    """Return the statistics of a text of three tokens. Two of them are scored without a prefix."""
    needs = {"non": NONMEMBER_PREFIX, "mem": MEMBER_PREFIX}
    found = {
        needs[side]: {(7, "none"): one if isinstance(one, UnmetNeed) else np.array(one, dtype=np.float32)}
        for side, one in extras.items()
    }
    return TextStatistics("a b c", {"logprob": np.array(own, dtype=np.float32)}, found)


def test_recall_is_the_quotient_of_means_over_all_and_over_scored_tokens() -> None:
    assert RECALL.score(statistics(non=NON), [{}]) == [Outcome.from_score(5 / 3)]


@pytest.mark.parametrize(("gamma", "expected"), [(0.5, (-5 + 0.5 * 2) / -3), (1.0, (-5 + 2) / -3)])
def test_con_recall_subtracts_gamma_times_the_members(gamma: float, expected: float) -> None:
    [found] = CON_RECALL.score(statistics(non=NON, mem=MEM), [{"gamma": gamma}])
    assert found.score == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("side", ["non", "mem"])
def test_the_reason_for_a_missing_prefix_is_the_reason_of_the_score(side: str) -> None:
    extras: dict[str, list[float] | UnmetNeed] = {"non": NON, "mem": MEM, side: UnmetNeed("why")}
    assert CON_RECALL.score(statistics(**extras), [{}]) == [Outcome.not_applicable("why")]


def test_a_mean_of_zero_is_not_applicable_and_infinity_fails() -> None:
    assert RECALL.score(statistics([0.0, 0.0], non=NON), [{}])[0].status == "not_applicable"
    assert RECALL.score(statistics(non=[-np.inf, -1.0]), [{}])[0].status == "failed"


@pytest.mark.parametrize(("parameter", "value"), [("shots", 0), ("shots", 7.0), ("join", "tab")])
def test_unusable_shots_and_joins_are_refused(parameter: str, value: int | float | str) -> None:
    with pytest.raises(ConfigError, match="is not"):
        RECALL.parameters[parameter].validate(value)


def test_gamma_is_fixed_in_a_grid() -> None:
    assert CON_RECALL.parameters["gamma"].values == (0.5,)
    assert RECALL.parameters["shots"].values == (1, 4, 7)
