"""The possible conclusions by the number of documents. Each number is that of the module that uses it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.statistics.conformal import compute_conformal_p_values, compute_q_values, count_held_out_needed
from audit_pipeline.statistics.possible_conclusions import PassageSearch, PlannedComparison, list_possible_conclusions
from audit_pipeline.statistics.thresholds import find_certified_rank

ALL_SEARCHED = PassageSearch(documents=20, too_short=0, tokens=100)
NOTHING_KNOWN = PlannedComparison(audited=20, held_out=0, members=0, windows=400, design="unlabelled")


def said(known: PlannedComparison, search: PassageSearch = ALL_SEARCHED) -> tuple[str, str]:
    reach = list_possible_conclusions(known, search)
    return " ".join(reach.conclusions), " ".join(reach.stronger)


def test_without_held_out_documents_only_passages_are_found() -> None:
    conclusions, stronger = said(NOTHING_KNOWN)
    assert "word for word" in conclusions
    assert "nothing to be compared with" in conclusions
    assert "p-value for" not in conclusions
    assert "With 19 such documents, p-values can be" in stronger
    assert "With 59, flagged shares" in stronger


@pytest.mark.parametrize(
    ("too_short", "searched", "unsearched"),
    [
        (0, "Which passages the model gives word for word. This", None),
        (5, "Which passages the model gives word for word, of 15 of the documents.", "5 of 20 documents are"),
        (20, None, "20 of 20 documents are"),
    ],
)
def test_of_documents_too_short_for_extraction_nothing_is_concluded(
    too_short: int, searched: str | None, unsearched: str | None
) -> None:
    conclusions, stronger = said(NOTHING_KNOWN, replace(ALL_SEARCHED, too_short=too_short))
    assert ("Which passages" in conclusions) == (searched is not None)
    assert (searched or "") in conclusions
    too_short_words = " too short for extraction (fewer than 100 tokens): nothing can be concluded"
    assert (too_short_words in conclusions) == (unsearched is not None) == ("Use longer documents" in stronger)
    assert (unsearched or "") in conclusions


def test_if_no_window_fits_the_model_nothing_is_searched() -> None:
    conclusions, stronger = said(NOTHING_KNOWN, replace(ALL_SEARCHED, problem="a window does not fit"))
    assert "Nothing about passages that the model gives word for word: a window does not fit." in conclusions
    assert "Use longer documents" not in stronger


@pytest.mark.parametrize(
    ("held_out", "reached", "lacking"),
    [
        (10, "smaller than 0.091", "With 19 held-out documents, p-values can be as small as 0.05."),
        (58, "smaller than 0.017", "With 59 held-out documents, flagged shares have a certified"),
        (59, "certified to be at most 5%", "With 299 held-out documents, flagged shares have a certified"),
        (299, "certified to be at most 1%", "To single out one document among 20 (q-value of 0.05), 399"),
    ],
)
def test_each_number_of_held_out_documents_has_its_evidence(held_out: int, reached: str, lacking: str) -> None:
    assert (find_certified_rank(held_out, 0.05) is None) == (held_out < 59)
    conclusions, stronger = said(replace(NOTHING_KNOWN, held_out=held_out, design="temporal"))
    assert reached in conclusions
    assert lacking in stronger


def test_advice_is_omitted_if_members_are_named_or_chance_chose() -> None:
    known = replace(NOTHING_KNOWN, held_out=400, members=5, design="exchangeable")
    conclusions, stronger = said(known)
    assert "can reach 'statistical evidence'" in conclusions
    assert "known members" in conclusions
    assert stronger == ""
    _, stronger = said(replace(known, design="temporal", members=0, windows=150))
    assert "--held-out-because random" in stronger
    assert "--members" in stronger
    assert "150 texts to compare" in stronger


@given(st.integers(1, 40), st.data())
def test_standing_out_needs_just_so_many(documents: int, data: st.DataObject) -> None:
    """Some documents score above all held-out documents, the others below."""
    above = data.draw(st.integers(1, documents))

    def q_of_the_first(held_out: int) -> float:
        p_values = compute_conformal_p_values([*[1.0] * above, *[-1.0] * (documents - above)], np.zeros(held_out))
        return float(compute_q_values(p_values, "bh")[0])

    needed = count_held_out_needed(documents, above, 0.05)
    assert q_of_the_first(needed) <= 0.05 + 1e-12
    assert q_of_the_first(needed - 1) > 0.05
