"""A full disk: one clear error, no lost data, and the next audit continues."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from live_workspace import LiveWorkspace, family, make
from made_workspace import (
    COLLECTIONS,
    Workspace,
    enter_workspace,
    made_documents,
    make_workspace,
    quick_folder,
    temporal,
)
from tiny_models import forward_of, save_model

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.cli.main_command import is_caused_by_full_disk
from audit_pipeline.errors import DataError
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.pipeline.evaluate_pair import evaluate_pair
from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.report.files import build_reports
from audit_pipeline.scoring.pair_scores import run_passes, score_and_store_pair
from audit_pipeline.store import files
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import Pair
from audit_pipeline.token_statistics.cache import PartCache
from audit_pipeline.token_statistics.calibration import TOKEN_BUDGET
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.warehouse.query import query_warehouse

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits")

BENCHMARK = "made_8"
DISK_BYTES = 32 << 20
PATIENCE_SECONDS = 180.0
NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
# Slow enough that the disk can be filled between two flushes.
FLUSHING_SLOWLY = """
import time
from audit_pipeline.token_statistics.cache import PartCache
from audit_pipeline.token_statistics.calibration import TOKEN_BUDGET
PartCache.__init__.__kwdefaults__["flush_seconds"] = 0.0
# The rows of a batch are written together: every text is a batch of its own.
from audit_pipeline.token_statistics.calibration import TOKEN_BUDGET
TOKEN_BUDGET["cpu"] = 1
flush = PartCache.flush
PartCache.flush = lambda self: (time.sleep(0.05), flush(self))[1]
from audit_pipeline.cli import main
main()
"""


@dataclass
class Stages:
    """The stages of an audit with a loaded model, without Dagster."""

    model: TokenizedModel
    forward: ForwardPass

    @property
    def pair(self) -> Pair:
        return Pair(BENCHMARK, self.model.entry.name)

    def run(self, paths: DataPaths, run_id: str, *, report: bool = True) -> int:
        """Run all stages and build the warehouse. Return the number of texts from the cache."""
        summary = run_passes(
            self.pair,
            self.model,
            paths,
            lambda: self.forward,
            LineageStep.now(run_id, "token_statistics", "1"),
            kinds=("base",),
            logits_budget=0,
        )
        score_and_store_pair(self.pair, self.model, paths, LineageStep.now(run_id, "scores", "1"))
        evaluate_pair(self.pair, self.model, paths, LineageStep.now(run_id, "evaluations", "1"))
        build_warehouse(paths)
        if report:
            build_reports(paths.warehouse, paths.reports)
        return summary.text_pass.texts_from_cache


def numbers(paths: DataPaths, model: str) -> dict[tuple[str, ...], float | None]:
    """Return every current number of a model by its key."""
    statements = [
        f"SELECT {key} AS what, detector, parameters, {value} AS value FROM {view} WHERE model = '{model}'"
        for key, value, view in (
            ("example_id", "score", "current_scores"),
            ("metric", "value", "current_evaluations"),
            ("metric || ' low'", "ci_low", "current_evaluations"),
        )
    ]
    rows = query_warehouse(paths.warehouse, " UNION ALL ".join(statements)).to_pylist()
    return {(row["what"], row["detector"], row["parameters"]): row["value"] for row in rows}


LAST_KIND = "renyi"
"""The kind that is written last for a text. A text with this kind is not run again."""


def keys(paths: DataPaths, kind: str = "base") -> list[str]:
    """Return the keys of all parts."""
    parts = sorted(paths.table("token_statistics").glob(f"kind={kind}/*/part-*.parquet"))
    return [key for part in parts for key in pq.read_table(part, partitioning=None).column("key").to_pylist()]


def assert_readable(paths: DataPaths) -> None:
    """Assert that every table is readable and no temporary file is left."""
    for file in paths.root.rglob("*.parquet"):
        pq.read_table(file, partitioning=None)
    assert query_warehouse(paths.warehouse, "FROM lineage_gaps").num_rows == 0
    assert [path for path in paths.root.rglob("*") if path.suffix in (".tmp", ".building", ".unreadable")] == []


class Disk:
    """A disk with room for ``left`` more files. Later writes fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        self.written = 0
        self._fsync = os.fsync
        monkeypatch.setattr(files.os, "fsync", self.fsync)

    def fsync(self, file: int) -> None:
        self.written += 1
        if self.left is not None:
            if self.left == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.left -= 1
        self._fsync(file)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    with quick_folder(tmp_path) as folder:
        models = {name: save_model(folder / name, "llama", seed=seed) for seed, name in enumerate(("first", "second"))}
        made = make_workspace(folder / "made", monkeypatch, **models)
        made.write_benchmarks(made=temporal([8], windows_per_document=1))
        made.fetch(*made_documents(1, 60, COLLECTIONS[:2]))
        made.build(BENCHMARK)
        yield made


@pytest.mark.slow
def test_a_disk_that_is_full_at_any_write(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PartCache.__init__.__kwdefaults__ is not None
    monkeypatch.setitem(PartCache.__init__.__kwdefaults__, "flush_seconds", 0.0)
    # The rows of a batch are written together: every text is a batch of its own.
    monkeypatch.setitem(TOKEN_BUDGET, "cpu", 1)
    first, second = (
        Stages(model, forward_of(model)) for model in (workspace.model("first"), workspace.model("second"))
    )
    disk = Disk(monkeypatch)
    # What was there before the disk was full: another model's audit, with its report.
    first.run(workspace.paths, "before")
    earlier = numbers(workspace.paths, "first")
    report = workspace.paths.report.read_bytes()
    prepared = workspace.paths.root

    undisturbed = DataPaths(workspace.root / "undisturbed")
    shutil.copytree(prepared, undisturbed.root)
    disk.written = 0
    second.run(undisturbed, "undisturbed", report=False)
    writes, expected = disk.written, numbers(undisturbed, "second")
    texts = len(read_built(undisturbed, second.pair.benchmark).plain_texts)
    assert writes > texts, "a part per text, and the rest"
    assert len(expected) > 22 * texts

    for left in range(writes):
        paths = DataPaths(workspace.root / f"full-{left}")
        shutil.copytree(prepared, paths.root)
        before, finished_before = len(keys(paths)), len(keys(paths, LAST_KIND))
        disk.left = left
        with pytest.raises((OSError, DataError)) as raised:
            second.run(paths, "stopped", report=False)
        assert "No space left on device" in str(raised.value)
        assert numbers(paths, "first") == earlier
        assert paths.report.read_bytes() == report
        assert_readable(paths)

        disk.left = None
        flushed = len(keys(paths)) - before
        assert flushed == min(-(-left // 3), texts), "each text is a part of each of three kinds"
        finished = len(keys(paths, LAST_KIND)) - finished_before
        assert finished == min(left // 3, texts)
        assert second.run(paths, "resumed", report=False) == finished
        # Texts share other batches than they would have: equal up to rounding.
        assert numbers(paths, "second") == pytest.approx(expected, abs=1e-5)
        assert numbers(paths, "first") == earlier
        assert len(keys(paths)) == len(set(keys(paths))) == before + texts
        assert_readable(paths)
        shutil.rmtree(paths.root)


@pytest.mark.slow
def test_a_report_that_finds_no_room(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    model = workspace.model("first")
    Stages(model, forward_of(model)).run(workspace.paths, "run")
    report = workspace.paths.report.read_bytes()
    disk = Disk(monkeypatch)
    disk.left = 0
    with pytest.raises(DataError, match="No space left on device"):
        build_reports(workspace.paths.warehouse, workspace.paths.reports, include_text=False)
    assert workspace.paths.report.read_bytes() == report
    assert_readable(workspace.paths)


def test_errors_of_a_full_disk_are_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (
        NO_SPACE,
        OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), str(tmp_path / "file")),
        duckdb.IOException('Could not write file "x": No space left on device'),
    ):
        wrapped = RuntimeError("an error of Dagster's")
        wrapped.__cause__ = error
        assert is_caused_by_full_disk(wrapped, tmp_path / "not made yet")
    for other in (PermissionError(errno.EACCES, "Permission denied"), sqlite3.OperationalError("disk I/O error")):
        assert not is_caused_by_full_disk(other, tmp_path), "there is room"
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=4096))
    assert is_caused_by_full_disk(sqlite3.OperationalError("disk I/O error"), tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a mounted file system of 32 MB in memory."""
    at = tmp_path / "disk"
    at.mkdir()
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if os.name != "posix" or os.geteuid() != 0 or mount is None or umount is None:
        pytest.skip("mounting a small file system takes root")
    mounted = subprocess.run(
        [mount, "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(at)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield at
    finally:
        subprocess.run([umount, "--lazy", str(at)], check=True)


def fill(disk: Path) -> Path:
    """Write a file that fills the disk, also while others write."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for block in (1 << 16, 1 << 12):
            try:
                while True:
                    file.write(bytes(block))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
    return filler


def start(site: LiveWorkspace, model: str) -> subprocess.Popen[str]:
    script = site.root / "flushing_slowly.py"
    script.write_text(FLUSHING_SLOWLY, encoding="utf-8")
    command = [sys.executable, str(script), "audit", "--model", model, "--benchmark", BENCHMARK]
    return subprocess.Popen(command, env=site.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def assert_told(process: subprocess.Popen[str], disk: Path) -> None:
    output, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 2, errors
    last = errors.splitlines()[-1]
    assert last.startswith("Error: "), errors
    assert "is full" in last
    assert str(disk) in last
    assert "Traceback" not in output


@pytest.mark.slow
def test_a_real_disk_that_fills_up(small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = make(tmp_path / "site", models=2, documents=20)
    site.write("benchmarks", {"benchmarks": {"made": family([8])}})
    site.data.rmdir()
    site.data.symlink_to(small_disk)
    workspace = enter_workspace(site.root, monkeypatch)
    paths = DataPaths(small_disk)
    assert workspace.run("audit", "--model", "tiny-a", "--benchmark", BENCHMARK).exit_code == 0
    earlier, report, before = numbers(paths, "tiny-a"), paths.report.read_bytes(), len(keys(paths))
    finished_before = len(keys(paths, LAST_KIND))

    # While the model runs.
    audit = start(site, "tiny-b")
    until = time.monotonic() + PATIENCE_SECONDS
    while len(workspace.parts()) < 4:
        assert audit.poll() is None, audit.communicate()
        assert time.monotonic() < until, "the audit does not get on"
        time.sleep(0.01)
    filler = fill(small_disk)
    assert_told(audit, small_disk)
    flushed = len(keys(paths)) - before
    texts = len(read_built(paths, BENCHMARK).plain_texts)
    assert 3 <= flushed < texts

    # And from the start, with what there was still to be read.
    assert_told(start(site, "tiny-b"), small_disk)
    assert numbers(paths, "tiny-a") == earlier
    assert paths.report.read_bytes() == report
    assert query_warehouse(paths.warehouse, "FROM lineage_gaps").num_rows == 0
    assert len(keys(paths)) == before + flushed

    filler.unlink()
    finished = len(keys(paths, LAST_KIND)) - finished_before
    assert flushed - 1 <= finished <= flushed
    resumed = workspace.run("audit", "--model", "tiny-b", "--benchmark", BENCHMARK)
    assert resumed.exit_code == 0, resumed.output
    assert f"{finished} texts from the cache, {texts - finished} computed" in resumed.stderr
    assert numbers(paths, "tiny-a") == earlier
    assert_readable(paths)
