"""What is said of what a model gives word for word, and of whether held-out documents stand beside it.

What belongs here: from documents counted to sentences. What does not: the claims themselves (metrics/claims.py), the
search (extraction/), layout (sections/).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from audit_pipeline.extraction.conclude import log_draws
from audit_pipeline.metrics.claims import (
    CALIBRATED_IN_WORDS,
    EXTRACTION_IN_WORDS,
    NOT_CALIBRATED_IN_WORDS,
    SET_APART_IN_WORDS,
    ExtractionClaim,
    extraction_claim,
)
from audit_pipeline.report.numbers import count, things


@dataclass(frozen=True)
class ExtractionWords:
    """The sentences of one benchmark; None where there is nothing to be said of it."""

    headline: str
    claim: ExtractionClaim | None
    claim_in_words: str | None
    set_apart_in_words: str | None
    calibration_in_words: str


def extraction_words(
    documents: int, reproduced: int, held_out: int, held_out_reproduced: int, set_apart: int, reason: str | None
) -> ExtractionWords:
    """What is said of so many audited ``documents`` with a window and as many that are held out.

    ``reproduced``: those with a passage that the model reproduces. ``set_apart``: windows. ``reason``: why a document
    has no window.
    """
    claim = extraction_claim(reproduced) if documents else None
    return ExtractionWords(
        headline=_headline(documents, reproduced, held_out, held_out_reproduced, reason),
        claim=claim,
        claim_in_words=None if claim is None else EXTRACTION_IN_WORDS[claim],
        set_apart_in_words=SET_APART_IN_WORDS if set_apart else None,
        calibration_in_words=CALIBRATED_IN_WORDS if held_out else NOT_CALIBRATED_IN_WORDS,
    )


def log10_draws(log_p: float | None) -> float | None:
    """The decimal logarithm of the draws that give a passage at least once with an even chance; None where there is
    no passage."""
    return None if log_p is None else log_draws(log_p) / math.log(10)


def _headline(documents: int, reproduced: int, held_out: int, held_out_reproduced: int, reason: str | None) -> str:
    if not documents:
        return f"No document was searched: {reason or 'there is none'}."
    those = things(documents, "document", "documents")
    beside = f", and of {count(held_out_reproduced)} of {count(held_out)} that are held out" if held_out else ""
    return f"The model was found to give passages of {count(reproduced)} of {those} word for word{beside}."
