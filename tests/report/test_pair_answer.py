"""The answer that the Dagster UI shows of a pair: the report's own words, and a picture that is seen in place."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pytest

from audit_pipeline.catalogue.contracts import TABLES
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.tables import read_table
from audit_pipeline.report.inline_picture import IN_PLACE, axis_markdown, counted_markdown
from audit_pipeline.report.known import Estimate
from audit_pipeline.report.numbers import count
from audit_pipeline.report.pair_answer import PairAnswer, answer_of_tables

from .four_cases import MODEL_TITLE, NOTES, NOTES_TITLE, SHELF_TITLE, written_case
from .made_findings import MODEL, SHELF
from .written import Written


def rows_of(paths: DataPaths, table: str, partition: str, run: str) -> pa.Table:
    file = paths.run_file(table, partition, run)
    schema = TABLES[table].schema
    return read_table(file, TABLES[table], what=table) if file.exists() else schema.empty_table()


def answer_in_the_ui(paths: DataPaths, benchmark: str, run: str, **said: str) -> PairAnswer:
    partition = f"{benchmark}|{MODEL}"
    return answer_of_tables(
        {table: rows_of(paths, table, partition, run) for table in ("evaluations", "group_tests")},
        model=MODEL_TITLE,
        benchmark=NOTES_TITLE if benchmark == NOTES else SHELF_TITLE,
        design_stated_by=None,
        has_audited=benchmark == SHELF,
        claim_level="screening only",
        **said,
    )


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("case", "benchmark", "run", "verdict", "design"),
    [
        ("nothing_found", NOTES, "run-evaluations", "mild shift", "temporal"),
        ("separable", NOTES, "run-evaluations", "separable without a model", "temporal"),
        ("books_stand_out", SHELF, "run-shelf", "undetermined", "unlabelled"),
    ],
)
def test_it_is_the_answer_of_the_report(
    case: str, benchmark: str, run: str, verdict: str, design: str, tmp_path: Path
) -> None:
    (told,) = Written(written_case(case, tmp_path)).reports[MODEL].answers
    found = answer_in_the_ui(DataPaths(tmp_path / "data"), benchmark, run, split_verdict=verdict, design=design)
    assert (found.words.outcome, found.words.headline) == (told.outcome, told.headline)
    assert found.words.explanation == told.explanation
    assert found.brief.how_sure == told.how_sure
    assert found.brief.what_would_change == told.what_would_change
    for mine, its in ((found.auroc, told.auroc), (found.blind, told.blind)):
        assert mine is not None
        assert {key: value for key, value in asdict(mine).items() if key != "method"} == {
            key: its[key] for key in ("value", "low", "high")
        }
    picture = found.picture()
    assert picture is not None
    assert len(picture) < IN_PLACE


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
