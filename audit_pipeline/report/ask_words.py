"""What is said of what a model that answers in words gave of documents, and of what it chose in the quiz.

What belongs here: from documents counted to sentences. What does not: the claims themselves (asking/), what a model
gives word for word by its probabilities (extraction_words.py), layout (sections/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from audit_pipeline.catalogue.contracts import AskClaim, QuizClaim
from audit_pipeline.evidence.conformal import count_held_out_needed
from audit_pipeline.report.answer_kinds import NO_RESULT, Sign, kind_of
from audit_pipeline.report.number_format import count, number, percent, probability, things
from audit_pipeline.report.vocabulary import COULD_NOT, Q_LEVEL

QUOTED_WORDS = 25
"""Words of a document, and of an answer, that are quoted side by side."""

_STRETCH = "40 words on end, at most 5 of them different, that were not in the prompt"
CLAIM_IN_WORDS: Mapping[AskClaim, str] = {
    "reproduced": (
        f"A document counts as reproduced where an answer holds at least {_STRETCH}. This is a direct observation of"
        " what the model said. It does not say how the text got into it: near-duplicates and quotations suffice. A"
        " document that did not come back is not cleared."
    ),
    "not reproduced": (
        f"No answer holds {_STRETCH}. That clears nobody: other passages, another way of asking or another draw may"
        " bring one out."
    ),
    "not calibrated": (
        f"No answer holds {_STRETCH}, and nothing says what shorter runs mean: no held-out documents were asked for in"
        " the same way. Nothing is cleared."
    ),
    "refused": "No answer could be measured. That a model refuses says nothing of what it knows.",
}
QUIZ_IN_WORDS: Mapping[QuizClaim, str] = {
    "recognised": (
        "The model picks the own wording of these documents more often than that of documents that it cannot have read,"
        " and is further ahead of a classifier of style, which never sees the model, than with those. That it knows the"
        " wording does not say where from."
    ),
    "the options give themselves away": (
        "A classifier of style, which never sees the model, does as well: the paraphrases differ from the own wording"
        " in style, so from what the model chose nothing follows."
    ),
    "not recognised": (
        "The model does not pick the own wording of these documents more often than that of documents that it cannot"
        " have read. That clears nobody."
    ),
    "not calibrated": "There are no held-out documents in the quiz: nothing says how often the choice is right anyway.",
    "refused": "The model chose no option: from that nothing follows.",
}
"""Of several documents the first of these that is the claim of any counts."""
_CALIBRATED = (
    "The p-values compare the score of each document (how much of the words that come next in a passage came back, mean"
    " over answers and passages) with that of each held-out document at the same rung, by equally many answers and"
    " passages. They hold where a document that the model has not read is like the held-out ones."
)
_NOT_CALIBRATED = (
    "Not calibrated: nothing here says how much comes back of documents that the model cannot have read. Name such"
    " documents with --held-out."
)


@dataclass(frozen=True)
class QuizCounts:
    """What the quiz came to: audited ``documents``, those that are ``recognised``, the ``claims`` there are; accuracies
    (chance is 0.25) and AUROCs of the model and of the classifier of style. ``held_out``: documents compared with."""

    documents: int
    recognised: int
    claims: Sequence[QuizClaim] | None
    held_out: int | None
    accuracy: float | None
    held_out_accuracy: float | None
    style_accuracy: float | None
    held_out_style_accuracy: float | None
    auroc: float | None
    style_auroc: float | None


@dataclass(frozen=True)
class AskCounts:
    """What a model was asked: audited ``documents`` with an answer at the ``rung`` named beforehand (None: it was not
    asked at that), those without, those reproduced, and the same of held-out ones.

    ``compared_with``: held-out documents behind the p-values. ``longest_run``: in words. ``requests`` at all rungs, and
    of them those whose answer could not be measured.
    """

    rung: str | None
    documents: int
    unanswered: int
    reproduced: int
    held_out: int
    held_out_reproduced: int
    compared_with: int | None
    longest_run: int | None
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
    outcome = _outcome(claim, quiz_claim)
    unanswered = _describe_unanswered(counts)
    return AskWords(
        outcome=outcome,
        sign=kind_of(outcome).sign,
        question=f"We asked {model} for documents of “{benchmark}”, and compared its answers with them word by word.",
        headline=_state_headline(counts, claim, quiz_claim),
        how_sure=_state_certainty(outcome, counts) + (f" {unanswered}" if unanswered else ""),
        what_would_change=_CHANGES[claim or "refused"] if outcome != "asked_recognised" else _QUIZ_CHANGES,
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


def cut_words(text: str) -> str:
    """The first words of ``text``, as many as are quoted."""
    return " ".join(text.split()[:QUOTED_WORDS])


def _claim(counts: AskCounts) -> AskClaim | None:
    if counts.rung is None:
        return None
    if counts.reproduced:
        return "reproduced"
    if not counts.documents:
        return "refused"
    return "not reproduced" if counts.compared_with else "not calibrated"


def _quiz_claim(quiz: QuizCounts | None) -> QuizClaim | None:
    return next((claim for claim in QUIZ_IN_WORDS if quiz is not None and claim in (quiz.claims or ())), None)


def _outcome(claim: AskClaim | None, quiz_claim: QuizClaim | None) -> str:
    if claim == "reproduced":
        return "asked_reproduced"
    if quiz_claim == "recognised":
        return "asked_recognised"
    if claim == "not reproduced" or (claim is None and quiz_claim == "not recognised"):
        return "asked_not_reproduced"
    return "asked_without_result"


def _state_headline(counts: AskCounts, claim: AskClaim | None, quiz_claim: QuizClaim | None) -> str:
    asked = {
        "reproduced": _state_reproduced,
        "not reproduced": _state_not_reproduced,
        "not calibrated": _state_not_calibrated,
        "refused": _state_refused,
        None: _state_not_at_rung,
    }[claim](counts)
    quiz = "" if counts.quiz is None or quiz_claim is None else _state_quiz(counts.quiz, quiz_claim)
    return " ".join(filter(None, (asked, quiz)))


def _state_reproduced(counts: AskCounts) -> str:
    of_held_out = (
        f", and of {count(counts.held_out_reproduced)} of {count(counts.held_out)} that are held out"
        if counts.held_out
        else "; there are no held-out documents beside them"
    )
    return (
        f"Found in its answers: long stretches of {count(counts.reproduced)} of"
        f" {things(counts.documents, 'document', 'documents')}{of_held_out} (rung: {counts.rung})."
    )


def _state_not_reproduced(counts: AskCounts) -> str:
    return (
        f"Nothing found: its answers hold no long stretch of {things(counts.documents, 'document', 'documents')} (rung:"
        f" {counts.rung}; the longest run is {things(counts.longest_run or 0, 'word', 'words')}). That clears nobody."
    )


def _state_not_calibrated(counts: AskCounts) -> str:
    return (
        f"Not calibrated: its answers hold no long stretch of {things(counts.documents, 'document', 'documents')}, and"
        f" without held-out documents a run of {things(counts.longest_run or 0, 'word', 'words')} means nothing (rung:"
        f" {counts.rung})."
    )


def _state_refused(counts: AskCounts) -> str:
    return (
        f"{COULD_NOT} no answer about {things(counts.unanswered, 'document', 'documents')} could be measured (rung:"
        f" {counts.rung})."
    )


def _state_not_at_rung(counts: AskCounts) -> str:
    if not counts.requests:
        return ""
    return f"{COULD_NOT} it was not asked in the way that was named beforehand; its other answers are listed."


def _state_quiz(quiz: QuizCounts, claim: QuizClaim) -> str:
    if claim == "recognised":
        return (
            f"In the quiz it recognises {count(quiz.recognised)} of {things(quiz.documents, 'document', 'documents')}."
        )
    return {
        "the options give themselves away": "In the quiz the options give themselves away.",
        "not recognised": f"In the quiz it recognises none of {things(quiz.documents, 'document', 'documents')}.",
        "not calibrated": "The quiz is not calibrated.",
        "refused": "In the quiz it chose no option.",
    }[claim]


def _state_certainty(outcome: str, counts: AskCounts) -> str:
    if outcome == "asked_reproduced":
        of_held_out = ""
        if counts.held_out:
            those = things(counts.held_out, "document", "documents")
            of_held_out = (
                f" Its answers also hold stretches of {count(counts.held_out_reproduced)} of {those} that it cannot"
                " have read, so this comes about without training, too."
                if counts.held_out_reproduced
                else f" Its answers hold no stretch of {those} that it cannot have read."
            )
        return (
            f"Sure of what the model said: the answers are on record.{of_held_out} How the text got into the model is"
            " not known: copies and quotations elsewhere suffice."
        )
    if outcome == "asked_recognised":
        return "Not sure. The model knows the wording better than others; it may know it from copies and quotations."
    if outcome == "asked_not_reproduced":
        return "Sure of what was asked; not sure that the documents were not used: other questions may bring more out."
    return NO_RESULT


_CHANGES: Mapping[AskClaim, str] = {
    "reproduced": (
        "Stretches that also stand elsewhere say nothing of these documents: read them below. Words that a question"
        " gave away are not counted, but a hint helps."
    ),
    "not reproduced": "More passages, more draws or another way of asking may bring more out.",
    "not calibrated": "Documents that the model cannot have read, asked for in the same way (--held-out).",
    "refused": "Answers: to other questions, or of the same model behind another interface.",
}
_QUIZ_CHANGES = "Paraphrases by another hand, and more documents that the model cannot have read."


def _describe_unanswered(counts: AskCounts) -> str | None:
    if not counts.not_measured:
        return None
    are = "was" if counts.not_measured == 1 else "were"
    return (
        f"{count(counts.not_measured)} of {things(counts.requests, 'request', 'requests')} {are} refused, filtered, cut"
        " or answered with nothing: nothing is known of these passages."
    )


def _describe_calibration(counts: AskCounts) -> str:
    held_out = counts.compared_with
    if not held_out:
        return _NOT_CALIBRATED
    needed = count_held_out_needed(1, 1, Q_LEVEL)
    with_so_many = f"With {things(held_out, 'held-out document', 'held-out documents')}"
    if held_out < needed:
        return (
            f"{_CALIBRATED} {with_so_many} no p-value can be as small as {Q_LEVEL:g}: that takes {needed}; the smallest"
            f" is {probability(1 / (held_out + 1))}."
        )
    return f"{_CALIBRATED} {with_so_many} no p-value is below {probability(1 / (held_out + 1))}."


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
    return f"{numbers}{aurocs} {QUIZ_IN_WORDS[claim]}"


def _beside(held_out: float | None) -> str:
    return "" if held_out is None else f" ({percent(held_out)} of held-out documents)"
