"""Every plot that matplotlib draws: ROC curves, how scores of two sides spread, values with their intervals.

What belongs here: drawing ROC curves, whole and their corner of few false positives; histograms; AUROC of studies, what
a control gives word for word. What does not: computing any of it (metrics/, evidence/, extraction/), thinning and
binning (picture_data.py), how pictures look (drawing.py), choosing what to draw (pictures.py, pair_plots.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, PercentFormatter

from audit_pipeline.metrics.claims import REPRODUCED_FROM
from audit_pipeline.report.drawing import DASHED, DOTTED, LINE_STYLES, PALETTE, QUIET, STYLE, clean_label
from audit_pipeline.report.picture_data import (
    SIDES,
    IntervalRow,
    RocCurve,
    ScorePanel,
    StudyPanel,
    thin_roc_curve,
)


def draw_roc_curves(curves: Sequence[RocCurve], *, sides: tuple[str, str] = SIDES) -> Figure:
    """ROC curves over the diagonal of chance, with a line where 5% of the non-members are taken for members."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.6, 4.5 + 0.2 * ((len(curves) + 1) // 2)), layout="constrained")
        axes = figure.add_subplot()
        _draw_roc(axes, curves, sides)
        _add_head_room(figure)
        _draw_roc_legend(figure, axes, curves)
    return figure


def draw_low_fpr_roc(
    curves: Sequence[RocCurve], *, smallest_fpr: float | None = None, sides: tuple[str, str] = SIDES
) -> Figure:
    """The same with the FPR on a logarithmic axis; below ``smallest_fpr``, 1/n non-members, nothing can be measured."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.6, 4.5 + 0.2 * ((len(curves) + 1) // 2)), layout="constrained")
        axes = figure.add_subplot()
        _draw_low_corner(axes, curves, smallest_fpr, sides)
        _add_head_room(figure)
        _draw_roc_legend(figure, axes, curves)
    return figure


def _draw_roc(axes: matplotlib.axes.Axes, curves: Sequence[RocCurve], sides: tuple[str, str]) -> None:
    axes.plot([0, 1], [0, 1], color=QUIET, linewidth=0.8, linestyle=DOTTED)
    axes.axvline(0.05, color=QUIET, linewidth=0.8, linestyle=DASHED)
    axes.annotate(
        "5% FPR", (0.05, 1.0), (3, 2), textcoords="offset points", color=QUIET, fontsize=7.5, va="bottom", ha="center"
    )
    for index, curve in enumerate(curves):
        axes.plot(
            *thin_roc_curve(curve.fpr, curve.tpr),
            **_choose_line_style(index, heavy=curve.answers),
            label=_format_roc_label(curve),
        )
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
    axes.set_xlabel(f"false positive rate ({sides[1]} taken for {sides[0]})")
    axes.set_ylabel(f"true positive rate ({sides[0]} found)")


def _draw_low_corner(
    axes: matplotlib.axes.Axes, curves: Sequence[RocCurve], smallest_fpr: float | None, sides: tuple[str, str]
) -> None:
    lowest = min(smallest_fpr, 0.02) if smallest_fpr else 0.001
    left = lowest / 2
    chance = np.geomspace(left, 1, 60)
    axes.plot(chance, chance, color=QUIET, linewidth=0.8, linestyle=DOTTED)
    for rate in (0.001, 0.01, 0.05):
        if rate >= left:
            axes.axvline(rate, color=QUIET, linewidth=0.8, linestyle=DASHED)
    if smallest_fpr:
        axes.axvspan(left, min(smallest_fpr, 1.0), color=QUIET, alpha=0.18, linewidth=0)
        axes.annotate(
            "not resolvable",
            (left, 1.0),
            (0, 2),
            textcoords="offset points",
            color=QUIET,
            fontsize=7.5,
            va="bottom",
            ha="left",
        )
    for index, curve in enumerate(curves):
        fpr, tpr = thin_roc_curve(curve.fpr, curve.tpr)
        axes.step(
            np.maximum(fpr, left),
            tpr,
            where="post",
            **_choose_line_style(index, heavy=curve.answers),
            label=_format_roc_label(curve),
        )
    axes.set_xscale("log")
    axes.set(xlim=(left, 1.0), ylim=(-0.01, 1.01))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{100 * rate:g}%"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_box_aspect(1)
    axes.set_xlabel("false positive rate, on a logarithmic scale")
    axes.set_ylabel(f"true positive rate ({sides[0]} found)")


def _add_head_room(figure: Figure) -> None:
    """For the words above the axes, which the layout does not count."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.set(h_pad=0.2)  # type: ignore[call-arg]


def _choose_line_style(index: int, *, heavy: bool) -> dict[str, Any]:
    return {
        "color": PALETTE[index % len(PALETTE)],
        "linestyle": LINE_STYLES[index // len(PALETTE) % len(LINE_STYLES)],
        "linewidth": 2.2 if heavy else 1.3,
        "zorder": 3 if heavy else 2,
    }


def _format_roc_label(curve: RocCurve) -> str:
    return f"{clean_label(curve.label)}  {'not defined' if curve.auroc is None else f'{curve.auroc:.3f}'}"


def _draw_roc_legend(figure: Figure, axes: matplotlib.axes.Axes, curves: Sequence[RocCurve]) -> None:
    if curves:
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, title="AUROC", handlelength=1.8)


def draw_score_histograms(panels: Sequence[ScorePanel], *, sides: tuple[str, str] = SIDES) -> Figure:
    """How the scores of both sides spread, one panel per detector, each side as a share of its own texts."""
    with matplotlib.rc_context(STYLE):
        columns = min(2, max(1, len(panels)))
        lines = max(1, -(-len(panels) // columns))
        figure = Figure(figsize=(3.5 * columns, 0.55 + 2.0 * lines))
        _set_axes_margins(
            figure, left=0.62, right=0.12, top=0.62, bottom=0.5, column_gap=0.5, row_gap=0.75, grid=(columns, lines)
        )
        for index, panel in enumerate(panels):
            axes = figure.add_subplot(lines, columns, index + 1)
            _draw_histogram(axes, panel, sides)
            if index % columns == 0:
                axes.set_ylabel("share of texts")
        if panels:
            handles, labels = figure.axes[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="upper center", ncols=2, handlelength=1.2)
    return figure


def _draw_histogram(axes: matplotlib.axes.Axes, panel: ScorePanel, sides: tuple[str, str]) -> None:
    axes.set_title(clean_label(panel.label))
    axes.set_xlabel("score (higher: more likely a member)", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    spread = panel.spread
    if not spread.members.any() and not spread.nonmembers.any():
        axes.annotate("no scores", (0.5, 0.5), xycoords="axes fraction", ha="center", color=QUIET)
    for name, heights, colour, line in (
        (sides[0], spread.members, PALETTE[0], "-"),
        (sides[1], spread.nonmembers, PALETTE[1], (0, (3, 1.5))),
    ):
        axes.stairs(heights, spread.edges, fill=True, color=colour, alpha=0.25, label=name)
        axes.stairs(heights, spread.edges, color=colour, linewidth=1.3, linestyle=line)


def _set_axes_margins(
    figure: Figure,
    *,
    left: float,
    right: float,
    top: float,
    bottom: float,
    column_gap: float = 0.0,
    row_gap: float = 0.0,
    grid: tuple[int, int],
) -> None:
    """Where the axes stand, in inches: a quarter of the time that matplotlib takes to find out by drawing twice."""
    width, height = figure.get_size_inches()
    columns, lines = grid
    wide = (width - left - right - (columns - 1) * column_gap) / columns
    high = (height - top - bottom - (lines - 1) * row_gap) / lines
    figure.subplots_adjust(
        left=left / width,
        right=1 - right / width,
        top=1 - top / height,
        bottom=bottom / height,
        wspace=column_gap / wide,
        hspace=row_gap / high,
    )


Line = tuple[str, Sequence[IntervalRow]]
"""What a line is of, and its points by their labels."""


def draw_study_panels(panels: Sequence[StudyPanel]) -> Figure:
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
            axes.set_xlabel(clean_label(panel.setting.replace("_", " ")))
            if index % columns == 0:
                axes.set_ylabel("AUROC")
        if panels:
            handles, labels = figure.axes[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside upper center", ncols=2 * columns, handlelength=1.8)
    return figure


def draw_reached_shares(lines: Sequence[Line]) -> Figure:
    """The share of texts with a passage of p ≥ 0.001 by every model, with 95% intervals, over how often it read them
    (the label)."""
    with matplotlib.rc_context(STYLE):
        figure, axes = _draw_over_readings(lines)
        axes.set_ylim(-0.03, 1.03)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_ylabel("texts with a passage of p ≥ 0.001")
    return figure


def draw_probability_curves(lines: Sequence[Line]) -> Figure:
    """The decimal logarithm of the median text's strongest passage; dashed: from where on one counts as reproduced."""
    with matplotlib.rc_context(STYLE):
        figure, axes = _draw_over_readings(lines)
        axes.axhline(np.log10(REPRODUCED_FROM), color=QUIET, linewidth=0.8, linestyle=DASHED)
        axes.set_ylabel("log₁₀ p of the strongest passage (median)")
    return figure


def draw_rung_curves(lines: Sequence[Line]) -> Figure:
    """The mean longest run of words over the rungs (the label), at equal distances."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.6, 3.4), layout="constrained")
        axes = figure.add_subplot()
        rungs = list(dict.fromkeys(point.label for _, points in lines for point in points))
        _draw_lines(axes, lines, rungs)
        axes.set_xticks(range(len(rungs)), [clean_label(rung) for rung in rungs])
        axes.set_xlim(-0.4, len(rungs) - 0.6)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("longest run in words, mean of documents")
        figure.legend(loc="outside upper center", ncols=2, handlelength=1.8)
    return figure


def _draw_over_readings(lines: Sequence[Line]) -> tuple[Figure, Axes]:
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
            label=clean_label(name),
        )
        for place, point in zip(places, points, strict=True):
            _draw_whisker(axes, point, place, color=colour, linewidth=1.6, alpha=0.45)
    axes.set_xticks(range(len(values)), [clean_label(value) for value in values])


def _draw_whisker(axes: Axes, row: IntervalRow, place: float, **style: Any) -> None:
    """A 95% interval as an upright line at ``place``; nothing where an end is unknown."""
    if row.low is not None and row.high is not None:
        axes.plot([place, place], [row.low, row.high], **style)
