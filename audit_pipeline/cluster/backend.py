"""The back end of a model that workers of a Ray cluster run.

What belongs here: joining shards, workers and Ray under the interface of token_statistics/backend.py. What
does not: any of the three.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cached_property

from audit_pipeline.catalogue.lineage import package_versions
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.working_copy import data_address, fetch_folder_on_demand
from audit_pipeline.cluster.dispatch import MOST_TOKENS, DispatchTimeouts, WorkerGroup, split_into_shards
from audit_pipeline.cluster.engine import Engine
from audit_pipeline.cluster.ray_pool import Cluster, RayPool, Room, connect_cluster, plan_room
from audit_pipeline.cluster.worker import Assignment
from audit_pipeline.models.tokenized_model import TokenizedModel, count_weight_bytes_on_disk
from audit_pipeline.token_statistics.backend import Backend, WindowResult, Work

_TOKEN_SECONDS = DispatchTimeouts.token
# Up to here a tenth of a second a token is several times what one busy core takes; a larger model takes longer.
_SMALL_BYTES = 1e9


@dataclass(frozen=True)
class _WorkerPool:
    """What a model has of a cluster."""

    cluster: Cluster
    room: Room
    crew: WorkerGroup

    @property
    def described(self) -> str:
        """Where the workers are, and what each takes."""
        gpus, cpus = self.room.gpus, self.room.cpus
        each = f"{gpus:g} GPU{'s' if gpus > 1 else ''}" if gpus else f"{cpus} CPU{'s' if cpus > 1 else ''}"
        return f"up to {self.room.workers} workers of {each} in the Ray cluster at {self.cluster.address}"


class RayBackend:
    """A model that is held by workers of a Ray cluster, which write the rows themselves.

    ``load`` makes the same model ready in this process. The cluster is reached when the first texts go there:
    ``run_work`` raises ClusterError where it cannot be, or has no room for one worker.
    """

    def __init__(
        self,
        model: TokenizedModel,
        paths: DataPaths,
        engine: Engine,
        device: str | None,
        notify: Callable[[str], None],
        load: Callable[[], Backend],
    ) -> None:
        self.branch_tokens_run = 0
        self._model = model
        self._paths = paths
        self._engine = engine
        self._device = device
        self._tell = notify
        self._load = load

    @cached_property
    def _workers(self) -> _WorkerPool:
        """The cluster, what workers take of it, and the workers, none of which has been started."""
        engine, entry = self._engine, self._model.entry
        reached = connect_cluster(engine, self._tell)
        room = plan_room(engine, reached.nodes, self._device, entry)
        if entry.path is not None:
            # A worker begins in a folder of its own.
            entry = entry.model_copy(update={"path": entry.path.expanduser().absolute()})
        assignment = Assignment(
            entry,
            self._model.identity,
            dict(package_versions()),
            data_address(self._paths.root.absolute()),
            self._device or ("cuda" if room.gpus else "cpu"),
            room.cpus,
        )
        if engine.shard_minutes is not None:
            clocks = DispatchTimeouts(shard=60.0 * engine.shard_minutes)
        elif room.gpus:
            clocks = DispatchTimeouts()
        else:
            clocks = DispatchTimeouts(
                token=_TOKEN_SECONDS * max(1.0, count_weight_bytes_on_disk(self._model) / _SMALL_BYTES)
            )
        workers = _WorkerPool(
            reached, room, WorkerGroup(RayPool(assignment, room.gpus), room.workers, clocks, self._tell)
        )
        self._tell(f"{entry.name}: {workers.described}")
        return workers

    @cached_property
    def on_this_machine(self) -> Backend:
        """The model in this process, for what goes through it otherwise than window by window.

        Workers that hold it are ended first: they may have the memory that it takes.
        """
        if "_workers" in vars(self):
            self._workers.crew.dismiss()
        return self._load()

    @property
    def described(self) -> str:
        """What runs the model; the addresses are reported when the first texts are sent."""
        count = "workers" if self._engine.workers is None else f"up to {self._engine.workers} workers"
        return f"run by {count} of a Ray cluster"

    def run_work(self, work: Work) -> Generator[Sequence[WindowResult]]:
        """Have every window run by a worker, shard by shard: see :class:`Backend`. The rows are on disk by then."""
        workers = self._workers
        workers.cluster.assign_room_to(workers.crew)
        most = MOST_TOKENS["cuda" if workers.room.gpus else "cpu"]
        for shard, summary in workers.crew.run(split_into_shards(work, workers.room.workers, most)):
            self.branch_tokens_run += summary.branch_tokens
            yield [WindowResult(window, None, None, written=True) for window in shard.windows]
        for kind in frozenset().union(*work.prepared.missing):
            # Workers of other machines have other working copies of a bucket.
            fetch_folder_on_demand(self._paths.token_statistics(kind, self._model.identity.model_fingerprint))
