"""What the report shows where there is too much: which answers come first, and which get a section of their own.

What belongs here: the limits and the order of what matters. What does not: reading the views (report_data.py), what is
said of what is left out (templates/).

A section takes two pictures and as many tables, an answer a line of a table: with thousands of pairs a page would take
an hour to write and nobody could open it. What is left out is all in the warehouse.
"""

from __future__ import annotations

from collections.abc import Sequence

from audit_pipeline.report.document import Answer, Outcome

MAX_ANSWERS = 300
MAX_SECTIONS = 12
MAX_PICTURED = 40
"""Sections of all models' reports together, as long as every model has one."""

_WEIGHT: dict[Outcome, int] = {
    "sound_evidence_of_training": 0,
    "evidence_of_training": 0,
    "documents_stand_out": 1,
    "difference_to_look_at": 2,
    "difference_within_control": 3,
    "no_detector_named": 3,
    "reversed_difference": 3,
    "documents_opposite_direction": 3,
    "separable": 4,
    "no_document_stands_out": 5,
    "documents_cannot_stand_out": 5,
    "no_difference": 5,
    "not_defined": 6,
    "not_evaluated": 7,
}


def in_order(answers: Sequence[Answer]) -> list[Answer]:
    """The answers by what matters: of the present build first, by outcome, by the AUROC that there is at least."""
    return sorted(answers, key=_key)


def _key(answer: Answer) -> tuple[bool, int, int, float, str, str]:
    low = answer.auroc.low if answer.auroc and answer.auroc.low is not None else -1.0
    found = answer.documents.standing_out if answer.documents else 0
    return not answer.is_current, _WEIGHT[answer.outcome], -found, -low, answer.model, answer.benchmark


def sections_a_model(models: int) -> int:
    """How many sections a model's report has at most, where so many models have a report."""
    return max(1, min(MAX_SECTIONS, MAX_PICTURED // max(1, models)))
