"""One state per pair: SQL, report, terminal and UI use the same words and counts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from made_data_folder import DAY, MODELS, Folder, make_family, make_searched, make_window, write_config

from assets.warehouse import summarise_warehouse
from audit_pipeline.cli.main_command import COUNTS
from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.report.files import ReportSummary, build_reports, json_copy_path
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import PAIR_STATES, Pair
from audit_pipeline.warehouse.query import query_warehouse

from .conftest import copy_folder

TINY, SMALL = MODELS
NEW, EXPOSED = "new", "exposed"
LATER = DAY + timedelta(days=2)


class Said:
    """A workspace with a pair in every state, and what is said of it everywhere."""

    def __init__(self, paths: DataPaths) -> None:
        self.paths = paths
        self.rebuilt = build_warehouse(self.paths)
        self.summary: ReportSummary = build_reports(self.paths.warehouse, self.paths.reports)
        self.report: Mapping[str, Any] = json.loads(json_copy_path(self.summary.path).read_text(encoding="utf-8"))

    def rows(self, sql: str) -> list[dict[str, Any]]:
        return query_warehouse(self.paths.warehouse, sql).to_pylist()


@pytest.fixture(scope="module")
def said(quick_audits: None, audited_once: Folder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Said]:
    root = tmp_path_factory.mktemp("states")
    audited = copy_folder(audited_once, root / "data")
    families = {"notes": make_family("notes", 32), "speeches": make_family("speeches", 64)}
    on_request = {name: make_family(name, 8, on_request=True) for name in ("famous", "asked")}
    control = {EXPOSED: {"control": {"name": "check", "role": "exposed"}}}
    config = write_config(root / "config", [TINY, SMALL, NEW], control, **families, **on_request)
    audited.write_outcome(Pair("speeches_64", TINY), "run-failed", "failed", "no memory is left")
    audited.write_outcome(Pair("speeches_64", NEW), "run-failed", "failed", "there is no such model")
    found = make_searched(
        "famous:1", make_window(0, 100, 0.9, strength=1), covered=(0.1, 0.1, 0.1, 0.1, 0.1), group="one"
    )
    audited.write_search(Pair("famous_8", TINY), "run-search", LATER, [found])
    audited.write_rows("scores", Pair("notes_32", SMALL), "run-emptied", LATER, [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUS_AUDIT_CONFIG", str(config))
        yield Said(audited.paths)


def test_every_pair_has_one_state(said: Said) -> None:
    found = {(row["model"], row["benchmark"]): row for row in said.rows("FROM coverage")}
    states = {pair: row["status"] for pair, row in found.items()}
    assert states == {
        (TINY, "notes_32"): "done",
        (TINY, "speeches_64"): "failed",
        (TINY, "famous_8"): "done",
        (TINY, "asked_8"): "not_requested",
        (SMALL, "notes_32"): "stale",
        (SMALL, "speeches_64"): "done",
        (SMALL, "famous_8"): "not_requested",
        (SMALL, "asked_8"): "not_requested",
        (NEW, "notes_32"): "missing",
        (NEW, "speeches_64"): "failed",
        (NEW, "famous_8"): "not_requested",
        (NEW, "asked_8"): "not_requested",
        **{(EXPOSED, name): "not_applicable" for name in ("notes_32", "speeches_64", "famous_8", "asked_8")},
    }
    assert {*states.values()} == {*PAIR_STATES}
    assert found[TINY, "speeches_64"]["reason"] == "no memory is left"
    assert found[TINY, "famous_8"]["last_audited_at"] == LATER
    assert found[TINY, "speeches_64"]["has_results"], "those of the run before"
    left = [(row["model"], row["benchmark"], row["status"]) for row in said.rows("FROM not_audited")]
    assert left == [
        (NEW, "speeches_64", "failed"),
        (TINY, "speeches_64", "failed"),
        (SMALL, "notes_32", "stale"),
        (NEW, "notes_32", "missing"),
    ]


def test_sql_report_terminal_and_ui_count_the_same(said: Said) -> None:
    counted = {"models": 2, "benchmarks": 3, "pairs": 5}
    sql = "SELECT count(DISTINCT model) AS models, count(DISTINCT benchmark) AS benchmarks, count(*) AS pairs"
    assert said.rows(f"{sql} FROM coverage WHERE has_results") == [counted]
    [first] = said.report["first_screen"]
    assert {name: first[name] for name in counted} == counted
    assert {name: getattr(said.summary, name) for name in counted} == counted
    [counted_alone] = said.rows(COUNTS)
    assert counted_alone == {"models": 2, "benchmarks": 3}

    states = Counter(row["status"] for row in said.rows("FROM coverage"))
    _, shown = summarise_warehouse(said.rebuilt).tables["pairs"]
    assert {name: pairs for name, pairs, _ in shown} == states
    [coverage] = said.report["coverage"]
    asked = {row["status"]: row["pairs"] for row in coverage["counts"]}
    assert asked == {name: states[name] for name in ("failed", "stale", "missing", "done")}
    assert {row["meaning"] for row in coverage["counts"]} == {PAIR_STATES[name] for name in asked}
    not_done = said.rows("SELECT model, benchmark, status, reason FROM not_audited")
    assert [{name: row[name] for name in not_done[0]} for row in coverage["not_done"]] == not_done


def test_coverage_has_every_pair_of_reports_and_views(said: Said) -> None:
    shown = [
        *((row["model"], row["benchmark"]) for row in said.report["answers"]),
        *((row["model"], row["benchmark"]) for row in said.report["first_screen"][0]["word_for_word"]),
        *((row["model"], row["benchmark"]) for row in said.rows("FROM multiplicity_ledger")),
        *((row["model"], row["benchmark"]) for row in said.rows("FROM attempts")),
        *((row["model"], row["benchmark"]) for row in said.rows("FROM current_runs")),
    ]
    covered = {(row["model"], row["benchmark"]) for row in said.rows("FROM coverage")}
    assert {*shown} <= covered
    assert (TINY, "famous_8") in shown
