"""The ROC curves of one model on one benchmark as a Markdown image, for the metadata of Dagster's assets."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from audit_pipeline.evidence.evaluate_options import choose_headline_detector
from audit_pipeline.evidence.sides import ScoreColumn
from audit_pipeline.report.drawing import as_png, markdown_image
from audit_pipeline.report.picture_data import RocCurve
from audit_pipeline.report.plots import draw_roc_curves
from audit_pipeline.separability.blind_controls import NAME as BLIND_CONTROL


def draw_roc_markdown(columns: Sequence[ScoreColumn], evaluations: pa.Table, title: str) -> str | None:
    """ROC curves at default parameters; None where no detector has scores on both sides."""
    aurocs = {
        row["detector"]: row["value"]
        for row in evaluations.to_pylist()
        if row["metric"] == "auroc" and row["is_default"]
    }
    two_sided = [
        column
        for column in sorted(columns, key=lambda column: column.key)
        if column.detector != BLIND_CONTROL and column.is_default and column.members.size and column.nonmembers.size
    ]
    answering = choose_headline_detector({column.detector for column in two_sided})
    curves = [
        RocCurve(column.detector, points.fpr, points.tpr, aurocs.get(column.detector), column.detector == answering)
        for column in two_sided
        if (points := column.roc()) is not None
    ]
    return markdown_image(as_png(draw_roc_curves(curves)), f"ROC curves: {title}") if curves else None
