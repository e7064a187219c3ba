"""Pictures as SVG: the plots of a page, the strips of the memorisation map, and a small ROC curve for the Dagster UI.

A strip shows a document from its first to its last character. Its shade is the probability with which the model
reproduces each position. A strip consists of rectangles, so that its colours follow the page's style (light, dark,
print).

The UI shows Markdown of fewer than 1,000 characters inline, and a link for longer Markdown. Therefore its ROC curve is
written with few points. The curves of all detectors are a PNG (plots.py).

plots.py draws the plots. The queries of sections/25_extraction/ select the documents and bin their windows.
"""

from __future__ import annotations

import base64
import html
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, wraps
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from matplotlib.figure import Figure

from audit_pipeline.report.answer_rules import ComparedSides
from audit_pipeline.report.number_format import format_interval, format_number, format_target_rate
from audit_pipeline.report.picture_data import SIDES
from audit_pipeline.report.plots import (
    PALETTE,
    Line,
    clean_label,
    draw_lines,
    draw_low_fpr_roc,
    draw_roc_curves,
    draw_score_histogram,
    to_svg,
)
from audit_pipeline.statistics.claims import REPRODUCED_FROM

STRIP_WIDTH = 720
STRIP_HEIGHT = 14
"""Height of a strip in SVG units. The width above is in the same units."""
SHADES: Sequence[tuple[float, str]] = (
    (-math.inf, "below 10⁻⁴⁰"),
    (-40.0, "from 10⁻⁴⁰"),
    (-20.0, "from 10⁻²⁰"),
    (-10.0, "from 10⁻¹⁰"),
    (math.log10(REPRODUCED_FROM), f"from {REPRODUCED_FROM}"),
    (math.log10(0.1), "from 0.1"),
    (math.log10(0.5), "from 0.5"),
)
"""Smallest log10 of the probability of each shade, the lightest shade first, with its label."""
SET_APART = "apart"

MAX_MARKDOWN_CHARACTERS = 1000
"""The Dagster UI shows a link in place of Markdown with this number of characters or more."""
_INLINE_SIDE = 110
"""Side of the curve's square, in pixels."""
_INLINE_WIDTH = 300
"""Width of the picture, in pixels. Wider pictures are cut in a window of 1,280 pixels."""
_INLINE_POINTS = 28
_INLINE_INK = "#757575"
"""Colour that is legible on the white and on the black background of the UI."""

_MAX_REUSED = 16
"""Maximum number of controls and of studies whose pictures are kept for the next page."""

SIDE_NAMES: dict[ComparedSides, tuple[str, str]] = {
    "labelled": SIDES,
    "audited against held-out": ("audited", "held-out"),
    "none": SIDES,
}

Floats = npt.NDArray[np.float64]
Row = Mapping[str, Any]


def build_strip_shapes(row: Row) -> list[tuple[str, str]]:
    """Build the shapes of a document's strip. Bins without a window have no shape.

    Args:
        row: ``log10_p`` contains the largest probability of the suffixes that touch each bin of characters, or None.
            ``set_apart`` contains the numbers of the bins that touch a predictable window, which the model can
            reproduce without having read the document.

    Returns:
        Pairs of a CSS class and an SVG path.
    """
    predictable_bins = set(row["set_apart"])
    classes = []
    for number, log10_p in enumerate(row["log10_p"]):
        classes.append(_choose_css_class(log10_p, number in predictable_bins))
    bin_width = STRIP_WIDTH / max(1, len(classes))
    paths: dict[str, list[str]] = {}
    for css_class, bins in groupby(range(len(classes)), key=lambda number: classes[number]):
        if css_class is None:
            continue
        numbers = list(bins)
        start = numbers[0] * bin_width
        width = len(numbers) * bin_width
        paths.setdefault(css_class, []).append(f"M{start:.5g} 0h{width:.5g}v{STRIP_HEIGHT}h-{width:.5g}z")
    return [(css_class, "".join(parts)) for css_class, parts in sorted(paths.items())]


def find_shade(log10_p: float) -> int:
    """Return the number of a probability's shade, 1 (the lightest) to 7."""
    return sum(log10_p >= smallest for smallest, _ in SHADES)


def _choose_css_class(log10_p: float | None, is_predictable: bool) -> str | None:
    """Return the CSS class of a bin. A reproduced passage takes precedence over a predictable one."""
    if is_predictable and (log10_p is None or log10_p < math.log10(REPRODUCED_FROM)):
        return SET_APART
    if log10_p is None:
        return None
    return f"m{find_shade(log10_p)}"


def draw_roc_pictures(finding: Row) -> Sequence[Markup]:
    """Draw the ROC curves of a pair on a linear and on a logarithmic axis, as two pictures for narrow pages."""
    sides = SIDE_NAMES[finding["sides"]]
    smallest = finding["smallest_fpr"]
    curves = finding["curves"]
    if not curves:
        return ()
    title = f"ROC curves of {_format_pair_name(finding)}"
    aurocs = ", ".join(f"{curve['detector']} {format_number(curve['auroc'])}" for curve in curves)
    limit = f" Rates below {format_target_rate(smallest)} cannot be measured." if smallest else ""
    return (
        _to_svg_markup(draw_roc_curves(curves, sides=sides), title, f"AUROC: {aurocs}."),
        _to_svg_markup(
            draw_low_fpr_roc(curves, smallest_fpr=smallest, sides=sides),
            f"{title} at few false positives",
            f"The false-positive rate on a logarithmic scale.{limit}",
        ),
    )


def draw_spread_pictures(finding: Row) -> Sequence[Markup]:
    """Draw the score histograms of each detector of a pair."""
    sides = SIDE_NAMES[finding["sides"]]
    pictures = []
    for row in finding["curves"]:
        title = f"Distribution of the scores of {row['detector']}, {_format_pair_name(finding)}"
        description = f"The share of {sides[0]} texts and of {sides[1]} texts at each score."
        pictures.append(_to_svg_markup(draw_score_histogram(row, sides=sides), title, description))
    return pictures


def _reuse_pictures(draw: Callable[[Row], Sequence[Markup]]) -> Callable[[Row], Sequence[Markup]]:
    """Return a function that draws the pictures of equal rows once.

    Every page of a report shows the same instrument check, and a picture takes as long as several queries.
    """

    @lru_cache(maxsize=_MAX_REUSED)
    def draw_from_json(row: str) -> Sequence[Markup]:
        return draw(json.loads(row))

    @wraps(draw)
    def draw_once(row: Row) -> Sequence[Markup]:
        return draw_from_json(json.dumps(row))

    return draw_once


@_reuse_pictures
def draw_study_pictures(study: Row) -> Sequence[Markup]:
    """Draw the AUROC over each setting that a study varied (Shi et al. 2024, figure 5)."""
    pictures = []
    for panel in study["panels"]:
        lines = []
        for line in panel["lines"]:
            lines.append((line["detector"], _list_aurocs(line["points"])))
        x_label = panel["setting"].replace("_", " ")
        figure = draw_lines(
            lines, panel["places"], y_label="AUROC", x_label=x_label, y_limits=(0.4, 1.02), mark=0.5, size=(3.5, 2.8)
        )
        pictures.append(_to_svg_markup(figure, f"AUROC over {panel['setting']} in the study {study['name']}"))
    return pictures


@_reuse_pictures
def draw_control_pictures(control: Row) -> Sequence[Markup]:
    """Draw how much the models of a control reproduce, by the number of times that the exposed model read a text.

    The first picture shows the share of texts with a passage of p ≥ 0.001. The second one shows the decimal logarithm
    of the strongest passage of the median text.
    """
    models = [("trained on the texts", control["exposed"]), ("control model", control["twin"])]
    readings = {point["occurrences"] for point in (*control["exposed"], *control["twin"])}
    places = list(map(str, sorted(readings)))
    about = f"by number of readings, control {control['control']} on {control['benchmark']}"
    read = "times that the trained model read the text"
    shares: list[Line] = []
    strongest: list[Line] = []
    for name, points in models:
        share_points = []
        strongest_points = []
        for point in points:
            place = str(point["occurrences"])
            share_points.append((place, point["reached"]))
            strongest_points.append((place, _without_interval(point["log10_p"])))
        shares.append((name, share_points))
        strongest.append((name, strongest_points))
    share_label = "texts with a passage of p ≥ 0.001"
    strongest_label = "log₁₀ p of the strongest passage (median)"
    return (
        _to_svg_markup(
            draw_lines(shares, places, y_label=share_label, x_label=read, y_limits=(-0.03, 1.03), is_rate=True),
            f"Texts with a passage of p ≥ 0.001 {about}",
        ),
        _to_svg_markup(
            draw_lines(strongest, places, y_label=strongest_label, x_label=read, mark=math.log10(REPRODUCED_FROM)),
            f"Probability of a text's strongest passage {about}",
        ),
    )


def draw_rung_pictures(rungs: Sequence[Row], benchmark: str) -> Sequence[Markup]:
    """Draw the mean longest run of words per prompt style, for audited and held-out documents.

    Args:
        rungs: Rows of the part ``rungs``, ordered by how much of the document the prompt style contains, least first.
        benchmark: The benchmark.

    Returns:
        One picture, or none if only one prompt style was used.
    """
    points: dict[str, list[tuple[str, Row]]] = {"audited": [], "held-out": []}
    places: list[str] = []
    descriptions = []
    for row in rungs:
        if row["longest_mean"] is None:
            continue
        side = row["side"].replace("_", "-")
        points[side].append((row["rung"], _without_interval(row["longest_mean"])))
        descriptions.append(f"{row['rung']}, {side}: {row['longest_mean']:.1f} words")
        if row["rung"] not in places:
            places.append(row["rung"])
    if len(places) < 2:
        return ()
    lines = [line for line in points.items() if line[1]]
    y_label = "longest run in words, mean of documents"
    figure = draw_lines(lines, places, y_label=y_label, y_limits=(0, None))
    title = f"Longest reproduced run of words, mean of the documents of {benchmark}, by prompt style"
    return (_to_svg_markup(figure, title, f"{'; '.join(descriptions)}."),)


def draw_series_pictures(row: Row) -> Sequence[Markup]:
    """Draw the AUROC of the headline detector over a series of checkpoints.

    The picture also shows the share of documents that stand out, and the share of documents with a reproduced passage.
    A single checkpoint has no picture.
    """
    points = row["points"]
    if len(points) < 2:
        return ()
    lines: list[Line] = [("AUROC", _list_aurocs(points))]
    for name, part, whole in (
        ("documents that stand out", "standing_out", "tested"),
        ("documents with a passage word for word", "reproduced", "documents"),
    ):
        shares = []
        for point in points:
            if point[whole]:
                shares.append((point["place"], _without_interval(point[part] / point[whole])))
        if shares:
            lines.append((name, shares))
    places = [point["place"] for point in points]
    figure = draw_lines(lines, places, y_label="AUROC, or share", y_limits=(-0.03, 1.03), mark=0.5)
    return (_to_svg_markup(figure, f"{row['series']} on {row['benchmark']}, by checkpoint", row["summary"]),)


def _list_aurocs(points: Sequence[Row]) -> list[tuple[str, Row]]:
    return list(map(itemgetter("place", "auroc"), points))


def _without_interval(value: float | None) -> Row:
    return {"value": value, "low": None, "high": None}


def _format_pair_name(finding: Row) -> str:
    return f"{finding['model']} on {finding['benchmark']}"


def _to_svg_markup(figure: Figure, title: str, description: str = "") -> Markup:
    return Markup(to_svg(figure, title, description))  # noqa: S704 - to_svg escapes the title and the description


def draw_inline_roc(
    detector: str, fpr: Floats, tpr: Floats, auroc: Sequence[float | None], blind: float | None
) -> str | None:
    """Return the ROC curve of one detector with its AUROC as a Markdown image, or None if it is too long for the UI.

    Args:
        detector: The detector.
        fpr: False-positive rates of the curve, ascending, of shape (n_points,).
        tpr: True-positive rates of the same points.
        auroc: The area and both ends of its interval. Both ends are None if there is no interval.
        blind: AUROC of the blind control, or None if it was not computed.
    """
    value, *ends = auroc
    lines = [f"AUROC {format_number(value)} {format_interval(ends)}", "0.5 is chance (dashed)"]
    if blind is not None:
        lines.append(f"words alone {format_number(blind)}")
    texts = ""
    for number, line in enumerate([clean_label(detector), *lines]):
        texts += f'<text x="{_INLINE_SIDE + 12}" y="{20 + 22 * number}">{html.escape(line)}</text>'
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_INLINE_WIDTH}" height="{_INLINE_SIDE}" font-size="12"'
        f' fill="{_INLINE_INK}" font-family="sans-serif">'
        f'<g fill="none" stroke="#888"><path d="M0 0V{_INLINE_SIDE}H{_INLINE_SIDE}"/>'
        f'<path stroke-dasharray="3" d="M0 {_INLINE_SIDE}L{_INLINE_SIDE} 0"/>'
        f'<path stroke="{PALETTE[0]}" stroke-width="2" d="{_trace_path(fpr, tpr)}"/></g>{texts}</svg>'
    )
    markdown = f"![ROC curve](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"
    if len(markdown) >= MAX_MARKDOWN_CHARACTERS:
        return None
    return markdown


def _trace_path(fpr: Floats, tpr: Floats) -> str:
    """Return the curve as an SVG path through points at equal steps along it, in whole pixels."""
    # Steps along one axis would miss stretches of the curve that are vertical or horizontal.
    travelled = fpr + tpr
    steps = np.linspace(0.0, 2.0, _INLINE_POINTS)
    across = np.interp(steps, travelled, fpr)
    up = np.interp(steps, travelled, tpr)
    points = zip(np.rint(across * _INLINE_SIDE).astype(int), np.rint((1 - up) * _INLINE_SIDE).astype(int), strict=True)
    return "M" + "L".join(f"{x} {y}" for x, y in points)
