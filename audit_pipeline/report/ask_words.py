"""Sentences about what a model that answers in words gave of documents.

The claims themselves are made in asking/; extraction_words.py speaks of models that give probabilities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from audit_pipeline.catalogue.contracts import AskClaim
from audit_pipeline.evidence.conformal import count_held_out_needed
from audit_pipeline.report.answer_kinds import NO_RESULT, Sign, kind_of
from audit_pipeline.report.number_format import count, probability, things
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
_CALIBRATED = (
    "The p-values compare the score of each document (how much of the 40 words that should come next came back, mean"
    " over answers and passages) with that of each held-out document at the same rung, by equally many answers and"
    " passages. They hold where a document that the model has not read is like the held-out ones."
)
_NOT_CALIBRATED = "nothing here says how much comes back of documents that the model cannot have read"


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


def describe_asking(model: str, benchmark: str, counts: AskCounts) -> AskWords:
    """What is said of what a model answered; ``model`` and ``benchmark`` by their titles."""
    claim = _claim(counts)
    outcome = _outcome(counts, claim)
    unanswered = _describe_unanswered(counts)
    certainty = CLAIM_IN_WORDS[claim] if claim else NO_RESULT
    return AskWords(
        outcome=outcome,
        sign=kind_of(outcome).sign,
        question=f"We asked {model} for documents of “{benchmark}”, and compared its answers with them word by word.",
        headline=_state_headline(counts, outcome, claim),
        how_sure=" ".join(filter(None, (certainty, unanswered))),
        what_would_change=_CHANGES[claim],
        claim=claim,
        claim_in_words=None if claim is None else CLAIM_IN_WORDS[claim],
        calibration_in_words=None if claim in (None, "refused") else _describe_calibration(counts),
        unanswered_in_words=unanswered,
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


def _outcome(counts: AskCounts, claim: AskClaim | None) -> str:
    if claim == "reproduced":
        return "asked_reproduced"
    if claim != "not reproduced":
        return "asked_without_result"
    if counts.stand_out:
        return "asked_stands_out"
    return "asked_without_result" if counts.unanswered > counts.documents else "asked_not_reproduced"


_HEADLINES: Mapping[AskClaim | None, str] = {
    "reproduced": "Found in its answers: long stretches of {reproduced} of {documents}{held_out} (rung: {rung}).",
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
_STANDS_OUT = (
    "{stand_out} of {documents} {stand} out at the rung named beforehand ({rung}): more comes back than of held-out"
    " documents (q ≤ 0.05), and no long stretch; the longest run is {longest_run}."
)
_HARDLY_ANSWERED = (
    f"{COULD_HARDLY} no answer about {{unanswered}} could be measured; those about {{documents}} hold no long stretch"
    " (rung: {rung})."
)


def _state_headline(counts: AskCounts, outcome: str, claim: AskClaim | None) -> str:
    headline = _HEADLINES[claim]
    if outcome == "asked_stands_out":
        headline = _STANDS_OUT
    elif outcome == "asked_without_result" and claim == "not reproduced":
        headline = _HARDLY_ANSWERED
    filled = headline.format(
        stand_out=count(counts.stand_out),
        stand="stands" if counts.stand_out == 1 else "stand",
        rung=counts.rung,
        reproduced=count(counts.reproduced),
        not_graded=count(counts.not_graded),
        documents=things(counts.documents, "document", "documents"),
        unanswered=things(counts.unanswered, "document", "documents"),
        longest_run=things(counts.longest_run or 0, "word", "words"),
        held_out=_state_held_out(counts),
    )
    return " ".join([filled, *([] if claim == "reproduced" else map(_state_rung, counts.elsewhere))])


def _state_held_out(counts: AskCounts) -> str:
    if counts.held_out:
        return f", and of {count(counts.held_out_reproduced)} of {count(counts.held_out)} that it cannot have read"
    if counts.held_out_asked:
        return f"; {_NONE_ANSWERED.format(_name_held_out(counts.held_out_asked))}"
    return "; there are no held-out documents beside them"


def _state_rung(found: RungCounts) -> str:
    are = "is" if found["reproduced"] == 1 else "are"
    return (
        f"At the rung {found['rung']} {count(found['reproduced'])} of"
        f" {things(found['documents'], 'document', 'documents')} {are} reproduced; that rung was not named beforehand."
    )


_CHANGES: Mapping[AskClaim | None, str] = {
    "reproduced": (
        "Stretches that also stand elsewhere say nothing of these documents: read them below. Words that a question"
        " gave away are not counted."
    ),
    "not graded": "The prompts: with them, words that were given away are not counted.",
    "not reproduced": "More passages, more draws or another way of asking may bring more out.",
    "not calibrated": "Answers about documents that the model cannot have read, asked for in the same way.",
    "refused": "Answers: to other questions, or of the same model behind another interface.",
    None: "Answers to what was named beforehand.",
}
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
        smallest, needed = probability(1 / (counts.compared_with + 1)), count_held_out_needed(1, 1, Q_LEVEL)
        with_held_out = f"{_CALIBRATED} With {_name_held_out(counts.compared_with)} no p-value"
        if counts.compared_with < needed:
            return f"{with_held_out} can be as small as {Q_LEVEL:g}: that takes {needed}; the smallest is {smallest}."
        return f"{with_held_out} is below {smallest}."
    if not counts.held_out_asked:
        return f"Not calibrated: {_NOT_CALIBRATED}. Name such documents with --held-out."
    if not counts.held_out:
        return f"Not calibrated: {_NONE_ANSWERED.format(_name_held_out(counts.held_out_asked))}, so {_NOT_CALIBRATED}."
    return (
        f"Not calibrated: no audited document can be compared with {_name_held_out(counts.held_out)}, since too few"
        " answers could be measured, or it is not known which passage they should give."
    )
