"""What the report shows where there is too much: which answers come first, and which get a section of their own.

What belongs here: the limits and the order of what matters. What does not: reading the views (page.py), what is
said of what is left out (sections/).

A section takes two pictures and as many tables, and an answer is one line of a table. With thousands of pairs a page
would take an hour to write and nobody could open it. What is left out is all in the warehouse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from audit_pipeline.report.sentences import find_kind
from audit_pipeline.statistics.evaluate_options import PREFERRED

MAX_ANSWERS = 300
MAX_SECTIONS = 12
MAX_PICTURED = 40
"""Sections of all models' reports together, as long as every model has one."""
CHOSEN_RULES = (("certified", 0.05), ("marginal", 0.05), ("largest_accuracy", None), ("marginal", 0.01))
"""The threshold whose rates are quoted: the first of these that exists. The first screen shows a certified one only."""


def sort_by_importance(answers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers by what matters: of the present build first, by outcome, by the AUROC that there is at least."""

    def importance(answer: Mapping[str, Any]) -> tuple[object, ...]:
        auroc, documents = answer["auroc"], answer["documents"]
        low = auroc["low"] if auroc and auroc["low"] is not None else -1.0
        found = documents["standing_out"] if documents else 0
        place = find_kind(answer["outcome"]).place
        return not answer["is_current"], place, -found, -low, answer["model"], answer["benchmark"]

    return sorted(answers, key=importance)


def max_sections_per_model(models: int) -> int:
    """How many sections a model's report has at most, where so many models have a report."""
    return max(1, min(MAX_SECTIONS, MAX_PICTURED // max(1, models)))


def build_rule_place_sql() -> str:
    """The place of a threshold (``rule``, ``alpha``) among those whose rates are quoted: the lowest is quoted."""
    places = (
        f"WHEN rule = '{rule}' AND alpha IS NOT DISTINCT FROM {alpha or 'NULL'} THEN {place}"
        for place, (rule, alpha) in enumerate(CHOSEN_RULES)
    )
    return f"CASE {' '.join(places)} ELSE {len(CHOSEN_RULES)} END"


def classify_headline_choice(detector: str | None, requested_detector: str | None) -> str | None:
    """Why a detector is the headline: named by whoever ran this, one of ours (default), or alone; None: none is."""
    if detector is None:
        return None
    return "named" if requested_detector else "default" if detector in PREFERRED else "alone"
