import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.detectors import registry
from audit_pipeline.detectors.reference import REFERENCE, REFERENCE_MODEL, WBC_WINDOWS, compute_vote_share

BOTH = [{"form": "difference"}, {"form": "ratio"}]
logprobs = st.lists(st.floats(-30, -(2**-10), width=32), min_size=1, max_size=40)
EVERY = [*BOTH, {"form": "wbc"}]


def scored(text_statistics, own, reference, settings=BOTH):
    return REFERENCE.score(text_statistics(own, extras={REFERENCE_MODEL: text_statistics(reference)}), settings)


def test_reference_by_hand(text_statistics):
    # means -2 and -8: 6 nats per token likelier, a quarter of the loss
    outcomes = scored(text_statistics, [-1.0, -3.0], [-7.0, -8.0, -9.0])
    assert outcomes == [(6.0, "ok", None), (-0.25, "ok", None)]


def test_the_difference_is_the_default_and_the_grid_has_every_form(text_statistics):
    assert scored(text_statistics, [-1.0], [-4.0], [{}]) == [(3.0, "ok", None)]
    labels = [REFERENCE.to_json(one) for one in registry.expand_settings(REFERENCE, grid=True)]
    assert labels == ['{"form":"difference"}', '{"form":"ratio"}', '{"form":"wbc"}']
    assert registry.parse_overrides(["reference.form=ratio"]) == {"reference": {"form": "ratio"}}


@given(own=logprobs, reference=logprobs)
def test_both_forms_equal_their_twins(text_statistics, own, reference):
    l_own, l_reference = math.fsum(own) / len(own), math.fsum(reference) / len(reference)
    difference, ratio = scored(text_statistics, own, reference)
    assert difference.score == pytest.approx(l_own - l_reference, rel=1e-12, abs=1e-12)
    assert ratio.score == pytest.approx(-(l_own / l_reference), rel=1e-12)


@given(own=logprobs, reference=logprobs)
def test_higher_means_likelier_under_the_audited_model(text_statistics, own, reference):
    likelier = scored(text_statistics, [value / 2 for value in own], reference)
    for more, less in zip(likelier, scored(text_statistics, own, reference), strict=True):
        assert more.score > less.score


def test_a_reference_loss_of_exactly_zero(text_statistics):
    difference, ratio = scored(text_statistics, [-2.0], [0.0, 0.0])
    assert difference == (-2.0, "ok", None)
    assert (ratio.score, ratio.status) == (None, "not_applicable")
    assert "is 0" in ratio.reason


def test_votes_by_hand(text_statistics):
    own, other = [-1.0, -5.0, -1.0], [-2.0, -2.0, -2.0]
    assert compute_vote_share(own, other, [1]) == pytest.approx(2 / 3)
    assert compute_vote_share(own, other, [2]) == 0.0
    assert compute_vote_share(own, other, [2, 1, 1, 2]) == pytest.approx(1 / 3)
    assert compute_vote_share(own, other, [40]) == compute_vote_share(own, other, [3]) == 0.0, (
        "a window beyond the text is the whole of it"
    )
    assert compute_vote_share([-1.0, -3.0], [-3.0, -1.0], [2]) == 0.0, "equal sums are no vote"
    [outcome] = scored(text_statistics, own, other, [{"form": "wbc"}])
    assert outcome == (0.0, "ok", None)
    assert WBC_WINDOWS == (2, 3, 4, 6, 9, 13, 18, 25, 32, 40)


@given(pairs=st.lists(st.tuples(st.integers(-30, 0), st.integers(-30, 0)), min_size=1, max_size=60))
def test_votes_equal_their_twin_and_turn_with_the_sides(text_statistics, pairs):
    own, other = ([float(value) for value in side] for side in zip(*pairs, strict=True))
    [outcome] = scored(text_statistics, own, other, [{"form": "wbc"}])
    shares = []
    # The values are whole numbers, so their sums are exact.
    for window in (min(one, len(own)) for one in WBC_WINDOWS):
        sums = [(sum(own[at : at + window]), sum(other[at : at + window])) for at in range(len(own) - window + 1)]
        shares.append(sum(mine > theirs for mine, theirs in sums) / len(sums))
    assert outcome.score == pytest.approx(sum(shares) / len(WBC_WINDOWS), abs=1e-12)
    [turned] = scored(text_statistics, other, own, [{"form": "wbc"}])
    assert outcome.score + turned.score <= 1 + 1e-12
    [likelier] = scored(text_statistics, [value / 2 for value in own], other, [{"form": "wbc"}])
    assert likelier.score >= outcome.score


def test_votes_need_the_same_tokens(text_statistics):
    reference = text_statistics([-1.0, -2.0], token_id=[0, 7])
    own = text_statistics([-1.0, -2.0], token_id=[0, 8], extras={REFERENCE_MODEL: reference})
    difference, wbc = REFERENCE.score(own, [{}, {"form": "wbc"}])
    assert (difference.score, wbc.score, wbc.status) == (0.0, None, "not_applicable")
    assert wbc.reason == "the reference model does not score the same tokens of the text"


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
@pytest.mark.parametrize("sides", [0, 1])
def test_a_bad_value_on_either_side_fails(text_statistics, bad, sides):
    given_values = [[-1.0, bad], [-1.0, -1.0]] if sides == 0 else [[-1.0, -1.0], [bad, -1.0]]
    assert {(one.score, one.status) for one in scored(text_statistics, *given_values, EVERY)} == {(None, "failed")}
