import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.detectors import registry
from audit_pipeline.detectors.error_zone import EPSILON, ERROR_ZONE
from audit_pipeline.detectors.reference import REFERENCE_MODEL

FORMS = [{"form": "log_ratio"}, {"form": "published"}]
logprobs = st.floats(-30, -(2**-10), width=32)
texts = st.lists(st.tuples(logprobs, logprobs, st.booleans()), min_size=1, max_size=40)


def scored(text_statistics, drawn, settings=FORMS):
    """Score (log-probability, log-probability under the reference, whether the model's first choice is wrong)."""
    own, reference, is_error = zip(*drawn, strict=True)
    token_id = range(len(drawn))
    argmax_id = [token + wrong for token, wrong in zip(token_id, is_error, strict=True)]
    extras = {REFERENCE_MODEL: text_statistics(reference, token_id=token_id)}
    return ERROR_ZONE.score(text_statistics(own, token_id=token_id, argmax_id=argmax_id, extras=extras), settings)


def sums(drawn):
    gain = loss = 0.0
    for own, reference, is_error in drawn[1:]:
        if is_error and own > reference:
            gain += own - reference
        if is_error and own < reference:
            loss += reference - own
    return gain, loss


def test_error_zone_by_hand(text_statistics):
    # The first token and the right first choices do not count: P = 2 + 4 = 6, N = 1.5.
    drawn = [(-1, -9, True), (-3, -5, True), (-2, -8, False), (-4, -2.5, True), (-1, -5, True), (-7, -1, False)]
    log_ratio, published = scored(text_statistics, drawn)
    assert log_ratio.score == pytest.approx(math.log(6.000001 / 1.500001), rel=1e-12)
    assert log_ratio.score == pytest.approx(math.log(4), abs=1e-6)
    assert published == (4.0, "ok", None)


def test_the_log_ratio_is_the_default_and_the_grid_has_both_forms(text_statistics):
    drawn = [(-1, -1, True), (-1, -3, True), (-3, -2, True)]
    assert scored(text_statistics, drawn, [{}]) == scored(text_statistics, drawn, [{"form": "log_ratio"}])
    labels = [ERROR_ZONE.to_json(one) for one in registry.expand_settings(ERROR_ZONE, grid=True)]
    assert labels == ['{"form":"log_ratio"}', '{"form":"published"}']
    assert registry.parse_overrides(["error_zone.form=published"]) == {"error_zone": {"form": "published"}}


def test_a_text_whose_every_error_position_gained_has_the_highest_score(text_statistics):
    # The authors' code gives it the lowest score.
    gained = [(-1, -1, False), (-1, -3, True), (-1, -2, True)]
    mixed = [*gained, (-2, -1.5, True)]
    log_ratio, published = scored(text_statistics, gained)
    assert log_ratio.score == pytest.approx(math.log(3 / EPSILON), abs=1e-6)
    assert published.score == 0.0
    log_ratio_of_mixed, published_of_mixed = scored(text_statistics, mixed)
    assert log_ratio.score > log_ratio_of_mixed.score
    assert published_of_mixed.score == 6.0


def test_a_text_whose_every_error_position_lost(text_statistics):
    log_ratio, published = scored(text_statistics, [(-1, -1, False), (-3, -1, True), (-2, -1, True)])
    assert log_ratio.score == pytest.approx(-math.log(3 / EPSILON), abs=1e-6)
    assert published.score == 0.0


def test_two_equal_models_score_zero(text_statistics):
    assert [one.score for one in scored(text_statistics, [(-1, -1, True)] * 4)] == [0.0, 0.0]


@pytest.mark.parametrize(
    "drawn",
    [
        [(-1, -2, True)],
        [(-1, -2, True), (-1, -2, True)],
        [(-1, -2, True), (-1, -2, True), (-1, -2, False)],
        [(-1, -2, False)] * 5,
    ],
)
def test_fewer_than_two_error_positions(text_statistics, drawn):
    log_ratio, published = scored(text_statistics, drawn)
    assert (log_ratio.score, log_ratio.status) == (None, "not_applicable")
    assert log_ratio.reason == "the model's first choice differs from the text at fewer than two tokens after the first"
    assert published == (0.0, "ok", None)


def test_both_models_need_the_same_tokens(text_statistics):
    reference = text_statistics([-1.0, -2.0, -3.0], token_id=[0, 1, 7])
    own = text_statistics([-1.0, -2.0, -3.0], argmax_id=[9, 9, 9], extras={REFERENCE_MODEL: reference})
    shorter = replace(own, extras={REFERENCE_MODEL: text_statistics([-1.0, -2.0])})
    none = replace(own, extras={REFERENCE_MODEL: text_statistics([])})
    for statistics in (own, shorter, none):
        reason = "the reference model does not score the same tokens of the text"
        assert {*ERROR_ZONE.score(statistics, FORMS)} == {(None, "not_applicable", reason)}


def test_a_back_end_without_first_choices(text_statistics):
    own = text_statistics([-1.0, -2.0, -3.0], extras={REFERENCE_MODEL: text_statistics([-1.0, -2.0, -3.0])})
    columns = {name: values for name, values in own.columns.items() if name != "argmax_id"}
    reason = "the model's interface does not give: argmax_id of each token"
    assert {*ERROR_ZONE.score(replace(own, columns=columns), FORMS)} == {(None, "not_applicable", reason)}


def test_the_reference_model_needs_no_first_choices(text_statistics):
    reference = text_statistics([-2.0, -4.0, -2.5])
    columns = {name: reference.columns[name] for name in ("token_id", "logprob")}
    extras = {REFERENCE_MODEL: replace(reference, columns=columns)}
    own = text_statistics([-1.0, -2.0, -3.0], argmax_id=[9, 9, 9], extras=extras)
    assert ERROR_ZONE.score(own, [{"form": "published"}]) == [(4.0, "ok", None)]


@given(drawn=texts)
def test_both_forms_equal_their_twins(text_statistics, drawn):
    log_ratio, published = scored(text_statistics, drawn)
    gain, loss = sums(drawn)
    n_errors = sum(is_error for _, _, is_error in drawn[1:])
    if n_errors < 2:
        assert (log_ratio.status, published.score) == ("not_applicable", 0.0)
        return
    assert log_ratio.score == pytest.approx(math.log((gain + 1e-6) / (loss + 1e-6)), rel=1e-9, abs=1e-9)
    expected = 0.0 if loss == 0 else gain / loss
    assert published.score == pytest.approx(expected, rel=1e-9)


@given(drawn=texts, others=texts)
def test_the_log_ratio_orders_texts_as_the_published_ratio_does(text_statistics, drawn, others):
    # This holds for texts with losses far above EPSILON.
    ratios = []
    for one in (drawn, others):
        log_ratio, published = scored(text_statistics, one)
        if log_ratio.status != "ok" or min(sums(one)) < 1e-3:
            return
        ratios.append((log_ratio.score, published.score))
    (first_log, first_ratio), (second_log, second_ratio) = ratios
    if first_ratio > 1.01 * second_ratio:
        assert first_log > second_log


@given(drawn=texts, at=st.integers(1, 40))
def test_a_likelier_token_never_lowers_the_score(text_statistics, drawn, at):
    at = min(at, len(drawn) - 1)
    own, reference, is_error = drawn[at]
    likelier = [*drawn[:at], (own / 2, reference, is_error), *drawn[at + 1 :]]
    [before] = scored(text_statistics, drawn, [{}])
    [after] = scored(text_statistics, likelier, [{}])
    assert before.status == after.status
    if before.status == "ok":
        assert after.score >= before.score - 1e-12


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_bad_value_of_the_reference_model_fails(text_statistics, bad, at):
    drawn = [[-1.0, -2.0, True] for _ in range(4)]
    drawn[at][1] = bad
    assert {(one.score, one.status) for one in scored(text_statistics, drawn)} == {(None, "failed")}
