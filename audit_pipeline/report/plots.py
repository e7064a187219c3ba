"""Plots by matplotlib, their common style, and their conversion to PNG and SVG.

picture_data.py prepares the data, and pictures.py chooses the pictures of a page. Figures are created without pyplot,
because its state is global.
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
"""Colours by Okabe and Ito, which people with any kind of colour blindness can distinguish on white and on black."""

LINE_STYLES = ("-", "--", "-.", ":")
DASHED = (0, (4, 3))
"""Style of target values and thresholds."""
DOTTED = (0, (1, 2))
"""Style of chance."""
INK = "#20242b"
QUIET = "#868b94"
LABEL_CHARACTERS = 48
MARKDOWN_LIMIT = 100_000
"""Maximum size of an image in Dagster's metadata, in bytes of base64. Dagster stores it per materialisation."""

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
    """Convert a figure to a PNG with 64 colours on white.

    The file has a third of the size of a PNG with all colours, and no visible difference.
    """
    drawn = io.BytesIO()
    small = io.BytesIO()
    with _without_glyph_warnings():
        figure.savefig(drawn, format="png", dpi=dpi, facecolor="white")
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(64).save(small, format="png", optimize=True)
    return small.getvalue()


def to_svg(figure: Figure, title: str, description: str = "") -> str:
    """Convert a figure to an ``<svg>`` element for a page.

    The element scales with the page, uses the page's text colour and loads nothing. The page can replace the colours of
    ``PALETTE`` by the CSS variables ``--series-1``, ``--series-2`` and so on.

    Args:
        figure: The figure.
        title: Title for screen readers. It is escaped.
        description: Content for screen readers. It is escaped.
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
    description_element = ""
    if description:
        description_element = f"<desc>{html.escape(_remove_control_characters(description))}</desc>"
    return re.sub(
        r"(<svg[^>]*>)", lambda opening: f"{opening[1]}<title>{label}</title>{description_element}", svg, count=1
    ).strip()


def to_markdown_image(png: bytes, alt: str) -> str:
    """Embed a PNG in Markdown for Dagster's metadata.

    Raises:
        ValueError: If the image exceeds ``MARKDOWN_LIMIT``.
    """
    encoded = base64.b64encode(png).decode()
    if len(encoded) > MARKDOWN_LIMIT:
        raise ValueError(
            f"the image has {len(encoded):,} bytes of base64, but the limit is {MARKDOWN_LIMIT:,} bytes. Lower its dpi."
        )
    escaped = re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(alt.split()))
    return f"![{escaped}](data:image/png;base64,{encoded})"


def clean_label(label: str) -> str:
    """Return a label on one line of bounded length, without control characters. Dollar signs are escaped."""
    shown = _remove_control_characters(label)
    if len(shown) > LABEL_CHARACTERS:
        shown = shown[: LABEL_CHARACTERS - 1] + "…"
    return shown.replace("$", r"\$")


@contextmanager
def _without_glyph_warnings() -> Iterator[None]:
    """Suppress warnings about missing glyphs. A page uses the reader's fonts, and a PNG may lack some letters."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(Glyph|Matplotlib currently does not support)")
        yield


def _make_ids_unique(svg: str, description: str) -> str:
    """Remove unused ids, and give the other ids a prefix that is unique on the page."""
    prefix = hashlib.sha256(f"{description}\n{svg}".encode(errors="replace")).hexdigest()[:8]
    referred = set(re.findall(r'(?:href="|url\()#([\w-]+)', svg))

    def rename_id(match: re.Match[str]) -> str:
        return f' id="p{prefix}-{match[1]}"' if match[1] in referred else ""

    svg = re.sub(r' id="([^"]*)"', rename_id, svg)
    return re.sub(r'(href="|url\()#([\w-]+)', rf"\1#p{prefix}-\2", svg)


def _remove_control_characters(text: str) -> str:
    """Return a text on one line, with a space for each character of Unicode category C.

    The category contains the control characters, which XML cannot contain, and also invisible format characters.
    """
    for letter in set(text):
        if unicodedata.category(letter)[0] == "C":
            text = text.replace(letter, " ")
    return " ".join(text.split())


Row = Mapping[str, Any]
Line = tuple[str, Sequence[tuple[str, Row]]]
"""Name of a line and its points. A point is a label on the x axis and an estimate with value, low and high."""


@contextmanager
def _build_panel(
    width: float, height: float, layout: Literal["constrained"] | None = "constrained", **legend: Any
) -> Iterator[tuple[Figure, Axes]]:
    """Create a figure with one panel, and add a legend if the panel has labels. Sizes are in inches."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout=layout)
        axes = figure.add_subplot()
        yield figure, axes
        if axes.get_legend_handles_labels()[0]:
            figure.legend(**{"ncols": 2, "handlelength": 1.8, "loc": "outside upper center", **legend})


def draw_roc_curves(curves: Sequence[Row], *, sides: tuple[str, str] = SIDES) -> Figure:
    """Draw ROC curves with the diagonal of chance and a line at a false-positive rate of 5%.

    Args:
        curves: Curves with ``fpr`` and ``tpr`` from (0, 0) to (1, 1), ``detector`` and ``auroc`` (None if not defined).
            ``answers`` is True for the headline detector, whose line is the thickest.
        sides: Names of the two sides.
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
    """Draw ROC curves with the false-positive rate on a logarithmic axis.

    Args:
        curves: As in :func:`draw_roc_curves`.
        smallest_fpr: Smallest measurable rate: 1 / number of non-members.
        sides: Names of the two sides.
    """
    left = 0.0005
    if smallest_fpr:
        left = min(smallest_fpr, 0.02) / 2
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
        # The layout does not make room for the annotations above the axes.
        figure.get_layout_engine().set(h_pad=0.2)  # type: ignore[union-attr,call-arg]
        axes.set_ylim(-0.01, 1.01)
        axes.set_ylabel(f"true positive rate ({sides[0]} found)")
        yield axes


def _annotate_top(axes: Axes, text: str, x: float, *, ha: str, offset: tuple[int, int]) -> None:
    style = {"textcoords": "offset points", "color": QUIET, "fontsize": 7.5, "va": "bottom", "ha": ha}
    axes.annotate(text, (x, 1.0), offset, **style)  # type: ignore[arg-type]


def _style_roc_line(number: int, curve: Row) -> dict[str, Any]:
    auroc = "not defined" if curve["auroc"] is None else f"{curve['auroc']:.3f}"
    width = 1.3
    order = 2
    if curve["answers"]:
        width = 2.2
        order = 3
    return {
        "color": PALETTE[number % len(PALETTE)],
        "linestyle": LINE_STYLES[number // len(PALETTE) % len(LINE_STYLES)],
        "linewidth": width,
        "zorder": order,
        "label": f"{clean_label(curve['detector'])}  {auroc}",
    }


def draw_score_histogram(spread: Row, *, sides: tuple[str, str] = SIDES) -> Figure:
    """Draw the score histograms of both sides.

    Args:
        spread: Row with the keys ``detector`` (its title), ``edges`` (of the bins), ``members`` and ``nonmembers``
            (share of texts in each bin).
        sides: Names of the two sides.
    """
    with _build_panel(3.5, 2.55, None, loc="upper center", handlelength=1.2) as (figure, axes):
        # A constrained layout draws the figure twice and takes four times as long as fixed margins.
        figure.subplots_adjust(left=0.62 / 3.5, right=1 - 0.12 / 3.5, top=1 - 0.62 / 2.55, bottom=0.5 / 2.55)
        # With a fixed position, matplotlib does not measure all labels to find one.
        axes.set_title(clean_label(spread["detector"]), y=1.0)
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
    """Draw lines with 95% intervals over labelled places on the x axis, at equal distances.

    Args:
        lines: The lines.
        places: Labels of the places on the x axis, in order.
        y_label: Label of the y axis.
        x_label: Label of the x axis.
        y_limits: Limits of the y axis.
        mark: Value of a horizontal reference line.
        is_rate: True if values are shares.
        size: Width and height in inches.
    """
    with _build_panel(*size) as (figure, axes):
        if mark is not None:
            axes.axhline(mark, color=QUIET, linewidth=0.8, linestyle=DASHED)
        for number, (name, points) in enumerate(lines):
            colour = PALETTE[number % len(PALETTE)]
            x_values = [places.index(label) for label, _ in points]
            y_values = np.array([point["value"] for _, point in points], dtype=np.float64)
            style = LINE_STYLES[number % len(LINE_STYLES)]
            axes.plot(
                x_values, y_values, marker="o", markersize=4, color=colour, linestyle=style, label=clean_label(name)
            )
            for x, (_, point) in zip(x_values, points, strict=True):
                if point["low"] is not None and point["high"] is not None:
                    axes.plot([x, x], [point["low"], point["high"]], color=colour, linewidth=1.6, alpha=0.45)
        axes.set_xticks(range(len(places)), list(map(clean_label, places)))
        axes.set_xlim(-0.4, len(places) - 0.6)
        axes.set_xlabel(clean_label(x_label))
        axes.set_ylabel(y_label)
        if y_limits is not None:
            axes.set_ylim(*y_limits)
        if is_rate:
            axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{100 * rate:g}%"))
    return figure


def draw_roc_markdown(columns: Sequence[ScoreColumn], evaluations: pa.Table, title: str) -> str | None:
    """Draw the ROC curves of a pair at default parameters as a Markdown image for Dagster's metadata.

    Returns:
        The Markdown, or None if no detector has scores on both sides.
    """
    aurocs = {}
    for row in evaluations.to_pylist():
        if row["metric"] == "auroc" and row["is_default"]:
            aurocs[row["detector"]] = row["value"]
    two_sided = sorted(filter(_has_default_scores_on_both_sides, columns), key=lambda column: column.key)
    headline_detector = choose_headline_detector({column.detector for column in two_sided})
    curves = []
    for column in two_sided:
        points = column.roc()
        if points is None:
            continue
        fpr, tpr = thin_roc_curve(points.fpr, points.tpr)
        curves.append(
            {
                "detector": column.detector,
                "auroc": aurocs.get(column.detector),
                "fpr": fpr,
                "tpr": tpr,
                "answers": column.detector == headline_detector,
            }
        )
    if not curves:
        return None
    return to_markdown_image(to_png(draw_roc_curves(curves)), f"ROC curves: {title}")


def _has_default_scores_on_both_sides(column: ScoreColumn) -> bool:
    has_both_sides = column.members.size > 0 and column.nonmembers.size > 0
    return has_both_sides and column.is_default and column.detector != BLIND_CONTROL
