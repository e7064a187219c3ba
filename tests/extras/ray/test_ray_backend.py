"""Texts run by workers: the rows equal those of a run in process, for every kind of pass, without Ray."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from ray.exceptions import RayTaskError
from tiny_models import SENTENCES, tokenized

from audit_pipeline.errors import ClusterError, ModelError, TransientError
from audit_pipeline.extras.extraction import WindowLengths
from audit_pipeline.extras.extraction.window_probabilities import encode_windows_at, read_windows, run_windows
from audit_pipeline.extras.ray import ray_backend
from audit_pipeline.extras.ray.ray_backend import RayBackend, Worker, WorkerPlan
from audit_pipeline.http.faults import is_transient_fault
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.scoring.backends import open_backend
from audit_pipeline.store.ledger import package_versions
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import Kind
from audit_pipeline.token_statistics import run as run_module
from audit_pipeline.token_statistics.cache import PartCache, list_parts, read_part
from audit_pipeline.token_statistics.cached_texts import read_branches, read_statistics
from audit_pipeline.token_statistics.engine_choice import Engine
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.prefixed_texts import compute_prefixed, read_prefixed
from audit_pipeline.token_statistics.run import Progress, RunSummary, compute
from audit_pipeline.token_statistics.tokens import encode_prefix

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = [f"{number} {SENTENCES[number % len(SENTENCES)]} {SENTENCES[number % 5]}" for number in range(80)]
KINDS_OF_PASS: tuple[Kind, ...] = ("base", "topk", "logits", "renyi", "temperatures")
Model = Callable[[str], tuple[TokenizedModel, DataPaths]]


class LocalPool:
    """A stand-in for Ray's pool of actors: workers in this process. What they receive and return is pickled, as in Ray.

    Attributes:
        backend: A back end with two workers.
        repeated: Numbers of the shards that are run twice, as after the death of a worker.
        timeouts: How often no result arrives in time.
        given: The number of texts of each shard that was run.
        messages: The messages of the back end.
    """

    def __init__(
        self, patch: pytest.MonkeyPatch, model: TokenizedModel, paths: DataPaths, *repeated: int, timeouts: int = 0
    ) -> None:
        self.repeated = repeated
        self.timeouts = timeouts
        self.given: list[int] = []
        self.messages: list[str] = []
        self._workers: list[Worker] = []
        self._tasks: deque[tuple[int, bytes]] = deque()
        patch.setattr(ray_backend, "connect_cluster", lambda engine: [{"CPU": 1.0}, {"CPU": 1.0}])
        # A few texts make several shards.
        patch.setattr(ray_backend, "_MIN_SHARD_TOKENS", 300)
        patch.setattr(ray_backend, "start_workers", self._start_workers)
        patch.setenv("OMP_NUM_THREADS", "1")
        engine = Engine(name="ray", workers=2)
        self.backend = RayBackend(
            model, paths, engine, "cpu", self.messages.append, lambda: pytest.fail("the model is loaded here")
        )

    def _start_workers(self, worker: Worker, plan: WorkerPlan) -> LocalPool:
        self._workers = [pickle.loads(pickle.dumps(worker)) for _ in range(plan.workers)]
        self._tasks.clear()
        return self

    def submit(self, function: Callable[[Any, Any], Any], task: Any) -> None:
        def run(number: int, work: Any) -> None:
            self._tasks += [(number, pickle.dumps(work))] * (1 + self.repeated.count(number))

        function(SimpleNamespace(run=SimpleNamespace(remote=run)), task)

    def has_next(self) -> bool:
        return bool(self._tasks)

    def get_next_unordered(self, timeout: float) -> Any:
        if self.timeouts:
            self.timeouts -= 1
            raise TimeoutError
        while True:
            number, work = self._tasks.popleft()
            work = pickle.loads(work)
            self.given.append(work.prepared.distinct)
            try:
                result = self._workers[len(self.given) % len(self._workers)].run(number, work)
            except Exception as error:  # noqa: BLE001 - as Ray does
                raise RayTaskError("run", "the worker's traceback", pickle.loads(pickle.dumps(error)), "ray") from None
            # Ray returns the result of the last run of a shard.
            if all(number != pending for pending, _ in self._tasks):
                return pickle.loads(pickle.dumps(result))

    def pop_idle(self) -> None:
        return None


@pytest.fixture
def llama(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> Model:
    """Return a function that builds the model with its own data folder, as in another process."""

    def made(name: str) -> tuple[TokenizedModel, DataPaths]:
        return tokenized(tiny_folder("llama"), tmp_path / name), DataPaths(tmp_path / name)

    return made


def keys_of(model: TokenizedModel, paths: DataPaths, kind: Kind) -> list[str]:
    folder = paths.token_statistics(kind, model.identity.model_fingerprint)
    return [key for part in list_parts(folder) for key in read_part(part, ["key"]).column("key").to_pylist()]


def require_same(one: pa.Table, other: pa.Table) -> None:
    """Check that rows are equal. Numbers of the model may differ by the effect of other batches."""
    assert len(one) == len(other) > 0
    tables = [table.sort_by([(name, "ascending") for name in ("text_sha256", "key")]) for table in (one, other)]
    for name in one.schema.names:
        for first, second in zip(*(table.column(name).to_pylist() for table in tables), strict=True):
            if isinstance(first, list) and first and isinstance(first[0], float):
                np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-5)
            elif isinstance(first, bytes):
                halves = (np.frombuffer(one, "<f2").astype(np.float32) for one in (first, second))
                np.testing.assert_allclose(*halves, atol=5e-3)
            else:
                assert first == second, name


def both_ways(
    monkeypatch: pytest.MonkeyPatch, llama: Model, repeated: tuple[int, ...], **options: object
) -> tuple[TokenizedModel, DataPaths, DataPaths, LocalPool, RunSummary]:
    on_this_machine, ours = llama("here")
    expected = compute(on_this_machine, TEXTS, ours, lambda: open_backend(on_this_machine, ours, "cpu"), **options)  # type: ignore[arg-type]
    model, paths = llama("there")
    local = LocalPool(monkeypatch, model, paths, *repeated)
    summary = compute(model, TEXTS, paths, lambda: local.backend, **options)  # type: ignore[arg-type]
    # Batches, and what they are padded with, are others.
    varying: dict[str, Any] = {"seconds": 0.0, "branch_tokens": 0}
    assert replace(summary, **varying) == replace(expected, **varying)
    return model, ours, paths, local, summary


def test_rows_equal_those_in_process_without_losses_or_duplicates(tmp_path, monkeypatch, llama):
    model, ours, theirs, local, summary = both_ways(monkeypatch, llama, (1, 3), kinds=KINDS_OF_PASS)
    assert (summary.texts_computed, summary.texts_from_cache) == (len(TEXTS), 0)
    for kind in KINDS_OF_PASS:
        require_same(*(read_statistics(model, TEXTS, paths, kind) for paths in (ours, theirs)))
        # A row that a dead worker wrote as well may be there twice, and is read once.
        assert set(keys_of(model, theirs, kind)) == set(keys_of(model, ours, kind))
    assert len(local.given) >= 10
    again = compute(model, TEXTS, theirs, lambda: pytest.fail("everything is in the cache"), kinds=KINDS_OF_PASS)
    assert (again.texts_computed, again.texts_from_cache) == (0, len(TEXTS))


def test_branches_and_modes_equal_those_in_process(monkeypatch, llama) -> None:
    model, ours, theirs, _, summary = both_ways(monkeypatch, llama, (0,), branch_steps=1)
    assert summary.branch_tokens > 0
    require_same(*(read_branches(model, TEXTS, paths, 1) for paths in (ours, theirs)))
    # The texts of longer branches are in the cache. The driver sends their modes to the workers.
    local = LocalPool(monkeypatch, model, theirs)
    compute(model, TEXTS, theirs, lambda: local.backend, branch_steps=2)
    compute(model, TEXTS, ours, lambda: open_backend(model, ours, "cpu"), branch_steps=2)
    require_same(*(read_branches(model, TEXTS, paths, 2) for paths in (ours, theirs)))


def test_prefixed_texts_and_windows_equal_those_in_process(monkeypatch, llama) -> None:
    model, ours = llama("here")
    theirs = llama("there")[1]
    local = LocalPool(monkeypatch, model, theirs, 0)
    prefix = encode_prefix(model, SENTENCES[0][:40])
    windows = [one for text in TEXTS[:30] for one in encode_windows_at(model, text, [0, 5, 10], WindowLengths(10, 8))]
    short = [text[:60] for text in TEXTS]
    for paths, backend in ((ours, open_backend(model, ours, "cpu")), (theirs, local.backend)):
        compute_prefixed(model, short, prefix, paths, lambda backend=backend: backend)  # type: ignore[misc]
        run_windows(model, windows, paths, lambda backend=backend: backend)  # type: ignore[misc]
    require_same(*(read_prefixed(model, short, prefix, paths) for paths in (ours, theirs)))
    require_same(*(read_windows(model, windows, paths) for paths in (ours, theirs)))
    assert local.given


def test_an_interrupted_run_keeps_written_rows(monkeypatch, llama) -> None:
    model, paths = llama("there")
    local = LocalPool(monkeypatch, model, paths)

    def stop(progress: Progress) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "_PROGRESS_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        compute(model, TEXTS, paths, lambda: local.backend, on_progress=stop)
    written = len(set(keys_of(model, paths, "base")))
    assert 0 < written < len(TEXTS)
    summary = compute(model, TEXTS, paths, lambda: local.backend)
    assert (summary.texts_from_cache, summary.texts_computed) == (written, len(TEXTS) - written)
    assert sorted(keys_of(model, paths, "base")) == sorted(set(keys_of(model, paths, "base")))


def test_workers_do_not_read_the_cache(monkeypatch, llama) -> None:
    model, paths = llama("there")
    local = LocalPool(monkeypatch, model, paths)
    at_work: list[bool] = []
    run = Worker.run

    def watched(self: Worker, *shard: object) -> object:
        at_work.append(True)
        try:
            return run(self, *shard)  # type: ignore[arg-type]
        finally:
            at_work.pop()

    monkeypatch.setattr(Worker, "run", watched)
    for name in ("missing", "values_of", "read_by_part"):
        inner = getattr(PartCache, name)

        def guarded(self: PartCache, *given: object, inner: Callable[..., object] = inner) -> object:
            assert not at_work, "a worker reads the cache"
            return inner(self, *given)

        monkeypatch.setattr(PartCache, name, guarded)
    compute(model, TEXTS, paths, lambda: local.backend, branch_steps=2)
    assert len(local.given) >= 8


def test_texts_without_tokens_are_not_sent_to_workers(monkeypatch, llama) -> None:
    model, paths = llama("there")
    local = LocalPool(monkeypatch, model, paths)
    summary = compute(model, ["", *TEXTS[:3]], paths, lambda: local.backend)
    assert (summary.texts_without_tokens, sum(local.given)) == (1, 3)
    assert len(read_statistics(model, ["", *TEXTS[:3]], paths)) == 4


@pytest.mark.parametrize("changed", ["model_fingerprint", "weights_digest", "tokenizer_fingerprint"])
def test_a_worker_with_another_model_refuses(monkeypatch, llama, changed) -> None:
    model, paths = llama("there")
    other = replace(model, identity=replace(model.identity, **{changed: "0" * 24}))
    local = LocalPool(monkeypatch, other, paths)
    with pytest.raises(ClusterError, match=f"or other files of llama, than the main process: {changed} is"):
        compute(other, TEXTS, paths, lambda: local.backend)
    assert keys_of(model, paths, "base") == []


def test_a_worker_with_other_packages_refuses(monkeypatch, llama) -> None:
    model, paths = llama("there")
    local = LocalPool(monkeypatch, model, paths)
    versions = iter([package_versions(), {**package_versions(), "torch": "1.0"}])
    monkeypatch.setattr(ray_backend, "package_versions", lambda: next(versions))
    with pytest.raises(ClusterError, match=r"has other packages.*torch is 1\.0"):
        compute(model, TEXTS, paths, lambda: local.backend)


def test_one_model_has_workers_at_a_time(monkeypatch, llama) -> None:
    model, paths = llama("there")
    first, second = (LocalPool(monkeypatch, model, paths) for _ in range(2))
    compute(model, TEXTS[:2], paths, lambda: first.backend)
    compute(model, TEXTS[2:4], paths, lambda: second.backend)
    assert first.backend._pool is None
    compute(model, TEXTS[4:6], paths, lambda: first.backend)
    assert second.backend._pool is None
    assert len(read_statistics(model, TEXTS[:6], paths)) == 6


def test_workers_and_a_long_wait_are_reported(monkeypatch, llama) -> None:
    model, paths = llama("there")
    local = LocalPool(monkeypatch, model, paths, timeouts=1)
    assert local.backend.described == "run by 2 workers of a Ray cluster"
    compute(model, TEXTS[:2], paths, lambda: local.backend)
    assert local.messages[0] == "llama: The Ray cluster runs 2 workers of 1 CPU each."
    assert "finished no shard of the texts for 0 minutes" in local.messages[1]
    monkeypatch.setattr(ray_backend, "_LIMIT_SECONDS", 0.0)
    slow = LocalPool(monkeypatch, model, paths, timeouts=1)
    with pytest.raises(ClusterError, match=r"finished no shard of the texts for 0 hours.*Repeat the command"):
        compute(model, TEXTS[2:4], paths, lambda: slow.backend)
    assert slow.backend._pool is None


def test_a_model_for_this_process_connects_to_no_cluster(monkeypatch, llama, tiny) -> None:
    model, paths = llama("there")
    local = LocalPool(monkeypatch, model, paths)
    monkeypatch.setattr(ray_backend, "connect_cluster", lambda engine: pytest.fail("Ray is started"))
    monkeypatch.setattr(local.backend, "_load", lambda: tiny("llama")[1])
    assert local.backend.local_backend is local.backend.local_backend
    assert not local.given


def test_the_workers_end_before_the_model_is_loaded_here(monkeypatch, llama, tiny) -> None:
    model, paths = llama("there")
    local = LocalPool(monkeypatch, model, paths)
    compute(model, TEXTS[:2], paths, lambda: local.backend)

    def load() -> ForwardPass:
        assert local.backend._pool is None
        forward: ForwardPass = tiny("llama")[1]
        return forward

    monkeypatch.setattr(local.backend, "_load", load)
    assert local.backend.local_backend is not None
    compute(model, TEXTS[2:4], paths, lambda: local.backend)
    assert len(read_statistics(model, TEXTS[:4], paths)) == 4


def test_this_process_sends_requests_to_an_endpoint(monkeypatch, llama) -> None:
    model, paths = llama("there")
    asked = replace(
        model,
        located=replace(
            model.located, entry=model.entry.model_copy(update={"endpoint": SimpleNamespace(is_here=False)})
        ),
    )
    endpoints = SimpleNamespace(open=lambda *given: "the server")
    messages: list[str] = []
    opened = open_backend(asked, paths, None, messages.append, endpoints, Engine(name="ray"))  # type: ignore[arg-type]
    assert opened == "the server"
    assert messages == ["llama runs on a server. This process sends the requests, without Ray."]


def test_the_cause_decides_if_an_error_of_a_worker_is_transient(monkeypatch, llama) -> None:
    model, paths = llama("there")

    def unreachable(*given: object) -> TokenizedModel:
        raise ModelError("the hub does not answer") from ConnectionError("no route")

    local = LocalPool(monkeypatch, model, paths)
    monkeypatch.setattr(ray_backend, "load_tokenized", unreachable)
    with pytest.raises(TransientError, match="the hub does not answer") as raised:
        compute(model, TEXTS[:2], paths, lambda: local.backend)
    assert is_transient_fault(raised.value)
