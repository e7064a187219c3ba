from typing import get_args

import pytest

from audit_pipeline.statistics.claims import (
    EXTRACTION_IN_WORDS,
    ClaimLevel,
    ExtractionClaim,
    SplitVerdict,
    decide_claim_level,
    decide_split_verdict,
    find_claim_source,
    find_extraction_claim,
    format_claim_level,
    warn_of_few_texts,
)
from audit_pipeline.statistics.intervals import NO_INTERVAL, Interval

MILD = Interval(0.45, 0.599)
SEPARABLE = Interval(0.701, 0.9)
BETWEEN = Interval(0.58, 0.65)

TABLE = [
    ("temporal", MILD, "mild shift", "screening only"),
    ("temporal", SEPARABLE, "separable without a model", "screening only"),
    ("temporal", BETWEEN, "undetermined", "screening only"),
    ("temporal", NO_INTERVAL, "undetermined", "screening only"),
    ("temporal", Interval(0.5, 0.60), "undetermined", "screening only"),
    ("temporal", Interval(0.70, 0.8), "undetermined", "screening only"),
    ("exchangeable", MILD, "mild shift", "statistical evidence"),
    ("exchangeable", BETWEEN, "undetermined", "screening only"),
    ("exchangeable", NO_INTERVAL, "undetermined", "screening only"),
    ("exchangeable", SEPARABLE, "separable without a model", "screening only"),
    ("randomised", MILD, "randomised by design", "sound test"),
    ("randomised", BETWEEN, "randomised by design", "sound test"),
    ("randomised", NO_INTERVAL, "randomised by design", "sound test"),
    # Labels that words alone give away were not drawn at random.
    ("randomised", SEPARABLE, "separable without a model", "screening only"),
]


@pytest.mark.parametrize(("design", "blind", "verdict", "level"), TABLE)
def test_verdict_and_level(design, blind, verdict, level):
    assert decide_split_verdict(design, blind) == verdict
    assert decide_claim_level(design, verdict) == level


@pytest.mark.parametrize(("design", "blind", "verdict", "level"), TABLE)
def test_matched_sides_are_at_best_undetermined_unless_chance_made_them(design, blind, verdict, level):
    if verdict == "mild shift":
        verdict, level = "undetermined", "screening only"
    assert decide_split_verdict(design, blind, matched=True) == verdict
    assert decide_claim_level(design, verdict) == level


def test_an_auroc_below_chance_is_no_mild_shift_of_matched_sides():
    misled = Interval(0.2, 0.35)
    assert decide_split_verdict("temporal", misled) == "mild shift"
    assert decide_split_verdict("temporal", misled, matched=True) == "undetermined"


def test_the_table_reaches_every_verdict_and_level():
    assert {row[2] for row in TABLE} == set(get_args(SplitVerdict))
    assert {row[3] for row in TABLE} == set(get_args(ClaimLevel))


def test_a_level_rests_on_somebodys_word_where_nothing_has_read_the_texts():
    assert find_claim_source("sound test", "whoever ran this", None) == "whoever ran this"
    assert find_claim_source("sound test", "whoever ran this", 0.51) is None, (
        "the blind control could have contradicted"
    )
    assert find_claim_source("sound test", None, None) is None, "drawn by chance here"
    assert find_claim_source("screening only", "whoever ran this", None) is None, "claims nothing"
    assert find_claim_source(None, "whoever ran this", None) is None
    assert format_claim_level("sound test", "whoever ran this") == "sound test, as stated by whoever ran this"
    assert format_claim_level("sound test", None) == "sound test"


def test_few_texts_are_mentioned():
    assert warn_of_few_texts(20, 20) is None
    assert warn_of_few_texts(19, 200) == "only 19 + 200 texts: with fewer than 20 on a side an AUROC says little"


@pytest.mark.parametrize(("reproduced", "claim"), [(1, "reproduced"), (0, "not reproduced")])
def test_the_claims_of_extraction(reproduced: int, claim: str) -> None:
    assert find_extraction_claim(reproduced) == claim
    assert set(get_args(ExtractionClaim)) == set(EXTRACTION_IN_WORDS)
    assert "clears nobody" in EXTRACTION_IN_WORDS[find_extraction_claim(reproduced)]
