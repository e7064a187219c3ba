"""The data folder: private to its owner, and usable for reading if it is not writable."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from made_workspace import Workspace, made_documents, make_workspace, temporal

from audit_pipeline.errors import DataError
from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.report.files import build_reports
from audit_pipeline.store.paths import explain_unwritable, make_private, require_writable

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits")

WRITING = (
    ("audit", "--model", "tiny", "--benchmark", "made_8"),
    ("benchmarks", "--build", "made_8"),
    ("score", "--model", "tiny", "--texts", "t.jsonl", "--out", "s.parquet"),
    ("forget", "--model", "tiny"),
    ("report",),
    ("dev",),
    ("test", "ordered", "--model", "tiny", "--items", "t.jsonl"),
)


@pytest.fixture(scope="module")
def read_only(
    tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path], quick_audits: None
) -> Iterator[Workspace]:
    """Build a workspace with a report, and make its data folder read-only for all users, including root."""
    with pytest.MonkeyPatch.context() as patch:
        workspace = make_workspace(tmp_path_factory.mktemp("read-only") / "made", patch, tiny=tiny_folder("llama"))
        workspace.write_benchmarks(made=temporal([8]))
        workspace.fetch(*made_documents(1, 20))
        workspace.build("made_8")
        build_warehouse(workspace.paths)
        build_reports(workspace.paths.warehouse, workspace.paths.reports)
        yield from make_read_only(workspace)


def make_read_only(workspace: Workspace) -> Iterator[Workspace]:
    root = workspace.paths.root
    if os.geteuid() != 0:
        folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
        for folder in folders:
            folder.chmod(0o500)
        yield workspace
        for folder in folders:
            folder.chmod(0o700)
        return
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if mount is None or umount is None:
        pytest.skip("making a folder read-only for root takes mount")
    for options in (["--bind", str(root), str(root)], ["-o", "remount,bind,ro", str(root)]):
        done = subprocess.run([mount, *options], capture_output=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"nothing can be mounted here: {done.stderr.decode().strip()}")
    try:
        yield workspace
    finally:
        subprocess.run([umount, "--lazy", str(root)], check=True)


def test_commands_that_write_fail_before_they_run(read_only: Workspace, tmp_path: Path) -> None:
    texts = tmp_path / "t.jsonl"
    texts.write_text('{"text": "some words to be read"}\n{"text": "and more"}\n', encoding="utf-8")
    out = tmp_path / "s.parquet"
    for command in WRITING:
        arguments = [str({"t.jsonl": texts, "s.parquet": out}.get(one, one)) for one in command]
        result = read_only.run(*arguments)
        assert result.exit_code == 2, result.output
        [told] = result.stderr.splitlines()
        assert told.startswith(f"Error: the folder {read_only.paths.root} cannot be written ("), command
        assert "so nothing was run. Set CORPUS_AUDIT_DATA" in told
        assert not out.exists()


def test_commands_that_only_read_work(read_only: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = read_only.run("sql", "SELECT count(*) AS n FROM benchmarks", "--json")
    assert asked.exit_code == 0, asked.output
    export = read_only.run("export", "leaderboard", "--out", str(tmp_path / "leaderboard.csv"))
    assert export.exit_code == 0, export.output
    shown: list[str] = []
    monkeypatch.setattr(webbrowser, "open", shown.append)
    opened = read_only.run("report", "--open")
    assert opened.exit_code == 0, opened.output
    assert shown == [read_only.paths.report.as_uri()]
    assert "the last report is opened without rebuilding it" in opened.stderr
    for listed in ("models", "detectors", "benchmarks"):
        assert read_only.run(listed).exit_code == 0
    seen = read_only.run("doctor")
    assert seen.exit_code == 1, seen.output
    amiss = [line for line in seen.stdout.splitlines() if line.startswith("!!")]
    assert any("data folder" in line and "is not writable" in line for line in amiss), amiss


def test_a_new_data_folder_is_private(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        make_private(tmp_path / "a" / "data")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a" / "data").stat().st_mode) == 0o700


def test_a_command_creates_a_private_data_folder(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    root = workspace.root / "made by a command"
    monkeypatch.setenv("CORPUS_AUDIT_DATA", str(root))
    workspace.write_benchmarks(made=temporal([8]))
    workspace.hold(*made_documents(1, 20))
    done = workspace.run("benchmarks", "--build", "made_8")
    assert done.exit_code == 0, done.output
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def test_a_file_in_place_of_the_data_folder_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        require_writable(file)
    assert explain_unwritable(tmp_path / "not" / "there" / "yet") is None
