"""Running assets from the command line: in this process, with or without a daemon beside it.

What belongs here: the Dagster home, dead runs of this machine, starting runs and turning their failures into errors a
user can act on. What does not: which assets there are (definitions.py).

Without a daemon nobody frees what a killed run held: after kill -9 its pool slots would keep the next run waiting for
ever. So runs started here are tagged with who runs them, and before a new one starts, those whose process is gone are
marked failed and their slots freed. For a slot that a living run holds we wait here, where Ctrl-C works: Dagster's
in-process executor takes no notice of it while it waits.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import psutil

from audit_pipeline.errors import AuditError
from audit_pipeline.paths import DataPaths
from audit_pipeline.tables import write_atomically

HOST_TAG = "corpus_audit/host"
PROCESS_TAG = "corpus_audit/process"

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
"""

_POLL_SECONDS = 1.0

_UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def ensure_dagster_home(paths: DataPaths) -> Path:
    """DAGSTER_HOME: what the environment says, else data/dagster_home with a dagster.yaml; created and exported."""
    home = Path(os.environ.get("DAGSTER_HOME") or paths.dagster_home).expanduser().resolve()
    config = home / "dagster.yaml"
    if not config.exists():
        write_atomically(config, lambda temporary: temporary.write_text(_DAGSTER_YAML, encoding="utf-8"))
    os.environ["DAGSTER_HOME"] = str(home)
    return home


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


def bury_dead_runs(instance: dg.DagsterInstance) -> list[str]:
    """Mark runs of this machine's command line failed whose process is gone, and free their slots in pools.

    Runs of daemons, of other machines and of living processes are left alone; so are re-executions, which the UI gives
    the tags of the run they repeat. Returns the ids of the buried runs.
    """
    host = socket.gethostname()
    buried = []
    for run in instance.get_runs(dg.RunsFilter(statuses=_UNFINISHED, tags={HOST_TAG: host})):
        if run.parent_run_id is None and not _is_alive(run.tags[PROCESS_TAG]):
            instance.report_run_failed(run, "the process that ran it is gone (killed, or the machine went down)")
            buried.append(run.run_id)
    storage = instance.event_log_storage
    for run_id in storage.get_concurrency_run_ids():
        holder = instance.get_run_by_id(run_id)
        if holder is None or (holder.is_finished and HOST_TAG in holder.tags):
            storage.free_concurrency_slots_for_run(run_id)
    return buried


def _is_alive(identity: str) -> bool:
    try:
        process = psutil.Process(int(identity.partition("@")[0]))
        # A killed process whose parent has not taken note of its end still has its pid and start time.
        return process_identity(process) == identity and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ValueError):
        return False


def wait_for_pools(job: dg.JobDefinition, instance: dg.DagsterInstance, on_wait: Callable[[str], None]) -> None:
    """Return when every pool that ``job`` takes a slot of has one to give; a holder that dies meanwhile is buried.

    ``on_wait`` is told once of each pool that has to be waited for.
    """
    pools = {op.pool for op in job.graph.node_defs if isinstance(op, dg.OpDefinition) and op.pool}
    for pool in sorted(pools):
        told = False
        while holders := _holders(instance, pool):
            if not told:
                on_wait(f"waiting for a slot of the pool {pool}, held by {', '.join(holders)} (Ctrl-C stops waiting)")
                told = True
            time.sleep(_POLL_SECONDS)
            bury_dead_runs(instance)


def _holders(instance: dg.DagsterInstance, pool: str) -> list[str]:
    """The runs that hold the pool's slots, in words; none where a slot is free."""
    info = instance.event_log_storage.get_concurrency_info(pool)
    # Slots come to be with the first claim.
    if info.active_slot_count + info.assigned_step_count < max(info.slot_count, 1):
        return []
    return [_in_words(instance, run_id) for run_id in sorted(info.active_run_ids | info.assigned_run_ids)]


def _in_words(instance: dg.DagsterInstance, run_id: str) -> str:
    run = instance.get_run_by_id(run_id)
    if run is None or HOST_TAG not in run.tags:
        return f"run {run_id}"
    return f"run {run_id} (process {run.tags[PROCESS_TAG].partition('@')[0]} on {run.tags[HOST_TAG]})"


def run_job(
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    *,
    selection: Sequence[dg.AssetKey] | None = None,
    partition_key: str | None = None,
    partition_range: tuple[str, str] | None = None,
    resources: Mapping[str, Mapping[str, Any]] | None = None,
    ops: Mapping[str, Mapping[str, Any]] | None = None,
    on_wait: Callable[[str], None] = lambda what: None,
) -> str:
    """Run ``job`` (or the ``selection`` of its assets) as soon as its pools allow; returns the run's id.

    ``on_wait`` is told where that takes waiting for another run. Raises the AuditError that made the run fail, where
    one did, and KeyboardInterrupt on Ctrl-C; other errors keep Dagster's account of them.
    """
    wait_for_pools(job, instance, on_wait)
    tags = {HOST_TAG: socket.gethostname(), PROCESS_TAG: process_identity(psutil.Process())}
    if partition_range is not None:
        tags["dagster/asset_partition_range_start"], tags["dagster/asset_partition_range_end"] = partition_range
    run_config: dict[str, Any] = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    if resources:
        run_config["resources"] = {name: {"config": dict(config)} for name, config in resources.items()}
    if ops:
        run_config["ops"] = {name: {"config": dict(config)} for name, config in ops.items()}
    try:
        result = job.execute_in_process(
            instance=instance,
            run_config=run_config,
            tags=tags,
            partition_key=partition_key,
            asset_selection=selection,
        )
    except dg.DagsterExecutionInterruptedError as error:
        raise KeyboardInterrupt from error
    except dg.DagsterError as error:
        cause = _root(error)
        if cause is None:
            raise
        raise cause from error
    return result.run_id


def _root(error: BaseException) -> AuditError | None:
    """The AuditError among the causes of Dagster's error."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, AuditError):
            return cause
        cause = cause.__cause__
    return None
