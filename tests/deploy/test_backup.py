"""Backup and restore by the commands of docs/operations.md: the same answers afterwards, and nothing computed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from composed import FOLDER
from made_workspace import Workspace, made_documents, temporal
from postgres_server import POSTGRES, Server

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
SAVE, SAVE_RECORDS, RESTORE, RESTORE_RECORDS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
QUESTION = "SELECT benchmark, model, detector, auroc, auroc_low, auroc_high, blind_auroc FROM leaderboard ORDER BY ALL"
AUDIT = ("audit", "--model", "tiny", "--benchmark", "made")


@pytest.fixture
def workspace(workspace: Workspace) -> Workspace:
    workspace.write_benchmarks(made=temporal([8, 12]))
    workspace.hold(*made_documents(3, 40))
    return workspace


def run_commands(commands: str, **variables: str) -> None:
    done = subprocess.run(
        ["/bin/sh", "-e", "-c", commands], env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def answers(workspace: Workspace) -> str:
    result = workspace.run("sql", QUESTION, "--json")
    assert result.exit_code == 0, result.output
    assert "made_12" in result.stdout
    return result.stdout


def require_nothing_computed(workspace: Workspace, before: str) -> None:
    parts = workspace.parts()
    assert parts
    again = workspace.run(*AUDIT)
    assert again.exit_code == 0, again.output
    assert not re.search(r"[1-9]\d* computed", again.stderr), again.stderr
    assert workspace.parts() == parts
    assert answers(workspace) == before


def test_a_workspace_is_restored(workspace: Workspace, tmp_path: Path) -> None:
    assert workspace.run(*AUDIT).exit_code == 0
    before, history = answers(workspace), {run.run_id for run in workspace.runs()}
    places = {"WORKSPACE": str(workspace.root), "BACKUP": str(tmp_path)}
    run_commands(SAVE, **places)
    shutil.rmtree(workspace.paths.root)
    shutil.rmtree(workspace.config)
    run_commands(RESTORE, **places)
    assert answers(workspace) == before
    assert {run.run_id for run in workspace.runs()} == history
    deep = workspace.run("doctor", "--deep")
    assert deep.exit_code == 0, deep.output
    require_nothing_computed(workspace, before)


def test_records_in_postgresql_are_restored(workspace: Workspace, postgres: Server, tmp_path: Path) -> None:
    home = workspace.root / "home"
    home.mkdir()
    shutil.copy(FOLDER / "dagster.yaml", home)
    workspace.monkeypatch.setenv("DAGSTER_HOME", str(home))
    workspace.monkeypatch.setenv("CORPUS_AUDIT_LOGS", str(workspace.root / "logs"))
    for name, value in postgres.variables("corpus_audit").items():
        workspace.monkeypatch.setenv(name, value)
    assert workspace.run(*AUDIT).exit_code == 0
    before = answers(workspace)
    jobs = "SELECT run_id, pipeline_name, status FROM runs ORDER BY 1"
    history = postgres.query("corpus_audit", jobs)
    assert history
    assert POSTGRES is not None
    own = {
        "PGHOST": "127.0.0.1",
        "PGPORT": str(postgres.port),
        "PGUSER": postgres.user,
        "PGPASSWORD": postgres.password,
    }
    own |= {"WORKSPACE": str(workspace.root), "BACKUP": str(tmp_path), "PATH": f"{POSTGRES}:{os.environ['PATH']}"}
    run_commands(SAVE + SAVE_RECORDS, **own)
    shutil.rmtree(workspace.paths.root)
    postgres.query("postgres", "DROP DATABASE corpus_audit WITH (FORCE)")
    run_commands(RESTORE + RESTORE_RECORDS, **own)
    assert postgres.query("corpus_audit", jobs) == history
    require_nothing_computed(workspace, before)
