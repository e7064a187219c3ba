"""Problems of the configuration on the command line: one line each, and only commands that need the entry stop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from made_workspace import SOURCE, Workspace, temporal

from audit_pipeline.cli import main
from audit_pipeline.store import paths

pytestmark = pytest.mark.usefixtures("one_thread")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def workspace(workspace: Workspace, tiny_folder: Callable[[str], Path]) -> Workspace:
    """Return a workspace with one valid and one invalid entry per file."""
    workspace.write_models(tiny={"path": tiny_folder("llama")}, wrong={"hub": "a/b", "dtyp": "float32"})
    workspace.write_benchmarks(made=temporal([8]), lost=temporal([8], sources=[SOURCE, "relase_notes"]))
    workspace.write_config("sources", {"books": {"foldr": "x"}})
    return workspace


PROBLEMS = [
    "sources.yaml:2: section books: unknown key 'foldr'; did you mean folder?",
    "models.yaml:6: model wrong: unknown key 'dtyp'; did you mean dtype?",
    "benchmarks.yaml:19: family lost: sources: there is no source 'relase_notes'; did you mean release_notes?",
]


def told(result: Result, config: Path) -> list[str]:
    """Return the problems on standard error without their folder and without steps."""
    return [line.removeprefix(f"{config}/") for line in result.stderr.splitlines() if not line.startswith("• ")]


@pytest.mark.parametrize("command", ["benchmarks", "models"])
def test_a_list_prints_every_problem_of_every_file_and_the_valid_entries(workspace: Workspace, command: str) -> None:
    result = workspace.run(command)
    assert result.exit_code == 0
    assert told(result, workspace.config) == PROBLEMS
    assert ("made_8" if command == "benchmarks" else "tiny") in result.stdout
    assert "lost" not in result.stdout


def test_a_broken_entry_stops_the_command_that_names_it_with_its_line(workspace: Workspace) -> None:
    for command, message in (
        (("benchmarks", "--build", "lost_8"), PROBLEMS[2]),
        (("audit", "--model", "tiny", "--benchmark", "lost"), PROBLEMS[2]),
        (("audit", "--model", "wrong", "--benchmark", "made"), PROBLEMS[1]),
        (("audit", "--model", "wrnog", "--benchmark", "made", "--dry-run"), "did you mean wrong?"),
        (("score", "--model", "wrong", "--texts", "x.txt", "--out", "y.parquet"), PROBLEMS[1]),
    ):
        result = workspace.run(*command)
        assert result.exit_code == 2
        [line] = result.stderr.splitlines()
        assert line.startswith("Error: ")
        assert message in line
    assert workspace.runs() == []


def test_score_prints_the_problems_of_models_and_scores_with_a_valid_model(workspace: Workspace) -> None:
    texts = workspace.root / "texts.txt"
    texts.write_text("one text of some words\n")
    result = workspace.run("score", "--model", "tiny", "--texts", texts, "--out", workspace.root / "out.parquet")
    assert result.exit_code == 0
    assert PROBLEMS[1] in told(result, workspace.config)
    assert not any("section books" in line for line in result.stderr.splitlines()), "score does not read sources"


def test_an_error_that_names_a_file_of_the_package_suggests_init(workspace: Workspace) -> None:
    command = ("audit", "--model", "tiny", "--benchmark", "maed")
    assert "corpus-audit init" not in workspace.run(*command).stderr
    workspace.monkeypatch.setattr(paths, "SHIPPED", workspace.root)
    said = workspace.run(*command).stderr
    assert "no benchmark 'maed' in config/benchmarks.yaml; did you mean made" in said
    assert "Run 'corpus-audit init" in said
    # The hint appears only if the error names a file of the configuration.
    assert "corpus-audit init" not in workspace.run("sql", "SELECT 1").stderr


def test_too_many_canaries_are_refused(tmp_path: Path) -> None:
    many = "1000000000"
    for wish in (("--sets", many), ("--sets", "1", "--alternatives", many)):
        result = CliRunner().invoke(main, ["canaries", *wish, "--out", str(tmp_path / "x.jsonl")])
        assert result.exit_code == 2
        assert "are more than 1,000,000 canaries, the maximum. Reduce --sets or --alternatives." in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_init_creates_a_workspace_and_overwrites_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["init", "mine"])
    assert done.exit_code == 0
    mine = tmp_path / "mine"
    shipped = {path.name: path.read_bytes() for path in (ROOT / "config").glob("*.yaml")}
    assert {path.name: path.read_bytes() for path in (mine / "config").iterdir()} == shipped
    assert (mine / "workspace.yaml").read_bytes() == (ROOT / "workspace.yaml").read_bytes()
    assert (mine / "data" / "README.md").read_bytes() == (ROOT / "data" / "README.md").read_bytes()
    assert (mine / "data").stat().st_mode & 0o777 == 0o700
    assert "cd mine, and then edit config/models.yaml" in done.stdout
    (mine / "config" / "models.yaml").write_text("mine")
    again = CliRunner().invoke(main, ["init", "mine"])
    assert again.exit_code == 2
    assert again.stderr == f"Error: {mine}/config already exists, and is not overwritten. Choose another folder.\n"
    assert (mine / "config" / "models.yaml").read_text() == "mine"


def test_init_creates_nothing_beside_existing_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    assert CliRunner().invoke(main, ["init"]).exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
