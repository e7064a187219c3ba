"""Leases: one holder at a time, a dead one's is taken over, and who lost one writes nothing more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from s3_server import S3Server

from audit_pipeline.catalogue import locks as leases
from audit_pipeline.catalogue.files import write_json
from audit_pipeline.catalogue.locks import HeldError, hold_lock
from audit_pipeline.catalogue.object_store import Bucket, BucketError
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.working_copy import WorkingCopy, copy_of

Machine = Callable[[str], DataPaths]


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that the store's clock is ahead of what it is."""
    ahead = [0.0]
    now = Bucket.now
    monkeypatch.setattr(Bucket, "now", lambda self: now(self) + timedelta(seconds=ahead[0]))
    return ahead


def die(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on leases are neither renewed nor given back, as if their processes had been killed."""
    monkeypatch.setattr(leases._Lease, "_renew", lambda self: None)
    monkeypatch.setattr(leases._Lease, "give_back", lambda self: None)


def test_only_one_machine_holds_it(machine: Machine) -> None:
    one, two = machine("one"), machine("two")
    with hold_lock(one.root / "a.lock", 0):
        with pytest.raises(HeldError, match=r"process .* has held s3://"), hold_lock(two.root / "a.lock", 0):
            raise AssertionError("it is held")
        with hold_lock(two.root / "another.lock", 0):
            pass
    with hold_lock(two.root / "a.lock", 0):
        pass


def test_who_waits_gets_it_when_it_is_given_back(machine: Machine) -> None:
    one, two = machine("one"), machine("two")
    order: list[str] = []

    def hold(paths: DataPaths, name: str, seconds: float) -> None:
        with hold_lock(paths.root / "a.lock", 30):
            order.append(f"{name} begins")
            time.sleep(seconds)
            order.append(f"{name} ends")

    threads = [threading.Thread(target=hold, args=(paths, name, 0.3)) for paths, name in ((one, "1"), (two, "2"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert order in (["1 begins", "1 ends", "2 begins", "2 ends"], ["2 begins", "2 ends", "1 begins", "1 ends"])


def test_of_many_at_once_one_gets_it(machine: Machine) -> None:
    paths = [machine(str(number)) for number in range(6)]
    got: list[int] = []
    ready = threading.Barrier(6)

    def take(number: int) -> None:
        ready.wait()
        try:
            with hold_lock(paths[number].root / "a.lock", 0):
                got.append(number)
                time.sleep(1.0)
        except HeldError:
            pass

    threads = [threading.Thread(target=take, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1


def test_a_dead_holders_lease_is_taken_over_after_its_time(
    machine: Machine, later: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = machine("one"), machine("two")
    with monkeypatch.context() as dying:
        die(dying)
        with hold_lock(one.root / "a.lock", 0):
            pass
    later[0] = leases.LEASE_SECONDS - 5
    with pytest.raises(HeldError), hold_lock(two.root / "a.lock", 0):
        raise AssertionError("it may be alive")
    later[0] = leases.LEASE_SECONDS + 1
    with hold_lock(two.root / "a.lock", 0):
        pass


def test_a_lease_that_was_taken_over_stops_every_write(
    machine: Machine, later: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough that the other machine takes it before it is renewed, however slow this one is.
    monkeypatch.setattr(leases, "_RENEWED_EVERY", 3.0)
    one, two = machine("one"), machine("two")
    with hold_lock(one.root / "a.lock", 0):
        renewal = [thread for thread in threading.enumerate() if thread.name == "lease locks/a.lock"][-1]
        write_json(one.model_card("before"), {})
        later[0] = leases.LEASE_SECONDS + 1
        with hold_lock(two.root / "a.lock", 0):
            renewal.join(30)
            with pytest.raises(BucketError, match="run the same again"):
                write_json(one.model_card("after"), {})
    assert not one.model_card("after").exists()
    write_json(one.model_card("after"), {})


def test_a_process_that_slept_too_long_writes_nothing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    one = machine("one")
    with hold_lock(one.root / "a.lock", 0):
        now = time.time()
        with monkeypatch.context() as asleep:
            asleep.setattr(leases.time, "time", lambda: now + leases.LEASE_SECONDS)
            with pytest.raises(BucketError, match="was the computer asleep"):
                write_json(one.model_card("m"), {})


def test_an_answer_that_is_lost_on_the_way_takes_nothing(machine: Machine, s3: S3Server, bucket: Bucket) -> None:
    """The store writes the lease and its answer is lost: asked again it says that somebody has it."""
    one = machine("one")
    lease = leases._Lease(working(one), "locks/a.lock")
    bucket.create("locks/a.lock", lease._to_json())
    lease.take(0)
    lease.give_back()
    with hold_lock(one.root / "a.lock", 0):
        pass


def working(paths: DataPaths) -> WorkingCopy:
    copy = copy_of(paths.root)
    assert copy is not None
    return copy
