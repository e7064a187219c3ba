"""The doctor names whatever is recorded and not there, with the command that makes it again; and nothing else."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from made_workspace import (
    Workspace,
    enter_workspace,
    made_documents,
    make_workspace,
    quick_folder,
    temporal,
)

from audit_pipeline.operate.dagster.health import build_run_ending_lookup
from audit_pipeline.operate.doctor import examine
from audit_pipeline.operate.doctor_checks import DoctorCheck

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits")

AUDIT = "corpus-audit audit --model tiny --benchmark made_8"
AGAIN = f"{AUDIT} --again"
REPORT = "corpus-audit report"
CHAIN = "chain of the lineage"
REMOVED = {
    "documents": (["documents/*/documents.parquet"], AUDIT),
    "a source's manifest": (["documents/*/manifest.json"], AUDIT),
    "documents with their lineage": (["documents/*/*", "lineage/*=documents*/*"], AUDIT),
    "examples": (["examples/*=made_8/examples.parquet"], AUDIT),
    "a benchmark's manifest": (["examples/*=made_8/manifest.json"], AUDIT),
    "examples with their lineage": (["examples/*=made_8/*", "lineage/*=examples%3Amade_8/*"], AUDIT),
    "split quality": (["split_quality/*=made_8/*"], AUDIT),
    "blind scores": (["blind_scores/*=made_8/*"], AUDIT),
    "cached statistics": (["token_statistics/kind=*/*/part*"], AGAIN),
    "the texts' own statistics": (["token_statistics/kind=base/*/part*"], AGAIN),
    "branches": (["token_statistics/kind=branches/*/part*"], AGAIN),
    "scores": (["scores/*made_8*/*"], AGAIN),
    "scores with their lineage": (["scores/*made_8*/*", "lineage/*=scores*made_8*/*"], AGAIN),
    "evaluations": (["evaluations/*made_8*/*"], AGAIN),
    "evaluations with their lineage": (["evaluations/*made_8*/*", "lineage/*=evaluations*made_8*/*"], AGAIN),
    "an answer with its lineage": (["pair_answers/*made_8*/*", "lineage/*=pair_answers*made_8*/*"], AGAIN),
    "a model's card": (["models/[0-9a-f]*.json"], AGAIN),
    "the warehouse": (["audit.duckdb"], REPORT),
    "the report": (["reports/contamination_report.html"], REPORT),
}
"""What is removed from the workspace, and the command that makes it again."""
QUICK = [
    *("documents", "examples with their lineage", "blind scores", "cached statistics", "scores"),
    *("evaluations with their lineage", "a model's card", "the report"),
]


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> Iterator[Path]:
    """Two audits by the command itself, with their runs in Dagster, warehouse and report."""
    with (
        quick_folder(tmp_path_factory.mktemp("audited")) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        made = make_workspace(folder / "made", patch, tiny=shutil.copytree(tiny_folder("llama"), folder / "model"))
        made.write_benchmarks(made=temporal([8, 9]))
        made.hold(*made_documents(4, 60))
        assert made.run("audit", "--model", "tiny", "--benchmark", "made").exit_code == 0
        shutil.copytree(made.root, folder / "whole")
        yield folder


@pytest.fixture
def workspace(audited: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """The same workspace, whole, at the place where it was made."""
    made = enter_workspace(audited / "made", monkeypatch)
    made.hold(*made_documents(4, 60))
    restore(made)
    return made


def restore(workspace: Workspace) -> None:
    shutil.rmtree(workspace.root)
    shutil.copytree(workspace.root.with_name("whole"), workspace.root)


def remove(workspace: Workspace, patterns: list[str]) -> list[Path]:
    files = [file for pattern in patterns for file in workspace.paths.root.glob(pattern)]
    files = [file for file in files if file != workspace.paths.digest_cache]
    assert files, patterns
    for file in files:
        file.unlink()
    return files


def look(workspace: Workspace) -> list[DoctorCheck]:
    """What is wrong."""
    paths = workspace.paths
    return [check for check in examine(paths, deep=True, how_ended=build_run_ending_lookup(paths)) if not check.ok]


def look_for_missing(workspace: Workspace) -> list[DoctorCheck]:
    """What is wrong, but for the gap that a removed lineage row leaves for ever."""
    return [check for check in look(workspace) if check.what != CHAIN]


def commands(found: list[DoctorCheck]) -> set[str]:
    return {check.words.partition("make it again: ")[2] for check in found}


def carry_out(workspace: Workspace, command: str) -> None:
    result = workspace.run(*shlex.split(command)[1:])
    assert result.exit_code == 0, result.output


def test_a_whole_workspace_has_nothing_wrong(workspace: Workspace) -> None:
    assert look(workspace) == []


@pytest.mark.parametrize("removed", [QUICK, pytest.param([*REMOVED.keys() - {*QUICK}], marks=pytest.mark.slow)])
def test_whatever_is_removed_is_named_with_what_makes_it_again(workspace: Workspace, removed: list[str]) -> None:
    for what in removed:
        patterns, command = REMOVED[what]
        restore(workspace)
        files = remove(workspace, patterns)
        of_lineage = any(workspace.paths.table("lineage") in file.parents for file in files)
        found = look(workspace)
        assert (CHAIN in {check.what for check in found}) == of_lineage, what
        found = [check for check in found if check.what != CHAIN]
        words = "\n".join(check.words for check in found)
        # Both benchmarks lose their cached statistics.
        assert {one.replace("made_9", "made_8") for one in commands(found)} == {command}, what
        # Of the cache a folder is named: its parts are merged and have no names that stay.
        for file in files:
            assert str(file) in words or "part-" in file.name, (what, words)
        assert "part-" not in files[0].name or str(workspace.paths.table("token_statistics")) in words, what


def test_an_evaluation_is_missed_after_the_warehouse_was_built_without_it(workspace: Workspace) -> None:
    [file, _] = remove(workspace, REMOVED["evaluations with their lineage"][0])
    carry_out(workspace, f"{REPORT} --rebuild")
    [check] = look_for_missing(workspace)
    assert check.words.startswith(f"{file}: run {file.stem.removeprefix('run_id=')} wrote ")
    assert commands([check]) == {AGAIN}


@pytest.mark.parametrize(
    "removed",
    [
        pytest.param(
            ["documents with their lineage", "a benchmark's manifest", "split quality", "blind scores"],
            marks=pytest.mark.slow,
        ),
        pytest.param(["cached statistics", "evaluations with their lineage", "a model's card"], marks=pytest.mark.slow),
        pytest.param(["examples with their lineage", "scores", "the warehouse"], marks=pytest.mark.slow),
    ],
)
def test_the_named_commands_make_it_again(workspace: Workspace, removed: list[str]) -> None:
    for what in removed:
        remove(workspace, REMOVED[what][0])
    found = look_for_missing(workspace)
    assert len(found) >= len(removed)
    for command in sorted(commands(found)):
        carry_out(workspace, command)
    assert look_for_missing(workspace) == []


@pytest.mark.slow
def test_nothing_is_missed_of_what_was_forgotten(workspace: Workspace) -> None:
    carry_out(workspace, "corpus-audit forget --benchmark made_9")
    assert look(workspace) == []
    carry_out(workspace, "corpus-audit forget --model tiny")
    assert look(workspace) == []


def test_a_file_that_its_run_never_wrote_is_no_loss(workspace: Workspace) -> None:
    remove(workspace, REMOVED["evaluations with their lineage"][0])
    workspace.paths.warehouse.unlink()
    workspace.paths.warehouse_record.unlink()
    checks = examine(workspace.paths, deep=True, how_ended=lambda run_id: "badly")
    assert [check for check in checks if not check.ok and check.what != CHAIN] == []
