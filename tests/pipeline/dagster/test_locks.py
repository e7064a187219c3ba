"""Locks of audits, removals and runs: a lock ends with its process, and audits share theirs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from audit_pipeline.errors import AuditError
from audit_pipeline.pipeline.dagster import locks
from audit_pipeline.pipeline.dagster.locks import (
    has_running_audit,
    hold_named_lock,
    hold_removal_lock,
    mark_audit_running,
)
from audit_pipeline.store.paths import DataPaths

_HOLD = """
import sys, time
from pathlib import Path
from audit_pipeline.pipeline.dagster.locks import mark_audit_running, hold_named_lock
from audit_pipeline.store.paths import DataPaths
paths = DataPaths(Path(sys.argv[1]))
with hold_named_lock(paths, sys.argv[2], print) if sys.argv[2:] else mark_audit_running(paths):
    print("held", flush=True)
    time.sleep(60)
"""


def test_audits_share_and_a_removal_is_refused_while_any_is_at_work(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    assert not has_running_audit(paths)
    assert not paths.claims.exists()
    with mark_audit_running(paths):
        with mark_audit_running(paths):
            pass
        assert has_running_audit(paths)
        with (
            pytest.raises(AuditError, match=r"an audit uses this data folder.*nothing was"),
            hold_removal_lock(paths),
        ):
            pass
    with pytest.raises(ZeroDivisionError), mark_audit_running(paths):
        raise ZeroDivisionError
    assert {file.name for file in paths.claims.iterdir()} == {"gate.lock"}
    with hold_removal_lock(paths):
        pass


@contextmanager
def held_elsewhere(tmp_path: Path, *lock: str) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process that holds the lock of an audit or of a run."""
    with subprocess.Popen([sys.executable, "-c", _HOLD, str(tmp_path), *lock], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    with held_elsewhere(tmp_path):
        assert has_running_audit(paths)
    assert not has_running_audit(paths)
    assert {file.name for file in paths.claims.iterdir()} == {"gate.lock"}


def test_a_removal_keeps_out_audits_and_other_removals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_GATE_SECONDS", 0.1)
    paths = DataPaths(tmp_path)
    with hold_removal_lock(paths):
        for hold in (mark_audit_running, hold_removal_lock):
            with pytest.raises(AuditError, match=r"forget is running .*nothing was changed"), hold(paths):
                pass


def test_a_run_waits_in_words_and_goes_on_when_the_holder_is_killed(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    told: list[str] = []
    with held_elsewhere(tmp_path, "gpu") as process:

        def notify(words: str) -> None:
            told.append(words)
            process.kill()

        for name in (None, "other"):
            with hold_named_lock(paths, name, notify):
                assert told == [], "nobody holds that one"
        with hold_named_lock(paths, "gpu", notify):
            assert told == ["waiting for another run that holds the lock 'gpu' (Ctrl-C stops waiting)"]
    assert not has_running_audit(paths)
    with hold_named_lock(paths, "gpu", notify):
        assert len(told) == 1


def test_ctrl_c_ends_the_waiting_of_a_run(tmp_path: Path) -> None:
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    with (
        held_elsewhere(tmp_path, "gpu"),
        pytest.raises(KeyboardInterrupt),
        hold_named_lock(DataPaths(tmp_path), "gpu", lambda words: timer.start()),
    ):
        pass
