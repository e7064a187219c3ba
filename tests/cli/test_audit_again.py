"""`corpus-audit audit` of what was audited before: what is run again, why, and what is not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from cli_results import answered, run_in_a_new_process, told
from made_workspace import NEW, SOURCE, Workspace, count_loads, made_document, made_documents, made_text, temporal

from audit_pipeline.benchmarks.built_benchmark import assess_split, read_built
from audit_pipeline.models.tokenized_model import write_card
from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.pipeline.registry import get_stage
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import model_page_path

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits", "few_detectors")


@pytest.mark.slow
def test_a_second_audit_runs_nothing_and_needs_no_heavy_package(audited: Workspace) -> None:
    before = {path: path.stat().st_mtime_ns for path in audited.paths.root.rglob("*") if path.is_file()}
    done = run_in_a_new_process(["audit", "--model", "tiny", "--benchmark", "made"])
    *shown, heavy = done.stdout.splitlines()
    assert heavy == "[]"
    assert done.stderr == "• tiny on made_8, made_12: everything is up to date, so nothing is run\n"
    assert "made_8: screening only; split: undetermined" in done.stdout
    assert shown[-1] == f"Report: {audited.paths.report}"
    after = {path: path.stat().st_mtime_ns for path in audited.paths.root.rglob("*") if path.is_file()}
    assert after == before


AUDITED, PUBLISHED = "• auditing tiny on made_8", "• rebuilding warehouse and report"


def again(workspace: Workspace, *options: str, because: str) -> list[str]:
    """Audit once more: something is to be done, and a dry run says why, but no text is run. What was done."""
    loads, parts = count_loads(workspace.monkeypatch), workspace.parts()
    command = ("audit", "--model", "tiny", "--benchmark", "made_8", *options)
    [plan] = json.loads(told(workspace.run(*command, "--dry-run", "--json")))["plans"]
    assert plan["because"] == because
    result = workspace.run(*command)
    told(result)
    assert (loads, workspace.parts()) == ([], parts)
    if "made_8|tiny: " in result.stderr:
        texts = len(read_built(workspace.paths, "made_8").examples)
        assert f"made_8|tiny: {texts} texts from the cache, 0 computed" in result.stderr
    return [line for line in result.stderr.splitlines() if line.startswith("• ")]


@pytest.mark.parametrize("stage", ["scores", pytest.param("evaluations", marks=pytest.mark.slow)])
@pytest.mark.usefixtures("no_report")
def test_changed_code_runs_a_pair_again_from_its_stage(audited_copy: Workspace, stage: str) -> None:
    audited_copy.monkeypatch.setitem(get_stage(stage).__dict__, "code_version", "another")
    what = {"scores": "scores", "evaluations": "evaluates"}[stage]
    assert again(audited_copy, because=f"the code that {what} changed") == [AUDITED, PUBLISHED]
    for table, runs in (("scores", 2 if stage == "scores" else 1), ("evaluations", 2)):
        history = f"SELECT count(DISTINCT run_id) AS runs FROM {table} WHERE benchmark = 'made_8'"
        assert json.loads(told(audited_copy.run("sql", history, "--format", "json"))) == {"runs": runs}
        current = f"SELECT count(DISTINCT run_id) AS runs FROM current_{table} WHERE benchmark = 'made_8'"
        assert json.loads(told(audited_copy.run("sql", current, "--format", "json"))) == {"runs": 1}
    assert "0 row(s)" in told(audited_copy.run("sql", "SELECT * FROM lineage_gaps"))
    states = told(audited_copy.run("sql", "SELECT DISTINCT reason FROM coverage WHERE benchmark = 'made_8'"))
    assert "changed" not in states


@pytest.mark.usefixtures("no_report")
def test_only_pairs_that_are_not_done_are_run(audited_copy: Workspace) -> None:
    audited_copy.write_benchmarks(made=temporal([8, 10, 12]))
    loads = count_loads(audited_copy.monkeypatch)
    result = audited_copy.run("audit", "--model", "tiny", "--benchmark", "made")
    told(result)
    assert [line for line in result.stderr.splitlines() if line.startswith("• ")] == [
        "• building benchmark: made_10",
        "• auditing tiny on made_10",
        PUBLISHED,
    ]
    assert loads == ["tiny"]
    runs = "SELECT benchmark, count(DISTINCT run_id) AS runs FROM evaluations GROUP BY ALL ORDER BY ALL"
    found = [json.loads(line) for line in told(audited_copy.run("sql", runs, "--format", "json")).splitlines()]
    assert [(row["benchmark"], row["runs"]) for row in found] == [("made_10", 1), ("made_12", 1), ("made_8", 1)]


def test_coverage_and_dry_run_have_the_same_reason(audited_copy: Workspace, tiny_folder: Callable[[str], Path]) -> None:
    statistics = "the model's start token, its window, or the version of the computation of token statistics changed"
    for changed, why in (
        ({"window": 16}, statistics),
        ({"reference_model": "other"}, "the reference model changed"),
    ):
        tiny: dict[str, Any] = {"path": tiny_folder("llama"), **changed}
        audited_copy.write_models(tiny=tiny, other={"path": tiny_folder("gpt_neox")})
        # So that the reference model was seen once.
        write_card(audited_copy.model("other"), audited_copy.paths)
        build_warehouse(audited_copy.paths)
        assert coverage(audited_copy) == {"status": "stale", "reason": why}
        [plan] = answered(audited_copy.run("audit", "--model", "tiny", "--benchmark", "made_8", "--dry-run", "--json"))[
            "plans"
        ]
        assert plan["because"] == why


def coverage(workspace: Workspace) -> dict[str, Any]:
    """Return the row of the pair in the warehouse."""
    statement = "SELECT status, reason FROM coverage WHERE (model, benchmark) = ('tiny', 'made_8')"
    said: dict[str, Any] = json.loads(told(workspace.run("sql", statement, "--format", "json")))
    return said


@pytest.mark.slow
def test_a_split_of_an_earlier_version_is_assessed_again_and_coverage_and_dry_run_say_so(
    audited_copy: Workspace,
) -> None:
    paths, why = audited_copy.paths, "the code that assesses the split changed"
    assess_split(read_built(paths, "made_8"), paths, LineageStep.now("older", "split_quality", "0"))
    build_warehouse(paths)
    assert coverage(audited_copy) == {"status": "stale", "reason": why}
    # It comes out as it was: nothing that was made of it is made again, and the warehouse holds it.
    first = "the split of made_8 is assessed first"
    assert again(audited_copy, because=first) == ["• assessing the split of made_8", PUBLISHED]
    assert coverage(audited_copy) == {"status": "done", "reason": None}


@pytest.mark.usefixtures("no_report")
def test_again_repeats_a_finished_audit(audited_copy: Workspace) -> None:
    assert again(audited_copy, "--again", because="the audit was requested again") == [AUDITED, PUBLISHED]
    history = "SELECT count(DISTINCT run_id) AS runs FROM evaluations WHERE benchmark = 'made_8'"
    assert json.loads(told(audited_copy.run("sql", history, "--format", "json"))) == {"runs": 2}


@pytest.mark.slow
def test_missing_or_damaged_published_files_are_rebuilt(audited_copy: Workspace) -> None:
    audited_copy.paths.report.unlink()
    assert again(audited_copy, because="") == [PUBLISHED]
    assert audited_copy.paths.report.exists()
    audited_copy.paths.warehouse.write_bytes(b"damaged")
    assert again(audited_copy, because="") == [PUBLISHED]
    assert "so nothing is run" in audited_copy.run("audit", "--model", "tiny", "--benchmark", "made_8").stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "damage"),
    [("scores", "a flipped bit"), ("scores", "deleted"), ("evaluations", "deleted"), ("decisions", "a flipped bit")],
)
def test_a_lost_finding_is_reported_and_made_again(audited_copy: Workspace, table: str, damage: str) -> None:
    [file] = audited_copy.paths.table(table).glob("partition=made_8*/*.parquet")
    if damage == "deleted":
        file.unlink()
        assert audited_copy.run("doctor").exit_code == 1
    else:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 4
        file.write_bytes(bytes(content))
        report = audited_copy.run("report")
        told(report)
        assert f"skipped a damaged file of the table {table} (made_8|tiny, run " in report.stderr
        page = model_page_path(audited_copy.paths.reports, "tiny").read_text(encoding="utf-8")
        assert "partition is not as written" in page
    because = f"a file of its {'scores' if table == 'scores' else 'evaluations'} is damaged or missing"
    assert again(audited_copy, because=because) == [AUDITED, PUBLISHED]
    assert "so nothing is run" in audited_copy.run("audit", "--model", "tiny", "--benchmark", "made_8").stderr
    if damage == "deleted":
        seen = audited_copy.run("doctor", "--deep")
        assert seen.exit_code == 0, "the doctor's advice was followed"
    else:
        assert audited_copy.run("doctor", "--deep").exit_code == 1
        file.unlink()
        assert audited_copy.run("doctor", "--deep").exit_code == 0


@pytest.mark.slow
def test_other_configuration_and_leaving_texts_out_publish_again(
    audited_copy: Workspace, tiny_folder: Callable[[str], Path]
) -> None:
    audited_copy.write_models(tiny={"path": tiny_folder("llama"), "training_cutoff": date(2020, 5, 1)})
    assert again(audited_copy, because="") == [PUBLISHED]
    cutoff = "SELECT training_cutoff FROM configured_models WHERE name = 'tiny'"
    assert json.loads(told(audited_copy.run("sql", cutoff, "--format", "json"))) == {"training_cutoff": "2020-05-01"}
    quoted = "SELECT count(*) AS n FROM examples WHERE excerpt IS NOT NULL"
    assert json.loads(told(audited_copy.run("sql", quoted, "--format", "json")))["n"] > 0
    audited_copy.monkeypatch.setenv("CORPUS_AUDIT_NO_TEXT", "1")
    assert again(audited_copy, because="") == [PUBLISHED]
    assert json.loads(told(audited_copy.run("sql", quoted, "--format", "json")))["n"] == 0


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_refresh_fetches_again_and_rebuilds_what_changed(audited_copy: Workspace) -> None:
    audited_copy.hold(*made_documents(2, 40), made_document("alder", "more", NEW, made_text("more", 40)))
    loads = count_loads(audited_copy.monkeypatch)
    result = audited_copy.run("benchmarks", "--build", "made_8")
    told(result)
    assert "•" not in result.stderr, "all is there"
    result = audited_copy.run("audit", "--model", "tiny", "--benchmark", "made_8", "--refresh")
    told(result)
    assert f"• fetching documents: {SOURCE}" in result.stderr
    assert "• building benchmark: made_8" in result.stderr
    assert len(loads) <= 1


@pytest.mark.usefixtures("no_report")
def test_a_model_by_its_path(audited_copy: Workspace, tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    folder = str(shutil.copytree(tiny_folder("gpt_neox"), tmp_path / f"my models {'x' * 30}" / "[bold] :smile: m"))
    assert (
        f"made_8|{folder}: 0 texts from the cache"
        in audited_copy.run("audit", "--model", folder, "--benchmark", "made_8").stderr
    )
    rows = told(audited_copy.run("sql", "SELECT DISTINCT model FROM leaderboard ORDER BY 1", "--format", "csv"))
    assert rows.splitlines() == ["model", folder, "tiny"]
    assert "0 row(s)" in told(audited_copy.run("sql", "SELECT * FROM lineage_gaps"))
