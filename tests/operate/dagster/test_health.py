"""The doctor looks at Dagster: dead runs, stuck slots, settings that hang an audit. It makes and changes nothing."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path

import dagster as dg
import psutil
import pytest
import yaml
from dagster._core.remote_origin import (
    InProcessCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, InstigatorType
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._daemon.types import DaemonHeartbeat
from made_workspace import Workspace, temporal, tiny_control

from audit_pipeline.errors import DataError
from audit_pipeline.operate.dagster.health import build_run_ending_lookup, examine_dagster, runs_stuck_in_pools
from audit_pipeline.operate.dagster.in_process import (
    HOST_TAG,
    PROCESS_TAG,
    dagster_home,
    dead_runs,
    ensure_dagster_home,
    mark_dead_runs_failed,
    process_identity,
)
from audit_pipeline.operate.doctor_checks import DoctorCheck

POOL = "gpu"


@dg.job(name="made")
def made_job() -> None:
    """Nothing to do."""


@dg.sensor(job=made_job, default_status=dg.DefaultSensorStatus.RUNNING)
def eager() -> None:
    """On unless somebody turns it off."""


@dg.sensor(job=made_job)
def shy() -> None:
    """Off unless somebody turns it on."""


@dg.sensor(job=made_job)
def switched() -> None:
    """Turned on by somebody."""


WEEKLY = dg.ScheduleDefinition(name="weekly", job=made_job, cron_schedule="0 0 * * 0")
DEFINITIONS = dg.Definitions(jobs=[made_job], sensors=[eager, shy, switched], schedules=[WEEKLY])


def look(workspace: Workspace) -> dict[str, DoctorCheck]:
    return {finding.what: finding for finding in examine_dagster(workspace.paths, DEFINITIONS)}


def run_with(instance: dg.DagsterInstance, tags: Mapping[str, str], *, slot: bool = True) -> str:
    """A run that is under way and holds the pool's slot."""
    run = instance.create_run_for_job(made_job, tags=tags, status=dg.DagsterRunStatus.STARTED)
    if slot:
        instance.event_log_storage.initialize_concurrency_limit_to_default(POOL)
        instance.event_log_storage.claim_concurrency_slot(POOL, run.run_id, "step")
    return run.run_id


def ours(identity: str) -> dict[str, str]:
    return {HOST_TAG: socket.gethostname(), PROCESS_TAG: identity}


def beat(instance: dg.DagsterInstance, age: float) -> None:
    for kind in instance.get_required_daemon_types():
        instance.add_daemon_heartbeat(DaemonHeartbeat(time.time() - age, kind, "made", []))


def test_a_home_that_was_never_made_is_not_made(workspace: Workspace) -> None:
    [finding] = examine_dagster(workspace.paths, DEFINITIONS)
    assert finding.ok
    assert "not made yet" in finding.words
    assert not workspace.paths.dagster_home.exists()
    workspace.monkeypatch.setenv("DAGSTER_HOME", str(workspace.root / "elsewhere"))
    assert dagster_home(workspace.paths) == (workspace.root / "elsewhere").resolve()
    assert look(workspace)["Dagster home"].ok
    assert not (workspace.root / "elsewhere").exists()


@pytest.mark.parametrize("home", ["/proc/home", "file", "file/below"])
def test_a_home_that_cannot_be_made_is_a_fault(home: str, workspace: Workspace) -> None:
    (workspace.root / "file").write_text("no folder")
    workspace.monkeypatch.setenv("DAGSTER_HOME", str(workspace.root / home))
    [finding] = examine_dagster(workspace.paths, DEFINITIONS)
    assert not finding.ok
    assert "cannot be written (" in finding.words
    assert "set DAGSTER_HOME to a folder of yours" in finding.words
    with pytest.raises(DataError, match=r"the Dagster home .* cannot be written .*set DAGSTER_HOME"):
        ensure_dagster_home(workspace.paths)


def test_all_is_well(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    run_with(instance, ours(process_identity(psutil.Process())))
    found = look(workspace)
    assert all(finding.ok for finding in found.values()), found
    assert list(found) == [
        "Dagster home",
        "pools",
        "run monitoring",
        "stale runs",
        "pool slots",
        "daemon",
        "schedules",
        "sensors",
    ]
    assert found["Dagster home"].words == f"{workspace.paths.dagster_home}, storage sqlite"
    assert found["pools"].words.startswith("at most 1 step(s)")
    assert found["daemon"].words.startswith("none alive")
    assert found["schedules"].words == "off: weekly"
    assert found["sensors"].words == "on: eager; off: shy, switched"


def test_dead_runs_are_named_and_left_for_the_next_audit(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    dead = [run_with(instance, ours(f"{os.getpid()}@12.34")) for _ in range(2)]
    run_with(instance, {**ours("1@12.34"), HOST_TAG: "another-machine"})
    finding = look(workspace)["stale runs"]
    assert not finding.ok
    assert finding.words.endswith("and 1 more: process gone; the next audit marks them failed")
    assert [run.status for run in instance.get_runs()] == [dg.DagsterRunStatus.STARTED] * 3, "nothing is changed"
    assert {run.run_id for run in dead_runs(instance)} == set(dead) == set(mark_dead_runs_failed(instance))
    assert look(workspace)["stale runs"].ok


def test_slots_of_runs_that_are_over_or_unknown(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    run = run_with(instance, {})
    assert runs_stuck_in_pools(instance) == {}
    instance.report_run_failed(instance.get_run_by_id(run))  # type: ignore[arg-type]
    instance.event_log_storage.claim_concurrency_slot(POOL, run, "step")
    instance.event_log_storage.claim_concurrency_slot(POOL, "no such run", "step")
    assert runs_stuck_in_pools(instance) == {POOL: sorted([run, "no such run"])}
    finding = look(workspace)["pool slots"]
    assert not finding.ok
    assert finding.words.startswith(f"{POOL}: held by run ")
    instance.event_log_storage.free_concurrency_slots_for_run(run)
    instance.event_log_storage.free_concurrency_slots_for_run("no such run")
    assert look(workspace)["pool slots"].ok


def test_a_daemons_run_needs_a_daemon(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    run = run_with(instance, {}, slot=False)
    beat(instance, age=7200)
    found = look(workspace)
    assert not found["unwatched runs"].ok
    assert found["unwatched runs"].words.startswith(f"run {run}: no daemon is alive")
    beat(instance, age=0)
    found = look(workspace)
    assert "unwatched runs" not in found
    assert found["daemon"].words.startswith("alive: ")
    assert "sensor" in found["daemon"].words


def test_switches_that_somebody_has_turned(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    location = InProcessCodeLocationOrigin(LoadableTargetOrigin(module_name="made"), location_name="made")
    for name, status in (("switched", InstigatorStatus.RUNNING), ("eager", InstigatorStatus.STOPPED)):
        origin = RemoteInstigatorOrigin(RemoteRepositoryOrigin(location, "__repository__"), name)
        instance.add_instigator_state(InstigatorState(origin, InstigatorType.SENSOR, status))
    assert look(workspace)["sensors"].words == "on: switched; off: eager, shy"


@pytest.mark.parametrize(
    ("change", "what", "words"),
    [
        ({"concurrency": None}, "pools", "default_limit is not set"),
        ({"concurrency": {"pools": {"granularity": "op"}}}, "pools", "default_limit is not set"),
        ({"run_monitoring": {"enabled": False}}, "run monitoring", "not enabled"),
        ({"run_monitoring": None}, "run monitoring", "not enabled"),
    ],
    ids=str,
)
def test_settings_that_would_hang_an_audit(
    workspace: Workspace, instance: dg.DagsterInstance, change: dict[str, object], what: str, words: str
) -> None:
    config = workspace.paths.dagster_home / "dagster.yaml"
    content = {**yaml.safe_load(config.read_text()), **change}
    config.write_text(yaml.safe_dump({key: value for key, value in content.items() if value is not None}))
    found = look(workspace)
    assert [name for name, finding in found.items() if not finding.ok] == [what]
    assert words in found[what].words


@pytest.mark.parametrize("text", ["storage: [", "- a list", "\x00"], ids=["no YAML", "no settings", "no text"])
def test_a_dagster_yaml_that_cannot_be_read(workspace: Workspace, text: str) -> None:
    home = workspace.paths.dagster_home
    home.mkdir(parents=True)
    (home / "dagster.yaml").write_text(text)
    [finding] = examine_dagster(workspace.paths, DEFINITIONS)
    assert not finding.ok
    assert str(home / "dagster.yaml") in finding.words
    assert list(home.iterdir()) == [home / "dagster.yaml"]


@pytest.mark.parametrize(
    "storage",
    [
        {"postgres": {"postgres_db": {"username": {"env": "NO_SUCH_VARIABLE"}, "hostname": "x", "db_name": "x"}}},
        {"sqlite": {"base_dir": "/proc/nowhere"}},
        {"nonsense": {}},
    ],
    ids=["a variable that is not set", "a folder that cannot be", "no storage at all"],
)
def test_a_storage_that_cannot_be_opened(workspace: Workspace, storage: dict[str, object]) -> None:
    home = workspace.paths.dagster_home
    home.mkdir(parents=True)
    settings = {"concurrency": {"pools": {"default_limit": 1}}, "run_monitoring": {"enabled": True}}
    (home / "dagster.yaml").write_text(yaml.safe_dump({**settings, "storage": storage}))
    finding = look(workspace)["Dagster storage"]
    assert not finding.ok
    assert "cannot be opened" in finding.words


def test_the_command_looks_at_both_and_ends_with_zero_or_one(
    workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    workspace.write_benchmarks(made=temporal([8]))
    result = workspace.run("doctor")
    assert result.exit_code == 0, result.output
    for what in ("data folder", "cache", "stale runs", "pools", "daemon"):
        assert f"  {what} " in result.stdout
    run_with(instance, ours("1@12.34"))
    workspace.write_config("models", "models: [")
    result = workspace.run("doctor")
    assert result.exit_code == 1
    wrong = [line.split("  ")[1].strip() for line in result.stdout.splitlines() if line.startswith("!!")]
    assert wrong == ["config/models.yaml", "stale runs"]


def test_the_command_works_where_nothing_was_ever_made(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write_benchmarks(made=temporal([8]))
    workspace.write_models(remote={"hub": "made-up/model"})
    workspace.monkeypatch.setenv("CORPUS_AUDIT_DATA", str(tmp_path / "never" / "made"))
    result = workspace.run("doctor")
    assert result.exit_code == 0, result.output
    assert not (tmp_path / "never").exists()


def test_how_a_run_ended(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    ended = build_run_ending_lookup(workspace.paths)
    us = process_identity(psutil.Process())
    badly, dead, living = (run_with(instance, tags, slot=False) for tags in ({}, ours("1@12.34"), ours(us)))
    well = instance.create_run_for_job(made_job, status=dg.DagsterRunStatus.SUCCESS).run_id
    failed = instance.get_run_by_id(badly)
    assert failed is not None
    instance.report_run_failed(failed)
    assert [ended(run) for run in (well, badly, dead, living, "unknown")] == ["well", "badly", "badly", "not yet", None]


def test_nobody_knows_how_a_run_ended_without_dagster(workspace: Workspace) -> None:
    assert build_run_ending_lookup(workspace.paths)("run") is None
    assert not workspace.paths.dagster_home.exists()


def test_a_control_that_was_never_trained_leaves_the_command_at_zero(workspace: Workspace) -> None:
    workspace.write_benchmarks(made=temporal([8]))
    workspace.write_models(exposed={"control": {"name": "check", "role": "exposed"}}, remote={"hub": "made-up/model"})
    workspace.write_config("controls", {"controls": {"check": tiny_control()}})
    result = workspace.run("doctor", "--deep")
    assert result.exit_code == 0, result.output
    assert "every file" in result.stdout
