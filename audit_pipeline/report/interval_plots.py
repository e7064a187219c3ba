"""Values with their intervals: AUROC of detectors and of studies, rates of groups, what a control gives word for word.

What belongs here: drawing them. What does not: computing them (metrics/, evidence/, extraction/rates.py), how pictures
look (drawing.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from audit_pipeline.metrics.claims import REPRODUCED_FROM
from audit_pipeline.report.drawing import DASHED, DOTTED, LINE_STYLES, PALETTE, QUIET, STYLE, plain
from audit_pipeline.report.picture_data import IntervalRow, RateRow, StudyPanel

Line = tuple[str, Sequence[IntervalRow]]
"""What a line is of, and its points by their labels."""


def rates_by_group(rows: Sequence[RateRow], *, aimed_at: float | None = None) -> Figure:
    """Flagged share (open) and corrected rate (filled) with 95% intervals, a line per group.

    The dashed line is the false-positive rate that the threshold aims at: so many of a book that was never read are
    flagged all the same.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 1.35 + 0.34 * max(1, len(rows))), layout="constrained")
        axes = figure.add_subplot()
        if aimed_at is not None:
            axes.axvline(aimed_at, color=QUIET, linewidth=0.9, linestyle=DASHED)
        for position, row in enumerate(rows):
            for place, interval, face, name in (
                (position - 0.13, row.flagged, "none", "flagged"),
                (position + 0.13, row.corrected, PALETTE[0], "corrected"),
            ):
                _draw_whisker(axes, interval, place, across=True, color=PALETTE[0], linewidth=1.6, alpha=0.5)
                if interval.value is not None:
                    axes.plot(
                        [interval.value],
                        [place],
                        marker="o",
                        markersize=4.5,
                        linestyle="none",
                        color=PALETTE[0],
                        markerfacecolor=face,
                        label=name,
                    )
        axes.set_xlim(-0.02, 1.02)
        _label_rows(axes, [row.label for row in rows])
        axes.set_xlabel("share of the texts, with 95% interval")
        handles, labels = axes.get_legend_handles_labels()
        first = dict(reversed(list(zip(labels, handles, strict=True))))
        if first:
            names = [name for name in ("flagged", "corrected") if name in first]
            figure.legend([first[name] for name in names], names, loc="outside upper right", ncols=2)
    return figure


def auroc_forest(rows: Sequence[IntervalRow], *, blind: IntervalRow | None = None) -> Figure:
    """AUROC with 95% intervals, one line per detector; the blind control is a band that all are read against."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 1.15 + 0.3 * max(1, len(rows))), layout="constrained")
        axes = figure.add_subplot()
        axes.axvline(0.5, color=QUIET, linewidth=0.8, linestyle=DOTTED)
        if blind is not None and blind.value is not None:
            _draw_band(axes, blind, blind.value)
        for position, row in enumerate(rows):
            _draw_whisker(axes, row, position, across=True, color=PALETTE[0], linewidth=2.2, alpha=0.55)
            if row.value is not None:
                axes.plot([row.value], [position], marker="o", markersize=5, color=PALETTE[0])
            axes.annotate(
                "not defined" if row.value is None else f"{row.value:.3f}",
                (1.0, position),
                (8, 0),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
                annotation_clip=False,
            )
        known = [number for row in [*rows, *([blind] if blind else [])] for number in (row.low, row.value, row.high)]
        numbers = [0.4, 0.6, *(number for number in known if number is not None)]
        axes.set_xlim(max(-0.01, min(numbers) - 0.03), min(1.01, max(numbers) + 0.03))
        _label_rows(axes, [row.label for row in rows])
        axes.set_xlabel("AUROC with 95% interval (0.5: no better than chance)")
    return figure


def study_panels(panels: Sequence[StudyPanel]) -> Figure:
    """How AUROC follows each setting that was varied (Shi et al. 2024, figure 5); values stand at equal distances."""
    with matplotlib.rc_context(STYLE):
        columns = min(2, max(1, len(panels)))
        lines = max(1, -(-len(panels) // columns))
        figure = Figure(figsize=(3.5 * columns, 0.6 + 2.2 * lines), layout="constrained")
        for index, panel in enumerate(panels):
            axes = figure.add_subplot(lines, columns, index + 1)
            axes.axhline(0.5, color=QUIET, linewidth=0.8, linestyle=DOTTED)
            _draw_lines(axes, panel.lines, panel.values)
            axes.set_xlim(-0.3, len(panel.values) - 0.7)
            axes.set_ylim(0.4, 1.02)
            axes.set_xlabel(plain(panel.setting.replace("_", " ")))
            if index % columns == 0:
                axes.set_ylabel("AUROC")
        if panels:
            handles, labels = figure.axes[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside upper center", ncols=2 * columns, handlelength=1.8)
    return figure


def reached_curves(lines: Sequence[Line]) -> Figure:
    """The share of texts with a passage of p ≥ 0.001 by every model, with 95% intervals, over how often it read them
    (the label)."""
    with matplotlib.rc_context(STYLE):
        figure, axes = _readings_axes(lines)
        axes.set_ylim(-0.03, 1.03)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_ylabel("texts with a passage of p ≥ 0.001")
    return figure


def probability_curves(lines: Sequence[Line]) -> Figure:
    """The decimal logarithm of the median text's strongest passage; dashed: from where on one counts as reproduced."""
    with matplotlib.rc_context(STYLE):
        figure, axes = _readings_axes(lines)
        axes.axhline(np.log10(REPRODUCED_FROM), color=QUIET, linewidth=0.8, linestyle=DASHED)
        axes.set_ylabel("log₁₀ p of the strongest passage (median)")
    return figure


def _readings_axes(lines: Sequence[Line]) -> tuple[Figure, Axes]:
    """The lines over the numbers of readings, which stand at equal distances: they double."""
    figure = Figure(figsize=(4.6, 3.4), layout="constrained")
    axes = figure.add_subplot()
    _draw_lines(axes, lines, sorted({point.label for _, points in lines for point in points}, key=int))
    axes.set_xlabel("times that the trained model read the text")
    figure.legend(loc="outside upper center", ncols=2, handlelength=1.8)
    return figure, axes


def _draw_lines(axes: Axes, lines: Sequence[Line], values: Sequence[str]) -> None:
    """Every line over ``values``, the labels of its points, at equal distances, with 95% intervals."""
    for number, (name, points) in enumerate(lines):
        colour = PALETTE[number % len(PALETTE)]
        places = [values.index(point.label) for point in points]
        axes.plot(
            places,
            [np.nan if point.value is None else point.value for point in points],
            marker="o",
            markersize=4,
            color=colour,
            linestyle=LINE_STYLES[number % len(LINE_STYLES)],
            label=plain(name),
        )
        for place, point in zip(places, points, strict=True):
            _draw_whisker(axes, point, place, color=colour, linewidth=1.6, alpha=0.45)
    axes.set_xticks(range(len(values)), [plain(value) for value in values])


def _draw_whisker(axes: Axes, row: IntervalRow, place: float, *, across: bool = False, **style: Any) -> None:
    """A 95% interval as a line at ``place``, upright or ``across``; nothing where an end is unknown."""
    if row.low is not None and row.high is not None:
        ends, places = [row.low, row.high], [place, place]
        axes.plot(*((ends, places) if across else (places, ends)), **style)


def _draw_band(axes: Axes, row: IntervalRow, value: float) -> None:
    """A value as a grey line from bottom to top, with its name, and its interval as a band."""
    if row.low is not None and row.high is not None:
        axes.axvspan(row.low, row.high, color=QUIET, alpha=0.18, linewidth=0)
    axes.axvline(value, color=QUIET, linewidth=1.4)
    axes.annotate(
        f"{plain(row.label)} {value:.3f}",
        (value, 1.0),
        (0, 3),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=8,
        color=QUIET,
    )


def _label_rows(axes: Axes, labels: Sequence[str]) -> None:
    """A label for every row, the first on top."""
    axes.set_yticks(range(len(labels)), [plain(label) for label in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
