"""What is said of what a model gives word for word, and of whether held-out documents stand beside it.

What belongs here: from documents counted to sentences. What does not: the claims themselves (metrics/claims.py), the
search (extraction/), layout (sections/).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from difflib import SequenceMatcher

from audit_pipeline.extraction.conclusions import log_draws
from audit_pipeline.metrics.claims import (
    CALIBRATED_IN_WORDS,
    EXTRACTION_IN_WORDS,
    NOT_CALIBRATED_IN_WORDS,
    REPRODUCED_FROM,
    SET_APART_IN_WORDS,
    TOO_SHORT,
    ExtractionClaim,
    extraction_claim,
)
from audit_pipeline.report.answer_kinds import NO_RESULT, Sign, kind_of
from audit_pipeline.report.number_format import capitalise_first, count, things
from audit_pipeline.report.vocabulary import COULD_HARDLY, Q_LEVEL

_WOULD_HAVE = (
    f"the search would have found a passage that the model gives with a probability of at least {REPRODUCED_FROM:g}, at"
    " the places where it looked"
)


@dataclass(frozen=True)
class ExtractionWords:
    """The kind (answer_kinds.py) and the sentences of one benchmark; None where there is nothing to be said of it."""

    outcome: str
    sign: Sign
    question: str
    headline: str
    how_sure: str
    what_would_change: str
    claim: ExtractionClaim | None
    claim_in_words: str | None
    set_apart_in_words: str | None
    calibration_in_words: str


@dataclass(frozen=True)
class SearchCounts:
    """What a search for passages came to: audited ``documents`` with a window and those ``without_window``; of the
    former those with a passage that the model reproduces, and those that ``stand_out`` (q ≤ 0.05) by their strongest
    window; the same of documents that are held out.

    ``set_apart``: windows. ``window``: tokens of one. ``reason``: why documents have no window. ``grid`` and ``asked``:
    whether a grid of lengths was tried, and whether the model was asked in words for the same documents.
    """

    documents: int
    without_window: int
    reproduced: int
    stand_out: int
    held_out: int
    held_out_reproduced: int
    set_apart: int
    window: int
    reason: str | None
    grid: bool
    asked: bool


def describe_extraction(model: str, benchmark: str, counts: SearchCounts) -> ExtractionWords:
    """What is said of a search; ``model`` and ``benchmark`` by their titles."""
    documents, reproduced = counts.documents, counts.reproduced
    held_out, held_out_reproduced = counts.held_out, counts.held_out_reproduced
    claim = extraction_claim(reproduced) if documents else None
    outcome = _find_outcome(counts)
    return ExtractionWords(
        outcome=outcome,
        sign=kind_of(outcome).sign,
        question=f"We asked whether {model}, given a piece of a document of “{benchmark}”, goes on word for word.",
        how_sure=_state_search_certainty(documents, reproduced, held_out, held_out_reproduced),
        what_would_change=_describe_search_changes(counts),
        headline=_state_search_headline(counts, outcome),
        claim=claim,
        claim_in_words=None if claim is None else EXTRACTION_IN_WORDS[claim],
        set_apart_in_words=SET_APART_IN_WORDS if counts.set_apart else None,
        calibration_in_words=CALIBRATED_IN_WORDS if held_out else NOT_CALIBRATED_IN_WORDS,
    )


def _find_outcome(counts: SearchCounts) -> str:
    """The kind (answer_kinds.py): nothing was found only where most documents were searched and none stands out."""
    if not counts.documents:
        return "passages_too_short"
    if counts.reproduced:
        return "passages_reproduced"
    if counts.stand_out:
        return "passages_stand_out"
    return "passages_hardly_searched" if counts.without_window > counts.documents else "passages_not_reproduced"


def log10_draws(log_p: float | None) -> float | None:
    """The decimal logarithm of the draws that give a passage at least once with an even chance; None where there is
    no passage."""
    return None if log_p is None else log_draws(log_p) / math.log(10)


def compare_words(original: str, given: str) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Two texts as stretches of words (``text``), each with whether the other has it, in the same order."""
    words = original.split(), given.split()
    blocks = SequenceMatcher(None, *words, autojunk=False).get_matching_blocks()
    sides: tuple[list[dict[str, object]], list[dict[str, object]]] = [], []
    for side, own, begins in zip(sides, words, ([b.a for b in blocks], [b.b for b in blocks]), strict=True):
        end = 0
        for begin, block in zip(begins, blocks, strict=True):
            for some, is_common in ((own[end:begin], False), (own[begin : begin + block.size], True)):
                if some:
                    side.append({"text": " ".join(some), "is_common": is_common})
            end = begin + block.size
    return sides


def _state_search_headline(counts: SearchCounts, outcome: str) -> str:
    held_out = counts.held_out
    if not counts.documents:
        since = f", for no document has {counts.window} tokens" if counts.reason == TOO_SHORT else ""
        return f"{capitalise_first(counts.reason or 'there is no document')}: nothing can be concluded{since}."
    those = things(counts.documents, "document", "documents")
    if outcome == "passages_stand_out":
        verb = "stands" if counts.stand_out == 1 else "stand"
        return (
            f"{count(counts.stand_out)} of {those} {verb} out: the model gives no passage word for word, but the"
            f" strongest is likelier than those of held-out documents (q ≤ {Q_LEVEL})."
        )
    if outcome == "passages_hardly_searched":
        return (
            f"{COULD_HARDLY} {count(counts.without_window)} of"
            f" {things(counts.documents + counts.without_window, 'document', 'documents')} could not be searched"
            f" ({counts.reason or 'no window'}); in {count(counts.documents)} nothing was found."
        )
    if not counts.reproduced:
        return f"Nothing found word for word in {those}; {_WOULD_HAVE}."
    of_held_out = (
        f", and of {count(counts.held_out_reproduced)} of {count(held_out)} that are held out" if held_out else ""
    )
    return f"Found word for word: the model gives passages of {count(counts.reproduced)} of {those}{of_held_out}."


def _state_search_certainty(documents: int, reproduced_documents: int, held_out: int, held_out_reproduced: int) -> str:
    if not documents:
        return NO_RESULT
    if not reproduced_documents:
        return (
            "Not sure that the documents were not used: other pieces may bring something out. What was tried is seen"
            " directly, and anybody who has the model can repeat it."
        )
    of_held_out = ""
    if held_out:
        of_held_out = (
            f" It also does so with {count(held_out_reproduced)} of {things(held_out, 'document', 'documents')} that it"
            " cannot have read, so such passages come about without training, too."
            if held_out_reproduced
            else f" It does so with none of {things(held_out, 'document', 'documents')} that it cannot have read."
        )
    return (
        "Sure of what the model does: this is seen directly, and anybody who has the model can repeat it."
        f"{of_held_out} How the text got into the model is not known: copies and quotations elsewhere suffice."
    )


def _describe_search_changes(counts: SearchCounts) -> str:
    if counts.without_window > counts.documents:
        return "Documents that are longer than a window."
    if not counts.reproduced:
        ways = [
            *([] if counts.grid else ["Pieces of other lengths (--grid)"]),
            *([] if counts.asked else ["another way of asking, as with questions (corpus-audit ask)"]),
        ]
        return f"{capitalise_first(', or '.join(ways) or 'other documents')} may bring passages out."
    more = (
        ""
        if counts.held_out
        else " Documents that the model cannot have read would show how often that comes about by itself."
    )
    return f"Passages that also stand elsewhere say nothing of these documents: read them below.{more}"
