"""Special cases of pages: mixed labels, another build, no text, cut lists."""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from ledger_lines import explain_files, rewrite_lines
from made_data_folder import DAY, MODELS, Folder

from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.report import page_data as report_page
from audit_pipeline.report.files import build_reports
from audit_pipeline.report.page_data import SectionFiles, list_sections, read_conclusions
from audit_pipeline.statistics.evaluate_options import EvaluateOptions
from audit_pipeline.store.files import read_json, table_from_rows, write_json, write_table
from audit_pipeline.tables import SCORES, digest
from audit_pipeline.warehouse.query import query_warehouse

from .made_findings import (
    BOOKS,
    LATER,
    MODEL,
    NOTES_PAIR,
    SHELF,
    SHELF_PAIR,
    evaluation,
    group_tests,
    highlights,
    rates,
    write_shelf,
)
from .written import Written, written

TINY, SMALL = MODELS


pytestmark = pytest.mark.usefixtures("quick_audits")


@pytest.fixture
def shelved(folder: Folder) -> Folder:
    write_shelf(folder)
    return folder


def labelled_beside(folder: Folder) -> None:
    """Label the texts of the last ten books, and evaluate only these texts."""
    for row in folder.examples[SHELF]:
        if row["group"] in BOOKS[10:]:
            row["label"] = BOOKS.index(str(row["group"])) % 2
    folder.rewrite_examples(SHELF)
    rows = [evaluation("min_k_plus_plus", "auroc", 0.71, 30), evaluation("blind_control", "auroc", 0.52, 30)]
    folder.write_rows("evaluations", SHELF_PAIR, "run-shelf", LATER, rows)
    tests = [row for row in group_tests(300) if row["group"] in BOOKS[:10]]
    folder.write_rows("group_tests", SHELF_PAIR, "run-shelf", LATER, tests)


def test_audited_documents_beside_labelled_ones_are_the_answer(shelved: Folder) -> None:
    labelled_beside(shelved)
    found = written(shelved)
    (answer,) = found.reports[MODEL].answers
    assert answer.sides == "labelled"
    assert answer.documents
    assert (answer.documents.tested, answer.documents.standing_out) == (10, 4)
    assert answer.headline == "4 of 10 documents score high: worth a closer look."
    text = found.pages[MODEL].text
    assert "Documents with high scores (q ≤ 0.05) 4 of 10" in text
    assert "AUROC of the detector, min_k_plus_plus 0.710 [0.650, 0.770]" in text
    assert "Of the labelled texts alone" in text


def test_groups_of_both_sides_are_no_audited_documents(shelved: Folder) -> None:
    labelled_beside(shelved)
    for row in shelved.examples[SHELF]:
        row["label"] = 0 if row["label"] is None else row["label"]
    shelved.rewrite_examples(SHELF)
    answer = read_conclusions(build_warehouse(shelved.paths).path, MODEL).answers[SHELF]
    assert (answer["documents"], answer["outcome"]) == (None, "difference_to_look_at")


def test_rates_state_their_assumptions(shelved: Folder) -> None:
    rows = [{**row, "assumption": f"assumed of a {row['unit']}"} for row in rates()]
    shelved.write_rows("contamination_rates", SHELF_PAIR, "run-shelf", LATER, rows)
    found = written(shelved)
    assert found.reports[MODEL].changes[0].documents == [], "it was evaluated once"
    (finding,) = found.reports[MODEL].evidence
    (shelf,) = finding.shelf
    assert shelf.rule == "marginal"
    assert (shelf.assumption, shelf.document_assumption) == ("assumed of a benchmark", "assumed of a group")
    assert (shelf.rates[0].fpr.value, shelf.rates[0].tpr.high) == (0.05, 0.7)
    text = found.pages[MODEL].text
    assert "Corrected with FPR 5.0% [3.0, 8.0] and TPR 60.0% [50.0, 70.0] of calibration texts." in text
    assert "The corrected rate holds where assumed of a benchmark." in text
    of_documents = text[text.index("Open dot: flagged share") :]
    assert "The corrected rate of a document holds where assumed of a group." in of_documents
    assert "It is not certified: which share it would flag of texts that were never read is aimed at" in text


def test_no_curves_and_no_texts_of_another_build(audited: Folder) -> None:
    audited.change_manifest("notes_32", digest=digest("another build"))
    found = written(audited)
    old, new = sorted(found.reports[TINY].evidence, key=lambda one: one.benchmark)
    assert (old.benchmark, new.benchmark) == ("notes_32", "speeches_64")
    assert old.without_texts
    assert (old.curves, old.texts) == ([], [])
    assert old.detectors, "the numbers of the time stand"
    assert new.without_texts is None
    assert all(curve.fpr and curve.edges for curve in new.curves)
    assert new.curves
    assert new.texts
    text = found.pages[TINY].text
    assert text.count("Without ROC curves, spreads and texts: the benchmark was built anew since") == 1


def test_the_scores_decide_the_default_setting(folder: Folder) -> None:
    """A benchmark can fix another than the library does."""
    folder.write_examples("notes_32")
    folder.write_audit("notes_32", TINY, "run", DAY)
    for file in folder.paths.table("evaluations").rglob("*.parquet"):
        file.unlink()
    for file in folder.paths.table("scores").rglob("*.parquet"):
        rows = pq.read_table(file, partitioning=None).to_pylist()
        known = [{**row, "is_default": row["parameters"] == '{"k":0.5}'} for row in rows]
        write_table(file, table_from_rows(known, SCORES))
    explain_files(folder.paths)
    answer = read_conclusions(build_warehouse(folder.paths).path, TINY).answers["notes_32"]
    assert (answer["detector"], answer["parameters"]) == ("min_k_plus_plus", '{"k":0.5}')


def test_without_texts_nothing_is_quoted(audited: Folder) -> None:
    rows = audited.examples["notes_32"]
    for row in rows:
        row["text"] = ""
    audited.rewrite_examples("notes_32")
    (lit,) = highlights(rows[:1])
    lit = {**lit, "pieces": [], "token_scores": [], "counted": []}
    audited.write_rows("highlights", NOTES_PAIR, "again-notes", LATER, [lit])
    found = written(audited)
    texts = {finding.benchmark: finding.texts for finding in found.reports[TINY].evidence}
    assert texts["notes_32"] == []
    assert texts["speeches_64"]
    assert found.pages[TINY].text.count("Highest scores") == 1


def test_external_scores_have_an_evaluate_command(audited: Folder) -> None:

    def add_settings(benchmark: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Add the options of the evaluation to the ledger line of a benchmark's scores."""
        of_benchmark, _, model = fields["partition"].partition("|")
        if (fields["table"], of_benchmark) != ("scores", benchmark):
            return fields
        asked = EvaluateOptions(
            Path(f"scores of {model}.csv"), model=model, benchmark=benchmark, seed=7, headline="loss"
        )
        return {**fields, "settings": dict(asked.settings())}

    def given_to(folder: Folder, *benchmarks: str) -> None:
        """Turn audits of benchmarks into evaluations of external scores, and remove the answers."""
        shutil.rmtree(folder.paths.table("pair_answers"))
        rewrite_lines(folder.paths, lambda fields: None if fields["table"] == "pair_answers" else fields)
        for benchmark in benchmarks:
            path = folder.paths.benchmark_manifest(benchmark)
            write_json(path, {**read_json(path), "design": "selected", "spec": {"builder": "given"}})
            rewrite_lines(folder.paths, partial(add_settings, benchmark))

    def across(config: str) -> Written:
        build_warehouse(audited.paths, config=audited.paths.root / config)
        return Written(build_reports(audited.paths.warehouse, audited.paths.reports))

    given_to(audited, "notes_32")
    found = across("nowhere")
    for model in (TINY, SMALL):
        assert [shlex.split(command) for command in found.reports[model].manifest[0].commands] == [
            [
                *("corpus-audit", "evaluate", "--scores", f"scores of {model}.csv", "--model", model),
                *("--benchmark", "notes_32", "--headline", "loss", "--seed", "7"),
            ],
            ["corpus-audit", "audit", "--model", model, "--benchmark", "speeches_64"],
            ["corpus-audit", "report"],
        ]
        answers = {answer.benchmark: answer for answer in found.reports[model].answers}
        assert answers["notes_32"].handed_over == f"scores of {model}.csv"
        assert (answers["notes_32"].detector, answers["notes_32"].detector_chosen) == ("loss", "named")
        assert (answers["speeches_64"].detector, answers["speeches_64"].detector_chosen) == (
            "min_k_plus_plus",
            "default",
        )
        assert f"Scores from scores of {model}.csv" in found.pages[model].text
    assert f"scores of {SMALL}" not in found.pages[TINY].text, "the other model's file"
    unknown = "What should be audited is not known: the configuration named no model or no benchmark"
    assert unknown in found.pages["across"].text
    given_to(audited, "speeches_64")
    found = across("nowhere")
    assert found.reports["across"].coverage[0].only_given
    assert "What should be audited is not known" not in found.pages["across"].text


def test_omitted_rows_are_counted(
    warehouse: Path, reports: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def with_a_limit_of_one(section: SectionFiles) -> SectionFiles:
        """Return a section that shows one row, or one element of each list with a limit."""
        sql = re.sub(r"LIMIT \d+", "LIMIT 1", section.sql)
        return replace(
            section, sql=re.sub(r"place <= 80\b|(?<=count\(\*\) - )80\b", lambda cut: cut[0].replace("80", "1"), sql)
        )

    report = reports.reports[TINY]
    assert report.left_out.costs == report.changes[0].more_findings == 0
    cut_sections = tuple(map(with_a_limit_of_one, list_sections()))
    monkeypatch.setattr(report_page, "list_sections", lambda: cut_sections)
    cut = Written(build_reports(warehouse, tmp_path / "cut"))
    less = cut.reports[TINY]
    for part in ("costs", "benchmarks"):
        assert len(less[part]) == 1
        assert less.left_out[part] == len(report[part]) - 1 > 0
    assert len(less.changes[0].findings) == 1
    assert less.changes[0].more_findings == len(report.changes[0].findings) - 1 > 0
    (row,) = query_warehouse(
        warehouse, "SELECT sum(seconds) AS s FROM cost WHERE is_latest AND model = 'tiny-125m'"
    ).to_pylist()
    assert less.costs[0].all_seconds == report.costs[0].all_seconds == pytest.approx(row["s"])
    text = cut.pages[TINY].text
    assert f"one of the {less.changes[0].more_findings} that are left out here" in text
    assert f"By stage (1 of {len(report.costs)})" in text
    across = cut.reports["across"]
    assert across.left_out.timeline == len(reports.reports["across"].timeline) - 1


def test_documents_that_stand_out_are_compared_with_the_previous_evaluation(shelved: Folder) -> None:
    later = []
    for row in group_tests(300):
        later.append({**row, "q_bh": 0.01 if BOOKS.index(row["group"]) in (0, 1, 7) else 0.5})
    shelved.write_rows("group_tests", SHELF_PAIR, "run-later", DAY + timedelta(days=3), later)
    found = written(shelved)
    for name in (MODEL, "across"):
        (change,) = found.reports[name].changes[0].documents
        assert (change.previous_standing_out, change.standing_out, change.tested) == (4, 3, 20)
        assert change.newly == [BOOKS[7]]
        assert sorted(change.no_longer) == sorted(book[:299] + "…" if len(book) > 300 else book for book in BOOKS[2:4])
        assert change.same_build
    text = found.pages[MODEL].text
    assert "4 of 20 2026-03-03 3 of 20 2026-03-04 now: Collected letters, volume 3" in text
    assert "Nothing: no pair was audited twice" not in text
