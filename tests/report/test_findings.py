"""Findings in the report: a shelf of twenty books, and a labelled benchmark."""

from __future__ import annotations

import html as html_module
import re
from datetime import datetime
from pathlib import Path

import pytest
from made_data_folder import DAY, Folder

from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.report.files import build_reports
from audit_pipeline.report.number_format import format_interval, format_percent, format_probability
from audit_pipeline.report.page_data import read_conclusions
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.warehouse.query import query_warehouse

from .made_findings import BOOKS, HOSTILE, MODEL, OLDER, SHELF, TEXTS, write_everything, write_shelf
from .written import Page, Said, Written, written

pytestmark = pytest.mark.usefixtures("quick_audits")


@pytest.fixture(scope="module")
def found(quick_audits: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Written, Path]:
    folder = Folder(DataPaths(tmp_path_factory.mktemp("findings") / "data"))
    write_everything(folder)
    return written(folder), folder.paths.warehouse


def section_of(report: Said, benchmark: str) -> Said:
    (section,) = [one for one in report.evidence if one.benchmark == benchmark]
    return section


def section_html(page: Page, section: Said) -> str:
    start = page.html.index(f'<article id="finding-{section.number}">')
    return page.html[start : page.html.index("</article>", start)]


def test_documents_decide_the_answer_of_the_shelf(found: tuple[Written, Path]) -> None:
    reports, warehouse = found
    answer = next(one for one in reports.reports[MODEL].answers if one.benchmark == SHELF)
    assert (answer.sides, answer.outcome, answer.claim_level) == (
        "audited against held-out",
        "documents_stand_out",
        "screening only",
    )
    assert answer.headline == "4 of 20 documents score high: worth a closer look."
    assert answer.documents
    (row,) = query_warehouse(
        warehouse,
        "SELECT count(*) FILTER (q_bh <= 0.05) AS out, count(*) AS tested FROM current_group_tests"
        f" WHERE detector = 'min_k_plus_plus' AND benchmark = '{SHELF}'",
    ).to_pylist()
    assert (answer.documents.standing_out, answer.documents.tested) == (row["out"], row["tested"]) == (4, 20)
    assert answer.documents.flagged is None, "no share of a threshold that is not certified"
    text = reports.pages[MODEL].text
    assert "Documents with high scores (q ≤ 0.05) 4 of 20" in text
    assert "60.0% [45.0, 80.0]" not in text[: text.index("Instrument check.")]


def test_every_book_is_listed_with_its_numbers(found: tuple[Written, Path]) -> None:
    reports, warehouse = found
    section = section_of(reports.reports[MODEL], SHELF)
    text = Page(f"<div>{section_html(reports.pages[MODEL], section)}</article></div>").text
    (shelf,) = section.shelf
    assert {document.name for document in shelf.documents} == {
        book[:299] + "…" if len(book) > 300 else book for book in BOOKS
    }
    p_values = [document.p_value for document in shelf.documents]
    assert p_values == sorted(p_values, key=lambda p: p or 0.0)
    rows = query_warehouse(
        warehouse,
        f"FROM book_contamination WHERE detector = 'min_k_plus_plus' AND unit = 'group' AND rule = 'marginal'"
        f" AND benchmark = '{SHELF}'",
    ).to_pylist()
    assert len(rows) == len(BOOKS)
    for row in rows:
        p_and_q = " ".join(format_probability(row[name]) for name in ("p_value", "q_bh", "q_by", "q_ledger"))
        ends = format_interval([row["flagged_low"], row["flagged_high"]], rate=True)
        numbers = f"6 {p_and_q} {format_percent(row['flagged'])} {ends} "
        assert numbers + ("refused" if row["status"] == "refused" else format_percent(row["corrected"])) in text
    alone = "For a single document to score high, it has to be compared with 399 calibration documents"
    assert f"{alone}; it is compared with 300." in text


def test_comparisons_with_held_out_texts_are_marked(found: tuple[Written, Path]) -> None:
    reports, _ = found
    page = reports.pages[MODEL]
    section = section_of(reports.reports[MODEL], SHELF)
    text = section_html(page, section)
    assert section.sides == "audited against held-out"
    assert "Nobody knows which of the audited texts the model has read." in text
    assert "Texts: audited + held-out with a score." in text
    labelled = section_html(page, section_of(reports.reports[MODEL], "notes_32"))
    assert "Nobody knows which" not in labelled
    assert section.smallest_fpr == pytest.approx(1 / 300), "300 held-out books"
    assert [len(curve.fpr) > 10 for curve in section.curves] == [True] * 4


def test_decisions_comparisons_and_checks(found: tuple[Written, Path]) -> None:
    reports, _ = found
    section = section_of(reports.reports[MODEL], "notes_32")
    text = Page(f"<div>{section_html(reports.pages[MODEL], section)}</article></div>").text
    assert [row.detector for row in section.decisions][:2] == ["min_k_plus_plus"] * 2, "the headline detector is first"
    assert "marginal: aimed at on average 5% 4.0% [1.0, 10.0] 30.0% [20.0, 40.0] 1.5" in text
    assert (
        "5% refused: 59 calibration groups are needed for 5%, there are 12 12 groups of non-members; 6 + 6 texts"
        in text
    )
    assert "+0.040 [+0.010, +0.070] 0.011 0.004 48 12" in text
    assert "blind control +0.040" in text
    assert "marginal: aimed at on average 5% 4.8% 0.2% 40.0% 200 12" in text
    assert "1% refused: too few groups 200 12" in text


def test_tests_of_whole_sets(found: tuple[Written, Path]) -> None:
    reports, _ = found
    for name in (MODEL, "across"):
        text = reports.pages[name].text
        assert "dataset inference screening only 0.012 2 2.25 120 300" in text
        assert "No p-value: no held-out texts of the same distribution are named" in text
    assert reports.reports[OLDER].corpus_tests == []


def test_older_models_are_compared(found: tuple[Written, Path]) -> None:
    reports, _ = found
    rows = reports.reports[MODEL].older_models
    assert {(row.older_model, str(row.older_released)) for row in rows} == {(OLDER, "2018-01-01")}
    assert {row.benchmark for row in rows} == {"notes_32", "speeches_64"}
    assert all(row.auroc.value is not None and row.older_auroc.value is not None for row in rows)
    assert "Older-model control" in reports.pages[MODEL].text
    assert reports.reports[OLDER].older_models == []
    timeline = [(one.benchmark, one.model) for one in reports.reports["across"].timeline]
    assert timeline == [(name, model) for name in ("notes_32", "speeches_64") for model in (OLDER, MODEL)]


def test_tokens_that_count_are_underlined(found: tuple[Written, Path]) -> None:
    reports, warehouse = found
    section = section_of(reports.reports[MODEL], SHELF)
    quotes = re.findall(r"<blockquote[^>]*>(.*?)</blockquote>", section_html(reports.pages[MODEL], section), re.DOTALL)
    rows = query_warehouse(warehouse, f"FROM current_highlights WHERE benchmark = '{SHELF}' ORDER BY place").to_pylist()
    assert len(quotes) == len(rows) == len(section.texts)
    for quote, row, highlight in zip(quotes, rows, section.texts, strict=True):
        assert [token.text for token in highlight.tokens] == row["pieces"]
        plain = html_module.unescape(re.sub(r"<.*?>", "", quote))
        assert plain == "".join(row["pieces"]), "nothing is added between two tokens"
        underlined = [html_module.unescape(re.sub(r"<.*?>", "", one)) for one in re.findall(r"<u>.*?</u>", quote)]
        assert underlined == [p for p, counted in zip(row["pieces"], row["counted"], strict=True) if counted]
    levels = {
        float(title.replace("\u2212", "-")): int(level)
        for level, title in re.findall(r'<span class="h(\d)" title="(.*?)">', "".join(quotes))
    }
    in_order = [levels[value] for value in sorted(levels)]
    assert in_order == sorted(in_order)
    assert set(in_order) == {0, 1, 2, 3, 4}
    assert '<blockquote dir="auto" lang="ar">' in reports.pages[MODEL].html


def test_pieces_of_highlights_and_names_of_books_are_escaped(found: tuple[Written, Path]) -> None:
    reports, _ = found
    for page in reports.pages.values():
        assert "<script" not in page.html
        assert "<img" not in page.html
        assert "{{" not in page.html.replace("{{ 7 * 7 }}", "")
    text = reports.pages[MODEL].text
    for words in (HOSTILE, *TEXTS):
        assert " ".join(words.split()) in text
    assert "not-<there>" in reports.pages["across"].text


def test_without_text_no_piece_of_a_highlight_is_left(tmp_path: Path) -> None:
    folder = Folder(DataPaths(tmp_path / "data"))
    write_shelf(folder)
    assert build_warehouse(folder.paths).left_out == (), "the fixture is a whole warehouse"
    reports = Written(build_reports(folder.paths.warehouse, folder.paths.reports, include_text=False))
    assert "Highest scores" not in reports.pages[MODEL].text
    for path in reports.paths.values():
        for file in (path, path.with_suffix(".json")):
            assert "onerror" not in file.read_text(encoding="utf-8")


def test_too_few_books_to_compare_with(tmp_path: Path) -> None:
    folder = Folder(DataPaths(tmp_path / "data"))
    write_shelf(folder, held_out=12)
    answer = read_conclusions(build_warehouse(folder.paths).path, MODEL).answers[SHELF]
    assert answer["outcome"] == "texts_differ"
    assert "Each of 20 documents was compared with 12 held-out documents" in answer["explanation"]


def test_the_report_joins_what_the_warehouse_joins(found: tuple[Written, Path]) -> None:
    """Every stage of every pair has its cost, and every table behind a section its lineage entry."""
    reports, _ = found
    report = reports.reports[MODEL]
    assert {cost.benchmark for cost in report.costs} == {SHELF, "notes_32", "speeches_64"}
    tables = {entry.table for entry in report.lineage}
    assert {"group_tests", "contamination_rates", "decisions", "highlights", "corpus_tests", "evaluations"} <= tables
    assert section_of(report, SHELF).ledger
    assert datetime.fromisoformat(report.first_screen[0].last_audited) > DAY
