"""Whole audits on a data folder in a bucket: the same as in a folder, whatever is killed and whatever runs at once."""

from __future__ import annotations

import os
import random
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

from audit_pipeline.store.bucket_folder import refresh
from audit_pipeline.store.ledger import list_segments, read_ledger
from audit_pipeline.store.object_store import Bucket
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.warehouse.query import query_warehouse

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

AUDIT = ("audit", "--model", "tiny", "--benchmark", "made_8")
LONGEST_SECONDS = 300.0
Machine = Callable[[str], DataPaths]
# The command line, with every text a batch of its own and flushed at once instead of every ten seconds.
COMMAND = """
from audit_pipeline.token_statistics.cache import PartCache
PartCache.__init__.__kwdefaults__["flush_seconds"] = 0.0
from audit_pipeline.token_statistics.calibration import TOKEN_BUDGET
TOKEN_BUDGET["cpu"] = 1
from audit_pipeline.cli import main
main()
"""


@dataclass(frozen=True)
class Site:
    """A workspace in a plain folder, and the same data in a bucket."""

    made: Workspace
    url: str
    machines: Path

    def start(self, machine: str, *arguments: str) -> subprocess.Popen[str]:
        """The command line on a machine of that name, on the bucket."""
        environment = {
            **os.environ,
            "CORPUS_AUDIT_DATA": self.url,
            "CORPUS_AUDIT_BUCKET_CACHE": str(self.machines / machine),
            "DAGSTER_HOME": "",
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-c", COMMAND, *arguments]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate(timeout=LONGEST_SECONDS)
    assert process.returncode == 0, errors


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
        root = made.paths.root
        for file in [*root.rglob("*.parquet"), *root.rglob("manifest.json"), *list_segments(made.paths.ledger)]:
            Bucket(url).write(file.relative_to(root).as_posix(), file)
        plain = made.run(*AUDIT)
        assert plain.exit_code == 0, plain.output
        yield Site(made, url, tmp_path)


def read_answers(paths: DataPaths) -> dict[tuple[object, ...], float]:
    """Every number of an audit by what it is of, by whichever run; every row has its line in the ledger."""
    asked = (
        "SELECT example_id, detector, parameters, status, reason, score FROM current_scores",
        "SELECT detector, parameters, metric, value FROM current_evaluations",
    )
    assert query_warehouse(paths.warehouse, "FROM lineage_gaps WHERE is_left_out").to_pylist() == []
    rows = [tuple(row.values()) for sql in asked for row in query_warehouse(paths.warehouse, sql).to_pylist()]
    answers: dict[tuple[Any, ...], float] = {row[:-1]: row[-1] for row in rows}
    assert len(answers) == len(rows)
    return answers


def count_cached_texts(paths: DataPaths) -> Counter[str]:
    """How often each text is in the cache of plain statistics."""
    folder = paths.table("token_statistics")
    refresh(folder)
    parts = folder.glob("kind=base/*/part-*.parquet")
    tables = [pq.read_table(part, columns=["text_sha256"], partitioning=None) for part in parts]
    return Counter(pa.concat_tables(tables).column("text_sha256").to_pylist())


def kill_at(s3: S3Server, process: list[subprocess.Popen[str]], moment: int, *, done: bool) -> None:
    """Kill the process at its n-th request that changes something: before it is carried out, or when it is ``done``."""
    changes: list[str] = []

    def count(method: str, path: str) -> int | None:
        changes.extend([path] * (method in ("PUT", "DELETE", "POST")))
        if len(changes) == moment:
            os.kill(process[0].pid, signal.SIGKILL)
        return 500 if len(changes) >= moment else None

    if done:
        s3.after = count
    else:
        s3.before = count


def test_killed_at_ten_moments_nothing_is_lost_and_nothing_twice(site: Site, s3: S3Server, machine: Machine) -> None:
    expected = read_answers(site.made.paths)
    texts = count_cached_texts(site.made.paths)
    chance = random.Random(7)
    killed = 0
    for number, moment in enumerate(sorted(chance.sample(range(1, 40), 10))):
        process: list[subprocess.Popen[str]] = []
        kill_at(s3, process, moment if number < 5 else chance.randint(1, 12), done=number % 2 == 0)
        # Half of the time another machine goes on, which has no cache.
        process.append(site.start("first" if number % 2 else f"machine {number}", *AUDIT))
        process[0].communicate(timeout=LONGEST_SECONDS)
        killed += process[0].returncode == -signal.SIGKILL
        s3.before = s3.after = lambda method, path: None
    assert killed >= 8

    finish(site.start("last", *AUDIT))
    paths = machine("looking")
    assert read_answers(paths) == pytest.approx(expected, abs=1e-4, nan_ok=True)
    assert count_cached_texts(paths) == dict.fromkeys(texts, 1)
    ledger = read_ledger(paths)
    assert len(ledger.lines) > 10
    assert ledger.problems == []

    # And nothing is left to be done, on any machine.
    s3.requests.clear()
    finish(site.start("another", *AUDIT))
    written = {path.split("/")[3] for method, path in s3.requests if method == "PUT"}
    assert written.isdisjoint({"token_statistics", "scores", "evaluations", "ledger"})


def test_two_machines_at_once(site: Site, machine: Machine) -> None:
    for process in [site.start(name, *AUDIT) for name in ("one", "two")]:
        finish(process)
    assert read_answers(machine("looking")) == pytest.approx(read_answers(site.made.paths), abs=1e-4, nan_ok=True)
    finish(site.start("two", "forget", "--model", "tiny"))
    names = [stored.name for stored in Bucket(site.url).list()]
    assert [name for name in names if "tiny" in name or "token_statistics" in name] == []
    rows = query_warehouse(machine("looking").warehouse, "SELECT count(*) AS n FROM scores").to_pylist()
    assert rows == [{"n": 0}]
