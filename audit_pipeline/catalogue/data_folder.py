"""The data folder as a place: who may look into it, whether it can be written, whether a lock in it is held.

What belongs here: making it, and saying before anything runs that it cannot be written. What does not: what lies in it
(catalogue/paths.py), writing files (catalogue/tables.py), a disk that fills up later (cli/full_disk.py).
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import filelock

from audit_pipeline.errors import DataError

OWNER_ONLY = 0o700
_WHAT_TO_DO = "set CORPUS_AUDIT_DATA to a folder that can; sql, export, report --open and doctor read this one as it is"
_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_private(folder: Path) -> None:
    """Make ``folder``, and those above it that are missing, for their owner only: it holds full texts.

    One that is there is left as it is.
    """
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in [*reversed(missing), folder]:
        one.mkdir(mode=OWNER_ONLY, exist_ok=True)


def require_writable(folder: Path) -> None:
    """Make ``folder`` where it is not there; raises DataError, in one line, where it cannot be made or written."""
    try:
        make_private(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise DataError(
            f"the folder {folder} cannot be written ({reason}), so nothing was run: {_WHAT_TO_DO}"
        ) from error


def is_writable(folder: Path) -> bool:
    """Whether something can be written there, or in the folder that it would be made in."""
    there = next(one for one in (folder, *folder.parents) if one.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def is_open_to_others(folder: Path) -> bool:
    """Whether anybody but its owner may look into it; never where the system has no such rights."""
    return os.name == "posix" and bool(folder.stat().st_mode & _OF_OTHERS)


def is_held(lock: Path) -> bool:
    """Whether a living process holds the lock of this file."""
    try:
        with filelock.FileLock(lock, timeout=0):
            return False
    except filelock.Timeout:
        return True
