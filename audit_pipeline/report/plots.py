"""The pictures of a finding: ROC curves, intervals, spreads of scores, as PNG for Dagster and SVG for the report.

What belongs here: drawing numbers that are already there. What does not: computing a metric (metrics/, evidence/),
thinning and binning (picture_data.py), choosing what to draw (report_pictures.py, pair_plots.py). Figures are made
without pyplot, whose state is global.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import re
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter
from PIL import Image

from audit_pipeline.report.picture_data import Spread, as_fine_as_seen

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
    """A detector's ROC curve: false and true positive rates of equal length, from (0, 0) to (1, 1).

    ``answers``: it is that of the detector that was named beforehand, and its line is the heaviest.
    """

    label: str
    fpr: Floats
    tpr: Floats
    auroc: float | None
    answers: bool = False


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
    spread: Spread


@dataclass(frozen=True)
class RateRow:
    """The flagged and the corrected share of one book, patent or article, each with its interval."""

    label: str
    flagged: Interval
    corrected: Interval


SIDES = ("members", "non-members")


def roc_curves(curves: Sequence[RocCurve], *, sides: tuple[str, str] = SIDES) -> Figure:
    """ROC curves over the diagonal of chance, with a line where 5% of the non-members are taken for members."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(4.6, 4.5 + 0.2 * ((len(curves) + 1) // 2)), layout="constrained")
        axes = figure.add_subplot()
        _draw_roc(axes, curves, sides)
        _with_head_room(figure)
        _roc_legend(figure, axes, curves)
    return figure


def roc_low_corner(
    curves: Sequence[RocCurve], *, smallest_fpr: float | None = None, sides: tuple[str, str] = SIDES
) -> Figure:
    """The same with the FPR on a logarithmic axis; below ``smallest_fpr``, 1/n non-members, nothing can be told."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(4.6, 4.5 + 0.2 * ((len(curves) + 1) // 2)), layout="constrained")
        axes = figure.add_subplot()
        _draw_low_corner(axes, curves, smallest_fpr, sides)
        _with_head_room(figure)
        _roc_legend(figure, axes, curves)
    return figure


def rates_by_group(rows: Sequence[RateRow], *, aimed_at: float | None = None) -> Figure:
    """Flagged share (open) and corrected rate (filled) with 95% intervals, a line a group.

    The dashed line is the false-positive rate that the threshold aims at: so many of a book that was never read are
    flagged all the same.
    """
    with matplotlib.rc_context(_STYLE):
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
    """How AUROC follows each setting that was varied (Shi et al. 2024, figure 5); values stand at equal distances."""
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
            figure.legend(handles, labels, loc="outside upper center", ncols=2 * columns, handlelength=1.8)
    return figure


def score_histograms(panels: Sequence[ScorePanel], *, sides: tuple[str, str] = SIDES) -> Figure:
    """How the scores of both sides spread, one panel a detector, each side as a share of its own texts."""
    with matplotlib.rc_context(_STYLE):
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


def as_png(figure: Figure, *, dpi: int = 110) -> bytes:
    """The figure as a PNG on white, in 64 colours: a third of the size, and nothing to be seen of it."""
    drawn, small = io.BytesIO(), io.BytesIO()
    with _without_glyph_warnings():
        figure.savefig(drawn, format="png", dpi=dpi, facecolor="white")
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(64).save(small, format="png", optimize=True)
    return small.getvalue()


def as_svg(figure: Figure, title: str, description: str = "") -> str:
    """The figure as an ``<svg>`` element to put into a page: scales, takes the page's text colour, loads nothing.

    The page may set ``--series-1`` and so on to other colours than PALETTE's.

    ``title`` is what a screen reader says, ``description`` what it says of the content; both are escaped.
    """
    buffer = io.StringIO()
    with matplotlib.rc_context(_STYLE), _without_glyph_warnings():
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
    svg = _with_own_ids(svg, title)
    svg = svg.replace(INK, "currentColor")
    for position, colour in enumerate(PALETTE, start=1):
        svg = svg.replace(colour.lower(), f"var(--series-{position}, {colour.lower()})")
    said = html.escape(_printable(title))
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{said}"', 1)
    described = f"<desc>{html.escape(_printable(description))}</desc>" if description else ""
    return re.sub(
        r"(<svg[^>]*>)", lambda opening: f"{opening[1]}<title>{said}</title>{described}", svg, count=1
    ).strip()


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


def _draw_roc(axes: matplotlib.axes.Axes, curves: Sequence[RocCurve], sides: tuple[str, str]) -> None:
    axes.plot([0, 1], [0, 1], color=QUIET, linewidth=0.8, linestyle=(0, (1, 2)))
    axes.axvline(0.05, color=QUIET, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.annotate(
        "5% FPR", (0.05, 1.0), (3, 2), textcoords="offset points", color=QUIET, fontsize=7.5, va="bottom", ha="center"
    )
    for index, curve in enumerate(curves):
        axes.plot(*as_fine_as_seen(curve.fpr, curve.tpr), **_line(index, heavy=curve.answers), label=_roc_label(curve))
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
    axes.set_xlabel(f"false positive rate ({sides[1]} taken for {sides[0]})")
    axes.set_ylabel(f"true positive rate ({sides[0]} found)")


def _draw_low_corner(
    axes: matplotlib.axes.Axes, curves: Sequence[RocCurve], smallest_fpr: float | None, sides: tuple[str, str]
) -> None:
    lowest = min(smallest_fpr, 0.02) if smallest_fpr else 0.001
    left = lowest / 2
    chance = np.geomspace(left, 1, 60)
    axes.plot(chance, chance, color=QUIET, linewidth=0.8, linestyle=(0, (1, 2)))
    for rate in (0.001, 0.01, 0.05):
        if rate >= left:
            axes.axvline(rate, color=QUIET, linewidth=0.8, linestyle=(0, (4, 3)))
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
        fpr, tpr = as_fine_as_seen(curve.fpr, curve.tpr)
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


@contextmanager
def _without_glyph_warnings() -> Iterator[None]:
    """Names in any script: a PNG lacks some letters of the font, a page has the reader's fonts."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(Glyph|Matplotlib currently does not support)")
        yield


def _with_own_ids(svg: str, description: str) -> str:
    """Without the ids that nothing refers to, and the others unlike those of the other pictures on the page."""
    prefix = hashlib.sha256(f"{description}\n{svg}".encode(errors="replace")).hexdigest()[:8]
    referred = set(re.findall(r'(?:href="|url\()#([\w-]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda found: f' id="p{prefix}-{found[1]}"' if found[1] in referred else "", svg)
    return re.sub(r'(href="|url\()#([\w-]+)', rf"\1#p{prefix}-\2", svg)


def _printable(text: str) -> str:
    """``text`` on one line, without control characters, lone surrogates and the like, which XML cannot hold."""
    return " ".join("".join(" " if unicodedata.category(letter)[0] == "C" else letter for letter in text).split())


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
