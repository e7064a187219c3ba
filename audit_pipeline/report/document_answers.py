"""Answers about documents: searches for passages that a model reproduces, and questions to models that answer in words.

The functions turn counts of documents into an outcome and its sentences (answers.yaml). The claims are in
statistics/claims.py, the searches in extras/extraction and extras/chat.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from audit_pipeline.report.number_format import format_count_with_noun
from audit_pipeline.report.sentences import Q_LEVEL, render_answer, render_phrase
from audit_pipeline.statistics import claims
from audit_pipeline.statistics.conformal import count_held_out_needed
from audit_pipeline.statistics.power import compute_log_draws
from audit_pipeline.tables import AskClaim


def describe_search_answer(
    model: str, benchmark: str, counts: Mapping[str, Any], *, has_answers: bool = False
) -> dict[str, Any]:
    """Return the result of a search for passages, as sentences and a claim.

    Args:
        model: Title of the model.
        benchmark: Title of the benchmark.
        counts: Numbers and flags of the search.

            * Audited documents: ``documents`` is the number with a window, ``without_window`` the number without one.
              ``reproduced`` is the number with a reproduced passage. ``stand_out`` is the number with q ≤ 0.05 for
              their strongest window. ``reason`` states why documents have no window.
            * Held-out documents: ``held_out`` is their number. ``held_out_reproduced`` is the number with a reproduced
              passage.
            * Windows: ``window`` is the length of a window in tokens. ``set_apart`` is the number of predictable
              windows, which the model can reproduce without having read the document.
            * ``grid`` is True if several lengths were tried. ``asked`` is True if the model was also asked in words
              about the same documents.
        has_answers: Whether the documents are answers of conversations.
    """
    those = format_count_with_noun(counts["documents"], "document", "documents")
    facts = {
        "design_stated_by": None,
        **counts,
        "model": model,
        "benchmark": benchmark,
        "those": those,
        "has_answers": has_answers,
    }
    claim = None
    claim_in_words = None
    if counts["documents"]:
        claim = claims.find_extraction_claim(counts["reproduced"])
        claim_in_words = claims.EXTRACTION_IN_WORDS[claim]
    calibration_in_words = claims.NOT_CALIBRATED_IN_WORDS
    if counts["held_out"]:
        calibration_in_words = claims.CALIBRATED_IN_WORDS
        if has_answers:
            calibration_in_words = claims.CALIBRATED_ANSWERS_IN_WORDS
    return {
        **render_answer(_find_search_kind(counts), facts, question="question_of_search"),
        "brief": render_phrase("brief_of_search", facts),
        "claim": claim,
        "claim_in_words": claim_in_words,
        "set_apart_in_words": claims.SET_APART_IN_WORDS if counts["set_apart"] else None,
        "calibration_in_words": calibration_in_words,
    }


def _find_search_kind(counts: Mapping[str, Any]) -> str:
    """Return the outcome of a search. A null result requires that most documents were searched."""
    if not counts["documents"]:
        return "passages_too_short"
    if counts["reproduced"]:
        return "passages_reproduced"
    if counts["stand_out"]:
        return "passages_stand_out"
    if counts["without_window"] > counts["documents"]:
        return "passages_hardly_searched"
    return "passages_not_reproduced"


def describe_chat_answer(model: str, benchmark: str, counts: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the result of asking a chat model for passages, as sentences and a claim.

    Args:
        model: Title of the model.
        benchmark: Title of the benchmark.
        counts: Numbers of the questions in the headline prompt style.

            * ``rung`` is the headline prompt style, or None if it was not used.
            * Audited documents: ``documents`` with an answer, ``unanswered``, ``reproduced``, ``not_graded``, and those
              that ``stand_out`` (q ≤ 0.05). ``longest_run`` is the longest reproduced run in words.
            * Held-out documents: ``held_out_asked``, ``held_out`` with an answer, and ``held_out_reproduced``.
              ``compared_with`` is the number of held-out documents from which the p-values are computed.
            * All prompt styles: ``elsewhere`` lists the other styles with reproduced documents. ``requests`` counts the
              requests, and ``not_measured`` those without a result.
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
    claim_in_words = None
    calibration_in_words = None
    if claim is not None:
        claim_in_words = render_phrase("asked_claim", facts)
    if claim not in (None, "refused"):
        calibration_in_words = render_phrase("asked_calibration", facts)
    return {
        **render_answer(_find_asking_kind(counts, claim), facts, question="question_of_asking"),
        "brief": render_phrase("brief_of_asking", facts),
        "claim": claim,
        "claim_in_words": claim_in_words,
        "calibration_in_words": calibration_in_words,
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
    if not counts["compared_with"]:
        return "not calibrated"
    return "not reproduced"


def _find_asking_kind(counts: Mapping[str, Any], claim: AskClaim | None) -> str:
    if claim == "reproduced":
        return "asked_reproduced"
    if claim != "not reproduced":
        return "asked_without_result"
    if counts["stand_out"]:
        return "asked_stands_out"
    if counts["unanswered"] > counts["documents"]:
        return "asked_without_result"
    return "asked_not_reproduced"


def compute_log10_draws(log_p: float | None) -> float | None:
    """Compute log10 of the number of draws that yield a passage at least once with a probability of 50%.

    Args:
        log_p: Log-probability of the passage in nats, or None if there is no passage.
    """
    if log_p is None:
        return None
    return compute_log_draws(log_p) / math.log(10)


def compare_words(original: str, given: str) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Split two texts into stretches of words that both texts contain in the same order, and the words between them.

    Returns:
        The stretches of ``original`` and of ``given``. A stretch has its ``text`` and the flag ``is_common``.
    """
    original_words = original.split()
    given_words = given.split()
    blocks = SequenceMatcher(None, original_words, given_words, autojunk=False).get_matching_blocks()
    original_ranges = []
    given_ranges = []
    for block in blocks:
        original_ranges.append((block.a, block.a + block.size))
        given_ranges.append((block.b, block.b + block.size))
    return _split_words(original_words, original_ranges), _split_words(given_words, given_ranges)


def _split_words(words: Sequence[str], common_ranges: Sequence[tuple[int, int]]) -> list[dict[str, object]]:
    stretches: list[dict[str, object]] = []
    previous_end = 0
    for start, end in common_ranges:
        if previous_end < start:
            stretches.append({"text": " ".join(words[previous_end:start]), "is_common": False})
        if start < end:
            stretches.append({"text": " ".join(words[start:end]), "is_common": True})
        previous_end = end
    return stretches
