"""The back end of a model that workers of a Ray cluster run.

What belongs here: putting shards, workers and Ray together behind the interface of token_statistics/backend.py. What
does not: any of the three.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import cached_property

from audit_pipeline.catalogue.lineage import package_versions
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.cluster.dispatch import Clocks, Crew
from audit_pipeline.cluster.engine import Engine
from audit_pipeline.cluster.ray_pool import RayPool, cluster, room_for
from audit_pipeline.cluster.shards import MOST_TOKENS, shards_of
from audit_pipeline.cluster.worker import Assignment
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.token_statistics.backend import Backend, Done, Work


class RayBackend:
    """A model that is held by workers of a Ray cluster, which write the rows themselves.

    ``load`` makes the same model ready in this process. Raises ClusterError where the cluster cannot be reached.
    """

    def __init__(
        self,
        model: TokenizedModel,
        paths: DataPaths,
        engine: Engine,
        device: str | None,
        tell: Callable[[str], None],
        load: Callable[[], Backend],
    ) -> None:
        self.branch_tokens_run = 0
        self._load = load
        self._cluster = cluster(engine, tell)
        self._room = room_for(engine, self._cluster.nodes, device)
        entry = model.entry
        if entry.path is not None:
            # A worker begins in a folder of its own.
            entry = entry.model_copy(update={"path": entry.path.expanduser().absolute()})
        assignment = Assignment(
            entry,
            model.identity,
            dict(package_versions()),
            DataPaths(paths.root.absolute()),
            device or ("cuda" if self._room.gpus else "cpu"),
            self._room.cpus,
        )
        clocks = Clocks() if engine.shard_minutes is None else Clocks(shard=60.0 * engine.shard_minutes)
        self._crew = Crew(RayPool(assignment, self._room), self._room.workers, clocks, tell)

    @cached_property
    def here(self) -> Backend:
        """The model in this process, for what goes through it otherwise than window by window."""
        return self._load()

    @property
    def described(self) -> str:
        """Where the workers are, and what each takes."""
        room = self._room
        each = f"{room.gpus:g} GPU" if room.gpus else f"{room.cpus} CPU{'s' if room.cpus > 1 else ''}"
        return f"on up to {room.workers} workers of {each} in the Ray cluster at {self._cluster.address}"

    def over(self, work: Work) -> Generator[Sequence[Done]]:
        """Have every window run by a worker, shard by shard: see :class:`Backend`. The rows are on disk by then."""
        self._cluster.lend_to(self._crew)
        most = MOST_TOKENS["cuda" if self._room.gpus else "cpu"]
        for shard, summary in self._crew.run(shards_of(work, self._room.workers, most)):
            self.branch_tokens_run += summary.branch_tokens
            yield [Done(window, None, None, written=True) for window in shard.windows]
