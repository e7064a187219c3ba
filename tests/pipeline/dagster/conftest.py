"""Fixtures of the orchestration's tests: a Dagster instance as the command line makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest
from made_workspace import Workspace, make_workspace, quick_folder

from audit_pipeline.pipeline.dagster.instance import open_instance


@pytest.fixture
def workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Callable[[str], Path]
) -> Iterator[Workspace]:
    with quick_folder(tmp_path) as folder:
        yield make_workspace(folder / "made", monkeypatch, tiny=tiny_folder("llama"))


@pytest.fixture
def instance(workspace: Workspace) -> Iterator[dg.DagsterInstance]:
    """As the command line opens it, of the home of the workspace."""
    with open_instance(workspace.paths) as made:
        yield made
