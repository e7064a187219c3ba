"""File locks that one process holds at a time. The operating system releases the locks of a process that ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from audit_pipeline.errors import DataError


class HeldError(DataError):
    """A timeout while waiting for a lock that another process holds."""


@contextmanager
def hold_lock(lock: Path, seconds: float) -> Iterator[None]:
    """Hold a lock within the block.

    Args:
        lock: The lock file.
        seconds: The maximum time to wait for the lock.

    Raises:
        HeldError: If another process holds the lock for longer.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(lock, timeout=seconds):
            yield
    except filelock.Timeout as error:
        raise HeldError(
            f"another process has held {lock} for {seconds:.0f} s. Wait for it, or end it and try again."
        ) from error
