"""Data folders and warehouses for tests: an empty folder, an audited folder, and a folder with rows in every table."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest
from made_data_folder import Folder, write_config

from audit_pipeline.pipeline.evaluate_pair import write_missing_answers
from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.store.paths import DataPaths

from .decided import write_all_decisions, write_audited


def copy_folder(made: Folder, root: Path) -> Folder:
    """Copy a data folder without its warehouse."""
    shutil.copytree(made.paths.root, root, ignore=shutil.ignore_patterns("audit.duckdb*"))
    return Folder(DataPaths(root), examples=deepcopy(made.examples))


@pytest.fixture(scope="package", autouse=True)
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The configuration that the environment names: both models, both benchmarks."""
    folder = write_config(tmp_path_factory.mktemp("config"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CORPUS_AUDIT_CONFIG", str(folder))
        yield folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty data folder."""
    return Folder(DataPaths(tmp_path / "data"))


@pytest.fixture(scope="package")
def audited_once(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Two models on two benchmarks. The first pair was audited twice. For tests that only read the folder."""
    folder = Folder(DataPaths(tmp_path_factory.mktemp("audited") / "data"))
    write_audited(folder)
    write_missing_answers(folder.paths)
    return folder


@pytest.fixture
def audited(audited_once: Folder, tmp_path: Path) -> Folder:
    """A copy of the audited folder."""
    return copy_folder(audited_once, tmp_path / "data")


@pytest.fixture(scope="package")
def warehouse(audited_once: Folder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warehouse of the audited folder, for tests that only read it."""
    copy = copy_folder(audited_once, tmp_path_factory.mktemp("warehouse") / "data")
    return build_warehouse(copy.paths).path


@pytest.fixture(scope="package")
def built(audited_once: Folder, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The audited folder with rows in every table, and its warehouse, for tests that only read it."""
    copy = copy_folder(audited_once, tmp_path_factory.mktemp("decided") / "data")
    write_all_decisions(copy)
    build_warehouse(copy.paths)
    return copy


@pytest.fixture
def decided(built: Folder, tmp_path: Path) -> Folder:
    """A copy of the folder with rows in every table, without a warehouse."""
    return copy_folder(built, tmp_path / "data")
