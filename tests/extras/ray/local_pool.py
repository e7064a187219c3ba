"""A stand-in for Ray's pool of actors: workers in this process. What they receive and return is pickled, as in Ray."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RayTaskError

from audit_pipeline.extras.ray import ray_backend
from audit_pipeline.extras.ray.ray_backend import RayBackend, Worker, WorkerPlan
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.engine_choice import Engine


class LocalPool:
    """The workers of several back ends, and what happened to them.

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
