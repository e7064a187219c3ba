"""Workspaces for tests of commands: a new one, and one after an audit."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from made_workspace import Workspace, enter_workspace, made_documents, make_workspace, quick_folder, temporal
from quick import empty_pictures, kept_garbage
from tiny_models import single_threaded


@pytest.fixture
def workspace(workspace: Workspace) -> Workspace:
    """Return a workspace with a model and an unbuilt benchmark family."""
    workspace.write_benchmarks(made=temporal([8, 12]))
    workspace.hold(*made_documents(2, 40))
    return workspace


@pytest.fixture(scope="session")
def audited_root(
    tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]
) -> Iterator[tuple[Path, Result]]:
    """Return the folder and the output of a workspace after one audit. Tests must not change it."""
    with quick_folder(tmp_path_factory.mktemp("audited")) as folder:
        with pytest.MonkeyPatch.context() as patch, single_threaded(), empty_pictures(), kept_garbage():
            made = make_workspace(folder / "made", patch, tiny=tiny_folder("llama"))
            made.write_benchmarks(made=temporal([8, 12]), other=temporal([10]))
            made.hold(*made_documents(2, 40))
            result = made.run("audit", "--model", "tiny", "--benchmark", "made")
        yield made.root, result


@pytest.fixture
def audited(audited_root: tuple[Path, Result], monkeypatch: pytest.MonkeyPatch) -> Workspace:
    return enter_workspace(audited_root[0], monkeypatch)


@pytest.fixture
def audited_copy(
    audited_root: tuple[Path, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Workspace]:
    """Return a copy of the audited workspace that a test may change."""
    with quick_folder(tmp_path) as folder:
        yield enter_workspace(shutil.copytree(audited_root[0], folder / "copy"), monkeypatch)
