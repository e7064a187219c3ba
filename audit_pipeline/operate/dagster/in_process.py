"""Running assets in this process, with or without a daemon beside it.

What belongs here: the Dagster home, dead runs of this machine, starting runs and turning their failures into errors a
user can act on. What does not: which assets there are (definitions.py).

Dagster may not notice that the process of a run was killed: run monitoring frees the slots of runs that have ended, and
this one has not. Its pool slots would keep the next run waiting for ever. So every run is tagged with the process that
runs it, and before a new one starts here, and at the sensors' ticks, those whose process is gone are marked failed and
their slots freed. For a slot that a living run holds we wait here, where Ctrl-C works: Dagster's
in-process executor takes no notice of it while it waits.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

import dagster as dg
import psutil
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from filelock import FileLock

from audit_pipeline.catalogue.files import write_atomically
from audit_pipeline.catalogue.paths import DataPaths, explain_unwritable, make_private
from audit_pipeline.errors import AuditError, DataError, PairsFailedError

# Dagster's prefix of tags that the UI does not list: they are for this module, not for readers.
HOST_TAG = ".dagster/corpus_audit_host"
PROCESS_TAG = ".dagster/corpus_audit_process"
RUN_TAG = ".dagster/corpus_audit_run"

CODE_LOCATION = "corpus_audit"
"""As workspace.yaml names it."""
_REPOSITORY = "__repository__"
"""Dagster's name for the definitions of a code location that names none."""

_DAGSTER_YAML = """\
# Written once; yours to change.
telemetry:
  enabled: false
nux:
  enabled: false
concurrency:
  pools:
    default_limit: 1
    granularity: op
run_monitoring:
  enabled: true
  free_slots_after_run_end_seconds: 60
freshness:
  enabled: true
"""

_POLL_SECONDS = 1.0

UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def dagster_home(paths: DataPaths) -> Path:
    """DAGSTER_HOME: what the environment says, else data/dagster_home; it may not be there yet."""
    return Path(os.environ.get("DAGSTER_HOME") or paths.dagster_home).expanduser().resolve()


def ensure_dagster_home(paths: DataPaths) -> Path:
    """The Dagster home, with a dagster.yaml, made where it is not there, and exported.

    Raises DataError where nothing can be written there.
    """
    make_private(paths.root)
    home = dagster_home(paths)
    if (why := explain_unwritable(home)) is not None:
        raise DataError(
            f"the Dagster home {home} cannot be written ({why}), so nothing was run: set DAGSTER_HOME to a folder of "
            "yours"
        )
    config = home / "dagster.yaml"
    if not config.exists():
        with write_atomically(config) as temporary:
            temporary.write_text(_DAGSTER_YAML, encoding="utf-8")
    os.environ["DAGSTER_HOME"] = str(home)
    return home


@contextmanager
def open_instance(paths: DataPaths) -> Iterator[dg.DagsterInstance]:
    """The instance of the Dagster home, which is made where it is not there."""
    with open_existing_instance(ensure_dagster_home(paths)) as instance:
        yield instance


@contextmanager
def open_existing_instance(home: Path) -> Iterator[dg.DagsterInstance]:
    """The instance of a Dagster home that is there.

    One process after the other opens it: Dagster makes its SQLite databases with the first opening, and two that do so
    at once leave them unusable.
    """
    with FileLock(home / "opening.lock"):
        instance = dg.DagsterInstance.from_config(str(home))
    with instance:
        yield instance


def process_identity(process: psutil.Process) -> str:
    """A process as no later one can be: its pid, the boot it lives in and its start in that boot's clock ticks.

    Elsewhere than on Linux, where the two cannot be read: pid and time of creation.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        # The command's name, in brackets, may hold blanks: count fields behind it. Field 22 is the start time.
        ticks = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except FileNotFoundError:
        return f"{process.pid}@{process.create_time():.0f}"
    return f"{process.pid}@{boot}/{ticks}"


def dead_runs(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """Unfinished runs of this machine whose process is gone, however they were started.

    A re-execution that waits in the queue is not among them: the UI gives it the tags of the run it repeats.
    """
    unfinished = instance.get_runs(dg.RunsFilter(statuses=UNFINISHED))
    here = [run for run in unfinished if process_tag(run, HOST_TAG) == socket.gethostname()]
    return [run for run in here if _has_own_tags(run) and not _is_alive(process_tag(run, PROCESS_TAG))]


def process_tag(run: dg.DagsterRun, tag: str) -> str:
    """HOST_TAG, PROCESS_TAG or RUN_TAG of a run; "" where it has none."""
    return run.tags.get(tag, "")


def _has_own_tags(run: dg.DagsterRun) -> bool:
    return run.tags.get(RUN_TAG) == run.run_id


def process_tags(run_id: str) -> dict[str, str]:
    """The tags that say that this process runs ``run_id``; the run is named, because re-executions inherit tags."""
    return {HOST_TAG: socket.gethostname(), PROCESS_TAG: process_identity(psutil.Process()), RUN_TAG: run_id}


def mark_dead_runs_failed(instance: dg.DagsterInstance) -> list[str]:
    """Mark runs of this machine failed whose process is gone, and free their slots in pools.

    Runs of other machines, of living processes and in the queue are left alone. Returns the ids of the marked runs.
    """
    marked = []
    for run in dead_runs(instance):
        instance.report_run_failed(run, "the process that ran it is gone (killed, or the machine went down)")
        marked.append(run.run_id)
    storage = instance.event_log_storage
    for run_id in storage.get_concurrency_run_ids():
        holder = instance.get_run_by_id(run_id)
        if holder is None or (holder.is_finished and _has_ended_here(holder)):
            storage.free_concurrency_slots_for_run(run_id)
    return marked


def _has_ended_here(run: dg.DagsterRun) -> bool:
    """Whether the run was this machine's and its process is gone, or is this one: a run that was cancelled by force may
    still be at work."""
    if process_tag(run, HOST_TAG) != socket.gethostname():
        return False
    identity = process_tag(run, PROCESS_TAG)
    return identity == process_identity(psutil.Process()) or not _is_alive(identity)


def _is_alive(identity: str) -> bool:
    try:
        process = psutil.Process(int(identity.partition("@")[0]))
        # A killed process whose parent has not taken note of its end still has its pid and start time.
        return process_identity(process) == identity and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ValueError):
        return False


def wait_for_pools(job: dg.JobDefinition, instance: dg.DagsterInstance, on_wait: Callable[[str], None]) -> None:
    """Return when every pool that ``job`` takes a slot of has one to give; a holder that dies is marked failed.

    ``on_wait`` is called once for each pool that has to be waited for.
    """
    pools = {op.pool for op in job.graph.node_defs if isinstance(op, dg.OpDefinition) and op.pool}
    for pool in sorted(pools):
        told = False
        while holders := _find_slot_holders(instance, pool):
            if not told:
                on_wait(f"waiting for a slot of the pool {pool}, held by {', '.join(holders)} (Ctrl-C stops waiting)")
                told = True
            time.sleep(_POLL_SECONDS)
            mark_dead_runs_failed(instance)


def _find_slot_holders(instance: dg.DagsterInstance, pool: str) -> list[str]:
    """The runs that hold the pool's slots, in words; none where a slot is free."""
    info = instance.event_log_storage.get_concurrency_info(pool)
    # Slots come to be with the first claim.
    if info.active_slot_count + info.assigned_step_count < max(info.slot_count, 1):
        return []
    return [_describe_run(instance, run_id) for run_id in sorted(info.active_run_ids | info.assigned_run_ids)]


def _describe_run(instance: dg.DagsterInstance, run_id: str) -> str:
    run = instance.get_run_by_id(run_id)
    host = process_tag(run, HOST_TAG) if run is not None else ""
    if run is None or not host:
        return f"run {run_id}"
    return f"run {run_id} (process {process_tag(run, PROCESS_TAG).partition('@')[0]} on {host})"


class RunScope(TypedDict, total=False):
    """What a run computes, and how: the ``selection`` of its job's assets, one partition or the first and last of a
    range, and the configuration of resources and of assets, by name."""

    selection: Sequence[dg.AssetKey] | None
    partition_key: str | None
    partition_range: tuple[str, str] | None
    resources: Mapping[str, Mapping[str, Any]] | None
    ops: Mapping[str, Mapping[str, Any]] | None


def run_job(
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    *,
    tags: Mapping[str, str] | None = None,
    on_wait: Callable[[str], None] = lambda what: None,
    **scope: Unpack[RunScope],
) -> str:
    """Run ``job``, or the part of it that ``scope`` says, as soon as its pools allow; returns the run's id.

    ``on_wait`` is called where that takes waiting for another run. Raises PairsFailedError where some pairs of a range
    failed, the AuditError that made the run fail, where one did, and KeyboardInterrupt on Ctrl-C; other errors keep
    Dagster's account of them.
    """
    wait_for_pools(job, instance, on_wait)
    run_id = str(uuid.uuid4())
    run_tags = {**process_tags(run_id), **(tags or {})}
    if partition_range := scope.get("partition_range"):
        start, end = partition_range
        run_tags |= {"dagster/asset_partition_range_start": start, "dagster/asset_partition_range_end": end}
    run_config: dict[str, Any] = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    for section, configs in (("resources", scope.get("resources")), ("ops", scope.get("ops"))):
        if configs:
            run_config[section] = {name: {"config": dict(config)} for name, config in configs.items()}
    try:
        with _attribute_runs_to_job(job, instance):
            result = job.execute_in_process(
                instance=instance,
                run_config=run_config,
                run_id=run_id,
                tags=run_tags,
                partition_key=scope.get("partition_key"),
                asset_selection=scope.get("selection"),
            )
    except dg.DagsterExecutionInterruptedError as error:
        raise KeyboardInterrupt from error
    except dg.Failure as failure:
        raise PairsFailedError(str(failure.description)) from failure
    except dg.DagsterError as error:
        cause = _find_audit_error(error)
        if cause is None:
            raise
        raise cause from error
    return result.run_id


@contextmanager
def _attribute_runs_to_job(job: dg.JobDefinition, instance: dg.DagsterInstance) -> Iterator[None]:
    """Within the block, a run that is created belongs to the job of the code location that workspace.yaml names.

    The Timeline shows no other runs, and execute_in_process has no parameter for it.
    """
    location = RegisteredCodeLocationOrigin(CODE_LOCATION)
    origin = RemoteJobOrigin(RemoteRepositoryOrigin(location, _REPOSITORY), job.name)
    create_run = partial(instance.create_run_for_job, remote_job_origin=origin)
    instance.create_run_for_job = create_run  # type: ignore[method-assign]
    try:
        yield
    finally:
        del instance.create_run_for_job


def _find_audit_error(error: BaseException) -> AuditError | None:
    """The AuditError among the causes of Dagster's error."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, AuditError):
            return cause
        cause = cause.__cause__
    return None
