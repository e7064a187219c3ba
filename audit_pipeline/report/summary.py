"""Answers of tests of whole sets, the order of all results, and the summary of a page.

answer_rules.py decides the answer of one model on one benchmark. The sentences are in answers.yaml.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from audit_pipeline.report.answer_rules import CHANCE, OPPOSITE, SOUND, STATISTICAL
from audit_pipeline.report.sentences import (
    P_LEVEL,
    TEST_IN_WORDS,
    Sign,
    describe_claim_level,
    find_kind,
    render_answer,
    render_phrase,
)
from audit_pipeline.statistics.claims import (
    AUROC_OF_INTEREST,
    WHOEVER_RAN_THIS,
    compute_detectable_auroc,
    find_claim_source,
)
from audit_pipeline.store.paths import INSTRUMENT_CHECK_TAKES

Row = Mapping[str, Any]


def describe_set_test(test: Row, *, handed_over: bool = False, stated_by: str | None = None) -> dict[str, Any]:
    """Return the answer of a test of a whole set in sentences.

    The test has a finding if its p-value, times the number of p-values of this set and model so far (Bonferroni), is at
    most 0.05. The correction prevents a user from testing a set until a test succeeds by accident.

    Args:
        test: Row of the table ``corpus_tests`` with ``refused``, ``p_values_so_far`` and titles.
        handed_over: True for external scores.
        stated_by: Person whose statement the claim level depends on, or None.
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
    """Return the person whose statement a test's claim level depends on, or None if it depends on no statement.

    Only the person who ran the test can state the order of a test set.
    """
    if test["test"] == "dataset_inference":
        return find_claim_source(test["claim_level"], design_stated_by, blind_auroc)
    stated_by = WHOEVER_RAN_THIS if test["test"] == "sharded_permutation" else None
    return find_claim_source(test["claim_level"], stated_by, None)


def _find_detectable_effect(detectable: float, n_p_values: int) -> dict[str, Any]:
    """Compute the AUROC that the test finds with a power of 80% after the correction.

    Args:
        detectable: AUROC that a single test finds with a power of 80%.
        n_p_values: Number of p-values of this set and model so far.

    Returns:
        The AUROC ``reached``. ``times`` is the factor by which the number of texts must grow until the test can find an
        effect that matters. ``could_have_found`` is True if the present number of texts is enough.
    """
    # A detectable AUROC lies a number of standard errors above chance. This number depends only on the test's level.
    errors_of_single_test = compute_detectable_auroc(1.0, P_LEVEL) - CHANCE
    errors_after_correction = compute_detectable_auroc(1.0, P_LEVEL / n_p_values) - CHANCE
    reached = CHANCE + (detectable - CHANCE) / errors_of_single_test * errors_after_correction
    times_as_many_texts = math.ceil(((reached - CHANCE) / (AUROC_OF_INTEREST - CHANCE)) ** 2)
    return {"reached": reached, "times": times_as_many_texts, "could_have_found": reached <= AUROC_OF_INTEREST}


def is_positive_set_test(result: Row) -> bool:
    """Return True for a test of a whole set with a finding that its claim level accepts as evidence."""
    return "test" in result and result["outcome"] == "found" and result["claim_level"] in (SOUND, STATISTICAL)


def has_found(result: Row) -> bool:
    """Return True if an answer or a search has a finding, or if a test has a finding that is evidence."""
    if "test" in result:
        return is_positive_set_test(result)
    return find_kind(result["outcome"]).sign in ("found", "stands out")


def sort_by_display_place(results: Sequence[Row]) -> list[Row]:
    """Sort results by the places of their outcomes (answers.yaml).

    Evidence of a test comes before evidence of one detector, because the test allows for all detectors.
    """
    return sorted(results, key=_build_place_key)


def _build_place_key(result: Row) -> tuple[int, bool]:
    if is_positive_set_test(result):
        return find_kind("evidence_of_training").place, False
    return find_kind(result["outcome"]).place, True


@dataclass
class Subject:
    """The results of one model on one benchmark.

    Attributes:
        answer: Answer from scores.
        search: Search for passages that the model continues word for word.
        chat: Questions to a model that answers in words.
        tests: Tests of the whole set.
    """

    answer: Row | None = None
    search: Row | None = None
    chat: Row | None = None
    tests: list[Row] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        """Return all results in display order."""
        return sort_by_display_place(list(filter(None, (self.answer, *self.tests, self.search, self.chat))))

    @property
    def signs(self) -> list[Sign]:
        """Return the distinct signs of the results in display order."""
        return list(dict.fromkeys(map(itemgetter("sign"), self.rows)))


def group_by_subject(
    answers: Sequence[Row], tests: Sequence[Row], searches: Sequence[Row], chats: Sequence[Row]
) -> list[Subject]:
    """Group results by model and benchmark.

    Pairs with reproduced passages come first, then pairs with evidence of tests, with answers, and all others. Refused
    tests have no result.
    """
    tests_done = [test for test in tests if test["outcome"] != "refused"]
    positive_tests = [test for test in tests_done if is_positive_set_test(test)]
    reproduced = [row for row in (*searches, *chats) if row["reproduced"]]
    subjects: dict[tuple[str, str], Subject] = {}
    for row in (*reproduced, *positive_tests, *answers, *searches, *chats, *tests_done):
        subjects.setdefault((row["model"], row["benchmark"]), Subject())
    for row in answers:
        subjects[row["model"], row["benchmark"]].answer = row
    for row in searches:
        subjects[row["model"], row["benchmark"]].search = row
    for row in chats:
        subjects[row["model"], row["benchmark"]].chat = row
    for row in tests_done:
        subjects[row["model"], row["benchmark"]].tests.append(row)
    return list(subjects.values())


# Names of the classes of results that stand out. The summary contains the number of results of each class.
_WORTHS = {
    "sound": "where a sound test shows training",
    "evidence": "with statistical evidence of training",
    "look": "with something to look at, screening only",
}
_CLAIMS = {SOUND: "sound", STATISTICAL: "evidence"}


def _classify(result: Row) -> str:
    """Return the class under which the summary counts a result, by its sign and, if it stands out, its worth."""
    kind = find_kind(result["outcome"])
    if kind.sign == "nothing found":
        return "with nothing found"
    if kind.sign != "stands out":
        return "without a conclusion"
    return _WORTHS[kind.worth or _CLAIMS.get(result.get("claim_level") or "", "look")]


def _format_result_counts(results: Sequence[Row]) -> list[str]:
    """Return the number of results of each class, such as '2 with nothing found'."""
    counts = Counter(map(_classify, results))
    if len(counts) == 1:
        return [f"all {name}" for name in counts]
    order = [*_WORTHS.values(), "with nothing found", "without a conclusion"]
    return [f"{counts[name]} {name}" for name in order if counts[name]]


def render_page_summary(
    models: Sequence[str],
    benchmarks: Sequence[str],
    subjects: Sequence[Subject],
    pairs: int,
    *,
    refused: int = 0,
    own_documents: int | None = None,
) -> dict[str, str]:
    """Return the summary of a page in sentences.

    Args:
        models: Titles of the models.
        benchmarks: Titles of the benchmarks.
        subjects: Results of each model and benchmark.
        pairs: Number of pairs with scores. The page may show fewer answers.
        refused: Number of tests of whole sets that were refused.
        own_documents: Number of audited documents of the user's files, or None if a benchmark has other texts.

    Returns:
        The sentences ``heading``, ``question``, ``summary``, ``explanation``, ``how_sure`` and ``what_would_change``.
    """
    answers: list[Row] = []
    tests: list[Row] = []
    for subject in subjects:
        tests += subject.tests
        if subject.answer is not None:
            answers.append(subject.answer)
    levels = Counter(map(itemgetter("claim_level"), answers))
    outcomes = Counter(map(itemgetter("outcome"), answers))
    remedies = set()
    null_answers = []
    for answer in answers:
        remedy = find_kind(answer["outcome"]).helped_by
        remedies.add(remedy)
        if remedy == "more texts":
            null_answers.append(answer)
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
        "seen": _count_with_sign(subjects, "found"),
        "evidence": sum(map(_has_evidence, subjects)),
        "look": _count_with_sign(subjects, "stands out"),
        "reproduced": _count_with_sign(subjects, "found") > 0,
        "sound": levels[SOUND],
        "alike": levels[STATISTICAL],
        "separable": outcomes["separable"],
        "to_look_at": "texts that are alike" in remedies,
        "null_answers": len(null_answers),
        "unsearched": not all(map(itemgetter("raw_searched"), null_answers)),
    }
    texts = {}
    for part in ("heading", "question", "summary", "explanation", "how_sure", "what_would_change"):
        texts[part] = render_phrase(f"page_{part}", facts)
    if len(subjects) == 1:
        texts["summary"] = subjects[0].rows[0]["headline"]
    return texts


def _count_with_sign(subjects: Sequence[Subject], sign: Sign) -> int:
    return sum(sign in subject.signs for subject in subjects)


def _has_evidence(subject: Subject) -> bool:
    return any(_classify(row) in (_WORTHS["sound"], _WORTHS["evidence"]) for row in subject.rows)


def describe_instrument(checks: Sequence[Row]) -> str:
    """Return the result of the instrument check as a sentence.

    The sentence is about the headline detector, or about the first detector with a result if the headline has none.
    """
    with_result = [check for check in checks if check["exposed"]["value"] is not None]
    headline = [check for check in with_result if check["answers"]]
    shown_check = next(iter([*headline, *with_result]), None)
    facts = {"checked": bool(checks), "check": shown_check, "check_takes": INSTRUMENT_CHECK_TAKES}
    return render_phrase("instrument", facts)
