"""What a control's models give word for word, over how many times a text was read.

What belongs here: drawing it. What does not: computing it (extraction/rates.py), how pictures look (drawing.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import matplotlib.axes
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from audit_pipeline.metrics.claims import REPRODUCED_FROM
from audit_pipeline.report.drawing import LINE_STYLES, PALETTE, QUIET, STYLE, plain
from audit_pipeline.report.picture_data import IntervalRow

Line = tuple[str, Sequence[IntervalRow]]
"""A model, and its value for every number of readings, which is the label."""


def reached_curves(lines: Sequence[Line]) -> Figure:
    """The share of texts with a passage of p ≥ 0.001, with 95% intervals."""
    with matplotlib.rc_context(STYLE):
        figure, axes = _with_axes(lines)
        axes.set_ylim(-0.03, 1.03)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_ylabel("texts with a passage of p ≥ 0.001")
    return figure


def probability_curves(lines: Sequence[Line]) -> Figure:
    """The decimal logarithm of the median text's strongest passage; dashed: from where on one counts as reproduced."""
    with matplotlib.rc_context(STYLE):
        figure, axes = _with_axes(lines)
        axes.axhline(np.log10(REPRODUCED_FROM), color=QUIET, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.set_ylabel("log₁₀ p of the strongest passage (median)")
    return figure


def _with_axes(lines: Sequence[Line]) -> tuple[Figure, matplotlib.axes.Axes]:
    """The lines over the numbers of readings, which stand at equal distances: they double."""
    figure = Figure(figsize=(4.6, 3.4), layout="constrained")
    axes = figure.add_subplot()
    labels = sorted({one.label for _, points in lines for one in points}, key=int)
    for number, (name, points) in enumerate(lines):
        colour = PALETTE[number % len(PALETTE)]
        places = [labels.index(one.label) for one in points]
        axes.plot(
            places,
            [np.nan if one.value is None else one.value for one in points],
            marker="o",
            markersize=4,
            color=colour,
            linestyle=LINE_STYLES[number % len(LINE_STYLES)],
            label=plain(name),
        )
        for place, one in zip(places, points, strict=True):
            if one.low is not None and one.high is not None:
                axes.plot([place, place], [one.low, one.high], color=colour, linewidth=1.6, alpha=0.45)
    axes.set_xticks(range(len(labels)), labels)
    axes.set_xlabel("times that the trained model read the text")
    figure.legend(loc="outside upper center", ncols=2, handlelength=1.8)
    return figure, axes
