"""The pictures of a report, drawn from its data alone.

What belongs here: from sections and studies to SVG for a page. What does not: drawing (plots.py), HTML
(report_html.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from audit_pipeline.report.document import Section, Sides, Study, StudyLine
from audit_pipeline.report.document import Spread as SpreadPart
from audit_pipeline.report.numbers import level, number
from audit_pipeline.report.picture_data import Spread
from audit_pipeline.report.plots import (
    SIDES,
    Interval,
    RocCurve,
    ScorePanel,
    StudyPanel,
    as_svg,
    roc_curves,
    roc_low_corner,
    score_histograms,
    study_panels,
)

SIDE_NAMES: dict[Sides, tuple[str, str]] = {
    "labelled": SIDES,
    "audited against held-out": ("audited", "held-out"),
    "none": SIDES,
}


@dataclass(frozen=True)
class Pictures:
    """The pictures of one section, each by itself so that a narrow page puts them under each other; empty: none."""

    roc: Sequence[Markup]
    spreads: Sequence[Markup]


def pictures_of(section: Section) -> Pictures:
    """ROC curves, whole and their corner of few false positives, and the spread of each detector's scores."""
    what = f"{section.model} on {section.benchmark}"
    sides = SIDE_NAMES[section.sides]
    answering = {(one.detector, one.parameters) for one in section.detectors if one.answers}
    curves = [
        RocCurve(
            curve.detector,
            np.asarray(curve.fpr),
            np.asarray(curve.tpr),
            curve.auroc,
            (curve.detector, curve.parameters) in answering,
        )
        for curve in section.curves
    ]
    return Pictures(
        roc=_roc_pictures(curves, section, what) if curves else (),
        spreads=[_spread_picture(spread, sides, what) for spread in section.spreads],
    )


def _roc_pictures(curves: Sequence[RocCurve], section: Section, what: str) -> Sequence[Markup]:
    sides, smallest = SIDE_NAMES[section.sides], section.smallest_fpr
    aurocs = ", ".join(f"{curve.label} {number(curve.auroc)}" for curve in curves)
    nothing = f" Below {level(smallest)} nothing can be resolved." if smallest else ""
    return (
        _markup(as_svg(roc_curves(curves, sides=sides), f"ROC curves of {what}", f"AUROC: {aurocs}.")),
        _markup(
            as_svg(
                roc_low_corner(curves, smallest_fpr=smallest, sides=sides),
                f"ROC curves of {what} at few false positives",
                f"The false-positive rate on a logarithmic scale.{nothing}",
            )
        ),
    )


def _spread_picture(spread: SpreadPart, sides: tuple[str, str], what: str) -> Markup:
    panel = ScorePanel(
        spread.detector, Spread(np.asarray(spread.edges), np.asarray(spread.members), np.asarray(spread.nonmembers))
    )
    return _markup(
        as_svg(
            score_histograms([panel], sides=sides),
            f"Spread of the scores of {spread.detector} of {what}",
            f"The share of {sides[0]} texts and of {sides[1]} texts at each score.",
        )
    )


def study_pictures(study: Study) -> Sequence[Markup]:
    """AUROC over each setting that a study varied."""
    return [
        _markup(
            as_svg(
                study_panels([StudyPanel(panel.setting, panel.values, [_study_line(line) for line in panel.lines])]),
                f"AUROC over {panel.setting} in the study {study.name}",
            )
        )
        for panel in study.panels
    ]


def _study_line(line: StudyLine) -> tuple[str, list[Interval]]:
    points = [Interval(point.value, point.auroc.value, point.auroc.low, point.auroc.high) for point in line.points]
    return line.detector, points


def _markup(svg: str) -> Markup:
    return Markup(svg)  # noqa: S704 - made by plots.py, which escapes every text that it is given
