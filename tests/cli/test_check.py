"""The command check: first, repeated and extended checks of files, and refusals."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml
from cli_results import answered
from click.testing import CliRunner, Result
from made_workspace import made_text, quick_folder
from tiny_models import SENTENCES, save_model

from audit_pipeline.cli import main
from audit_pipeline.definitions import defs
from audit_pipeline.errors import ConfigError
from audit_pipeline.pipeline.dagster import weekly
from audit_pipeline.pipeline.dagster.instance import open_instance
from audit_pipeline.pipeline.user_files import UserFiles, inspect_user_files
from audit_pipeline.pipeline.workspace_creation import create_workspace, ensure_workspace, find_check_workspace
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.warehouse.query import query_warehouse

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits")

Check = Callable[..., Result]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("check") / "weights", max_position_embeddings=256)


@pytest.fixture
def folder(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a user's folder with a configuration that has the model tiny."""
    with quick_folder(tmp_path) as quick:
        here = quick / "here"
        create_workspace(here)
        tiny = {"path": str(weights), "reference_corpus": None, "release_date": "2024-06-01"}
        (here / "config/models.yaml").write_text(yaml.safe_dump({"models": {"tiny": tiny}}))
        for name in ("CORPUS_AUDIT_CONFIG", "CORPUS_AUDIT_DATA", "BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
            # Set first, so that what the command line exports is taken back in the end.
            monkeypatch.setenv(name, "")
            monkeypatch.delenv(name)
        # Set, not deleted: the command line exports what it made, and the end of the test must take that back.
        monkeypatch.setenv("DAGSTER_HOME", "")
        monkeypatch.chdir(here)
        yield here


@pytest.fixture
def check(folder: Path) -> Check:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["check", *arguments], catch_exceptions=False)

    return run


def shelf(folder: Path, name: str, count: int, words: int = 150) -> None:
    (folder / name).mkdir()
    for number in range(count):
        text = f"{made_text(f'{name} {number}', words)} {SENTENCES[number % len(SENTENCES)]}"
        (folder / name / f"{number}.txt").write_text(text)


@pytest.mark.slow
def test_a_plan_is_sealed_before_the_model_is_run(folder: Path, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf(folder, "books", 2)
    shelf(folder, "new", 3)
    given = ("books", "--held-out", "new", "--model", "tiny", "--json")
    first = answered(check(*given, "--seal"))
    assert first["plans"]["own_files_64"]["timestamped_at"] is None
    paths = DataPaths(folder / "corpus-audit-check" / "data")
    columns = "SELECT kind, plan_sha256, passes_before, texts_in_cache, deviations, plans_sealed FROM plan_in_force"
    sealed = first["plans"]["own_files_64"]["sha256"]
    expected = {("detectors", sealed, 0, 0, 0, 1), ("search", sealed, 0, 0, 0, 1)}
    assert {tuple(row.values()) for row in query_warehouse(paths.warehouse, columns).to_pylist()} == expected
    monkeypatch.chdir(paths.root.parent)
    again = answered(check("../books", "--held-out", "../new", *given[3:], "--seal"))
    assert again["plans"]["own_files_64"] == first["plans"]["own_files_64"], "what is sealed is not sealed anew"
    assert (again["workspace"], again["work"]["tokens"]) == (str(paths.root.parent), 0), "no workspace in a workspace"
    assert not (paths.root.parent / "corpus-audit-check").exists()
    assert "Planned beforehand: sealed on" in (paths.reports / "model=tiny.html").read_text()
    assert (
        "--authority requires --seal. Add --seal."
        in check("../books", "--model", "tiny", "--authority", "http://127.0.0.1:9").stderr
    )


def test_the_default_workspace_is_the_one_in_use_if_check_created_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("books", "new"):
        shelf(folder, name, 2)
    made = folder / "corpus-audit-check"
    assert find_check_workspace() == made, "the one in use was made by init"
    ensure_workspace(made, inspect_user_files(UserFiles((folder / "books",))), {})
    monkeypatch.chdir(made / "data")
    assert find_check_workspace() == made
    with pytest.raises(ConfigError, match="is the workspace of other files"):
        ensure_workspace(made, inspect_user_files(UserFiles((folder / "new",))), {})


@pytest.mark.slow
def test_a_first_check_a_repeated_check_and_an_extended_check(
    folder: Path, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf(folder, "books", 3)
    shelf(folder, "new", 4)
    shelf(folder, "old", 4)
    (folder / "books" / "cut.pdf").write_bytes(b"%PDF")

    first = answered(check("books", "--model", "tiny", "--json"))
    made = folder / "corpus-audit-check"
    paths = DataPaths(made / "data")
    assert [side["documents"] for side in first["sides"]] == [3]
    assert [one["part"] for one in first["left_out"]] == ["cut.pdf"]
    assert "nothing to be compared with" in " ".join(first["conclusions"])
    assert first["work"]["tokens"] > first["work"]["tokens_of_search"] > 0
    assert Path(first["report"]) == paths.report
    assert "Your files: books" in paths.report.read_text(encoding="utf-8")
    assert query_warehouse(paths.warehouse, "FROM document_memorisation").num_rows == 3
    assert "CORPUS_AUDIT_DATA" not in os.environ

    again = check("books", "--model", "tiny")
    assert again.exit_code == 0, again.stderr
    assert "(unchanged)" in again.stdout
    assert "To run: nothing. All results are in the cache." in again.stdout
    assert "everything is up to date, so nothing is run" in again.stderr
    assert "own_files_64: Nothing found word for word in 3 documents." in again.stdout
    assert "The search would have found a passage that the model gives" in again.stdout
    assert check("books", "--model", "tiny", "--dry-run", "--fail-on", "stale").exit_code == 0, "it is up to date"

    more = answered(check("books", "--model", "tiny", "--held-out", "new", "--members", "old", "--json"))
    assert more["written"] == ["sources.yaml", "benchmarks.yaml"]
    tested = query_warehouse(
        paths.warehouse, "SELECT \"group\", p_value FROM group_tests WHERE detector = 'loss'"
    ).to_pylist()
    assert len(tested) == 3
    assert min(row["p_value"] for row in tested) >= 1 / 5
    of_known = "FROM leaderboard WHERE benchmark = 'own_files_known_64' AND detector = 'loss'"
    known = query_warehouse(paths.warehouse, f"SELECT n_members, n_nonmembers {of_known}").to_pylist()
    assert known == [{"n_members": 8, "n_nonmembers": 8}], "two windows of each of four documents on each side"
    assert query_warehouse(paths.warehouse, "FROM lineage_gaps").num_rows == 0

    # What the last line starts: the weekly audit finds a book that was put there since.
    (folder / "books" / "another.txt").write_text(made_text("another", 150))
    monkeypatch.setenv("CORPUS_AUDIT_CONFIG", str(made / "config"))
    monkeypatch.setenv("CORPUS_AUDIT_DATA", str(paths.root))
    with open_instance(paths) as instance:
        week = defs().resolve_job_def("weekly_audit").execute_in_process(instance=instance, raise_on_error=False)
        [run] = instance.get_runs(dg.RunsFilter(run_ids=[week.run_id]))
    assert week.success
    assert "benchmarks built: own_files_64" in run.tags["corpus_audit/summary"]
    found = query_warehouse(
        paths.warehouse, "SELECT document_id FROM document_memorisation WHERE side = 'audited'"
    ).to_pylist()
    assert any("another.txt" in row["document_id"] for row in found)


def test_a_dry_run_creates_no_workspace_and_suggests_the_instrument_check(
    folder: Path, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf(folder, "books", 2)
    monkeypatch.setenv("CORPUS_AUDIT_DATA", str(folder / "elsewhere"))
    options = ("--model", "tiny", "--dry-run", "--workspace", "my check", "--fail-on", "stale")
    result = check("books/0.txt", "books/1.txt", *options)
    assert result.exit_code == 1, "nothing was audited yet"
    assert not (folder / "my check").exists()
    assert not (folder / "elsewhere").exists(), "nor is anything written to the data folder"
    assert f"cd '{folder}/my check' && corpus-audit control instrument_check" in result.stdout
    assert "  0 (0.txt)" in result.stdout
    assert "To run: " in result.stdout
    assert "Time without loading the model: about" in result.stdout


def test_short_rows_are_reported_as_too_short_for_extraction(folder: Path, check: Check) -> None:
    (folder / "rows.csv").write_text("text\n" + "".join(f"{made_text(str(number), 12)}\n" for number in range(12)))
    shown = check("rows.csv", "--model", "tiny", "--dry-run").stdout
    assert "12 of 12 documents are too short for extraction" in shown
    assert "for the search for passages" not in shown


def test_documents_newer_than_the_model_are_suggested_as_held_out(folder: Path, check: Check) -> None:
    rows = [{"text": made_text(f"{year}", 120), "day": f"{year}-01-01"} for year in (2019, 2025)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = answered(check("rows.jsonl", "--date-column", "day", "--model", "tiny", "--dry-run", "--json"))
    assert given["stronger"][0].startswith("1 of the audited documents are dated 2024-06-01 or later")


def test_unusable_arguments_are_an_error_in_one_line_and_create_nothing(folder: Path, check: Check) -> None:
    shelf(folder, "books", 2)
    (folder / "rows.csv").write_text("a,b\none,two\nthree,four\n")
    for arguments, problem in (
        (["nowhere"], "'nowhere' does not exist"),
        (["--held-out", "books"], "Missing argument 'FILES...'"),
        (["books", "--held-out"], "--held-out requires a file or a folder"),
        (["books", "--exchangeable"], "--exchangeable requires --held-out"),
        (["books", "--held-out-because", "newer"], "--held-out-because requires --held-out"),
        (
            ["books", "--held-out", "books/0.txt", "--exchangeable", "--held-out-because", "newer"],
            "--exchangeable contradicts --held-out-because newer",
        ),
        (["books", "--held-out", "books/0.txt"], "the same text is in the audited files and in the held-out files"),
        (["rows.csv", "--text-column", "tekst"], "tekst"),
    ):
        result = check(*arguments, "--model", "tiny")
        assert result.exit_code == 2, result.output
        assert problem in result.stderr.splitlines()[-1], result.stderr
    assert not (folder / "corpus-audit-check").exists()


@pytest.mark.parametrize("switched_on", [True, False])
def test_dev_weekly_switches_the_schedule_on(folder: Path, monkeypatch: pytest.MonkeyPatch, switched_on: bool) -> None:
    monkeypatch.setenv(weekly.WEEKLY_IS_ON, "")
    monkeypatch.setattr(os, "execv", lambda program, arguments: None)
    result = CliRunner().invoke(main, ["dev", *(["--weekly"] if switched_on else [])], catch_exceptions=False)
    assert result.exit_code == 0
    # What the processes that Dagster starts read then.
    schedule = weekly.build_weekly_schedule(defs().resolve_job_def)
    assert (schedule.default_status is dg.DefaultScheduleStatus.RUNNING) == switched_on
    assert ("the weekly audit is on" in result.stderr) == switched_on
