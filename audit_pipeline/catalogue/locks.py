"""What only one process may do at a time: locks of a folder, leases of a bucket.

What belongs here: taking and giving back, and noticing that a holder has died. What does not: what is done meanwhile.

In a folder a lock of the file system does it: however its process ends, the operating system gives it back. A bucket
has no such thing. There a lease is an object that is made by a conditional put and written anew every few seconds; one
that has not been for a minute, by the store's own clock, is a dead process's, and the next one takes it over by a put
that is conditional on what it has read. Who loses a lease (it was suspended, or the store was out of reach) writes
nothing more.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import filelock

from audit_pipeline.catalogue.object_store import BeatenError, Bucket, BucketError, ObjectTag, StoredObject
from audit_pipeline.catalogue.working_copy import LOCKS, WorkingCopy, copy_of
from audit_pipeline.errors import AuditError

LEASE_SECONDS = 60.0
"""A lease that was not renewed for so long is a dead process's."""

_RENEWED_EVERY = LEASE_SECONDS / 4
_LOOKED_EVERY = 1.0


class HeldError(AuditError):
    """Another process holds the lock or lease, and did not give it back in time."""


@contextmanager
def hold_lock(lock: Path, seconds: float) -> Iterator[None]:
    """Nobody else holds ``lock`` within the block, of whatever machine; waits for it ``seconds`` at most.

    Raises HeldError where it is not free in time.
    """
    copy = copy_of(lock)
    if copy is None:
        lock.parent.mkdir(parents=True, exist_ok=True)
        try:
            with filelock.FileLock(lock, timeout=seconds):
                yield
        except filelock.Timeout as error:
            raise HeldError(f"another process has held {lock} for {seconds:.0f} s") from error
        return
    lease = _Lease(copy, f"{LOCKS}/{copy.name_of(lock)}")
    lease.take(seconds)
    try:
        yield
    finally:
        lease.give_back()


class _Lease:
    """An object that this process holds as long as it goes on writing it."""

    def __init__(self, copy: WorkingCopy, name: str) -> None:
        self.name = name
        self._copy = copy
        self._bucket = copy.bucket
        self._owner = uuid.uuid4().hex
        self._beat = 0
        self._tag: ObjectTag | None = None
        self._renewed = 0.0
        self._lost = False
        self._given_back = threading.Event()
        self._renewal = threading.Thread(target=self._renew, daemon=True, name=f"lease {name}")

    def take(self, seconds: float) -> None:
        """Take it, waiting for another holder; raises HeldError if that one does not give it back in time."""
        until = time.monotonic() + seconds
        while (holder := self._try_to_take()) is not None:
            if time.monotonic() >= until:
                raise HeldError(
                    f"{holder} has held {self._bucket.url}/{self.name} for {seconds:.0f} s; if it has died, that ends "
                    f"{LEASE_SECONDS:.0f} s after its death"
                )
            time.sleep(_LOOKED_EVERY)
        self._copy.guards.add(self.require)
        self._renewal.start()

    def require(self) -> None:
        """Raise BucketError if the lease is lost, or may be: it was not renewed for too long."""
        if self._lost or time.time() - self._renewed > 0.8 * LEASE_SECONDS:
            raise BucketError(
                f"{self._bucket.url}/{self.name} was not renewed for {LEASE_SECONDS:.0f} s (was the computer asleep, "
                "or the bucket out of reach?), so others may be at the same work and nothing more is written: "
                "run the same again"
            )

    def give_back(self) -> None:
        """Let others have it at once."""
        self._given_back.set()
        self._renewal.join()
        self._copy.guards.discard(self.require)
        if not self._lost and self._tag is not None:
            with suppress(BucketError):
                # What cannot be given back ends by itself.
                self._bucket.replace(self.name, self._to_json(held=False), self._tag)

    def _try_to_take(self) -> str | None:
        """Take it and return None, or return the process that holds it."""
        begun = time.time()
        try:
            self._tag = self._bucket.create(self.name, self._to_json())
        except BeatenError:
            lease = self._bucket.read(self.name)
            if lease is None:
                return "another process"
            content, stored = lease
            holder = _parse_lease(content)
            if holder.get("owner") != self._owner:
                # If the lease is ours, only the answer to the request was lost.
                if holder.get("held") and not _is_dead(stored, self._bucket):
                    return str(holder.get("process"))
                try:
                    self._tag = self._bucket.replace(self.name, self._to_json(), stored.tag)
                except BeatenError:
                    return "another process"
            else:
                self._tag = stored.tag
        self._renewed = begun
        return None

    def _renew(self) -> None:
        while not self._given_back.wait(_RENEWED_EVERY):
            self._beat += 1
            begun = time.time()
            assert self._tag is not None, "only what was taken is renewed"
            try:
                self._tag = self._bucket.replace(self.name, self._to_json(), self._tag)
                self._renewed = begun
            except BeatenError:
                lease = self._bucket.read(self.name)
                if lease is None or _parse_lease(lease[0]).get("owner") != self._owner:
                    self._lost = True
                    return
                self._tag, self._renewed = lease[1].tag, begun
            except BucketError:
                # Out of reach: tried again until it would be too late, which `require` checks.
                continue

    def _to_json(self, *, held: bool = True) -> bytes:
        holder = {
            "owner": self._owner,
            "held": held,
            "beat": self._beat,
            "process": f"process {os.getpid()} on {socket.gethostname()}",
        }
        return json.dumps(holder).encode()


def _is_dead(lease: StoredObject, bucket: Bucket) -> bool:
    return (bucket.now() - lease.written_at).total_seconds() > LEASE_SECONDS


def _parse_lease(content: bytes) -> Mapping[str, Any]:
    try:
        holder = json.loads(content)
    except ValueError:
        # Written by no version of this program: taken over once it is old.
        return {"held": True, "process": "another process"}
    return holder if isinstance(holder, dict) else {"held": True, "process": "another process"}
