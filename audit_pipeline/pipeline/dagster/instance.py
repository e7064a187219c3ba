"""The Dagster home, and runs whose process has ended.

Dagster may not notice that the process of a run was killed. Therefore runs without a locked liveness file (locks.py)
are marked as failed before a new run starts, and at the ticks of the sensor.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import filelock
import sqlalchemy.exc

from audit_pipeline.errors import DataError, to_one_line
from audit_pipeline.pipeline.dagster.locks import liveness_file_path
from audit_pipeline.store.files import write_atomically
from audit_pipeline.store.paths import DataPaths, explain_unwritable, is_held, make_private

DAGSTER_YAML = """\
# Corpus Audit writes this file once. You can change it.
telemetry:
  enabled: false
nux:
  enabled: false
run_monitoring:
  enabled: true
freshness:
  enabled: true
# Runs print their warnings and results. The UI also shows their events at level DEBUG.
python_logs:
  python_log_level: INFO
"""

_OPEN_SECONDS = 0.5
"""Seconds between the two checks of a liveness file. A process needs less time to create and lock the file."""

UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def dagster_home(paths: DataPaths) -> Path:
    """Return the Dagster home: DAGSTER_HOME, or data/dagster_home. It may not exist yet."""
    return Path(os.environ.get("DAGSTER_HOME") or paths.dagster_home).expanduser().resolve()


def ensure_dagster_home(paths: DataPaths) -> Path:
    """Create the Dagster home with a dagster.yaml if it is missing, set DAGSTER_HOME, and return the folder.

    Raises:
        DataError: If the folder is not writable.
    """
    make_private(paths.root)
    home = dagster_home(paths)
    reason = explain_unwritable(home)
    if reason is not None:
        raise DataError(
            f"the Dagster home {home} cannot be written ({reason}), so nothing was run. Set DAGSTER_HOME to a folder "
            "that you can write to."
        )
    config = home / "dagster.yaml"
    if not config.exists():
        with write_atomically(config) as temporary:
            temporary.write_text(DAGSTER_YAML, encoding="utf-8")
    os.environ["DAGSTER_HOME"] = str(home)
    return home


@contextmanager
def open_instance(paths: DataPaths) -> Iterator[dg.DagsterInstance]:
    """Open the instance of the Dagster home. Create the home if it is missing."""
    with open_existing_instance(ensure_dagster_home(paths)) as instance:
        yield instance


@contextmanager
def open_existing_instance(home: Path) -> Iterator[dg.DagsterInstance]:
    """Open the instance of an existing Dagster home.

    A lock lets one process at a time open it. Dagster creates its SQLite databases when they are first opened, and two
    processes that do so at once damage them.

    Raises:
        DataError: If the storage is damaged.
    """
    try:
        with filelock.FileLock(home / "opening.lock"):
            instance = dg.DagsterInstance.from_config(str(home))
        with instance:
            yield instance
    except sqlalchemy.exc.DatabaseError as error:
        # Subclasses have other causes: an unreachable server, a full disk, or an existing row.
        if type(error) is not sqlalchemy.exc.DatabaseError:
            raise
        raise DataError(
            f"the Dagster storage in {home} is damaged ({to_one_line(error.orig or error)}). Restore the folder from a "
            "backup, or move it away. The next run then creates a new folder. Findings are not stored in it."
        ) from error


def find_dead_runs(instance: dg.DagsterInstance, paths: DataPaths) -> list[dg.DagsterRun]:
    """Return the unfinished runs on this data folder whose process has ended.

    Queued runs have no liveness file yet, so they are not returned. Each file is checked twice, because a process
    creates the file shortly before it locks it.
    """
    unfinished = instance.get_runs(dg.RunsFilter(statuses=UNFINISHED))
    candidates = [run for run in unfinished if _has_lost_process(paths, run)]
    if candidates:
        time.sleep(_OPEN_SECONDS)
    return [run for run in candidates if _has_lost_process(paths, run)]


def _has_lost_process(paths: DataPaths, run: dg.DagsterRun) -> bool:
    file = liveness_file_path(paths, run.run_id)
    return file.exists() and not is_held(file)


def mark_dead_runs_failed(instance: dg.DagsterInstance, paths: DataPaths) -> list[str]:
    """Mark the runs whose process has ended as failed, and return their ids."""
    dead = find_dead_runs(instance, paths)
    marked = []
    for run in dead:
        # The run may have ended since it was listed.
        current = instance.get_run_by_id(run.run_id)
        if current is not None and not current.is_finished:
            instance.report_run_failed(
                current, "the process of the run has ended (it was killed, or the machine was shut down)"
            )
            marked.append(run.run_id)
    for file in paths.claims.glob("*.alive"):
        # The files of runs of another Dagster home are kept.
        known = instance.get_run_by_id(file.stem)
        if known is not None and known.is_finished and not is_held(file):
            file.unlink(missing_ok=True)
    return marked
