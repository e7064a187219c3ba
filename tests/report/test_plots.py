"""Pictures show what they are given, stay small, load nothing, and take any label."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_rows import make_table
from matplotlib.figure import Figure
from PIL import Image
from profiles import max_examples

from audit_pipeline.report.picture_data import bin_scores, thin_roc_curve
from audit_pipeline.report.pictures import MAX_MARKDOWN_CHARACTERS, draw_inline_roc, draw_roc_pictures
from audit_pipeline.report.plots import (
    MARKDOWN_LIMIT,
    clean_label,
    draw_lines,
    draw_low_fpr_roc,
    draw_roc_curves,
    draw_roc_markdown,
    draw_score_histogram,
    to_markdown_image,
    to_png,
    to_svg,
)
from audit_pipeline.statistics.evaluation import ScoreColumn
from audit_pipeline.tables import EVALUATIONS

from .made_findings import evaluation

NASTY = [
    "<script>alert(1)</script>",
    "$x_1$ and $",
    "a" * 300,
    "tab\t\n\x07",
    r"back\slash $\frac{",
    "]]>&amp;",
]


def curve(label: str = "loss", **changes: Any) -> dict[str, Any]:
    usual = {
        "detector": label,
        "fpr": [0.0, 0.0, 0.5, 1.0],
        "tpr": [0.0, 0.4, 0.9, 1.0],
        "auroc": 0.8,
        "answers": False,
    }
    return {**usual, **changes}


def roc(label: str, n: int) -> Figure:
    return draw_roc_curves([curve(label)] * n)


def corner(label: str, n: int) -> Figure:
    return draw_low_fpr_roc([curve(label)] * n, smallest_fpr=0.004, sides=("audited", "held-out"))


def histogram(label: str, n: int) -> Figure:
    random = np.random.default_rng(n)
    return draw_score_histogram({"detector": label, **bin_scores(random.normal(0.5, 1, 500), random.normal(0, 1, 500))})


def estimate(value: float | None, low: float | None = None, high: float | None = None) -> dict[str, float | None]:
    return {"value": value, "low": low, "high": high}


def lines(label: str, n: int) -> Figure:
    points = [("1", estimate(0.6, 0.5, 0.7)), ("2", estimate(0.9)), ("64", estimate(None))]
    return draw_lines([(label, points)] * n, ["1", "2", "64"], y_label="AUROC", x_label=label, mark=0.5, is_rate=True)


FIGURES = (roc, corner, histogram, lines)


def texts(svg: str) -> str:
    return " ".join(
        "".join(element.itertext()) for element in ET.fromstring(svg).iter() if element.tag.endswith("text")
    )


@pytest.mark.parametrize("draw", FIGURES)
def test_nine_detectors_fit_into_dagsters_metadata(draw: Callable[[str, int], Figure]) -> None:
    png = to_png(draw("loss", 9))
    with Image.open(io.BytesIO(png)) as image:
        assert image.format == "PNG"
        assert image.width > 300
        assert len(np.unique(np.asarray(image.convert("L")))) > 10
    markdown = to_markdown_image(png, "ROC")
    found = re.fullmatch(r"!\[ROC\]\(data:image/png;base64,([A-Za-z0-9+/=]+)\)", markdown)
    assert found
    assert base64.b64decode(found.group(1)) == png
    assert len(found.group(1)) <= MARKDOWN_LIMIT


def test_an_image_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match="the limit is 100,000 bytes"):
        to_markdown_image(b"x" * 75_001, "large")
    assert len(to_markdown_image(b"x" * 75_000, "")) > MARKDOWN_LIMIT


def test_a_markdown_description_cannot_end_the_image() -> None:
    markdown = to_markdown_image(b"x", "a](http://elsewhere) <b>\n`c`")
    assert markdown.startswith(r"![a\]\(http\:\/\/elsewhere\) \<b\> \`c\`](data:image/png;base64,")


@pytest.mark.parametrize("draw", FIGURES)
def test_an_svg_is_well_formed_and_loads_nothing(draw: Callable[[str, int], Figure]) -> None:
    svg = to_svg(draw("loss", 9), 'what "it" <shows>', "and & how")
    root = ET.fromstring(svg)
    said = [(element.tag.rpartition("}")[2], element.text) for element in list(root)[:2]]
    assert said == [("title", 'what "it" <shows>'), ("desc", "and & how")]
    assert root.get("aria-label") == 'what "it" <shows>'
    assert root.get("width") is None
    assert root.get("viewBox")
    references = [value for element in root.iter() for name, value in element.attrib.items() if name.endswith("href")]
    assert all(value.startswith("#") for value in references)
    assert "url(http" not in svg
    assert "currentColor" in svg
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert {value[1:] for value in references} <= set(ids)


def test_the_same_figure_gives_the_same_svg() -> None:
    assert to_svg(draw_roc_curves([curve()]), "x") == to_svg(draw_roc_curves([curve()]), "x")


@pytest.mark.parametrize("label", NASTY[:2] + [pytest.param(label, marks=pytest.mark.slow) for label in NASTY[2:]])
def test_labels_are_drawn_as_they_are(label: str) -> None:
    for figure in [draw(label, 1) for draw in FIGURES]:
        shown = texts(to_svg(figure, label))
        assert clean_label(label).replace(r"\$", "$") in shown
        assert to_png(figure)


@max_examples(10)
@given(st.text(max_size=60))
def test_any_label_can_be_drawn(label: str) -> None:
    ET.fromstring(to_svg(lines(label, 1), label))


def test_roc_curves_tell_their_auroc_and_mark_five_percent() -> None:
    shown = texts(to_svg(draw_roc_curves([curve("min_k"), curve("zlib", auroc=None)]), "x"))
    assert "min_k 0.800" in " ".join(shown.split())
    assert "zlib not defined" in " ".join(shown.split())
    assert "5% FPR" in shown


@pytest.mark.parametrize(
    ("sides", "label"),
    [
        ("labelled", "false positive rate (non-members taken for members)"),
        ("audited against held-out", "false positive rate (held-out taken for audited)"),
    ],
)
def test_the_axis_of_roc_curves_names_the_sides(sides: str, label: str) -> None:
    finding = {"sides": sides, "smallest_fpr": None, "model": "M", "benchmark": "B", "curves": [curve()]}
    assert label in " ".join(texts(draw_roc_pictures(finding)[0]).split())


def test_the_low_corner_shades_what_cannot_be_resolved() -> None:
    figure = draw_low_fpr_roc([curve()], smallest_fpr=0.01)
    axes = figure.axes[0]
    assert axes.get_xscale() == "log"
    assert axes.get_xlim() == (0.005, 1.0)
    shown = texts(to_svg(figure, "x"))
    assert "not resolvable" in shown
    assert "10%" in shown
    assert "not resolvable" not in texts(to_svg(draw_low_fpr_roc([curve()]), "x"))


@given(st.lists(st.booleans(), min_size=2, max_size=300).filter(lambda sides: len(set(sides)) == 2))
def test_a_thinned_curve_is_the_curve(sides: list[bool]) -> None:
    steps = np.array(sides)
    fpr = np.concatenate([[0.0], np.cumsum(~steps) / (~steps).sum()])
    tpr = np.concatenate([[0.0], np.cumsum(steps) / steps.sum()])
    thin_fpr, thin_tpr = thin_roc_curve(fpr, tpr)
    assert (thin_fpr[0], thin_tpr[0], thin_fpr[-1], thin_tpr[-1]) == (0.0, 0.0, 1.0, 1.0)
    assert set(zip(thin_fpr, thin_tpr, strict=True)) <= set(zip(fpr, tpr, strict=True))
    for false, true in zip(fpr, tpr, strict=True):
        assert np.min(np.maximum(np.abs(thin_fpr - false), np.abs(thin_tpr - true))) <= 1 / 200


def columns() -> list[ScoreColumn]:
    random = np.random.default_rng(4)
    n = 120
    labels = np.arange(n, dtype=np.int8) % 2
    groups = [f"g{place // 6}" for place in range(n)]
    return [
        ScoreColumn(name, "{}", random.normal(labels), labels, groups, np.ones(n, dtype=np.bool_), 0, default)
        for name, default in (("loss", True), ("zlib", True), ("zlib", False), ("blind_control", True))
    ]


def test_the_picture_for_dagster_is_there_where_there_is_something_to_draw() -> None:
    found = make_table(EVALUATIONS, [evaluation("loss", "auroc", 0.6)])
    picture = draw_roc_markdown(columns(), found, "b|m")
    assert picture is not None
    assert picture.startswith("![ROC curves")
    assert draw_roc_markdown([], found, "b|m") is None


def test_the_picture_that_the_ui_shows_in_place_is_the_curve() -> None:
    column = columns()[0]
    points = column.roc()
    assert points is not None
    markdown = draw_inline_roc(
        "a_detector_with_a_name_of_48_characters_" * 2, points.fpr, points.tpr, (0.6, 0.5, 0.7), 0.91
    )
    assert markdown is not None
    assert len(markdown) < MAX_MARKDOWN_CHARACTERS
    svg = base64.b64decode(markdown.partition("base64,")[2].removesuffix(")")).decode()
    assert re.findall(r"AUROC [^<]*|words alone [^<]*", svg) == ["AUROC 0.600 [0.500, 0.700]", "words alone 0.910"]
    # The curve runs from corner to corner, and its area, by trapezoids in pixels, is the AUROC.
    [path] = re.findall(r'stroke-width="2" d="M([^"]*)"', svg)
    x, y = np.array([point.split() for point in path.split("L")], dtype=float).T / 110
    assert (x[0], y[0], x[-1], y[-1]) == (0, 1, 1, 0)
    # Every point is off by at most half a pixel in each direction, and between two points a step is cut off.
    step = 2 / (len(x) - 1)
    assert np.trapezoid(1 - y, x) == pytest.approx(np.trapezoid(points.tpr, points.fpr), abs=step / 2 + 1 / 110)


def test_histograms_are_shares_of_each_side() -> None:
    figure = draw_score_histogram(
        {"detector": "loss", **bin_scores(np.array([1.0, 2.0, 3.0, np.nan]), np.array([1.0] * 50))}
    )
    steps = [patch.get_data().values for patch in figure.axes[0].patches]
    assert [float(values.sum()) for values in steps] == pytest.approx([1.0] * 4)


@pytest.mark.parametrize(
    "scores", [[], [0.5], [0.5] * 10, [np.nan], [np.inf, 1.0, -np.inf], [1e300, -1e300], [0.1, 0.1 + 1e-17]]
)
def test_odd_scores_can_be_drawn(scores: list[float]) -> None:
    odd = {"detector": "odd", **bin_scores(np.array(scores), np.array([]))}
    assert to_svg(draw_score_histogram(odd), "odd")


def test_nothing_to_draw_is_an_empty_picture() -> None:
    for figure in (draw_roc_curves([]), draw_low_fpr_roc([]), draw_lines([], [], y_label="AUROC")):
        assert to_png(figure)
