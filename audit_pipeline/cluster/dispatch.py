"""What a run asks for, cut into shards of whole texts: who runs which, and what becomes of those of workers that die.

What belongs here: which texts make a shard, and its work as a worker gets it; handing out, the clock of each shard,
starting workers anew, counting their deaths. What does not: how workers are started and asked (ray_pool.py): all of it
is reached through :class:`Pool`, and tested without Ray.

A shard of a dead worker goes to whichever is free next, however often: several workers die within seconds where a
machine does, so no number of tries would be right. What ends it is the shard's own clock, which counts the time that a
worker has it, or could have it: that of loading models anew does not count. What ends a run in which workers only die
is how many have died since a shard was last finished. A worker that dies before it is ready is started again after a
pause, which doubles. A shard that is run twice is harmless: its rows have the same keys, and readers take one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from audit_pipeline.catalogue.contracts import SHARE_WITH_BRANCH
from audit_pipeline.errors import AuditError, ClusterError, to_one_line
from audit_pipeline.token_statistics.backend import Work
from audit_pipeline.token_statistics.cached_texts import Prepared
from audit_pipeline.token_statistics.run import RunSummary
from audit_pipeline.token_statistics.tokens import Window

MOST_TOKENS = {"cpu": 20_000, "cuda": 1_000_000}
"""The most tokens of a shard, but for one longer text: some minutes of a small model on one core, or of a large one on
a GPU."""
_LEAST_TOKENS = 2_000
_SHARDS_A_WORKER = 4


@dataclass(frozen=True, eq=False)
class Shard:
    """Some texts of a run: ``work`` is theirs alone, their windows renumbered, and ``windows`` are the run's own.

    ``tokens``: about how many are run for it at most, branches and prefixes of its texts included.
    """

    number: int
    work: Work
    windows: Sequence[Window]
    tokens: int

    @property
    def texts(self) -> int:
        return len(self.work.prepared.encoded)


def split_into_shards(work: Work, workers: int, max_tokens: int) -> list[Shard]:
    """The work in shards of about ``max_tokens`` tokens or less, texts of like length together, the longest first.

    Each worker gets several, so that none waits long for the last; a text is never cut. Every window of ``work`` is in
    one shard. Texts without a window are in none.
    """
    windows: dict[int, list[Window]] = {}
    for window in work.prepared.windows:
        windows.setdefault(window.text, []).append(window)
    tokens = {text: _estimate_tokens(work, text, own) for text, own in windows.items()}
    size = _compute_shard_size(sum(tokens.values()), workers, max_tokens)
    piles: list[list[int]] = []
    height = size
    for text in sorted(tokens, key=lambda text: (-tokens[text], text)):
        if height + tokens[text] > size:
            piles.append([])
            height = 0
        piles[-1].append(text)
        height += tokens[text]
    return [
        Shard(
            number,
            _select_work_of_texts(work, pile, windows),
            [window for text in pile for window in windows[text]],
            sum(tokens[text] for text in pile),
        )
        for number, pile in enumerate(piles)
    ]


def _compute_shard_size(total: int, workers: int, max_tokens: int) -> int:
    even = -(-total // (workers * _SHARDS_A_WORKER))
    return max(min(even, max_tokens), min(_LEAST_TOKENS, max_tokens))


def _estimate_tokens(work: Work, text: int, windows: Sequence[Window]) -> int:
    branches = SHARE_WITH_BRANCH * work.steps if work.prepared.wants_branches(text) else 0.0
    return round(sum((window.length + len(work.before)) * (1 + branches) for window in windows))


def _select_work_of_texts(work: Work, texts: Sequence[int], windows: dict[int, list[Window]]) -> Work:
    whole = work.prepared
    prepared = Prepared(
        distinct=len(texts),
        keys=[whole.keys[text] for text in texts],
        encoded=[whole.encoded[text] for text in texts],
        missing=[whole.missing[text] for text in texts],
        windows=[replace(window, text=number) for number, text in enumerate(texts) for window in windows[text]],
        prefix=whole.prefix,
    )
    modes = {number: work.modes[text] for number, text in enumerate(texts) if text in work.modes}
    return replace(work, prepared=prepared, modes=modes)


_LOOK_SECONDS = 1.0
_TRIES = 2
_DEATHS_A_WORKER = 10
"""So many workers, times the number of workers, may die without a finished shard in between."""
_LONGEST_PAUSE = 60.0
_PATIENCE_WITH_ROOM = 60.0


@dataclass(frozen=True)
class Placed:
    """The cluster has room for a worker, whose process has begun."""

    worker: int


@dataclass(frozen=True)
class Ready:
    """A worker holds the model; ``words`` say where."""

    worker: int
    words: str


@dataclass(frozen=True)
class Finished:
    """A worker has run its shard, and the rows are on disk."""

    worker: int
    summary: RunSummary


@dataclass(frozen=True)
class Ended:
    """A worker's process, or its machine, is gone."""

    worker: int
    cause: Literal["died", "memory_monitor"]
    words: str


@dataclass(frozen=True)
class Failed:
    """A worker met an error."""

    worker: int
    error: Exception


Event = Placed | Ready | Finished | Ended | Failed


class Pool(Protocol):
    """Workers by number, wherever they are."""

    def start(self, worker: int) -> None:
        """Start the worker in a new process, which reports when it holds the model; the old one, if any, is ended."""
        ...

    def stop(self, worker: int) -> None:
        """End the worker's process, if any; nothing more is heard of it."""
        ...

    def give(self, worker: int, shard: Shard) -> None:
        """Hand a shard to a worker that is ready and has none."""
        ...

    def wait(self, seconds: float) -> Sequence[Event]:
        """What has happened since the last call; waits so long for the first of it."""
        ...


@dataclass(frozen=True)
class DispatchTimeouts:
    """How long things may take, in seconds.

    ``start``: how long there may be no worker that is ready. ``shard``: how long a shard may go without a result
    before it is given to another worker, and then to nobody; None: ten minutes and ``token`` for every token. A tenth
    of a second a token is several times what one busy core takes for a small model.
    """

    shard: float | None = None
    start: float = 3600.0
    token: float = 0.1

    def of(self, shard: Shard) -> float:
        return 600.0 + self.token * shard.tokens if self.shard is None else self.shard


@dataclass
class _ShardAttempts:
    """``seconds``: for how long a worker has had the shard without a result, or some worker was ready to have it."""

    seconds: float = 0.0
    tries: int = 1
    deaths: int = 0


@dataclass
class _Run:
    """The shards of one run: those that wait for a worker, and the clocks of those that have been handed out."""

    waiting: deque[Shard]
    left: int
    clocks: dict[int, _ShardAttempts] = field(default_factory=dict)


class WorkerGroup:
    """Workers that hold one model, kept for several runs in a row.

    ``deaths`` and ``memory_kills`` count the workers that ended before their time, the latter those of them that were
    ended because their machine had no memory left.
    """

    def __init__(
        self,
        pool: Pool,
        workers: int,
        timeouts: DispatchTimeouts,
        notify: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.deaths = self.memory_kills = 0
        self._pool = pool
        self._clocks = timeouts
        self._tell = notify
        self._now = clock
        self._idle: deque[int] = deque()
        self._starting: set[int] = set()
        self._without_room: set[int] = set()
        self._busy: dict[int, Shard] = {}
        self._absent = set(range(workers))
        self._workers = workers
        self._none_since = self._looked = clock()
        self._waiting_since: float | None = None
        self._fruitless = 0
        self._early_deaths: dict[int, int] = {}
        self._again_at: dict[int, float] = {}

    def run(self, shards: Sequence[Shard]) -> Generator[tuple[Shard, RunSummary]]:
        """Have every shard run, and yield each with what its worker did, as it comes.

        Raises the AuditError (or other error) that a worker met, and ClusterError where a shard gives no result twice,
        or no worker is ready, for longer than the clocks allow, or workers do nothing but die. What has been written by
        then stays.
        """
        run = _Run(deque(shards), len(shards))
        self._none_since = self._looked = self._waiting_since = self._now()
        self._fruitless = 0
        self._early_deaths.clear()
        for worker in sorted(self._absent):
            self._start(worker)
        try:
            while run.left:
                self._start_again()
                self._hand_out(run)
                for event in self._pool.wait(_LOOK_SECONDS):
                    if isinstance(event, Finished):
                        shard = self._busy.pop(event.worker)
                        self._idle.append(event.worker)
                        run.left -= 1
                        self._fruitless = 0
                        yield shard, event.summary
                    else:
                        self._note(event, run)
                self._check_timeouts(run)
        finally:
            if run.left:
                # What has happened to them since the last look may not have been read.
                for worker in [*self._busy, *self._starting]:
                    self._stop(worker)
            self._again_at.clear()

    def dismiss(self) -> None:
        """End all workers; the next run starts them again."""
        for worker in [*self._idle, *self._starting, *self._busy]:
            self._stop(worker)

    def _hand_out(self, run: _Run) -> None:
        while run.waiting and self._idle:
            worker, shard = self._idle.popleft(), run.waiting.popleft()
            run.clocks.setdefault(shard.number, _ShardAttempts())
            self._busy[worker] = shard
            self._pool.give(worker, shard)

    def _note(self, event: Placed | Ready | Ended | Failed, run: _Run) -> None:
        if isinstance(event, Placed):
            self._without_room.discard(event.worker)
        elif isinstance(event, Ready):
            self._starting.discard(event.worker)
            self._without_room.discard(event.worker)
            self._early_deaths.pop(event.worker, None)
            self._idle.append(event.worker)
            self._tell(f"worker {event.worker + 1} of {self._workers} is ready: {event.words}")
        elif isinstance(event, Ended):
            self._replace(event, run)
        else:
            loading = event.worker in self._starting
            self._deregister_worker(event.worker)
            self._pool.stop(event.worker)
            if loading and not isinstance(event.error, AuditError):
                raise ClusterError(
                    f"worker {event.worker + 1} cannot make the model ready: {to_one_line(event.error)}"
                ) from event.error
            raise event.error

    def _replace(self, event: Ended, run: _Run) -> None:
        """Restart a dead worker, after a pause where it has never been ready; its shard is the next handed out."""
        self.deaths += 1
        self._fruitless += 1
        self.memory_kills += event.cause == "memory_monitor"
        shard, pause = self._busy.get(event.worker), 0.0
        if event.worker in self._starting:
            early = self._early_deaths.get(event.worker, 0)
            self._early_deaths[event.worker] = early + 1
            pause = min(_LONGEST_PAUSE, 2.0**early)
            self._stop(event.worker)
            self._again_at[event.worker] = self._now() + pause
        else:
            self._start(event.worker)
        if shard is not None:
            run.clocks[shard.number].deaths += 1
            run.waiting.appendleft(shard)
        how = (
            f"was ended by Ray's memory monitor, {self.memory_kills} such so far"
            if event.cause == "memory_monitor"
            else f"died, {self.deaths} so far"
        )
        what = f"its shard of {shard.texts} texts is run again" if shard is not None else "it had no shard"
        when = f" after {pause:.0f} s" if pause else ""
        self._tell(f"worker {event.worker + 1} {how}; {what}, and a new one is started{when} ({event.words})")
        if self._fruitless >= _DEATHS_A_WORKER * self._workers:
            raise ClusterError(
                f"{self._fruitless} workers in a row died, and no shard was finished in between. The last one: "
                f"{event.words}. What is done is kept, and the same command goes on from there"
            )

    def _start_again(self) -> None:
        now = self._now()
        for worker in [worker for worker, at in self._again_at.items() if at <= now]:
            self._start(worker)

    def _report_waiting_workers(self, now: float) -> None:
        """Say once, after a minute, how many workers have no room; again when that has been otherwise."""
        if not (waiting := len(self._without_room)):
            self._waiting_since = now
        elif self._waiting_since is not None and now - self._waiting_since >= _PATIENCE_WITH_ROOM:
            self._waiting_since = None
            self._tell(f"{waiting} of {self._workers} workers wait for room in the cluster")

    def _check_timeouts(self, run: _Run) -> None:
        now = self._now()
        passed, self._looked = now - self._looked, now
        self._report_waiting_workers(now)
        is_one_ready = bool(self._idle or self._busy)
        if is_one_ready:
            self._none_since = now
        elif now - self._none_since > self._clocks.start:
            raise ClusterError(
                f"none of the {self._workers} workers was ready within {self._clocks.start / 60:.0f} minutes "
                f"({self._format_deaths()}). Look whether the cluster has room for them. What is done is kept"
            )
        pending = {shard.number for shard in run.waiting}
        for shard in [*run.waiting, *self._busy.values()]:
            clock, allowed = run.clocks.get(shard.number), self._clocks.of(shard)
            if clock is None:
                continue
            # A shard that is busy has a worker; one that waits could have one where any is ready.
            clock.seconds += passed if is_one_ready else 0.0
            if clock.seconds <= allowed:
                continue
            if clock.tries == _TRIES:
                raise ClusterError(
                    f"a shard of {shard.texts} texts was tried twice and gave no result within {allowed / 60:.0f} "
                    f"minutes each time. {clock.deaths} of its workers died; {self._format_deaths()}. What is done "
                    "is kept, and the same command goes on from there"
                )
            self._tell(
                f"a shard of {shard.texts} texts gave no result within {allowed / 60:.0f} minutes; "
                "another worker gets it"
            )
            clock.seconds, clock.tries = 0.0, clock.tries + 1
            if shard.number not in pending:
                [worker] = [worker for worker, own in self._busy.items() if own is shard]
                self._start(worker)
                run.waiting.appendleft(shard)

    def _format_deaths(self) -> str:
        return f"{self.deaths} workers died so far, {self.memory_kills} of them by Ray's memory monitor"

    def _start(self, worker: int) -> None:
        self._deregister_worker(worker)
        self._absent.discard(worker)
        self._again_at.pop(worker, None)
        self._starting.add(worker)
        self._without_room.add(worker)
        self._pool.start(worker)

    def _stop(self, worker: int) -> None:
        self._deregister_worker(worker)
        self._pool.stop(worker)

    def _deregister_worker(self, worker: int) -> None:
        """Take the worker out of whatever it is in."""
        self._starting.discard(worker)
        self._without_room.discard(worker)
        self._busy.pop(worker, None)
        with suppress(ValueError):
            self._idle.remove(worker)
        self._absent.add(worker)
