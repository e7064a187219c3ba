import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.detectors.curvature import CURVATURE
from audit_pipeline.detectors.loss import LOG_RANK

tokens = st.lists(
    st.tuples(st.floats(-30, 0, width=32), st.floats(-12, 0, width=32), st.floats(0.0625, 8, width=32)),
    min_size=1,
    max_size=40,
)
ranks = st.lists(st.integers(0, 200_000), min_size=1, max_size=60)


def curvature(text_statistics, drawn):
    logprob, mean, std = zip(*drawn, strict=True)
    [outcome] = CURVATURE.score(text_statistics(logprob, mean=mean, std=std), [{}])
    return outcome


def log_rank(text_statistics, own):
    [outcome] = LOG_RANK.score(text_statistics([-1.0] * len(own), rank=own), [{}])
    return outcome.score


def test_curvature_by_hand(text_statistics):
    # -5 against an expected -8, variances 9 + 16
    assert curvature(text_statistics, [(-1.0, -3.0, 3.0), (-4.0, -5.0, 4.0)]) == (3 / 5, "ok", None)


def test_curvature_is_not_applicable_only_if_every_deviation_is_zero(text_statistics):
    assert curvature(text_statistics, [(-1.0, -3.0, 0.0), (-4.0, -5.0, 2.0)]).score == 1.5
    everywhere = curvature(text_statistics, [(-1.0, -1.0, 0.0), (0.0, 0.0, 0.0)])
    assert (everywhere.score, everywhere.status) == (None, "not_applicable")


@given(drawn=tokens)
def test_curvature_equals_its_twin(text_statistics, drawn):
    above = math.fsum(logprob - mean for logprob, mean, _ in drawn)
    expected = above / math.sqrt(math.fsum(std**2 for _, _, std in drawn))
    assert curvature(text_statistics, drawn).score == pytest.approx(expected, rel=1e-12, abs=1e-11)


@given(drawn=tokens, by=st.floats(0.5, 4))
def test_a_likelier_text_has_a_higher_curvature_and_order_does_not_matter(text_statistics, drawn, by):
    score = curvature(text_statistics, drawn).score
    assert curvature(text_statistics, [(logprob + by, mean, std) for logprob, mean, std in drawn]).score > score
    assert curvature(text_statistics, drawn[::-1]).score == pytest.approx(score, rel=1e-12, abs=1e-11)


def test_log_rank_by_hand(text_statistics):
    assert log_rank(text_statistics, [0, 0]) == 0.0
    assert log_rank(text_statistics, [0, 1, 7]) == pytest.approx(-(math.log(2) + math.log(8)) / 3)


@given(own=ranks)
def test_log_rank_equals_its_twin_and_a_better_rank_never_scores_lower(text_statistics, own):
    score = log_rank(text_statistics, own)
    assert score == pytest.approx(-math.fsum(math.log(rank + 1) for rank in own) / len(own), rel=1e-12, abs=1e-300)
    assert log_rank(text_statistics, [rank // 2 for rank in own]) >= score
    assert log_rank(text_statistics, own[::-1]) == pytest.approx(score, rel=1e-12, abs=1e-300)
