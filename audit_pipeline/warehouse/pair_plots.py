"""Plots of one model on one benchmark as Markdown images, for the metadata of Dagster's assets.

What belongs here: from the scores and findings of one run to pictures small enough to be stored there. What does not:
drawing (plots.py) and the report, which reads the warehouse (report.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from audit_pipeline.evaluation.blind_control import NAME as BLIND_CONTROL
from audit_pipeline.evaluation.evaluate import ScoreColumn
from audit_pipeline.warehouse.plots import (
    Interval,
    RocCurve,
    ScorePanel,
    as_png,
    auroc_forest,
    markdown_image,
    roc_curves,
    score_histograms,
)


def histograms_markdown(columns: Sequence[ScoreColumn], what: str) -> str | None:
    """How the scores of both sides spread at default parameters; None where there is nothing to draw."""
    panels = [ScorePanel(column.detector, column.members, column.nonmembers) for column in _both_sides(columns)]
    return markdown_image(as_png(score_histograms(panels)), f"Score histograms: {what}") if panels else None


def roc_markdown(columns: Sequence[ScoreColumn], evaluations: pa.Table, what: str) -> str | None:
    """ROC curves at default parameters; None where there is nothing to draw."""
    aurocs = {row.label: row.value for row in _headline(evaluations)}
    curves = [
        RocCurve(column.detector, points.fpr, points.tpr, aurocs.get(column.detector))
        for column in _both_sides(columns)
        if (points := column.roc()) is not None
    ]
    return markdown_image(as_png(roc_curves(curves)), f"ROC curves: {what}") if curves else None


def forest_markdown(evaluations: pa.Table, what: str) -> str | None:
    """AUROC with intervals at default parameters, the blind control as a band; None where there is nothing to draw."""
    rows = _headline(evaluations)
    blind = next((row for row in rows if row.label == BLIND_CONTROL), None)
    detectors = [row for row in rows if row.label != BLIND_CONTROL]
    if not detectors:
        return None
    return markdown_image(as_png(auroc_forest(detectors, blind=blind)), f"AUROC with intervals: {what}")


def _both_sides(columns: Sequence[ScoreColumn]) -> list[ScoreColumn]:
    """The detectors at default parameters that have scores on both sides, by name."""
    return [
        column
        for column in sorted(columns, key=lambda column: column.key)
        if column.detector != BLIND_CONTROL and column.is_default and column.members.size and column.nonmembers.size
    ]


def _headline(evaluations: pa.Table) -> list[Interval]:
    return [
        Interval(row["detector"], row["value"], row["ci_low"], row["ci_high"])
        for row in evaluations.to_pylist()
        if row["metric"] == "auroc" and row["is_default"]
    ]
