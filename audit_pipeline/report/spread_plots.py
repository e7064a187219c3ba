"""How the scores of two sides spread.

What belongs here: drawing it. What does not: binning scores (picture_data.py), how pictures look (drawing.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from audit_pipeline.report.drawing import PALETTE, QUIET, STYLE, plain
from audit_pipeline.report.picture_data import SIDES, ScorePanel


def score_histograms(panels: Sequence[ScorePanel], *, sides: tuple[str, str] = SIDES) -> Figure:
    """How the scores of both sides spread, one panel per detector, each side as a share of its own texts."""
    with matplotlib.rc_context(STYLE):
        columns = min(2, max(1, len(panels)))
        lines = max(1, -(-len(panels) // columns))
        figure = Figure(figsize=(3.5 * columns, 0.55 + 2.0 * lines))
        _place(figure, left=0.62, right=0.12, top=0.62, bottom=0.5, between=0.5, below=0.75, grid=(columns, lines))
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
    axes.set_title(plain(panel.label))
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


def _place(
    figure: Figure,
    *,
    left: float,
    right: float,
    top: float,
    bottom: float,
    between: float = 0.0,
    below: float = 0.0,
    grid: tuple[int, int],
) -> None:
    """Where the axes stand, in inches: a quarter of the time that matplotlib takes to find out by drawing twice."""
    width, height = figure.get_size_inches()
    columns, lines = grid
    wide = (width - left - right - (columns - 1) * between) / columns
    high = (height - top - bottom - (lines - 1) * below) / lines
    figure.subplots_adjust(
        left=left / width,
        right=1 - right / width,
        top=1 - top / height,
        bottom=bottom / height,
        wspace=between / wide,
        hspace=below / high,
    )
