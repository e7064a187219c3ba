"""The pictures of a page, drawn from its rows alone.

What belongs here: from rows of sections to SVG. What does not: drawing (roc_plots.py, spread_plots.py,
interval_plots.py), HTML (html.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from audit_pipeline.report.drawing import as_svg
from audit_pipeline.report.interval_plots import probability_curves, reached_curves, study_panels
from audit_pipeline.report.known import Sides
from audit_pipeline.report.numbers import level, number
from audit_pipeline.report.picture_data import SIDES, IntervalRow, RocCurve, ScorePanel, Spread, StudyPanel
from audit_pipeline.report.roc_plots import roc_curves, roc_low_corner
from audit_pipeline.report.spread_plots import score_histograms

Row = Mapping[str, Any]

SIDE_NAMES: dict[Sides, tuple[str, str]] = {
    "labelled": SIDES,
    "audited against held-out": ("audited", "held-out"),
    "none": SIDES,
}


def roc_pictures(finding: Row) -> Sequence[Markup]:
    """ROC curves of a pair, whole and their corner of few false positives; each by itself, so that a narrow page puts
    them under each other."""
    sides, smallest = SIDE_NAMES[finding["sides"]], finding["smallest_fpr"]
    curves = [
        RocCurve(row["detector"], np.asarray(row["fpr"]), np.asarray(row["tpr"]), row["auroc"], row["answers"])
        for row in finding["curves"]
    ]
    if not curves:
        return ()
    title = f"ROC curves of {_what(finding)}"
    aurocs = ", ".join(f"{curve.label} {number(curve.auroc)}" for curve in curves)
    nothing = f" Below {level(smallest)} nothing can be resolved." if smallest else ""
    return (
        _markup(roc_curves(curves, sides=sides), title, f"AUROC: {aurocs}."),
        _markup(
            roc_low_corner(curves, smallest_fpr=smallest, sides=sides),
            f"{title} at few false positives",
            f"The false-positive rate on a logarithmic scale.{nothing}",
        ),
    )


def spread_pictures(finding: Row) -> Sequence[Markup]:
    """The spread of the scores of each detector of a pair."""
    sides = SIDE_NAMES[finding["sides"]]
    return [
        _markup(
            score_histograms([ScorePanel(row["detector"], _spread(row))], sides=sides),
            f"Spread of the scores of {row['detector']} of {_what(finding)}",
            f"The share of {sides[0]} texts and of {sides[1]} texts at each score.",
        )
        for row in finding["curves"]
    ]


def study_pictures(study: Row) -> Sequence[Markup]:
    """AUROC over each setting that a study varied."""
    return [
        _markup(
            study_panels([StudyPanel(panel["setting"], panel["places"], [_line(line) for line in panel["lines"]])]),
            f"AUROC over {panel['setting']} in the study {study['name']}",
        )
        for panel in study["panels"]
    ]


def curve_pictures(control: Row) -> Sequence[Markup]:
    """What the models of a control give word for word, over how many times its exposed model read a text."""
    lines = [("trained on the texts", control["exposed"]), ("control model", control["twin"])]
    about = f"over how many times they were read, control {control['control']} on {control['benchmark']}"
    return (
        _markup(
            reached_curves([(label, [_reached(point) for point in points]) for label, points in lines]),
            f"Texts with a passage of p ≥ 0.001 {about}",
        ),
        _markup(
            probability_curves([(label, [_log10_p(point) for point in points]) for label, points in lines]),
            f"Probability of a text's strongest passage {about}",
        ),
    )


def _reached(point: Row) -> IntervalRow:
    reached = point["reached"]
    return IntervalRow(str(point["occurrences"]), reached["value"], reached["low"], reached["high"])


def _log10_p(point: Row) -> IntervalRow:
    return IntervalRow(str(point["occurrences"]), point["log10_p"], None, None)


def _what(finding: Row) -> str:
    return f"{finding['model']} on {finding['benchmark']}"


def _spread(row: Row) -> Spread:
    return Spread(np.asarray(row["edges"]), np.asarray(row["members"]), np.asarray(row["nonmembers"]))


def _line(line: Row) -> tuple[str, list[IntervalRow]]:
    points = [(point["place"], point["auroc"]) for point in line["points"]]
    return line["detector"], [IntervalRow(place, one["value"], one["low"], one["high"]) for place, one in points]


def _markup(figure: Figure, title: str, description: str = "") -> Markup:
    return Markup(as_svg(figure, title, description))  # noqa: S704 - as_svg escapes every text that it is given
