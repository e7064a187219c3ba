"""Fixtures that several packages' tests share: tiny models on disk, and the embedded default model in memory."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from profiles import load_profile

# The fixtures import what is slow to import: pytest-xdist imports this module before its workers start.
if TYPE_CHECKING:
    import dagster as dg
    from bad_server import BadServer
    from loopback_index import FakeIndex
    from made_workspace import Workspace

    from audit_pipeline.models.tokenized_model import TokenizedModel
    from audit_pipeline.store.paths import DataPaths
    from audit_pipeline.token_statistics.forward import ForwardPass

ROOT = Path(__file__).parent.parent
load_profile()


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is imported stays to the end: looking through it for garbage again and again was a fifth of the time."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Else libraries that count their objects at the end (nanobind, under DuckDB) would call what is frozen a leak."""
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def interrupts_arrive() -> Iterator[None]:
    """Ctrl-C as in a terminal: what a shell starts in the background ignores it, and so would its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session", autouse=True)
def nothing_is_flushed() -> Iterator[None]:
    """Files are not flushed to the disk: tests kill processes, and none cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_dagster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Dagster's storage without its repetitions."""
    from quick_dagster import quick_storage

    with quick_storage(tmp_path_factory.mktemp("dagster")):
        yield


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny model of a family, made once."""
    from tiny_models import save_model

    root = tmp_path_factory.mktemp("tiny")
    made: dict[str, Path] = {}

    def folder(family: str) -> Path:
        if family not in made:
            made[family] = save_model(root / family, family)
        return made[family]

    return folder


@pytest.fixture(scope="session")
def tiny(
    tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[TokenizedModel, ForwardPass]]:
    """A tiny model of a family, in memory, with its default entry."""
    from tiny_models import forward_of, tokenized

    data = tmp_path_factory.mktemp("tiny-data")
    loaded: dict[str, tuple[TokenizedModel, ForwardPass]] = {}

    def load(family: str) -> tuple[TokenizedModel, ForwardPass]:
        if family not in loaded:
            model = tokenized(tiny_folder(family), data)
            loaded[family] = model, forward_of(model)
        return loaded[family]

    return load


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """One thread for tiny tensors: several would only wait for each other on a busy machine."""
    from tiny_models import single_threaded

    with single_threaded():
        yield


@pytest.fixture(scope="module")
def quick_audits() -> Iterator[None]:
    """Audits of a module with empty pictures and no search for garbage, its fixtures' as well."""
    from quick import empty_pictures, kept_garbage

    with empty_pictures(), kept_garbage():
        yield


@pytest.fixture
def workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Callable[[str], Path]
) -> Iterator[Workspace]:
    """A workspace of a test's own, with a tiny model."""
    from made_workspace import make_workspace, quick_folder

    with quick_folder(tmp_path) as folder:
        yield make_workspace(folder / "made", monkeypatch, tiny=tiny_folder("llama"))


@pytest.fixture(name="few_detectors")
def audits_by_few_detectors() -> Iterator[None]:
    """Audits of a test that score by few detectors."""
    from quick import few_detectors

    with few_detectors():
        yield


@pytest.fixture
def no_report() -> Iterator[None]:
    """Audits of a test that write a report with nothing in it."""
    from quick import empty_reports

    with empty_reports():
        yield


@pytest.fixture(scope="session")
def real_data(tmp_path_factory: pytest.TempPathFactory) -> DataPaths:
    """The data folder of :func:`real_model`, with its converted tokenizer."""
    from audit_pipeline.store.paths import DataPaths

    return DataPaths(tmp_path_factory.mktemp("real-data"))


@pytest.fixture(scope="session")
def real_model(real_data: DataPaths) -> tuple[TokenizedModel, ForwardPass]:
    """The embedded default, smollm2-135m, in float32."""
    from tiny_models import forward_of

    from audit_pipeline.models.config import load_models
    from audit_pipeline.models.tokenized_model import load_tokenized

    entry = load_models(ROOT / "config")["smollm2-135m"]
    model = load_tokenized(entry, real_data)
    return model, forward_of(model)


@pytest.fixture
def server() -> Iterator[BadServer]:
    """A web server that misbehaves as a test tells it to."""
    from bad_server import BadServer

    with BadServer() as running:
        yield running


@pytest.fixture
def fake_index() -> Iterator[FakeIndex]:
    from loopback_index import FakeIndex

    with FakeIndex() as running:
        yield running


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loopback server is reached directly, whatever proxy the machine is set up with."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def instance(workspace: Workspace) -> Iterator[dg.DagsterInstance]:
    """A Dagster instance, as the command line opens it, of the home of the workspace."""
    from audit_pipeline.pipeline.dagster.instance import open_instance

    with open_instance(workspace.paths) as made:
        yield made
