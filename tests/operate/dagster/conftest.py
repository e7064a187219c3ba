"""Fixtures of the orchestration's tests: a Dagster instance as the command line makes it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest
from made_workspace import Workspace, make_workspace, quick_folder

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.operate.dagster.instance import ensure_dagster_home


@pytest.fixture
def workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Callable[[str], Path]
) -> Iterator[Workspace]:
    with quick_folder(tmp_path) as folder:
        yield make_workspace(folder / "made", monkeypatch, tiny=tiny_folder("llama"))


@pytest.fixture(scope="session")
def fresh_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Dagster home whose databases have their tables: making those takes longer than most tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", "")
        home = ensure_dagster_home(DataPaths(tmp_path_factory.mktemp("home")))
        with dg.DagsterInstance.get() as made:
            job = dg.JobDefinition(name="nothing", graph_def=dg.GraphDefinition(name="nothing"))
            made.delete_run(made.create_run_for_job(job).run_id)
    return home


@pytest.fixture
def instance(workspace: Workspace, fresh_home: Path) -> Iterator[dg.DagsterInstance]:
    """As the command line opens it, of the home of the workspace."""
    shutil.copytree(fresh_home, workspace.paths.dagster_home)
    ensure_dagster_home(workspace.paths)
    with dg.DagsterInstance.get() as made:
        yield made
