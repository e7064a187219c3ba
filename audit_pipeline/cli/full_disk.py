"""Telling a full disk from other faults, whoever met it: our own writes, SQLite's, DuckDB's.

What belongs here: what to say to the user of an error that a full disk caused. What does not: writing
(catalogue/tables.py), and whether a fault is worth trying again (operate/dagster/retries.py).
"""

from __future__ import annotations

import errno
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})
_IN_WORDS = ("No space left on device", "disk is full", "Disk quota exceeded")
# SQLite maps the index of its log into memory: where there is no room for it, all it says is that this failed.
_UNSPECIFIC = "disk I/O error"
_NO_ROOM_BYTES = 1 << 20


def full_disk(error: BaseException, data: Path) -> str | None:
    """What to tell the user, in one line, where a full disk is behind ``error``; None where something else is.

    ``data`` is the data folder: it is named where the error names no path.
    """
    for one in _causes(error):
        if _reports_full_disk(one) or (_is_unspecific(one) and _is_full(data)):
            named = one.filename if isinstance(one, OSError) and one.filename is not None else data
            said = " ".join(str(one).split("\n")[0].split())
            return f"the disk of {named} is full ({said}): make room and run the same again; what was finished is kept"
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in seen:
        seen.append(one)
        yield one
        one = one.__cause__ or one.__context__


def _reports_full_disk(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in _ERRNOS
    # Only of these: other errors quote what users have typed. Who has no DuckDB loaded has no error of it.
    duckdb = sys.modules.get("duckdb")
    of_databases = (sqlite3.OperationalError, *(() if duckdb is None else (duckdb.IOException,)))
    return isinstance(error, of_databases) and any(words in str(error) for words in _IN_WORDS)


def _is_unspecific(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and _UNSPECIFIC in str(error)


def _is_full(folder: Path) -> bool:
    there = next(one for one in (folder, *folder.parents) if one.exists())
    return shutil.disk_usage(there).free < _NO_ROOM_BYTES
