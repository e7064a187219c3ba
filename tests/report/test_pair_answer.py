"""The pictures that the Dagster UI shows of a pair's answer, seen in place; its words are in test_first_screen.py."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET

from audit_pipeline.report.inline_picture import IN_PLACE, draw_auroc_axis_markdown, draw_share_bar_markdown
from audit_pipeline.report.number_format import count
from audit_pipeline.report.vocabulary import Estimate


def svg_of(markdown: str) -> ET.Element:
    image = re.fullmatch(r"!\[[^\]]+\]\(data:image/svg\+xml;base64,([\w+/=]+)\)", markdown)
    assert image is not None
    return ET.fromstring(base64.b64decode(image[1]))


def test_an_axis_is_seen_in_place() -> None:
    markdown = draw_auroc_axis_markdown(
        [("the detector", Estimate(0.75, 0.65, 0.85)), ("the words alone", Estimate(0.5, 0.5, 1.2))]
    )
    assert len(markdown) < IN_PLACE, "else there is a link in its place"
    assert markdown.startswith("![AUROC: the detector 0.750; the words alone 0.500; chance 0.5](")
    drawn = svg_of(markdown)
    space = "{http://www.w3.org/2000/svg}"
    # From 0.3 at 96 to 1 at 250: 0.75 is at 96 + 154 * 0.45 / 0.7.
    assert [dot.get("cx") for dot in drawn.iter(f"{space}circle")] == ["195", "140"]
    assert [path.get("d") for path in drawn.iter(f"{space}path")][1:] == ["M173 13H217", "M140 39H250"]
    assert {text.text for text in drawn.iter(f"{space}text")} >= {"0.750", "0.5 chance", "the words alone"}


def test_a_count_is_seen_in_place() -> None:
    markdown = draw_share_bar_markdown("documents that stand out", 3, 1200)
    assert len(markdown) < IN_PLACE
    assert markdown.startswith(f"![3 of {count(1200)} documents that stand out](")
    bars = [path.get("d") for path in svg_of(markdown).iter("{http://www.w3.org/2000/svg}path")]
    assert bars == ["M0 5h300v12h-300z", "M0 5h1v12h-1z"]
