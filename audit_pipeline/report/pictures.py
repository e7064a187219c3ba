"""The pictures of a page, drawn from its rows alone: plots, and the strips of the memorisation map.

What belongs here: from rows of sections to SVG. What does not: drawing plots (plots.py), which documents are shown and
how their windows are binned (sections/25_extraction/), colours of strips (templates/style.css.j2), HTML (html.py).

The memorisation map shows a document as a strip from its first to its last character, shaded by how likely the model
gives each place of it. A strip is a few rectangles, so it is made without matplotlib, and its colours follow the
page's: light, dark, print.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from audit_pipeline.report.answer_rules import Sides
from audit_pipeline.report.number_format import format_number, format_target_rate
from audit_pipeline.report.picture_data import SIDES
from audit_pipeline.report.plots import (
    Line,
    draw_lines,
    draw_low_fpr_roc,
    draw_roc_curves,
    draw_score_histogram,
    to_svg,
)
from audit_pipeline.statistics.claims import REPRODUCED_FROM

STRIP_WIDTH, STRIP_HEIGHT = 720, 14
"""Of the picture that holds a strip, in its own units."""
SHADES: Sequence[tuple[float, str]] = (
    (-math.inf, "below 10⁻⁴⁰"),
    (-40.0, "from 10⁻⁴⁰"),
    (-20.0, "from 10⁻²⁰"),
    (-10.0, "from 10⁻¹⁰"),
    (math.log10(REPRODUCED_FROM), f"from {REPRODUCED_FROM}"),
    (math.log10(0.1), "from 0.1"),
    (math.log10(0.5), "from 0.5"),
)
"""From which log10 of a suffix's probability on a shade counts, the lightest first, and that in words."""
SET_APART = "apart"

StripRow = Mapping[str, Any]


def build_strip_shapes(row: StripRow) -> list[tuple[str, str]]:
    """The shapes of a document's strip: a CSS class and an SVG path each; no shape where no window lies.

    ``row``: ``log10_p``, of every bin of its characters the largest of the suffixes that touch it, or None;
    ``set_apart``, the numbers of the bins that a window that is set apart touches.
    """
    apart = set(row["set_apart"])
    classes = [_css_class(value, number in apart) for number, value in enumerate(row["log10_p"])]
    width = STRIP_WIDTH / max(1, len(classes))
    paths: dict[str, list[str]] = {}
    for name, bins in groupby(range(len(classes)), key=lambda number: classes[number]):
        if name is not None:
            numbers = list(bins)
            start, wide = numbers[0] * width, len(numbers) * width
            paths.setdefault(name, []).append(f"M{start:.5g} 0h{wide:.5g}v{STRIP_HEIGHT}h-{wide:.5g}z")
    return [(name, "".join(parts)) for name, parts in sorted(paths.items())]


def find_shade(log10_p: float) -> int:
    """The number of a probability's shade, 1 (the lightest) to 7."""
    return sum(log10_p >= least for least, _ in SHADES)


def _css_class(log10_p: float | None, is_set_apart: bool) -> str | None:
    """A passage that counts is shown before one that is set apart."""
    if is_set_apart and (log10_p is None or log10_p < math.log10(REPRODUCED_FROM)):
        return SET_APART
    return None if log10_p is None else f"m{find_shade(log10_p)}"


Row = Mapping[str, Any]

SIDE_NAMES: dict[Sides, tuple[str, str]] = {
    "labelled": SIDES,
    "audited against held-out": ("audited", "held-out"),
    "none": SIDES,
}


def draw_roc_pictures(finding: Row) -> Sequence[Markup]:
    """ROC curves of a pair, whole and their corner of few false positives; each by itself, so that a narrow page puts
    them under each other."""
    sides, smallest, curves = SIDE_NAMES[finding["sides"]], finding["smallest_fpr"], finding["curves"]
    if not curves:
        return ()
    title = f"ROC curves of {_format_pair_name(finding)}"
    aurocs = ", ".join(f"{curve['detector']} {format_number(curve['auroc'])}" for curve in curves)
    nothing = f" Below {format_target_rate(smallest)} nothing can be resolved." if smallest else ""
    return (
        _to_svg_markup(draw_roc_curves(curves, sides=sides), title, f"AUROC: {aurocs}."),
        _to_svg_markup(
            draw_low_fpr_roc(curves, smallest_fpr=smallest, sides=sides),
            f"{title} at few false positives",
            f"The false-positive rate on a logarithmic scale.{nothing}",
        ),
    )


def draw_spread_pictures(finding: Row) -> Sequence[Markup]:
    """The spread of the scores of each detector of a pair."""
    sides = SIDE_NAMES[finding["sides"]]
    return [
        _to_svg_markup(
            draw_score_histogram(row, sides=sides),
            f"Spread of the scores of {row['detector']} of {_format_pair_name(finding)}",
            f"The share of {sides[0]} texts and of {sides[1]} texts at each score.",
        )
        for row in finding["curves"]
    ]


def draw_study_pictures(study: Row) -> Sequence[Markup]:
    """AUROC over each setting that a study varied (Shi et al. 2024, figure 5)."""
    pictures = []
    for panel in study["panels"]:
        lines = [
            (line["detector"], [(point["place"], point["auroc"]) for point in line["points"]])
            for line in panel["lines"]
        ]
        x_label = panel["setting"].replace("_", " ")
        figure = draw_lines(
            lines, panel["places"], y_label="AUROC", x_label=x_label, y_limits=(0.4, 1.02), mark=0.5, size=(3.5, 2.8)
        )
        pictures.append(_to_svg_markup(figure, f"AUROC over {panel['setting']} in the study {study['name']}"))
    return pictures


def draw_control_pictures(control: Row) -> Sequence[Markup]:
    """What the models of a control give word for word, over how many times its exposed model read a text: the share of
    texts with a passage of p ≥ 0.001, and the decimal logarithm of the median text's strongest passage."""
    models = [("trained on the texts", control["exposed"]), ("control model", control["twin"])]
    readings = sorted({point["occurrences"] for _, points in models for point in points})
    places = [str(times) for times in readings]
    about = f"over how many times they were read, control {control['control']} on {control['benchmark']}"
    read = "times that the trained model read the text"
    shares: list[Line] = [
        (name, [(str(point["occurrences"]), point["reached"]) for point in points]) for name, points in models
    ]
    strongest: list[Line] = [
        (name, [(str(point["occurrences"]), _without_interval(point["log10_p"])) for point in points])
        for name, points in models
    ]
    share_label, strongest_label = "texts with a passage of p ≥ 0.001", "log₁₀ p of the strongest passage (median)"
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
    """The mean longest run of words by rung, audited next to held-out documents; nothing of a single rung.

    ``rungs``: rows of the part rungs, from the least to the most that was given."""
    known = [row for row in rungs if row["longest_mean"] is not None]
    places = list(dict.fromkeys(row["rung"] for row in known))
    if len(places) < 2:
        return ()
    lines = [
        (name, [(row["rung"], _without_interval(row["longest_mean"])) for row in known if row["side"] == side])
        for name, side in (("audited", "audited"), ("held-out", "held_out"))
    ]
    said = "; ".join(
        f"{row['rung']}, {row['side'].replace('_', '-')}: {row['longest_mean']:.1f} words" for row in known
    )
    y_label = "longest run in words, mean of documents"
    figure = draw_lines([line for line in lines if line[1]], places, y_label=y_label, y_limits=(0, None))
    title = f"Longest run of words that came back of the documents of {benchmark}, by rung"
    return (_to_svg_markup(figure, title, f"{said}."),)


def draw_series_pictures(row: Row) -> Sequence[Markup]:
    """The AUROC of the headline detector along a series, and the shares of documents that stand out, or of which a
    passage is given word for word; nothing of a single checkpoint."""
    points = row["points"]
    if len(points) < 2:
        return ()
    lines: list[Line] = [("AUROC", [(point["place"], point["auroc"]) for point in points])]
    for name, part, whole in (
        ("documents that stand out", "standing_out", "tested"),
        ("documents with a passage word for word", "reproduced", "documents"),
    ):
        shares = [(point["place"], _without_interval(point[part] / point[whole])) for point in points if point[whole]]
        lines += [(name, shares)] if shares else []
    figure = draw_lines(
        lines, [point["place"] for point in points], y_label="AUROC, or share", y_limits=(-0.03, 1.03), mark=0.5
    )
    return (_to_svg_markup(figure, f"{row['series']} on {row['benchmark']}, by checkpoint", row["summary"]),)


def _without_interval(value: float | None) -> Row:
    return {"value": value, "low": None, "high": None}


def _format_pair_name(finding: Row) -> str:
    return f"{finding['model']} on {finding['benchmark']}"


def _to_svg_markup(figure: Figure, title: str, description: str = "") -> Markup:
    return Markup(to_svg(figure, title, description))  # noqa: S704 - to_svg escapes every text that it is given
