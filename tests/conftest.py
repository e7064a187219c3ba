"""Fixtures that several packages' tests share: tiny models on disk, and the embedded default model in memory."""

from __future__ import annotations

import gc
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from bad_server import BadServer
from dagster._core.execution import compute_logs
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage
from loopback_index import FakeIndex
from made_workspace import Workspace, make_workspace, quick_folder
from profiles import load_profile
from quick import empty_pictures, few_detectors
from sqlalchemy.engine import Engine
from tiny_models import forward_of, save_model, single_threaded, tokenized

from audit_pipeline.models.config import load_models
from audit_pipeline.models.tokenized_model import TokenizedModel, load_tokenizer
from audit_pipeline.pipeline.dagster.instance import DAGSTER_YAML
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
def logs_in_files_alone() -> Iterator[None]:
    """What steps print goes to Dagster's files and nowhere else.

    To show it as well, Dagster starts four processes a run; where one does not end within 30 seconds of being told to,
    as on a machine that is busy enough, the run fails.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compute_logs, "tail_to_stream", lambda path, stream: nullcontext((None, None)))
        yield


@pytest.fixture(scope="session", autouse=True)
def migrations_are_read_once() -> Iterator[None]:
    """Every Dagster instance that is opened reads all scripts that migrate Dagster's databases: they do not change."""
    known: dict[str | None, ScriptDirectory] = {}
    read = ScriptDirectory.from_config

    def read_once(config: Config) -> ScriptDirectory:
        location = config.get_main_option("script_location")
        if location not in known:
            known[location] = read(config)
        return known[location]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", read_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def engines_are_kept() -> Iterator[None]:
    """Dagster makes an engine of SQLAlchemy for every query, which compiles it anew: each database keeps its engine."""
    makes = sqlite_event_log.create_engine
    made: dict[str, Engine] = {}
    compiled: dict[object, object] = {}

    def keep_engine(url: str, **options: Any) -> Engine:
        if url not in made:
            made[url] = engine = makes(url, **options)
            first = next(iter(made.values()))
            engine.dialect = first.dialect
            engine.update_execution_options(compiled_cache=compiled)
        return made[url]

    with pytest.MonkeyPatch.context() as patch:
        for module in (sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage):
            patch.setattr(module, "create_engine", keep_engine)
        yield


@pytest.fixture(scope="session", autouse=True)
def dagster_homes_are_copies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A new Dagster home gets the databases of an empty one: making them takes longer than most tests."""
    open_home, empty = dg.DagsterInstance.from_config, tmp_path_factory.mktemp("dagster") / "home"

    def open_copy(home: str) -> dg.DagsterInstance:
        settings = Path(home) / "dagster.yaml"
        if settings.read_text() == DAGSTER_YAML and not (Path(home) / "history").exists():
            if not empty.exists():
                empty.mkdir()
                (empty / "dagster.yaml").write_text(DAGSTER_YAML)
                with open_home(str(empty)) as made:
                    job = dg.JobDefinition(name="nothing", graph_def=dg.GraphDefinition(name="nothing"))
                    made.delete_run(made.create_run_for_job(job).run_id)
            shutil.copytree(empty, home, dirs_exist_ok=True)
        return open_home(home)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dg.DagsterInstance, "from_config", open_copy)
        yield


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny model of a family, made once."""
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
    with single_threaded():
        yield


@pytest.fixture(scope="module")
def quick_audits() -> Iterator[None]:
    """Audits of a module with empty pictures, its fixtures' as well."""
    with empty_pictures():
        yield


@pytest.fixture
def workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Callable[[str], Path]
) -> Iterator[Workspace]:
    """A workspace of a test's own, with a tiny model."""
    with quick_folder(tmp_path) as folder:
        yield make_workspace(folder / "made", monkeypatch, tiny=tiny_folder("llama"))


@pytest.fixture(name="few_detectors")
def audits_by_few_detectors() -> Iterator[None]:
    """Audits of a test that score by few detectors."""
    with few_detectors():
        yield


@pytest.fixture(scope="session")
def real_data(tmp_path_factory: pytest.TempPathFactory) -> DataPaths:
    """The data folder of :func:`real_model`, with its converted tokenizer."""
    return DataPaths(tmp_path_factory.mktemp("real-data"))


@pytest.fixture(scope="session")
def real_model(real_data: DataPaths) -> tuple[TokenizedModel, ForwardPass]:
    """The embedded default, smollm2-135m, in float32."""
    entry = load_models(ROOT / "config")["smollm2-135m"]
    model = load_tokenizer(entry, real_data)
    return model, forward_of(model)


@pytest.fixture
def server() -> Iterator[BadServer]:
    """A web server that misbehaves as a test tells it to."""
    with BadServer() as running:
        yield running


@pytest.fixture
def fake_index() -> Iterator[FakeIndex]:
    fake = FakeIndex()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fake.requests.append(self.path)
            kind, data = "application/vnd.pypi.simple.v1+json", b""
            status = fake.faults[self.path].pop(0) if fake.faults.get(self.path) else 200
            name = self.path.strip("/").rpartition("/")[2]
            files = {name: data for project in fake.projects.values() for name, data in project.items()}
            if status == 200 and self.path.startswith("/files/") and name in files:
                kind, data = "application/octet-stream", files[name]
            elif status == 200 and self.path.startswith("/simple/") and name in fake.projects:
                data = fake.page(name)
            elif status == 200:
                status = 404
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if name in fake.cut_short else data)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    fake.endpoint = f"http://127.0.0.1:{server.server_address[1]}/simple/"
    running = True

    def stop() -> None:
        nonlocal running
        if running:
            running = False
            server.shutdown()
            server.server_close()
            thread.join()

    fake.stop = stop
    yield fake
    stop()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loopback server is reached directly, whatever proxy the machine is set up with."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
