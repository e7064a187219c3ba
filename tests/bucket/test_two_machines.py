"""The ledger of a bucket with two machines: processes that append at once on a failing store, are killed, or forget."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from s3_server import S3Server

from audit_pipeline.store.ledger import Ledger, erase_lines, list_segments, read_ledger, record_outcome
from audit_pipeline.store.object_store import Bucket
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import OUTCOMES, Pair

Machine = Callable[[str], DataPaths]

# Writes a line and its file, under a name of its own, as often as it is asked.
_APPEND = """
import sys
import pyarrow as pa
from audit_pipeline.store.ledger import LineageStep, record_entry
from audit_pipeline.tables import SCORES
from audit_pipeline.store.bucket_folder import temporary_file
from audit_pipeline.store.files import write_parquet
from audit_pipeline.store.integrity import file_sha256
from audit_pipeline.store.paths import DataPaths
paths, name = DataPaths.from_environment(), sys.argv[1]
for number in range(int(sys.argv[2])):
    step = LineageStep.now(f"{name}-{number}", "scores", "1")
    path = paths.run_file("scores", "b|m", step.run_id)
    with temporary_file(path.parent, path.name) as temporary:
        write_parquet(temporary, pa.table({"value": [number]}))
        known = {"data_version": "v", "upstream": {}, "file_sha256": file_sha256(temporary)}
        record_entry(paths, step, SCORES, "b|m", written=(temporary, path), **known)
    print(step.run_id, flush=True)
"""


@pytest.fixture
def start(url: str, tmp_path: Path) -> Callable[[str, int], subprocess.Popen[str]]:
    """A process of a machine that appends so many lines."""

    def started(machine: str, count: int) -> subprocess.Popen[str]:
        cache = str(tmp_path / machine)
        environment = {**os.environ, "CORPUS_AUDIT_DATA": url, "CORPUS_AUDIT_BUCKET_CACHE": cache}
        command = [sys.executable, "-c", _APPEND, machine, str(count)]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return started


def finish(process: subprocess.Popen[str]) -> list[str]:
    """The runs that a process has written, as it says."""
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output.splitlines()


def read_whole_ledger(paths: DataPaths) -> Ledger:
    """The ledger, of which no number is missing and no line broken."""
    ledger = read_ledger(paths)
    assert ledger.problems == []
    assert [file.stem for file in list_segments(paths.ledger)] == [
        f"{number:06}" for number in range(1, len(ledger.lines) + 1)
    ]
    return ledger


def test_two_processes_append_at_once_to_a_store_that_fails(
    machine: Machine, s3: S3Server, start: Callable[[str, int], subprocess.Popen[str]]
) -> None:
    """15% of the calls fail: half before they are carried out, half when they are."""
    chance = random.Random(46)
    failed = Counter[str]()

    def fail(when: str) -> int | None:
        if chance.random() >= 0.075:
            return None
        failed[when] += 1
        return 503

    s3.before = lambda method, path: fail("before")
    s3.after = lambda method, path: fail("after")
    written = [run for process in [start(name, 25) for name in ("one", "two")] for run in finish(process)]
    s3.before = s3.after = lambda method, path: None
    assert min(failed["before"], failed["after"]) > 5

    paths = machine("three")
    ledger = read_whole_ledger(paths)
    runs = [entry.run_id for entry in ledger.entries]
    assert sorted(runs) == sorted(written)
    assert len(runs) == len(set(runs)) == 50
    for name in ("one", "two"):
        assert [run for run in runs if run.startswith(name)] == [f"{name}-{number}" for number in range(25)]
    files = [entry.file(paths) for entry in ledger.entries]
    assert all(file is not None and file.exists() for file in files)


@pytest.mark.parametrize("done", [False, True])
def test_a_process_that_is_killed_between_line_and_file_leaves_a_line(
    machine: Machine, s3: S3Server, start: Callable[[str, int], subprocess.Popen[str]], done: bool
) -> None:
    """It is killed at the request that puts the file, before that is carried out or when it is ``done``."""
    processes: list[subprocess.Popen[str]] = []

    def kill(method: str, path: str) -> int | None:
        if method != "PUT" or "run_id=one-1" not in path:
            return None
        os.kill(processes[0].pid, signal.SIGKILL)
        return 500

    s3.after, s3.before = (kill, s3.before) if done else (s3.after, kill)
    processes.append(start("one", 3))
    processes[0].communicate(timeout=300)
    assert processes[0].returncode == -signal.SIGKILL
    s3.before = s3.after = lambda method, path: None

    finish(start("two", 1))
    paths = machine("one")
    entries = read_whole_ledger(paths).entries
    assert [entry.run_id for entry in entries] == ["one-0", "one-1", "two-0"]
    assert [entry.file(paths).exists() for entry in entries] == [True, done, True]  # type: ignore[union-attr]


def test_one_machine_forgets_while_another_appends(
    machine: Machine, start: Callable[[str, int], subprocess.Popen[str]], bucket: Bucket
) -> None:
    paths = machine("one")
    for number in range(5):
        record_outcome(paths, Pair("b", f"m{number}"), "scores", "failed", "a secret", f"outcome-{number}")
    appending = start("two", 15)
    assert appending.stdout is not None
    assert appending.stdout.readline() == "two-0\n"
    forgotten = {line.digest for line in read_ledger(paths).lines[1:4]}
    erase_lines(paths, forgotten)
    record_outcome(paths, Pair("b", "m"), "scores", "failed", "after", "last")
    finish(appending)

    for name in ("one", "two", "three"):
        ledger = read_whole_ledger(machine(name))
        assert {line.digest for line in ledger.lines if line.fields == {}} == forgotten
        assert [entry.run_id for entry in ledger.entries] == [f"two-{number}" for number in range(15)]
        assert sorted(outcome.run_id for outcome in ledger.outcomes) == ["last", "outcome-0", "outcome-4"]
    file = paths.root / ".object"
    names = [stored.name for stored in bucket.list("ledger") if bucket.fetch(stored.name, file)]
    assert len(names) == 21
    assert sum(is_outcome(bucket, name, file) for name in names) == 3


def is_outcome(bucket: Bucket, name: str, file: Path) -> bool:
    """Whether a line in the bucket is of an outcome."""
    bucket.fetch(name, file)
    return OUTCOMES.name.encode() in file.read_bytes()
