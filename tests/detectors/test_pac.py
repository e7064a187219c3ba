import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.detectors.perturbed import COPIES, PAC, CopySettings, compute_polarized_distance

logprobs = st.lists(st.floats(-30, 0, width=32), min_size=1, max_size=80)


def scored(text_statistics, own, copies, text="two words"):
    ways = {
        CopySettings(0.3, len(copies), "text"): [text_statistics(one, f"copy {at}") for at, one in enumerate(copies)]
    }
    return PAC.score(text_statistics(own, text, {COPIES: ways}), [{"n": len(copies)}])[0]


def twin(values):
    n, ordered = len(values), sorted(values)
    lowest, highest = ordered[: max(1, int(n * 0.3))], ordered[n - max(1, int(n * 0.05)) :]
    return math.fsum(highest) / len(highest) - math.fsum(lowest) / len(lowest)


def test_the_distance_by_hand():
    assert compute_polarized_distance([-1.0, -2.0, -8.0]) == 7.0
    assert compute_polarized_distance([-3.0]) == 0.0
    # Of 40 tokens the 2 highest and the 12 lowest.
    assert compute_polarized_distance([-float(step) for step in range(40)]) == pytest.approx(-0.5 + (28 + 39) / 2)


@given(values=logprobs)
def test_the_distance_equals_its_twin(values):
    assert compute_polarized_distance(values) == pytest.approx(twin(values), rel=1e-9, abs=1e-9)


def test_pac_by_hand(text_statistics):
    # Distances 3 and 7 of the copies, 2 of the text.
    assert scored(text_statistics, [-1.0, -3.0], [[-1.0, -4.0], [0.0, -7.0]]) == (3.0, "ok", None)
    assert PAC.to_json({}) == '{"alpha":0.3,"n":5}'
    assert PAC.to_json({"seeds": "stream"}) == '{"alpha":0.3,"n":5,"seeds":"stream"}'


@given(own=logprobs, copies=st.lists(logprobs, min_size=1, max_size=4))
def test_pac_equals_its_twin_and_the_order_of_copies_does_not_matter(text_statistics, own, copies):
    found = scored(text_statistics, own, copies).score
    assert found == pytest.approx(math.fsum(map(twin, copies)) / len(copies) - twin(own), rel=1e-9, abs=1e-9)
    assert scored(text_statistics, own, copies[::-1]).score == pytest.approx(found, rel=1e-9, abs=1e-9)


@given(own=logprobs, copies=st.lists(logprobs, min_size=1, max_size=4))
def test_copies_that_lose_more_score_higher(text_statistics, own, copies):
    worse = [[value * 2 for value in one] for one in copies]
    assert scored(text_statistics, own, worse).score >= scored(text_statistics, own, copies).score - 1e-9


def test_copies_equal_to_the_text_or_without_a_token_are_not_applicable(text_statistics):
    same = {CopySettings(0.3, 1, "text"): [text_statistics([-1.0], "word")]}
    [outcome] = PAC.score(text_statistics([-1.0], "word", {COPIES: same}), [{"n": 1}])
    assert (outcome.score, outcome.status) == (None, "not_applicable")
    assert "no copy differs" in outcome.reason
    assert scored(text_statistics, [-1.0], [[-1.0], []]).status == "not_applicable"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_bad_value_on_either_side_fails(text_statistics, bad):
    assert scored(text_statistics, [-1.0, bad], [[-1.0, -2.0]]).status == "failed"
    assert scored(text_statistics, [-1.0, -2.0], [[-1.0, -2.0], [-1.0, bad]]).status == "failed"
