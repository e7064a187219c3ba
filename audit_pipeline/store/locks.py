"""Locks that one process of this machine holds at a time; the operating system frees those of a process that dies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from audit_pipeline.errors import DataError


class HeldError(DataError):
    """Another process holds the lock, and did not give it back in time."""


@contextmanager
def hold_lock(lock: Path, seconds: float) -> Iterator[None]:
    """No other process of this machine holds ``lock`` within the block; waits for it ``seconds`` at most.

    Raises HeldError where it is not free in time.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(lock, timeout=seconds):
            yield
    except filelock.Timeout as error:
        raise HeldError(
            f"another process has held {lock} for {seconds:.0f} s: wait for it, or end it and try again"
        ) from error
