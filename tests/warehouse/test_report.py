"""The report shows what the warehouse holds, loads nothing, and takes any text for what it is: text."""

from __future__ import annotations

import re
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest

from audit_pipeline.errors import DataError
from audit_pipeline.evaluation import blind_control
from audit_pipeline.evaluation.claims import CLAIM_IN_WORDS, VERDICT_IN_WORDS
from audit_pipeline.paths import DataPaths
from audit_pipeline.tables import read_json, write_json
from audit_pipeline.warehouse.build import build_warehouse
from audit_pipeline.warehouse.query import query
from audit_pipeline.warehouse.report import (
    ReportSummary,
    build_report,
    claim_words,
    interval,
    number,
    score,
    setting,
    signed,
)
from audit_pipeline.warehouse.report_coverage import MAX_GRID_MODELS, MAX_LISTED
from audit_pipeline.warehouse.report_data import TOP_EXAMPLES, flattened
from audit_pipeline.warehouse.schema import BLIND_CONTROL

from .conftest import BENCHMARKS, DAY, MODELS, Folder, write_config

SCRIPT = "<script>alert('text')</script> <img src=x onerror=alert(1)>"
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """What a browser would see: tags with attributes, the text outside style, links and their targets."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def having(self, name: str) -> list[str]:
        return [value for _, attributes in self.tags if (value := attributes.get(name)) is not None]


def written(folder: Folder, out: Path, *, include_text: bool = True) -> tuple[str, ReportSummary]:
    build_warehouse(folder.paths)
    summary = build_report(folder.paths.warehouse, out, include_text=include_text)
    return out.read_text(encoding="utf-8"), summary


@pytest.fixture(scope="session")
def summary(warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> ReportSummary:
    return build_report(warehouse, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="session")
def html(summary: ReportSummary) -> str:
    return summary.path.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def page(html: str) -> Page:
    return Page(html)


def test_the_counts_are_those_of_the_warehouse(warehouse: Path, summary: ReportSummary, page: Page) -> None:
    (counted,) = query(
        warehouse,
        "SELECT (SELECT count(*) FROM leaderboard) AS findings,"
        " (SELECT count(DISTINCT (model, benchmark)) FROM current_scores) AS pairs",
    ).to_pylist()
    assert (summary.findings, summary.pairs) == (counted["findings"], counted["pairs"]) == (16, 4)
    assert (summary.models, summary.benchmarks) == (len(MODELS), len(BENCHMARKS))
    assert summary.bytes == summary.path.stat().st_size
    assert page.having("class").count("finding") == 16


def test_every_number_of_the_leaderboard_is_shown(warehouse: Path, page: Page) -> None:
    for row in query(warehouse, "FROM leaderboard").to_pylist():
        assert f"{number(row['auroc'])} {interval([row['auroc_low'], row['auroc_high']])}" in page.text
        assert signed(row["margin"]) in page.text


def test_every_finding_leads_to_its_lineage_entry(warehouse: Path, html: str, page: Page) -> None:
    links = re.findall(r'<tr class="finding">.*?href="#lineage-(\d+)".*?</tr>', html, re.DOTALL)
    assert len(links) == 16
    entries = dict(re.findall(r'id="lineage-(\d+)">\s*<h3>\d+ · (.*?)</h3>', html))
    leaderboard = query(warehouse, "SELECT model, benchmark FROM leaderboard").to_pylist()
    for link, row in zip(links, leaderboard, strict=True):
        model = row["model"].replace("<", "&lt;").replace(">", "&gt;")
        assert entries[link] == f"evaluations · {row['benchmark']}|{model}"
    for fact in ("again-notes", "code version 1", "f" * 40, "t" * 40, "2.13.0", "2026-03-02 09:00:00 UTC"):
        assert fact in page.text


def test_links_inside_the_page_have_a_target(page: Page) -> None:
    targets = page.having("id")
    assert len(targets) == len(set(targets))
    links = page.having("href")
    assert links
    assert {link.removeprefix("#") for link in links} <= set(targets)


def test_the_page_loads_nothing(html: str, page: Page) -> None:
    assert {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object", "embed", "img", "base"} == set()
    assert page.having("src") == []
    assert not re.search(r"@import|url\(\s*['\"]?(?!#)", html)
    assert all(link.startswith("#") for name in ("href", "xlink:href") for link in page.having(name))
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)


def test_what_was_audited_and_on_what(page: Page) -> None:
    for words in ("float32", "<|endoftext|>", "2024-11-01", "134 515 008", "not known", "small <2b> $x$"):
        assert words in page.text
    for words in ("made-up notes, old against new", "2022-01-01", "BSD-3-Clause", "near duplicates not passed"):
        assert words in page.text


def test_levels_and_verdicts_are_told_in_words(page: Page) -> None:
    assert page.text.count(CLAIM_IN_WORDS["screening only"]) == 4
    assert page.text.count(VERDICT_IN_WORDS["undetermined"]) == 4
    assert claim_words("a level of another time") == "a level of another time"
    assert BLIND_CONTROL == blind_control.NAME


def test_a_word_that_no_report_may_use(html: str) -> None:
    assert "prove" not in html.lower()


def test_pictures_grid_and_texts_without_score(html: str, page: Page) -> None:
    assert sum(tag == "svg" for tag, _ in page.tags) == 4 * 3
    assert page.text.count("Every setting of the detectors that have one (20 rows)") == 4
    assert html.count("k=0.2 ●") == 4 * 2
    assert page.text.count("zlib not applicable 1 the text has no bytes to compress") == 4


def test_the_highest_scores_are_quoted(warehouse: Path, page: Page) -> None:
    top = query(
        warehouse,
        "SELECT s.excerpt FROM scores_with_examples s JOIN (SELECT model, benchmark, detector, parameters"
        " FROM leaderboard QUALIFY row_number() OVER (PARTITION BY model, benchmark ORDER BY auroc DESC) = 1) b"
        " USING (model, benchmark, detector, parameters) WHERE split = 'evaluation' AND status = 'ok'"
        f" QUALIFY row_number() OVER (PARTITION BY s.model, s.benchmark ORDER BY score DESC) <= {TOP_EXAMPLES}",
    ).to_pylist()
    assert len(top) == 4 * TOP_EXAMPLES
    assert all(row["excerpt"] in page.text for row in top)


def nasty(folder: Folder) -> Folder:
    folder.write_documents("notes")
    folder.write_card("small <2b> $x$")
    folder.write_examples("notes_32", [f"{index} {SCRIPT}" for index in range(60)])
    folder.write_audit("notes_32", "small <2b> $x$", "run<script>", DAY)
    return folder


def test_audited_text_and_names_are_escaped(folder: Folder, tmp_path: Path) -> None:
    html, _ = written(nasty(folder), tmp_path / "report.html")
    page = Page(html)
    assert "<script" not in html
    assert "<img" not in html
    assert "<2b>" not in html
    assert SCRIPT in page.text
    assert "run<script>" in page.text
    assert "small <2b> $x$ on notes_32" in page.text


def test_no_text_means_no_text(folder: Folder, tmp_path: Path) -> None:
    html, _ = written(nasty(folder), tmp_path / "report.html", include_text=False)
    assert "alert" not in html
    assert "Highest scores" not in html


def test_nothing_was_left_out(html: str, page: Page) -> None:
    assert (
        "What was not audited Nothing: 2 models on 2 benchmarks, 4 pairs in all, are done, and what the findings"
        " rest on has not changed since."
    ) in page.text
    assert "coverage-grid" not in html
    assert "#coverage" in page.having("href")


def test_what_was_not_audited(audited: Folder, tmp_path: Path) -> None:
    audited.write_outcome("notes_32", "tiny-125m", "r<7>", DAY + timedelta(days=2), "failed", f"it said {SCRIPT}")
    audited.write_outcome(
        "speeches_64", "new <b>", "r8", DAY + timedelta(days=2), "not_applicable", "there is no such model", "scores"
    )
    path = audited.paths.benchmark_manifest("speeches_64")
    write_json(path, {**read_json(path), "digest": "of another build"})
    html, _ = written(audited, tmp_path / "report.html")
    page = Page(html)
    assert "<script" not in html
    assert "<img" not in html
    assert "<7>" not in html
    for count in (
        "failed 1 of 5 pairs: ",
        "not applicable 1 of 5 pairs: ",
        "stale 2 of 5 pairs: ",
        "done 1 of 5 pairs",
    ):
        assert count in page.text
    grid = html[html.index('id="coverage-grid"') : html.index('id="coverage-list"')]
    assert Page(f"<div>{grid.split('>', 1)[1].split('</table>')[0]}</div>").text == (
        "Model notes_32 speeches_64 new <b> not asked for not applicable"
        " small <2b> $x$ done stale tiny-125m failed stale"
    )
    assert re.findall(r'<td class="(\w+)">', grid) == ["quiet", "not_applicable", "done", "stale", "failed", "stale"]
    for told in (
        f"failed tiny-125m notes_32 it said {SCRIPT} at token statistics, 2026-03-03 09:00:00 UTC 2026-03-02 r<7>",
        "not applicable new <b> speeches_64 not in the configuration there is no such model at scores, "
        "2026-03-03 09:00:00 UTC never r8",
        "stale tiny-125m speeches_64 the benchmark was rebuilt since 2026-03-01 run-0-speeches_64",
    ):
        assert told in page.text
    links = page.having("href")
    assert {link.removeprefix("#") for link in links} <= set(page.having("id"))


def test_a_large_grid_is_left_to_sql_and_a_long_list_is_cut(folder: Folder, tmp_path: Path) -> None:
    models = [f"model-{number}" for number in range(MAX_GRID_MODELS + 1)]
    out = tmp_path / "report.html"
    build_warehouse(folder.paths, config=write_config(tmp_path / "config", models[:-1]))
    build_report(folder.paths.warehouse, out)
    assert "coverage-grid" in out.read_text(encoding="utf-8")

    build_warehouse(folder.paths, config=write_config(tmp_path / "config", models))
    build_report(folder.paths.warehouse, out)
    html = out.read_text(encoding="utf-8")
    page = Page(html)
    assert "coverage-grid" not in html
    assert "61 models on 2 benchmarks are too many for a grid here" in page.text
    assert "missing 122 of 122 pairs: there is no finding yet" in page.text
    listed = html[html.index('id="coverage-list"') :]
    assert listed[: listed.index("</table>")].count("the benchmark has not been built") == MAX_LISTED
    assert f'And {122 - MAX_LISTED} more: corpus-audit sql "FROM not_audited" lists them all.' in page.text


def test_an_unreadable_configuration_is_told(audited: Folder, tmp_path: Path) -> None:
    build_warehouse(audited.paths, config=tmp_path / "nowhere")
    build_report(audited.paths.warehouse, tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "What should be audited is not known: the configuration named no model or no benchmark" in page.text


def test_nothing_audited_and_nothing_configured(folder: Folder, tmp_path: Path) -> None:
    build_warehouse(folder.paths, config=tmp_path / "nowhere")
    build_report(folder.paths.warehouse, tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "Nothing has been audited yet." in page.text
    assert "What was not audited" not in page.text


def test_nothing_audited_yet(folder: Folder, tmp_path: Path) -> None:
    html, summary = written(folder, tmp_path / "report.html")
    assert (summary.models, summary.benchmarks, summary.findings, summary.lineage_entries) == (0, 0, 0, 0)
    assert "Nothing has been audited yet." in Page(html).text
    assert "corpus-audit audit --model smollm2-135m --benchmark release_notes" in Page(html).text


def test_a_blind_control_that_was_not_read(folder: Folder, tmp_path: Path) -> None:
    folder.write_examples("notes_32")
    folder.write_audit("notes_32", "tiny-125m", "run", DAY, blind=None)
    page = Page(written(folder, tmp_path / "report.html")[0])
    assert "– not read" in page.text
    assert "No blind control to read them against: not read: 60 texts, 200 needed." in page.text


def test_scores_without_evaluations(folder: Folder, tmp_path: Path) -> None:
    folder.write_examples("notes_32")
    folder.write_audit("notes_32", "tiny-125m", "run", DAY)
    for file in folder.paths.table("evaluations").rglob("*.parquet"):
        file.unlink()
    html, summary = written(folder, tmp_path / "report.html")
    assert (summary.pairs, summary.findings) == (1, 0)
    assert "scored, not evaluated" in html
    assert "By loss, calibration texts left out" in Page(html).text


def test_rows_without_lineage_are_pointed_out(audited: Folder, tmp_path: Path) -> None:
    audited.paths.run_file("lineage", "evaluations|speeches_64|tiny-125m", "run-0-speeches_64").unlink()
    html, summary = written(audited, tmp_path / "report.html")
    assert summary.lineage_gaps == 1
    assert "1 partition does not join to exactly one lineage entry." in Page(html).text
    assert html.count("<b>missing</b>") == 4


def test_a_missing_warehouse_leaves_the_old_report(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    out.write_text("old", encoding="utf-8")
    with pytest.raises(DataError, match="there is no warehouse"):
        build_report(DataPaths(tmp_path).warehouse, out)
    assert out.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [out]


def test_flattened() -> None:
    value = {"a": {"b": 1, "c": [1, 2]}, "d": None, "e": "", "f": [{"g": True}, {"g": False}], "h": [], "i": 0}
    assert flattened(value) == [
        ("a › b", "1"),
        ("a › c", "1, 2"),
        ("f › 1 › g", "yes"),
        ("f › 2 › g", "no"),
        ("i", "0"),
    ]


def test_numbers_in_words() -> None:
    assert (number(None), number(float("nan")), number(0.5)) == ("–", "–", "0.500")
    assert (interval([None, 1.0]), interval([0.25, 1.0]), interval([0.25, 1.0], rate=True)) == (
        "",
        "[0.250, 1.000]",
        "[25.0, 100.0]",
    )
    assert (score(-0.01234567), score(123456.0), signed(-0.25), signed(None)) == (
        "−0.01235",
        "1.235e+05",
        "−0.250",
        "–",
    )
    assert (setting("{}"), setting('{"k":0.2,"a":null}')) == ("", "a=None, k=0.2")
