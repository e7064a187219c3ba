"""Data folders of earlier versions, opened by today's code: whole, the same findings, nothing computed anew."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_workspace import Workspace, enter_workspace, made_documents, quick_folder, temporal
from make_fixture import BENCHMARK, HERE, MODEL

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread", "quick_audits")]

LAYOUTS = sorted(HERE.glob("layout-*.tar.xz"))


@pytest.fixture(params=LAYOUTS, ids=lambda path: path.name)
def opened(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    """The workspace that the earlier version left, in another place than it was made in."""
    with quick_folder(tmp_path) as folder:
        root = folder / "opened"
        root.mkdir()
        with tarfile.open(request.param) as packed:
            # Our own file; Python before 3.11.4 knows no filter.
            packed.extractall(root, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        workspace = enter_workspace(root, monkeypatch)
        workspace.config.mkdir()
        workspace.write_config("sources", {})
        workspace.write_models(**{MODEL: {"path": root / "model"}})
        workspace.write_benchmarks(**{BENCHMARK: temporal([12])})
        workspace.hold(*made_documents(3, 40))
        yield workspace


def test_there_is_one_of_the_released_version() -> None:
    assert LAYOUTS
    assert sum(path.stat().st_size for path in LAYOUTS) < 300_000 * len(LAYOUTS)


def test_an_earlier_data_folder_is_used_as_it_is(opened: Workspace) -> None:
    before = {path: path.stat().st_mtime_ns for path in opened.paths.root.rglob("*.parquet")}
    history = {run.run_id for run in opened.runs()}
    assert before
    assert history

    result = opened.run("audit", "--model", MODEL, "--benchmark", BENCHMARK)
    assert result.exit_code == 0, result.output
    assert not re.search(r"[1-9]\d* computed", result.stderr), result.stderr
    after = {path: path.stat().st_mtime_ns for path in opened.parts()}
    assert after == {path: before.get(path) for path in opened.parts()}, "no text was run again"
    assert history <= {run.run_id for run in opened.runs()}

    assert opened.paths.report.exists()
    rows = opened.run("sql", "SELECT DISTINCT benchmark FROM leaderboard ORDER BY 1")
    assert re.findall(r"made_\d+", rows.stdout) == ["made_12"]
    deep = opened.run("doctor", "--deep")
    assert deep.exit_code == 0, deep.output
