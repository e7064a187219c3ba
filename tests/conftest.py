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
    from postgres_server import Server

    from audit_pipeline.models.tokenized_model import TokenizedModel
    from audit_pipeline.store.paths import DataPaths
    from audit_pipeline.token_statistics.forward import ForwardPass

ROOT = Path(__file__).parent.parent
load_profile()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exclude imported objects from garbage collection, which took a fifth of the time."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Include all objects again, because nanobind (in DuckDB) would report frozen objects as leaks."""
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def interrupts_arrive() -> Iterator[None]:
    """Handle Ctrl-C as in a terminal. Processes that a shell starts in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session", autouse=True)
def nothing_is_flushed() -> Iterator[None]:
    """Do not flush files to the disk. Tests kill processes, but do not cut the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_dagster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Use Dagster's storage without its repeated work (quick_dagster.py)."""
    from quick_dagster import quick_storage

    with quick_storage(tmp_path_factory.mktemp("dagster")):
        yield


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that returns the folder of the tiny model of a family."""
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
    """Return a function that loads the tiny model of a family with its default entry."""
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
    """Use one thread, because several threads would wait for each other on tiny tensors."""
    from tiny_models import single_threaded

    with single_threaded():
        yield


@pytest.fixture(scope="module")
def quick_audits() -> Iterator[None]:
    """Draw empty pictures and collect no garbage in the audits of a module and its fixtures."""
    from quick import empty_pictures, kept_garbage

    with empty_pictures(), kept_garbage():
        yield


@pytest.fixture
def workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Callable[[str], Path]
) -> Iterator[Workspace]:
    """Yield a new workspace with the model tiny."""
    from made_workspace import make_workspace, quick_folder

    with quick_folder(tmp_path) as folder:
        yield make_workspace(folder / "made", monkeypatch, tiny=tiny_folder("llama"))


@pytest.fixture(name="few_detectors")
def audits_by_few_detectors() -> Iterator[None]:
    """Use two detectors in the audits of a test."""
    from quick import few_detectors

    with few_detectors():
        yield


@pytest.fixture
def no_report() -> Iterator[None]:
    """Write empty reports in the audits of a test."""
    from quick import empty_reports

    with empty_reports():
        yield


@pytest.fixture(scope="session")
def real_data(tmp_path_factory: pytest.TempPathFactory) -> DataPaths:
    """Return the data folder of :func:`real_model`, with its converted tokenizer."""
    from audit_pipeline.store.paths import DataPaths

    return DataPaths(tmp_path_factory.mktemp("real-data"))


@pytest.fixture(scope="session")
def real_model(real_data: DataPaths) -> tuple[TokenizedModel, ForwardPass]:
    """Load the embedded default model, smollm2-135m, in float32, on the CPU or on CORPUS_AUDIT_TEST_DEVICE."""
    from tiny_models import forward_of

    from audit_pipeline.models.config import load_models
    from audit_pipeline.models.tokenized_model import load_tokenized

    entry = load_models(ROOT / "config")["smollm2-135m"]
    model = load_tokenized(entry, real_data)
    return model, forward_of(model, os.environ.get("CORPUS_AUDIT_TEST_DEVICE", "cpu"))


@pytest.fixture
def server() -> Iterator[BadServer]:
    """Yield a web server with the faults that a test chooses."""
    from bad_server import BadServer

    with BadServer() as running:
        yield running


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    """Yield a PostgreSQL server with the empty database corpus_audit."""
    pytest.importorskip("dagster_postgres")
    from postgres_server import POSTGRES, running_postgres

    if POSTGRES is None or not (POSTGRES / "pg_dump").exists():
        pytest.skip("PostgreSQL (initdb, pg_dump) is not installed")
    with running_postgres() as running:
        yield running


@pytest.fixture
def fake_index() -> Iterator[FakeIndex]:
    from loopback_index import FakeIndex

    with FakeIndex() as running:
        yield running


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect to loopback servers without the machine's proxy."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1,localhost")


@pytest.fixture
def instance(workspace: Workspace) -> Iterator[dg.DagsterInstance]:
    """Yield the Dagster instance of the workspace."""
    from audit_pipeline.pipeline.dagster.instance import open_instance

    with open_instance(workspace.paths) as made:
        yield made
