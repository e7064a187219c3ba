"""How sure an answer is, and its sign, against the numbers it rests on: never surer than its level and its power."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, false_discovery_control, hypergeom, norm, uniform

from audit_pipeline.metrics.claims import (
    CLAIM_IN_WORDS,
    VERDICT_IN_WORDS,
    count_documents_of_interest,
    detectable_auroc,
)
from audit_pipeline.report.answer import build_answer, smallest_q
from audit_pipeline.report.answer_kinds import CANARIES, KINDS, WORD_FOR_WORD, kind_of, suggest_others
from audit_pipeline.report.ask_words import describe_asking
from audit_pipeline.report.brief import brief_of
from audit_pipeline.report.extraction_words import describe_extraction
from audit_pipeline.report.summary import describe_whole_set_test
from audit_pipeline.report.vocabulary import Estimate, PairFindings, ShelfDocuments, Sides

from .test_asked import COUNTS
from .test_extraction import counts_of

LEVELS = tuple(CLAIM_IN_WORDS)
ENDS = st.tuples(st.floats(0.01, 0.99), st.floats(0.01, 0.99)).map(sorted)


def documents_of(tested: int, groups: int, standing_out: int = 0, above_all: int = 0) -> ShelfDocuments:
    q = smallest_q(groups, tested)
    return ShelfDocuments(
        tested=tested, standing_out=standing_out if q <= 0.05 else 0, detectors=1, tests=tested, can_stand_out=tested,
        direction=None, calibration_groups=groups, smallest_q=q, above_all=above_all,
    )  # fmt: skip


def estimate_of(ends: list[float]) -> Estimate:
    return Estimate(sum(ends) / 2, *ends)


SHELVES = st.builds(
    lambda tested, groups, out, above: documents_of(tested, groups, min(out, tested), min(above, tested)),
    *(st.integers(1, 60), st.integers(1, 3000), st.just(0) | st.integers(0, 60), st.integers(0, 8)),
)
FINDINGS = st.builds(
    PairFindings,
    sides=st.sampled_from(get_args(Sides)),
    claim_level=st.sampled_from(LEVELS),
    split_verdict=st.sampled_from(tuple(VERDICT_IN_WORDS)),
    auroc=ENDS.map(estimate_of),
    margin=st.none() | st.floats(-0.5, 0.5).map(lambda margin: Estimate(margin, margin - 0.1, margin + 0.1)),
    documents=st.none() | SHELVES,
    whole_set=st.sampled_from([None, "none", "training", "opposite"]),
    flagged=ENDS.map(estimate_of),
    flagged_alpha=st.sampled_from([0.05, None]),
    audited=st.just(12),
)


def would_have_found(documents: ShelfDocuments) -> bool:
    """By scipy: whether documents of an effect that matters, at the smallest p-value, have a q-value of 0.05."""
    of_interest = max(1, math.floor(documents.tested * 2 / 5))
    p_values = np.ones(documents.tested)
    p_values[:of_interest] = 1 / (documents.calibration_groups + 1)
    return bool(false_discovery_control(p_values, method="bh")[0] <= 0.05 * (1 + 1e-9))


@given(FINDINGS)
def test_nothing_found_is_said_where_it_would_have_been_found_and_nothing_is_raised(findings: PairFindings) -> None:
    words = build_answer(findings)
    if kind_of(words.outcome).sign != "nothing found":
        return
    flagged, auroc, documents = findings.flagged, findings.auroc, findings.documents
    assert findings.split_verdict != "separable without a model"
    assert flagged is None or findings.flagged_alpha is None or (flagged.low or 0) <= findings.flagged_alpha
    assert findings.whole_set != "training"
    assert auroc is not None
    assert auroc.low is not None
    assert auroc.high is not None
    if findings.sides == "audited against held-out" or documents is None:
        assert auroc.low <= 0.5
    if documents is None:
        assert auroc.high >= 0.5
        power = norm.sf(norm.isf(0.025) - 0.2 / ((auroc.high - auroc.low) / (2 * norm.isf(0.025))))
        assert power > 0.7999, "an AUROC of 0.7 would have been found"
    else:
        assert documents.standing_out == 0
        assert would_have_found(documents)
        m, n, k = documents.tested, documents.calibration_groups, documents.above_all
        assert k == 0 or hypergeom.pmf(k, m + n, m, k) > 0.05, "the k highest of all are audited ones"


@given(FINDINGS)
def test_no_answer_is_surer_than_its_level(findings: PairFindings) -> None:
    words = build_answer(findings)
    sign = kind_of(words.outcome).sign
    sure = brief_of("a model", "a benchmark", words.outcome, findings).how_sure
    if sign in ("nothing found", "no conclusion"):
        assert sure.startswith(("Not sure", "No conclusion", "There is no result"))
    elif findings.claim_level == "sound test":
        assert sure.startswith(("Sure", "Not sure"))
    elif findings.claim_level == "statistical evidence":
        assert sure.startswith(("Fairly sure", "Not sure"))
    else:
        assert sure.startswith("Not sure")


@pytest.mark.parametrize(
    ("documents", "flagged", "outcome", "said"),
    [
        # 12 documents and 20 held-out ones: 12 * 1/21 / 12 = 0.048, and no fewer than 12 suffice.
        (documents_of(12, 20), None, "documents_cannot_stand_out", "could hardly have found anything: only 12 of 12"),
        # Of 12 documents 4 matter: 12 / (4 * 60) = 0.05.
        (documents_of(12, 59), None, "no_document_stands_out", "would have found 4 of 12 documents together"),
        (documents_of(12, 58), None, "documents_cannot_stand_out", "could hardly have found anything: only 5 of 12"),
        (documents_of(1, 19), None, "no_document_stands_out", "any document that scores higher than all 19"),
        # The 5 highest of 32 are audited: C(12, 5) / C(32, 5) = 0.0039. Of 71: the highest 12 / 71, two 66 / 2485.
        (documents_of(12, 20, above_all=5), None, "texts_differ", "5 of 12 documents score higher than every"),
        (documents_of(12, 59, above_all=1), None, "no_document_stands_out", "Nothing found"),
        (documents_of(12, 59, above_all=2), None, "texts_differ", "2 of 12 documents score higher than every"),
        (documents_of(12, 3000), Estimate(0.217, 0.059, 0.475), "texts_differ",
         "21.7% [5.9, 47.5] of the texts are flagged where 5% would be by accident"),
        (documents_of(12, 3000), Estimate(0.217, 0.049, 0.475), "no_document_stands_out", "Nothing found"),
    ],
)  # fmt: skip
def test_a_shelf_by_its_numbers(documents: ShelfDocuments, flagged: Estimate | None, outcome: str, said: str) -> None:
    words = build_answer(
        PairFindings(
            sides="audited against held-out", claim_level="screening only", split_verdict="undetermined",
            auroc=Estimate(0.5, 0.45, 0.55), documents=documents, flagged=flagged, flagged_alpha=0.05,
        )
    )  # fmt: skip
    assert words.outcome == outcome
    assert said in words.headline
    assert (kind_of(words.outcome).sign == "nothing found") == words.headline.startswith("Nothing found")


def test_an_effect_that_matters() -> None:
    """Against a simulation: where 4 of 10 score higher than all others, which score alike, the AUROC is 0.7."""
    generator = np.random.default_rng(5)
    members, others = generator.random(100_000), generator.random(100_000)
    members[: len(members) * count_documents_of_interest(10) // 10] += 1
    assert np.mean(members > others) == pytest.approx(0.7, abs=0.005)
    assert [count_documents_of_interest(n) for n in (1, 2, 4, 5, 12, 20)] == [1, 1, 1, 2, 4, 8]


@given(
    st.integers(1, 3), st.integers(1, 2000), st.none() | st.floats(0.51, 1.2), st.floats(0, 1), st.integers(1, 500),
    st.sampled_from(LEVELS), st.sampled_from([None, "opposite"]),
)  # fmt: skip
def test_a_test_of_a_whole_set_found_nothing_only_where_it_could_have(
    n: int,
    alternatives: int,
    detectable: float | None,
    p_value: float,
    p_values: int,
    level: str,
    direction: str | None,
) -> None:
    outcome, headline = describe_whole_set_test(
        test="canary_rank" if detectable is None else "dataset_inference", refusal=None, p_value=p_value,
        p_values_so_far=p_values, claim_level=level, n=n, n_held_out=n * alternatives, detectable=detectable,
        direction=direction,
    )  # fmt: skip
    assert (outcome == "not_found") == headline.startswith("Nothing found")
    assert (KINDS[outcome].sign == "no conclusion") == headline.startswith(("No conclusion", "This test could hardly"))
    if outcome != "not_found":
        return
    assert p_value * p_values > 0.05
    assert direction is None
    if detectable is None:
        assert (1 / (alternatives + 1)) ** n * p_values <= 0.05 * (1 + 1e-6)
    else:
        error = (detectable - 0.5) / (norm.isf(0.05) + norm.isf(0.2))
        assert norm.sf(norm.isf(0.05 / p_values) - 0.2 / error) >= 0.8 - 1e-6


def test_what_a_rank_test_of_orders_finds() -> None:
    """Against a simulation of 40 shards: the mean of their uniform ranks at 5%, for ranks that are so much higher."""
    detectable = detectable_auroc(1 / math.sqrt(12 * 40), 0.05)
    ranks = uniform.rvs(size=(20_000, 40), random_state=3).mean(axis=1)
    limit = np.quantile(ranks, 0.95)
    assert np.mean(ranks + (detectable - 0.5) >= limit) == pytest.approx(0.8, abs=0.02)
    assert binom.sf(0, 1, detectable) == pytest.approx(detectable)


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.integers(0, 4))
def test_a_search_found_nothing_where_most_was_searched(
    documents: int, without: int, reproduced: int, stand_out: int, held_out: int
) -> None:
    counts = counts_of(
        documents, min(reproduced, documents), held_out, 0, without_window=without, stand_out=min(stand_out, documents)
    )
    words = describe_extraction("M", "B", counts)
    nothing = documents > 0 and counts.reproduced == counts.stand_out == 0 and without <= documents
    assert (words.sign == "nothing found") == nothing
    assert words.headline.startswith("Nothing found") == nothing
    assert words.how_sure.startswith("Sure") == (words.sign == "found")


@pytest.mark.parametrize(
    ("changes", "outcome", "begins"),
    [
        ({"stand_out": 2}, "asked_stands_out", "2 of 3 documents stand out at the rung named beforehand (instruction)"),
        ({"documents": 1, "unanswered": 2}, "asked_without_result", "This comparison could hardly have found anything"),
        ({"documents": 2, "unanswered": 2}, "asked_not_reproduced", "Nothing found"),
    ],
)
def test_asking_found_nothing_where_most_was_answered(changes: Mapping[str, Any], outcome: str, begins: str) -> None:
    words = describe_asking("M", "B", replace(COUNTS, **changes))
    assert words.outcome == outcome
    assert words.headline.startswith(begins)


def test_what_would_change_an_answer_is_not_what_was_done() -> None:
    for name, kind in KINDS.items():
        both = suggest_others(name, set())
        assert all((said in both.lower()) == (other in kind.others) for other, said in OTHERS.items())
        assert suggest_others(name, {"search", "canaries"}) == ""
        assert WORD_FOR_WORD not in suggest_others(name, {"search"}).lower()
        assert not any(said in (kind.what_would_change or "").lower() for said in OTHERS.values())
    grid, asked = (
        describe_extraction("M", "B", counts_of(3, 0, 0, 0, **done)).what_would_change
        for done in ({"grid": True}, {"asked": True})
    )
    assert "--grid" not in grid
    assert "corpus-audit ask" in grid
    assert "--grid" in asked
    assert "corpus-audit ask" not in asked


OTHERS = {"search": WORD_FOR_WORD.lower(), "canaries": CANARIES.lower()}
