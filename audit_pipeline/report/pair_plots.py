"""Plots of one model on one benchmark as Markdown images, for the metadata of Dagster's assets.

What belongs here: from the scores and findings of one run to pictures small enough to be stored there. What does not:
drawing (plots.py, …) and the report, which reads the warehouse (page.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from audit_pipeline.catalogue.contracts import NON_MEMBER
from audit_pipeline.evidence.evaluate_options import choose_headline_detector
from audit_pipeline.evidence.sides import ScoreColumn
from audit_pipeline.report.drawing import as_png, markdown_image
from audit_pipeline.report.picture_data import IntervalRow, RateRow, RocCurve, ScorePanel, spread_of
from audit_pipeline.report.plots import (
    draw_auroc_forest,
    draw_group_rates,
    draw_low_fpr_roc,
    draw_roc_curves,
    draw_score_histograms,
)
from audit_pipeline.separability.blind_controls import NAME as BLIND_CONTROL


def draw_histograms_markdown(columns: Sequence[ScoreColumn], title: str) -> str | None:
    """How the scores of both sides spread at default parameters; None where there is nothing to draw."""
    panels = [
        ScorePanel(column.detector, spread_of(column.members, column.nonmembers))
        for column in _filter_two_sided_columns(columns)
    ]
    return markdown_image(as_png(draw_score_histograms(panels)), f"Score histograms: {title}") if panels else None


def draw_roc_markdown(columns: Sequence[ScoreColumn], evaluations: pa.Table, title: str) -> str | None:
    """ROC curves at default parameters; None where there is nothing to draw."""
    curves = _build_roc_curves(columns, evaluations)
    return markdown_image(as_png(draw_roc_curves(curves)), f"ROC curves: {title}") if curves else None


def draw_low_fpr_roc_markdown(columns: Sequence[ScoreColumn], evaluations: pa.Table, title: str) -> str | None:
    """The corner of few false positives on a logarithmic axis; None where there is nothing to draw."""
    curves = _build_roc_curves(columns, evaluations)
    groups = [
        len({group for group, label in zip(column.groups, column.labels, strict=True) if label == NON_MEMBER})
        for column in _filter_two_sided_columns(columns)
    ]
    if not curves:
        return None
    figure = draw_low_fpr_roc(curves, smallest_fpr=1 / min(groups))
    return markdown_image(as_png(figure), f"ROC curves at low false positive rates: {title}")


def draw_rates_markdown(rates: pa.Table, detector: str, title: str, *, max_groups: int = 25) -> str | None:
    """Flagged and corrected shares of the groups by ``detector`` at its default (schema CONTAMINATION_RATES).

    The ``max_groups`` groups with the highest flagged share, by the marginal threshold at the highest alpha, or by
    another where there is none. None where there is nothing to draw.
    """
    own = [
        row for row in rates.to_pylist() if row["unit"] == "group" and row["detector"] == detector and row["is_default"]
    ]
    rules = sorted({(row["rule"] != "marginal", -(row["alpha"] or 0.0), row["rule"]) for row in own})
    if not rules:
        return None
    shown = sorted(
        (row for row in own if (row["rule"] != "marginal", -(row["alpha"] or 0.0), row["rule"]) == rules[0]),
        key=lambda row: (-row["flagged"], row["name"]),
    )[:max_groups]
    bars = [
        RateRow(
            row["name"],
            IntervalRow("flagged", row["flagged"], row["flagged_low"], row["flagged_high"]),
            IntervalRow("corrected", row["corrected"], row["corrected_low"], row["corrected_high"]),
        )
        for row in shown
    ]
    figure = draw_group_rates(bars, target_rate=shown[0]["alpha"])
    return markdown_image(as_png(figure, dpi=90), f"Rates by group, {detector}: {title}")


def draw_forest_markdown(evaluations: pa.Table, title: str) -> str | None:
    """AUROC with intervals at default parameters, the blind control as a band; None where there is nothing to draw."""
    rows = _list_default_aurocs(evaluations)
    blind = next((row for row in rows if row.label == BLIND_CONTROL), None)
    detectors = [row for row in rows if row.label != BLIND_CONTROL]
    if not detectors:
        return None
    return markdown_image(as_png(draw_auroc_forest(detectors, blind=blind)), f"AUROC with intervals: {title}")


def _build_roc_curves(columns: Sequence[ScoreColumn], evaluations: pa.Table) -> list[RocCurve]:
    aurocs = {row.label: row.value for row in _list_default_aurocs(evaluations)}
    answering = choose_headline_detector({column.detector for column in _filter_two_sided_columns(columns)})
    return [
        RocCurve(column.detector, points.fpr, points.tpr, aurocs.get(column.detector), column.detector == answering)
        for column in _filter_two_sided_columns(columns)
        if (points := column.roc()) is not None
    ]


def _filter_two_sided_columns(columns: Sequence[ScoreColumn]) -> list[ScoreColumn]:
    """The detectors at default parameters that have scores on both sides, by name."""
    return [
        column
        for column in sorted(columns, key=lambda column: column.key)
        if column.detector != BLIND_CONTROL and column.is_default and column.members.size and column.nonmembers.size
    ]


def _list_default_aurocs(evaluations: pa.Table) -> list[IntervalRow]:
    return [
        IntervalRow(row["detector"], row["value"], row["ci_low"], row["ci_high"])
        for row in evaluations.to_pylist()
        if row["metric"] == "auroc" and row["is_default"]
    ]
