"""A stand-in for Ray's pool of actors: workers in this process, and making a back end of them."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RayTaskError

from audit_pipeline.extras.ray import ray_backend
from audit_pipeline.extras.ray.ray_backend import RayBackend, Worker, WorkerPlan
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.engine_choice import Engine


@dataclass
class LocalPool:
    """Workers of this process; what goes to them and comes back is pickled, as between processes.

    ``repeated``: the shards that are run twice, as after a death. ``given``: the texts of each run. ``timeouts``: how
    often no result comes in time.
    """

    workers: list[Worker]
    repeated: frozenset[int] = frozenset()
    timeouts: int = 0
    given: list[int] = field(default_factory=list)
    _tasks: deque[Any] = field(default_factory=deque)

    def submit(self, function: Callable[[Any, Any], Any], task: Any) -> None:
        def run(number: int, work: Any) -> None:
            self._tasks += [(number, pickle.dumps(work))] * (1 + (number in self.repeated))

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
                result = self.workers[len(self.given) % len(self.workers)].run(number, work)
            except Exception as error:  # noqa: BLE001  (as Ray does)
                raise RayTaskError("run", "the worker's traceback", pickle.loads(pickle.dumps(error)), "ray") from None
            # Ray passes on the result of the last run of a shard.
            if all(number != pending for pending, _ in self._tasks):
                return pickle.loads(pickle.dumps(result))

    def pop_idle(self) -> None:
        return None


@dataclass
class LocalBackend:
    """A back end of local workers, its pools, and its messages."""

    backend: RayBackend
    pools: list[LocalPool]
    messages: list[str]

    @property
    def given(self) -> list[int]:
        """The texts of each shard that was run."""
        return [texts for pool in self.pools for texts in pool.given]


def make_local_backend(
    monkeypatch: pytest.MonkeyPatch, model: TokenizedModel, paths: DataPaths, **options: Any
) -> LocalBackend:
    """The back end of two workers, with the stand-in in the place of Ray."""
    pools: list[LocalPool] = []

    def start(worker: Worker, room: WorkerPlan) -> LocalPool:
        pools.append(LocalPool([pickle.loads(pickle.dumps(worker)) for _ in range(room.workers)], **options))
        return pools[-1]

    monkeypatch.setattr(ray_backend, "start_workers", start)
    monkeypatch.setattr(ray_backend, "connect_cluster", lambda engine: [{"CPU": 1.0}, {"CPU": 1.0}])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    messages: list[str] = []
    backend = RayBackend(
        model, paths, Engine(name="ray", workers=2), "cpu", messages.append, lambda: pytest.fail("loaded here")
    )
    return LocalBackend(backend, pools, messages)
