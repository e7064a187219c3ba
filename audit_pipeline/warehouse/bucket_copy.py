"""The warehouse of a data folder in a bucket: put there after a build, and brought from there by who reads it.

What belongs here: the warehouses in the bucket and the pointer that names the one that counts. What does not: building
one (build.py), other files of the bucket (catalogue/working_copy.py).

A warehouse is an object of its own, named after its bytes; the pointer is written last, and only where it is still what
it was before that. Who reads has a file of this machine open, whatever becomes of the object: one that is
taken away while it is brought is followed by the next that the pointer names.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from audit_pipeline.catalogue.integrity import file_sha256
from audit_pipeline.catalogue.object_store import Bucket
from audit_pipeline.catalogue.working_copy import REFRESH_SECONDS, WAREHOUSES, WorkingCopy, copy_of
from audit_pipeline.errors import DataError

_POINTER = f"{WAREHOUSES}/current.json"
_KEPT = 2
_ATTEMPTS = 5

Placed = TypeVar("Placed")

_looked: dict[Path, float] = {}


def publish_warehouse(new_file: Path, warehouse: Path, put_in_place: Callable[[], Placed]) -> Placed:
    """Put ``new_file``, which has just been built, in place as ``warehouse``.

    Where the folder is a working copy, it goes into the bucket first, and the pointer is moved. The one before it stays
    for those who are fetching it; older ones go.

    Raises BucketError where the bucket cannot be reached, or the lease of the build was lost.
    """
    copy = copy_of(warehouse)
    if copy is None:
        return put_in_place()
    sha256 = file_sha256(new_file)
    name = f"{WAREHOUSES}/{sha256}.duckdb"
    before = copy.bucket.head(_POINTER)
    copy.bucket.put(name, new_file)
    copy.require_leases()
    pointer = json.dumps({"warehouse": name, "sha256": sha256}).encode()
    if before is None:
        copy.bucket.create(_POINTER, pointer)
    else:
        copy.bucket.replace(_POINTER, pointer, before.tag)
    listed = (file for file in copy.bucket.objects(WAREHOUSES) if file.name.endswith(".duckdb"))
    others = sorted((file for file in listed if file.name != name), key=lambda file: file.written_at, reverse=True)
    copy.bucket.delete([other.name for other in others[_KEPT - 1 :]])
    placed = put_in_place()
    _write_digest_note(copy, sha256)
    return placed


def refresh_warehouse(warehouse: Path) -> None:
    """Make ``warehouse`` the one that the bucket points to, where its folder is a working copy.

    Raises BucketError where the bucket cannot be reached, and DataError where what it points to is not there.
    """
    copy = copy_of(warehouse)
    now = time.monotonic()
    if copy is None or now - _looked.get(warehouse, -REFRESH_SECONDS) < REFRESH_SECONDS:
        return
    for _ in range(_ATTEMPTS):
        named = _read_pointer(copy.bucket)
        if named is None or (warehouse.exists() and _read_digest_note(copy) == named[1]):
            break
        if _fetch_warehouse(copy, *named, warehouse):
            break
    else:
        raise DataError(
            f"{copy.bucket.url}/{_POINTER} names a warehouse that is not there: build it again: corpus-audit report"
        )
    _looked[warehouse] = now


def _read_pointer(bucket: Bucket) -> tuple[str, str, datetime] | None:
    seen = bucket.read(_POINTER)
    if seen is None:
        return None
    pointer = json.loads(seen[0])
    return pointer["warehouse"], pointer["sha256"], seen[1].written_at


def _fetch_warehouse(copy: WorkingCopy, name: str, sha256: str, pointed_at: datetime, warehouse: Path) -> bool:
    """Whether the object was there, as it was written, and is the warehouse of this machine now."""
    temporary = warehouse.with_name(f".{warehouse.name}.{sha256[:12]}.tmp")
    try:
        if copy.bucket.fetch(name, temporary) is None or file_sha256(temporary) != sha256:
            return False
        # Compared with the times of files that were brought, which are the store's, too.
        moment = int(pointed_at.timestamp() * 1e9)
        os.utime(temporary, ns=(moment, moment))
        temporary.replace(warehouse)
    finally:
        temporary.unlink(missing_ok=True)
    _write_digest_note(copy, sha256)
    return True


def _digest_note_path(copy: WorkingCopy) -> Path:
    return copy.root / ".warehouse.json"


def _write_digest_note(copy: WorkingCopy, sha256: str) -> None:
    _digest_note_path(copy).write_text(json.dumps({"sha256": sha256}), encoding="utf-8")


def _read_digest_note(copy: WorkingCopy) -> str | None:
    try:
        return str(json.loads(_digest_note_path(copy).read_text(encoding="utf-8"))["sha256"])
    except (FileNotFoundError, ValueError, KeyError):
        return None
