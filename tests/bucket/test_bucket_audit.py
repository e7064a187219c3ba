"""Whole audits on a data folder in a bucket: the same as in a folder, whoever is killed and whoever comes beside."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_workspace import Workspace, made_documents, make_workspace, quick_folder, temporal
from s3_server import S3Server

from audit_pipeline.catalogue import working_copy
from audit_pipeline.catalogue.ledger import list_segments, read_ledger
from audit_pipeline.catalogue.object_store import Bucket
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.warehouse.query import query_warehouse

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

AUDIT = ("audit", "--model", "tiny", "--benchmark", "made_8")
LONGEST_SECONDS = 300.0
Answers = dict[str, list[dict[str, Any]]]
# The command line, with every finished text flushed at once instead of every ten seconds, and leases of dead processes
# that end at once: here nobody lives on.
COMMAND = """
from audit_pipeline.token_statistics.cache import PartCache
PartCache.__init__.__kwdefaults__["flush_seconds"] = 0.0
# The rows of a batch are written together: every text is a batch of its own.
from audit_pipeline.token_statistics.local_pass import TOKEN_BUDGET
TOKEN_BUDGET["cpu"] = 1
from audit_pipeline.catalogue import locks
locks.LEASE_SECONDS = {lease_seconds}
locks._RENEWED_EVERY = {lease_seconds} / 4
from audit_pipeline.cli import main
main()
"""


@dataclass(frozen=True)
class Site:
    """A workspace in a plain folder, and the same data in a bucket."""

    made: Workspace
    url: str

    def start(self, machine: str, *arguments: str, lease_seconds: float = 4.0) -> subprocess.Popen[str]:
        """The command line on a machine of that name, on the bucket."""
        script = self.made.root / f"command_{lease_seconds}.py"
        script.write_text(COMMAND.format(lease_seconds=lease_seconds))
        environment = {
            **os.environ,
            "CORPUS_AUDIT_DATA": self.url,
            "CORPUS_AUDIT_COPIES": str(self.made.root / "machines" / machine),
            "DAGSTER_HOME": "",
            "OMP_NUM_THREADS": "1",
        }
        return subprocess.Popen(
            [sys.executable, str(script), *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, machine: str, *arguments: str) -> str:
        process = self.start(machine, *arguments)
        output, errors = process.communicate(timeout=LONGEST_SECONDS)
        assert process.returncode == 0, errors
        return output

    def seen(self, monkeypatch: pytest.MonkeyPatch) -> DataPaths:
        """What a machine sees that has never been here."""
        monkeypatch.setattr(working_copy, "_open", {})
        monkeypatch.setenv("CORPUS_AUDIT_DATA", self.url)
        monkeypatch.setenv("CORPUS_AUDIT_COPIES", str(self.made.root / "machines" / "looking"))
        shutil.rmtree(self.made.root / "machines" / "looking", ignore_errors=True)
        return DataPaths.from_environment()


@pytest.fixture
def site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Callable[[str], Path], url: str
) -> Iterator[Site]:
    with quick_folder(tmp_path) as folder:
        made = make_workspace(folder / "made", monkeypatch, tiny=tiny_folder("llama"))
        made.write_benchmarks(made=temporal([8], windows_per_document=4))
        made.fetch(*made_documents(8, 60))
        made.build("made_8")
        made.assess("made_8")
        bucket = Bucket(url)
        for file in made.paths.root.rglob("*.parquet"):
            bucket.put(file.relative_to(made.paths.root).as_posix(), file)
        for file in [*made.paths.root.rglob("manifest.json"), *list_segments(made.paths.ledger)]:
            bucket.put(file.relative_to(made.paths.root).as_posix(), file)
        yield Site(made, url)


def answers(paths: DataPaths) -> Answers:
    """What an audit concludes, whenever and by whichever run."""
    asked = {
        "scores": "SELECT example_id, detector, parameters, status, reason, score AS number FROM current_scores",
        "evaluations": "SELECT detector, parameters, metric, value AS number FROM current_evaluations",
        "gaps": "FROM lineage_gaps WHERE is_left_out",
    }
    return {name: query_warehouse(paths.warehouse, sql).to_pylist() for name, sql in asked.items()}


def assert_same(found: Answers, expected: Answers) -> None:
    """The same rows; numbers up to what other batches make of them. Every row has its entry in the lineage."""
    assert found["gaps"] == []
    for name in ("scores", "evaluations"):
        ours, theirs = (Counter(_but_number(row) for row in of[name]) for of in (found, expected))
        assert ours == theirs
        numbers = {_but_number(row): row["number"] for row in expected[name]}
        for row in found[name]:
            assert row["number"] == pytest.approx(numbers[_but_number(row)], abs=1e-4, nan_ok=True), row


def _but_number(row: dict[str, Any]) -> tuple[object, ...]:
    return tuple(value for column, value in row.items() if column != "number")


def cached(paths: DataPaths) -> Counter[str]:
    """How often each text stands in the cache of plain statistics."""
    folder = paths.table("token_statistics")
    working_copy.fetch_folder_on_demand(folder)
    parts = folder.glob("kind=base/*/part-*.parquet")
    tables = [pq.read_table(part, columns=["text_sha256"], partitioning=None) for part in parts]
    return Counter(pa.concat_tables(tables).column("text_sha256").to_pylist())


def killing(s3: S3Server, process: list[subprocess.Popen[str]], at: int, *, done: bool) -> Callable[[], bool]:
    """Kill the process at its n-th request that changes something: before it is carried out, or when it is ``done``."""
    seen = Counter[str]()

    def look(method: str, path: str) -> None:
        if method in ("PUT", "DELETE", "POST") and "/locks/" not in path:
            seen["changes"] += 1
            if seen["changes"] == at:
                os.kill(process[0].pid, signal.SIGKILL)
                seen["killed"] += 1

    def before(method: str, path: str) -> int | None:
        look(method, path)
        # Who is dead has sent nothing: what was on its way is not carried out.
        return 500 if seen["killed"] and not done else None

    if done:
        s3.after = look
    else:
        s3.before = before
    return lambda: bool(seen["killed"])


def test_killed_at_ten_moments_nothing_is_lost_and_nothing_twice(
    site: Site, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = site.made.run(*AUDIT)
    assert plain.exit_code == 0, plain.output
    expected, texts = answers(site.made.paths), cached(site.made.paths)

    chance = random.Random(7)
    moments = sorted(chance.sample(range(1, 40), 10))
    changed: list[str] = []
    for number, moment in enumerate(moments):
        process: list[subprocess.Popen[str]] = []
        was_killed = killing(s3, process, moment if number < 5 else chance.randint(1, 12), done=number % 2 == 0)
        # Half of the time somebody else goes on, who has never been here.
        process.append(site.start("first" if number % 2 else f"machine {number}", *AUDIT))
        _, errors = process[0].communicate(timeout=LONGEST_SECONDS)
        s3.before, s3.after = lambda method, path: None, lambda method, path: None
        assert was_killed() == (process[0].returncode == -signal.SIGKILL), errors
        changed.append("killed" if was_killed() else "ended")
    assert changed.count("killed") >= 8, changed

    site.run("last", *AUDIT)
    paths = site.seen(monkeypatch)
    assert_same(answers(paths), expected)
    assert cached(paths).keys() == texts.keys()
    assert set(cached(paths).values()) == {1}
    ledger = read_ledger(paths)
    assert len(ledger.lines) > 10
    assert ledger.problems == []

    # And nothing is left to be done, whoever asks.
    s3.requests.clear()
    site.run("another", *AUDIT)
    written = {path.split("/")[3] for method, path in s3.requests if method == "PUT"}
    assert written.isdisjoint({"token_statistics", "scores", "evaluations", "ledger"})


def test_two_machines_at_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = site.made.run(*AUDIT)
    assert plain.exit_code == 0, plain.output
    processes = [site.start(machine, *AUDIT, lease_seconds=30.0) for machine in ("one", "two")]
    for process in processes:
        _, errors = process.communicate(timeout=LONGEST_SECONDS)
        assert process.returncode == 0, errors
    paths = site.seen(monkeypatch)
    assert_same(answers(paths), answers(site.made.paths))
