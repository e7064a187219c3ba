"""Every plot that matplotlib draws, each one panel, and how all look: ROC curves, spreads of scores, intervals.

What belongs here: colours, fonts and labels; ROC curves, whole and their corner of few false positives; histograms;
lines over settings, readings and rungs; the picture of a pair for Dagster; a figure as PNG or SVG. What does not:
computing any of it (statistics/, extraction/), thinning and binning (picture_data.py), the pictures of a page
(pictures.py). Figures are made without pyplot, whose state is global.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import re
import unicodedata
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib
import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter
from PIL import Image

from audit_pipeline.report.picture_data import SIDES, thin_roc_curve
from audit_pipeline.splits.blind_controls import NAME as BLIND_CONTROL
from audit_pipeline.statistics.evaluate_options import choose_headline_detector
from audit_pipeline.statistics.score_columns import ScoreColumn

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's colours, which differ with every kind of colour blindness, and on white and on black."""

LINE_STYLES = ("-", "--", "-.", ":")
DASHED, DOTTED = (0, (4, 3)), (0, (1, 2))
"""Lines that others are read against: what is aimed at or counts, and chance."""
INK = "#20242b"
QUIET = "#868b94"
LABEL_CHARACTERS = 48
MARKDOWN_LIMIT = 100_000
"""Bytes of base64 that an image in Dagster's metadata may have: it is stored with every materialisation."""

STYLE = {
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


def to_png(figure: Figure, *, dpi: int = 110) -> bytes:
    """The figure as a PNG on white, in 64 colours: a third of the size, and nothing to be seen of it."""
    drawn, small = io.BytesIO(), io.BytesIO()
    with _without_glyph_warnings():
        figure.savefig(drawn, format="png", dpi=dpi, facecolor="white")
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(64).save(small, format="png", optimize=True)
    return small.getvalue()


def to_svg(figure: Figure, title: str, description: str = "") -> str:
    """The figure as an ``<svg>`` element to put into a page: scales, takes the page's text colour, loads nothing.

    The page may set ``--series-1`` and so on to other colours than PALETTE's.

    ``title`` is what a screen reader says, ``description`` what it says of the content; both are escaped.
    """
    import matplotlib  # noqa: PLC0415 - it is heavy

    buffer = io.StringIO()
    with matplotlib.rc_context(STYLE), _without_glyph_warnings():
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
    svg = _make_ids_unique(svg, title)
    svg = svg.replace(INK, "currentColor")
    for position, colour in enumerate(PALETTE, start=1):
        svg = svg.replace(colour.lower(), f"var(--series-{position}, {colour.lower()})")
    label = html.escape(_remove_control_characters(title))
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    described = f"<desc>{html.escape(_remove_control_characters(description))}</desc>" if description else ""
    return re.sub(
        r"(<svg[^>]*>)", lambda opening: f"{opening[1]}<title>{label}</title>{described}", svg, count=1
    ).strip()


def to_markdown_image(png: bytes, alt: str) -> str:
    """The PNG inside Markdown, for Dagster's metadata; ValueError where it is too large to be stored there."""
    encoded = base64.b64encode(png).decode()
    if len(encoded) > MARKDOWN_LIMIT:
        raise ValueError(f"the image has {len(encoded)} bytes in base64, {MARKDOWN_LIMIT} are allowed: lower its dpi")
    escaped = re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(alt.split()))
    return f"![{escaped}](data:image/png;base64,{encoded})"


def clean_label(label: str) -> str:
    """``label`` on one line of bounded length, no control characters, and no ``$`` that starts a formula."""
    shown = _remove_control_characters(label)
    if len(shown) > LABEL_CHARACTERS:
        shown = shown[: LABEL_CHARACTERS - 1] + "…"
    return shown.replace("$", r"\$")


@contextmanager
def _without_glyph_warnings() -> Iterator[None]:
    """Names in any script: a PNG lacks some letters of the font, a page has the reader's fonts."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(Glyph|Matplotlib currently does not support)")
        yield


def _make_ids_unique(svg: str, description: str) -> str:
    """Without the ids that nothing refers to, and the others unlike those of the other pictures on the page."""
    prefix = hashlib.sha256(f"{description}\n{svg}".encode(errors="replace")).hexdigest()[:8]
    referred = set(re.findall(r'(?:href="|url\()#([\w-]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda found: f' id="p{prefix}-{found[1]}"' if found[1] in referred else "", svg)
    return re.sub(r'(href="|url\()#([\w-]+)', rf"\1#p{prefix}-\2", svg)


def _remove_control_characters(text: str) -> str:
    """``text`` on one line, without control characters, lone surrogates and the like, which XML cannot hold."""
    return " ".join("".join(" " if unicodedata.category(letter)[0] == "C" else letter for letter in text).split())


Row = Mapping[str, Any]
Line = tuple[str, Sequence[tuple[str, Row]]]
"""What a line is of, and by the label of their place its points, estimates with value, low and high."""


@contextmanager
def _build_panel(
    width: float, height: float, layout: Literal["constrained"] | None = "constrained", **legend: Any
) -> Iterator[tuple[Figure, Axes]]:
    """A figure of so many inches with one panel; what is labelled in it is in its ``legend``."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout=layout)
        axes = figure.add_subplot()
        yield figure, axes
        if axes.get_legend_handles_labels()[0]:
            figure.legend(**{"ncols": 2, "handlelength": 1.8, "loc": "outside upper center", **legend})


def draw_roc_curves(curves: Sequence[Row], *, sides: tuple[str, str] = SIDES) -> Figure:
    """ROC curves over the diagonal of chance, with a line where 5% of the non-members are taken for members.

    ``curves``: ``fpr`` and ``tpr`` from (0, 0) to (1, 1) by ``detector``, its ``auroc`` (None: not defined), and
    whether it ``answers``: then its line is the heaviest.
    """
    with _roc_panel(curves, sides) as axes:
        axes.plot([0, 1], [0, 1], color=QUIET, linewidth=0.8, linestyle=DOTTED)
        axes.axvline(0.05, color=QUIET, linewidth=0.8, linestyle=DASHED)
        _annotate_top(axes, "5% FPR", 0.05, ha="center", offset=(3, 2))
        for number, curve in enumerate(curves):
            axes.plot(curve["fpr"], curve["tpr"], **_style_roc_line(number, curve))
        axes.set(xlim=(-0.01, 1.01), aspect="equal")
        axes.set_xlabel(f"false positive rate ({sides[1]} taken for {sides[0]})")
    return axes.figure  # type: ignore[return-value]


def draw_low_fpr_roc(
    curves: Sequence[Row], *, smallest_fpr: float | None = None, sides: tuple[str, str] = SIDES
) -> Figure:
    """The same with the FPR on a logarithmic axis; below ``smallest_fpr``, 1/n non-members, nothing can be measured."""
    left = (min(smallest_fpr, 0.02) if smallest_fpr else 0.001) / 2
    with _roc_panel(curves, sides) as axes:
        chance = np.geomspace(left, 1, 60)
        axes.plot(chance, chance, color=QUIET, linewidth=0.8, linestyle=DOTTED)
        for rate in (0.001, 0.01, 0.05):
            if rate >= left:
                axes.axvline(rate, color=QUIET, linewidth=0.8, linestyle=DASHED)
        if smallest_fpr:
            axes.axvspan(left, min(smallest_fpr, 1.0), color=QUIET, alpha=0.18, linewidth=0)
            _annotate_top(axes, "not resolvable", left, ha="left", offset=(0, 2))
        for number, curve in enumerate(curves):
            axes.step(np.maximum(curve["fpr"], left), curve["tpr"], where="post", **_style_roc_line(number, curve))
        axes.set_xscale("log")
        axes.set_xlim(left, 1.0)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{100 * rate:g}%"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_box_aspect(1)
        axes.set_xlabel("false positive rate, on a logarithmic scale")
    return axes.figure  # type: ignore[return-value]


@contextmanager
def _roc_panel(curves: Sequence[Row], sides: tuple[str, str]) -> Iterator[Axes]:
    height = 4.5 + 0.2 * ((len(curves) + 1) // 2)
    with _build_panel(4.6, height, loc="outside lower center", title="AUROC") as (figure, axes):
        # For the words above the axes, which the layout does not count.
        figure.get_layout_engine().set(h_pad=0.2)  # type: ignore[union-attr,call-arg]
        axes.set_ylim(-0.01, 1.01)
        axes.set_ylabel(f"true positive rate ({sides[0]} found)")
        yield axes


def _annotate_top(axes: Axes, words: str, place: float, *, ha: str, offset: tuple[int, int]) -> None:
    style = {"textcoords": "offset points", "color": QUIET, "fontsize": 7.5, "va": "bottom", "ha": ha}
    axes.annotate(words, (place, 1.0), offset, **style)  # type: ignore[arg-type]


def _style_roc_line(number: int, curve: Row) -> dict[str, Any]:
    auroc = "not defined" if curve["auroc"] is None else f"{curve['auroc']:.3f}"
    return {
        "color": PALETTE[number % len(PALETTE)],
        "linestyle": LINE_STYLES[number // len(PALETTE) % len(LINE_STYLES)],
        "linewidth": 2.2 if curve["answers"] else 1.3,
        "zorder": 3 if curve["answers"] else 2,
        "label": f"{clean_label(curve['detector'])}  {auroc}",
    }


def draw_score_histogram(spread: Row, *, sides: tuple[str, str] = SIDES) -> Figure:
    """How the scores of both sides spread by a ``detector``: of ``members`` and ``nonmembers`` the share of the side's
    own texts between neighbouring ``edges``."""
    with _build_panel(3.5, 2.55, None, loc="upper center", handlelength=1.2) as (figure, axes):
        # Places in inches: a quarter of the time that matplotlib takes to find out by drawing twice.
        figure.subplots_adjust(left=0.62 / 3.5, right=1 - 0.12 / 3.5, top=1 - 0.62 / 2.55, bottom=0.5 / 2.55)
        axes.set_title(clean_label(spread["detector"]))
        axes.set_xlabel("score (higher: more likely a member)", fontsize=8)
        axes.set_ylabel("share of texts")
        axes.tick_params(labelsize=8)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        if not np.any(spread["members"]) and not np.any(spread["nonmembers"]):
            axes.annotate("no scores", (0.5, 0.5), xycoords="axes fraction", ha="center", color=QUIET)
        for name, heights, colour, line in (
            (sides[0], spread["members"], PALETTE[0], "-"),
            (sides[1], spread["nonmembers"], PALETTE[1], (0, (3, 1.5))),
        ):
            axes.stairs(heights, spread["edges"], fill=True, color=colour, alpha=0.25, label=name)
            axes.stairs(heights, spread["edges"], color=colour, linewidth=1.3, linestyle=line)
    return figure


def draw_lines(
    lines: Sequence[Line],
    places: Sequence[str],
    *,
    y_label: str,
    x_label: str = "",
    y_limits: tuple[float, float | None] | None = None,
    mark: float | None = None,
    is_rate: bool = False,
    size: tuple[float, float] = (4.6, 3.4),
) -> Figure:
    """Every line over ``places``, the labels of its points, at equal distances, with 95% intervals; ``mark``: a value
    that all are read against. ``is_rate``: values are shares."""
    with _build_panel(*size) as (figure, axes):
        if mark is not None:
            axes.axhline(mark, color=QUIET, linewidth=0.8, linestyle=DASHED)
        for number, (name, points) in enumerate(lines):
            colour = PALETTE[number % len(PALETTE)]
            at = [places.index(label) for label, _ in points]
            values = [np.nan if point["value"] is None else point["value"] for _, point in points]
            style = LINE_STYLES[number % len(LINE_STYLES)]
            axes.plot(at, values, marker="o", markersize=4, color=colour, linestyle=style, label=clean_label(name))
            for place, (_, point) in zip(at, points, strict=True):
                if point["low"] is not None and point["high"] is not None:
                    axes.plot([place, place], [point["low"], point["high"]], color=colour, linewidth=1.6, alpha=0.45)
        axes.set_xticks(range(len(places)), [clean_label(place) for place in places])
        axes.set_xlim(-0.4, len(places) - 0.6)
        axes.set_xlabel(clean_label(x_label))
        axes.set_ylabel(y_label)
        if y_limits is not None:
            axes.set_ylim(*y_limits)
        if is_rate:
            axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{100 * rate:g}%"))
    return figure


def draw_roc_markdown(columns: Sequence[ScoreColumn], evaluations: pa.Table, title: str) -> str | None:
    """The ROC curves of a pair at default parameters as a Markdown image, for Dagster's metadata; None where no
    detector has scores on both sides."""
    aurocs = {
        row["detector"]: row["value"]
        for row in evaluations.to_pylist()
        if row["metric"] == "auroc" and row["is_default"]
    }
    two_sided = [
        column
        for column in sorted(columns, key=lambda column: column.key)
        if column.detector != BLIND_CONTROL and column.is_default and column.members.size and column.nonmembers.size
    ]
    answering = choose_headline_detector({column.detector for column in two_sided})
    curves = []
    for column in two_sided:
        if (points := column.roc()) is not None:
            fpr, tpr = thin_roc_curve(points.fpr, points.tpr)
            named = {"detector": column.detector, "auroc": aurocs.get(column.detector)}
            curves.append({**named, "fpr": fpr, "tpr": tpr, "answers": column.detector == answering})
    return to_markdown_image(to_png(draw_roc_curves(curves)), f"ROC curves: {title}") if curves else None
