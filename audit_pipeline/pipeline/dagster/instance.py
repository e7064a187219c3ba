"""The Dagster home, and runs whose process is gone.

Dagster may not notice that the process of a run was killed. Before a new run starts here, and at the sensors' ticks,
runs whose file (locks.py) is free are marked failed.
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
# Written once; yours to change.
telemetry:
  enabled: false
nux:
  enabled: false
run_monitoring:
  enabled: true
freshness:
  enabled: true
# Runs print their warnings and results; their events at DEBUG are in the UI.
python_logs:
  python_log_level: INFO
"""

_OPEN_SECONDS = 0.5
"""Longer than a process takes from making the file of a run to holding it."""

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
            temporary.write_text(DAGSTER_YAML, encoding="utf-8")
    os.environ["DAGSTER_HOME"] = str(home)
    return home


@contextmanager
def open_instance(paths: DataPaths) -> Iterator[dg.DagsterInstance]:
    """The instance of the Dagster home, which is made where it is not there."""
    with open_existing_instance(ensure_dagster_home(paths)) as instance:
        yield instance


@contextmanager
def open_existing_instance(home: Path) -> Iterator[dg.DagsterInstance]:
    """The instance of a Dagster home that is there; raises DataError where its storage is damaged.

    One process after the other opens it: Dagster makes its SQLite databases with the first opening, and two that do so
    at once leave them unusable.
    """
    try:
        with filelock.FileLock(home / "opening.lock"):
            instance = dg.DagsterInstance.from_config(str(home))
        with instance:
            yield instance
    except sqlalchemy.exc.DatabaseError as error:
        # Its subclasses say something else: a server that is away, a full disk, a row that is there already.
        if type(error) is not sqlalchemy.exc.DatabaseError:
            raise
        raise DataError(
            f"the Dagster storage in {home} cannot be read ({to_one_line(error.orig or error)}): put it back from a "
            "backup, or move the folder away, and the next run makes another (findings do not lie there)"
        ) from error


def find_dead_runs(instance: dg.DagsterInstance, paths: DataPaths) -> list[dg.DagsterRun]:
    """Unfinished runs on this data folder whose process is gone, however they were started.

    What waits in the queue has no file yet. A free file is checked twice: a process makes it before it holds it.
    """
    free = [run for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED)) if _has_lost_process(paths, run)]
    if free:
        time.sleep(_OPEN_SECONDS)
    return [run for run in free if _has_lost_process(paths, run)]


def _has_lost_process(paths: DataPaths, run: dg.DagsterRun) -> bool:
    return (file := liveness_file_path(paths, run.run_id)).exists() and not is_held(file)


def mark_dead_runs_failed(instance: dg.DagsterInstance, paths: DataPaths) -> list[str]:
    """Mark the runs failed whose process is gone; returns their ids."""
    dead = find_dead_runs(instance, paths)
    marked = []
    for run in dead:
        # It may have come to its end since it was listed.
        now = instance.get_run_by_id(run.run_id)
        if now is not None and not now.is_finished:
            instance.report_run_failed(now, "the process that ran it is gone (killed, or the machine went down)")
            marked.append(run.run_id)
    for file in paths.claims.glob("*.alive"):
        # A run of another Dagster home is for that to mark.
        known = instance.get_run_by_id(file.stem)
        if known is not None and known.is_finished and not is_held(file):
            file.unlink(missing_ok=True)
    return marked
