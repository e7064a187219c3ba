"""What the report says in words: the answer of one model on one benchmark, and the limits of all of them.

What belongs here: from a claim level and a few numbers to an outcome and sentences, which never say more than the level
allows. What does not: the levels themselves (evaluation/claims.py), numbers (report_numbers.py), layout (templates/).

The rule, for the AUROC of the detector that was chosen beforehand, by its 95% interval:

* *separable without a model*: no conclusion, whatever the detector reached.
* *screening only*: above chance is something to look at, and no more.
* *statistical evidence*: a difference counts where the interval lies above chance and the margin over the blind control
  above zero. A margin raises no level; the lack of one keeps the report from saying what the level would allow.
* *sound test*: the interval above chance is enough, for the labels were drawn by chance.

Of a shelf's documents: how many have a q-value (Benjamini-Hochberg) of at most 0.05. Conformal p-values that share
their calibration documents are positively dependent, so that it controls the false discovery rate (Bates et al. 2023,
Annals of Statistics 51); Benjamini-Yekutieli, which holds whatever the dependence, stands beside it. Where even the
smallest q-value that the calibration documents allow lies above that, none can, and the report says so instead of
"none".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from audit_pipeline.evaluation.claims import CLAIM_IN_WORDS, VERDICT_IN_WORDS
from audit_pipeline.warehouse.report_document import (
    Answer,
    Asked,
    CorpusTest,
    Documents,
    Estimate,
    InstrumentCheck,
    Limit,
    Outcome,
    Sides,
    TestOutcome,
)
from audit_pipeline.warehouse.report_numbers import count, number, probability, things

Q_LEVEL = 0.05
P_LEVEL = 0.05
CHANCE = 0.5

SEPARABLE = "separable without a model"
STATISTICAL = "statistical evidence"
SOUND = "sound test"

STATUS_IN_WORDS: Mapping[str, str] = {
    "failed": "a fault stopped the latest run; to be run again",
    "not_applicable": "the model or the benchmark could not be used as it is; the reason says what to do",
    "stale": "there is a finding, but what it rests on has changed since; to be audited again",
    "missing": "there is no finding yet",
    "done": "there is a finding, and what it rests on has not changed since",
}

RULE_IN_WORDS: Mapping[str, str] = {
    "largest_accuracy": "largest accuracy",
    "marginal": "marginal: aimed at on average",
    "certified": "certified: exceeded in 5% of calibrations at most",
}

TEST_IN_WORDS: Mapping[str, str] = {
    "dataset_inference": "dataset inference",
    "canary_rank": "rank of the published canary",
    "sharded_permutation": "order of the test set (sharded permutation)",
}

STEP_IN_WORDS: Mapping[str, str] = {
    "token_statistics": "passes of the model",
    "scores": "detectors",
    "evaluations": "evaluation",
}


@dataclass(frozen=True)
class Words:
    """An answer: its kind, in one line, and in a few sentences."""

    outcome: Outcome
    headline: str
    explanation: str


def claim_words(name: str) -> str:
    """What a claim level allows to say, in plain sentences; the level itself where an older run wrote another one."""
    return next((words for known, words in CLAIM_IN_WORDS.items() if known == name), name)


def verdict_words(verdict: str) -> str:
    """What a split verdict means, in plain sentences; the verdict itself where an older run wrote another one."""
    return next((words for known, words in VERDICT_IN_WORDS.items() if known == verdict), verdict)


def rule_words(rule: str) -> str:
    """A threshold's rule in words."""
    return RULE_IN_WORDS.get(rule, rule.replace("_", " "))


def question(asked_of: str) -> str:
    """What was asked, of a model or of several."""
    return f"Were these texts in {asked_of} pretraining data, and how sure can anyone be?"


def answer_words(
    *,
    sides: Sides,
    claim_level: str | None,
    split_verdict: str | None,
    auroc: Estimate | None,
    margin: Estimate | None,
    documents: Documents | None,
) -> Words:
    """The answer, from what is known of the detector that was chosen beforehand.

    A shelf's documents come first: they are what was asked about. Else the AUROC of labelled members against
    non-members, or of audited against held-out texts.
    """
    if documents is not None:
        return _of_documents(documents, claim_level, split_verdict)
    if sides == "none" or claim_level is None:
        return Words(
            "not_evaluated",
            "Scored, not evaluated.",
            "The benchmark has no texts labelled on both sides and none held out, or the evaluation has not been run: "
            "there is nothing to compare the scores with.",
        )
    if auroc is None or auroc.value is None:
        return Words(
            "not_defined",
            "No answer: there is no number.",
            "The detector that was chosen beforehand has no AUROC here"
            + (f": {auroc.method}." if auroc is not None and auroc.method else "."),
        )
    return _of_sides(auroc, margin, claim_level, split_verdict, sides)


def _of_sides(
    auroc: Estimate, margin: Estimate | None, claim_level: str, split_verdict: str | None, sides: Sides
) -> Words:
    first, second = (
        ("members", "non-members") if sides == "labelled" else ("the audited texts", "texts that it cannot have read")
    )
    if split_verdict == SEPARABLE:
        return Words(
            "separable",
            "No conclusion: the texts give themselves away.",
            "The two sides can be told apart without the model, by their words alone. Whatever the detector finds may"
            " be that difference, so this says nothing about the training data.",
        )
    if auroc.low is None or auroc.high is None:
        return Words(
            "not_defined",
            "No answer: the number has no interval.",
            f"The AUROC is {number(auroc.value)}, and how far chance alone would move it is not known"
            + (f": {auroc.method}." if auroc.method else "."),
        )
    if auroc.high < CHANCE:
        return Words(
            "reversed_difference",
            "No sign of training.",
            f"The scores of {first} are lower than those of {second}, the opposite of what training would do: the two"
            " sides differ in something else. This clears no text.",
        )
    if auroc.low > CHANCE:
        return _of_a_difference(f"The scores of {first} are higher than those of {second}", margin, claim_level)
    words = f"The detector does not tell {first} from {second} better than chance."
    if claim_level == SOUND:
        return Words(
            "no_difference",
            "The test finds no difference.",
            f"{words} Chance decided which texts are members, so the comparison is fair; but a text that was seen"
            " once or twice can go unnoticed.",
        )
    return Words(
        "no_difference",
        "No difference found.",
        f"{words} That clears nobody: text that was trained on can go unnoticed.",
    )


def _of_a_difference(words: str, margin: Estimate | None, claim_level: str) -> Words:
    """What a claim level allows to say of an AUROC above chance; ``words`` say which scores are higher."""
    if claim_level == SOUND:
        return Words(
            "sound_evidence_of_training",
            "The model tells texts it was trained on from texts it was not.",
            f"{words}, beyond chance. Chance decided which texts are members: nothing but membership differs between"
            " the two sides.",
        )
    if claim_level == STATISTICAL and margin is not None and margin.low is not None and margin.low > 0:
        return Words(
            "evidence_of_training",
            "Statistical evidence of training on these texts.",
            f"{words}, which are like them by design, and by more than the texts give away without the model.",
        )
    if claim_level == STATISTICAL:
        return Words(
            "difference_within_control",
            "A difference, but no more than the texts may give away.",
            f"{words}. The difference is not clearly larger than what a classifier finds that never sees the model, so"
            " it is no evidence of training.",
        )
    return Words(
        "difference_to_look_at",
        "A difference worth a closer look, and no evidence.",
        f"{words}. That may come from training, or from any other difference between the two sides: screening says"
        " where to look, not what happened.",
    )


def smallest_q(calibration_groups: int, tested: int) -> float:
    """The smallest q-value (Benjamini and Hochberg 1995) there can be: every p-value is 1 / (groups + 1)."""
    return 1 / (calibration_groups + 1) if tested else 1.0


def needed(tested: int, standing_out: int) -> int:
    """How many calibration documents let ``standing_out`` of ``tested`` reach a q-value of 0.05 together."""
    return math.ceil(tested / (Q_LEVEL * standing_out) - 1e-9) - 1


def _of_documents(documents: Documents, claim_level: str | None, split_verdict: str | None) -> Words:
    those = things(documents.tested, "document", "documents")
    against = things(documents.calibration_groups, "document that", "documents that")
    if documents.smallest_q > Q_LEVEL:
        return Words(
            "documents_cannot_stand_out",
            "No document could stand out: too few to compare with.",
            f"Each of {those} was compared with {against} the model cannot have read. So few allow no q-value below"
            f" {number(documents.smallest_q)}, whatever the scores. {count(needed(documents.tested, documents.tested))}"
            f" would be the fewest that do; {count(needed(documents.tested, 1))} let one document stand out alone.",
        )
    if documents.standing_out == 0:
        return Words(
            "no_document_stands_out",
            f"None of {those} stands out." if documents.tested > 1 else "The document does not stand out.",
            f"No score is unusual beside those of {against} the model cannot have read, once the number of"
            " documents is allowed for. That clears nobody: text that was trained on can go unnoticed.",
        )
    some = f"{count(documents.standing_out)} of {those}"
    if claim_level == SOUND:
        allowed = (
            f"Chance decided what the model could have read: of the documents that stand out, at most {Q_LEVEL:.0%} are"
            " expected to do so by accident."
        )
        headline = f"{some}: higher scores than chance allows."
    elif claim_level == STATISTICAL:
        allowed = (
            "The documents that they are compared with are like them by design, so this is statistical evidence of"
            f" training on them, with at most {Q_LEVEL:.0%} of these documents expected to stand out by accident."
        )
        headline = f"Statistical evidence on {some}."
    else:
        allowed = (
            "That says where to look. It is no evidence: the documents that they are compared with may differ from them"
            + (
                " in more than training, and can be told from them without the model."
                if split_verdict == SEPARABLE
                else " in more than training."
            )
        )
        headline = f"{some} {'stands' if documents.standing_out == 1 else 'stand'} out: worth a closer look."
    return Words(
        "documents_stand_out",
        headline,
        f"Their scores are unusually high beside those of {against} the model cannot have read, the number of documents"
        f" allowed for (q ≤ {Q_LEVEL}). {allowed}",
    )


def whole_set_words(
    *, test: str, refused: str | None, p_value: float | None, p_values_so_far: int, claim_level: str
) -> tuple[TestOutcome, str]:
    """The result of a test of a whole set: its kind, and in one line.

    It counts as found where the p-value times the number of p-values of this set and model so far (Bonferroni) is at
    most 0.05: who tests a set until something is found has to pay for it.
    """
    name = _capital(TEST_IN_WORDS.get(test, test.replace("_", " ")))
    if refused is not None or p_value is None:
        return "refused", f"{name}: refused, so there is no p-value."
    p = f"p = {probability(p_value)}"
    allowed = min(1.0, p_value * max(1, p_values_so_far))
    if allowed > P_LEVEL:
        but = "" if p_value > P_LEVEL else f", {probability(allowed)} with all {p_values_so_far} p-values allowed for"
        return "not_found", f"{name}: nothing found ({p}{but}). That clears nobody."
    if claim_level == SOUND:
        return "found", f"{name}: a sound test finds training on this set ({p})."
    if claim_level == STATISTICAL:
        return "found", f"{name}: statistical evidence of training on this set ({p})."
    return "found", f"{name}: a difference worth a closer look, and no evidence ({p})."


def is_told_first(test: CorpusTest) -> bool:
    """Whether a test belongs on the first screen: not where dataset inference is refused for the benchmark's design."""
    is_for_design = test.design not in ("exchangeable", "randomised")
    return not (test.test == "dataset_inference" and test.outcome == "refused" and is_for_design)


def is_evidence(test: CorpusTest) -> bool:
    """Whether a test of a whole set found something, and its claim level lets that count."""
    return test.outcome == "found" and test.claim_level in (SOUND, STATISTICAL)


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def summary_of(answers: Sequence[Answer], asked: Asked, tests: Sequence[CorpusTest] = ()) -> str:
    """All answers and tests of whole sets in a few sentences, by what they may claim."""
    told = [test for test in tests if is_told_first(test)]
    of_tests = _summary_of_tests(told)
    if not asked.pairs:
        return of_tests or ("No test of a whole set could be made." if tests else "Nothing has been audited yet.")
    has_evidence = any(is_evidence(test) for test in told)
    of_answers = _summary_of_answers(answers, asked, has_evidence=has_evidence)
    return " ".join(part for part in ((of_tests, of_answers) if has_evidence else (of_answers, of_tests)) if part)


def _summary_of_tests(tests: Sequence[CorpusTest]) -> str:
    if len(tests) == 1:
        return tests[0].headline
    found = Counter(
        {SOUND: "sound", STATISTICAL: "evidence"}.get(test.claim_level, "look")
        if test.outcome == "found"
        else test.outcome
        for test in tests
    )
    listed = _listed([f"{found[kind]} {words}" for kind, words in _KINDS_OF_TESTS.items() if found[kind]])
    return f"Of {count(len(tests))} tests of whole sets: {listed}." if tests else ""


_KINDS_OF_TESTS: Mapping[str, str] = {
    "sound": "where a sound test shows training",
    "evidence": "with statistical evidence of training",
    "look": "with something to look at, screening only",
    "not_found": "with nothing found",
    "refused": "refused",
}


def _listed(told: Sequence[str]) -> str:
    return told[0] if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]}" if told else ""


def _summary_of_answers(answers: Sequence[Answer], asked: Asked, *, has_evidence: bool) -> str:
    if len(answers) == 1:
        return answers[0].headline
    found = Counter(_kind(answer) for answer in answers)
    order = ("sound", "evidence", "nothing", "look", "none")
    told = [f"{'all' if len(found) == 1 else found[kind]} {_KINDS[kind]}" for kind in order if found[kind]]
    listed = _listed(told)
    shown = "answers" if len(answers) == asked.pairs else f"answers that matter most, of {count(asked.pairs)}"
    if not found["sound"] and not found["evidence"] and not has_evidence:
        return f"None of {count(len(answers))} {shown} is evidence of training: {listed}."
    return f"Of {count(len(answers))} {shown}: {listed}."


_KINDS: Mapping[str, str] = {
    "sound": "where a sound test shows training",
    "evidence": "with statistical evidence of training",
    "nothing": "with a fair comparison and nothing found",
    "look": "with something to look at, screening only",
    "none": "without a conclusion or a difference",
}


def _kind(answer: Answer) -> str:
    if answer.outcome == "sound_evidence_of_training":
        return "sound"
    if answer.outcome == "evidence_of_training":
        return "evidence"
    if answer.outcome == "documents_stand_out":
        return {SOUND: "sound", STATISTICAL: "evidence"}.get(answer.claim_level or "", "look")
    if answer.outcome == "difference_to_look_at":
        return "look"
    if answer.outcome == "no_difference" and answer.claim_level == SOUND:
        return "nothing"
    return "none"


def instrument_words(checks: Sequence[InstrumentCheck]) -> str:
    """What the instrument check says, by the detector that answers, or the strongest where that has no result."""
    if not checks:
        return (
            "The instrument has not been checked here: no model was trained on texts drawn by chance."
            " Read every result with that in mind."
        )
    known = [check for check in checks if check.exposed.value is not None]
    chosen = next((check for check in known if check.answers), next(iter(known), None))
    if chosen is None:
        return "The instrument check has no result: no detector has an AUROC on it."
    works = chosen.exposed.low is not None and chosen.exposed.low > CHANCE
    twin = chosen.twin
    clean = twin.low is None or twin.high is None or twin.low <= CHANCE <= twin.high
    reached = (
        f"In a small model trained here on texts drawn by chance, {chosen.detector} reaches an AUROC of"
        f" {number(chosen.exposed.value)}; in its twin, which saw none of them, {number(twin.value)}."
    )
    if works and clean:
        return f"The instrument works. {reached} Texts were seen several times: in large models they leave less behind."
    if works:
        return f"The instrument reacts, and to more than training. {reached} The twin should be at 0.5."
    return f"The instrument does not find what is there. {reached} A result at chance means little then."


LIMITS = (
    Limit(
        title="Screening is not evidence.",
        text="Most findings are screening: they say where to look, not what happened. A finding counts as statistical"
        " evidence only where the texts it is calibrated on are exchangeable with the audited ones by design and the"
        " blind control cannot tell the sides apart.",
    ),
    Limit(
        title="Time shifts texts.",
        text="Where members are older than non-members, topics, names and habits of writing differ between the sides. A"
        " detector can score that difference and say nothing about training data. The blind control measures what"
        " words alone give away; a language model sees more than words.",
    ),
    Limit(
        title="Labels by date are an upper bound.",
        text="“Member” then means published early enough to have been collected, not that the text was.",
    ),
    Limit(
        title="Texts come in groups.",
        text="Passages of one document are not independent of each other. Intervals are resampled by group; with few"
        " groups they are wide, and should be.",
    ),
    Limit(
        title="Many detectors, many settings.",
        text="The best of several looks better than it is. So one detector at one setting, chosen beforehand, gives the"
        " answer; the others stand beside it, and the settings are for exploration. Intervals are not corrected for"
        " the number of detectors; the column “q of all” is.",
    ),
    Limit(
        title="A detector at chance clears nobody.",
        text="These detectors find texts seen often better than texts seen once; text that was trained on can go"
        " unnoticed.",
    ),
    Limit(
        title="Scores compare texts of one model on one benchmark.",
        text="Their size means nothing between models, detectors or text lengths.",
    ),
    Limit(
        title="A high score is no finding about a single text.",
        text="What is common, formulaic or quoted often scores high without the text itself having been read.",
    ),
    Limit(
        title="A corrected rate rests on its assumption.",
        text="It takes the audited texts to score as the calibration members and non-members do. Where they are harder"
        " or easier for the model, it is off by as much.",
    ),
)
