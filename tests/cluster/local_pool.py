"""A stand-in for Ray: workers in this process, whose deaths are written down beforehand.

What belongs here: the pool and making a back end of it. What does not: tests.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.cluster import backend as backend_module
from audit_pipeline.cluster.backend import RayBackend
from audit_pipeline.cluster.dispatch import Ended, Event, Failed, Finished, Ready, Shard
from audit_pipeline.cluster.engine import Engine
from audit_pipeline.cluster.ray_pool import Cluster
from audit_pipeline.cluster.worker import Assignment, Worker, WorkerError, restore_worker_error
from audit_pipeline.models.tokenized_model import TokenizedModel

NODES = [{"CPU": 1.0}, {"CPU": 1.0}]


@dataclass
class LocalPool:
    """Workers of this process; what goes to them and comes back is pickled, as between processes.

    ``deaths``: by the number of a shard's hand-out, counted from 0: whether its worker dies before or after the rows
    are written. ``given`` are the texts of each hand-out.
    """

    assignment: Assignment
    gpus: float
    deaths: dict[int, str] = field(default_factory=dict)
    given: list[int] = field(default_factory=list)
    _workers: dict[int, Worker] = field(default_factory=dict)
    _events: dict[int, Callable[[], Event]] = field(default_factory=dict)

    def start(self, worker: int) -> None:
        self._workers[worker] = Worker(pickle.loads(pickle.dumps(self.assignment)))
        self._events[worker] = lambda: Ready(worker, self._workers[worker].prepare())

    def stop(self, worker: int) -> None:
        self._workers.pop(worker, None)
        self._events.pop(worker, None)

    def give(self, worker: int, shard: Shard) -> None:
        assert worker not in self._events, "one thing at a time"
        death = self.deaths.get(len(self.given))
        self.given.append(shard.texts)

        def run() -> Event:
            if death == "before":
                return Ended(worker, "died", "killed")
            summary = self._workers[worker].run(pickle.loads(pickle.dumps(shard.work)))
            if death == "after":
                return Ended(worker, "memory_monitor", "no memory")
            return Finished(worker, pickle.loads(pickle.dumps(summary)))

        self._events[worker] = run

    def wait(self, seconds: float) -> Sequence[Event]:
        [worker, *_] = self._events
        event = self._events.pop(worker)
        try:
            return [event()]
        except WorkerError as error:
            return [Failed(worker, restore_worker_error(pickle.loads(pickle.dumps(error))))]


@dataclass
class Stood:
    """A back end of local workers, its pools, and what it told."""

    backend: RayBackend
    pools: list[LocalPool]
    told: list[str]
    make_pool: Callable[[Assignment, float], LocalPool]

    @property
    def pool(self) -> LocalPool:
        """Its pool, which is there once the first texts have gone to workers."""
        [pool] = self.pools
        return pool


def stand_in(
    monkeypatch: pytest.MonkeyPatch, model: TokenizedModel, paths: DataPaths, deaths: dict[int, str] | None = None
) -> Stood:
    """The back end of two workers, with the stand-in in the place of Ray."""
    pools: list[LocalPool] = []

    def pool(assignment: Assignment, gpus: float) -> LocalPool:
        pools.append(LocalPool(assignment, gpus, deaths or {}))
        return pools[-1]

    monkeypatch.setattr(backend_module, "RayPool", pool)
    monkeypatch.setattr(backend_module, "connect_cluster", lambda engine, tell: Cluster("127.0.0.1:6379", NODES))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    told: list[str] = []
    backend = RayBackend(
        model, paths, Engine(name="ray", workers=2), "cpu", told.append, lambda: pytest.fail("loaded here")
    )
    return Stood(backend, pools, told, pool)
