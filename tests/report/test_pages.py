"""The reports show what the warehouse holds, load nothing, and take any text for what it is: text."""

from __future__ import annotations

import re
import shutil
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import duckdb
import pytest
from made_data_folder import BENCHMARKS, DAY, MODELS, Folder, write_config

from audit_pipeline.errors import DataError
from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.report import files as report_module
from audit_pipeline.report import page_data, pair_results
from audit_pipeline.report.files import GLOSSARY, build_reports, json_copy_path
from audit_pipeline.report.number_format import format_interval, format_number, format_signed
from audit_pipeline.report.page_data import query_rows
from audit_pipeline.report.section_data import flatten_json
from audit_pipeline.store.files import read_json, write_json
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import Pair
from audit_pipeline.warehouse.query import open_read_only, query_warehouse

from .written import Page, Written, reports_of, written

pytestmark = pytest.mark.usefixtures("quick_audits")

SCRIPT = "<script>alert('text')</script> <img src=x onerror=alert(1)>"
MAX_GRID_MODELS, MAX_LISTED, TOP_TEXTS = 60, 100, 10
"""As the queries of the sections say."""
TINY, SMALL = MODELS


def test_a_page_a_model_and_one_across(warehouse: Path, reports: Written) -> None:
    (counted,) = query_warehouse(
        warehouse,
        "SELECT (SELECT count(*) FROM leaderboard) AS findings,"
        " (SELECT count(DISTINCT (model, benchmark)) FROM current_scores) AS pairs",
    ).to_pylist()
    summary = reports.summary
    assert (summary.findings, summary.pairs) == (counted["findings"], counted["pairs"]) == (16, 4)
    assert (summary.models, summary.benchmarks, summary.written) == (len(MODELS), len(BENCHMARKS), 3)
    assert summary.bytes == summary.path.stat().st_size
    assert set(summary.pages) == set(MODELS)
    names = {name for path in reports.paths.values() for name in (path.name, json_copy_path(path).name)}
    assert {path.name for path in summary.path.parent.iterdir()} == {*names, GLOSSARY}
    assert reports.pages["across"].having("class").count("finding") == 4
    assert [reports.pages[model].having("class").count("finding") for model in MODELS] == [2, 2]


def test_pages_do_not_depend_on_the_groups_in_which_they_are_read(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_results, "max_sections_per_model", lambda n_models: 2)

    def read_pages(max_pairs_of_group: int) -> dict[str, object]:
        monkeypatch.setattr(pair_results, "MAX_PICTURED", max_pairs_of_group)
        with open_read_only(warehouse) as connection:
            page_data.prepare_connection(connection)
            site = page_data.read_site(connection)
            pages = page_data.iterate_model_pages(connection, site, include_text=True)
            return {model: report_module.page_as_json(page) for model, page in pages}

    together = read_pages(1000)
    assert set(together) == set(MODELS)
    assert read_pages(2) == together


def test_every_number_of_the_leaderboard_is_shown(warehouse: Path, reports: Written) -> None:
    for row in query_warehouse(warehouse, "FROM leaderboard").to_pylist():
        text = reports.pages[row["model"]].text
        assert f"{format_number(row['auroc'])} {format_interval([row['auroc_low'], row['auroc_high']])}" in text
        assert format_signed(row["margin"]) in text


def test_every_answer_leads_to_its_lineage_entry(reports: Written) -> None:
    for name, report in reports.reports.items():
        entries = {entry.number: entry for entry in report.lineage}
        for answer in report.answers:
            assert answer.lineage is not None
            entry = entries[answer.lineage]
            assert (entry.table, entry.partition) == ("evaluations", f"{answer.benchmark}|{answer.model}")
            assert f'<tr id="lineage-{entry.number}">' in reports.pages[name].html
    text = reports.pages[TINY].text
    for fact in ("again-notes", "code version 1", "f" * 40, "t" * 40, "2.13.0", "2026-03-02 09:00:00 UTC"):
        assert fact in text


def test_links_have_a_target(reports: Written) -> None:
    files = {GLOSSARY, *(path.name for path in reports.paths.values())}
    for page in reports.pages.values():
        targets = page.having("id")
        assert len(targets) == len(set(targets))
        links = page.having("href")
        assert links
        assert {link.removeprefix("#") for link in links if link.startswith("#")} <= set(targets)
        assert {unquote(link) for link in links if not link.startswith("#")} <= files
        assert set(page.having("aria-labelledby")) <= set(targets)
    assert {unquote(link) for link in reports.pages["across"].having("href")} >= files - {reports.summary.path.name}


def test_the_pages_load_nothing_and_say_so(reports: Written) -> None:
    for page in reports.pages.values():
        assert {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object", "embed", "img", "base"} == set()
        assert page.having("src") == []
        assert not re.search(r"@import|url\(\s*['\"]?(?!#)", page.html)
        assert not any("://" in link or link.startswith("//") for link in page.having("href"))
        assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
        (policy,) = [
            attributes["content"] for _, attributes in page.tags if "http-equiv" in attributes and attributes["content"]
        ]
        assert "default-src 'none'" in policy
        assert "script-src" not in policy


def test_what_everybody_can_read(reports: Written) -> None:
    for page in reports.pages.values():
        tags = page.tags
        assert ("html", {"lang": "en"}) in tags
        assert {"href": "#main", "class": "skip"} in [attributes for tag, attributes in tags if tag == "a"]
        assert all(attributes.get("scope") in {"col", "row"} for tag, attributes in tags if tag == "th")
        assert all(attributes.get("aria-label") for tag, attributes in tags if tag == "svg")
        assert sum(tag == "svg" for tag, _ in tags) <= page.html.count("<svg role=")
        # What can only be scrolled can be reached by keyboard, and says what it is.
        regions = [attributes for _, attributes in tags if attributes.get("role") == "region"]
        assert regions
        assert all(region.get("tabindex") == "0" and region.get("aria-label") for region in regions)
        headings = [int(tag[1]) for tag, _ in tags if re.fullmatch(r"h[1-6]", tag)]
        assert (headings[0], headings.count(1)) == (1, 1)
        assert all(after <= before + 1 for before, after in pairwise(headings)), "no level is left out"
        assert all(attributes.get("aria-label") for _, attributes in tags if attributes.get("role") == "img")


def test_what_was_audited_and_on_what(reports: Written) -> None:
    text = reports.pages[TINY].text
    for words in ("float32", "<|endoftext|>", "2024-11-01", "134,515,008", "not known"):
        assert words in text
    for words in ("made-up notes, old against new", "2022-01-01", "BSD-3-Clause", "near duplicates not passed"):
        assert words in text
    assert "small <2b> $x$" in reports.pages[SMALL].text
    assert "corpus-audit audit --model 'small <2b> $x$' --benchmark notes_32" in reports.pages[SMALL].text


def test_a_word_that_no_report_may_use(reports: Written) -> None:
    for path in reports.paths.values():
        for file in (path, json_copy_path(path)):
            text = file.read_text(encoding="utf-8").lower()
            assert "prove" not in text
            assert "proof" not in text


def test_pictures_settings_and_texts_without_score(reports: Written) -> None:
    for model in MODELS:
        page = reports.pages[model]
        assert sum(tag == "svg" for tag, _ in page.tags) == 2 * (2 + 4), "two of ROC curves, one of each detector"
        assert sum(tag == "desc" for tag, _ in page.tags) == 2 * (2 + 4)
        assert page.text.count("Every setting of the detectors that have one (20 rows)") == 2
        assert page.text.count("k=0.2 ●") == 2 * 2
        assert page.text.count("zlib not applicable 1 the text has no bytes to compress") == 2


def test_the_highest_scores_are_quoted(warehouse: Path, reports: Written) -> None:
    top = query_warehouse(
        warehouse,
        "SELECT model, excerpt FROM scores_with_examples WHERE detector = 'min_k_plus_plus'"
        """ AND parameters = '{"k":0.2}' AND split = 'evaluation' AND status = 'ok'"""
        f" QUALIFY row_number() OVER (PARTITION BY model, benchmark ORDER BY score DESC) <= {TOP_TEXTS}",
    ).to_pylist()
    assert len(top) == 4 * TOP_TEXTS
    assert all(row["excerpt"] in reports.pages[row["model"]].text for row in top)


def test_page_and_json_copy_say_the_same(reports: Written) -> None:
    for name, report in reports.reports.items():
        text = reports.pages[name].text
        for answer in report.answers:
            assert answer.headline in text
            assert answer.auroc
            assert format_number(answer.auroc.value) in text
        for finding in report.evidence:
            for auroc in (detector.auroc for detector in finding.detectors):
                assert f"{format_number(auroc.value)} {format_interval([auroc.low, auroc.high])}" in text
        assert report.first_screen[0].summary in text
        assert all(limit.text in text for limit in report.limits)
        assert all(command in text for command in report.manifest[0].commands)


def test_audited_text_and_names_are_escaped_and_there_is_none_where_none_is_asked_for(folder: Folder) -> None:
    folder.write_documents("notes")
    folder.write_card(SMALL)
    folder.write_examples("notes_32", [f"{index} {SCRIPT}" for index in range(60)])
    folder.write_audit("notes_32", SMALL, "run<script>", DAY)
    pages = written(folder).pages
    for page in pages.values():
        assert "<script" not in page.html
        assert "<img" not in page.html
        assert "<2b>" not in page.html
        assert "run<script>" in page.text
    assert SCRIPT in pages[SMALL].text
    found = reports_of(folder, include_text=False)
    for name, page in found.pages.items():
        assert "alert" not in page.html
        assert "alert" not in json_copy_path(found.paths[name]).read_text(encoding="utf-8")
        assert "Highest scores" not in page.html
        assert not found.reports[name].includes_text


def test_nothing_is_written_that_has_not_changed_and_the_page_of_a_model_that_is_gone_goes_too(audited: Folder) -> None:
    first = written(audited)
    before = {name: path.stat().st_mtime_ns for name, path in first.paths.items()}
    assert reports_of(audited).summary.written == 0
    assert {name: path.stat().st_mtime_ns for name, path in first.paths.items()} == before
    audited.write_audit("notes_32", SMALL, "run-new", DAY + timedelta(days=9), signal=2.0)
    assert written(audited).summary.written == 2, "the page of the model, and the one across"
    assert first.paths[TINY].stat().st_mtime_ns == before[TINY]
    gone = first.paths[SMALL]
    json_copy_path(first.paths[TINY]).unlink()
    json_copy_path(gone).write_text("[1, {", encoding="utf-8")
    assert reports_of(audited).summary.written == 2

    other = audited.paths.reports / "notes.html"
    other.write_text("mine", encoding="utf-8")
    for table in ("scores", "evaluations"):
        for file in audited.paths.table(table).rglob("*.parquet"):
            if "small" in file.parent.name:
                file.unlink()
    assert set(written(audited).summary.pages) == {TINY}
    assert not gone.exists()
    assert not json_copy_path(gone).exists()
    assert other.exists()


def test_what_changed_is_told(reports: Written) -> None:
    changes = [change for change in reports.reports[TINY].changes[0].findings if change.detector == "min_k_plus_plus"]
    assert [(change.benchmark, change.change) for change in changes] == [("notes_32", "changed")]
    assert changes[0].before.value != changes[0].now.value
    text = reports.pages[TINY].text
    assert format_number(changes[0].before.value) in text
    assert "Nothing: no pair was audited twice" in reports.pages[SMALL].text


def test_nothing_was_left_out(reports: Written) -> None:
    page = reports.pages["across"]
    assert 'id="instrument"' not in page.html
    assert "The instrument has not been checked here" in page.html
    assert (
        "What was not audited Nothing: 2 models on 2 benchmarks, 4 pairs in all, are done, and what the findings"
        " rest on has not changed since."
    ) in page.text
    assert "coverage-grid" not in page.html.split("<body>")[1]
    assert "coverage" in page.having("id")


def test_what_was_not_audited(audited: Folder) -> None:
    audited.write_outcome(Pair("notes_32", TINY), "r<7>", "failed", f"it said {SCRIPT}")
    audited.write_outcome(Pair("speeches_64", "new <b>"), "r8", "not_applicable", "there is no such model", "scores")
    audited.change_manifest("speeches_64", digest="of another build")
    found = written(audited)
    page = found.pages["across"]
    assert "<script" not in page.html
    assert "<img" not in page.html
    assert "<7>" not in page.html
    for count in (
        "failed 1 of 5 pairs: ",
        "not applicable 1 of 5 pairs: ",
        "stale 2 of 5 pairs: ",
        "done 1 of 5 pairs",
    ):
        assert count in page.text
    html = page.html.split("<body>")[1]
    grid = html[html.index('id="coverage-grid"') : html.index('id="coverage-list"')]
    assert Page(f"{grid[grid.index('<table>') : grid.index('</table>')]}</table>").text == (
        "Model notes_32 speeches_64 new <b> – not applicable small <2b> $x$ done stale tiny-125m failed stale"
    )
    assert re.findall(r'<td class="(\w+)">', grid) == ["quiet", "not_applicable", "done", "stale", "failed", "stale"]
    for told in (
        f"tiny-125m notes_32 failed it said {SCRIPT} at token statistics, 2026-03-03 09:00:00 UTC 2026-03-02 r<7>",
        "new <b> speeches_64 not in the configuration not applicable there is no such model at scores, "
        "2026-03-03 09:00:00 UTC never r8",
        "tiny-125m speeches_64 stale the benchmark was rebuilt 2026-03-01 run-0-speeches_64",
    ):
        assert told in page.text
    assert "of an earlier build: audit again" in page.text
    (own,) = found.reports[TINY].coverage
    assert (own.pairs, {row.model for row in own.not_done}) == (2, {TINY})


def test_a_grid_of_the_largest_size_is_shown(folder: Folder, tmp_path: Path) -> None:
    models = [f"model-{number}" for number in range(MAX_GRID_MODELS)]
    build_warehouse(folder.paths, config=write_config(tmp_path / "config", models))
    assert 'id="coverage-grid"' in reports_of(folder).pages["across"].html


def test_a_large_grid_is_left_to_sql_and_a_long_list_is_cut(folder: Folder, tmp_path: Path) -> None:
    models = [f"model-{number}" for number in range(MAX_GRID_MODELS + 1)]
    build_warehouse(folder.paths, config=write_config(tmp_path / "config", models))
    page = reports_of(folder).pages["across"]
    html = page.html
    assert 'id="coverage-grid"' not in html
    assert "61 models on 2 benchmarks are too many for a grid here" in page.text
    assert "missing 122 of 122 pairs: the pair is to be audited, but no run has audited it yet" in page.text
    listed = html[html.index('id="coverage-list"') :]
    assert listed[: listed.index("</table>")].count("it has not been built") == MAX_LISTED
    assert f'And {122 - MAX_LISTED} more: corpus-audit sql "FROM not_audited" lists them all.' in page.text


def test_nothing_audited_and_nothing_configured(folder: Folder, tmp_path: Path) -> None:
    build_warehouse(folder.paths, config=tmp_path / "nowhere")
    found = reports_of(folder)
    summary, page = found.summary, found.pages["across"]
    assert (summary.models, summary.benchmarks, summary.findings) == (0, 0, 0)
    assert "Nothing has been audited yet." in page.text
    assert "What was not audited" not in page.text
    assert "corpus-audit audit --model smollm2-135m --benchmark release_notes" in page.text
    links = {link.removeprefix("#") for link in page.having("href")}
    assert links - {"glossary.html"} <= set(page.having("id"))


def test_a_blind_control_that_was_not_read(folder: Folder) -> None:
    folder.write_examples("notes_32")
    folder.write_audit("notes_32", TINY, "run", DAY, blind=None)
    found = written(folder)
    page = found.pages[TINY]
    assert "– not computed" in page.text
    assert "No blind control to compare them with: not read: 60 texts, 200 needed." in page.text
    across = found.pages["across"]
    assert "splits" not in across.having("id"), "no split was assessed"
    assert "strongest:" not in across.text


def test_scores_without_evaluations(folder: Folder) -> None:
    folder.write_examples("notes_32")
    folder.write_audit("notes_32", TINY, "run", DAY)
    for file in folder.paths.table("evaluations").rglob("*.parquet"):
        file.unlink()
    found = written(folder)
    assert (found.summary.pairs, found.summary.findings) == (1, 0)
    page = found.pages[TINY]
    assert "No conclusion: there is nothing to compare the scores with." in page.text
    assert "Scored, not evaluated:" in page.text
    assert "By min_k_plus_plus (k=0.2), calibration texts left out" in page.text


def test_damaged_files_are_pointed_out(audited: Folder) -> None:
    file = audited.paths.run_file("evaluations", "speeches_64|tiny-125m", "run-0-speeches_64")
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    found = written(audited)
    assert found.summary.lineage_gaps == 1
    for name, gaps in (("across", 1), (TINY, 1), (SMALL, 0)):
        told = "1 partition is not as written: a file is damaged" in found.pages[name].text
        assert told == bool(gaps)
        assert [answer.lineage for answer in found.reports[name].answers].count(None) == gaps


def test_a_missing_warehouse_leaves_the_old_reports(tmp_path: Path) -> None:
    out = tmp_path / report_module.ACROSS
    out.write_text("old", encoding="utf-8")
    for missing in (DataPaths(tmp_path).warehouse, tmp_path / "x"):
        with pytest.raises(DataError, match=r"warehouse .* does not exist yet"):
            build_reports(missing, tmp_path)
    assert out.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [out]


def test_a_warehouse_of_another_version_is_named(warehouse: Path, tmp_path: Path) -> None:
    old = tmp_path / "audit.duckdb"
    shutil.copy(warehouse, old)
    with duckdb.connect(str(old)) as connection:
        connection.execute("DROP VIEW leaderboard")
    with pytest.raises(DataError, match="built by another version"):
        build_reports(old, tmp_path / "reports")


def test_a_page_that_cannot_be_written_is_named(warehouse: Path, tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("a file where a folder should be", encoding="utf-8")
    with pytest.raises(DataError, match=r"the report .* cannot be written"):
        build_reports(warehouse, tmp_path / "reports")


def test_the_splits_of_every_audited_benchmark(reports: Written) -> None:
    page = reports.pages["across"]
    assert page.having("class").count("split") == len(BENCHMARKS)
    assert "splits" in page.having("id")
    for words in (
        *("0.512 [0.432, 0.582]", "0.876 [0.796, 0.946] the strongest", "11.1% of 7 words 2.2% of 13 words"),
        *("5.5% members 6.6% non-members", "words: not read: 48 texts, 200 needed", "strongest: dates 0.876"),
    ):
        assert words in page.text
    assert "0.077" not in page.text
    assert "matched sides" not in page.text


def test_what_matching_achieved_is_told(audited: Folder) -> None:
    manifest = audited.paths.benchmark_manifest("notes_32")
    measured = {"ci_low": 0.9, "ci_high": 0.95, "n": 777, "method": "made up"}
    achieved = {
        "before": {"blind_auroc": 0.927, **measured},
        "after": {"blind_auroc": None, **measured, "ci_low": None},
    }
    write_json(manifest, {**read_json(manifest), "matched": {"per_side": 24, "achieved": achieved}})
    page = written(audited).pages["across"]
    assert "matched sides" in page.text
    assert "notes_32: what matching the sides achieved" in page.text
    assert "before 0.927 [0.900, 0.950] 777" in page.text
    assert "matched › achieved" not in page.text, "it is told once"


def test_flattened() -> None:
    value = {"a": {"b": 1, "c": [1, 2]}, "d": None, "e": "", "f": [{"g": True}, {"g": False}], "h": [], "i": 0}
    assert flatten_json(value) == [
        ("a › b", "1"),
        ("a › c", "1, 2"),
        ("f › 1 › g", "yes"),
        ("f › 2 › g", "no"),
        ("i", "0"),
    ]


def test_no_number_that_json_has_no_word_for() -> None:
    with duckdb.connect() as connection:
        (row,) = query_rows(
            connection, "SELECT 'nan'::DOUBLE AS a, ['inf'::DOUBLE, 1] AS b, {'c': '-inf'::DOUBLE} AS d"
        )
    assert row == {"a": None, "b": [None, 1.0], "d": {"c": None}}
