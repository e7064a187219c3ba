"""The answer that the Dagster UI shows of a pair: the report's own words, and a picture that is seen in place."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from audit_pipeline.catalogue import store
from audit_pipeline.catalogue.contracts import PAIR_ANSWERS, Pair
from audit_pipeline.catalogue.lineage import latest_run
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.operate.stages.evaluations import answer_missing
from audit_pipeline.report.inline_picture import IN_PLACE, axis_markdown, counted_markdown
from audit_pipeline.report.kinds import KINDS
from audit_pipeline.report.numbers import count
from audit_pipeline.report.vocabulary import Estimate

from .four_cases import MODEL_TITLE, NOTES, written_case
from .made_findings import MODEL, SHELF
from .written import Written


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("case", "benchmark", "run"),
    [
        ("nothing_found", NOTES, "run-evaluations"),
        ("separable", NOTES, "run-evaluations"),
        ("books_stand_out", SHELF, "run-shelf"),
    ],
)
def test_findings_without_an_answer_get_the_one_that_the_report_shows(
    case: str, benchmark: str, run: str, tmp_path: Path
) -> None:
    (shown,) = Written(written_case(case, tmp_path)).reports[MODEL].answers
    paths, pair = DataPaths(tmp_path / "data"), Pair(benchmark, MODEL)
    (stored,) = store.read(paths, PAIR_ANSWERS, pair, run_id=f"answer-{run}", what="the answer").to_pylist()
    for column in ("outcome", "sign", "headline", "explanation", "question", "how_sure", "what_would_change"):
        assert stored[column] == shown[column]
    assert MODEL_TITLE in stored["question"]
    assert stored["sign"] == KINDS[stored["outcome"]].sign
    before = latest_run(paths, PAIR_ANSWERS.name, pair.partition)
    answer_missing(paths, tmp_path / "config")
    assert latest_run(paths, PAIR_ANSWERS.name, pair.partition) == before, "what has an answer keeps it"


def svg_of(markdown: str) -> ET.Element:
    image = re.fullmatch(r"!\[[^\]]+\]\(data:image/svg\+xml;base64,([\w+/=]+)\)", markdown)
    assert image is not None
    return ET.fromstring(base64.b64decode(image[1]))


def test_an_axis_is_seen_in_place() -> None:
    markdown = axis_markdown(
        [("the detector", Estimate(0.75, 0.65, 0.85)), ("the words alone", Estimate(0.5, 0.5, 1.2))]
    )
    assert len(markdown) < IN_PLACE, "else there is a link in its place"
    assert markdown.startswith("![AUROC: the detector 0.750; the words alone 0.500; chance 0.5](")
    drawn = svg_of(markdown)
    space = "{http://www.w3.org/2000/svg}"
    # From 0.3 at 120 to 1 at 340: 0.75 is at 120 + 220 * 0.45 / 0.7.
    assert [dot.get("cx") for dot in drawn.iter(f"{space}circle")] == ["261", "183"]
    assert [path.get("d") for path in drawn.iter(f"{space}path")][1:] == ["M230 13H293", "M183 39H340"]
    assert {text.text for text in drawn.iter(f"{space}text")} >= {"0.750", "0.5 chance", "the words alone"}


def test_a_count_is_seen_in_place() -> None:
    markdown = counted_markdown("documents that stand out", 3, 1200)
    assert len(markdown) < IN_PLACE
    assert markdown.startswith(f"![3 of {count(1200)} documents that stand out](")
    bars = [path.get("d") for path in svg_of(markdown).iter("{http://www.w3.org/2000/svg}path")]
    assert bars == ["M0 5h220v12h-220z", "M0 5h1v12h-1z"]
