"""The rows of a comparison, for every model and side."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from made_values import SIDE, compare, model

from audit_pipeline.extras.unlearning.comparison_rows import (
    DOCUMENT_MEASURES,
    FIRST_CHOICES,
    NO_RETRAINED,
    TEXT_MEASURES,
    ComparedValues,
    ComparisonFinding,
    compare_documents,
)
from audit_pipeline.extras.unlearning.conclusion_section import conclude_unlearning
from audit_pipeline.statistics.roc import compute_metrics

BEFORE, AFTER, RETRAINED = model(1, known=2.0, spoken=0.9), model(2, known=0.0), model(3, known=0.1)
OF_SIDES = (("forget", slice(SIDE)), ("holdout", slice(SIDE, None)))


def by_key(rows: list[ComparisonFinding]) -> dict[tuple[str, str, str], ComparisonFinding]:
    found = {(row.metric, str(row.role), str(row.side)): row for row in rows}
    assert len(found) == len(rows)
    return found


def test_every_number_has_a_counterpart_of_held_out_texts() -> None:
    found = by_key(compare(before=BEFORE, after=AFTER, retrained=RETRAINED))
    for metric in TEXT_MEASURES:
        columns = {"before": BEFORE[metric], "after": AFTER[metric], "retrained": RETRAINED[metric]}
        columns["change"] = AFTER[metric] - BEFORE[metric]
        for role, column in columns.items():
            for side, chosen in OF_SIDES:
                row = found[metric, role, side]
                assert row.value == pytest.approx(column[chosen].mean())
                assert row.ci_low < row.value < row.ci_high  # type: ignore[operator]
                assert row.n == SIDE
    for metric in ("forget_quality", "unchanged", "member_before", "suspicious"):
        assert {key[2] for key in found if key[0] == metric} == {"forget", "holdout"}, metric


def test_privleak_is_computed_from_the_aurocs() -> None:
    found = by_key(compare(before=BEFORE, after=AFTER, retrained=RETRAINED))
    models = {"before": BEFORE, "after": AFTER, "retrained": RETRAINED}
    own = {role: compute_metrics(of["min_40"], np.repeat([1, 0], SIDE))["auroc"] for role, of in models.items()}
    for role, auroc in own.items():
        assert found["auroc_min_40", role, "both"].value == pytest.approx(auroc)
    for role in ("before", "after"):
        expected = 100 * ((1 - own[role]) - (1 - own["retrained"])) / (1 - own["retrained"])
        assert found["privleak", role, "both"].value == pytest.approx(expected)
    assert found["auroc_min_40", "change", "both"].value == pytest.approx(own["after"] - own["before"])


def test_without_a_retrained_model_the_reference_is_one_half_as_stated() -> None:
    found = by_key(compare(before=BEFORE, after=AFTER))
    auroc, leak = found["auroc_min_40", "after", "both"], found["privleak", "after", "both"]
    assert leak.value == pytest.approx(100 * (1 - 2 * auroc.value))  # type: ignore[operator]
    assert leak.ci_high == pytest.approx(100 * (1 - 2 * auroc.ci_low))  # type: ignore[operator]
    assert leak.method.startswith("reference .5, as stated")
    quality = found["forget_quality", "after", "forget"]
    assert (quality.value, quality.reason) == (None, NO_RETRAINED)


def test_missing_first_choices_have_a_reason() -> None:
    unknown = {name: np.full(2 * SIDE, np.nan) for name in FIRST_CHOICES}
    given = compare(no_first_choices="not given", before=BEFORE | unknown, after=AFTER | unknown)
    found, whole = by_key(given), by_key(compare(before=BEFORE, after=AFTER))
    of_choices = {key: one for key, one in found.items() if key[0] in FIRST_CHOICES}
    assert {(one.value, one.reason) for one in of_choices.values()} == {(None, "not given")}
    assert {key[0] for key in of_choices} == {*FIRST_CHOICES}
    others = {key: one for key, one in whole.items() if key[0] not in FIRST_CHOICES}
    assert {key: one for key, one in found.items() if key[0] not in FIRST_CHOICES} == others
    rows = [asdict(one) for one in found.values()]
    assert "First choices" not in " ".join(conclude_unlearning(rows, before="before", after="after").explanation)


def test_a_retrained_model_that_knows_the_texts_is_no_reference() -> None:
    knows = {**RETRAINED, "min_40": np.repeat([0.0, -9.0], SIDE)}
    leak = by_key(compare(before=BEFORE, after=AFTER, retrained=knows))["privleak", "after", "both"]
    assert leak.value is None
    assert "PrivLeak would be divided by 0" in str(leak.reason)


def test_a_suspicious_text_was_a_member_before_and_hardly_moved() -> None:
    moved = np.arange(2 * SIDE) % 2 == 0
    after = {**BEFORE, "min_k": np.where(moved, BEFORE["min_k"] * 1.3, BEFORE["min_k"] * 1.05)}
    found = by_key(compare(threshold=-2.0, before=BEFORE, after=after))
    for side, chosen in OF_SIDES:
        member = BEFORE["min_k"][chosen] >= -2.0
        assert found["unchanged", "change", side].value == pytest.approx(0.5)
        assert found["member_before", "before", side].value == pytest.approx(member.mean())
        assert found["suspicious", "change", side].value == pytest.approx((member & ~moved[chosen]).mean())
    assert 0 < found["suspicious", "change", "forget"].value < 0.5  # type: ignore[operator]
    assert found["suspicious", "change", "holdout"].value == 0


def test_the_retrained_model_has_its_own_shares() -> None:
    found = by_key(compare(before=BEFORE, after=AFTER, retrained=BEFORE))
    assert found["unchanged", "retrained", "forget"].value == 1
    assert found["suspicious", "retrained", "forget"].value == found["member_before", "before", "forget"].value
    without = by_key(compare(before=BEFORE, after=AFTER))
    assert ("suspicious", "retrained", "forget") not in without


def test_calibration_texts_of_the_threshold_do_not_count() -> None:
    found = by_key(compare(chosen_on=30, before=BEFORE, after=AFTER))
    assert [found["suspicious", "change", side].n for side in ("forget", "holdout")] == [SIDE, SIDE - 30]
    assert found["unchanged", "change", "holdout"].n == SIDE
    none_left = by_key(compare(chosen_on=SIDE, before=BEFORE, after=AFTER))
    assert (
        none_left["suspicious", "change", "holdout"].reason
        == "the threshold was chosen on all texts of this side, so no text is left to compare"
    )


def test_without_a_threshold_only_unchanged_texts_are_counted() -> None:
    found = by_key(compare(threshold=None, before=BEFORE, after=AFTER))
    assert found["unchanged", "change", "forget"].value is not None
    for metric, role in (("member_before", "before"), ("suspicious", "change")):
        row = found[metric, role, "forget"]
        assert (row.value, row.reason) == (None, "no thresholds were chosen")


def test_extracted_documents_are_compared() -> None:
    def of(coverage: float, unknown: int = -1) -> dict[str, np.ndarray]:
        spread = np.linspace(0, 0.1, 8)
        return {
            "verbatim_coverage": coverage + spread,
            "verbatim_log_p": np.where(np.arange(8) == unknown, np.nan, -9.0 - spread),
            "verbatim_reproduced": np.repeat([1.0, 0.0], 4),
        }

    forget, groups = np.arange(8) < 4, [str(place) for place in range(8)]
    found = by_key(compare_documents(ComparedValues(forget, groups, {"before": of(0.5), "after": of(0.1, unknown=7)})))
    assert {key[0] for key in found} == set(DOCUMENT_MEASURES)
    assert found["verbatim_coverage", "change", "forget"].value == pytest.approx(-0.4)
    assert found["verbatim_reproduced", "before", "forget"].value == 1
    assert found["verbatim_reproduced", "before", "forget"].ci_low == pytest.approx(0.025 ** (1 / 4))
    for role in ("before", "after", "change"):
        row = found["verbatim_log_p", role, "holdout"]
        assert row.n == 3, "a document without a strongest window has no number, in no row"
        assert row.method.startswith("mean over documents; ")
    nothing = compare_documents(ComparedValues(forget[:0], [], {}, "extraction was not run"))
    told = [(row.metric, row.value, row.reason) for row in nothing]
    assert told == [(metric, None, "extraction was not run") for metric in DOCUMENT_MEASURES]
