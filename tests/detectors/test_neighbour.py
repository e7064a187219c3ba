import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.detectors import registry
from audit_pipeline.detectors.perturbed import NEIGHBOUR, NEIGHBOURS
from audit_pipeline.errors import ConfigError

logprobs = st.lists(st.floats(-30, 0, width=32), min_size=1, max_size=12)


def scored(text_statistics, own, neighbours, ns):
    extras = {NEIGHBOURS: [text_statistics(one) for one in neighbours]}
    return NEIGHBOUR.score(text_statistics(own, extras=extras), [{"n": n} for n in ns])


def test_neighbour_by_hand(text_statistics):
    neighbours = [[-4.0, -4.0], [-6.0], [-5.0, -9.0, -10.0]]  # means -4, -6, -8
    outcomes = scored(text_statistics, [-1.0, -3.0], neighbours, [1, 2, 3])
    assert [one.score for one in outcomes] == [2.0, 3.0, 4.0]


@given(own=logprobs, neighbours=st.lists(logprobs, min_size=1, max_size=30), data=st.data())
def test_neighbour_equals_its_twin(text_statistics, own, neighbours, data):
    ns = data.draw(st.lists(st.integers(1, len(neighbours)), min_size=1, max_size=4))
    outcomes = scored(text_statistics, own, neighbours, ns)
    for n, outcome in zip(ns, outcomes, strict=True):
        means = [math.fsum(one) / len(one) for one in neighbours[:n]]
        assert outcome.score == pytest.approx(math.fsum(own) / len(own) - math.fsum(means) / n, rel=1e-9, abs=1e-9)


def test_too_few_neighbours_are_not_applicable(text_statistics):
    few, many = scored(text_statistics, [-1.0], [[-2.0]] * 7, [7, 8])
    assert few == (1.0, "ok", None)
    assert many == (None, "not_applicable", "the text has 7 neighbours, but the score averages 8")


def test_a_neighbour_without_a_scored_token_does_not_count(text_statistics):
    two, three = scored(text_statistics, [-1.0], [[-2.0], [], [-4.0]], [2, 3])
    assert two.score == 2.0
    assert three.status == "not_applicable"


def test_a_neighbour_that_is_not_finite_fails_only_the_settings_that_average_it(text_statistics):
    outcomes = scored(text_statistics, [-1.0], [[-2.0], [math.nan], [-2.0]], [1, 2, 3])
    assert [one.status for one in outcomes] == ["ok", "failed", "failed"]
    assert [one.status for one in scored(text_statistics, [math.nan], [[-2.0]], [1])] == ["failed"]


def test_the_grid_is_served_by_the_first_neighbours():
    assert [NEIGHBOUR.to_json(one) for one in registry.expand_settings(NEIGHBOUR, grid=True)] == [
        '{"n":5}',
        '{"n":10}',
        '{"n":25}',
    ]
    assert NEIGHBOUR.to_json({}) == '{"n":25}'
    with pytest.raises(ConfigError, match="whole number above 0"):
        registry.parse_overrides(["neighbour.n=0"])
