"""An answer never says more than its claim level allows, and says so where nothing could have been found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control

from audit_pipeline.evidence.conformal import count_held_out_needed
from audit_pipeline.metrics.claims import CLAIM_IN_WORDS, VERDICT_IN_WORDS
from audit_pipeline.report.answer import benjamini_yekutieli_factor, build_answer, find_detectable_auroc, smallest_q
from audit_pipeline.report.answer_kinds import KINDS, LIMITS
from audit_pipeline.report.number_format import (
    count,
    duration,
    estimate,
    format_thousands,
    format_waiting_time,
    interval,
    level,
    number,
    percent,
    probability,
    score,
    setting,
    share,
    signed,
)
from audit_pipeline.report.summary import describe_whole_set_test, instrument_words, sort_by_kind, summarise_results
from audit_pipeline.report.vocabulary import (
    Q_LEVEL,
    TEST_IN_WORDS,
    DetectorFindings,
    Estimate,
    PairFindings,
    ScoreOrigin,
    ShelfDocuments,
    Sides,
    Words,
    describe_blind_control,
    describe_claim_level,
    describe_label_origin,
    describe_text_counts,
    describe_verdict,
)

LEVELS = tuple(CLAIM_IN_WORDS)
VERDICTS = tuple(VERDICT_IN_WORDS)
EVIDENCE = ("evidence of training", "statistical evidence", "sound test", "trained on")


def words_of(
    low: float = 0.5,
    high: float = 0.5,
    *,
    level: str = "screening only",
    verdict: str = "undetermined",
    margin: float | None = None,
    sides: Sides = "labelled",
    **others: Any,
) -> Words:
    """Of a pair with this interval of its AUROC, unless ``others``, fields of its findings, name another."""
    given: dict[str, Any] = {
        "auroc": Estimate(value=(low + high) / 2, low=low, high=high),
        "margin": None if margin is None else Estimate(value=margin, low=margin, high=margin),
        **others,
    }
    return build_answer(PairFindings(sides=sides, claim_level=level, split_verdict=verdict, **given))


TESTED: Mapping[str, Any] = {"n": 1, "n_held_out": 999, "detectable": 0.69}


def shelf(
    standing_out: int, *, tested: int = 20, groups: int = 2000, direction: str | None = None, above_all: int = 0
) -> ShelfDocuments:
    return ShelfDocuments(
        tested=tested,
        standing_out=standing_out,
        detectors=1,
        tests=tested,
        can_stand_out=tested,
        direction=direction,
        calibration_groups=groups,
        smallest_q=smallest_q(groups, tested),
        above_all=above_all,
    )


OPENINGS: Mapping[str, str] = {
    "found": "Found word for word: ",
    "stands out": r"(Members|[\d ]+ of [\d ]+ documents?|The set) stands? out: ",
    "nothing found": "Nothing found( word for word in|: |, and this comparison would have found )",
    "no conclusion": (
        "This (comparison|test) could (not|hardly) have found anything: |No conclusion: "
        "|Too short for extraction: nothing can be concluded"
    ),
}


def assert_of_its_sign(headline: str, sign: str) -> None:
    """The first sentence is of the kind that its sign says."""
    assert re.match(OPENINGS[sign], headline), (sign, headline)


@pytest.mark.parametrize("refused", [None, "50 random orders in all shards together, the test needs 100"])
@pytest.mark.parametrize("p_value", [0.001, 0.4])
@pytest.mark.parametrize("claim_level", LEVELS)
@pytest.mark.parametrize("direction", [None, "opposite"])
@pytest.mark.parametrize("test", TEST_IN_WORDS)
def test_a_test_of_a_whole_set_is_told_by_its_kind(
    test: str, direction: str | None, claim_level: str, p_value: float, refused: str | None
) -> None:
    outcome, headline = describe_whole_set_test(
        test=test,
        refusal=refused,
        p_value=p_value,
        p_values_so_far=1,
        claim_level=claim_level,
        direction=direction,
        **TESTED,
    )
    assert_of_its_sign(headline, KINDS[outcome].sign)


def test_what_is_said_of_two_sides() -> None:
    cases: list[tuple[Words, str]] = [
        (words_of(0.6, 0.7), "difference_to_look_at"),
        (words_of(0.6, 0.7, verdict="separable without a model"), "separable"),
        (words_of(0.45, 0.55), "no_difference"),
        (words_of(0.3, 0.4), "reversed_difference"),
        (words_of(0.6, 0.7, level="statistical evidence", margin=0.05), "evidence_of_training"),
        (words_of(0.6, 0.7, level="statistical evidence", margin=-0.01), "difference_within_control"),
        (words_of(0.6, 0.7, level="statistical evidence"), "difference_within_control"),
        (words_of(0.45, 0.55, level="statistical evidence", margin=0.05), "no_difference"),
        (words_of(0.6, 0.7, level="sound test", verdict="randomised by design"), "sound_evidence_of_training"),
        (words_of(0.45, 0.55, level="sound test", verdict="randomised by design"), "no_difference"),
        (words_of(0.6, 0.7, level="sound test", verdict="separable without a model"), "separable"),
    ]
    for words, outcome in cases:
        assert words.outcome == outcome
        assert_of_its_sign(words.headline, KINDS[outcome].sign)


def test_what_a_comparison_would_have_found() -> None:
    """Against a simulation: an AUROC's estimate whose standard error gives so wide an interval."""
    standard_error = 0.2 / (2 * 1.96)
    detectable = find_detectable_auroc([Estimate(0.5, 0.4, 0.6), Estimate(0.5, 0.45, 0.55)])
    estimates = np.random.default_rng(7).normal(detectable, standard_error, 200_000)
    assert np.mean(estimates - 1.96 * standard_error > 0.5) == pytest.approx(0.8, abs=0.01)
    few = words_of(0.05, 0.95)
    # 0.5 + 2.8 * 0.9 / 3.92 = 1.143: ((1.143 - 0.5) / 0.2) ** 2 = 10.3 times as many texts for 0.7.
    assert few.outcome == "too_few_texts"
    assert "11 times as many are needed to find an AUROC of 0.7" in few.headline
    # 2.8016 standard errors above chance: 0.7 where the interval is 0.27985 wide.
    assert words_of(0.37, 0.6498).outcome == "no_difference"
    assert words_of(0.37, 0.6499).headline.startswith("This comparison could hardly have found anything: too few texts")


@pytest.mark.parametrize(
    ("tested", "groups", "told"),
    [
        (1, 59, "any document that scores higher than all but 2 of 59 comparison documents"),
        (6, 119, "any document that scores higher than all 119 comparison documents"),
        (6, 118, "2 of 6 documents together, each with a higher score than all 118 comparison documents"),
    ],
)
def test_what_would_have_stood_out_by_scipy(tested: int, groups: int, told: str) -> None:
    """The smallest q-value of the p-values that the sentence names is at most 0.05, and one rank more is too many."""
    assert told in words_of(0.5, 0.6, documents=shelf(0, tested=tested, groups=groups)).headline
    together = 2 if told.startswith("2 ") else 1
    as_high = 2 if "all but" in told else 0

    def smallest(documents: int, rank: int) -> float:
        p_values = np.ones(tested)
        p_values[:documents] = (1 + rank) / (groups + 1)
        return float(false_discovery_control(p_values, method="bh")[0])

    assert smallest(together, as_high) <= Q_LEVEL * (1 + 1e-12)
    assert smallest(1, as_high + 1) > Q_LEVEL if together == 1 else smallest(1, 0) > Q_LEVEL


def test_what_is_said_where_there_is_no_number() -> None:
    words = words_of(auroc=Estimate(value=None, method="not defined: there are no members"))
    assert words.outcome == "not_defined"
    assert "there are no members" in words.explanation
    for claim in LEVELS:
        point = words_of(level=claim, auroc=Estimate(value=0.9, method="one group a side: no interval"))
        assert point.outcome == "not_defined"
        assert "one group a side: no interval" in point.explanation
    nothing = build_answer(PairFindings(sides="none", claim_level=None, split_verdict=None, auroc=None))
    assert nothing.outcome == "not_evaluated"


@given(
    st.floats(0, 1),
    st.floats(0, 1),
    st.sampled_from(LEVELS),
    st.sampled_from(VERDICTS),
    st.none() | st.floats(-1, 1),
    st.sampled_from(get_args(Sides)),
    st.none() | st.tuples(st.integers(1, 40), st.integers(0, 40), st.integers(1, 4000)),
)
def test_no_answer_says_more_than_its_level(
    one: float,
    other: float,
    claim: str,
    verdict: str,
    margin: float | None,
    sides: Sides,
    found: tuple[int, int, int] | None,
) -> None:
    low, high = sorted((one, other))
    documents = shelf(min(found[:2]), tested=found[0], groups=found[2]) if found else None
    words = words_of(low, high, level=claim, verdict=verdict, margin=margin, sides=sides, documents=documents)
    told = f"{words.headline} {words.explanation}".lower()
    assert "prove" not in told
    assert "proof" not in told
    if claim == "screening only":
        allowed = told.replace("no evidence of training", "").replace("text that was trained on can go unnoticed", "")
        assert not any(claimed in allowed for claimed in EVIDENCE)
        assert words.outcome not in ("evidence_of_training", "sound_evidence_of_training")
    if documents is None and verdict == "separable without a model":
        assert words.outcome in ("separable", "not_evaluated")
    if documents is None and low <= 0.5:
        assert words.outcome not in ("evidence_of_training", "sound_evidence_of_training", "difference_to_look_at")
    if claim == "statistical evidence":
        assert words.outcome != "sound_evidence_of_training"


def test_what_is_said_of_a_shelf() -> None:
    nothing = words_of(0.5, 0.6, documents=shelf(0))
    # 0.05 * 2001 / 20 = 5.0025: the fifth highest p-value, 5 / 2001, still has q <= 0.05 alone.
    assert nothing.headline == (
        "Nothing found, and this comparison would have found any document that scores higher than all but 4 of"
        f" {count(2000)} comparison documents. That clears nobody."
    )
    some = words_of(0.5, 0.6, documents=shelf(3))
    assert some.headline == "3 of 20 documents stand out: worth a closer look."
    assert "It is no evidence" in some.explanation
    assert words_of(0.5, 0.6, level="statistical evidence", documents=shelf(1)).headline == (
        "1 of 20 documents stands out: statistical evidence of training on them."
    )
    few = words_of(0.5, 0.6, documents=shelf(0, groups=12))
    assert few.outcome == "documents_cannot_stand_out"
    assert few.headline == (
        "This comparison could not have found anything: 12 comparison documents, 399 needed for a document to stand out"
        " alone."
    )
    assert "0.077" in few.explanation, "1 / 13"


FINDINGS = ("sound_evidence_of_training", "evidence_of_training", "difference_to_look_at", "documents_stand_out")
ORIGINS = (ScoreOrigin(), ScoreOrigin(handed_over=True), ScoreOrigin(handed_over=True, stated_by="whoever ran this"))


@given(
    st.floats(0, 0.49),
    st.floats(0, 0.49),
    st.sampled_from(LEVELS),
    st.sampled_from(VERDICTS),
    st.none() | st.floats(-1, 1),
    st.sampled_from(("labelled", "audited against held-out")),
    st.none() | st.tuples(st.integers(1, 40), st.integers(0, 40), st.integers(1, 4000)),
    st.sampled_from(ORIGINS),
    st.booleans(),
)
def test_scores_that_run_the_other_way_are_no_finding_at_any_level(
    one: float,
    other: float,
    claim: str,
    verdict: str,
    margin: float | None,
    sides: Sides,
    found: tuple[int, int, int] | None,
    origin: ScoreOrigin,
    one_of_several: bool,
) -> None:
    low, high = sorted((one, other))
    documents = shelf(min(found[:2]), tested=found[0], groups=found[2], direction="opposite") if found else None
    several = [detector_answer("a", low, high), detector_answer("b", low, high)]
    more: dict[str, Any] = {"auroc": None, "every": several} if one_of_several else {}
    of_pair: dict[str, Any] = {
        "level": claim,
        "verdict": verdict,
        "margin": margin,
        "sides": sides,
        "documents": documents,
    }
    words = words_of(low, high, **of_pair, origin=origin, **more)
    assert words.outcome not in FINDINGS
    told = f"{words.headline} {words.explanation}"
    assert "stand out: " not in told
    assert not any(claimed in told.lower() for claimed in ("statistical evidence", "sound test", "trained on from"))
    assert ("Was the sign of the scores forgotten?" in told) == origin.handed_over
    assert "opposite" in told.lower() or verdict == "separable without a model"
    test = describe_whole_set_test(
        test="dataset_inference",
        refusal=None,
        p_value=1.0,
        p_values_so_far=1,
        claim_level=claim,
        direction="opposite",
        origin=origin,
        **TESTED,
    )
    assert test[0] == "opposite_direction"
    assert ("sign of the scores forgotten" in test[1]) == origin.handed_over


def test_of_whose_scores_nobody_knows_the_direction_the_report_says_so() -> None:
    mine = ScoreOrigin(handed_over=True)
    unknown = words_of(0.6, 0.7, documents=shelf(3), sides="audited against held-out", origin=mine)
    assert unknown.outcome == "documents_stand_out"
    assert "Whether a high score is a sign of training cannot be checked" in unknown.explanation
    for known in (
        words_of(0.6, 0.7, documents=shelf(3), sides="audited against held-out"),
        words_of(0.6, 0.7, documents=shelf(3, direction="training"), origin=mine),
    ):
        assert known.outcome == "documents_stand_out"
        assert "cannot be checked" not in known.explanation
    unclear = words_of(0.6, 0.7, documents=shelf(3, direction="none"), origin=mine)
    assert "members do not clearly score higher" in unclear.explanation
    lower = words_of(0.3, 0.4, documents=shelf(3), sides="audited against held-out", origin=mine)
    assert lower.outcome == "documents_opposite_direction", "all together lower, and no known member says otherwise"
    for ours in (
        words_of(0.3, 0.4, documents=shelf(3), sides="audited against held-out"),
        words_of(0.3, 0.4, documents=shelf(3, direction="training"), sides="audited against held-out", origin=mine),
    ):
        assert ours.outcome == "documents_stand_out"


def detector_answer(name: str, low: float | None, high: float | None) -> DetectorFindings:
    middle = None if low is None or high is None else (low + high) / 2
    return DetectorFindings(
        detector=name,
        auroc=Estimate(value=0.5 if middle is None else middle, low=low, high=high, method="made up"),
        direction=None,
    )


@pytest.mark.parametrize(
    ("intervals", "verdict", "outcome"),
    [
        ([(0.6, 0.7), (0.9, 0.99)], "undetermined", "no_detector_named"),
        ([(0.4, 0.6), (0.45, 0.6)], "undetermined", "no_difference"),
        ([(0.3, 0.7), (0.45, 0.6)], "undetermined", "too_few_texts"),
        ([(0.2, 0.3), (0.3, 0.4)], "undetermined", "reversed_difference"),
        ([(0.2, 0.3), (0.6, 0.7)], "undetermined", "no_detector_named"),
        ([(0.9, 0.99), (0.9, 0.99)], "separable without a model", "separable"),
        ([(None, None), (None, None)], "undetermined", "not_defined"),
    ],
)
def test_of_several_detectors_of_which_none_was_named_none_answers(
    intervals: list[tuple[float | None, float | None]], verdict: str, outcome: str
) -> None:
    for claim in LEVELS:
        every = [detector_answer(str(place), *one) for place, one in enumerate(intervals)]
        words = words_of(level=claim, verdict=verdict, auroc=None, every=every, origin=ScoreOrigin(handed_over=True))
        assert words.outcome == outcome
        if outcome == "no_detector_named":
            assert words.headline.startswith("No conclusion: a difference by some of 2 detectors")
            assert "--headline NAME" in words.explanation
            assert ("sign of the scores forgotten" in words.explanation) == (intervals[0] == (0.2, 0.3))


@pytest.mark.parametrize("handed_over", [True, False])
def test_where_the_whole_set_runs_the_other_way_no_document_of_handed_over_scores_stands_out(handed_over: bool) -> None:
    """No member is known and the AUROC's interval holds chance: dataset inference says what must be feared."""
    outcomes = {}
    for direction in ("opposite", "none", "training"):
        words = words_of(
            *(0.1, 0.6),
            **{"level": "sound test", "verdict": "randomised by design", "sides": "audited against held-out"},
            **{"documents": shelf(5), "whole_set": direction, "origin": ScoreOrigin(handed_over=handed_over)},
        )
        outcomes[direction] = words.outcome
    against = "documents_opposite_direction" if handed_over else "documents_stand_out"
    assert outcomes == {"opposite": against, "none": "documents_stand_out", "training": "documents_stand_out"}


def test_documents_by_every_detector_have_to_allow_for_every_one() -> None:
    """Against scipy: Benjamini and Yekutieli over 20 documents by 3 detectors, all at the smallest p-value."""
    groups, tests = 300, 60
    smallest = false_discovery_control(np.full(tests, 1 / (groups + 1)), method="by")[0]
    assert smallest_q(groups, 20, benjamini_yekutieli_factor(tests)) == pytest.approx(smallest)
    alone = np.ones(tests)
    fewest = count_held_out_needed(tests, 1, Q_LEVEL, benjamini_yekutieli_factor(tests))
    alone[0] = 1 / (fewest + 1)
    assert false_discovery_control(alone, method="by")[0] <= Q_LEVEL * (1 + 1e-12)
    alone[0] = 1 / fewest
    assert false_discovery_control(alone, method="by")[0] > Q_LEVEL
    few = replace(
        shelf(0, groups=80),
        detectors=3,
        tests=tests,
        can_stand_out=tests,
        smallest_q=smallest_q(80, 20, benjamini_yekutieli_factor(tests)),
    )
    assert (
        count(count_held_out_needed(tests, 1, Q_LEVEL, benjamini_yekutieli_factor(tests)))
        in words_of(0.5, 0.6, documents=few).headline
    )
    none = replace(shelf(0), detectors=3, tests=tests)
    assert (
        "once the number of documents and of detectors (3) is allowed for"
        in words_of(0.5, 0.6, documents=none).explanation
    )


def test_what_is_somebodys_word_alone_is_told_as_such() -> None:
    stated = ScoreOrigin(handed_over=True, stated_by="whoever ran this")
    randomised: dict[str, Any] = {"level": "sound test", "verdict": "randomised by design"}
    for words in (
        words_of(0.6, 0.7, **randomised, origin=stated),
        words_of(0.4, 0.6, **randomised, origin=stated),
        words_of(0.6, 0.7, **randomised, documents=shelf(3), origin=stated),
    ):
        assert "as stated by whoever ran this" in words.explanation
    assert words_of(0.6, 0.7, **randomised, origin=stated).headline.endswith("if what was stated is so.")
    assert "stated" not in words_of(0.6, 0.7, **randomised).explanation
    _, test = describe_whole_set_test(
        test="sharded_permutation",
        refusal=None,
        p_value=0.001,
        p_values_so_far=1,
        claim_level="sound test",
        origin=stated,
        **TESTED,
    )
    assert "a sound test (as stated by whoever ran this) finds training" in test
    assert "nothing here can check it" in describe_claim_level("sound test", "whoever ran this")
    assert describe_verdict("randomised by design", "whoever ran this").startswith(
        "As stated by whoever ran this: which"
    )


def test_a_blind_control_that_was_not_computed_says_why() -> None:
    nobody = "so it is unknown how well the words alone separate the sides"
    assert describe_blind_control(None) == f"the blind control was not computed, {nobody}"
    method = "two sides are compared; the blind control was not computed: 108 labelled examples, it needs 200"
    few = asdict(Estimate(None, method=method))
    assert describe_blind_control(few) == (
        f"the blind control was not computed (108 labelled examples, it needs 200), {nobody}"
    )


def test_whose_the_labels_are_and_how_many_texts_there_were() -> None:
    assert describe_label_origin("given", None, None) == "the column label of the table that was handed over"
    assert describe_label_origin("labelled", "the folder mia", None) == "whoever published the rows (the folder mia)"
    assert describe_label_origin(None, None, None) is None
    assert describe_label_origin("shelf", None, "whoever ran it") == (
        "whoever ran it, of the texts that are held out or known; nobody knows the others"
    )
    counted = [
        {"split": "evaluation", "texts": 3, "groups": 2, "members": 1, "nonmembers": 2, "unknown": 0},
        {"split": "calibration", "texts": 1, "groups": 1, "members": 0, "nonmembers": 1, "unknown": 0},
    ]
    assert describe_text_counts(counted) == (
        "Evaluated: 3 texts in 2 groups (1 member, 2 non-members); calibrating: 1 text in 1 group (1 non-member)."
    )
    assert describe_text_counts(counted[:1]).endswith("; calibrating: none.")
    assert describe_text_counts([]) == ""
    audited = {"split": "evaluation", "texts": 97, "groups": 6, "members": 0, "nonmembers": 0, "unknown": 97}
    held_out = {"split": "calibration", "texts": 87, "groups": 6, "members": 0, "nonmembers": 87, "unknown": 0}
    assert describe_text_counts([audited, held_out]) == "97 texts of 6 audited documents, 87 of 6 held-out."


@pytest.mark.parametrize("tested", [1, 2, 7, 20])
def test_how_many_documents_to_compare_with_by_scipy(tested: int) -> None:
    """The fewest calibration documents with which so many at the smallest p-value reach q <= 0.05."""

    def reached(groups: int, standing_out: int) -> float:
        p_values = np.ones(tested)
        p_values[:standing_out] = 1 / (groups + 1)
        return float(false_discovery_control(p_values, method="bh")[0])

    for standing_out in range(1, tested + 1):
        fewest = count_held_out_needed(tested, standing_out, Q_LEVEL)
        assert reached(fewest, standing_out) <= Q_LEVEL * (1 + 1e-12)
        assert reached(fewest - 1, standing_out) > Q_LEVEL
    for groups in (1, 10, 500):
        assert smallest_q(groups, tested) == pytest.approx(min(1.0, reached(groups, tested)))


def check(low: float, high: float, twin: tuple[float, float] = (0.4, 0.6)) -> dict[str, Any]:
    return {
        "detector": "min_k_plus_plus",
        "exposed": asdict(Estimate((low + high) / 2, low, high)),
        "twin": asdict(Estimate(sum(twin) / 2, *twin)),
        "answers": True,
    }


def test_what_the_instrument_check_says() -> None:
    unchecked = instrument_words([])
    assert unchecked.startswith("The instrument has not been checked here.")
    assert "corpus-audit control" in unchecked
    assert "3 minutes" in unchecked
    assert instrument_words([check(0.9, 1.0)]).startswith("The instrument works (AUROC 0.950 in a model trained")
    assert "0.950" in instrument_words([check(0.9, 1.0)])
    assert instrument_words([check(0.4, 0.6)]).startswith("The instrument does not find")
    assert instrument_words([check(0.9, 1.0, (0.6, 0.7))]).startswith("The instrument reacts, and to more")
    unknown = {**check(0.9, 1.0), "twin": asdict(Estimate(0.5))}
    assert "whether to training alone is not known" in instrument_words([unknown])


def said(outcome: str, **others: object) -> dict[str, Any]:
    return {"outcome": outcome, "claim_level": "screening only", "headline": f"{outcome}.", **others}


@pytest.mark.parametrize(
    ("answer", "searched", "first"),
    [
        ("documents_cannot_stand_out", "passages_reproduced", "passages_reproduced"),
        ("documents_stand_out", "passages_reproduced", "passages_reproduced"),
        ("documents_stand_out", "passages_not_reproduced", "documents_stand_out"),
        ("documents_cannot_stand_out", "passages_not_reproduced", "documents_cannot_stand_out"),
        ("documents_cannot_stand_out", "passages_too_short", "documents_cannot_stand_out"),
        ("no_difference", "passages_not_reproduced", "no_difference"),
        ("not_evaluated", "passages_not_reproduced", "passages_not_reproduced"),
        ("not_evaluated", "passages_too_short", "passages_too_short"),
    ],
)
def test_terminal_and_report_say_the_same_first(answer: str, searched: str, first: str) -> None:
    rows = [said(answer), said(searched)]
    ordered = sort_by_kind(rows)
    assert ordered[0]["outcome"] == first
    assert summarise_results(rows[:1], 1, [], rows[1:]) == " ".join(row["headline"] for row in ordered)


def test_a_test_of_a_whole_set_has_its_place_among_the_answers() -> None:
    evidence = said("found", test="canary_rank", claim_level="sound test")
    look, refused = said("found", test="dataset_inference"), said("refused", test="sharded_permutation")
    rows = [said("documents_stand_out"), refused, look, evidence, said("passages_not_reproduced")]
    assert sort_by_kind([said("sound_evidence_of_training"), evidence])[0] == evidence
    assert [row["headline"] for row in sort_by_kind(rows)] == [
        *("found.", "documents_stand_out.", "found.", "passages_not_reproduced.", "refused."),
    ]


def test_several_searches_in_vain_are_counted() -> None:
    vain = said("passages_not_reproduced")
    assert summarise_results([], 0, [], [vain]) == vain["headline"]
    assert summarise_results([said("no_difference")], 1, [], [vain, vain]) == (
        "no_difference. In 2 searches for passages, none was given word for word."
    )


def test_what_was_asked_in_words_has_its_place_among_the_answers() -> None:
    seen, vain, unsure = said("asked_reproduced"), said("asked_not_reproduced"), said("asked_without_result")
    difference, found = said("no_difference"), said("passages_reproduced")
    assert summarise_results([], 0, [], [], [vain]) == vain["headline"]
    assert summarise_results([difference], 1, [], [], [unsure, vain]) == (
        "no_difference. asked_not_reproduced. It was asked about 1 other benchmark, too."
    )
    assert summarise_results([said("not_evaluated")], 1, [], [], [vain]) == "asked_not_reproduced. not_evaluated."
    assert summarise_results([difference], 1, [], [found], [seen, vain]) == (
        "passages_reproduced. So it is with 1 more. no_difference."
    )


def test_words_of_another_time_are_shown_as_they_are() -> None:
    assert describe_claim_level("a level of another time") == "a level of another time"
    assert describe_verdict("a verdict of another time") == "a verdict of another time"
    assert describe_claim_level("sound test") == CLAIM_IN_WORDS["sound test"]
    assert summarise_results([], 0) == "No model has been audited yet."
    assert not any("prove" in f"{title} {text}".lower() for title, text in LIMITS)


def test_numbers_in_words() -> None:
    assert (number(None), number(float("nan")), number(0.5), number(-0.5)) == ("–", "–", "0.500", "−0.500")
    assert (interval([None, 1.0]), interval([0.25, 1.0]), interval([0.25, 1.0], rate=True)) == (
        "",
        "[0.250, 1.000]",
        "[25.0, 100.0]",
    )
    assert interval([-0.25, 1.0], sign=True) == "[−0.250, +1.000]"
    tiny = -1e-9
    assert (number(tiny), signed(tiny), percent(tiny), score(-0.0), share(tiny), probability(-0.0)) == (
        *("0.000", "+0.000", "0.0%", "0", "0.00%", "0.000"),
    )
    assert (interval([tiny, 1.0]), interval([tiny, 1.0], rate=True)) == ("[0.000, 1.000]", "[0.0, 100.0]")
    assert (estimate(tiny, tiny, 0.5), estimate(tiny, None, None, "z.0%")) == ("0.000 [0.000, 0.500]", "0%")
    assert (score(-0.01234567), score(123456.0), signed(-0.25), signed(None)) == (
        "−0.01235",
        "1.235e+05",
        "−0.250",
        "–",
    )
    assert (percent(0.0333), level(0.05), level(0.001), level(1 / 45)) == ("3.3%", "5%", "0.1%", "2.2%")
    assert (probability(0.0), probability(0.0123), probability(0.00041), probability(None)) == (
        "0.000",
        "0.012",
        "4.1×10⁻⁴",
        "–",
    )
    assert (duration(0.4), duration(42.4), duration(200), duration(7500)) == (
        "0.4 s",
        "42 s",
        "3 min 20 s",
        "2 h 5 min",
    )
    assert [format_waiting_time(seconds) for seconds in (0.4, 90, 91, 720, 12_000)] == [
        "0 s",
        "90 s",
        "2 min",
        "12 min",
        "3.3 h",
    ]
    assert (estimate(0.7123, 0.65, 0.77), estimate(0.7, None, 0.8)) == ("0.712 [0.650, 0.770]", "0.700")
    assert (estimate(0.25, 0.2, 0.3, ".0%"), estimate(None, None, None)) == ("25% [20, 30]", "not defined")
    assert (format_thousands(1234), format_thousands(None)) == ("1,234", "–")
    assert (setting("{}"), setting('{"k":0.2,"a":null}'), setting("odd")) == ("", "a=None, k=0.2", "odd")
