"""Tests of whole sets as answers, the order of all results, and what they come to together.

What belongs here: the rule of a test's kind, which result is shown first, how many there are of each kind. What does
not: the answer of one model on one benchmark (answer_rules.py), sentences (answers.yaml), layout (sections/).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from audit_pipeline.report.answer_rules import CHANCE, OPPOSITE, SOUND, STATISTICAL
from audit_pipeline.report.notes import TEST_IN_WORDS, describe_claim_level
from audit_pipeline.report.sentences import P_LEVEL, Sign, find_kind, render_answer, render_phrase
from audit_pipeline.statistics.claims import AUROC_OF_INTEREST, WHOEVER_RAN_THIS, detectable_auroc, find_claim_source
from audit_pipeline.store.control_names import INSTRUMENT_CHECK_TAKES

Row = Mapping[str, Any]


def describe_set_test(test: Row, *, handed_over: bool = False, stated_by: str | None = None) -> dict[str, Any]:
    """The answer of a test of a whole set, of a row of CORPUS_TESTS with ``refused``, ``p_values_so_far`` and titles.

    It counts as found where the p-value times the number of p-values of this set and model so far (Bonferroni) is at
    most 0.05: who tests a set until something is found has to pay for it; and nothing was found where it could have
    been. ``handed_over``: the scores are a user's own; ``stated_by``: whose word the claim level rests on.
    """
    p_values = max(1, test["p_values_so_far"])
    facts = {
        **test,
        "model": test["model_title"],
        "benchmark": test["benchmark_title"],
        "name": TEST_IN_WORDS.get(test["test"], test["test"].replace("_", " ")),
        "handed_over": handed_over,
        "stated_by": stated_by,
        "claim_in_words": describe_claim_level(test["claim_level"], stated_by),
        "p_values_so_far": p_values,
        "allowed": min(1.0, (test["p_value"] or 0.0) * p_values),
    }
    if test["refused"] is not None or test["p_value"] is None:
        kind = "refused"
    elif test["direction"] == OPPOSITE:
        kind = "opposite_direction"
    elif facts["allowed"] <= P_LEVEL:
        kind = "found"
    else:
        facts.update(_find_detectable_effect(test["detectable_auroc"], p_values))
        kind = "not_found" if facts["could_have_found"] else "hardly_testable"
    answer = render_answer(kind, facts, question="question_of_test")
    return {
        **answer,
        "brief": render_phrase("brief_of_test", {**facts, **answer}),
        "claim_stated_by": stated_by,
        "claim_in_words": facts["claim_in_words"],
    }


def find_test_claim_source(test: Row, design_stated_by: str | None, blind_auroc: float | None) -> str | None:
    """Whose word a test's claim level rests on: of a test set's order always that of whoever ran the test."""
    if test["test"] == "dataset_inference":
        return find_claim_source(test["claim_level"], design_stated_by, blind_auroc)
    stated_by = WHOEVER_RAN_THIS if test["test"] == "sharded_permutation" else None
    return find_claim_source(test["claim_level"], stated_by, None)


def _find_detectable_effect(detectable: float, p_values: int) -> dict[str, Any]:
    """Whether so many p-values together let a test find an effect that matters, and what AUROC it would have found
    (``reached``, or ``times`` as much is needed)."""
    # Of one p-value to several: both are so many standard errors above chance.
    by_single_test = detectable_auroc(1.0, P_LEVEL) - CHANCE
    reached = CHANCE + (detectable - CHANCE) / by_single_test * (detectable_auroc(1.0, P_LEVEL / p_values) - CHANCE)
    times = math.ceil(((reached - CHANCE) / (AUROC_OF_INTEREST - CHANCE)) ** 2)
    return {"reached": reached, "times": times, "could_have_found": reached <= AUROC_OF_INTEREST}


def is_positive_set_test(result: Row) -> bool:
    """Whether a result is of a test of a whole set that found something, and its claim level lets that count."""
    return "test" in result and result["outcome"] == "found" and result["claim_level"] in (SOUND, STATISTICAL)


def has_found(result: Row) -> bool:
    """Whether an answer or a search found something, or documents stand out; of a test: whether it is evidence."""
    if "test" in result:
        return is_positive_set_test(result)
    return find_kind(result["outcome"]).sign in ("found", "stands out")


def sort_by_display_place(results: Sequence[Row]) -> list[Row]:
    """Sort answers from scores, tests of the whole set and what is given word for word by the places of their kinds.

    Evidence of a test, which allows for all detectors, comes before that of one detector.
    """

    def place(result: Row) -> tuple[int, bool]:
        evidence = is_positive_set_test(result)
        return find_kind("evidence_of_training" if evidence else result["outcome"]).place, not evidence

    return sorted(results, key=place)


@dataclass
class Subject:
    """The results of one model on one benchmark or set: from scores, word for word, in answers, and by tests of the
    whole set."""

    answer: Row | None = None
    found: Row | None = None
    said: Row | None = None
    tests: list[Row] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        """Its results, in the order of the terminal, too."""
        return sort_by_display_place([row for row in (self.answer, *self.tests, self.found, self.said) if row])

    @property
    def signs(self) -> list[Sign]:
        """The signs of its results, each once, in their order."""
        return list(dict.fromkeys(row["sign"] for row in self.rows))


def group_by_subject(
    answers: Sequence[Row], tests: Sequence[Row], searches: Sequence[Row], chats: Sequence[Row]
) -> list[Subject]:
    """The results by model and benchmark: reproduced passages first, then evidence of tests, answers, and all others.

    Tests that could not be made have no result.
    """
    subjects: dict[tuple[str, str], Subject] = {}
    tests = [test for test in tests if test["outcome"] != "refused"]
    reproduced = (row for row in (*searches, *chats) if row["reproduced"])
    for row in (*reproduced, *filter(is_positive_set_test, tests), *answers, *searches, *chats, *tests):
        subjects.setdefault((row["model"], row["benchmark"]), Subject())
    for name, rows in (("answer", answers), ("found", searches), ("said", chats)):
        for row in rows:
            setattr(subjects[row["model"], row["benchmark"]], name, row)
    for test in tests:
        subjects[test["model"], test["benchmark"]].tests.append(test)
    return list(subjects.values())


_WORTHS = {
    "sound": "where a sound test shows training",
    "evidence": "with statistical evidence of training",
    "look": "with something to look at, screening only",
}
_CLAIMS = {SOUND: "sound", STATISTICAL: "evidence"}


def _classify(result: Row) -> str:
    """By what a result is counted: its sign, and where something stands out what that may claim."""
    kind = find_kind(result["outcome"])
    if kind.sign != "stands out":
        return "with nothing found" if kind.sign == "nothing found" else "without a conclusion"
    return _WORTHS[kind.worth or _CLAIMS.get(result.get("claim_level") or "", "look")]


def _format_result_counts(results: Sequence[Row]) -> list[str]:
    found = Counter(map(_classify, results))
    order = [*_WORTHS.values(), "with nothing found", "without a conclusion"]
    return [f"{'all' if len(found) == 1 else found[kind]} {kind}" for kind in order if found[kind]]


def render_page_summary(
    models: Sequence[str],
    benchmarks: Sequence[str],
    subjects: Sequence[Subject],
    pairs: int,
    *,
    refused: int = 0,
    own_documents: int | None = None,
) -> dict[str, str]:
    """What all results of a page come to: ``heading``, ``question``, ``summary`` (one sentence), ``explanation``,
    ``how_sure`` and ``what_would_change``.

    ``models`` and ``benchmarks`` by their titles. ``pairs``: how many were scored, of which the answers that are shown
    may be fewer. ``refused``: tests of whole sets that could not be made. ``own_documents``: how many documents of a
    user's own files were audited; None where a benchmark is of other texts.
    """
    results = [result for subject in subjects for result in subject.rows]
    answers, tests = ([row for row in results if column in row] for column in ("sides", "test"))
    null_answers = [row for row in answers if find_kind(row["outcome"]).helped_by == "more texts"]
    evidence, levels = [_WORTHS["sound"], _WORTHS["evidence"]], Counter(row["claim_level"] for row in answers)
    facts = {
        "models": models,
        "benchmarks": benchmarks,
        "own_documents": own_documents,
        "subjects": len(subjects),
        "tests": len(tests) + refused,
        "test_counts": _format_result_counts(tests),
        "answers": len(answers),
        "answer_counts": _format_result_counts(answers),
        "pairs": pairs,
        "seen": sum("found" in subject.signs for subject in subjects),
        "evidence": sum(any(_classify(row) in evidence for row in subject.rows) for subject in subjects),
        "look": sum("stands out" in subject.signs for subject in subjects),
        "reproduced": any(find_kind(row["outcome"]).sign == "found" for row in results),
        "sound": levels[SOUND],
        "alike": levels[STATISTICAL],
        "separable": sum(row["outcome"] == "separable" for row in answers),
        "to_look_at": any(find_kind(row["outcome"]).helped_by == "texts that are alike" for row in answers),
        "null_answers": len(null_answers),
        "unsearched": not all(row["raw_searched"] for row in null_answers),
    }
    parts = ("heading", "question", "summary", "explanation", "how_sure", "what_would_change")
    words = {part: render_phrase(f"page_{part}", facts) for part in parts}
    return {**words, "summary": subjects[0].rows[0]["headline"]} if len(subjects) == 1 else words


def describe_instrument(checks: Sequence[Row]) -> str:
    """What the instrument check says, by the headline detector, or the strongest where that has no result."""
    known = [check for check in checks if check["exposed"]["value"] is not None]
    shown = next((check for check in known if check["answers"]), next(iter(known), None))
    return render_phrase("instrument", {"checked": bool(checks), "check": shown, "check_takes": INSTRUMENT_CHECK_TAKES})
