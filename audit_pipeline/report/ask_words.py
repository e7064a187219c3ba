"""What is said of what a model that answers in words gave of documents, and of what it chose in the quiz.

What belongs here: from documents counted to sentences. What does not: the claims themselves (asking/), what a model
gives word for word by its probabilities (extraction_words.py), layout (sections/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from audit_pipeline.catalogue.contracts import AskClaim, QuizClaim
from audit_pipeline.evidence.conformal import count_held_out_needed
from audit_pipeline.report.answer_kinds import NO_RESULT, Sign, kind_of
from audit_pipeline.report.number_format import count, number, percent, probability, things
from audit_pipeline.report.vocabulary import COULD_HARDLY, COULD_NOT, Q_LEVEL

_STRETCH = "40 words on end, at most 5 of them different"
_NO_STRETCH = f"No answer at this rung (the one named beforehand) holds {_STRETCH}, that were not in the prompt"
CLAIM_IN_WORDS: Mapping[AskClaim, str] = {
    "reproduced": (
        f"Sure of what the model said, for that is on record: an answer holds at least {_STRETCH}, that were not in the"
        " prompt. It does not say how the text got into it: near-duplicates and quotations suffice. A document that did"
        " not come back is not cleared."
    ),
    "not graded": (
        f"An answer holds at least {_STRETCH}, but what the model was asked is not known: nothing says that they did"
        " not stand in the prompt. This is neither a find nor an absence."
    ),
    "not reproduced": (
        f"{_NO_STRETCH}. That clears nobody: answers at other rungs, to other passages and in other draws may hold one."
    ),
    "not calibrated": f"{_NO_STRETCH}, and nothing says what shorter runs mean. Nothing is cleared.",
    "refused": (
        "No answer could be measured: each was refused, held back, cut short or empty. Nothing follows of what the"
        " model knows."
    ),
}
QUIZ_IN_WORDS: Mapping[QuizClaim, str] = {
    "recognised": (
        "The model picks the own wording of these documents more often than that of documents that it cannot have read,"
        " and is further ahead of a classifier of style, which never sees the model, than with those: both by more than"
        " could be chance. That it knows the wording does not say where from."
    ),
    "the options give themselves away": (
        "A classifier of style, which never sees the model, does as well, or not so much worse that it could not be"
        " chance: the paraphrases differ from the own wording in style, so from what the model chose nothing follows."
    ),
    "not recognised": (
        "The model does not pick the own wording of these documents more often than could be chance, or not more often"
        " than the classifier of style, beside documents that it cannot have read. That clears nobody."
    ),
    "not calibrated": "Nothing says how often the choice is right without having read them.",
    "refused": "The model chose an option too seldom: from that nothing follows.",
}
"""Of several documents the first of these that is the claim of any counts."""
_CALIBRATED = (
    "The p-values compare the score of each document (how much of the 40 words that should come next came back, mean"
    " over answers and passages) with that of each held-out document at the same rung, by equally many answers and"
    " passages. They hold where a document that the model has not read is like the held-out ones."
)
_NOT_CALIBRATED = "nothing here says how much comes back of documents that the model cannot have read"


@dataclass(frozen=True)
class QuizCounts:
    """What the quiz came to: audited ``documents``, those that are ``recognised``, the ``claims`` there are; accuracies
    (chance is 0.25) and AUROCs of the model and of the classifier of style. Of the ``held_out_asked`` documents those
    compared with are ``held_out``."""

    documents: int
    recognised: int
    claims: Sequence[QuizClaim] | None
    held_out_asked: int
    held_out: int | None
    accuracy: float | None
    held_out_accuracy: float | None
    style_accuracy: float | None
    held_out_style_accuracy: float | None
    auroc: float | None
    style_auroc: float | None


class RungCounts(TypedDict):
    """At a rung that was not named beforehand: audited ``documents`` with an answer, and those reproduced."""

    rung: str
    reproduced: int
    documents: int


@dataclass(frozen=True)
class AskCounts:
    """What a model was asked: audited ``documents`` with an answer at the ``rung`` named beforehand (None: it was not
    asked at that), those without, those reproduced, those ``not_graded``, those that ``stand_out`` (q ≤ 0.05); held-out
    ones likewise.

    ``held_out_asked``: those without an answer, too. ``compared_with``: held-out documents behind the p-values.
    ``longest_run``: in words. ``elsewhere``: the other rungs at which documents are reproduced. ``requests`` at all
    rungs, and of them those whose answer could not be measured.
    """

    rung: str | None
    documents: int
    unanswered: int
    reproduced: int
    not_graded: int
    stand_out: int
    held_out_asked: int
    held_out: int
    held_out_reproduced: int
    compared_with: int | None
    longest_run: int | None
    elsewhere: Sequence[RungCounts]
    requests: int
    not_measured: int
    quiz: QuizCounts | None


@dataclass(frozen=True)
class AskWords:
    """The kind (answer_kinds.py) and the sentences of one benchmark; None where there is nothing to be said of it."""

    outcome: str
    sign: Sign
    question: str
    headline: str
    how_sure: str
    what_would_change: str
    claim: AskClaim | None
    claim_in_words: str | None
    calibration_in_words: str | None
    unanswered_in_words: str | None
    quiz_claim: QuizClaim | None
    quiz_in_words: str | None


def describe_asking(model: str, benchmark: str, counts: AskCounts) -> AskWords:
    """What is said of what a model answered; ``model`` and ``benchmark`` by their titles."""
    claim, quiz_claim = _claim(counts), _quiz_claim(counts.quiz)
    outcome = _outcome(counts, claim, quiz_claim)
    unanswered = _describe_unanswered(counts)
    return AskWords(
        outcome=outcome,
        sign=kind_of(outcome).sign,
        question=f"We asked {model} for documents of “{benchmark}”, and compared its answers with them word by word.",
        headline=_state_headline(counts, outcome, claim, quiz_claim),
        how_sure=" ".join(filter(None, (_state_certainty(outcome, claim, quiz_claim), unanswered))),
        what_would_change=_CHANGES[claim] if counts.requests and outcome != "asked_recognised" else _QUIZ_CHANGES,
        claim=claim,
        claim_in_words=None if claim is None else CLAIM_IN_WORDS[claim],
        calibration_in_words=None if claim in (None, "refused") else _describe_calibration(counts),
        unanswered_in_words=unanswered,
        quiz_claim=quiz_claim,
        quiz_in_words=None if counts.quiz is None or quiz_claim is None else _describe_quiz(counts.quiz, quiz_claim),
    )


def warn_of_versions(versions: Sequence[str]) -> str | None:
    """The warning where more than one version answered; None where the model was the same all the time."""
    if len(versions) < 2:
        return None
    return (
        f"{count(len(versions))} versions answered: the model changed meanwhile, so answers at different times are not"
        " of one and the same model."
    )


def _claim(counts: AskCounts) -> AskClaim | None:
    if counts.rung is None:
        return None
    if counts.reproduced:
        return "reproduced"
    if counts.not_graded:
        return "not graded"
    if not counts.documents:
        return "refused"
    return "not reproduced" if counts.compared_with else "not calibrated"


def _quiz_claim(quiz: QuizCounts | None) -> QuizClaim | None:
    return next((claim for claim in QUIZ_IN_WORDS if quiz is not None and claim in (quiz.claims or ())), None)


def _outcome(counts: AskCounts, claim: AskClaim | None, quiz_claim: QuizClaim | None) -> str:
    if claim == "reproduced":
        return "asked_reproduced"
    if quiz_claim == "recognised":
        return "asked_recognised"
    if claim == "not reproduced" and counts.stand_out:
        return "asked_stands_out"
    if claim == "not reproduced" and counts.unanswered > counts.documents:
        return "asked_without_result"
    if claim == "not reproduced" or (claim is None and quiz_claim == "not recognised"):
        return "asked_not_reproduced"
    return "asked_without_result"


_HEADLINES: Mapping[AskClaim | None, str] = {
    "reproduced": "Found in its answers: long stretches of {reproduced} of {documents}{beside} (rung: {rung}).",
    "not graded": (
        "Not graded: its answers hold long stretches of {not_graded} of {documents}, which may have stood in the"
        " prompts (rung: {rung})."
    ),
    "not reproduced": (
        "Nothing found at the rung named beforehand ({rung}): its answers there hold no long stretch of {documents};"
        " the longest run is {longest_run}. That clears nobody."
    ),
    "not calibrated": (
        "Not calibrated: at the rung named beforehand ({rung}) its answers hold no long stretch of {documents};"
        " with no held-out document to compare with, a run of {longest_run} means nothing."
    ),
    "refused": f"{COULD_NOT} no answer about {{unanswered}} could be measured (rung: {{rung}}).",
    None: f"{COULD_NOT} it was not asked in the way that was named beforehand; its other answers are listed.",
}
_QUIZ_HEADLINES: Mapping[QuizClaim, str] = {
    "recognised": "In the quiz it recognises {recognised} of {documents}.",
    "the options give themselves away": "In the quiz the options give themselves away.",
    "not recognised": "In the quiz it recognises none of {documents}.",
    "not calibrated": "The quiz is not calibrated.",
    "refused": "In the quiz it chose an option too seldom.",
}


_STANDS_OUT = (
    "{stand_out} of {documents} {stand} out at the rung named beforehand ({rung}): more comes back than of held-out"
    " documents (q ≤ 0.05), and no long stretch; the longest run is {longest_run}."
)
_HARDLY_ANSWERED = (
    f"{COULD_HARDLY} no answer about {{unanswered}} could be measured; those about {{documents}} hold no long stretch"
    " (rung: {rung})."
)


def _state_headline(counts: AskCounts, outcome: str, claim: AskClaim | None, quiz_claim: QuizClaim | None) -> str:
    said = []
    if counts.requests:
        headline = _HEADLINES[claim]
        if outcome == "asked_stands_out":
            headline = _STANDS_OUT
        elif outcome == "asked_without_result" and claim == "not reproduced":
            headline = _HARDLY_ANSWERED
        said.append(
            headline.format(
                stand_out=count(counts.stand_out),
                stand="stands" if counts.stand_out == 1 else "stand",
                rung=counts.rung,
                reproduced=count(counts.reproduced),
                not_graded=count(counts.not_graded),
                documents=things(counts.documents, "document", "documents"),
                unanswered=things(counts.unanswered, "document", "documents"),
                longest_run=things(counts.longest_run or 0, "word", "words"),
                beside=_state_held_out(counts),
            )
        )
    if claim != "reproduced":
        said += map(_state_rung, counts.elsewhere)
    if counts.quiz is not None and quiz_claim is not None:
        documents = things(counts.quiz.documents, "document", "documents")
        said.append(_QUIZ_HEADLINES[quiz_claim].format(recognised=count(counts.quiz.recognised), documents=documents))
    return " ".join(said)


def _state_held_out(counts: AskCounts) -> str:
    if counts.held_out:
        return f", and of {count(counts.held_out_reproduced)} of {count(counts.held_out)} that it cannot have read"
    if counts.held_out_asked:
        return f"; {_NONE_ANSWERED.format(_name_held_out(counts.held_out_asked))}"
    return "; there are no held-out documents beside them"


def _state_rung(found: RungCounts) -> str:
    hint = ", which tells the model what a passage says," if found["rung"] == "hint" else ""
    are = "is" if found["reproduced"] == 1 else "are"
    return (
        f"At the rung {found['rung']}{hint} {count(found['reproduced'])} of"
        f" {things(found['documents'], 'document', 'documents')} {are} reproduced; that rung was not named beforehand."
    )


def _state_certainty(outcome: str, claim: AskClaim | None, quiz_claim: QuizClaim | None) -> str:
    if quiz_claim and (claim is None or outcome == "asked_recognised"):
        return QUIZ_IN_WORDS[quiz_claim]
    return CLAIM_IN_WORDS[claim] if claim else NO_RESULT


_CHANGES: Mapping[AskClaim | None, str] = {
    "reproduced": (
        "Stretches that also stand elsewhere say nothing of these documents: read them below. Words that a question"
        " gave away are not counted, but a hint helps."
    ),
    "not graded": "The prompts: with them, words that were given away are not counted.",
    "not reproduced": "More passages, more draws or another way of asking may bring more out.",
    "not calibrated": "Answers about documents that the model cannot have read, asked for in the same way.",
    "refused": "Answers: to other questions, or of the same model behind another interface.",
    None: "Answers to what was named beforehand.",
}
_QUIZ_CHANGES = "Paraphrases by another hand, and more documents that the model cannot have read."
_NONE_ANSWERED = "none of {} has an answer that could be measured"


def _name_held_out(number_of: int) -> str:
    return things(number_of, "held-out document", "held-out documents")


def _describe_unanswered(counts: AskCounts) -> str | None:
    if not counts.not_measured:
        return None
    are = "was" if counts.not_measured == 1 else "were"
    return (
        f"{count(counts.not_measured)} of {things(counts.requests, 'request', 'requests')} {are} refused, filtered, cut"
        " or answered with nothing: nothing follows from these."
    )


def _describe_calibration(counts: AskCounts) -> str:
    if counts.compared_with:
        smallest = probability(1 / (counts.compared_with + 1))
        if few := _warn_of_few(counts.compared_with):
            return f"{_CALIBRATED} {few}; the smallest is {smallest}."
        return f"{_CALIBRATED} With {_name_held_out(counts.compared_with)} no p-value is below {smallest}."
    if not counts.held_out_asked:
        return f"Not calibrated: {_NOT_CALIBRATED}. Name such documents with --held-out."
    if not counts.held_out:
        return f"Not calibrated: {_NONE_ANSWERED.format(_name_held_out(counts.held_out_asked))}, so {_NOT_CALIBRATED}."
    return (
        f"Not calibrated: no audited document can be compared with {_name_held_out(counts.held_out)}, since too few"
        " answers could be measured, or it is not known which passage they should give."
    )


def _warn_of_few(held_out: int) -> str | None:
    needed = count_held_out_needed(1, 1, Q_LEVEL)
    if held_out >= needed:
        return None
    return f"With {_name_held_out(held_out)} no p-value can be as small as {Q_LEVEL:g}: that takes {needed}"


def _describe_quiz(quiz: QuizCounts, claim: QuizClaim) -> str:
    numbers = (
        f"The model’s choice is right in {percent(quiz.accuracy)} of cases"
        + _beside(quiz.held_out_accuracy)
        + f", that of the classifier of style in {percent(quiz.style_accuracy)}"
        + _beside(quiz.held_out_style_accuracy)
        + "; chance is 25%."
    )
    aurocs = (
        f" AUROC of audited against held-out documents: {number(quiz.auroc)} by the model’s choices,"
        f" {number(quiz.style_auroc)} by the classifier’s."
        if quiz.auroc is not None
        else ""
    )
    why = f" {_say_why_not_calibrated(quiz)}" if claim == "not calibrated" else ""
    return f"{numbers}{aurocs}{why} {QUIZ_IN_WORDS[claim]}"


def _say_why_not_calibrated(quiz: QuizCounts) -> str:
    if quiz.held_out and (few := _warn_of_few(quiz.held_out)):
        return f"{few}."
    if quiz.held_out_asked:
        return f"With {_name_held_out(quiz.held_out_asked)} in the quiz too few answers can be compared."
    return "There are no held-out documents in the quiz."


def _beside(held_out: float | None) -> str:
    return "" if held_out is None else f" ({percent(held_out)} of held-out documents)"
