"""ROC curves, whole and their corner of few false positives.

What belongs here: drawing them. What does not: computing them (metrics/), thinning them (picture_data.py), how pictures
look (drawing.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from audit_pipeline.report.drawing import DASHED, DOTTED, LINE_STYLES, PALETTE, QUIET, STYLE, plain
from audit_pipeline.report.picture_data import SIDES, RocCurve, thin_roc_curve


def roc_curves(curves: Sequence[RocCurve], *, sides: tuple[str, str] = SIDES) -> Figure:
    """ROC curves over the diagonal of chance, with a line where 5% of the non-members are taken for members."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.6, 4.5 + 0.2 * ((len(curves) + 1) // 2)), layout="constrained")
        axes = figure.add_subplot()
        _draw_roc(axes, curves, sides)
        _with_head_room(figure)
        _roc_legend(figure, axes, curves)
    return figure


def roc_low_corner(
    curves: Sequence[RocCurve], *, smallest_fpr: float | None = None, sides: tuple[str, str] = SIDES
) -> Figure:
    """The same with the FPR on a logarithmic axis; below ``smallest_fpr``, 1/n non-members, nothing can be measured."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.6, 4.5 + 0.2 * ((len(curves) + 1) // 2)), layout="constrained")
        axes = figure.add_subplot()
        _draw_low_corner(axes, curves, smallest_fpr, sides)
        _with_head_room(figure)
        _roc_legend(figure, axes, curves)
    return figure


def _draw_roc(axes: matplotlib.axes.Axes, curves: Sequence[RocCurve], sides: tuple[str, str]) -> None:
    axes.plot([0, 1], [0, 1], color=QUIET, linewidth=0.8, linestyle=DOTTED)
    axes.axvline(0.05, color=QUIET, linewidth=0.8, linestyle=DASHED)
    axes.annotate(
        "5% FPR", (0.05, 1.0), (3, 2), textcoords="offset points", color=QUIET, fontsize=7.5, va="bottom", ha="center"
    )
    for index, curve in enumerate(curves):
        axes.plot(*thin_roc_curve(curve.fpr, curve.tpr), **_line(index, heavy=curve.answers), label=_roc_label(curve))
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
            np.maximum(fpr, left), tpr, where="post", **_line(index, heavy=curve.answers), label=_roc_label(curve)
        )
    axes.set_xscale("log")
    axes.set(xlim=(left, 1.0), ylim=(-0.01, 1.01))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{100 * rate:g}%"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_box_aspect(1)
    axes.set_xlabel("false positive rate, on a logarithmic scale")
    axes.set_ylabel(f"true positive rate ({sides[0]} found)")


def _with_head_room(figure: Figure) -> None:
    """For the words above the axes, which the layout does not count."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.set(h_pad=0.2)  # type: ignore[call-arg]


def _line(index: int, *, heavy: bool) -> dict[str, Any]:
    return {
        "color": PALETTE[index % len(PALETTE)],
        "linestyle": LINE_STYLES[index // len(PALETTE) % len(LINE_STYLES)],
        "linewidth": 2.2 if heavy else 1.3,
        "zorder": 3 if heavy else 2,
    }


def _roc_label(curve: RocCurve) -> str:
    return f"{plain(curve.label)}  {'not defined' if curve.auroc is None else f'{curve.auroc:.3f}'}"


def _roc_legend(figure: Figure, axes: matplotlib.axes.Axes, curves: Sequence[RocCurve]) -> None:
    if curves:
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, title="AUROC", handlelength=1.8)
