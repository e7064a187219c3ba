"""Ray: reaching or starting a cluster, and workers in it as actors.

What belongs here: all that speaks to Ray, which is imported here alone. What does not: who runs which shard
(dispatch.py), what a worker does (worker.py).

Actors are not restarted by Ray, nor their calls tried again: Ray tells nobody when it does, and binds a shard to one
actor, whose machine may never come back. dispatch.py does both.
"""

from __future__ import annotations

import math
import os
import secrets
import sys
import textwrap
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import joblib

from audit_pipeline.cluster.addresses import warning_of
from audit_pipeline.cluster.dispatch import Crew, Ended, Event, Failed, Finished, Ready
from audit_pipeline.cluster.engine import Engine
from audit_pipeline.cluster.shards import Shard
from audit_pipeline.cluster.worker import Assignment, Worker
from audit_pipeline.errors import ClusterError, one_line

if TYPE_CHECKING:
    import ray

_LOOPBACK = "127.0.0.1"
_OBJECT_STORE_BYTES = 256 << 20
# Read when Ray starts a machine's processes. Workers run at nice 15 by default: other work would go first.
_OF_LOCAL = {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token"}


@dataclass(frozen=True)
class Room:
    """How many workers the cluster is to have, and what each takes of it."""

    workers: int
    cpus: int
    gpus: float


@dataclass
class Cluster:
    """The Ray cluster that this process is connected to; its room is lent to the workers of one model at a time."""

    address: str
    nodes: Sequence[dict[str, float]]
    _lent_to: weakref.ref[Crew] | None = None

    def lend_to(self, crew: Crew) -> None:
        """The workers of the model that had the room before are ended."""
        before = self._lent_to() if self._lent_to is not None else None
        if before is not None and before is not crew:
            before.dismiss()
        self._lent_to = weakref.ref(crew)


_connected: list[Cluster] = []


def cluster(engine: Engine, tell: Callable[[str], None]) -> Cluster:
    """The cluster at RAY_ADDRESS, or one of this machine alone that ends with this process; connected to once.

    Raises ClusterError where it cannot be reached.
    """
    address = os.environ.get("RAY_ADDRESS", "").strip()
    is_here = address in {"", "local"}
    if is_here and "ray" not in sys.modules:
        # Ray reads them when it is imported; its processes inherit them.
        for name, value in {**_OF_LOCAL, "RAY_AUTH_TOKEN": secrets.token_hex(32)}.items():
            os.environ.setdefault(name, value)
    import ray  # noqa: PLC0415

    if not ray.is_initialized():
        _connected.clear()
        if is_here:
            _start_here(engine, tell)
        else:
            _connect(address)
    if not _connected:
        at = str(ray.get_runtime_context().gcs_address)
        if (warning := warning_of(at)) is not None:
            tell(warning)
        _connected.append(Cluster(at, [node["Resources"] for node in ray.nodes() if node["Alive"]]))
    return _connected[0]


def _connect(address: str) -> None:
    import ray  # noqa: PLC0415

    if address.startswith("ray://"):
        raise ClusterError(f"RAY_ADDRESS is {address}, for Ray's remote client: give the head's own host:port (6379)")
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise ClusterError(f"the Ray cluster at RAY_ADDRESS={address} cannot be reached: {one_line(error)}") from error


def _start_here(engine: Engine, tell: Callable[[str], None]) -> None:
    """Start Ray on this machine's loopback address; only processes that have this process's token can use it.

    A program that imported Ray before has said itself whether tokens are asked for.
    """
    import ray  # noqa: PLC0415

    cores = int(joblib.cpu_count())
    tell("starting Ray on this machine, for this run alone (RAY_ADDRESS names no cluster)")
    try:
        ray.init(
            address="local",
            num_cpus=max(cores, engine.workers or 1),
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            log_to_driver=False,
            configure_logging=False,
            _node_ip_address=_LOOPBACK,
        )
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise ClusterError(f"Ray cannot be started on this machine: {one_line(error)}") from error


def room_for(engine: Engine, nodes: Sequence[dict[str, float]], device: str | None) -> Room:
    """How many workers, and what each takes: one a GPU where the cluster has some, else one a node.

    A worker on CPUs takes OMP_NUM_THREADS of them, else its share of the smallest node. Raises ClusterError where
    GPUs are asked for and there are none.
    """
    of_nodes = [node.get("GPU", 0.0) for node in nodes]
    if device == "cuda" and not any(of_nodes):
        raise ClusterError("the Ray cluster has no GPU: leave --device out or give --device cpu")
    gpus = engine.gpus_per_worker
    if gpus is None:
        gpus = 1.0 if any(of_nodes) and device != "cpu" else 0.0
    if gpus:
        fitting = sum(math.floor(own / gpus) for own in of_nodes)
        return Room(engine.workers or max(1, fitting), 1, gpus)
    working = [node["CPU"] for node in nodes if node.get("CPU")]
    if not working:
        raise ClusterError("no node of the Ray cluster offers CPUs")
    workers = engine.workers or len(working)
    share = math.floor(min(working)) // math.ceil(workers / len(working))
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return Room(workers, int(threads) if threads.isdigit() else max(1, share), 0.0)


class RayPool:
    """Workers as actors of Ray, one call of each under way at a time (dispatch.Pool)."""

    def __init__(self, assignment: Assignment, room: Room) -> None:
        import ray  # noqa: PLC0415

        self._ray = ray
        self._assignment = replace(assignment, threads=room.cpus)
        self._remote: Any = ray.remote(
            num_cpus=room.cpus,
            num_gpus=room.gpus,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
        )(Worker)
        self._actors: dict[int, Any] = {}
        self._calls: dict[ray.ObjectRef[Any], tuple[int, Callable[[int, Any], Event]]] = {}

    def start(self, worker: int) -> None:
        """See dispatch.Pool."""
        self.stop(worker)
        self._actors[worker] = self._remote.remote(self._assignment)
        self._calls[self._actors[worker].prepare.remote()] = worker, Ready

    def stop(self, worker: int) -> None:
        """See dispatch.Pool."""
        if (actor := self._actors.pop(worker, None)) is not None:
            self._calls = {call: own for call, own in self._calls.items() if own[0] != worker}
            self._ray.kill(actor)

    def give(self, worker: int, shard: Shard) -> None:
        """See dispatch.Pool."""
        self._calls[self._actors[worker].run.remote(shard.work)] = worker, Finished

    def wait(self, seconds: float) -> Sequence[Event]:
        """See dispatch.Pool."""
        if not self._calls:
            return []
        first, others = self._ray.wait(list(self._calls), timeout=seconds)
        more = self._ray.wait(others, num_returns=len(others), timeout=0)[0] if first and others else []
        return [self._event(call) for call in (*first, *more)]

    def _event(self, call: Any) -> Event:
        worker, made = self._calls.pop(call)
        errors = self._ray.exceptions
        try:
            return made(worker, self._ray.get(call))
        except errors.RayTaskError as error:
            return Failed(worker, error.cause)
        except errors.OutOfMemoryError as error:
            return Ended(worker, "memory_monitor", _in_short(error))
        except (errors.RayActorError, errors.WorkerCrashedError, errors.NodeDiedError, errors.ObjectLostError) as error:
            return Ended(worker, "died", _in_short(error))
        except errors.RayError as error:
            return Failed(worker, ClusterError(f"Ray: {one_line(error)}"))


def _in_short(error: Exception) -> str:
    return textwrap.shorten(one_line(error), 240, placeholder=" …")
