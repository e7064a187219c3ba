"""Who works on what, so that processes know of each other: audits from their first decision on, removals to their end.

What belongs here: making claims, and finding which of them stand. What does not: Dagster's runs, of which Dagster knows
(forgetting.py); what is done under a claim.

An audit asks Dagster for one run after another, and between two of them Dagster knows nothing of it. So it claims the
model and its benchmarks beforehand. A claim is a file beside a lock that its process holds: however the process ends,
the operating system gives the lock back, and the next one to look takes the file away.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import filelock

from audit_pipeline.catalogue.data_folder import is_held
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.tables import read_json_if_whole, write_json
from audit_pipeline.errors import AuditError, DataError
from audit_pipeline.operate.removal import RemovalTarget

Doing = Literal["audit", "forget"]

_GATE_SECONDS = 60.0


@dataclass(frozen=True)
class WorkClaim:
    """A command at work on models and benchmarks, and the process that runs it."""

    doing: Doing
    models: tuple[str, ...]
    benchmarks: tuple[str, ...]
    process: str

    @classmethod
    def of_this_process(
        cls, doing: Doing, *, models: Collection[str] = (), benchmarks: Collection[str] = ()
    ) -> WorkClaim:
        return cls(doing, tuple(models), tuple(benchmarks), f"{os.getpid()} on {socket.gethostname()}")

    def uses(self, target: RemovalTarget) -> bool:
        """Whether the work is on this model, or benchmark."""
        return target.name in (self.models if target.dimension == "model" else self.benchmarks)

    def meets(self, other: WorkClaim) -> bool:
        """Whether both work on one model, or on one benchmark."""
        return not {*self.models}.isdisjoint(other.models) or not {*self.benchmarks}.isdisjoint(other.benchmarks)

    def __str__(self) -> str:
        return f"corpus-audit {self.doing} (process {self.process})"


def standing(paths: DataPaths) -> list[WorkClaim]:
    """The claims of living processes; what dead ones left is taken away."""
    if not paths.claims.exists():
        return []
    with _gate(paths):
        return _standing(paths)


@contextmanager
def audit_of(paths: DataPaths, *, models: Collection[str] = (), benchmarks: Collection[str] = ()) -> Iterator[None]:
    """An audit of ``models`` on ``benchmarks`` is at work within the block.

    Audits do not keep one another out. Raises AuditError, before anything is claimed, while one of these is removed.
    """
    with _claimed(WorkClaim.of_this_process("audit", models=models, benchmarks=benchmarks), paths):
        yield


@contextmanager
def removal_of(target: RemovalTarget, paths: DataPaths) -> Iterator[None]:
    """``target`` is removed within the block.

    Raises AuditError, before anything is claimed, where another removal is at work, or an audit uses ``target``.
    """
    names = {"models": [target.name]} if target.dimension == "model" else {"benchmarks": [target.name]}
    with _claimed(WorkClaim.of_this_process("forget", **names), paths):
        yield


@contextmanager
def _claimed(claim: WorkClaim, paths: DataPaths) -> Iterator[None]:
    with _gate(paths):
        for other in _standing(paths):
            _refuse(claim, other)
        file = paths.claims / f"{uuid.uuid4().hex}.json"
        lock = filelock.FileLock(_lock_of(file))
        lock.acquire()
        try:
            write_json(file, asdict(claim))
        except BaseException:
            _give_back(file, lock)
            raise
    try:
        yield
    finally:
        _give_back(file, lock)


def _give_back(file: Path, lock: filelock.BaseFileLock) -> None:
    file.unlink(missing_ok=True)
    lock.release()
    _lock_of(file).unlink(missing_ok=True)


def _refuse(claim: WorkClaim, other: WorkClaim) -> None:
    if "forget" not in (claim.doing, other.doing):
        return
    if claim.doing == other.doing:
        raise AuditError("another `corpus-audit forget` is at work on this data folder: wait for it")
    if claim.meets(other):
        on = ", ".join([*other.models, *other.benchmarks])
        raise AuditError(f"{on}: in use by {other}: wait for it or end it, then try again; nothing was changed")


def _standing(paths: DataPaths) -> list[WorkClaim]:
    found = []
    for file in sorted(paths.claims.glob("*.json")):
        if not is_held(_lock_of(file)):
            file.unlink(missing_ok=True)
            _lock_of(file).unlink(missing_ok=True)
        elif (content := read_json_if_whole(file)) is not None:
            found.append(WorkClaim(**{**content, **{name: tuple(content[name]) for name in ("models", "benchmarks")}}))
    return found


def _lock_of(file: Path) -> Path:
    return file.with_suffix(".lock")


@contextmanager
def _gate(paths: DataPaths) -> Iterator[None]:
    """Looking at claims and adding one are one step: no two processes are at it at once."""
    paths.claims.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(paths.claims / "gate.lock", timeout=_GATE_SECONDS):
            yield
    except filelock.Timeout as error:
        raise DataError(f"another process has held {paths.claims / 'gate.lock'} for {_GATE_SECONDS:.0f} s") from error
