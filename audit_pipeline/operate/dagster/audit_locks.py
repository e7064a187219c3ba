"""Locks that keep audits and `corpus-audit forget` apart, in whatever processes of this machine they run.

An audit asks Dagster for one run after another; between two of them Dagster knows nothing of it. So every audit holds a
lock file of its own in data/claims/. `forget` holds the gate, which an audit passes when it begins, and refuses while
any audit holds its file. The kernel frees the locks of a process that is killed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from audit_pipeline.catalogue.paths import DataPaths, is_held
from audit_pipeline.errors import AuditError

_GATE_SECONDS = 5.0


@contextmanager
def hold_audit_lock(paths: DataPaths) -> Iterator[None]:
    """Keep `forget` out within the block; raises AuditError while one is at work."""
    with _hold_gate(paths):
        file = paths.claims / f"{uuid.uuid4().hex}.lock"
        lock = filelock.FileLock(file)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
        file.unlink(missing_ok=True)


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
def hold_run_lock(paths: DataPaths, name: str | None, tell: Callable[[str], None]) -> Iterator[None]:
    """Keep other runs of this machine that take the lock of that name waiting; without a name, none.

    ``tell`` is called once where this has to wait itself. The kernel frees the lock of a run that is killed.
    """
    if name is None:
        yield
        return
    paths.claims.mkdir(parents=True, exist_ok=True)
    # Not *.lock: these are the audits themselves.
    lock = filelock.FileLock(paths.claims / f"{name}.run")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        tell(f"waiting for another run that holds {name} (Ctrl-C stops waiting)")
        lock.acquire(poll_interval=0.5)
    try:
        yield
    finally:
        lock.release()


def has_running_audit(paths: DataPaths) -> bool:
    """Whether an audit is at work; the lock files of audits that were killed are deleted."""
    for file in set(paths.claims.glob("*.lock")) - {_gate(paths)}:
        if is_held(file):
            return True
        file.unlink(missing_ok=True)
    return False


def _gate(paths: DataPaths) -> Path:
    return paths.claims / "gate.lock"


@contextmanager
def _hold_gate(paths: DataPaths) -> Iterator[None]:
    paths.claims.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(_gate(paths), timeout=_GATE_SECONDS):
            yield
    except filelock.Timeout as error:
        raise AuditError(
            "another process forgets something of this data folder: wait for it, then try again; nothing was changed"
        ) from error
