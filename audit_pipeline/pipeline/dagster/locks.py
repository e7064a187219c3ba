"""Locks in data/claims/ between the processes of this machine: runs, audits and `corpus-audit forget`.

Every run locks a liveness file that is named after its id. An audit consists of several runs, so it also locks a
liveness file of its own. `forget` fails while an audit holds this file. `forget` itself holds the file gate.lock, which
every audit locks briefly when it begins, so no audit begins during `forget`. If a process is killed, the kernel
releases its locks.
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
"""Maximum seconds to wait for the lock of a liveness file. A process that only checks the file releases it sooner."""
_AUDIT = "audit-"


def liveness_file_path(paths: DataPaths, run_id: str) -> Path:
    """Return the liveness file of a run, which the process of the run locks."""
    return paths.claims / f"{run_id}.alive"


def lock_liveness_file(paths: DataPaths, run_id: str) -> filelock.FileLock | None:
    """Lock the liveness file of a run until this process releases the lock or ends.

    The function waits for a short time, because another process that checks the file locks it for a moment.

    Returns:
        The lock, or None if this process or another one already holds it.
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
    """Hold the lock of a run's liveness file within the block."""
    lock = lock_liveness_file(paths, run_id)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()
            liveness_file_path(paths, run_id).unlink(missing_ok=True)


@contextmanager
def mark_audit_running(paths: DataPaths) -> Iterator[None]:
    """Mark an audit as running within the block, so that `forget` fails.

    Raises:
        AuditError: If `forget` is running.
    """
    with ExitStack() as held:
        with _hold_gate(paths):
            held.enter_context(hold_liveness_file(paths, f"{_AUDIT}{uuid.uuid4().hex}"))
        yield


@contextmanager
def hold_removal_lock(paths: DataPaths) -> Iterator[None]:
    """Keep audits and other removals from beginning within the block.

    Raises:
        AuditError: If an audit or a removal is running.
    """
    with _hold_gate(paths):
        if has_running_audit(paths):
            raise AuditError(
                "an audit uses this data folder, so nothing was removed. Wait until the audit ends, or stop it. Then "
                "run corpus-audit forget again."
            )
        yield


@contextmanager
def hold_named_lock(paths: DataPaths, name: str | None, notify: Callable[[str], None]) -> Iterator[None]:
    """Hold a named lock within the block, so that other runs of this machine wait for it.

    Args:
        paths: The data folder.
        name: The name of the lock, or None for no lock.
        notify: Receives a line if this process has to wait.
    """
    if name is None:
        yield
        return
    paths.claims.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(paths.claims / f"{name}.run")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        notify(f"waiting for another run that holds the lock '{name}' (Ctrl-C stops waiting)")
        lock.acquire(poll_interval=0.5)
    try:
        yield
    finally:
        lock.release()


def has_running_audit(paths: DataPaths) -> bool:
    """Return whether an audit is running. Delete the liveness files of audits that were killed."""
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
            "corpus-audit forget is running in this data folder, so nothing was changed. Wait until it ends, then run "
            "this command again."
        ) from error
