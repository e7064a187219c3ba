"""What the ranks of a divided model answer, and what went wrong where one does not.

What belongs here: waiting for their answers, noticing that one has ended or hangs, and the error in words. What does
not: starting and ending them, and what they are asked (ranks.py).
"""

from __future__ import annotations

import math
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import psutil
import torch

from audit_pipeline.errors import ModelError
from audit_pipeline.token_statistics.rank import NoMemory, RankAnswer, RankFailed, RankReady

# Ranks wait for each other in every layer, so they are done at the same time; and where one has failed, another may
# say better what the cause was.
_IN_STEP_SECONDS, _LAST_WORDS_SECONDS = 120.0, 2.0
# While an answer is waited for, it is looked so often whether every rank is at work. One that is not, so many times in
# a row, hangs, or waits for another that does: a layer never takes so long. Looks are counted rather than seconds,
# since a machine that was put to sleep has done nothing for hours when it wakes.
_LOOK_SECONDS, _IDLE_LOOKS = 15.0, 20
# A rank that waits in gloo still wakes a hundred times a second.
_IDLE_SHARE = 0.01
_LAST_LINE = 300


@dataclass(frozen=True)
class _Gone:
    """A rank that has ended by itself: its exit code, and the last that it said."""

    code: int | None
    words: str


@dataclass(frozen=True)
class _Hung:
    """A rank that has used no processor time for long; ``is_stopped``: by a signal."""

    is_stopped: bool


@dataclass(frozen=True)
class Process:
    """A rank from outside: its number, our end of the connection to it, and where what it says is written."""

    rank: int
    process: subprocess.Popen[bytes]
    connection: Connection
    log: Path


def answers_of(started: Sequence[Process], *, in_step: bool) -> dict[int, Any]:
    """What each rank has answered; those are left out that have not, so long after the first or after a failure.

    Ranks that are not ``in_step`` wait for each other's disks.
    """
    waiting = {one.connection: one for one in started}
    answers: dict[int, Any] = {}
    until = math.inf
    idle = _IdleCounter(started)
    while waiting and (now := time.monotonic()) < until:
        spoken = wait(list(waiting), min(until - now, _LOOK_SECONDS))
        for one in [waiting.pop(connection) for connection in list(waiting) if connection in spoken]:
            answers[one.rank] = _received(one)
            is_well = isinstance(answers[one.rank], RankAnswer | RankReady)
            patience = (_IN_STEP_SECONDS if in_step else math.inf) if is_well else _LAST_WORDS_SECONDS
            until = min(until, time.monotonic() + patience)
        if in_step and not spoken and (hung := idle.hung(waiting.values())):
            return answers | hung
    return answers


class _IdleCounter:
    """How many looks in a row each rank has done nothing."""

    def __init__(self, ranks: Sequence[Process]) -> None:
        self._looks = {one.rank: 0 for one in ranks}
        self._seconds = {one.rank: 0.0 for one in ranks}

    def hung(self, ranks: Collection[Process]) -> dict[int, _Hung]:
        """Those of ``ranks`` that hang, after one more look at them."""
        found = {}
        for one in ranks:
            try:
                process = psutil.Process(one.process.pid)
                used, status = process.cpu_times(), process.status()
            except psutil.NoSuchProcess:
                # Its connection tells.
                continue
            seconds = used.user + used.system
            is_idle = seconds - self._seconds[one.rank] < _IDLE_SHARE * _LOOK_SECONDS
            self._seconds[one.rank] = seconds
            self._looks[one.rank] = self._looks[one.rank] + 1 if is_idle else 0
            if self._looks[one.rank] >= _IDLE_LOOKS:
                found[one.rank] = _Hung(status == psutil.STATUS_STOPPED)
        return found


def _received(one: Process) -> Any:
    try:
        return one.connection.recv()
    except (EOFError, ConnectionResetError):
        code = one.process.wait()
        lines = one.log.read_text(encoding="utf-8", errors="replace").split("\n") if one.log.exists() else []
        return _Gone(code, next((line.strip() for line in reversed(lines) if line.strip()), "")[:_LAST_LINE])


def error_in(answers: dict[int, Any], ranks: int, name: str) -> Exception | None:
    """What went wrong, the cause before its consequences; None where every rank has answered."""
    for rank, answer in answers.items():
        if isinstance(answer, NoMemory):
            return torch.OutOfMemoryError(f"rank {rank}: {answer.words}")
    for answer in answers.values():
        if isinstance(answer, RankFailed) and answer.is_told:
            return ModelError(answer.words)
    for rank, answer in answers.items():
        if isinstance(answer, _Gone):
            how = (
                f"was ended by {signal.Signals(-answer.code).name}"
                if answer.code is not None and answer.code < 0
                else f"ended with exit code {answer.code}"
            )
            return ModelError(
                f"{name} is divided over {ranks} processes, and rank {rank} {how}, so that the others were ended too; "
                f"what is computed is kept: run it again{f' (it said last: {answer.words})' if answer.words else ''}"
            )
    for rank, answer in answers.items():
        if isinstance(answer, RankFailed):
            return RuntimeError(f"rank {rank} of {name} failed:\n{answer.words}")
    hung = {rank: answer.is_stopped for rank, answer in answers.items() if isinstance(answer, _Hung)}
    silent = sorted(set(range(ranks)) - set(answers))
    if not (hung or silent):
        return None
    what = (
        _hung_in_words(hung)
        if hung
        else f"they are out of step: rank {silent[0]} has not answered {_IN_STEP_SECONDS:.0f} s after another"
    )
    return ModelError(f"{name} is divided over {ranks} processes, and {what}; what is computed is kept: run it again")


def _hung_in_words(hung: Mapping[int, bool]) -> str:
    # Those that wait for a stopped one do nothing, either.
    stopped = [rank for rank, is_stopped in hung.items() if is_stopped]
    which = " and ".join(map(str, sorted(stopped or hung)))
    how = "was stopped by a signal" if stopped else "hangs"
    return f"rank {which} {how}: no work for {_IDLE_LOOKS * _LOOK_SECONDS / 60:.0f} minutes"
