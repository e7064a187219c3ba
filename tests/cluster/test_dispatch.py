"""Handing shards out: deaths, clocks and errors, with a pool and a clock that are written down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from test_shards import work_of

from audit_pipeline.cluster.dispatch import (
    DispatchTimeouts,
    Ended,
    Event,
    Failed,
    Finished,
    Placed,
    Ready,
    Shard,
    WorkerGroup,
    split_into_shards,
)
from audit_pipeline.errors import ClusterError, ModelError
from audit_pipeline.token_statistics.run import RunSummary

SUMMARY = RunSummary(1, 0, 1, 0, 1, 1, 1.0, 1.0, ())
SHARDS = [replace(shard, number=number) for number, shard in enumerate(split_into_shards(work_of([40]), 1, 50) * 6)]
Answer = Callable[["Scripted", int, Shard], Event | None]


@dataclass
class Scripted:
    """A pool that answers as ``answer`` says; every look takes ten seconds of its clock."""

    answer: Answer
    ready: Callable[[int], Event | None] = lambda worker: Ready(worker, "here")
    seconds: float = 0.0
    starts: list[int] = field(default_factory=list)
    stops: list[int] = field(default_factory=list)
    given: list[tuple[int, int]] = field(default_factory=list)
    _at: dict[int, Shard | None] = field(default_factory=dict)

    def now(self) -> float:
        return self.seconds

    def start(self, worker: int) -> None:
        self.starts.append(worker)
        self._at[worker] = None

    def stop(self, worker: int) -> None:
        self.stops.append(worker)
        self._at.pop(worker, None)

    def give(self, worker: int, shard: Shard) -> None:
        assert worker not in self._at
        self._at[worker] = shard
        self.given.append((worker, shard.number))

    def wait(self, seconds: float) -> Sequence[Event]:
        self.seconds += 10
        found = {
            worker: self.ready(worker) if shard is None else self.answer(self, worker, shard)
            for worker, shard in self._at.items()
        }
        events = {worker: event for worker, event in found.items() if event is not None}
        for worker, event in events.items():
            if not isinstance(event, Placed):
                del self._at[worker]
        return [*events.values()]


def done(pool: Scripted, worker: int, shard: Shard) -> Event | None:
    return Finished(worker, SUMMARY)


def crew_of(pool: Scripted, workers: int = 2, **clocks: float) -> tuple[WorkerGroup, list[str]]:
    told: list[str] = []
    return WorkerGroup(pool, workers, DispatchTimeouts(**clocks), told.append, pool.now), told


def test_shards_go_to_whoever_is_free() -> None:
    def slow_second(pool: Scripted, worker: int, shard: Shard) -> Event | None:
        return Finished(worker, SUMMARY) if worker == 0 or pool.seconds >= 60 else None

    pool = Scripted(slow_second)
    crew, told = crew_of(pool)
    found = [shard.number for shard, _ in crew.run(SHARDS)]
    assert sorted(found) == list(range(6))
    assert [shard for worker, shard in pool.given if worker == 1] == [1]
    assert told == [f"worker {number} of 2 is ready: here" for number in (1, 2)]
    # The next run finds them ready.
    assert len(list(crew.run(SHARDS))) == 6
    assert pool.starts == [0, 1]


@pytest.mark.parametrize("cause", ["died", "memory_monitor"])
def test_the_shard_of_a_dead_worker_is_the_next_however_often(cause) -> None:
    def deadly(pool: Scripted, worker: int, shard: Shard) -> Event | None:
        tries = [own for _, own in pool.given].count(shard.number)
        return Ended(worker, cause, "gone") if shard.number == 0 and tries < 9 else Finished(worker, SUMMARY)

    pool = Scripted(deadly)
    crew, told = crew_of(pool)
    assert sorted(shard.number for shard, _ in crew.run(SHARDS)) == list(range(6))
    assert (crew.deaths, crew.memory_kills) == (8, 8 if cause == "memory_monitor" else 0)
    assert len(pool.starts) == 10
    assert [own for _, own in pool.given].count(0) == 9
    of_deaths = [line for line in told if "run again" in line]
    assert len(of_deaths) == 8
    assert all(("memory monitor, " in line) is (cause == "memory_monitor") for line in of_deaths)


def test_a_shard_whose_workers_always_die_ends_with_its_clock() -> None:
    def deadly(pool: Scripted, worker: int, shard: Shard) -> Event | None:
        return Ended(worker, "died", "gone") if shard.number == 0 else Finished(worker, SUMMARY)

    pool = Scripted(deadly)
    crew, told = crew_of(pool, workers=8, shard=300.0)
    with pytest.raises(ClusterError, match=r"gave no result within 5 minutes each time.*What is done is kept"):
        list(crew.run(SHARDS))
    assert 600 < pool.seconds < 700
    assert any("another worker gets it" in line for line in told)


def test_a_shard_without_a_result_goes_to_another_worker_once() -> None:
    def stuck_once(pool: Scripted, worker: int, shard: Shard) -> Event | None:
        first = pool.given.index((worker, shard.number)) == 0
        return None if first and [own for _, own in pool.given].count(0) == 1 else Finished(worker, SUMMARY)

    pool = Scripted(stuck_once)
    crew, told = crew_of(pool, shard=100.0)
    assert sorted(shard.number for shard, _ in crew.run(SHARDS)) == list(range(6))
    assert pool.starts == [0, 1, 0]
    assert [worker for worker, shard in pool.given if shard == 0] == [0, 1]
    assert sum("gave no result" in line for line in told) == 1
    assert crew.deaths == 0


def test_a_shard_that_never_gives_a_result_fails_the_run() -> None:
    pool = Scripted(lambda pool, worker, shard: Finished(worker, SUMMARY) if shard.number else None)
    crew, _ = crew_of(pool, shard=100.0)
    found: list[int] = []
    with pytest.raises(ClusterError, match="gave no result"):
        found += [shard.number for shard, _ in crew.run(SHARDS)]
    assert [shard for _, shard in pool.given].count(0) == 2
    assert {shard for _, shard in pool.given} == set(range(6))
    # Whoever was still at it is ended.
    assert pool.stops


def test_the_clock_grows_with_the_tokens() -> None:
    clocks = DispatchTimeouts()
    assert clocks.of(replace(SHARDS[0], tokens=60_000)) - clocks.of(replace(SHARDS[0], tokens=0)) == 6000.0
    assert DispatchTimeouts(shard=5.0).of(replace(SHARDS[0], tokens=60_000)) == 5.0


def test_without_a_worker_that_is_ready_the_run_ends() -> None:
    pool = Scripted(done, ready=lambda worker: None)
    crew, told = crew_of(pool, start=1200.0)
    with pytest.raises(ClusterError, match="none of the 2 workers was ready within 20 minutes"):
        list(crew.run(SHARDS))
    assert pool.seconds == pytest.approx(1200, abs=20)
    assert told == ["2 of 2 workers wait for room in the cluster"]


def test_workers_that_load_do_not_wait_for_room() -> None:
    def slow(worker: int) -> Event | None:
        return Ready(worker, "here") if pool.seconds >= 300 else Placed(worker) if not pool.seconds > 10 else None

    pool = Scripted(done, ready=slow)
    crew, told = crew_of(pool)
    assert len(list(crew.run(SHARDS))) == 6
    assert not any("wait for room" in line for line in told)


def test_workers_that_die_before_they_are_ready_are_started_after_a_pause_and_not_for_ever() -> None:
    pool = Scripted(done, ready=lambda worker: Ended(worker, "died", "no such library"))
    crew, told = crew_of(pool, workers=1)
    with pytest.raises(ClusterError, match=r"10 workers in a row died, and no shard was finished in between.*library"):
        list(crew.run(SHARDS))
    assert len(pool.starts) == 10
    # 1 + 2 + … + 32 + 3 times 60 s of pauses.
    assert pool.seconds > 243
    pauses = [int(line.split(" after ")[1].split(" s ")[0]) for line in told]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]


def test_workers_that_die_over_their_shards_do_not_go_on_for_ever() -> None:
    pool = Scripted(lambda pool, worker, shard: Ended(worker, "died", "gone"))
    crew, _ = crew_of(pool)
    with pytest.raises(ClusterError, match="20 workers in a row died"):
        list(crew.run(SHARDS))
    assert crew.deaths == 20
    # The next run counts anew.
    pool.answer = done
    assert len(list(crew.run(SHARDS))) == 6


def test_the_clock_of_a_shard_stands_still_while_no_worker_is_ready() -> None:
    def late(worker: int) -> Event | None:
        return Ready(worker, "here") if pool.seconds < 20 or pool.seconds > 900 else None

    def early(pool: Scripted, worker: int, shard: Shard) -> Event | None:
        return Ended(worker, "died", "gone") if pool.seconds < 30 else Finished(worker, SUMMARY)

    pool = Scripted(early, ready=late)
    crew, told = crew_of(pool, shard=60.0)
    assert len(list(crew.run(SHARDS))) == 6
    assert crew.deaths == 2
    assert not any("gave no result" in line for line in told)


def test_one_worker_is_enough() -> None:
    pool = Scripted(done, ready=lambda worker: Ready(worker, "here") if worker else None)
    crew, _ = crew_of(pool, start=1.0)
    assert len(list(crew.run(SHARDS))) == 6


def test_an_error_of_a_worker_arrives_as_itself_and_ends_all_that_is_under_way() -> None:
    error = ModelError("the weights are damaged")
    pool = Scripted(lambda pool, worker, shard: Failed(worker, error) if shard.number == 1 else None)
    crew, _ = crew_of(pool)
    with pytest.raises(ModelError) as raised:
        list(crew.run(SHARDS))
    assert raised.value is error
    assert sorted(pool.stops) == [0, 1]
    pool.answer = done
    assert len(list(crew.run(SHARDS))) == 6


def test_a_worker_that_was_ready_in_the_moment_of_an_error_is_started_anew() -> None:
    def late(worker: int) -> Event | None:
        return Ready(worker, "here") if worker == 0 or pool.seconds >= 20 else None

    pool = Scripted(lambda pool, worker, shard: Failed(worker, ModelError("damaged")), ready=late)
    crew, _ = crew_of(pool)
    with pytest.raises(ModelError):
        list(crew.run(SHARDS))
    pool.answer, pool.seconds = done, 0.0
    pool.given.clear()
    assert len(list(crew.run(SHARDS))) == 6
    assert {worker for worker, _ in pool.given} == {0, 1}


def test_what_keeps_a_worker_from_loading_is_told_in_one_line() -> None:
    pool = Scripted(done, ready=lambda worker: Failed(worker, ImportError("no module\nnamed torch")))
    crew, _ = crew_of(pool)
    with pytest.raises(ClusterError, match="worker 1 cannot make the model ready: no module named torch"):
        list(crew.run(SHARDS))


def test_who_stops_reading_ends_what_is_under_way_and_keeps_the_others() -> None:
    pool = Scripted(done)
    crew, _ = crew_of(pool)
    run = crew.run(SHARDS)
    next(run)
    run.close()
    assert len(pool.stops) == 1
    assert len(list(crew.run(SHARDS))) == 6
    crew.dismiss()
    assert len(pool.stops) == 3
    assert len(list(crew.run(SHARDS[:1]))) == 1
