"""A back end that runs a model on actors (processes) of a Ray cluster. They run shards of texts and write the rows.

If an actor dies, Ray restarts it, and the new actor loads the model and repeats the shard. The number of restarts is
unlimited, because one failed machine ends several actors within seconds. A repeated shard is harmless. Its rows have
the same keys, and readers use one row per key.
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
from audit_pipeline.store.integrity import package_versions
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import SHARE_WITH_BRANCH
from audit_pipeline.token_statistics.backend import Backend, WindowResult, Work
from audit_pipeline.token_statistics.cached_texts import Caches, Prepared
from audit_pipeline.token_statistics.engine_choice import Engine
from audit_pipeline.token_statistics.run import run_prepared
from audit_pipeline.token_statistics.tokens import Window

MAX_SHARD_TOKENS = {"cpu": 20_000, "cuda": 200_000}
"""Maximum number of tokens of a shard by device, except for a single longer text.

A shard of this size takes some minutes, with a small model on one core or with a large model on a GPU.
"""
_MIN_SHARD_TOKENS = 2_000
_SHARDS_PER_WORKER = 4
# Time without a finished shard after which a message is sent, in seconds.
_NOTICE_SECONDS = 120.0
# Time without a finished shard after which the run ends with an error, in seconds.
_LIMIT_SECONDS = 12 * 3600.0
_CONTINUE = "Finished shards are stored. Repeat the command to continue."
_OBJECT_STORE_BYTES = 256 << 20
# Ray reads these variables when it starts the processes of a machine. By default its workers run at nice 15, so that
# other work would precede them.
_LOCAL_SETTINGS = {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token"}


@dataclass(frozen=True, eq=False)
class TextShard:
    """A part of the texts of a run, which one actor runs at a time.

    Attributes:
        work: The work on these texts. Texts and windows are numbered within the shard.
        windows: The windows of these texts, with the text numbers of the whole run.
    """

    work: Work
    windows: Sequence[Window]


def split_into_shards(work: Work, workers: int, max_tokens: int) -> list[TextShard]:
    """Split work into shards of texts with similar lengths. The shard with the longest texts is the first.

    Each window belongs to one shard. A text is not split, and a text without a window belongs to no shard. Each worker
    gets several shards, so that no worker waits long until the last shard is finished.

    Args:
        work: The texts and windows to run.
        workers: Number of workers.
        max_tokens: Approximate maximum number of tokens of a shard.
    """
    windows: dict[int, list[Window]] = {}
    for window in work.prepared.windows:
        windows.setdefault(window.text, []).append(window)
    tokens = {text: _estimate_tokens(work, text, text_windows) for text, text_windows in windows.items()}
    tokens_per_shard = math.ceil(sum(tokens.values()) / (workers * _SHARDS_PER_WORKER))
    shard_size = max(min(tokens_per_shard, max_tokens), min(_MIN_SHARD_TOKENS, max_tokens))
    texts_of_shards: list[list[int]] = []
    n_tokens = shard_size
    for text in sorted(tokens, key=lambda text: (-tokens[text], text)):
        if n_tokens + tokens[text] > shard_size:
            texts_of_shards.append([])
            n_tokens = 0
        texts_of_shards[-1].append(text)
        n_tokens += tokens[text]
    return [_build_shard(work, texts, windows) for texts in texts_of_shards]


def _estimate_tokens(work: Work, text: int, windows: Sequence[Window]) -> int:
    """Estimate the maximum number of tokens that a text needs, with branches and prefixes."""
    branches = SHARE_WITH_BRANCH * work.steps if work.prepared.wants_branches(text) else 0.0
    return round(sum((window.length + len(work.before)) * (1 + branches) for window in windows))


def _build_shard(work: Work, texts: Sequence[int], windows: Mapping[int, Sequence[Window]]) -> TextShard:
    shard = Prepared(distinct=len(texts), keys=[], encoded=[], missing=[], windows=[], prefix=work.prepared.prefix)
    shard_windows: list[Window] = []
    modes: dict[int, Any] = {}
    for number, text in enumerate(texts):
        shard.keys.append(work.prepared.keys[text])
        shard.encoded.append(work.prepared.encoded[text])
        shard.missing.append(work.prepared.missing[text])
        shard.windows.extend(replace(window, text=number) for window in windows[text])
        shard_windows += windows[text]
        if text in work.modes:
            modes[number] = work.modes[text]
    return TextShard(replace(work, prepared=shard, modes=modes), shard_windows)


@dataclass
class Worker:
    """An actor (a process of the Ray cluster) that loads a model and runs shards.

    It loads the model in the first call of ``run``, because Ray reports errors of calls, but not those of a
    constructor. It refuses to work if its model or packages differ from those of the main process. Otherwise it would
    write different numbers under the same keys.

    Attributes:
        entry: The entry of the model.
        identity: The fingerprints of the model in the main process.
        versions: The versions of the packages in the main process.
        data: The data folder.
        device: The device.
        threads: The number of threads.
    """

    entry: ModelEntry
    identity: ModelIdentity
    versions: Mapping[str, str]
    data: str
    device: str
    threads: int

    def run(self, number: int, work: Work) -> tuple[int, int]:
        """Run a shard, and write its rows to disk. The cache is not read, because the work contains only missing rows.

        Returns:
            The number of the shard, and the number of its tokens in branches.

        Raises:
            AuditError: If the shard cannot be run. It is a TransientError if another attempt may succeed.
        """
        try:
            model, backend, caches = self._loaded
            summary = run_prepared(
                model, work.prepared, caches, lambda: backend, modes=work.modes, branch_steps=work.steps
            )
        except AuditError as error:
            # Pickling removes the cause of an error, so the type must show that another attempt may succeed.
            if is_transient_fault(error):
                raise TransientError(str(error)) from None
            raise error from None
        return number, summary.branch_tokens

    @cached_property
    def _loaded(self) -> tuple[TokenizedModel, Backend, Caches]:
        # torch reads the variable at its import. This process has not imported torch yet.
        os.environ["OMP_NUM_THREADS"] = str(self.threads)
        paths = DataPaths(Path(self.data))
        model = load_tokenized(self.entry, paths)
        expected = {**self.versions, **vars(self.identity)}
        actual = {**package_versions(), **vars(model.identity)}
        for name in sorted({*expected, *actual}):
            if expected.get(name) != actual.get(name):
                raise ClusterError(
                    f"A worker on {socket.gethostname()} has other packages, or other files of {self.entry.name}, than "
                    f"the main process: {name} is {actual.get(name)} there and {expected.get(name)} here. Install the "
                    "same packages and share the same files on all machines."
                )
        from audit_pipeline.token_statistics.loading import load_forward_pass  # noqa: PLC0415

        return model, load_forward_pass(model, paths, self.device), Caches(paths)


class WorkerPlan(NamedTuple):
    """The number of workers of a model, and the resources of a worker.

    Attributes:
        workers: Number of workers.
        cpus: Number of CPUs per worker.
        gpus: Number of GPUs per worker.
    """

    workers: int
    cpus: int
    gpus: int


def plan_workers(engine: Engine, nodes: Sequence[Mapping[str, float]], device: str | None) -> WorkerPlan:
    """Return the number of workers that fit into the cluster, and the resources of a worker.

    By default each GPU has one worker. Without GPUs, each node has one worker. A worker without a GPU gets
    OMP_NUM_THREADS CPUs. If the variable is not set, the workers of the smallest node share its CPUs.

    Args:
        engine: The engine, which may set the number of workers.
        nodes: The resources of each node.
        device: The device of the user, or None.

    Raises:
        ClusterError: If no node has the resources of a worker.
    """
    n_gpus = 0
    if device != "cpu":
        n_gpus = sum(int(node.get("GPU", 0)) for node in nodes)
    if n_gpus:
        return WorkerPlan(min(engine.workers or n_gpus, n_gpus), 1, 1)
    if device == "cuda":
        raise ClusterError("The Ray cluster has no GPU. Remove --device cuda, or connect a cluster with a GPU.")
    cpus = [int(node["CPU"]) for node in nodes if node.get("CPU", 0) >= 1] or [0]
    workers = engine.workers or len(cpus)
    workers_per_node = math.ceil(workers / len(cpus))
    threads = int(os.environ.get("OMP_NUM_THREADS") or max(1, min(cpus) // workers_per_node))
    max_workers = sum(count // threads for count in cpus)
    if not max_workers:
        raise ClusterError(
            f"A worker needs {threads} CPUs of one node (OMP_NUM_THREADS), but the largest node of the Ray cluster "
            f"offers {max(cpus)}. Reduce OMP_NUM_THREADS."
        )
    return WorkerPlan(min(workers, max_workers), threads, 0)


def connect_cluster(engine: Engine) -> list[Mapping[str, float]]:
    """Connect to the cluster at RAY_ADDRESS, or start a cluster on this machine that ends with this process.

    Returns:
        The resources of each node.

    Raises:
        ClusterError: If the cluster cannot be reached or started.
    """
    address = os.environ.get("RAY_ADDRESS", "").strip() or "local"
    if address == "local" and "ray" not in sys.modules:
        # Ray reads the variables at its import, and its processes inherit them. No other process knows the token.
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
                f"The Ray cluster at RAY_ADDRESS={address} cannot be reached or started: {to_one_line(error)}. Check "
                "RAY_ADDRESS."
            ) from error
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def start_workers(worker: Worker, plan: WorkerPlan) -> Any:
    """Start actors that are copies of a worker, and return them as a ray.util.ActorPool."""
    import ray  # noqa: PLC0415
    from ray.util import ActorPool  # noqa: PLC0415

    actor: Any = ray.remote(
        num_cpus=plan.cpus, num_gpus=plan.gpus, max_restarts=-1, max_task_retries=-1, scheduling_strategy="SPREAD"
    )(Worker)
    return ActorPool([actor.remote(**vars(worker)) for _ in range(plan.workers)])


class RayBackend:
    """A back end that runs a model on actors of a Ray cluster. The actors write the rows of the cache.

    The back end connects to the cluster when the first texts must run. One model uses the cluster at a time, so the
    actors of another model are ended first.
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
        """Create the back end without a connection.

        Args:
            model: The model.
            paths: The data folder.
            engine: The engine, which may set the number of workers.
            device: The device of the user, or None.
            notify: Receives messages about the workers.
            load: Loads the model in this process.
        """
        self.branch_tokens_run = 0
        self._model = model
        self._paths = paths
        self._engine = engine
        self._device = device
        self._notify = notify
        self._load = load
        self._pool: Any = None

    @cached_property
    def _plan(self) -> WorkerPlan:
        return plan_workers(self._engine, connect_cluster(self._engine), self._device)

    @property
    def described(self) -> str:
        """Return a description of the back end (:class:`Backend`)."""
        return f"run by {self._engine.workers or 'the'} workers of a Ray cluster"

    @cached_property
    def local_backend(self) -> Backend:
        """Load the model in this process. Its workers are ended first, because they may use the same memory."""
        self.end_workers()
        return self._load()

    def end_workers(self) -> None:
        """End the workers. The next run starts new ones."""
        # Ray ends actors that no variable refers to.
        self._pool = None
        self._with_workers.discard(self)

    def run_work(self, work: Work) -> Generator[Sequence[WindowResult]]:
        """Run the windows in shards, and yield the results of a shard after its rows are on disk (:class:`Backend`).

        Raises:
            AuditError: If a worker raised it.
            ClusterError: If the cluster cannot be reached, lacks resources, or finishes no shard for 12 hours.
        """
        import ray  # noqa: PLC0415

        shards = split_into_shards(work, self._plan.workers, MAX_SHARD_TOKENS["cuda" if self._plan.gpus else "cpu"])
        pool = self._ensure_workers()
        for number, shard in enumerate(shards):
            pool.submit(lambda actor, task: actor.run.remote(*task), (number, shard.work))
        last_result_time = time.monotonic()
        is_reduced = False
        try:
            while pool.has_next():
                try:
                    number, branch_tokens = pool.get_next_unordered(timeout=_NOTICE_SECONDS)
                except TimeoutError:
                    self._report_wait(time.monotonic() - last_result_time)
                    # Idle workers are ended. Ray can use their resources to restart the workers of a failed machine.
                    while pool.pop_idle() is not None:
                        is_reduced = True
                else:
                    last_result_time = time.monotonic()
                    self.branch_tokens_run += branch_tokens
                    yield [WindowResult(window, written=True) for window in shards[number].windows]
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, AuditError):
                raise error.cause from None
            raise
        except ray.exceptions.RayError as error:
            raise ClusterError(
                f"The Ray cluster lost a shard of the texts: {to_one_line(error)}. {_CONTINUE}"
            ) from error
        finally:
            if pool.has_next() or is_reduced:
                self.end_workers()

    def _ensure_workers(self) -> Any:
        for other in set(self._with_workers) - {self}:
            other.end_workers()
        if self._pool is None:
            entry = self._model.entry
            plan = self._plan
            if entry.path is not None:
                # A worker has another working directory, so relative paths would be wrong.
                entry = entry.model_copy(update={"path": entry.path.expanduser().absolute()})
            worker = Worker(
                entry,
                self._model.identity,
                dict(package_versions()),
                str(self._paths.root.absolute()),
                self._device or ("cuda" if plan.gpus else "cpu"),
                plan.cpus,
            )
            resources = f"{plan.gpus} GPU" if plan.gpus else f"{plan.cpus} CPU"
            self._notify(f"{entry.name}: The Ray cluster runs {plan.workers} workers of {resources} each.")
            self._pool = start_workers(worker, plan)
            self._with_workers.add(self)
        return self._pool

    def _report_wait(self, seconds: float) -> None:
        """Report a long time without a finished shard.

        Raises:
            ClusterError: If the time reaches the limit.
        """
        if seconds >= _LIMIT_SECONDS:
            raise ClusterError(
                f"The Ray cluster finished no shard of the texts for {seconds / 3600:.0f} hours. Check with `ray "
                f"status` that the cluster has resources for the workers. {_CONTINUE}"
            )
        self._notify(
            f"The workers finished no shard of the texts for {seconds / 60:.0f} minutes. They may be loading the "
            "model, waiting for resources, or restarting."
        )
