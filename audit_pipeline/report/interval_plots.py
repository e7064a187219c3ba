"""Values with their intervals: AUROC of detectors and of studies, rates of groups.

What belongs here: drawing them. What does not: computing them (metrics/, evidence/), how pictures look (drawing.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from audit_pipeline.report.drawing import LINE_STYLES, PALETTE, QUIET, STYLE, plain
from audit_pipeline.report.picture_data import IntervalRow, RateRow, StudyPanel


def rates_by_group(rows: Sequence[RateRow], *, aimed_at: float | None = None) -> Figure:
    """Flagged share (open) and corrected rate (filled) with 95% intervals, a line per group.

    The dashed line is the false-positive rate that the threshold aims at: so many of a book that was never read are
    flagged all the same.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 1.35 + 0.34 * max(1, len(rows))), layout="constrained")
        axes = figure.add_subplot()
        if aimed_at is not None:
            axes.axvline(aimed_at, color=QUIET, linewidth=0.9, linestyle=(0, (4, 3)))
        for position, row in enumerate(rows):
            for shift, one, face, name in (
                (-0.13, row.flagged, "none", "flagged"),
                (0.13, row.corrected, PALETTE[0], "corrected"),
            ):
                place = position + shift
                if one.low is not None and one.high is not None:
                    axes.plot([one.low, one.high], [place, place], color=PALETTE[0], linewidth=1.6, alpha=0.5)
                if one.value is not None:
                    axes.plot(
                        [one.value],
                        [place],
                        marker="o",
                        markersize=4.5,
                        linestyle="none",
                        color=PALETTE[0],
                        markerfacecolor=face,
                        label=name,
                    )
        axes.set_xlim(-0.02, 1.02)
        axes.set_yticks(range(len(rows)), [plain(row.label) for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
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
        positions = range(len(rows))
        axes.axvline(0.5, color=QUIET, linewidth=0.8, linestyle=(0, (1, 2)))
        if blind is not None and blind.value is not None:
            if blind.low is not None and blind.high is not None:
                axes.axvspan(blind.low, blind.high, color=QUIET, alpha=0.18, linewidth=0)
            axes.axvline(blind.value, color=QUIET, linewidth=1.4)
            axes.annotate(
                f"{plain(blind.label)} {blind.value:.3f}",
                (blind.value, 1.0),
                (0, 3),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=8,
                color=QUIET,
            )
        for position, row in zip(positions, rows, strict=True):
            if row.low is not None and row.high is not None:
                axes.plot([row.low, row.high], [position, position], color=PALETTE[0], linewidth=2.2, alpha=0.55)
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
        axes.set_yticks(list(positions), [plain(row.label) for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
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
            places = range(len(panel.values))
            axes.axhline(0.5, color=QUIET, linewidth=0.8, linestyle=(0, (1, 2)))
            for number, (label, intervals) in enumerate(panel.lines):
                colour = PALETTE[number % len(PALETTE)]
                axes.plot(
                    places,
                    [np.nan if one.value is None else one.value for one in intervals],
                    marker="o",
                    markersize=4,
                    color=colour,
                    linestyle=LINE_STYLES[number % len(LINE_STYLES)],
                    label=plain(label),
                )
                for place, one in zip(places, intervals, strict=True):
                    if one.low is not None and one.high is not None:
                        axes.plot([place, place], [one.low, one.high], color=colour, linewidth=1.6, alpha=0.45)
            axes.set_xticks(list(places), [plain(value) for value in panel.values])
            axes.set_xlim(-0.3, len(panel.values) - 0.7)
            axes.set_ylim(0.4, 1.02)
            axes.set_xlabel(plain(panel.setting.replace("_", " ")))
            if index % columns == 0:
                axes.set_ylabel("AUROC")
        if panels:
            handles, labels = figure.axes[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside upper center", ncols=2 * columns, handlelength=1.8)
    return figure
