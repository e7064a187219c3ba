"""Answers claim no more than their claim level and power allow, in a short headline and sentences."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, false_discovery_control, hypergeom, norm, uniform

from audit_pipeline.report.answer_rules import (
    ComparedSides,
    DetectorFindings,
    DocumentFindings,
    MetricEstimate,
    PairFindings,
    build_answer,
    compute_smallest_q,
    find_detectable_auroc,
)
from audit_pipeline.report.document_answers import describe_chat_answer, describe_search_answer
from audit_pipeline.report.sentences import (
    Q_LEVEL,
    TEST_IN_WORDS,
    describe_blind_control,
    describe_claim_level,
    describe_design,
    describe_label_origin,
    describe_text_counts,
    describe_verdict,
    find_kind,
    list_limits,
    read_kinds,
    render_phrase,
    suggest_methods,
)
from audit_pipeline.report.summary import (
    Subject,
    describe_instrument,
    describe_set_test,
    group_by_subject,
    render_page_summary,
    sort_by_display_place,
)
from audit_pipeline.statistics import claims
from audit_pipeline.statistics.claims import (
    CLAIM_IN_WORDS,
    VERDICT_IN_WORDS,
    compute_detectable_auroc,
    compute_min_documents_for_effect,
)
from audit_pipeline.statistics.conformal import compute_benjamini_yekutieli_factor, count_held_out_needed
from audit_pipeline.statistics.roc import ALL_EQUAL

LEVELS, VERDICTS = tuple(CLAIM_IN_WORDS), tuple(VERDICT_IN_WORDS)
EVIDENCE = ("evidence of training", "statistical evidence", "sound test", "trained on")
LONGEST_HEADLINE = 15
Answer = Mapping[str, Any]


def shelf(standing_out: int = 0, *, tested: int = 20, groups: int = 2000, **changes: Any) -> DocumentFindings:
    """Return the findings of a shelf's documents by one detector."""
    documents = DocumentFindings(
        tested=tested, standing_out=standing_out, detectors=1, tests=tested, can_stand_out=tested, direction=None,
        calibration_groups=groups, smallest_q=compute_smallest_q(groups, tested), above_all=0,
    )  # fmt: skip
    return replace(documents, **changes)


def answer_of(
    low: float = 0.5, high: float = 0.5, *, level: str = "screening only", verdict: str = "undetermined", **others: Any
) -> Answer:
    """Return the answer of a pair with this interval of its AUROC. ``others`` are other fields of its findings."""
    given: dict[str, Any] = {"sides": "labelled", "auroc": MetricEstimate((low + high) / 2, low, high), **others}
    if isinstance(margin := given.get("margin"), float):
        given["margin"] = MetricEstimate(margin, margin, margin)
    return build_answer(PairFindings(claim_level=level, split_verdict=verdict, **given), "M", "B")


def set_test(**changes: Any) -> Answer:
    """Return the answer of a test of a whole set."""
    row = {
        **{"test": "dataset_inference", "refused": None, "p_value": 0.4, "p_values_so_far": 1, "assumption": "x"},
        **{"claim_level": "screening only", "n": 1, "n_held_out": 999, "detectable_auroc": 0.69, "direction": None},
        **{"model_title": "M", "benchmark_title": "B"},
    }
    origin = {name: changes.pop(name) for name in ("handed_over", "stated_by") if name in changes}
    return describe_set_test({**row, **changes}, **origin)


def search(documents: int = 3, reproduced: int = 0, held_out: int = 0, found: int = 0, **changes: Any) -> Answer:
    """Return the answer of a search for passages."""
    counts = {
        **{"documents": documents, "without_window": 0, "reproduced": reproduced, "stand_out": 0, "held_out": held_out},
        **{"held_out_reproduced": found, "set_apart": 0, "window": 100, "reason": None, "grid": False, "asked": False},
    }
    return describe_search_answer("M", "B", {**counts, **changes})


def test_answers_of_conversations_are_compared_with_held_out_answers() -> None:
    counts = {
        **{"documents": 3, "without_window": 0, "reproduced": 0, "stand_out": 0, "held_out": 4, "set_apart": 0},
        **{"held_out_reproduced": 0, "window": 50, "reason": None, "grid": False, "asked": False},
    }
    answer = describe_search_answer("M", "B", counts, has_answers=True)
    assert answer["calibration_in_words"] == claims.CALIBRATED_ANSWERS_IN_WORDS
    assert search(held_out=4)["calibration_in_words"] == claims.CALIBRATED_IN_WORDS


COUNTS: Mapping[str, Any] = {
    **{"rung": "instruction", "documents": 3, "unanswered": 0, "reproduced": 0, "not_graded": 0, "stand_out": 0},
    **{"held_out_asked": 4, "held_out": 4, "held_out_reproduced": 0, "compared_with": 4, "longest_run": 7},
    **{"elsewhere": [], "requests": 40, "not_measured": 0},
}


def asking(**changes: Any) -> Answer:
    """Return the answer of questions to a chat model."""
    return describe_chat_answer("M", "B", {**COUNTS, **changes})


OPENINGS: Mapping[str, str] = {
    "found": "Found (word for word|in its answers): ",
    "stands out": r"(Members|The audited texts) score higher: |The whole set differs: |.+ of .+ (score|ha[sv]|come)",
    "nothing found": "Nothing found( word for word in|: )",
    "no conclusion": "No conclusion: ",
}


def assert_well_formed(answer: Answer) -> None:
    """Check that the headline is one short sentence with the words of its sign, and that no other part is empty."""
    headline = answer["headline"]
    assert re.match(OPENINGS[answer["sign"]], headline), headline
    assert len(headline.split(" ")) <= LONGEST_HEADLINE, headline
    assert headline.endswith(".")
    assert not re.search(r"[.?!] ", headline), "one sentence"
    for part in ("question", "explanation", "how_sure", "what_would_change"):
        assert answer[part].endswith((".", "?", ".)")), (part, answer[part])
        assert "  " not in answer[part]
        assert " ." not in answer[part]


ENDS = st.tuples(st.floats(0.01, 0.99), st.floats(0.01, 0.99)).map(sorted)
ESTIMATES = ENDS.map(lambda ends: MetricEstimate(sum(ends) / 2, *ends))
SHELVES = st.builds(
    lambda tested, groups, out, above, direction: shelf(
        min(out, tested) if compute_smallest_q(groups, tested) <= Q_LEVEL else 0,
        tested=tested, groups=groups, above_all=min(above, tested), direction=direction,
    ),
    *(st.integers(1, 60), st.integers(1, 3000), st.just(0) | st.integers(0, 60), st.integers(0, 8)),
    st.sampled_from([None, "training", "none"]),
)  # fmt: skip
DETECTORS = st.builds(
    DetectorFindings,
    st.sampled_from("abc"),
    ESTIMATES | st.just(MetricEstimate(None, method="no members")),
    st.sampled_from([None, "opposite", "training"]),
)
FINDINGS = st.builds(
    PairFindings,
    sides=st.sampled_from(get_args(ComparedSides)),
    claim_level=st.sampled_from(LEVELS),
    split_verdict=st.sampled_from(VERDICTS),
    auroc=ESTIMATES,
    margin=st.none() | st.floats(-0.5, 0.5).map(lambda margin: MetricEstimate(margin, margin - 0.1, margin + 0.1)),
    blind=st.none() | ESTIMATES,
    documents=st.none() | SHELVES,
    whole_set=st.sampled_from([None, "none", "training", "opposite"]),
    flagged=ESTIMATES,
    flagged_alpha=st.sampled_from([0.05, None]),
    audited=st.just(12),
    handed_over=st.booleans(),
    stated_by=st.sampled_from([None, "whoever ran this"]),
    fewest_groups=st.sampled_from([None, 3, 9]),
)
OF_EVERY_DETECTOR = st.builds(
    lambda findings, every: replace(findings, auroc=None, every=every),
    FINDINGS,
    st.lists(DETECTORS, min_size=2, max_size=3),
)


@given(FINDINGS | OF_EVERY_DETECTOR)
def test_no_answer_says_more_than_its_level(findings: PairFindings) -> None:
    answer = build_answer(findings, "a model", "a benchmark")
    assert_well_formed(answer)
    told = f"{answer['headline']} {answer['explanation']}".lower()
    assert "prove" not in told
    assert "proof" not in told
    sure = answer["how_sure"]
    if answer["sign"] in ("nothing found", "no conclusion"):
        assert sure.startswith(("Not sure", "No conclusion", "There is no result"))
    elif findings.claim_level == "sound test":
        assert sure.startswith(("Sure", "Not sure"))
    elif findings.claim_level == "statistical evidence":
        assert sure.startswith(("Fairly sure", "Not sure"))
    else:
        assert sure.startswith("Not sure")
    if findings.claim_level == "screening only":
        allowed = told.replace("no evidence of training", "").replace("text that was trained on can go unnoticed", "")
        assert not any(claimed in allowed for claimed in EVIDENCE)
        assert answer["outcome"] not in ("evidence_of_training", "sound_evidence_of_training")
    if findings.claim_level == "statistical evidence":
        assert answer["outcome"] != "sound_evidence_of_training"
    if findings.documents is None and findings.split_verdict == "separable without a model":
        assert answer["outcome"] in ("separable", "not_evaluated")
    if findings.documents is None and findings.auroc is not None and (findings.auroc.low or 0) <= 0.5:
        raised = ("evidence_of_training", "sound_evidence_of_training", "difference_to_look_at")
        assert answer["outcome"] not in raised


@given(FINDINGS)
def test_nothing_found_requires_a_sufficient_comparison(findings: PairFindings) -> None:

    def would_have_found(documents: DocumentFindings) -> bool:
        """By scipy: whether documents of an effect that matters, at the smallest p-value, have a q-value of 0.05."""
        of_interest = max(1, math.floor(documents.tested * 2 / 5))
        p_values = np.ones(documents.tested)
        p_values[:of_interest] = 1 / (documents.calibration_groups + 1)
        return bool(false_discovery_control(p_values, method="bh")[0] <= 0.05 * (1 + 1e-9))

    if build_answer(findings)["sign"] != "nothing found":
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


SOUND: Mapping[str, Any] = {"level": "sound test", "verdict": "randomised by design"}
EQUAL = MetricEstimate(0.5, 0.5, 0.5, ALL_EQUAL)


@pytest.mark.parametrize(
    ("ends", "changes", "outcome", "said"),
    [
        ((0.6, 0.7), {}, "difference_to_look_at", "any other difference"),
        ((0.6, 0.7), {"verdict": "separable without a model"}, "separable", "could not have found anything"),
        ((0.45, 0.55), {}, "no_difference", "would have found an AUROC of 0.571 (0.5 is chance) four times in five."),
        ((0.3, 0.4), {}, "reversed_difference", "the opposite of what training would do"),
        ((0.6, 0.7), {"level": "statistical evidence", "margin": 0.05}, "evidence_of_training", "like them by design"),
        ((0.6, 0.7), {"level": "statistical evidence", "margin": -0.01}, "difference_within_control", "no evidence"),
        ((0.6, 0.7), {"level": "statistical evidence"}, "difference_within_control", "no evidence of training"),
        ((0.45, 0.55), {"level": "statistical evidence", "margin": 0.05}, "no_difference", "can go unnoticed"),
        ((0.6, 0.7), SOUND, "sound_evidence_of_training", "nothing but membership differs"),
        ((0.45, 0.55), SOUND, "no_difference", "so the comparison is fair"),
        ((0.6, 0.7), {**SOUND, "verdict": "separable without a model"}, "separable", "could not have found anything"),
        # 0.5 + 2.8 * 0.9 / 3.92 = 1.143: ((1.143 - 0.5) / 0.2) ** 2 = 10.3 times as many texts for 0.7.
        ((0.05, 0.95), {}, "too_few_texts", "could not have found anything: 11 times as many"),
        # 2.8016 standard errors above chance: 0.7 where the interval is 0.27985 wide.
        ((0.37, 0.6498), {}, "no_difference", "would have found an AUROC of 0.700"),
        ((0.37, 0.6499), {}, "too_few_texts", "could hardly have found anything: 2 times as many"),
        ((0, 0), {"auroc": MetricEstimate(None, method="no members")}, "not_defined", "has no AUROC here: no members."),
        ((0, 0), {"auroc": MetricEstimate(0.9, method="one group")}, "not_defined", "not known: one group."),
        ((0, 0), {"auroc": EQUAL}, "not_defined", "Is it the right column?"),
        ((0, 0), {"auroc": EQUAL, "documents": shelf(3)}, "not_defined", "Is it the right column?"),
        ((0, 0), {"sides": "none", "level": None}, "not_evaluated", "Scored, not evaluated"),
        ((0, 0), {"sides": "none", "audited": 3}, "not_evaluated", "59 comparison documents are needed"),
        ((0.6, 0.7), {"fewest_groups": 2}, "difference_to_look_at", "The smaller side has only 2 groups."),
        ((0.6, 0.7), {"fewest_groups": 4}, "difference_to_look_at", "The smaller side has only 4 groups."),
        # Of a shelf's documents. 0.05 * 2001 / 20 = 5.0025: the fifth highest p-value, 5 / 2001, still has q <= 0.05.
        ((0.5, 0.6), {"documents": shelf()}, "no_document_stands_out", "scores higher than all but 4 of 2\u202f000"),
        ((0.5, 0.6), {"documents": shelf(3)}, "documents_stand_out", "It is no evidence"),
        ((0.5, 0.6), {"documents": shelf(groups=12)}, "documents_cannot_stand_out", "399 comparison documents are"),
        ((0.5, 0.6), {"documents": shelf(groups=12)}, "documents_cannot_stand_out", "no q-value below 0.077"),
        # 12 documents and 20 held-out ones: 12 * 1/21 / 12 = 0.048, and no fewer than 12 suffice.
        ((0.5, 0.6), {"documents": shelf(tested=12, groups=20)}, "documents_cannot_stand_out",
         "With 20 comparison documents, no single document could have stood out: that takes 239. None of"),
        # Of 12 documents 4 matter: 12 / (4 * 60) = 0.05.
        ((0.5, 0.6), {"documents": shelf(tested=12, groups=59)}, "no_document_stands_out", "4 of 12 documents"),
        ((0.5, 0.6), {"documents": shelf(tested=12, groups=58)}, "documents_cannot_stand_out",
         "that takes 239. This comparison would have found 5 of 12 documents together, each"),
        ((0.5, 0.6), {"documents": shelf(tested=1, groups=19)}, "no_document_stands_out", "higher than all 19 "),
        ((0.5, 0.6), {"documents": shelf(detectors=3, tests=60)}, "no_document_stands_out", "of detectors (3)"),
        # The 5 highest of 32 are audited: C(12, 5) / C(32, 5) = 0.0039. Of 71: the highest 12 / 71, two 66 / 2485.
        ((0.5, 0.6), {"documents": shelf(tested=12, groups=20, above_all=5)}, "texts_differ", "5 of 12 docum"),
        ((0.5, 0.6), {"documents": shelf(tested=12, groups=59, above_all=1)}, "no_document_stands_out", "can go"),
        ((0.5, 0.6), {"documents": shelf(tested=12, groups=59, above_all=2)}, "texts_differ", "2 of 12 docum"),
        # A flagged share is shown only of a certified threshold.
        ((0.45, 0.55), {"flagged": MetricEstimate(0.217, 0.059, 0.475), "flagged_alpha": 0.05}, "texts_differ",
         "More of the texts score as high as the highest held-out texts than chance allows."),
        ((0.45, 0.55),
         {"flagged": MetricEstimate(0.217, 0.059, 0.475), "flagged_alpha": 0.05, "flagged_is_certified": True},
         "texts_differ",
         "21.7% [5.9, 47.5] of the texts are flagged where 5% would be by accident. So the audited texts differ"),
        ((0.45, 0.55), {"flagged": MetricEstimate(0.217, 0.049, 0.475), "flagged_alpha": 0.05},
         "no_difference", "found"),
        ((0.45, 0.55), {"whole_set": "training"}, "texts_differ", "Dataset inference finds that"),
    ],
)  # fmt: skip
def test_an_answer_by_its_numbers(
    ends: tuple[float, float], changes: Mapping[str, Any], outcome: str, said: str
) -> None:
    answer = answer_of(*ends, **changes)
    assert_well_formed(answer)
    assert answer["outcome"] == outcome
    assert said in answer["explanation"]


@pytest.mark.parametrize(
    ("answer", "headline"),
    [
        (answer_of(0.6, 0.7, **SOUND, sides="audited against held-out", stated_by="whoever ran this"),
         "The audited texts score higher: a sound test finds training, if the labels are right."),
        (answer_of(documents=shelf(3)), "3 of 20 documents score high: worth a closer look."),
        (answer_of(documents=shelf(1), level="statistical evidence"),
         "1 of 20 documents scores high: statistical evidence of training on them."),
        (answer_of(documents=shelf()), "Nothing found: none of 20 documents scores high."),
        (answer_of(documents=shelf(groups=1)), "No conclusion: 1 comparison document is too few for 20 documents."),
        (search(5, 2, 3, 1), "Found word for word: the model gives passages of 2 of 5 documents."),
        (search(3), "Nothing found word for word in 3 documents."),
        (search(3, without_window=4), "No conclusion: 4 of 7 documents could not be searched."),
        (search(2, stand_out=1), "1 of 2 documents has passages that are likelier than held-out passages."),
        (search(0, reason="too short for extraction"), "No conclusion: no document could be searched."),
        (set_test(p_value=0.001, claim_level="sound test", stated_by="whoever ran this"),
         "The whole set differs: a sound test finds training, if what was stated is so."),
        (set_test(refused="too few"), "No conclusion: this test could not be made."),
    ],
)  # fmt: skip
def test_headlines(answer: Answer, headline: str) -> None:
    assert_well_formed(answer)
    assert answer["headline"] == headline


def test_every_kind_has_a_short_headline() -> None:
    two = [DetectorFindings(name, MetricEstimate(0.65, 0.6, 0.7), None) for name in "ab"]
    statistical: Mapping[str, Any] = {"level": "statistical evidence"}
    answers = [
        answer_of(0.6, 0.7),
        answer_of(0.6, 0.7, **SOUND),
        *(answer_of(0.6, 0.7, **statistical, margin=margin) for margin in (0.1, -0.1)),
        *(answer_of(*ends) for ends in ((0.3, 0.4), (0.45, 0.55), (0.05, 0.95))),
        answer_of(0.6, 0.7, verdict="separable without a model"),
        answer_of(auroc=None, every=two),
        answer_of(auroc=EQUAL),
        answer_of(sides="none"),
        answer_of(whole_set="training"),
        *(answer_of(documents=shelf(out, groups=n)) for out, n in ((2, 2000), (0, 2000), (0, 12))),
        answer_of(documents=shelf(2, direction="opposite")),
        *(search(documents, reproduced) for documents, reproduced in ((3, 1), (3, 0), (0, 0))),
        search(3, stand_out=1),
        search(3, without_window=4),
        *(asking(**changes) for changes in ({"reproduced": 1}, {}, {"stand_out": 1}, {"documents": 0})),
        *(set_test(**changes) for changes in ({"p_value": 0.01}, {"p_value": 0.5}, {"direction": "opposite"})),
        set_test(detectable_auroc=0.9),
        set_test(refused="too few"),
    ]
    for answer in answers:
        assert_well_formed(answer)
    assert {answer["outcome"] for answer in answers} == set(read_kinds()), "every block of answers.yaml is tested"


def test_what_a_comparison_would_have_found() -> None:
    """Against a simulation: an AUROC's estimate whose standard error gives so wide an interval."""
    standard_error = 0.2 / (2 * 1.96)
    detectable = find_detectable_auroc([MetricEstimate(0.5, 0.4, 0.6), MetricEstimate(0.5, 0.45, 0.55)])
    estimates = np.random.default_rng(7).normal(detectable, standard_error, 200_000)
    assert np.mean(estimates - 1.96 * standard_error > 0.5) == pytest.approx(0.8, abs=0.01)
    # Of an effect that matters: where 4 of 10 score higher than all others, which score alike, the AUROC is 0.7.
    generator = np.random.default_rng(5)
    members, others = generator.random(100_000), generator.random(100_000)
    members[: len(members) * compute_min_documents_for_effect(10) // 10] += 1
    assert np.mean(members > others) == pytest.approx(0.7, abs=0.005)
    assert [compute_min_documents_for_effect(n) for n in (1, 2, 4, 5, 12, 20)] == [1, 1, 1, 2, 4, 8]
    # Of ranks of orders: the mean of 40 uniform ranks at 5%, for ranks that are so much higher.
    detectable = compute_detectable_auroc(1 / math.sqrt(12 * 40), 0.05)
    ranks = uniform.rvs(size=(20_000, 40), random_state=3).mean(axis=1)
    assert np.mean(ranks + (detectable - 0.5) >= np.quantile(ranks, 0.95)) == pytest.approx(0.8, abs=0.02)
    assert binom.sf(0, 1, detectable) == pytest.approx(detectable)


@pytest.mark.parametrize(
    ("tested", "groups", "said"),
    [
        (1, 59, "any document that scores higher than all but 2 of 59 comparison documents"),
        (6, 119, "any document that scores higher than all 119 comparison documents"),
        (6, 118, "2 of 6 documents together, each with a higher score than all 118 comparison documents"),
    ],
)
def test_what_would_have_stood_out_by_scipy(tested: int, groups: int, said: str) -> None:
    """The smallest q-value of the p-values that the sentence names is at most 0.05, and one rank more is too many."""
    assert said in answer_of(0.5, 0.6, documents=shelf(tested=tested, groups=groups))["explanation"]
    together = 2 if said.startswith("2 ") else 1
    as_high = 2 if "all but" in said else 0

    def smallest(documents: int, rank: int) -> float:
        p_values = np.ones(tested)
        p_values[:documents] = (1 + rank) / (groups + 1)
        return float(false_discovery_control(p_values, method="bh")[0])

    assert smallest(together, as_high) <= Q_LEVEL * (1 + 1e-12)
    assert smallest(1, as_high + 1) > Q_LEVEL if together == 1 else smallest(1, 0) > Q_LEVEL


@pytest.mark.parametrize("tested", [1, 2, 7, 20])
def test_how_many_documents_to_compare_with_by_scipy(tested: int) -> None:
    """The fewest calibration documents with which so many at the smallest p-value reach q <= 0.05."""

    def reached(groups: int, standing_out: int, method: Any = "bh") -> float:
        p_values = np.ones(tested)
        p_values[:standing_out] = 1 / (groups + 1)
        return float(false_discovery_control(p_values, method=method)[0])

    factor = compute_benjamini_yekutieli_factor(tested)
    for standing_out in range(1, tested + 1):
        for method, of_method in (("bh", 1.0), ("by", factor)):
            fewest = count_held_out_needed(tested, standing_out, Q_LEVEL, of_method)
            assert reached(fewest, standing_out, method) <= Q_LEVEL * (1 + 1e-12)
            assert reached(fewest - 1, standing_out, method) > Q_LEVEL
    for groups in (1, 10, 500):
        assert compute_smallest_q(groups, tested) == pytest.approx(min(1.0, reached(groups, tested)))
        assert compute_smallest_q(groups, tested, factor) == pytest.approx(min(1.0, reached(groups, tested, "by")))


RAISED = ("sound_evidence_of_training", "evidence_of_training", "difference_to_look_at", "documents_stand_out")


@given(FINDINGS, st.tuples(st.floats(0, 0.49), st.floats(0, 0.49)).map(sorted), st.booleans())
def test_reversed_scores_are_no_finding_at_any_level(
    findings: PairFindings, ends: list[float], is_of_several: bool
) -> None:
    auroc = MetricEstimate(sum(ends) / 2, *ends)
    against = replace(
        findings,
        sides="labelled" if findings.sides == "none" else findings.sides,
        auroc=None if is_of_several else auroc,
        every=[DetectorFindings(name, auroc, None) for name in "ab"] if is_of_several else (),
        documents=findings.documents and replace(findings.documents, direction="opposite"),
        flagged=None,
    )
    answer = build_answer(against)
    assert answer["outcome"] not in RAISED
    told = f"{answer['headline']} {answer['explanation']}"
    assert "score high: " not in told
    assert not any(claimed in told.lower() for claimed in ("statistical evidence", "sound test", "trained on from"))
    assert ("Was the sign of the scores forgotten?" in told) == against.handed_over
    assert "opposite" in told.lower() or against.split_verdict == "separable without a model"


def test_an_unknown_direction_of_scores_is_stated() -> None:
    held_out: Mapping[str, Any] = {"sides": "audited against held-out"}
    unknown = answer_of(0.6, 0.7, documents=shelf(3), **held_out, handed_over=True)
    assert "Whether a high score is a sign of training cannot be checked" in unknown["explanation"]
    unclear = answer_of(0.6, 0.7, documents=shelf(3, direction="none"), handed_over=True)
    assert "members do not clearly score higher" in unclear["explanation"]
    for known in (
        answer_of(0.6, 0.7, documents=shelf(3), **held_out),
        answer_of(0.6, 0.7, documents=shelf(3, direction="training"), **held_out, handed_over=True),
        answer_of(0.3, 0.4, documents=shelf(3), **held_out),
        answer_of(0.3, 0.4, documents=shelf(3, direction="training"), **held_out, handed_over=True),
    ):
        assert known["outcome"] == "documents_stand_out"
        assert "cannot be checked" not in known["explanation"]
    lower = answer_of(0.3, 0.4, documents=shelf(3), **held_out, handed_over=True)
    assert lower["outcome"] == "documents_opposite_direction", "all lower, and no known member says otherwise"
    # Where the AUROC's interval holds chance, dataset inference says what must be feared.
    for direction, handed_over in ((None, True), ("opposite", False), ("opposite", True)):
        answer = answer_of(0.1, 0.6, documents=shelf(5), whole_set=direction, handed_over=handed_over, **held_out)
        feared = direction == "opposite" and handed_over
        assert answer["outcome"] == ("documents_opposite_direction" if feared else "documents_stand_out")


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
def test_no_detector_answers_if_none_of_several_was_named(
    intervals: list[tuple[float | None, float | None]], verdict: str, outcome: str
) -> None:
    every = [
        DetectorFindings(str(place), MetricEstimate(0.5 if low is None else low, low, high), None)
        for place, (low, high) in enumerate(intervals)
    ]
    for level in LEVELS:
        answer = answer_of(level=level, verdict=verdict, auroc=None, every=every, handed_over=True)
        assert answer["outcome"] == outcome
        if outcome == "no_detector_named":
            assert "--headline NAME" in answer["explanation"]
            forgotten = "sign of the scores forgotten" in answer["explanation"]
            assert forgotten == (intervals[0] == (0.2, 0.3))


def test_statements_of_users_are_marked() -> None:
    for changes in ({}, {"documents": shelf(3)}):
        stated = answer_of(0.6, 0.7, **SOUND, **changes, stated_by="whoever ran this")
        assert "as stated by whoever ran this" in stated["explanation"]
        assert "stated" not in answer_of(0.6, 0.7, **SOUND, **changes)["explanation"]
    test = set_test(p_value=0.001, claim_level="sound test", stated_by="whoever ran this")
    assert "as stated by whoever ran this" in test["explanation"]
    assert "Nothing here can check this" in describe_claim_level("sound test", "whoever ran this")
    assert describe_verdict("randomised by design", "whoever ran this").startswith("As stated by whoever ran this: w")


@given(
    st.floats(0.51, 1.2), st.floats(0, 1), st.integers(1, 500),
    st.sampled_from(LEVELS), st.sampled_from([None, "opposite"]), st.sampled_from(sorted(TEST_IN_WORDS)), st.booleans(),
)  # fmt: skip
def test_a_set_test_found_nothing_only_if_it_had_the_power(
    detectable: float, p_value: float, p_values: int, level: str, direction: str | None, test: str, handed_over: bool,
) -> None:  # fmt: skip
    answer = set_test(
        test=test, p_value=p_value, p_values_so_far=p_values, claim_level=level, detectable_auroc=detectable,
        direction=direction, handed_over=handed_over,
    )  # fmt: skip
    assert_well_formed(answer)
    outcome = answer["outcome"]
    assert (outcome == "opposite_direction") == (direction is not None)
    if direction:
        assert ("sign of the scores forgotten" in answer["explanation"]) == handed_over
    if outcome == "found":
        assert p_value * p_values <= 0.05
        assert ("training" in answer["headline"]) == (level != "screening only")
    if outcome != "not_found":
        return
    assert p_value * p_values > 0.05
    error = (detectable - 0.5) / (norm.isf(0.05) + norm.isf(0.2))
    assert norm.sf(norm.isf(0.05 / p_values) - 0.2 / error) >= 0.8 - 1e-6


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.integers(0, 4))
def test_a_search_found_nothing_only_if_most_was_searched(
    documents: int, without: int, reproduced: int, stand_out: int, held_out: int
) -> None:
    reproduced, stand_out = min(reproduced, documents), min(stand_out, documents)
    answer = search(documents, reproduced, held_out, without_window=without, stand_out=stand_out)
    assert_well_formed(answer)
    nothing = documents > 0 and reproduced == stand_out == 0 and without <= documents
    assert (answer["sign"] == "nothing found") == nothing
    assert answer["how_sure"].startswith("Sure") == (answer["sign"] == "found")


@pytest.mark.parametrize(
    ("changes", "claim", "outcome", "said"),
    [
        ({"reproduced": 2, "not_graded": 1}, "reproduced", "asked_reproduced", "stretches of 0 of 4"),
        ({"compared_with": None, "not_graded": 2}, "not graded", "asked_without_result", "Rung: instruction."),
        ({}, "not reproduced", "asked_not_reproduced", "the longest run is 7 words"),
        ({"compared_with": None}, "not calibrated", "asked_without_result", "a run of 7 words means nothing"),
        ({"documents": 0, "unanswered": 3}, "refused", "asked_without_result", "could not have found anything"),
        ({"rung": None, "documents": 0}, None, "asked_without_result", "its other answers are listed"),
        ({"stand_out": 2}, "not reproduced", "asked_stands_out", "At the rung named beforehand (instruction)"),
        ({"documents": 1, "unanswered": 2}, "not reproduced", "asked_without_result", "could hardly have found"),
        ({"documents": 2, "unanswered": 2}, "not reproduced", "asked_not_reproduced", "That clears nobody."),
        ({"elsewhere": [{"rung": "title", "reproduced": 1, "documents": 2}]}, "not reproduced", "asked_not_reproduced",
         "At the rung title 1 of 2 documents is reproduced; that rung was not named beforehand."),
    ],
)  # fmt: skip
def test_answers_of_chat_models(changes: Mapping[str, Any], claim: str | None, outcome: str, said: str) -> None:
    answer = asking(**changes)
    assert_well_formed(answer)
    assert (answer["claim"], answer["outcome"]) == (claim, outcome)
    assert said in answer["explanation"]
    assert (answer["claim_in_words"] is None) is (claim is None)
    assert answer["unanswered_in_words"] is None


def test_sentences_on_calibration() -> None:
    few, enough = (str(asking(compared_with=n)["calibration_in_words"]) for n in (18, 19))
    assert few.endswith("no p-value can be as small as 0.05: that takes 19; the smallest is 0.053.")
    assert enough.endswith("With 19 held-out documents no p-value is below 0.050.")


def test_suggestions_omit_methods_that_were_used() -> None:
    named = {other: render_phrase(other, {}) for other in ("search", "twins")}
    for outcome, kind in read_kinds().items():
        both = suggest_methods(outcome, set())
        assert all((words in both.lower()) == (other in kind.others) for other, words in named.items())
        assert suggest_methods(outcome, {"search", "twins"}) == ""
        assert named["search"] not in suggest_methods(outcome, {"search"}).lower()
    grid, asked = (search(3, **done)["what_would_change"] for done in ({"grid": True}, {"asked": True}))
    assert ("--grid" in grid, "corpus-audit ask" in grid) == (False, True)
    assert ("--grid" in asked, "corpus-audit ask" in asked) == (True, False)


def test_a_missing_blind_control_has_a_reason() -> None:
    nobody = "so it is unknown how well the words alone separate the sides"
    assert describe_blind_control(None) == f"the blind control was not computed, {nobody}"
    method = (
        "two sides are compared; the blind control was not computed: there are 108 labelled examples, but 200 are "
        "required"
    )
    few = asdict(MetricEstimate(None, method=method))
    assert describe_blind_control(few) == (
        f"the blind control was not computed (there are 108 labelled examples, but 200 are required), {nobody}"
    )


@pytest.mark.parametrize(
    ("design", "builder", "stated_by", "words"),
    [
        ("unstated", "shelf", "the user", "held out by the user; the reason is not stated"),
        ("unstated", "given", "the user", "labelled by the user; the reason is not stated"),
        # Scores of texts that are held out and of others, whose labels are empty: nobody named a design.
        ("unlabelled", "given", "the user", "held out by the user; the reason is not stated"),
        ("unlabelled", "templated", None, "unlabelled"),
        ("temporal", "given", "the user", "temporal, stated by the user"),
        ("randomised", "controlled", None, "randomised"),
    ],
)
def test_a_design_is_marked_as_stated_only_if_it_was(
    design: str, builder: str, stated_by: str | None, words: str
) -> None:
    assert describe_design(design, builder, stated_by) == words
    behind_a_number = describe_design(design, builder, stated_by, phrase="held_out_by")
    assert behind_a_number == (words if words.endswith("not stated") else f"by design {words}")


def test_origin_of_labels_and_number_of_texts() -> None:
    assert describe_label_origin("given", None, None) == "the column label of the table that was handed over"
    assert describe_label_origin("labelled", "the folder mia", None) == "whoever published the rows (the folder mia)"
    assert describe_label_origin(None, None, None) is None
    assert describe_label_origin("shelf", None, "whoever ran it") == (
        "whoever ran it, of the texts that are held out or known; unknown for the others"
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


def check(low: float, high: float, twin: tuple[float | None, float | None] = (0.4, 0.6)) -> dict[str, Any]:
    return {
        "detector": "min_k_plus_plus",
        "exposed": asdict(MetricEstimate((low + high) / 2, low, high)),
        "twin": asdict(MetricEstimate(0.5, *twin)),
        "answers": True,
    }


@pytest.mark.parametrize(
    ("checks", "said"),
    [
        (
            [],
            "The instrument has not been checked here. Check it with corpus-audit control: it trains two small models",
        ),
        (
            [check(0.9, 1.0)],
            "The instrument works (AUROC 0.950 in a model trained on known texts, 0.500 in the control",
        ),
        ([check(0.4, 0.6)], "The instrument does not find texts that were read"),
        ([check(0.9, 1.0, (0.6, 0.7))], "The instrument reacts, and to more than training"),
        ([check(0.9, 1.0, (None, None))], "whether to training alone is not known"),
    ],
)
def test_sentences_on_the_instrument_check(checks: list[dict[str, Any]], said: str) -> None:
    assert said in describe_instrument(checks)


def result(outcome: str, **columns: Any) -> dict[str, Any]:
    """Return a result of a test, of a search or of scores, for its order and for the summary."""
    of_scores = {} if {"test", "reproduced"} & columns.keys() else {"sides": "labelled", "raw_searched": False}
    row = {"model": "M", "benchmark": "B", "outcome": outcome, "sign": find_kind(outcome).sign}
    return {**row, "claim_level": "screening only", "headline": f"{outcome}.", **of_scores, **columns}


def test_results_are_in_order_of_importance() -> None:
    evidence = result("found", test="twins", claim_level="sound test")
    look, refused = result("found", test="dataset_inference"), result("refused", test="sharded_permutation")
    answer, vain = result("documents_stand_out"), result("passages_not_reproduced", reproduced=0)
    assert sort_by_display_place([result("sound_evidence_of_training"), evidence])[0] == evidence
    assert sort_by_display_place([answer, refused, look, evidence, vain]) == [evidence, answer, look, vain, refused]
    seen, asked = result("passages_reproduced", reproduced=1), result("asked_reproduced", reproduced=2)
    (subject,) = group_by_subject([answer], [look, refused], [seen], [asked])
    assert subject.rows == [seen, asked, answer, look]
    assert subject.signs == ["found", "stands out"]


def summary_of(*results: dict[str, Any], **changes: Any) -> dict[str, str]:
    subjects = [Subject(answer=row) if "sides" in row else Subject(search=row) for row in results]
    settings: dict[str, Any] = {"pairs": len(results), **changes}
    return render_page_summary(["M"], ["A", "B"][: len(results)], subjects, **settings)


SCREENING, LOOK = result("separable"), result("difference_to_look_at")
EVIDENT = result("sound_evidence_of_training", claim_level="sound test")
SEEN = result("passages_reproduced", reproduced=1)


@pytest.mark.parametrize(
    ("results", "summary", "explanation"),
    [
        ([], "No model has been audited yet.", ""),
        ([LOOK], "difference_to_look_at.", ""),
        ([SCREENING, LOOK], "No evidence of training; 1 of 2 audits worth a closer look.",
         "None of 2 answers from scores is evidence of training: 1 with something to look at, screening only, 1 without"
         " a conclusion."),
        ([SCREENING, SCREENING], "No evidence of training in 2 audits.", "all without a conclusion"),
        ([SCREENING, EVIDENT], "Evidence of training in 1 of 2 audits.", "Of 2 answers from scores: 1 where a sound"),
        ([SEEN, SCREENING], "Found: passages of the texts in 1 of 2 audits.", ""),
    ],
)  # fmt: skip
def test_all_answers_together(results: list[dict[str, Any]], summary: str, explanation: str) -> None:
    found = summary_of(*results)
    assert found["summary"] == summary
    assert len(summary.split()) <= LONGEST_HEADLINE
    assert explanation in found["explanation"]


def test_certainty_of_all_answers_and_what_would_change_them() -> None:
    found = summary_of(SCREENING, EVIDENT)
    assert found["question"] == "We asked whether M was trained on texts of 2 benchmarks."
    sure = "Of 2 answers from scores, 1 of a comparison that chance decided can be more than a screening."
    assert found["how_sure"] == sure
    assert found["what_would_change"].startswith(
        "Where the two sides can be separated without the model (1), only other texts change the answer"
    )
    assert summary_of(SCREENING, SCREENING)["how_sure"].startswith("No answer from scores is more than a screening")
    assert summary_of(SEEN)["how_sure"].startswith("That the model gives passages word for word is seen directly")
    unsearched, searched = (
        summary_of(result("no_difference", raw_searched=done), LOOK)["what_would_change"] for done in (False, True)
    )
    assert (render_phrase("search", {}) in unsearched, render_phrase("search", {}) in searched) == (True, False)
    assert summary_of(refused=2, pairs=0)["summary"] == "No test of a whole set could be made."


@pytest.mark.parametrize(
    ("models", "benchmarks", "own", "heading"),
    [
        (["M"], ["Your files: books"], 6, "Were these 6 documents in the training data of M?"),
        (["M"], ["Your files: book.epub"], 1, "Was this document in the training data of M?"),
        (["M"], ["Notes"], None, "Were texts of “Notes” in the training data of M?"),
        (["M"], ["A", "B"], None, "Were texts of 2 benchmarks in the training data of M?"),
        (["M", "N"], ["A"], None, "Were texts of “A” in the training data of 2 models?"),
        ([], [], None, "Contamination report"),
    ],
)
def test_the_title_is_the_question(models: list[str], benchmarks: list[str], own: int | None, heading: str) -> None:
    facts = {"models": models, "benchmarks": benchmarks, "own_documents": own}
    assert render_phrase("page_heading", facts) == heading


def test_no_limit_claims_a_proof() -> None:
    assert not any("prove" in f"{limit['title']} {limit['text']}".lower() for limit in list_limits())
