import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.detectors import registry
from audit_pipeline.detectors.surp import SURP

GRID = registry.expand_settings(SURP, grid=True)
tokens = st.lists(
    st.tuples(st.floats(-30, 0, width=32), st.floats(0, 8, width=32)),
    min_size=1,
    max_size=60,
)


def of(text_statistics, drawn):
    """Return statistics of (log-probability, entropy)."""
    logprob, entropy = zip(*drawn, strict=True)
    return text_statistics(logprob, mean=[-one for one in entropy])


def test_surp_by_hand(text_statistics):
    statistics = of(text_statistics, [(-9.0, 3.0), (-1.0, 0.1), (-8.0, 1.0), (-5.0, 1.5), (-0.5, 0.5)])
    # The two lowest are -9 and -8, and the model is sure of itself at the second only; three of five: -5, too.
    found = SURP.score(statistics, [{}, {"k": 0.6}, {"k": 0.6, "max_entropy": 4.0}])
    assert [one.score for one in found] == [-8.0, -6.5, pytest.approx(-22 / 3)]
    assert SURP.to_json({}) == '{"k":0.4,"max_entropy":2.0}'


def test_the_entropy_must_be_strictly_below_the_limit(text_statistics):
    statistics = of(text_statistics, [(-9.0, 2.0), (-8.0, 1.0), (-1.0, 0.1), (-1.0, 0.1), (-1.0, 0.1)])
    assert [one.score for one in SURP.score(statistics, [{}])] == [-8.0]


def test_nothing_selected_is_not_applicable(text_statistics):
    short = of(text_statistics, [(-9.0, 0.5), (-1.0, 0.5)])
    none, one = SURP.score(short, [{"k": 0.4}, {"k": 0.5}])
    assert (none.score, none.status, none.reason) == (
        None,
        "not_applicable",
        "k=0.4 selects no token: the text has too few scored tokens",
    )
    assert one.score == -9.0
    unsure = of(text_statistics, [(-9.0, 2.0), (-8.0, 3.0), (-1.0, 0.1), (-1.0, 0.1), (-1.0, 0.1)])
    [outcome] = SURP.score(unsure, [{}])
    assert (outcome.score, outcome.status) == (None, "not_applicable")
    assert outcome.reason == ("no surprising token: the entropy is 2 or more at each of the least likely tokens")


@given(drawn=st.lists(tokens, min_size=2, max_size=2))
def test_reasons_do_not_depend_on_the_text(text_statistics, drawn):
    one, other = (SURP.score(of(text_statistics, text), GRID) for text in drawn)
    for mine, theirs in zip(one, other, strict=True):
        if mine.reason and theirs.reason and mine.reason.startswith("k=") is theirs.reason.startswith("k="):
            assert mine.reason == theirs.reason


def test_of_equally_likely_tokens_the_first_are_selected(text_statistics):
    # Three tie for two places; the model is unsure at one of them.
    tied = [(-7.0, 1.0), (-7.0, 5.0), (-7.0, 1.0), (-0.5, 0.1), (-0.5, 0.1)]
    assert [one.score for one in SURP.score(of(text_statistics, tied), [{}])] == [-7.0]
    unsure_first = [(-7.0, 5.0), (-7.0, 5.0), (-7.0, 1.0), (-0.5, 0.1), (-0.5, 0.1)]
    assert [one.status for one in SURP.score(of(text_statistics, unsure_first), [{}])] == ["not_applicable"]


@given(drawn=tokens)
def test_surp_equals_its_twin(text_statistics, drawn):
    found = [one.score for one in SURP.score(of(text_statistics, drawn), GRID)]
    for ours, setting in zip(found, GRID, strict=True):
        places = sorted(range(len(drawn)), key=lambda place: (drawn[place][0], place))[: int(len(drawn) * setting["k"])]
        chosen = [drawn[place][0] for place in places if drawn[place][1] < setting["max_entropy"]]
        expected = pytest.approx(math.fsum(chosen) / len(chosen), rel=1e-12, abs=1e-300) if chosen else None
        assert ours == expected


@given(drawn=tokens)
def test_a_likelier_text_scores_higher(text_statistics, drawn):
    likelier = SURP.score(of(text_statistics, [(value / 2, entropy) for value, entropy in drawn]), GRID)
    for more, less in zip(likelier, SURP.score(of(text_statistics, drawn), GRID), strict=True):
        assert more.status == less.status
        assert less.score is None or more.score >= less.score
