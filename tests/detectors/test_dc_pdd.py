"""DC-PDD against values computed by hand and against the equations of the paper."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.detectors.dc_pdd import DC_PDD, FREQUENCY_TABLE, find_first_occurrences
from audit_pipeline.detectors.detector_inputs import TextStatistics, TokenFrequencies
from audit_pipeline.detectors.registry import select_detectors
from audit_pipeline.errors import ConfigError

Make = Callable[..., TextStatistics]
CLD = {"lup": False, "sfo": False}
LUP = {"sfo": False}
VOCABULARY = 7


def with_table(statistics: TextStatistics, ids: Sequence[int], counts: Sequence[int], v: int) -> TextStatistics:
    table = TokenFrequencies(np.array(counts, dtype=np.int64), v)
    columns = {**statistics.columns, "token_id": np.array(ids, dtype=np.int32)}
    return dataclasses.replace(statistics, columns=columns, extras={FREQUENCY_TABLE: table})


def test_by_hand(text_statistics: Make) -> None:
    # N = 13, V = 3: f = 8/16, 4/16, 4/16. -log2 f = 1, 2, 2; p = 1/2, 1/4, 1/8, 1/2 of tokens 0, 1, 2, 0.
    logprobs = [math.log(p) for p in (1 / 2, 1 / 4, 1 / 8, 1 / 2)]
    statistics = with_table(text_statistics(logprobs), [0, 1, 2, 0], [7, 3, 3], 3)
    ln2 = math.log(2)
    # alpha / ln 2 = 1/2, 1/2, 1/4, 1/2
    settings = [{"a": 10.0}, {"a": 0.3 * ln2}, {"a": 10.0, **CLD}, {"a": 0.3 * ln2, **LUP}, {"a": 0.3 * ln2, **CLD}]
    wanted = [1.25 / 3, 0.85 / 3, 1.75 / 4, 1.15 / 4, 1.75 / 4]
    found = [outcome.score for outcome in DC_PDD.score(statistics, settings)]
    assert found == pytest.approx([value * ln2 for value in wanted], rel=1e-6)


def test_a_token_with_count_zero_has_frequency_one_in_n_plus_v(text_statistics: Make) -> None:
    statistics = with_table(text_statistics([0.0]), [2], [6, 0, 0], 4)
    assert DC_PDD.score(statistics, [{"a": 10.0}])[0].score == pytest.approx(math.log(10))


def test_the_vocabulary_size_comes_from_the_model(text_statistics: Make) -> None:
    small, large = (with_table(text_statistics([0.0]), [0], [1, 1, 0, 0], v) for v in (2, 4))
    assert DC_PDD.score(small, [{"a": 10.0}])[0].score == pytest.approx(math.log(2))
    assert DC_PDD.score(large, [{"a": 10.0}])[0].score == pytest.approx(math.log(3))


@given(
    counts=st.lists(st.integers(1, 500), min_size=VOCABULARY, max_size=VOCABULARY),
    tokens=st.lists(st.tuples(st.integers(0, VOCABULARY - 1), st.floats(-20, -1e-3)), min_size=1, max_size=30),
    a=st.sampled_from([0.001, 0.01, 0.1, 1.0, 10.0]),
    switches=st.sampled_from([{}, CLD, LUP, {"lup": False}]),
)
def test_the_twin_agrees(
    text_statistics: Make, counts: list[int], tokens: list[tuple[int, float]], a: float, switches: dict[str, bool]
) -> None:
    ids = [token for token, _ in tokens]
    logprobs = np.array([logprob for _, logprob in tokens], dtype=np.float32)
    statistics = with_table(text_statistics(logprobs), ids, counts, VOCABULARY)
    setting = {"a": a, **switches}
    [outcome] = DC_PDD.score(statistics, [setting])
    assert outcome.status == "ok"
    assert outcome.score is not None
    alphas: dict[int, float] = {}
    for place, (token, logprob) in enumerate(zip(ids, logprobs.tolist(), strict=True)):
        # Equations 4 to 8, with Python's own numbers.
        alpha = -math.exp(logprob) * math.log((counts[token] + 1) / (sum(counts) + VOCABULARY))
        if switches.get("lup", True):
            alpha = min(alpha, a)
        alphas.setdefault(token if switches.get("sfo", True) else place, alpha)
    assert outcome.score == pytest.approx(math.fsum(alphas.values()) / len(alphas), rel=1e-9)
    assert outcome.score >= 0
    if switches.get("lup", True):
        assert outcome.score <= a * (1 + 1e-12)
    # Higher means more likely a member: a model that finds every token likelier never scores the text lower.
    likelier = dataclasses.replace(
        statistics, columns={**statistics.columns, "logprob": np.minimum(logprobs + 0.5, 0).astype(np.float32)}
    )
    higher = DC_PDD.score(likelier, [setting])[0].score
    assert higher is not None
    assert higher >= outcome.score * (1 - 1e-12)


@given(st.lists(st.integers(0, 5), min_size=1))
def test_first_occurrences(ids: list[int]) -> None:
    assert find_first_occurrences(ids).tolist() == [place for place, one in enumerate(ids) if one not in ids[:place]]


@pytest.mark.parametrize("token", [3, 49152, -1])
def test_a_token_outside_the_table_fails_and_is_named(text_statistics: Make, token: int) -> None:
    statistics = with_table(text_statistics([-1.0, -2.0]), [0, token], [5, 1, 2], 3)
    outcomes = DC_PDD.score(statistics, [{"a": 0.01}, {"a": 1.0}])
    assert [outcome.status for outcome in outcomes] == ["failed", "failed"]
    assert (
        outcomes[0].reason
        == f"token {token} is not in the frequency table, which ends at token 2. Rebuild token_frequencies."
    )


def test_the_grid_is_that_of_the_paper_and_default_switches_are_omitted_from_labels() -> None:
    [(detector, settings)] = select_detectors(["dc_pdd"], grid=True)
    assert detector is DC_PDD
    assert [json.loads(detector.to_json(one)) for one in settings] == [{"a": a} for a in (0.001, 0.01, 0.1, 1.0, 10.0)]
    assert json.loads(detector.to_json({})) == {"a": 0.01}
    assert json.loads(detector.to_json(CLD)) == {"a": 0.01, "lup": False, "sfo": False}
    for wrong in ("0", "-1", "inf", "nan", "x"):
        with pytest.raises(ConfigError):
            DC_PDD.parameters["a"].parse(wrong)
