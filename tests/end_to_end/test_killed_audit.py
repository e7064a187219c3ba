"""Kill -9 and Ctrl-C during an audit: the next audit starts at once and runs no flushed text again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import dagster as dg
import pyarrow.parquet as pq
import pytest
from grid import read_grid
from made_workspace import Workspace, made_documents, temporal

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.pipeline.dagster.instance import mark_dead_runs_failed, open_instance
from audit_pipeline.tables import Pair

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

PAIR = Pair("made_8", "tiny")
# Generous: what is looked for is an audit that waits for ever.
AT_ONCE_SECONDS = 120.0
# The command line, with every finished text flushed at once instead of every ten seconds.
FLUSHING_AT_ONCE = """
from audit_pipeline.token_statistics.cache import PartCache
PartCache.__init__.__kwdefaults__["flush_seconds"] = 0.0
# The rows of a batch are written together: every text is a batch of its own.
from audit_pipeline.token_statistics.calibration import TOKEN_BUDGET
TOKEN_BUDGET["cpu"] = 1
from audit_pipeline.cli import main
main()
"""


@pytest.fixture
def workspace(workspace: Workspace) -> Workspace:
    workspace.write_benchmarks(made=temporal([8], windows_per_document=4))
    workspace.fetch(*made_documents(12, 60))
    workspace.build("made_8")
    workspace.assess("made_8")
    return workspace


def start(workspace: Workspace, benchmark: str = PAIR.benchmark) -> subprocess.Popen[str]:
    script = workspace.root / "flushing_at_once.py"
    script.write_text(FLUSHING_AT_ONCE)
    arguments = [sys.executable, str(script), "audit", "--model", PAIR.model, "--benchmark", benchmark]
    environment = {**os.environ, "DAGSTER_HOME": "", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def flushed(workspace: Workspace, kind: str = "base") -> list[str]:
    """Return the digests of the texts on disk, one per row."""
    tables = [pq.read_table(part, columns=["text_sha256"], partitioning=None) for part in workspace.parts(kind)]
    return [one for table in tables for one in table.column("text_sha256").to_pylist()]


def wait_for_parts(workspace: Workspace, process: subprocess.Popen[str], count: int) -> None:
    until = time.monotonic() + AT_ONCE_SECONDS
    while len(workspace.parts()) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "the audit does not get on"
        time.sleep(0.005)


def test_killed_and_interrupted_audits_resume(workspace: Workspace) -> None:
    texts = len(read_built(workspace.paths, PAIR.benchmark).plain_texts)

    killed = start(workspace)
    wait_for_parts(workspace, killed, 2)
    os.kill(killed.pid, signal.SIGKILL)
    # Nobody has taken note of its end yet: it is a zombie, as in a container without an init process.
    after_kill = flushed(workspace)
    assert 2 <= len(set(after_kill)) < texts

    stopped = start(workspace)
    wait_for_parts(workspace, stopped, len(workspace.parts()) + 2)
    stopped.send_signal(signal.SIGINT)
    output, errors = stopped.communicate(timeout=AT_ONCE_SECONDS)
    assert stopped.returncode == 130, errors
    assert errors.splitlines()[-1].startswith("stopped. Finished steps and finished texts are kept.")
    assert "Traceback" not in output + errors
    after_stop = flushed(workspace)
    assert len(set(after_kill)) < len(set(after_stop)) < texts
    assert len(after_stop) == len(set(after_stop)), "no flushed text was run again"
    # A text's kinds are written one after the other, this one last; a text that the kill came into lacks it.
    finished = flushed(workspace, "renyi")
    assert len(after_stop) - 2 <= len(finished) == len(set(finished)) <= len(after_stop)
    killed.communicate()

    started = time.monotonic()
    last = workspace.run("audit", "--model", PAIR.model, "--benchmark", PAIR.benchmark)
    assert last.exit_code == 0, last.output
    assert time.monotonic() - started < AT_ONCE_SECONDS
    left = texts - len(finished)
    assert f"{PAIR.partition}: {len(finished)} texts from the cache, {left} computed" in last.stderr
    assert sorted(flushed(workspace)) == sorted(set(flushed(workspace)))
    assert len(flushed(workspace)) == texts

    runs = [run.status for run in reversed(workspace.runs()) if run.job_name == "audit_pairs"]
    failed, done = dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS
    assert runs == [failed, failed, done]
    assert [file.name[:6] for file in workspace.paths.claims.glob("*.alive")] == ["audit-"], "until `forget` looks"
    rows = workspace.run("sql", "SELECT count(*) AS gaps FROM lineage_gaps", "--format", "csv")
    assert rows.stdout.splitlines() == ["gaps", "0"]


def test_a_killed_run_keeps_its_finished_cells_and_fails_the_one_that_it_was_at(workspace: Workspace) -> None:
    workspace.write_benchmarks(made=temporal([8, 12], windows_per_document=4))
    workspace.build("made_12")
    workspace.assess("made_12")
    process = start(workspace, "made")
    until = time.monotonic() + AT_ONCE_SECONDS
    while not list(workspace.paths.table("evaluations").rglob("*.parquet")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "the audit does not get on"
        time.sleep(0.005)
    wait_for_parts(workspace, process, len(workspace.parts()) + 3)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    with open_instance(workspace.paths) as instance:
        assert len(mark_dead_runs_failed(instance, workspace.paths)) == 1
        for asset in ("token_statistics", "scores", "evaluations"):
            made, failed = read_grid(instance, asset)
            assert made == {PAIR.partition}, asset
            assert failed == ({"made_12|tiny"} if asset == "token_statistics" else set()), asset
    last = workspace.run("audit", "--model", PAIR.model, "--benchmark", "made")
    assert last.exit_code == 0, last.output
    assert f"auditing {PAIR.model} on made_12" in last.stderr, "the finished pair is not audited again"
