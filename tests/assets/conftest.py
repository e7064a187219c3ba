"""Fixtures of the assets' tests: made-up documents, tiny models, and a Dagster instance in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest
from made_workspace import Workspace, make_workspace, quick_folder, temporal

from audit_pipeline.definitions import defs


@pytest.fixture(scope="session")
def definitions() -> dg.Definitions:
    return defs()


@pytest.fixture
def workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Callable[[str], Path]
) -> Iterator[Workspace]:
    """Two models and two lengths of one family; nothing is fetched yet."""
    with quick_folder(tmp_path) as folder:
        made = make_workspace(folder / "made", monkeypatch, one=tiny_folder("llama"), two=tiny_folder("gpt_neox"))
        made.write_benchmarks(made=temporal([8, 12]))
        yield made


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made
