"""The pictures of a finding: ROC curves, AUROC intervals, score histograms, as PNG for Dagster and SVG for the report.

What belongs here: drawing numbers that are already there. What does not: computing a metric (evaluation/), choosing
what to draw (report.py, assets/reports.py). Figures are made without pyplot, whose state is global.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

Floats = npt.NDArray[np.float64]

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's colours that are told apart with every kind of colour blindness, and on white and on black."""

LINE_STYLES = ("-", "--", "-.", ":")
INK = "#20242b"
QUIET = "#868b94"
LABEL_CHARACTERS = 48
MARKDOWN_LIMIT = 100_000
"""Bytes of base64 that an image in Dagster's metadata may have: it is stored with every materialisation."""

_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "corpus-audit",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": QUIET,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.unicode_minus": True,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}


@dataclass(frozen=True)
class RocCurve:
    """A detector's ROC curve: false and true positive rates of equal length, from (0, 0) to (1, 1)."""

    label: str
    fpr: Floats
    tpr: Floats
    auroc: float | None


@dataclass(frozen=True)
class Interval:
    """A value with its 95% interval; any of the three may be unknown."""

    label: str
    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class ScorePanel:
    """One detector's scores of both sides."""

    label: str
    members: Floats
    nonmembers: Floats


def roc_curves(curves: Sequence[RocCurve]) -> Figure:
    """ROC curves over the diagonal of chance, with a line where 5% of the non-members are taken for members."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(4.6, 4.5 + 0.2 * ((len(curves) + 1) // 2)), layout="constrained")
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], color=QUIET, linewidth=0.8, linestyle=(0, (1, 2)))
        axes.axvline(0.05, color=QUIET, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.annotate(
            "5% FPR",
            (0.05, 1.0),
            (3, 2),
            textcoords="offset points",
            color=QUIET,
            fontsize=7.5,
            va="bottom",
            ha="center",
        )
        for index, curve in enumerate(curves):
            value = "not defined" if curve.auroc is None else f"{curve.auroc:.3f}"
            axes.plot(
                *_as_fine_as_seen(curve),
                color=PALETTE[index % len(PALETTE)],
                linestyle=LINE_STYLES[index // len(PALETTE) % len(LINE_STYLES)],
                linewidth=1.7,
                label=f"{plain(curve.label)}  {value}",
            )
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
        axes.set_xlabel("false positive rate (non-members taken for members)")
        axes.set_ylabel("true positive rate (members found)")
        if curves:
            handles, labels = axes.get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=2, title="AUROC", handlelength=1.8)
    return figure


def auroc_forest(rows: Sequence[Interval], *, blind: Interval | None = None) -> Figure:
    """AUROC with 95% intervals, one line a detector; the blind control is a band that all are read against."""
    with matplotlib.rc_context(_STYLE):
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


@dataclass(frozen=True)
class StudyPanel:
    """AUROC over the values of one setting, a line a detector; ``lines`` has one interval a value for each."""

    setting: str
    values: Sequence[str]
    lines: Sequence[tuple[str, Sequence[Interval]]]


def study_panels(panels: Sequence[StudyPanel]) -> Figure:
    """How AUROC follows each setting that was varied (paper 003, Figure 5); values stand at equal distances."""
    with matplotlib.rc_context(_STYLE):
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
            figure.legend(handles, labels, loc="outside upper center", ncols=4, handlelength=1.8)
    return figure


def score_histograms(panels: Sequence[ScorePanel]) -> Figure:
    """How the scores of members and non-members spread, one panel a detector, each side as a share of its own texts."""
    with matplotlib.rc_context(_STYLE):
        columns = min(2, max(1, len(panels)))
        lines = max(1, -(-len(panels) // columns))
        figure = Figure(figsize=(3.5 * columns, 0.55 + 2.0 * lines), layout="constrained")
        for index, panel in enumerate(panels):
            axes = figure.add_subplot(lines, columns, index + 1)
            _draw_histogram(axes, panel)
            if index % columns == 0:
                axes.set_ylabel("share of texts")
        if panels:
            handles, labels = figure.axes[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside upper center", ncols=2, handlelength=1.2)
    return figure


def as_png(figure: Figure, *, dpi: int = 110) -> bytes:
    """The figure as a PNG on white, in 64 colours: a third of the size, and nothing to be seen of it."""
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi, facecolor="white")
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(64).save(small, format="png", optimize=True)
    return small.getvalue()


def as_svg(figure: Figure, description: str) -> str:
    """The figure as an ``<svg>`` element to put into a page: scales, takes the page's text colour, loads nothing.

    The page may set ``--series-1`` and so on to other colours than PALETTE's.

    ``description`` is what a screen reader says; it may hold anything, it is escaped.
    """
    buffer = io.StringIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(
            buffer,
            format="svg",
            transparent=True,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*pt"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*pt"', r"\1", svg, count=1)
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), svg)
    svg = _with_own_ids(svg, description)
    svg = svg.replace(INK, "currentColor")
    for position, colour in enumerate(PALETTE, start=1):
        svg = svg.replace(colour.lower(), f"var(--series-{position}, {colour.lower()})")
    return svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(_printable(description))}"', 1).strip()


def markdown_image(png: bytes, alt: str) -> str:
    """The PNG inside Markdown, for Dagster's metadata; ValueError where it is too large to be stored there."""
    encoded = base64.b64encode(png).decode()
    if len(encoded) > MARKDOWN_LIMIT:
        raise ValueError(f"the image has {len(encoded)} bytes in base64, {MARKDOWN_LIMIT} are allowed: lower its dpi")
    escaped = re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(alt.split()))
    return f"![{escaped}](data:image/png;base64,{encoded})"


def plain(label: str) -> str:
    """``label`` on one line of bounded length, no control characters, and no ``$`` that starts a formula."""
    shown = _printable(label)
    if len(shown) > LABEL_CHARACTERS:
        shown = shown[: LABEL_CHARACTERS - 1] + "…"
    return shown.replace("$", r"\$")


def _as_fine_as_seen(curve: RocCurve) -> tuple[Floats, Floats]:
    """The curve's points a 500th apart at least: a picture shows no more, and thousands make it slow to open."""
    grid = np.round(np.stack([curve.fpr, curve.tpr]) * 500)
    moved = np.any(np.diff(grid, axis=1, prepend=-1.0) != 0, axis=0)
    moved[-1:] = True
    return np.asarray(curve.fpr[moved]), np.asarray(curve.tpr[moved])


def _bin_edges(scores: Floats) -> Floats:
    """Equal bins over all scores, more for more scores; around the one value where all are the same."""
    low, high = (float(scores.min()), float(scores.max())) if scores.size else (0.0, 1.0)
    least = 1e-6 * max(1.0, abs(low), abs(high))
    if high - low < least:
        low, high = low - least, high + least
    return np.linspace(low, high, min(30, max(8, int(np.sqrt(scores.size)))) + 1)


def _with_own_ids(svg: str, description: str) -> str:
    """Without the ids that nothing refers to, and the others unlike those of the other pictures on the page."""
    prefix = hashlib.sha256(f"{description}\n{svg}".encode(errors="replace")).hexdigest()[:8]
    referred = set(re.findall(r'(?:href="|url\()#([\w-]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda found: f' id="p{prefix}-{found[1]}"' if found[1] in referred else "", svg)
    return re.sub(r'(href="|url\()#([\w-]+)', rf"\1#p{prefix}-\2", svg)


def _printable(text: str) -> str:
    """``text`` on one line, without control characters, lone surrogates and the like, which XML cannot hold."""
    return " ".join("".join(" " if unicodedata.category(letter)[0] == "C" else letter for letter in text).split())


def _draw_histogram(axes: matplotlib.axes.Axes, panel: ScorePanel) -> None:
    axes.set_title(plain(panel.label))
    axes.set_xlabel("score (higher: more likely a member)", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    sides = [
        (name, scores[np.isfinite(scores)], colour)
        for name, scores, colour in (
            ("members", panel.members, PALETTE[0]),
            ("non-members", panel.nonmembers, PALETTE[1]),
        )
    ]
    together = np.concatenate([scores for _, scores, _ in sides])
    if not together.size:
        axes.annotate("no scores", (0.5, 0.5), xycoords="axes fraction", ha="center", color=QUIET)
    edges = _bin_edges(together)
    for name, scores, colour in sides:
        heights = np.histogram(scores, edges)[0] / max(1, scores.size)
        axes.stairs(heights, edges, fill=True, color=colour, alpha=0.28, label=name)
        axes.stairs(heights, edges, color=colour, linewidth=1.2)
