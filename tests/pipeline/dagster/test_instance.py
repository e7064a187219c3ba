"""The Dagster home, dead runs, and the state after a run ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import dagster as dg
import filelock
import psutil
import pytest
import yaml
from dagster._core.storage.tags import TagType, get_tag_type
from made_workspace import Workspace

from audit_pipeline.definitions import defs
from audit_pipeline.errors import DataError
from audit_pipeline.pipeline.dagster.instance import (
    ensure_dagster_home,
    find_dead_runs,
    mark_dead_runs_failed,
    open_instance,
)
from audit_pipeline.pipeline.dagster.locks import hold_liveness_file, lock_liveness_file
from audit_pipeline.pipeline.dagster.resources import REASON_TAG
from audit_pipeline.pipeline.dagster.runs import run_job
from audit_pipeline.store.paths import DataPaths, workspace_file

FAILED = dg.DagsterRunStatus.FAILURE
_RUN = """
import sys, time
from pathlib import Path
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.pipeline.dagster.locks import hold_liveness_file
with hold_liveness_file(DataPaths(Path(sys.argv[1])), sys.argv[2]):
    print("held", flush=True)
    time.sleep(300)
"""


def job_of(work: Callable[[], object]) -> dg.JobDefinition:
    @dg.op(name="step")
    def step() -> None:
        work()

    @dg.job(name="made", executor_def=dg.in_process_executor)
    def made() -> None:
        step()

    return made


def started_run(instance: dg.DagsterInstance) -> str:
    """Return the id of a started run."""
    return instance.create_run_for_job(job_of(lambda: None), status=dg.DagsterRunStatus.STARTED).run_id


def status(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRunStatus:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run.status


@contextmanager
def process_of(run_id: str, paths: DataPaths) -> Iterator[subprocess.Popen[bytes]]:
    """Yield another process that holds the liveness file of a run."""
    with subprocess.Popen([sys.executable, "-c", _RUN, str(paths.root), run_id], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def left_behind(paths: DataPaths) -> list[str]:
    return [file.name for file in paths.claims.glob("*.alive")]


def test_the_home_is_made_once_and_is_the_users_to_change(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = ensure_dagster_home(workspace.paths)
    assert home == workspace.paths.dagster_home.resolve()
    assert os.environ["DAGSTER_HOME"] == str(home)
    written = yaml.safe_load((home / "dagster.yaml").read_text())
    assert written["telemetry"] == {"enabled": False}
    assert written["run_monitoring"] == {"enabled": True}
    assert written["python_logs"] == {"python_log_level": "INFO"}, "the events of a run are not printed"
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    assert ensure_dagster_home(workspace.paths) == home
    assert (home / "dagster.yaml").read_text() == "telemetry: {enabled: false}\n"

    monkeypatch.setenv("DAGSTER_HOME", str(workspace.root / "elsewhere"))
    assert ensure_dagster_home(workspace.paths) == (workspace.root / "elsewhere").resolve()
    assert (workspace.root / "elsewhere" / "dagster.yaml").exists()


def test_a_new_home_is_opened_by_one_at_a_time(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    inside: list[str] = []
    most: list[int] = []
    opening = dg.DagsterInstance.from_config

    def slowly(home: str) -> dg.DagsterInstance:
        inside.append(home)
        most.append(len(inside))
        time.sleep(0.05)
        made = opening(home)
        inside.pop()
        return made

    def look() -> int:
        with open_instance(workspace.paths) as instance:
            return instance.get_runs_count()

    monkeypatch.setattr(dg.DagsterInstance, "from_config", slowly)
    with ThreadPoolExecutor(4) as threads:
        assert [looked.result() for looked in [threads.submit(look) for _ in range(4)]] == [0, 0, 0, 0]
    assert most == [1, 1, 1, 1]


@pytest.mark.parametrize("file", ["schedules/schedules.db", "history/runs.db", "history/runs/index.db"])
def test_a_damaged_database_is_said_in_one_line(instance: dg.DagsterInstance, workspace: Workspace, file: str) -> None:
    (workspace.paths.dagster_home / file).write_bytes(b"no database at all" * 500)

    def look() -> None:
        with open_instance(workspace.paths) as opened:
            opened.get_runs()
            opened.get_dynamic_partitions("model")
            opened.all_instigator_state()

    with pytest.raises(DataError, match=r"storage in .* is damaged .*file is not a database.* backup") as error:
        look()
    assert "\n" not in str(error.value)


def test_a_run_is_marked_as_failed_after_its_process_ended(instance: dg.DagsterInstance, workspace: Workspace) -> None:
    run, paths = started_run(instance), workspace.paths
    with process_of(run, paths) as process:
        assert mark_dead_runs_failed(instance, paths) == []
        assert status(instance, run) is dg.DagsterRunStatus.STARTED
        os.kill(process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE, "its parent has not noticed"
        assert [dead.run_id for dead in find_dead_runs(instance, paths)] == [run]
        assert mark_dead_runs_failed(instance, paths) == [run]
    assert status(instance, run) is FAILED
    assert left_behind(paths) == []
    assert mark_dead_runs_failed(instance, paths) == [], "marked once"


def test_runs_without_a_file_and_of_this_process_are_left_alone(
    instance: dg.DagsterInstance, workspace: Workspace
) -> None:
    """Runs without a file are in the daemon's queue or on another machine."""
    runs = [started_run(instance) for _ in range(2)]
    with hold_liveness_file(workspace.paths, runs[0]):
        assert lock_liveness_file(workspace.paths, runs[0]) is None, "once"
        assert mark_dead_runs_failed(instance, workspace.paths) == []
    assert left_behind(workspace.paths) == []
    assert mark_dead_runs_failed(instance, workspace.paths) == []
    assert {status(instance, run) for run in runs} == {dg.DagsterRunStatus.STARTED}


def test_checking_and_locking_a_liveness_file_do_not_interfere(
    instance: dg.DagsterInstance, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, paths = started_run(instance), workspace.paths
    paths.claims.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(paths.claims / f"{run}.alive") as looking, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(lock_liveness_file, paths, run)
        time.sleep(0.1)
        assert not waiting.done()
        looking.release()
        lock = waiting.result()
    assert lock is not None
    lock.release()
    # The file is there before it is held.
    with ExitStack() as held:
        monkeypatch.setattr(time, "sleep", lambda seconds: held.enter_context(hold_liveness_file(paths, run)))
        assert find_dead_runs(instance, paths) == []


def test_a_finished_run_keeps_its_status_after_its_process_ended(
    instance: dg.DagsterInstance, workspace: Workspace
) -> None:
    run = instance.create_run_for_job(job_of(lambda: None), status=dg.DagsterRunStatus.SUCCESS).run_id
    with process_of(run, workspace.paths):
        pass
    assert left_behind(workspace.paths) == [f"{run}.alive"]
    assert mark_dead_runs_failed(instance, workspace.paths) == []
    assert status(instance, run) is dg.DagsterRunStatus.SUCCESS
    assert left_behind(workspace.paths) == []


def test_ctrl_c_ends_a_step(instance: dg.DagsterInstance, workspace: Workspace) -> None:
    def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(300)

    with pytest.raises(KeyboardInterrupt):
        run_job(job_of(work), instance)
    [run] = instance.get_runs()
    assert run.status is FAILED
    assert left_behind(workspace.paths) == []


def test_a_failed_run_raises_what_the_user_can_act_on(instance: dg.DagsterInstance, workspace: Workspace) -> None:
    held: list[str] = []

    def work() -> None:
        held.extend(left_behind(workspace.paths))
        raise DataError("the file is empty; give another")

    with pytest.raises(DataError, match=r"^the file is empty; give another$"):
        run_job(job_of(work), instance)
    [run] = instance.get_runs()
    assert run.status is FAILED
    assert held == [f"{run.run_id}.alive"]
    assert left_behind(workspace.paths) == []


def test_a_run_stands_under_its_job_with_the_reason(instance: dg.DagsterInstance) -> None:
    run_job(job_of(lambda: None), instance, tags={REASON_TAG: "never audited"})
    [run] = instance.get_runs()
    location = yaml.safe_load(workspace_file().read_text())["load_from"][0]["python_module"]["location_name"]
    # The Timeline shows runs of jobs of code locations alone.
    assert run.remote_job_origin is not None
    assert (run.remote_job_origin.location_name, run.remote_job_origin.job_name) == (location, run.job_name)
    assert run.remote_job_origin.repository_origin.repository_name == defs().get_repository_def().name
    listed = [(name, value) for name, value in run.tags.items() if get_tag_type(name) is TagType.USER_PROVIDED]
    assert listed == [("why", "never audited")], "what the UI lists before Dagster's own tags"


def test_an_error_of_the_program_is_not_dressed_up(instance: dg.DagsterInstance) -> None:
    def work() -> None:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        run_job(job_of(work), instance)
