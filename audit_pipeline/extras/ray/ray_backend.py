"""The back end of a model that actors of a Ray cluster run: texts in shards, rows written by the actors.

Ray starts an actor that died again, with the model loaded anew, and gives it its shard again, however often: a machine
that goes down takes several actors within seconds, so no number of tries would be right. A shard that is run twice is
harmless: its rows have the same keys, and readers take one.
"""

from __future__ import annotations

import math
import os
import secrets
import socket
import sys
import time
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import joblib

from audit_pipeline.errors import AuditError, ClusterError, TransientError, to_one_line
from audit_pipeline.http.faults import is_transient_fault
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.fingerprint import ModelIdentity
from audit_pipeline.models.tokenized_model import TokenizedModel, load_tokenized
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.versions import package_versions
from audit_pipeline.tables import SHARE_WITH_BRANCH
from audit_pipeline.token_statistics.backend import Backend, WindowResult, Work
from audit_pipeline.token_statistics.cached_texts import Caches, Prepared
from audit_pipeline.token_statistics.engine_choice import Engine
from audit_pipeline.token_statistics.run import run_prepared
from audit_pipeline.token_statistics.tokens import Window

MOST_TOKENS = {"cpu": 20_000, "cuda": 200_000}
"""The most tokens of a shard, but for one longer text: some minutes of a small model on one core, or of a large one on
a GPU."""
_LEAST_TOKENS = 2_000
_SHARDS_A_WORKER = 4
_NOTICE_SECONDS, _LIMIT_SECONDS = 120.0, 12 * 3600.0
"""How long no shard may be finished before that is reported, and before the run ends."""
_GO_ON = "What is done is kept: run the same again"
_OBJECT_STORE_BYTES = 256 << 20
# Read when Ray starts a machine's processes. Workers run at nice 15 by default: other work would go first.
_LOCAL_SETTINGS = {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token"}


@dataclass(frozen=True, eq=False)
class TextShard:
    """Some texts of a run: ``work`` is theirs alone, their windows renumbered, and ``windows`` are the run's own."""

    work: Work
    windows: Sequence[Window]


def split_into_shards(work: Work, workers: int, max_tokens: int) -> list[TextShard]:
    """The work in shards of about ``max_tokens`` tokens or less, texts of like length together, the longest first.

    Each worker gets several, so that none waits long for the last; a text is never cut. Every window of ``work`` is in
    one shard. Texts without a window are in none.
    """
    windows: dict[int, list[Window]] = {}
    for window in work.prepared.windows:
        windows.setdefault(window.text, []).append(window)
    tokens = {text: _estimate_tokens(work, text, own) for text, own in windows.items()}
    even = math.ceil(sum(tokens.values()) / (workers * _SHARDS_A_WORKER))
    size = max(min(even, max_tokens), min(_LEAST_TOKENS, max_tokens))
    piles: list[list[int]] = []
    height = size
    for text in sorted(tokens, key=lambda text: (-tokens[text], text)):
        if height + tokens[text] > size:
            piles.append([])
            height = 0
        piles[-1].append(text)
        height += tokens[text]
    return [
        TextShard(_select_work_for_texts(work, pile, windows), [window for text in pile for window in windows[text]])
        for pile in piles
    ]


def _estimate_tokens(work: Work, text: int, windows: Sequence[Window]) -> int:
    """About how many tokens are run of a text at most, branches and prefixes included."""
    branches = SHARE_WITH_BRANCH * work.steps if work.prepared.wants_branches(text) else 0.0
    return round(sum((window.length + len(work.before)) * (1 + branches) for window in windows))


def _select_work_for_texts(work: Work, texts: Sequence[int], windows: Mapping[int, Sequence[Window]]) -> Work:
    whole = work.prepared
    prepared = Prepared(
        distinct=len(texts),
        keys=[whole.keys[text] for text in texts],
        encoded=[whole.encoded[text] for text in texts],
        missing=[whole.missing[text] for text in texts],
        windows=[replace(window, text=number) for number, text in enumerate(texts) for window in windows[text]],
        prefix=whole.prefix,
    )
    modes = {number: work.modes[text] for number, text in enumerate(texts) if text in work.modes}
    return replace(work, prepared=prepared, modes=modes)


@dataclass
class Worker:
    """An actor that holds a model, and loads it with its first shard: Ray passes on the errors of calls alone.

    ``data``: the data folder. ``identity`` and ``versions`` are those of the process that asks:
    a worker that has others would write other numbers under the same keys, and refuses.
    """

    entry: ModelEntry
    identity: ModelIdentity
    versions: Mapping[str, str]
    data: str
    device: str
    threads: int

    def run(self, number: int, work: Work) -> tuple[int, int]:
        """Run a shard and write its rows; they are on disk when this returns its number and its tokens of branches.

        The cache is not read: what is missing has been found out, and is given.
        """
        try:
            model, backend, caches = self._loaded
            summary = run_prepared(
                model, work.prepared, caches, lambda: backend, modes=work.modes, branch_steps=work.steps
            )
        except AuditError as error:
            # Pickling drops the cause of an error, which says whether trying again may help.
            raise TransientError(str(error)) if is_transient_fault(error) else error from None
        return number, summary.branch_tokens

    @cached_property
    def _loaded(self) -> tuple[TokenizedModel, Backend, Caches]:
        # Read when torch is loaded, which nothing has done in this process yet.
        os.environ["OMP_NUM_THREADS"] = str(self.threads)
        paths = DataPaths(Path(self.data))
        model = load_tokenized(self.entry, paths)
        expected, actual = {**self.versions, **vars(self.identity)}, {**package_versions(), **vars(model.identity)}
        if differing := sorted(name for name in {*expected, *actual} if expected.get(name) != actual.get(name)):
            raise ClusterError(
                f"a worker on {socket.gethostname()} has other packages, or other files of {self.entry.name}, than the "
                f"process that asks: {differing[0]} is {actual.get(differing[0])} there and "
                f"{expected.get(differing[0])} here; install and share the same everywhere"
            )
        from audit_pipeline.token_statistics.loading import load_forward_pass  # noqa: PLC0415

        return model, load_forward_pass(model, paths, self.device), Caches(paths)


class WorkerPlan(NamedTuple):
    """How many workers a model has, and what each takes of the cluster."""

    workers: int
    cpus: int
    gpus: int


def plan_workers(engine: Engine, nodes: Sequence[Mapping[str, float]], device: str | None) -> WorkerPlan:
    """One worker a GPU where the cluster has some, else one a node, unless the engine says how many; at most as many
    as the nodes have room for.

    A worker on CPUs takes OMP_NUM_THREADS of them, else its share of the smallest node. Raises ClusterError where no
    node has room for one worker.
    """
    gpus = 0 if device == "cpu" else sum(int(node.get("GPU", 0)) for node in nodes)
    if gpus:
        return WorkerPlan(min(engine.workers or gpus, gpus), 1, 1)
    if device == "cuda":
        raise ClusterError("the Ray cluster has no GPU: leave --device cuda out")
    cpus = [int(node["CPU"]) for node in nodes if node.get("CPU", 0) >= 1] or [0]
    workers = engine.workers or len(cpus)
    threads = int(os.environ.get("OMP_NUM_THREADS") or max(1, min(cpus) // math.ceil(workers / len(cpus))))
    fitting = sum(count // threads for count in cpus)
    if not fitting:
        raise ClusterError(
            f"a worker takes {threads} CPUs of one node (OMP_NUM_THREADS), and the largest node of the Ray cluster "
            f"offers {max(cpus)}"
        )
    return WorkerPlan(min(workers, fitting), threads, 0)


def connect_cluster(engine: Engine) -> list[Mapping[str, float]]:
    """Connect to the cluster at RAY_ADDRESS, or to one on this machine that ends with this process; the resources of
    its nodes. Raises ClusterError where it cannot be reached.
    """
    address = os.environ.get("RAY_ADDRESS", "").strip() or "local"
    if address == "local" and "ray" not in sys.modules:
        # Read when Ray is imported, and inherited by its processes: only those that have this token can use it.
        for name, value in {**_LOCAL_SETTINGS, "RAY_AUTH_TOKEN": secrets.token_hex(32)}.items():
            os.environ.setdefault(name, value)
    import ray  # noqa: PLC0415

    options: dict[str, Any] = {"address": address, "log_to_driver": False, "configure_logging": False}
    if address == "local":
        options |= {"num_cpus": max(int(joblib.cpu_count()), engine.workers or 1), "include_dashboard": False}
        options |= {"object_store_memory": _OBJECT_STORE_BYTES, "_node_ip_address": "127.0.0.1"}
    if not ray.is_initialized():
        try:
            ray.init(**options)
        except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            raise ClusterError(
                f"the Ray cluster at RAY_ADDRESS={address} cannot be reached or started: {to_one_line(error)}"
            ) from error
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def start_workers(worker: Worker, plan: WorkerPlan) -> Any:
    """An ActorPool of workers like this one."""
    import ray  # noqa: PLC0415
    from ray.util import ActorPool  # noqa: PLC0415

    actor: Any = ray.remote(
        num_cpus=plan.cpus, num_gpus=plan.gpus, max_restarts=-1, max_task_retries=-1, scheduling_strategy="SPREAD"
    )(Worker)
    return ActorPool([actor.remote(**vars(worker)) for _ in range(plan.workers)])


class RayBackend:
    """A model that actors of a Ray cluster hold, which write the rows themselves.

    ``load`` makes the same model ready in this process. The cluster is reached when the first texts go there, and used
    by one model at a time: the actors of another are ended before.
    """

    _with_workers: ClassVar[weakref.WeakSet[RayBackend]] = weakref.WeakSet()

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
        self._model, self._paths, self._engine, self._device = model, paths, engine, device
        self._notify, self._load = notify, load
        self._pool: Any = None

    @cached_property
    def _plan(self) -> WorkerPlan:
        return plan_workers(self._engine, connect_cluster(self._engine), self._device)

    @property
    def described(self) -> str:
        """See :class:`Backend`."""
        return f"run by {self._engine.workers or 'the'} workers of a Ray cluster"

    @cached_property
    def local_backend(self) -> Backend:
        """The model in this process. Workers that hold it are ended first: they may have the memory that it takes."""
        self.end_workers()
        return self._load()

    def end_workers(self) -> None:
        """End the workers; the next run starts others."""
        # Ray ends actors that nothing refers to.
        self._pool = None
        self._with_workers.discard(self)

    def run_work(self, work: Work) -> Generator[Sequence[WindowResult]]:
        """Have every window run by a worker, shard by shard: see :class:`Backend`. The rows are on disk by then.

        Raises the AuditError that a worker raised, and ClusterError where the cluster cannot be reached, has no room,
        or finishes no shard for hours.
        """
        import ray  # noqa: PLC0415

        shards = split_into_shards(work, self._plan.workers, MOST_TOKENS["cuda" if self._plan.gpus else "cpu"])
        pool = self._ensure_workers()
        for number, shard in enumerate(shards):
            pool.submit(lambda actor, task: actor.run.remote(*task), (number, shard.work))
        finished, is_reduced = time.monotonic(), False
        try:
            while pool.has_next():
                try:
                    number, branch_tokens = pool.get_next_unordered(timeout=_NOTICE_SECONDS)
                except TimeoutError:
                    self._report_wait(time.monotonic() - finished)
                    # Where no shard waits, Ray can start a worker whose machine is gone in the place of an idle one.
                    while pool.pop_idle() is not None:
                        is_reduced = True
                else:
                    finished = time.monotonic()
                    self.branch_tokens_run += branch_tokens
                    yield [WindowResult(window, written=True) for window in shards[number].windows]
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, AuditError):
                raise error.cause from None
            raise
        except ray.exceptions.RayError as error:
            raise ClusterError(f"the Ray cluster lost a shard: {to_one_line(error)}. {_GO_ON}") from error
        finally:
            if pool.has_next() or is_reduced:
                self.end_workers()

    def _ensure_workers(self) -> Any:
        for other in set(self._with_workers) - {self}:
            other.end_workers()
        if self._pool is None:
            entry, plan = self._model.entry, self._plan
            if entry.path is not None:
                # A worker begins in a folder of its own.
                entry = entry.model_copy(update={"path": entry.path.expanduser().absolute()})
            worker = Worker(
                entry,
                self._model.identity,
                dict(package_versions()),
                str(self._paths.root.absolute()),
                self._device or ("cuda" if plan.gpus else "cpu"),
                plan.cpus,
            )
            self._notify(
                f"{entry.name}: {plan.workers} workers of {plan.gpus or plan.cpus} "
                f"{'GPU' if plan.gpus else 'CPU'} each in the Ray cluster"
            )
            self._pool = start_workers(worker, plan)
            self._with_workers.add(self)
        return self._pool

    def _report_wait(self, seconds: float) -> None:
        """Report that no shard was finished for so long; raises ClusterError after many hours."""
        if seconds >= _LIMIT_SECONDS:
            raise ClusterError(
                f"the Ray cluster finished no shard for {seconds / 3600:.0f} hours. See in ray status whether it has "
                f"room for the workers. {_GO_ON}"
            )
        self._notify(
            f"no shard was finished for {seconds / 60:.0f} minutes: workers load the model, wait for room, or died and "
            "are started again"
        )
