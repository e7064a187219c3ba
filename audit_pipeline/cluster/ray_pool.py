"""Ray: reaching or starting a cluster, and workers in it as actors.

What belongs here: all that speaks to Ray, which is imported here alone. What does not: who runs which shard
(dispatch.py), what a worker does (worker.py).

Actors are not restarted by Ray, nor their calls retried: Ray does so without notice, and binds a shard to one
actor, whose machine may never come back. dispatch.py does both.
"""

from __future__ import annotations

import ipaddress
import math
import os
import secrets
import socket
import sys
import textwrap
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import joblib

from audit_pipeline.cluster.dispatch import Ended, Event, Failed, Finished, Placed, Ready, Shard, WorkerGroup
from audit_pipeline.cluster.engine import Engine
from audit_pipeline.cluster.worker import Assignment, Worker, restore_worker_error
from audit_pipeline.errors import ClusterError, to_one_line
from audit_pipeline.models.config import ModelEntry

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
    _lent_to: weakref.ref[WorkerGroup] | None = None

    def assign_room_to(self, group: WorkerGroup) -> None:
        """The workers of the model that had the room before are ended."""
        before = self._lent_to() if self._lent_to is not None else None
        if before is not None and before is not group:
            before.dismiss()
        self._lent_to = weakref.ref(group)


_connected: list[Cluster] = []


def connect_cluster(engine: Engine, notify: Callable[[str], None]) -> Cluster:
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
            _start_local_cluster(engine, notify)
        else:
            _connect(address)
    if not _connected:
        at = str(ray.get_runtime_context().gcs_address)
        if (warning := format_public_address_warning(at)) is not None:
            notify(warning)
        _connected.append(Cluster(at, [node["Resources"] for node in ray.nodes() if node["Alive"]]))
    return _connected[0]


def iterate_task_results(
    engine: Engine, function: Callable[..., Any], shared: object, tasks: Sequence[tuple[Any, ...]]
) -> Iterator[Any]:
    """What ``function(shared, *task)`` gives for each of the ``tasks``, as they are done, a core of the cluster each.

    Raises ClusterError where the cluster cannot be reached, or loses a task.
    """
    connect_cluster(engine, lambda words: None)
    import ray  # noqa: PLC0415

    kept = ray.put(shared)
    remote = ray.remote(num_cpus=1)(function)
    waiting = [remote.remote(kept, *task) for task in tasks]
    try:
        while waiting:
            done, waiting = ray.wait(waiting)
            yield from ray.get(done)
    except ray.exceptions.RayError as error:
        raise ClusterError(f"a task on the Ray cluster did not come to its end: {to_one_line(error)}") from error


def _connect(address: str) -> None:
    import ray  # noqa: PLC0415

    if address.startswith("ray://"):
        raise ClusterError(f"RAY_ADDRESS is {address}, for Ray's remote client: give the head's own host:port (6379)")
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise ClusterError(
            f"the Ray cluster at RAY_ADDRESS={address} cannot be reached: {to_one_line(error)}"
        ) from error


def _start_local_cluster(engine: Engine, notify: Callable[[str], None]) -> None:
    """Start Ray on this machine's loopback address; only processes that have this process's token can use it.

    A program that imported Ray before has said itself whether tokens are asked for.
    """
    import ray  # noqa: PLC0415

    cores = int(joblib.cpu_count())
    notify("starting Ray on this machine, for this run alone (RAY_ADDRESS names no cluster)")
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
        raise ClusterError(f"Ray cannot be started on this machine: {to_one_line(error)}") from error


def format_public_address_warning(address: str) -> str | None:
    """What is wrong with an address (host:port) that is neither loopback nor private; None where it is either.

    A host name is looked up; one that is not known says nothing.
    """
    host = address.rpartition(":")[0].strip("[]")
    if not (public := [ip for ip in _resolve_ips(host) if not (ip.is_loopback or ip.is_private)]):
        return None
    return (
        f"WARNING: the Ray cluster at {address} has the public address {public[0]}: anyone who reaches its ports can "
        "run any code on its machines. Keep it in a private network, and set RAY_AUTH_MODE=token (docs/ray.md)"
    )


def _resolve_ips(host: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    try:
        return [ipaddress.ip_address(host)]
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None)
    except OSError:
        return []
    return [ipaddress.ip_address(str(place[0]).partition("%")[0]) for *_, place in found]


def plan_room(engine: Engine, nodes: Sequence[dict[str, float]], device: str | None, entry: ModelEntry) -> Room:
    """How many workers, and what each takes: one a GPU (or as many as the model is divided over) where the cluster has
    some, else one a node.

    A worker on CPUs takes OMP_NUM_THREADS of them, else its share of the smallest node. Raises ClusterError where no
    node has room for one worker, and where a model that is to lie on several devices would get none.
    """
    of_nodes = [node.get("GPU", 0.0) for node in nodes]
    divided = entry.tensor_parallel or 1
    gpus = engine.gpus_per_worker
    if device == "cpu":
        gpus = 0.0
    elif gpus is None:
        gpus = float(divided) if any(of_nodes) or device == "cuda" else 0.0
    if gpus:
        fitting = _count_fitting_workers(gpus, of_nodes)
        if divided > 1 and gpus < divided:
            raise ClusterError(
                f"{entry.name} is divided over {divided} GPUs (tensor_parallel), and a worker is to have {gpus:g}: "
                "set gpus_per_worker to as many"
            )
        return Room(engine.workers or fitting, 1, gpus)
    if device == "cuda":
        raise ClusterError("--device cuda with gpus_per_worker 0: give the workers GPUs, or give --device cpu")
    if entry.division is not None:
        raise ClusterError(
            f"{entry.name} is to lie on several devices ({entry.division}), and workers on CPUs have one each: "
            "leave that out of its entry, or use a cluster with GPUs"
        )
    return _plan_cpu_room(engine, [node["CPU"] for node in nodes if node.get("CPU")])


def _count_fitting_workers(gpus: float, node_gpus: Sequence[float]) -> int:
    """How many workers with so many GPUs each fit the nodes; raises ClusterError where it is none."""
    if not any(node_gpus):
        raise ClusterError(
            "workers are to have GPUs, and the Ray cluster has no GPU: leave --device cuda and gpus_per_worker out, or "
            "give --device cpu"
        )
    if not (fitting := sum(math.floor(own / gpus) for own in node_gpus)):
        raise ClusterError(
            f"a worker is to have {gpus:g} GPUs, and no node of the Ray cluster has more than {max(node_gpus):g}: set "
            "gpus_per_worker (or the model's tensor_parallel) to fewer"
        )
    return fitting


def _plan_cpu_room(engine: Engine, node_cpus: Sequence[float]) -> Room:
    if not node_cpus or max(node_cpus) < 1:
        raise ClusterError("no node of the Ray cluster offers a CPU")
    workers = engine.workers or len(node_cpus)
    threads = os.environ.get("OMP_NUM_THREADS", "").strip()
    if not threads.isdecimal():
        share = math.floor(min(node_cpus)) // math.ceil(workers / len(node_cpus))
        return Room(workers, max(1, share), 0.0)
    if not 1 <= int(threads) <= max(node_cpus):
        raise ClusterError(
            f"OMP_NUM_THREADS is {threads}, and a worker takes as many CPUs of one node: the largest node of the Ray "
            f"cluster offers {max(node_cpus):g}. Set it to a number from 1 to that, or leave it out"
        )
    return Room(workers, int(threads), 0.0)


class RayPool:
    """Workers as actors of Ray, one call of each under way at a time (dispatch.Pool)."""

    def __init__(self, assignment: Assignment, gpus: float) -> None:
        import ray  # noqa: PLC0415

        self._ray = ray
        self._assignment = assignment
        self._remote: Any = ray.remote(
            num_cpus=assignment.threads,
            num_gpus=gpus,
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
        # An actor's calls are answered in their order; the first as soon as it has a process.
        self._calls[self._actors[worker].placed.remote()] = worker, lambda worker, _: Placed(worker)
        self._calls[self._actors[worker].prepare.remote()] = worker, Ready

    def stop(self, worker: int) -> None:
        """See dispatch.Pool."""
        if (actor := self._actors.pop(worker, None)) is not None:
            self._forget_calls(worker)
            self._ray.kill(actor)

    def give(self, worker: int, shard: Shard) -> None:
        """See dispatch.Pool."""
        self._calls[self._actors[worker].run.remote(shard.work)] = worker, Finished

    def wait(self, seconds: float) -> Sequence[Event]:
        """See dispatch.Pool."""
        if not self._calls:
            # All workers pause after their deaths.
            time.sleep(seconds)
            return []
        first, others = self._ray.wait(list(self._calls), timeout=seconds)
        more = self._ray.wait(others, num_returns=len(others), timeout=0)[0] if first and others else []
        # What has ended one call of a worker has ended the others, and is reported once.
        return [self._fetch_event(call) for call in (*first, *more) if call in self._calls]

    def _forget_calls(self, worker: int) -> None:
        self._calls = {call: own for call, own in self._calls.items() if own[0] != worker}

    def _fetch_event(self, call: Any) -> Event:
        worker, made = self._calls.pop(call)
        errors = self._ray.exceptions
        try:
            return made(worker, self._ray.get(call))
        except errors.RayError as error:
            self._forget_calls(worker)
            return self._event_from_ray_error(worker, error)

    def _event_from_ray_error(self, worker: int, error: Exception) -> Ended | Failed:
        """What an error of Ray's says of a worker."""
        errors = self._ray.exceptions
        if isinstance(error, errors.RayTaskError):
            return Failed(worker, restore_worker_error(error.cause, error))
        if isinstance(error, errors.OutOfMemoryError):
            return Ended(worker, "memory_monitor", _shorten_error(error))
        if isinstance(error, errors.RayActorError) and error.actor_init_failed:
            return Failed(worker, ClusterError(f"a worker cannot be created: {_shorten_error(error)}"))
        if isinstance(
            error, errors.RayActorError | errors.WorkerCrashedError | errors.NodeDiedError | errors.ObjectLostError
        ):
            return Ended(worker, "died", _shorten_error(error))
        return Failed(worker, ClusterError(f"Ray: {to_one_line(error)}"))


def _shorten_error(error: Exception) -> str:
    return textwrap.shorten(to_one_line(error), 240, placeholder=" …")
