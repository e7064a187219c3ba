"""What is said of tests of whole sets, and of all answers and tests together: the summary of a page.

What belongs here: results in one line, and how many of each kind there are. What does not: the answer of one model on
one benchmark (answer.py), numbers (number_format.py), layout (sections/).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from audit_pipeline.catalogue.control_roles import INSTRUMENT_CHECK_TAKES
from audit_pipeline.metrics.claims import AUROC_OF_INTEREST, detectable_auroc
from audit_pipeline.report.answer_kinds import kind_of
from audit_pipeline.report.number_format import count, number, probability, things
from audit_pipeline.report.vocabulary import (
    CHANCE,
    NO_CONCLUSION,
    OPPOSITE,
    P_LEVEL,
    SIGN_FORGOTTEN,
    SOUND,
    STATISTICAL,
    TEST_IN_WORDS,
    TEST_RESULTS,
    Estimate,
    ScoreOrigin,
)

_SEEN = ("passages_reproduced", "asked_reproduced")
COULD_NOT_TEST = "This test could not have found anything:"
COULD_HARDLY_TEST = "This test could hardly have found anything:"

TestOutcome = Literal["found", "not_found", "opposite_direction", "hardly_testable", "refused"]
Row = Mapping[str, Any]


def describe_whole_set_test(
    *,
    test: str,
    refusal: str | None,
    p_value: float | None,
    p_values_so_far: int,
    claim_level: str,
    n: int,
    n_held_out: int,
    detectable: float | None,
    direction: str | None = None,
    origin: ScoreOrigin | None = None,
) -> tuple[TestOutcome, str]:
    """The result of a test of a whole set: its kind, and in one line.

    It counts as found where the p-value times the number of p-values of this set and model so far (Bonferroni) is at
    most 0.05: who tests a set until something is found has to pay for it; and nothing was found where it could have
    been. ``n``, ``n_held_out``, ``detectable`` (its ``detectable_auroc``) and ``direction``: as of CORPUS_TESTS.
    """
    name = TEST_IN_WORDS.get(test, test.replace("_", " "))
    stands_out, vain = TEST_RESULTS.get(test, (f"The set stands out by the test {name}", f"not by the test {name}"))
    known = origin or ScoreOrigin()
    if refusal is not None or p_value is None:
        return "refused", f"{COULD_NOT_TEST} {refusal or 'it has no p-value'} (test: {name})."
    if direction == OPPOSITE:
        what = f"{NO_CONCLUSION} together the held-out texts score higher than the audited ones."
        return "opposite_direction", f"{what}{f' {SIGN_FORGOTTEN}' if known.handed_over else ''}"
    p = f"p = {probability(p_value)}"
    allowed = min(1.0, p_value * max(1, p_values_so_far))
    if allowed > P_LEVEL:
        but = "" if p_value > P_LEVEL else f", {probability(allowed)} with all {p_values_so_far} p-values allowed for"
        could_have, effect = _describe_detectable_effect(n, n_held_out, detectable, max(1, p_values_so_far))
        if not could_have:
            return "hardly_testable", f"{COULD_HARDLY_TEST} {effect} (test: {name}; {p}{but})."
        return "not_found", f"Nothing found: {vain} ({p}{but}), and it would have found {effect}. That clears nobody."
    stated = f" (as stated by {known.stated_by})" if known.stated_by else ""
    worth = {
        SOUND: f"a sound test{stated} finds training on this set",
        STATISTICAL: "statistical evidence of training on this set",
    }.get(claim_level, "worth a closer look, and no evidence")
    return "found", f"{stands_out} ({p}): {worth}."


def _describe_detectable_effect(n: int, n_held_out: int, detectable: float | None, p_values: int) -> tuple[bool, str]:
    """Whether so many p-values together let a test find an effect that matters, and what it would have found: of
    canaries every published one ranking first."""
    allowing = f", with {count(p_values)} p-values allowed for" if p_values > 1 else ""
    if detectable is None:
        log_smallest = -n * math.log1p(n_held_out / n)
        if log_smallest > math.log(P_LEVEL / p_values) + 1e-9:
            return False, f"{things(n_held_out, 'canary', 'canaries')} to compare with are too few{allowing}"
        if n > 1:
            return True, f"it if each of {count(n)} published canaries had ranked first{allowing}"
        first = int(P_LEVEL / p_values * (n_held_out + 1) + 1e-9)
        return True, f"it among the first {count(first)} of {count(n_held_out + 1)}{allowing}"
    # Of one p-value to several: both are so many standard errors above chance.
    by_one = detectable_auroc(1.0, P_LEVEL) - CHANCE
    reached = CHANCE + (detectable - CHANCE) / by_one * (detectable_auroc(1.0, P_LEVEL / p_values) - CHANCE)
    if reached > AUROC_OF_INTEREST:
        times = math.ceil(((reached - CHANCE) / (AUROC_OF_INTEREST - CHANCE)) ** 2)
        return False, (
            f"{times} times as much is needed to find an AUROC of {AUROC_OF_INTEREST:g} four times in five{allowing}"
        )
    return True, f"an AUROC of {number(reached)} (0.5 is chance) four times in five{allowing}"


def is_shown_first(test: Row) -> bool:
    """Whether a test belongs on the first screen: a refused one has no result."""
    return bool(test["outcome"] != "refused")


def is_evidence(test: Row) -> bool:
    """Whether a test of a whole set found something, and its claim level lets that count."""
    return test["outcome"] == "found" and test["claim_level"] in (SOUND, STATISTICAL)


def sort_by_kind(rows: Sequence[Row]) -> list[Row]:
    """Sort the answer from scores, tests of the whole set and what is given word for word by the place of their kind.

    Evidence of a test, which allows for all detectors, comes before that of one detector.
    """
    return sorted(rows, key=lambda row: (_find_display_rank(row), not ("test" in row and is_evidence(row))))


def has_found(row: Row) -> bool:
    """Whether an answer or a search found something, or documents stand out; of a test: whether it is evidence."""
    return is_evidence(row) if "test" in row else kind_of(row["outcome"]).sign in ("found", "stands out")


def _find_display_rank(row: Row) -> int:
    return kind_of("evidence_of_training" if "test" in row and is_evidence(row) else row["outcome"]).place


def summarise_results(
    answers: Sequence[Row],
    pairs: int,
    tests: Sequence[Row] = (),
    searches: Sequence[Row] = (),
    chats: Sequence[Row] = (),
) -> str:
    """All answers and tests of whole sets in a few sentences, by what they may claim.

    ``answers``: the rows of those that are shown, of so many ``pairs``. ``searches``: kind and headline of each search
    for passages that a model gives word for word; ``chats``: the same of models that were asked in words. What is
    reproduced is seen, not concluded, so it comes first; where nothing is, what was searched in vain has the place of
    its kind among the answers.
    """
    seen = [row["headline"] for row in (*searches, *chats) if row["outcome"] in _SEEN]
    if seen:
        more = [f"So it is with {count(len(seen) - 1)} more."] if len(seen) > 1 else []
        scores = [_summarise_scores(answers, pairs, tests)] if pairs or tests else []
        return " ".join([*seen[:1], *more, *scores])
    sentences = [(_find_display_rank(row), row["headline"]) for row in sort_by_kind(searches)]
    if len(sentences) > 1:
        sentences = [
            (sentences[0][0], f"In {count(len(sentences))} searches for passages, none was given word for word.")
        ]
    if chats:
        first, *others = sort_by_kind(chats)
        count_of_others = f" It was asked about {things(len(others), 'other benchmark', 'other benchmarks')}, too."
        sentences.append((_find_display_rank(first), f"{first['headline']}{count_of_others if others else ''}"))
    if not sentences or pairs or tests:
        places = [_find_display_rank(row) for row in (*answers, *filter(is_shown_first, tests))]
        sentences.insert(0, (min(places, default=0), _summarise_scores(answers, pairs, tests)))
    return " ".join(words for _, words in sorted(sentences, key=lambda sentence: sentence[0]))


def _summarise_scores(answers: Sequence[Row], pairs: int, tests: Sequence[Row]) -> str:
    shown = [test for test in tests if is_shown_first(test)]
    of_tests = _summarise_tests(shown)
    if not pairs:
        return of_tests or ("No test of a whole set could be made." if tests else "No model has been audited yet.")
    has_evidence = any(is_evidence(test) for test in shown)
    of_answers = _summarise_answers(answers, pairs, has_evidence=has_evidence)
    return " ".join(part for part in ((of_tests, of_answers) if has_evidence else (of_answers, of_tests)) if part)


def _summarise_tests(tests: Sequence[Row]) -> str:
    if len(tests) == 1:
        return str(tests[0]["headline"])
    found = Counter(
        {SOUND: "sound", STATISTICAL: "evidence"}.get(test["claim_level"], "look")
        if test["outcome"] == "found"
        else test["outcome"]
        for test in tests
    )
    listed = _join_with_and([f"{found[kind]} {words}" for kind, words in _KINDS_OF_TESTS.items() if found[kind]])
    return f"Of {count(len(tests))} tests of whole sets: {listed}." if tests else ""


_KINDS_OF_TESTS: Mapping[str, str] = {
    "sound": "where a sound test shows training",
    "evidence": "with statistical evidence of training",
    "look": "with something to look at, screening only",
    "not_found": "with nothing found",
    "opposite_direction": "in the opposite direction",
    "hardly_testable": "that could hardly have found anything",
}


def _join_with_and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def _summarise_answers(answers: Sequence[Row], pairs: int, *, has_evidence: bool) -> str:
    if len(answers) == 1:
        return str(answers[0]["headline"])
    found = Counter(_classify_answer(answer) for answer in answers)
    parts = [f"{'all' if len(found) == 1 else found[kind]} {words}" for kind, words in _KINDS.items() if found[kind]]
    listed = _join_with_and(parts)
    shown = "answers" if len(answers) == pairs else f"answers that matter most, of {count(pairs)}"
    if not found["sound"] and not found["evidence"] and not has_evidence:
        return f"None of {count(len(answers))} {shown} is evidence of training: {listed}."
    return f"Of {count(len(answers))} {shown}: {listed}."


_KINDS: Mapping[str, str] = {
    "sound": "where a sound test shows training",
    "evidence": "with statistical evidence of training",
    "look": "with something to look at, screening only",
    "nothing found": "with nothing found",
    "no conclusion": "without a conclusion",
}


def _classify_answer(answer: Row) -> str:
    """By what an answer is counted: its sign, and where something stands out what that may claim."""
    kind = kind_of(answer["outcome"])
    if kind.sign != "stands out":
        return kind.sign
    return kind.worth or {SOUND: "sound", STATISTICAL: "evidence"}.get(answer["claim_level"] or "", "look")


def instrument_words(checks: Sequence[Row]) -> str:
    """What the instrument check says, by the headline detector, or the strongest where that has no result."""
    if not checks:
        return (
            "The instrument has not been checked here. Check it with corpus-audit control: it trains two small models"
            f" on texts drawn by chance, in {INSTRUMENT_CHECK_TAKES}."
        )
    known = [check for check in checks if check["exposed"]["value"] is not None]
    chosen = next((check for check in known if check["answers"]), next(iter(known), None))
    if chosen is None:
        return "The instrument check has no result: no detector has an AUROC on it."
    exposed, control = Estimate(**chosen["exposed"]), Estimate(**chosen["twin"])
    works = exposed.low is not None and exposed.low > CHANCE
    unknown = control.low is None or control.high is None
    clean = control.low is not None and control.high is not None and control.low <= CHANCE <= control.high
    reached = (
        f"(AUROC {number(exposed.value)} in a model trained on known texts, {number(control.value)} in the control"
        f" model, which was not; {chosen['detector']})"
    )
    if works and clean:
        return f"The instrument works {reached}. In large models texts leave less behind."
    if works and unknown:
        return f"The instrument reacts {reached}; whether to training alone is not known: the control has no interval."
    if works:
        return f"The instrument reacts, and to more than training {reached}: in the control model it should be at 0.5."
    return f"The instrument does not find what is there {reached}: a result at chance means little then."
