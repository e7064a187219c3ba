"""A model divided over several processes, run as one in this process is (forward.py).

What belongs here: starting and ending the ranks, sending them what they all run, waiting for their answers, noticing
that one has ended or hangs, and what to do then, the error in words included. What does not: their own work
(rank_process.py), the division (models/weights.py).

This process holds no part of the model. A rank that dies leaves the others waiting in a library, out of which no
exception leads; so they are all processes of their own, which this one can end at any time.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import joblib
import psutil
import torch

from audit_pipeline.errors import ModelError
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.token_statistics.backend import WindowResult
from audit_pipeline.token_statistics.forward import BRANCH_TOKENS, ForwardPass, format_branch_mode
from audit_pipeline.token_statistics.local_pass import Arguments, LoadCheck, LocalPass, Result, Task
from audit_pipeline.token_statistics.rank_process import Call, NoMemory, RankAnswer, RankFailed, RankReady, Start, serve
from audit_pipeline.token_statistics.tokens import EncodedText, Window

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


def collect_answers(processes: Sequence[Process], *, in_step: bool) -> dict[int, Any]:
    """What each rank has answered; those are left out that have not, so long after the first or after a failure.

    Ranks that are not ``in_step`` wait for each other's disks.
    """
    waiting = {rank.connection: rank for rank in processes}
    answers: dict[int, Any] = {}
    until = math.inf
    idle = _IdleCounter(processes)
    while waiting and (now := time.monotonic()) < until:
        spoken = wait(list(waiting), min(until - now, _LOOK_SECONDS))
        for rank in [waiting.pop(connection) for connection in list(waiting) if connection in spoken]:
            answers[rank.rank] = _receive(rank)
            is_well = isinstance(answers[rank.rank], RankAnswer | RankReady)
            patience = (_IN_STEP_SECONDS if in_step else math.inf) if is_well else _LAST_WORDS_SECONDS
            until = min(until, time.monotonic() + patience)
        if in_step and not spoken and (hung := idle.find_hung(waiting.values())):
            return answers | hung
    return answers


class _IdleCounter:
    """How many looks in a row each rank has done nothing."""

    def __init__(self, ranks: Sequence[Process]) -> None:
        self._looks = {rank.rank: 0 for rank in ranks}
        self._seconds = {rank.rank: 0.0 for rank in ranks}

    def find_hung(self, ranks: Collection[Process]) -> dict[int, _Hung]:
        """Those of ``ranks`` that hang, after one more look at them."""
        found = {}
        for rank in ranks:
            try:
                process = psutil.Process(rank.process.pid)
                used, status = process.cpu_times(), process.status()
            except psutil.NoSuchProcess:
                # Its closed connection reports that.
                continue
            seconds = used.user + used.system
            is_idle = seconds - self._seconds[rank.rank] < _IDLE_SHARE * _LOOK_SECONDS
            self._seconds[rank.rank] = seconds
            self._looks[rank.rank] = self._looks[rank.rank] + 1 if is_idle else 0
            if self._looks[rank.rank] >= _IDLE_LOOKS:
                found[rank.rank] = _Hung(status == psutil.STATUS_STOPPED)
        return found


def _receive(process: Process) -> Any:
    try:
        return process.connection.recv()
    except (EOFError, ConnectionResetError):
        code = process.process.wait()
        lines = process.log.read_text(encoding="utf-8", errors="replace").split("\n") if process.log.exists() else []
        return _Gone(code, next((line.strip() for line in reversed(lines) if line.strip()), "")[:_LAST_LINE])


def find_rank_error(answers: dict[int, Any], ranks: int, name: str) -> Exception | None:
    """What went wrong, the cause before its consequences; None where every rank has answered."""
    for rank, answer in answers.items():
        if isinstance(answer, NoMemory):
            return torch.OutOfMemoryError(f"rank {rank}: {answer.words}")
    for answer in answers.values():
        if isinstance(answer, RankFailed) and answer.is_for_user:
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
        _format_hung_ranks(hung)
        if hung
        else f"they are out of step: rank {silent[0]} has not answered {_IN_STEP_SECONDS:.0f} s after another"
    )
    return ModelError(f"{name} is divided over {ranks} processes, and {what}; what is computed is kept: run it again")


def _format_hung_ranks(hung: Mapping[int, bool]) -> str:
    # Those that wait for a stopped one do nothing, either.
    stopped = [rank for rank, is_stopped in hung.items() if is_stopped]
    which = " and ".join(map(str, sorted(stopped or hung)))
    how = "was stopped by a signal" if stopped else "hangs"
    return f"rank {which} {how}: no work for {_IDLE_LOOKS * _LOOK_SECONDS / 60:.0f} minutes"


_FEWEST_BRANCH_TOKENS = 512


class RankedPass(LocalPass):
    """A model that is divided over ``model.entry.tensor_parallel`` processes.

    They are started here, and again where they have been ended after an error. Each runs the same batches, and the
    first one's findings are given back. Raises ModelError where a rank ends or fails, and torch.OutOfMemoryError where
    a batch was too large for one of them: all are then started again, and so large a batch is not retried.
    """

    def __init__(self, model: TokenizedModel, device: str, load_check: LoadCheck | None) -> None:
        assert model.entry.tensor_parallel is not None
        self.device = torch.device(device)
        self.tokens_run = 0
        self.branch_tokens_run = 0
        self._model = model
        self._ranks = model.entry.tensor_parallel
        self._known = load_check
        self._branch_tokens = BRANCH_TOKENS[self.device.type]
        self._too_many: dict[Task, int] = {}
        self._has_prefix = False
        self._asked = 0
        self._started: list[Process] = []
        self._end: Callable[[], object] = lambda: None
        ready = self._start()
        self.parameters, self.length_step = ready.parameters, ready.length_step
        self._known = ready.checked
        self._apply_load_check(ready.checked)

    @property
    def described(self) -> str:
        """As :meth:`ForwardPass.described`, and over how many processes it is divided."""
        return f"divided over {self._ranks} processes, {format_branch_mode(packed=self.packed)}"

    def run_batch(
        self,
        encoded: Sequence[EncodedText],
        batch: Sequence[Window],
        task: Task,
        **arguments: Any,
    ) -> list[WindowResult]:
        """See :class:`LocalPass`; of ``encoded`` the ranks are sent the texts that the batch is of."""
        self._has_prefix |= bool(arguments.get("before"))
        texts = sorted({window.text for window in batch})
        place = {text: number for number, text in enumerate(texts)}
        own = [encoded[text] for text in texts]
        renumbered = [replace(window, text=place[window.text]) for window in batch]
        size = len(batch) * max(window.length for window in batch)
        while True:
            if len(batch) > 1 and size >= self._too_many.get(task, math.inf):
                raise torch.OutOfMemoryError(f"a batch of {size} tokens was too large before")
            try:
                found: list[WindowResult] = self._ask(ForwardPass.run_batch, own, renumbered, task, **arguments)
            except torch.OutOfMemoryError:
                self._too_many[task] = size
                halvable = task.branches and self._branch_tokens > _FEWEST_BRANCH_TOKENS
                if halvable:
                    self._branch_tokens //= 2
                if len(batch) > 1 or not halvable:
                    raise
            else:
                return [_restore_window(window, done) for window, done in zip(batch, found, strict=True)]

    def forget_prefix(self) -> None:
        """See :class:`LocalPass`."""
        if self._has_prefix and self._started:
            self._ask(ForwardPass.forget_prefix)
        self._has_prefix = False

    def apply(self, function: Callable[[ForwardPass, *Arguments], Result], *arguments: *Arguments) -> Result:
        """As :meth:`ForwardPass.apply`, in every rank; what the first finds."""
        found: Result = self._ask(function, *arguments)
        return found

    def close(self) -> None:
        """End the ranks; they are started again where something is asked of them."""
        self._started = []
        self._end()

    def _start(self) -> RankReady:
        folder = Path(tempfile.mkdtemp(prefix="corpus-audit-ranks-"))
        started: list[Process] = []
        self._end = weakref.finalize(self, _end_processes, started, folder)
        with self._close_on_error():
            for rank in range(self._ranks):
                started.append(_launch(rank, self._ranks, folder))
            self._started = started
            for started_rank in started:
                start = Start(
                    self._model,
                    started_rank.rank,
                    self._ranks,
                    self.device.type,
                    folder,
                    self._known,
                    self._branch_tokens,
                )
                _send(started_rank, start)
            ready: RankReady = self._receive_first_answer(in_step=False)
        return ready

    def _ask(self, function: Callable[..., Any], *arguments: Any, **keyword_arguments: Any) -> Any:
        if not self._started:
            self._start()
        self._asked += 1
        with self._close_on_error():
            for rank in self._started:
                _send(rank, Call(self._asked, function, arguments, keyword_arguments))
            answer: RankAnswer = self._receive_first_answer(in_step=True)
            if answer.number != self._asked:
                raise RuntimeError(f"the ranks answered question {answer.number} where {self._asked} was asked")
        self.tokens_run += answer.tokens
        self.branch_tokens_run += answer.branch_tokens
        return answer.found

    @contextmanager
    def _close_on_error(self) -> Iterator[None]:
        """Within it, an error ends all ranks, so that no answer is left for the next question; also Ctrl-C."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _receive_first_answer(self, *, in_step: bool) -> Any:
        """The first rank's answer, once all have given theirs."""
        answers = collect_answers(self._started, in_step=in_step)
        if error := find_rank_error(answers, self._ranks, self._model.entry.name):
            raise error
        return answers[0]


def _launch(rank: int, ranks: int, folder: Path) -> Process:
    own_end, other_end = socket.socketpair()
    log = folder / f"{rank}.log"
    try:
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"from {serve.__module__} import serve; serve()", str(other_end.fileno())],
                env=_build_environment(rank, ranks),
                pass_fds=[other_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Ctrl-C in a terminal reaches this process alone, which ends them.
                start_new_session=True,
            )
    finally:
        other_end.close()
    return Process(rank, process, Connection(own_end.detach()), log)


def _build_environment(rank: int, ranks: int) -> dict[str, str]:
    loopback = next(
        name
        for name, addresses in psutil.net_if_addrs().items()
        if any(address.address == "127.0.0.1" for address in addresses)
    )
    return {
        # The ranks of one machine talk to each other over no other interface.
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
        "OMP_NUM_THREADS": str(max(1, joblib.cpu_count(only_physical_cores=True) // ranks)),
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
    }


def _send(process: Process, message: object) -> None:
    try:
        process.connection.send(message)
    except (BrokenPipeError, ConnectionResetError):
        # It is gone, which is reported where its answer is awaited.
        return


def _end_processes(processes: Sequence[Process], folder: Path) -> None:
    for process in processes:
        process.process.kill()
    for process in processes:
        process.process.wait()
        process.connection.close()
    shutil.rmtree(folder, ignore_errors=True)


def _restore_window(window: Window, result: WindowResult) -> WindowResult:
    """What was found of a window that was renumbered, under the window as it was given."""
    return WindowResult(
        window,
        None if result.statistics is None else replace(result.statistics, window=window),
        None if result.branches is None else replace(result.branches, window=window),
    )
