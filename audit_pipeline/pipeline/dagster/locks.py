"""Locks in data/claims/ of runs, audits and `corpus-audit forget`, in whatever processes of this machine they run.

Every run holds the lock of a file that is named after it. An audit asks Dagster for one run after another; between two
of them Dagster does not know of it. So an audit holds such a file as well. `forget` holds the gate, which an audit
passes when it begins, and refuses while any audit holds its file. The kernel frees the locks of a process that is
killed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import filelock

from audit_pipeline.errors import AuditError
from audit_pipeline.store.paths import DataPaths, is_held

_GATE_SECONDS = 5.0
_CHECK_SECONDS = 1.0
"""Longer than a check whether a file is held takes."""
_AUDIT = "audit-"


def liveness_file_path(paths: DataPaths, run_id: str) -> Path:
    """The file whose lock the process of a run holds."""
    return paths.claims / f"{run_id}.alive"


def lock_liveness_file(paths: DataPaths, run_id: str) -> filelock.FileLock | None:
    """The lock of a run's file, which this process holds as long as it keeps it; None where the run holds it already.

    A process that checks whether the file is held holds it for a moment, so this waits.
    """
    paths.claims.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(liveness_file_path(paths, run_id), is_singleton=True, thread_local=False)
    if lock.is_locked:
        return None
    try:
        lock.acquire(timeout=_CHECK_SECONDS)
    except filelock.Timeout:
        return None
    return lock


@contextmanager
def hold_liveness_file(paths: DataPaths, run_id: str) -> Iterator[None]:
    """Hold the file of a run within the block."""
    lock = lock_liveness_file(paths, run_id)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()
            liveness_file_path(paths, run_id).unlink(missing_ok=True)


@contextmanager
def hold_audit_lock(paths: DataPaths) -> Iterator[None]:
    """Keep `forget` out within the block; raises AuditError while one is at work."""
    with ExitStack() as held:
        with _hold_gate(paths):
            held.enter_context(hold_liveness_file(paths, f"{_AUDIT}{uuid.uuid4().hex}"))
        yield


@contextmanager
def hold_removal_lock(paths: DataPaths) -> Iterator[None]:
    """Keep audits and other removals out within the block; raises AuditError while one is at work."""
    with _hold_gate(paths):
        if has_running_audit(paths):
            raise AuditError(
                "nothing can be forgotten while an audit is at work on this data folder: wait for it or end it, then "
                "forget again; nothing was removed"
            )
        yield


@contextmanager
def hold_named_lock(paths: DataPaths, name: str | None, notify: Callable[[str], None]) -> Iterator[None]:
    """Keep other runs of this machine that take the lock of that name waiting; without a name, none.

    ``notify`` is called once where this has to wait itself.
    """
    if name is None:
        yield
        return
    paths.claims.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(paths.claims / f"{name}.run")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        notify(f"waiting for another run that holds {name} (Ctrl-C stops waiting)")
        lock.acquire(poll_interval=0.5)
    try:
        yield
    finally:
        lock.release()


def has_running_audit(paths: DataPaths) -> bool:
    """Whether an audit is at work; the files of audits that were killed are deleted."""
    for file in paths.claims.glob(f"{_AUDIT}*"):
        if is_held(file):
            return True
        file.unlink(missing_ok=True)
    return False


@contextmanager
def _hold_gate(paths: DataPaths) -> Iterator[None]:
    paths.claims.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(paths.claims / "gate.lock", timeout=_GATE_SECONDS):
            yield
    except filelock.Timeout as error:
        raise AuditError(
            "another process forgets something of this data folder: wait for it, then try again; nothing was changed"
        ) from error
