"""The configuration on the command line: all that is wrong with it, one line each, and who is stopped by what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from made_workspace import SOURCE, Workspace, made_documents, temporal

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
    """The problems on standard error, without their folder; steps are left out."""
    return [line.removeprefix(f"{config}/") for line in result.stderr.splitlines() if not line.startswith("• ")]


@pytest.mark.parametrize("command", ["benchmarks", "models"])
def test_listing_names_every_problem_of_every_file_and_lists_the_rest(workspace: Workspace, command: str) -> None:
    result = workspace.run(command)
    assert result.exit_code == 0
    assert told(result, workspace.config) == PROBLEMS
    assert ("made_8" if command == "benchmarks" else "tiny") in result.stdout
    assert "lost" not in result.stdout


def test_a_dry_run_names_them_too_and_goes_on_without_what_is_broken(workspace: Workspace) -> None:
    workspace.fetch(*made_documents(2, 40))
    workspace.build("made")
    for benchmark in ("made", "all"):
        result = workspace.run("audit", "--model", "tiny", "--benchmark", benchmark, "--dry-run")
        assert result.exit_code == 0
        assert told(result, workspace.config) == PROBLEMS
        assert "made_8" in result.stdout
        assert "lost" not in result.stdout


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("benchmarks", "--build", "lost"), PROBLEMS[2]),
        (("benchmarks", "--build", "lost_8"), PROBLEMS[2]),
        (("audit", "--model", "tiny", "--benchmark", "lost"), PROBLEMS[2]),
        (("audit", "--model", "wrong", "--benchmark", "made"), PROBLEMS[1]),
        (("audit", "--model", "wrnog", "--benchmark", "made", "--dry-run"), "did you mean wrong?"),
        (("score", "--model", "wrong", "--texts", "x.txt", "--out", "y.parquet"), PROBLEMS[1]),
        (("count", "--corpus", "x.txt", "--tokenizer", "wrong", "--out", "y.parquet"), PROBLEMS[1]),
    ],
)
def test_who_asks_for_a_broken_entry_is_left_with_its_line_and_nothing_is_run(
    workspace: Workspace, command: tuple[str, ...], told: str
) -> None:
    result = workspace.run(*command)
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert told in line
    assert workspace.runs() == []


def test_scoring_names_the_broken_models_and_scores_with_the_good_one(workspace: Workspace) -> None:
    texts = workspace.root / "texts.txt"
    texts.write_text("one text of some words\n")
    result = workspace.run("score", "--model", "tiny", "--texts", texts, "--out", workspace.root / "out.parquet")
    assert result.exit_code == 0
    assert PROBLEMS[1] in told(result, workspace.config)
    assert not any("section books" in line for line in result.stderr.splitlines()), "sources are not its business"


def test_who_is_sent_to_a_file_of_the_package_is_told_how_to_have_one(workspace: Workspace) -> None:
    command = ("audit", "--model", "tiny", "--benchmark", "maed")
    assert "corpus-audit init" not in workspace.run(*command).stderr
    workspace.monkeypatch.setattr(paths, "SHIPPED", workspace.root)
    said = workspace.run(*command).stderr
    assert "no benchmark 'maed' in config/benchmarks.yaml; did you mean made" in said
    assert "`corpus-audit init` creates your own workspace" in said
    # Only where a file of the configuration is named.
    assert "corpus-audit init" not in workspace.run("sql", "SELECT 1").stderr


def test_canaries_beyond_all_use_are_refused_at_once(tmp_path: Path) -> None:
    many = "1000000000"
    for wish in (("--sets", many), ("--sets", "1", "--alternatives", many)):
        result = CliRunner().invoke(main, ["canaries", *wish, "--out", str(tmp_path / "x.jsonl")])
        assert result.exit_code == 2
        assert "are too many. Draw at most 1,000,000 canaries." in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_workspace_is_laid_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert again.stderr == f"Error: {mine}/config exists already and is not overwritten. Choose another folder.\n"
    assert (mine / "config" / "models.yaml").read_text() == "mine"


def test_nothing_is_laid_out_beside_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    assert CliRunner().invoke(main, ["init"]).exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
