"""The combination of detectors by their ranks, also without any training."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.detectors.combined import COMBINED, DEFAULT, RANKS, join_detector_names, split_detector_names
from audit_pipeline.detectors.detector import UNKNOWN_LOGPROB
from audit_pipeline.detectors.detector_inputs import TextStatistics, UnmetNeed
from audit_pipeline.detectors.registry import ONE_PASS, parse_overrides
from audit_pipeline.errors import ConfigError
from audit_pipeline.scoring.needs.unchanged_text import rank_texts_by_detectors
from audit_pipeline.statistics.conformal import compute_conformal_p_values
from audit_pipeline.statistics.intervals import measure_auroc_of_scores
from audit_pipeline.tables import MEMBER

Make = Callable[..., TextStatistics]
LOSS_AND_MIN_K = [ONE_PASS["loss"], ONE_PASS["min_k"]]
PARTS = [ONE_PASS[name] for name in DEFAULT]


def combined(found: dict[str, TextStatistics]) -> dict[str, float]:
    """Return the combined score of each text, by the default list."""
    of = join_detector_names(DEFAULT)
    scores = {}
    for text, own in rank_texts_by_detectors(found, PARTS).items():
        statistics = TextStatistics(found[text].text, found[text].columns, {RANKS: {of: own}})
        scores[text] = COMBINED.score(statistics, [{"of": of}])[0].score
    return scores  # type: ignore[return-value]


def test_ranks_by_hand(text_statistics: Make) -> None:
    """The means are -2, -1, -2, -3, and the lowest tokens are -3, -1, -3, -5. Two texts tie for the ranks 2 and 3."""
    of_text = {"a": [-1.0, -3.0], "b": [-1.0, -1.0], "c": [-3.0, -1.0], "d": [-5.0, -1.0, -3.0]}
    found = {text: text_statistics(values, text=text) for text, values in of_text.items()}
    assert rank_texts_by_detectors(found, LOSS_AND_MIN_K) == {
        "a": [0.625, 0.625],
        "b": [1.0, 1.0],
        "c": [0.625, 0.625],
        "d": [0.25, 0.25],
    }


def test_the_score_is_the_mean_of_the_ranks(text_statistics: Make) -> None:
    statistics = text_statistics([-1.0])
    given = {"loss,zlib": [0.5, 1.0], "loss,min_k": UnmetNeed("min_k does not score the text: for a reason")}
    statistics = TextStatistics(statistics.text, statistics.columns, {RANKS: given})
    scored, refused = COMBINED.score(statistics, [{"of": of} for of in given])
    assert (scored.score, scored.status) == (0.75, "ok")
    assert refused == (None, "not_applicable", "min_k does not score the text: for a reason")


def test_a_text_without_a_score_by_every_detector_is_not_ranked(text_statistics: Make) -> None:
    found = {"good": text_statistics([-1.0]), "bad": text_statistics([math.nan]), "none": text_statistics([])}
    ranked = rank_texts_by_detectors(found, LOSS_AND_MIN_K)
    assert ranked["good"] == [1.0, 1.0], "alone among those that both score"
    assert ranked["bad"] == UnmetNeed(f"loss does not score the text: {UNKNOWN_LOGPROB}")
    assert ranked["none"] == UnmetNeed("loss does not score the text: the text has no scored token")
    assert rank_texts_by_detectors({}, LOSS_AND_MIN_K) == {}


LOGPROBS = st.lists(st.floats(-20, -0.5, width=32), min_size=1, max_size=8)


@given(texts=st.lists(LOGPROBS, min_size=1, max_size=12), seed=st.randoms())
def test_ranks_do_not_depend_on_the_order_of_texts(
    text_statistics: Make, texts: list[list[float]], seed: object
) -> None:
    """In any order each text has the same score in (0, 1], and the sum of the scores is that of ranks."""
    found = {str(place): text_statistics(values) for place, values in enumerate(texts)}
    shuffled = list(found)
    seed.shuffle(shuffled)  # type: ignore[attr-defined]
    scores = combined(found)
    assert combined({text: found[text] for text in shuffled}) == pytest.approx(scores)
    assert all(0 < score <= 1 for score in scores.values())
    assert sum(scores.values()) == pytest.approx((len(texts) + 1) / 2)


@pytest.mark.parametrize("n", [20, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_p_values_against_calibration_texts_reach_their_level(text_statistics: Make, shift: float, n: int) -> None:
    """Ranks are pooled over calibration and audited texts. P-values of unread texts are still uniform, whether other
    audited texts were read (``shift``) or not."""
    generator, p_values, held = np.random.default_rng(15), [], 0
    for _ in range(n):
        every = []
        # 39 calibration texts, 15 texts that were not read, and 15 texts that were read.
        for level_shift in [0.0] * 54 + [shift] * 15:
            tokens, level = generator.integers(20, 40), generator.normal(-3, 0.4)
            logprob = np.minimum(level + level_shift + generator.normal(0, 2, tokens), -1e-3)
            words = " ".join(map(str, generator.integers(0, 1000, tokens)))
            every.append(text_statistics(logprob, words, mean=logprob - 1, std=generator.uniform(1, 3, tokens)))
        scores = np.array(list(combined({str(place): one for place, one in enumerate(every)}).values()))
        p_values.append(compute_conformal_p_values(scores[39:54], scores[:39]))
        labels = np.repeat([1 - MEMBER, MEMBER], [54, 15])
        interval = measure_auroc_of_scores(scores, labels, range(len(scores))).interval
        assert interval.low is not None
        assert interval.high is not None
        held += interval.low <= 0.5 <= interval.high
    for level in (0.05, 0.1, 0.2, 0.5):
        shares = (np.array(p_values) <= level + 1e-9).mean(axis=1)
        error = shares.std(ddof=1) / np.sqrt(n)
        # Ties of mean ranks count against significance, so the share may lie a little below.
        assert level - 0.01 - 3 * error <= shares.mean() <= level + 3 * error
    if shift:
        assert held < 0.2 * n, "the test of the interval can fail"
    else:
        assert held >= 0.95 * n - 3 * np.sqrt(0.95 * 0.05 * n)


@pytest.mark.parametrize("of", ["", "loss", "loss,loss", "loss,", "loss, zlib"])
def test_a_list_names_at_least_two_detectors_without_repetition(of: str) -> None:
    with pytest.raises(ConfigError, match=r"combined\.of: '.*' is not two or more detectors"):
        parse_overrides([f"combined.of={of}"])
    assert parse_overrides(["combined.of=zlib,loss"]) == {"combined": {"of": "zlib,loss"}}


def test_the_default_list_contains_one_pass_detectors_only() -> None:
    assert split_detector_names(str(COMBINED.default["of"])) == list(DEFAULT)
    assert set(DEFAULT) <= set(ONE_PASS)
    assert COMBINED.name not in ONE_PASS
