"""The pictures of a report, drawn from its data alone.

What belongs here: from sections and studies to SVG for a page. What does not: drawing (plots.py), HTML
(report_html.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from audit_pipeline.warehouse.picture_data import Spread
from audit_pipeline.warehouse.plots import (
    SIDES,
    Interval,
    RocCurve,
    ScorePanel,
    StudyPanel,
    as_svg,
    roc_both,
    score_histograms,
    study_panels,
)
from audit_pipeline.warehouse.report_document import Section, Sides, Study
from audit_pipeline.warehouse.report_numbers import level, number

SIDE_NAMES: dict[Sides, tuple[str, str]] = {
    "labelled": SIDES,
    "audited against held-out": ("audited", "held-out"),
    "none": SIDES,
}


@dataclass(frozen=True)
class Pictures:
    """The pictures of one section; None where there is nothing to draw."""

    roc: Markup | None
    spreads: Markup | None


def pictures_of(section: Section) -> Pictures:
    """ROC curves and spreads of the scores of a section."""
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
    panels = [
        ScorePanel(
            spread.detector,
            Spread(np.asarray(spread.edges), np.asarray(spread.members), np.asarray(spread.nonmembers)),
        )
        for spread in section.spreads
    ]
    aurocs = ", ".join(f"{curve.detector} {number(curve.auroc)}" for curve in section.curves)
    smallest = f" Below {level(section.smallest_fpr)} nothing can be resolved." if section.smallest_fpr else ""
    return Pictures(
        roc=_markup(
            as_svg(
                roc_both(curves, smallest_fpr=section.smallest_fpr, sides=sides),
                f"ROC curves of {what}",
                f"Left the whole curves, right few false positives on a logarithmic scale. AUROC: {aurocs}.{smallest}",
            )
        )
        if curves
        else None,
        spreads=_markup(
            as_svg(
                score_histograms(panels, sides=sides, columns=3),
                f"Spread of the scores of {what}",
                f"One panel a detector: the share of {sides[0]} texts and of {sides[1]} texts at each score.",
            )
        )
        if panels
        else None,
    )


def study_picture(study: Study) -> Markup:
    """AUROC over the settings that a study varied."""
    panels = [
        StudyPanel(
            panel.setting,
            panel.values,
            [
                (
                    line.detector,
                    [
                        Interval(point.value, point.auroc.value, point.auroc.low, point.auroc.high)
                        for point in line.points
                    ],
                )
                for line in panel.lines
            ],
        )
        for panel in study.panels
    ]
    varied = ", ".join(panel.setting for panel in study.panels)
    return _markup(as_svg(study_panels(panels), f"AUROC over the settings that the study {study.name} varied", varied))


def _markup(svg: str) -> Markup:
    return Markup(svg)  # noqa: S704 - made by plots.py, which escapes every text that it is given
