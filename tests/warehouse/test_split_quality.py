"""The quality of the splits in the warehouse and in the report: one row per benchmark, and beside every finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit_pipeline.catalogue.tables import read_json, write_json
from audit_pipeline.report import html as report_html
from audit_pipeline.report.pictures import Pictures
from audit_pipeline.report.write import build_reports
from audit_pipeline.warehouse.build import build_warehouse, lineage_gaps
from audit_pipeline.warehouse.query import open_read_only, query

from .conftest import BENCHMARKS, CONTROLS, DAY, MODELS, Folder
from .test_report import Page


@pytest.fixture(autouse=True)
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without their pictures, which take most of the time."""
    monkeypatch.setattr(report_html, "pictures_of", lambda section: Pictures((), ()))


def page_of(folder: Folder, out: Path) -> Page:
    """The report across models."""
    build_warehouse(folder.paths)
    return Page(build_reports(folder.paths.warehouse, out).path.read_text(encoding="utf-8"))


def test_a_summary_has_one_row_a_benchmark(warehouse: Path) -> None:
    notes, speeches = query(warehouse, "FROM split_summary").to_pylist()
    assert (notes["benchmark"], notes["split_verdict"]) == ("notes_32", "undetermined")
    assert {name: notes[f"{name}_auroc"] for name in CONTROLS["notes_32"]} == CONTROLS["notes_32"]
    assert (notes["worst_control"], notes["worst_control_auroc"]) == ("dates", 0.876)
    assert notes["worst_control_auroc_low"] < 0.876 < notes["worst_control_auroc_high"]
    assert (notes["overlap_7"], notes["overlap_13"], notes["near_duplicate_pairs"]) == (0.111, 0.022, 3)
    assert (notes["other_language_members"], notes["other_language_nonmembers"]) == (0.055, 0.066)
    assert (notes["groups_members"], notes["groups_nonmembers"], notes["uneven_collections"]) == (6, 5, 1)
    assert speeches["worst_control"] is speeches["worst_control_auroc"] is speeches["words_auroc"] is None
    assert speeches["words_method"] == "not read: 48 texts, 200 needed"
    assert notes["is_current"]


def test_the_strongest_control_stands_beside_every_finding_of_the_same_build(audited: Folder) -> None:
    build_warehouse(audited.paths)
    sql = "SELECT DISTINCT benchmark, worst_control, worst_control_auroc FROM leaderboard ORDER BY 1"
    of_build = [("notes_32", "dates", 0.876), ("speeches_64", None, None)]
    assert [tuple(row.values()) for row in query(audited.paths.warehouse, sql).to_pylist()] == of_build
    # Assessed on another build than the one that was audited: nothing is said of it.
    audited.write_split_quality("notes_32", CONTROLS["notes_32"], "run-later", benchmark_digest="another")
    build_warehouse(audited.paths)
    found = [tuple(row.values()) for row in query(audited.paths.warehouse, sql).to_pylist()]
    assert found == [("notes_32", None, None), ("speeches_64", None, None)]
    (row,) = query(audited.paths.warehouse, "FROM split_summary WHERE benchmark = 'notes_32'").to_pylist()
    assert (row["is_current"], row["run_id"]) == (False, "run-later")
    findings = query(audited.paths.warehouse, "SELECT count(*) AS n FROM leaderboard").to_pylist()
    assert findings == [{"n": 16}], "no row is doubled"


def test_every_row_has_its_lineage(audited: Folder) -> None:
    report = build_warehouse(audited.paths)
    assert report.rows["split_quality"] == 16 + 15
    with open_read_only(audited.paths.warehouse) as connection:
        assert lineage_gaps(connection) == []
    audited.paths.run_file("lineage", "split_quality|notes_32", "run-quality").unlink()
    build_warehouse(audited.paths)
    with open_read_only(audited.paths.warehouse) as connection:
        (gap,) = lineage_gaps(connection)
    assert (gap.table, gap.partition, gap.rows, gap.lineage_rows) == ("split_quality", "notes_32", 16, 0)


def test_the_report_shows_every_audited_benchmark(audited: Folder, tmp_path: Path) -> None:
    page = page_of(audited, tmp_path / "reports")
    assert page.having("class").count("split") == len(BENCHMARKS)
    assert "splits" in page.having("id")
    for words in (
        *("0.512 [0.432, 0.582]", "0.876 [0.796, 0.946] the strongest", "11.1% of 7 words 2.2% of 13 words"),
        *("5.5% members 6.6% non-members", "words: not read: 48 texts, 200 needed", "strongest: dates 0.876"),
    ):
        assert words in page.text
    assert "0.077" not in page.text
    assert "matched sides" not in page.text


def test_what_matching_achieved_is_told(audited: Folder, tmp_path: Path) -> None:
    manifest = audited.paths.benchmark_manifest("notes_32")
    measured = {"ci_low": 0.9, "ci_high": 0.95, "n": 777, "method": "made up"}
    achieved = {
        "before": {"blind_auroc": 0.927, **measured},
        "after": {"blind_auroc": None, **measured, "ci_low": None},
    }
    write_json(manifest, {**read_json(manifest), "matched": {"per_side": 24, "achieved": achieved}})
    page = page_of(audited, tmp_path / "reports")
    assert "matched sides" in page.text
    assert "notes_32: what matching the sides achieved" in page.text
    assert "before 0.927 [0.900, 0.950] 777" in page.text
    assert "matched › achieved" not in page.text, "it is told once"


def test_without_any_assessment_there_is_no_section(folder: Folder, tmp_path: Path) -> None:
    folder.write_documents("notes")
    folder.write_examples("notes_32")
    folder.write_audit("notes_32", next(iter(MODELS)), "run", DAY)
    page = page_of(folder, tmp_path / "reports")
    assert "splits" not in page.having("id")
    assert "strongest:" not in page.text
