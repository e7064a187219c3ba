"""Plots of one model on one benchmark as Markdown images, for the metadata of Dagster's assets.

What belongs here: from the scores and findings of one run to pictures small enough to be stored there. What does not:
drawing (plots.py, …) and the report, which reads the warehouse (page.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from audit_pipeline.catalogue.contracts import NON_MEMBER
from audit_pipeline.evidence.options import headline_detector
from audit_pipeline.evidence.sides import ScoreColumn
from audit_pipeline.report.drawing import as_png, markdown_image
from audit_pipeline.report.picture_data import IntervalRow, RateRow, RocCurve, ScorePanel, spread_of
from audit_pipeline.report.plots import auroc_forest, rates_by_group, roc_curves, roc_low_corner, score_histograms
from audit_pipeline.separability.blind_controls import NAME as BLIND_CONTROL


def histograms_markdown(columns: Sequence[ScoreColumn], what: str) -> str | None:
    """How the scores of both sides spread at default parameters; None where there is nothing to draw."""
    panels = [
        ScorePanel(column.detector, spread_of(column.members, column.nonmembers)) for column in _both_sides(columns)
    ]
    return markdown_image(as_png(score_histograms(panels)), f"Score histograms: {what}") if panels else None


def roc_markdown(columns: Sequence[ScoreColumn], evaluations: pa.Table, what: str) -> str | None:
    """ROC curves at default parameters; None where there is nothing to draw."""
    curves = _curves(columns, evaluations)
    return markdown_image(as_png(roc_curves(curves)), f"ROC curves: {what}") if curves else None


def roc_log_markdown(columns: Sequence[ScoreColumn], evaluations: pa.Table, what: str) -> str | None:
    """The corner of few false positives on a logarithmic axis; None where there is nothing to draw."""
    curves = _curves(columns, evaluations)
    groups = [
        len({group for group, label in zip(column.groups, column.labels, strict=True) if label == NON_MEMBER})
        for column in _both_sides(columns)
    ]
    if not curves:
        return None
    figure = roc_low_corner(curves, smallest_fpr=1 / min(groups))
    return markdown_image(as_png(figure), f"ROC curves at low false positive rates: {what}")


def rates_markdown(rates: pa.Table, detector: str, what: str, *, most: int = 25) -> str | None:
    """Flagged and corrected shares of the groups by ``detector`` at its default (schema CONTAMINATION_RATES).

    The ``most`` groups with the highest flagged share, by the marginal threshold at the highest alpha, or by another
    where there is none. None where there is nothing to draw.
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
    )[:most]
    bars = [
        RateRow(
            row["name"],
            IntervalRow("flagged", row["flagged"], row["flagged_low"], row["flagged_high"]),
            IntervalRow("corrected", row["corrected"], row["corrected_low"], row["corrected_high"]),
        )
        for row in shown
    ]
    figure = rates_by_group(bars, aimed_at=shown[0]["alpha"])
    return markdown_image(as_png(figure, dpi=90), f"Rates by group, {detector}: {what}")


def forest_markdown(evaluations: pa.Table, what: str) -> str | None:
    """AUROC with intervals at default parameters, the blind control as a band; None where there is nothing to draw."""
    rows = _headline(evaluations)
    blind = next((row for row in rows if row.label == BLIND_CONTROL), None)
    detectors = [row for row in rows if row.label != BLIND_CONTROL]
    if not detectors:
        return None
    return markdown_image(as_png(auroc_forest(detectors, blind=blind)), f"AUROC with intervals: {what}")


def _curves(columns: Sequence[ScoreColumn], evaluations: pa.Table) -> list[RocCurve]:
    aurocs = {row.label: row.value for row in _headline(evaluations)}
    answering = headline_detector({column.detector for column in _both_sides(columns)})
    return [
        RocCurve(column.detector, points.fpr, points.tpr, aurocs.get(column.detector), column.detector == answering)
        for column in _both_sides(columns)
        if (points := column.roc()) is not None
    ]


def _both_sides(columns: Sequence[ScoreColumn]) -> list[ScoreColumn]:
    """The detectors at default parameters that have scores on both sides, by name."""
    return [
        column
        for column in sorted(columns, key=lambda column: column.key)
        if column.detector != BLIND_CONTROL and column.is_default and column.members.size and column.nonmembers.size
    ]


def _headline(evaluations: pa.Table) -> list[IntervalRow]:
    return [
        IntervalRow(row["detector"], row["value"], row["ci_low"], row["ci_high"])
        for row in evaluations.to_pylist()
        if row["metric"] == "auroc" and row["is_default"]
    ]
