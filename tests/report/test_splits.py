"""The quality of the splits in the report: every benchmark, the strongest control, what matching achieved."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit_pipeline.catalogue.files import read_json, write_json
from audit_pipeline.operate.stages.warehouse import build_warehouse
from audit_pipeline.report.files import build_reports
from tests.warehouse.conftest import BENCHMARKS, DAY, MODELS, Folder

from .written import Page

pytestmark = pytest.mark.usefixtures("undrawn")


def page_of(folder: Folder, out: Path) -> Page:
    """The report across models."""
    build_warehouse(folder.paths)
    return Page(build_reports(folder.paths.warehouse, out).path.read_text(encoding="utf-8"))


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
