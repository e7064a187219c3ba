"""Fixtures of the assets' tests: made-up documents, tiny models, and a Dagster instance in memory."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest
from made_workspace import Workspace, made_documents, make_workspace, quick_folder, temporal

from audit_pipeline.definitions import defs


@pytest.fixture(scope="session")
def definitions() -> dg.Definitions:
    return defs()


@pytest.fixture
def workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Callable[[str], Path]
) -> Iterator[Workspace]:
    """Yield a workspace with two models and a family of two lengths. Nothing is fetched."""
    with quick_folder(tmp_path) as folder:
        yield _make(folder / "made", monkeypatch, tiny_folder)


def _make(root: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Callable[[str], Path]) -> Workspace:
    made = make_workspace(root, monkeypatch, one=tiny_folder("llama"), two=tiny_folder("gpt_neox"))
    made.write_benchmarks(made=temporal([8, 12]))
    return made


@pytest.fixture(scope="session")
def built_once(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        made = _make(tmp_path_factory.mktemp("built") / "made", patch, tiny_folder)
        made.fetch(*made_documents(2, 40))
        made.build("made")
        made.assess("made")
    return made.root


@pytest.fixture
def built(workspace: Workspace, built_once: Path) -> Workspace:
    """Return the workspace with both benchmarks built and their splits assessed."""
    workspace.hold(*made_documents(2, 40))
    shutil.copytree(built_once, workspace.root, dirs_exist_ok=True)
    return workspace


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made
