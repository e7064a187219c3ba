"""Two audits of one pair at once: both succeed with one result, and no text is lost or counted twice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from live_workspace import LiveWorkspace, family, make
from made_workspace import Workspace, enter_workspace, quick_folder

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.detectors.registry import REGISTRY
from audit_pipeline.tables import Pair

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

PAIR = Pair("made_8", "tiny-a")
# Asked for again: what the other has done meanwhile would be left as it is.
AUDIT = ("audit", "--model", PAIR.model, "--benchmark", PAIR.benchmark, "--again")
# Generous: what is looked for is an audit that waits for ever.
PATIENCE_SECONDS = 180.0


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LiveWorkspace]:
    with quick_folder(tmp_path) as folder:
        made = make(folder / "site", models=1, documents=24)
        made.write("benchmarks", {"benchmarks": {"made": family([8])}})
        yield made


def start(site: LiveWorkspace) -> subprocess.Popen[str]:
    command = [str(Path(sys.executable).with_name("corpus-audit")), *AUDIT]
    return subprocess.Popen(command, env=site.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def assert_one_result(workspace: Workspace, runs: int) -> None:
    """Assert that all runs have the same numbers, once in the current views, and that the cache has every text."""
    assert [row["detector"] for row in workspace.query("SELECT detector FROM leaderboard ORDER BY ALL")] == sorted(
        name for name, one in REGISTRY.items() if not one.on_request
    )
    assert workspace.query("SELECT count(DISTINCT run_id) AS n FROM scores") == [{"n": runs}]
    assert workspace.query("SELECT count(DISTINCT run_id) AS n FROM evaluations") == [{"n": runs}]
    differing = """
        SELECT {key} FROM {table} GROUP BY {key}
        HAVING count(*) <> {runs} OR count(DISTINCT {value}) > 1 OR count({value}) NOT IN (0, {runs})
    """
    for table, key, value in (
        ("scores", "example_id, detector, parameters", "score"),
        ("evaluations", "detector, parameters, metric", "value"),
        ("evaluations", "detector, parameters, metric", "ci_low"),
    ):
        assert workspace.query(differing.format(table=table, key=key, value=value, runs=runs)) == []
    examples = workspace.query("SELECT count(*) AS n FROM examples")
    one_setting = "SELECT count(*) AS n FROM current_scores WHERE detector = 'loss'"
    assert workspace.query(one_setting) == examples
    assert workspace.query(one_setting.replace("count(*)", "count(DISTINCT example_id)")) == examples
    texts = len(read_built(workspace.paths, PAIR.benchmark).plain_texts)
    cached = "SELECT count(*) AS n, count(DISTINCT text_sha256) AS texts FROM token_statistics"
    assert workspace.query(cached) == [{"n": texts, "texts": texts}]
    on_disk = [
        key
        for part in workspace.parts()
        for key in pq.read_table(part, columns=["key"], partitioning=None).column("key").to_pylist()
    ]
    assert len(set(on_disk)) == len(on_disk) == texts
    assert workspace.query("FROM lineage_gaps") == []
    assert workspace.query("SELECT status FROM coverage") == [{"status": "done"}]


def test_two_audits_of_one_pair_at_once(site: LiveWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    # From nothing: both fetch, both build, and one of them finds the other at the model.
    both = [start(site), start(site)]
    told = [process.communicate(timeout=PATIENCE_SECONDS) for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    workspace = enter_workspace(site.root, monkeypatch)
    assert_one_result(workspace, runs=2)

    # One from the command line and one in this process, with the other's run under way when it starts.
    other = start(site)
    assert other.stderr is not None
    other.stderr.readline()
    ours = workspace.run(*AUDIT)
    output, errors = other.communicate(timeout=PATIENCE_SECONDS)
    assert other.returncode == 0, errors
    assert ours.exit_code == 0, ours.output
    everything = len(read_built(workspace.paths, PAIR.benchmark).plain_texts)
    for said in (errors, ours.stderr):
        assert f"{PAIR.partition}: {everything} texts from the cache, 0 computed" in said
    assert "Traceback" not in output + errors
    assert_one_result(workspace, runs=4)
