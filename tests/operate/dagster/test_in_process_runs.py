"""Runs of the command line: whose dead runs are marked failed, whose are not, and waiting for a slot that is taken."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import psutil
import pytest
import yaml
from dagster._core.storage.tags import TagType, get_tag_type
from made_workspace import Workspace

from audit_pipeline.catalogue.paths import workspace_file
from audit_pipeline.definitions import defs
from audit_pipeline.errors import DataError
from audit_pipeline.operate.dagster import in_process
from audit_pipeline.operate.dagster.in_process import (
    HOST_TAG,
    PROCESS_TAG,
    RUN_TAG,
    ensure_dagster_home,
    mark_dead_runs_failed,
    open_instance,
    process_identity,
    run_job,
)
from audit_pipeline.operate.dagster.tags import REASON_TAG

POOL = "gpu"
STARTED, FAILED = dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.FAILURE


def started_run(instance: dg.DagsterInstance, tags: dict[str, str], parent: str | None = None) -> str:
    """A run that somebody started and that holds the pool's slot, or waits for it."""
    job, run_id = job_of(lambda: None), str(uuid.uuid4())
    run = instance.create_run_for_job(
        job, run_id=run_id, tags={RUN_TAG: run_id, **tags}, parent_run_id=parent, root_run_id=parent
    )
    instance.handle_new_event(
        dg.EventLogEntry(
            error_info=None,
            level=20,
            user_message="",
            run_id=run.run_id,
            timestamp=time.time(),
            dagster_event=dg.DagsterEvent("PIPELINE_START", run.job_name),
        )
    )
    instance.event_log_storage.initialize_concurrency_limit_to_default(POOL)
    instance.event_log_storage.claim_concurrency_slot(POOL, run.run_id, "step")
    assert status(instance, run.run_id) is STARTED
    return run.run_id


def job_of(work: object) -> dg.JobDefinition:
    @dg.op(pool=POOL, name="step")
    def step() -> None:
        work()  # type: ignore[operator]

    @dg.job(name="made", executor_def=dg.in_process_executor)
    def made() -> None:
        step()

    return made


def status(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRunStatus:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run.status


def held(instance: dg.DagsterInstance) -> set[str]:
    return set(instance.event_log_storage.get_concurrency_info(POOL).active_run_ids)


@contextmanager
def freed_in_the_end(instance: dg.DagsterInstance, holder: str) -> Iterator[None]:
    """The holder's slot is freed after a while: where waiting goes wrong, a test fails and does not hang."""
    end = threading.Timer(300.0, instance.event_log_storage.free_concurrency_slots_for_run, (holder,))
    end.start()
    try:
        yield
    finally:
        end.cancel()


def tags_of(identity: str, host: str | None = None) -> dict[str, str]:
    return {HOST_TAG: host or socket.gethostname(), PROCESS_TAG: identity}


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Another process of this machine."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    yield process
    process.kill()
    process.wait()


def test_the_home_is_made_once_and_is_the_users_to_change(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = ensure_dagster_home(workspace.paths)
    assert home == workspace.paths.dagster_home.resolve()
    assert os.environ["DAGSTER_HOME"] == str(home)
    written = yaml.safe_load((home / "dagster.yaml").read_text())
    assert written["telemetry"] == {"enabled": False}
    assert written["concurrency"] == {"pools": {"default_limit": 1, "granularity": "op"}}
    assert written["run_monitoring"] == {"enabled": True, "free_slots_after_run_end_seconds": 60}
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
    with ThreadPoolExecutor(4) as pool:
        assert [looked.result() for looked in [pool.submit(look) for _ in range(4)]] == [0, 0, 0, 0]
    assert most == [1, 1, 1, 1]


def test_a_run_whose_process_is_gone_is_buried_and_its_slot_is_free(
    instance: dg.DagsterInstance, sleeper: subprocess.Popen[bytes]
) -> None:
    run = started_run(instance, tags_of(process_identity(psutil.Process(sleeper.pid))))
    assert mark_dead_runs_failed(instance) == []
    assert held(instance) == {run}, "while its process lives it keeps its slot"
    os.kill(sleeper.pid, signal.SIGKILL)
    sleeper.wait()
    assert mark_dead_runs_failed(instance) == [run]
    assert status(instance, run) is FAILED
    assert held(instance) == set()
    assert mark_dead_runs_failed(instance) == [], "marked once"


def test_a_killed_process_that_its_parent_has_not_noticed_is_dead(
    instance: dg.DagsterInstance, sleeper: subprocess.Popen[bytes]
) -> None:
    run = started_run(instance, tags_of(process_identity(psutil.Process(sleeper.pid))))
    os.kill(sleeper.pid, signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert psutil.Process(sleeper.pid).status() == psutil.STATUS_ZOMBIE
    assert mark_dead_runs_failed(instance) == [run]


def test_another_process_with_the_pid_of_a_dead_one_does_not_keep_its_run_alive(instance: dg.DagsterInstance) -> None:
    run = started_run(instance, tags_of(f"{os.getpid()}@12.34"))
    assert mark_dead_runs_failed(instance) == [run]


@pytest.mark.parametrize(
    "tags",
    [
        {},
        tags_of("1@12.34", host="another-machine"),
        tags_of(process_identity(psutil.Process())),
    ],
    ids=["of the daemon", "of another machine", "of this living process"],
)
def test_runs_that_are_not_ours_or_not_dead_are_left_alone(instance: dg.DagsterInstance, tags: dict[str, str]) -> None:
    run = started_run(instance, tags)
    assert mark_dead_runs_failed(instance) == []
    assert status(instance, run) is STARTED
    assert held(instance) == {run}


def test_a_run_that_the_ui_repeats_with_our_tags_is_not_ours(instance: dg.DagsterInstance) -> None:
    tags = tags_of("1@12.34")
    first = started_run(instance, tags)
    assert mark_dead_runs_failed(instance) == [first]
    again = started_run(instance, {**tags, RUN_TAG: first}, parent=first)
    assert mark_dead_runs_failed(instance) == []
    assert status(instance, again) is STARTED
    assert held(instance) == {again}


def test_slots_of_finished_and_of_deleted_runs_are_freed(instance: dg.DagsterInstance) -> None:
    finished = started_run(instance, tags_of(process_identity(psutil.Process())))
    run = instance.get_run_by_id(finished)
    assert run is not None
    instance.report_run_failed(run, "made for a test")
    instance.event_log_storage.claim_concurrency_slot(POOL, finished, "step")
    mark_dead_runs_failed(instance)
    assert held(instance) == set()
    instance.event_log_storage.claim_concurrency_slot(POOL, "no such run", "step")
    assert held(instance) == {"no such run"}
    mark_dead_runs_failed(instance)
    assert held(instance) == set()


def test_a_run_waits_in_words_and_goes_on_when_the_holder_dies(
    instance: dg.DagsterInstance, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_process, "_POLL_SECONDS", 0.05)
    holder = started_run(instance, tags_of(process_identity(psutil.Process(sleeper.pid))))
    done: list[str] = []
    told: list[str] = []

    def on_wait(what: str) -> None:
        told.append(what)
        assert not done
        os.kill(sleeper.pid, signal.SIGKILL)

    with freed_in_the_end(instance, holder):
        run = run_job(job_of(lambda: done.append("worked")), instance, on_wait=on_wait)
    assert done == ["worked"]
    assert status(instance, run) is dg.DagsterRunStatus.SUCCESS
    assert status(instance, holder) is FAILED
    [words] = told
    assert f"run {holder} (process {sleeper.pid} on {socket.gethostname()})" in words
    assert held(instance) == set()


def test_ctrl_c_ends_the_waiting(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "_POLL_SECONDS", 0.05)
    holder = started_run(instance, tags_of("1@12.34", host="another-machine"))
    worked: list[bool] = []

    def on_wait(what: str) -> None:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()

    with freed_in_the_end(instance, holder), pytest.raises(KeyboardInterrupt):
        run_job(job_of(lambda: worked.append(True)), instance, on_wait=on_wait)
    assert not worked
    assert held(instance) == {holder}
    assert [run.run_id for run in instance.get_runs()] == [holder], "a run that never began is not recorded"


def test_ctrl_c_ends_a_step_and_frees_its_slot(instance: dg.DagsterInstance) -> None:
    def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(300)

    with pytest.raises(KeyboardInterrupt):
        run_job(job_of(work), instance)
    [run] = instance.get_runs()
    assert run.status is FAILED
    mark_dead_runs_failed(instance)
    assert held(instance) == set()


def test_a_failed_run_raises_what_the_user_can_act_on(instance: dg.DagsterInstance) -> None:
    def work() -> None:
        raise DataError("the file is empty; give another")

    with pytest.raises(DataError, match=r"^the file is empty; give another$"):
        run_job(job_of(work), instance)
    [run] = instance.get_runs()
    assert run.status is FAILED
    assert run.tags[HOST_TAG] == socket.gethostname()
    assert run.tags[PROCESS_TAG] == process_identity(psutil.Process())
    mark_dead_runs_failed(instance)
    assert held(instance) == set()


def test_a_run_stands_under_its_job_with_the_reason_and_without_its_process(instance: dg.DagsterInstance) -> None:
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


def test_identities_are_of_processes_not_of_pids(sleeper: subprocess.Popen[bytes]) -> None:
    own, other = process_identity(psutil.Process()), process_identity(psutil.Process(sleeper.pid))
    assert own == process_identity(psutil.Process(os.getpid()))
    assert own != other
    assert other.startswith(f"{sleeper.pid}@")
    assert Path(f"/proc/{sleeper.pid}").exists()
