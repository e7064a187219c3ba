"""The answers about documents: what a model gives of them word for word, and what it said when it was asked in words.

What belongs here: from documents counted to the kind of an answer and its sentences. What does not: the claims
themselves (statistics/claims.py), the searches (extras/extraction/, extras/chat/), the sentences (answers.yaml).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from difflib import SequenceMatcher
from typing import Any

from audit_pipeline.report.number_format import format_count_with_noun
from audit_pipeline.report.sentences import Q_LEVEL, render_answer, render_phrase
from audit_pipeline.statistics.claims import (
    CALIBRATED_IN_WORDS,
    EXTRACTION_IN_WORDS,
    NOT_CALIBRATED_IN_WORDS,
    SET_APART_IN_WORDS,
    find_extraction_claim,
)
from audit_pipeline.statistics.conformal import count_held_out_needed
from audit_pipeline.statistics.draw_cost import compute_log_draws
from audit_pipeline.tables import AskClaim


def describe_search(model: str, benchmark: str, counts: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a search for passages in sentences, and its claim; ``model`` and ``benchmark`` by their titles.

    ``counts``: audited ``documents`` with a window, those ``without_window``; of the former those ``reproduced`` and
    those that ``stand_out`` (q ≤ 0.05) by their strongest window; ``held_out`` documents, ``held_out_reproduced``;
    ``set_apart``: windows; ``window``: tokens of one; ``reason``: why documents have no window; ``grid``: whether a
    grid of lengths was tried; ``asked``: whether the model was asked in words for the same documents.
    """
    those = format_count_with_noun(counts["documents"], "document", "documents")
    facts = {"design_stated_by": None, **counts, "model": model, "benchmark": benchmark, "those": those}
    claim = find_extraction_claim(counts["reproduced"]) if counts["documents"] else None
    return {
        **render_answer(_find_search_kind(counts), facts, question="question_of_search"),
        "brief": render_phrase("brief_of_search", facts),
        "claim": claim,
        "claim_in_words": None if claim is None else EXTRACTION_IN_WORDS[claim],
        "set_apart_in_words": SET_APART_IN_WORDS if counts["set_apart"] else None,
        "calibration_in_words": CALIBRATED_IN_WORDS if counts["held_out"] else NOT_CALIBRATED_IN_WORDS,
    }


def _find_search_kind(counts: Mapping[str, Any]) -> str:
    """Nothing was found only where most documents were searched and none stands out."""
    if not counts["documents"]:
        return "passages_too_short"
    if counts["reproduced"]:
        return "passages_reproduced"
    if counts["stand_out"]:
        return "passages_stand_out"
    is_hardly_searched = counts["without_window"] > counts["documents"]
    return "passages_hardly_searched" if is_hardly_searched else "passages_not_reproduced"


def describe_asking(model: str, benchmark: str, counts: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a model that was asked in words, in sentences, and its claim; ``model`` and ``benchmark`` by their
    titles.

    ``counts``: audited ``documents`` with an answer at the ``rung`` named beforehand (None: it was not asked at that),
    those ``unanswered``, those ``reproduced``, those ``not_graded``, those that ``stand_out`` (q ≤ 0.05); held-out
    ones: ``held_out_asked``, ``held_out`` with an answer, ``held_out_reproduced``; ``compared_with``: those behind the
    p-values. ``longest_run``: in words. ``elsewhere``: the other rungs at which documents are reproduced, each with
    ``rung``, ``reproduced`` and ``documents``. ``requests`` at all rungs, and of them the ``not_measured`` ones.
    """
    claim = _find_asking_claim(counts)
    facts = {
        **counts,
        "model": model,
        "benchmark": benchmark,
        "claim": claim,
        "those": format_count_with_noun(counts["documents"], "document", "documents"),
        "longest": format_count_with_noun(counts["longest_run"] or 0, "word", "words"),
        "needed": count_held_out_needed(1, 1, Q_LEVEL),
    }
    return {
        **render_answer(_find_asking_kind(counts, claim), facts, question="question_of_asking"),
        "brief": render_phrase("brief_of_asking", facts),
        "claim": claim,
        "claim_in_words": None if claim is None else render_phrase("asked_claim", facts),
        "calibration_in_words": None if claim in (None, "refused") else render_phrase("asked_calibration", facts),
        "unanswered_in_words": render_phrase("unanswered", facts) or None,
    }


def _find_asking_claim(counts: Mapping[str, Any]) -> AskClaim | None:
    if counts["rung"] is None:
        return None
    if counts["reproduced"]:
        return "reproduced"
    if counts["not_graded"]:
        return "not graded"
    if not counts["documents"]:
        return "refused"
    return "not reproduced" if counts["compared_with"] else "not calibrated"


def _find_asking_kind(counts: Mapping[str, Any], claim: AskClaim | None) -> str:
    if claim == "reproduced":
        return "asked_reproduced"
    if claim != "not reproduced":
        return "asked_without_result"
    if counts["stand_out"]:
        return "asked_stands_out"
    return "asked_without_result" if counts["unanswered"] > counts["documents"] else "asked_not_reproduced"


def compute_log10_draws(log_p: float | None) -> float | None:
    """The decimal logarithm of the draws that give a passage at least once with an even chance; None where there is
    no passage."""
    return None if log_p is None else compute_log_draws(log_p) / math.log(10)


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
