"""Claims of commands at work, so that audits and removals in several processes keep out of each other's way.

What belongs here: making claims, and finding the live ones. What does not: Dagster's runs (forgetting.py); what is done
under a claim.

An audit asks Dagster for one run after another, and between two of them Dagster knows nothing of it. So it claims the
model and its benchmarks beforehand, in a note that is valid as long as its process lives (catalogue/locks.py).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Literal

from audit_pipeline.catalogue.locks import HeldError, hold_lock, hold_note, read_live_notes
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.working_copy import copy_of
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

    def meets(self, other: WorkClaim) -> bool:
        """Whether both work on one model, or on one benchmark."""
        return not {*self.models}.isdisjoint(other.models) or not {*self.benchmarks}.isdisjoint(other.benchmarks)

    def __str__(self) -> str:
        return f"corpus-audit {self.doing} (process {self.process})"


def live_claims(paths: DataPaths) -> list[WorkClaim]:
    """The claims of living processes; those of dead ones are deleted."""
    if copy_of(paths.root) is None and not paths.claims.exists():
        return []
    with _lock_claims(paths):
        return _read_live_claims(paths)


@contextmanager
def claim_audit(paths: DataPaths, *, models: Collection[str] = (), benchmarks: Collection[str] = ()) -> Iterator[None]:
    """Claim that an audit of ``models`` on ``benchmarks`` is at work within the block.

    Several audits may be at work. Raises AuditError, before anything is claimed, while one of these is being removed.
    """
    with _hold_claim(WorkClaim.of_this_process("audit", models=models, benchmarks=benchmarks), paths):
        yield


@contextmanager
def claim_removal(target: RemovalTarget, paths: DataPaths) -> Iterator[None]:
    """Claim that ``target`` is removed within the block.

    Raises AuditError, before anything is claimed, where another removal is at work, or any audit.
    """
    names = {"models": [target.name]} if target.dimension == "model" else {"benchmarks": [target.name]}
    with _hold_claim(WorkClaim.of_this_process("forget", **names), paths):
        yield


@contextmanager
def _hold_claim(claim: WorkClaim, paths: DataPaths) -> Iterator[None]:
    with ExitStack() as claimed:
        with _lock_claims(paths):
            for other in _read_live_claims(paths):
                _refuse(claim, other)
            claimed.enter_context(hold_note(paths.claims, asdict(claim)))
        yield


def _refuse(claim: WorkClaim, other: WorkClaim) -> None:
    if claim.doing == other.doing == "forget":
        raise AuditError("another `corpus-audit forget` is at work on this data folder: wait for it")
    if claim.doing == "forget":
        raise AuditError(
            f"nothing can be forgotten while {other} is at work: wait for it or end it, then forget again; "
            "nothing was removed"
        )
    if other.doing == "forget" and claim.meets(other):
        removed = ", ".join([*other.models, *other.benchmarks])
        raise AuditError(f"{removed}: in use by {other}: wait for it or end it, then try again; nothing was changed")


def _read_live_claims(paths: DataPaths) -> list[WorkClaim]:
    return [
        WorkClaim(said["doing"], tuple(said["models"]), tuple(said["benchmarks"]), said["process"])
        for said in read_live_notes(paths.claims)
    ]


@contextmanager
def _lock_claims(paths: DataPaths) -> Iterator[None]:
    """Hold the lock under which claims are read and added, so that two processes never do so at once."""
    try:
        with hold_lock(paths.claims / "gate.lock", _GATE_SECONDS):
            yield
    except HeldError as error:
        raise DataError(str(error)) from error
