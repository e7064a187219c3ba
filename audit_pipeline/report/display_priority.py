"""Limits of the report, and the order in which answers are shown.

A page with all details of thousands of pairs would take an hour to write, and no browser could open it. The warehouse
contains everything that the report omits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from audit_pipeline.report.sentences import find_kind
from audit_pipeline.statistics.evaluate_options import PREFERRED

MAX_ANSWERS = 300
"""Maximum number of answers on a page, one line each."""
MAX_SECTIONS = 12
"""Maximum number of evidence sections on a model's page. A section has two pictures and as many tables."""
MAX_PICTURED = 40
"""Maximum number of evidence sections on all pages together, if every model has at least one."""
CHOSEN_RULES = (("certified", 0.05), ("marginal", 0.05), ("largest_accuracy", None), ("marginal", 0.01))
"""Rule and alpha of thresholds, in order of preference. The report quotes the first threshold that exists.

The first screen shows only rates at certified thresholds.
"""


def sort_by_importance(answers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort answers by importance.

    Answers of the current benchmark come first. Then the outcome decides, the number of documents that stand out, and
    the lower bound of the AUROC.
    """
    return sorted(answers, key=_build_importance_key)


def _build_importance_key(answer: Mapping[str, Any]) -> tuple[object, ...]:
    auroc = answer["auroc"]
    lower_bound = -1.0
    if auroc and auroc["low"] is not None:
        lower_bound = auroc["low"]
    n_standing_out = 0
    if answer["documents"]:
        n_standing_out = answer["documents"]["standing_out"]
    place = find_kind(answer["outcome"]).place
    return not answer["is_current"], place, -n_standing_out, -lower_bound, answer["model"], answer["benchmark"]


def max_sections_per_model(n_models: int) -> int:
    """Return the maximum number of evidence sections per page if the report has ``n_models`` pages."""
    return max(1, min(MAX_SECTIONS, MAX_PICTURED // max(1, n_models)))


def build_rule_place_sql() -> str:
    """Build the SQL expression that ranks a threshold (``rule``, ``alpha``). The lowest rank is quoted."""
    places = (
        f"WHEN rule = '{rule}' AND alpha IS NOT DISTINCT FROM {alpha or 'NULL'} THEN {place}"
        for place, (rule, alpha) in enumerate(CHOSEN_RULES)
    )
    return f"CASE {' '.join(places)} ELSE {len(CHOSEN_RULES)} END"


def classify_headline_choice(detector: str | None, requested_detector: str | None) -> str | None:
    """Return why a detector is the headline detector, or None if there is none.

    It was named by the user ("named"), it is one of ours ("default"), or it is the only one ("alone").
    """
    if detector is None:
        return None
    if requested_detector:
        return "named"
    if detector in PREFERRED:
        return "default"
    return "alone"
