"""The findings of the doctor on Dagster: unusable storage and dead runs. The doctor changes nothing."""

from __future__ import annotations

import dagster as dg
import pytest
import yaml
from made_workspace import Workspace, temporal, tiny_control

from audit_pipeline.errors import DataError
from audit_pipeline.extras.maintenance.doctor import examine_dagster
from audit_pipeline.pipeline.dagster.instance import ensure_dagster_home, mark_dead_runs_failed
from audit_pipeline.pipeline.dagster.locks import lock_liveness_file


@dg.job(name="made")
def made_job() -> None:
    """Do nothing."""


def test_a_home_that_was_never_made_is_not_made(workspace: Workspace) -> None:
    home = workspace.paths.dagster_home
    assert examine_dagster(workspace.paths).ok
    assert not home.exists()
    home.write_text("a file, and no folder")
    assert not examine_dagster(workspace.paths).ok
    with pytest.raises(DataError, match=r"the Dagster home .* cannot be written"):
        ensure_dagster_home(workspace.paths)


def test_dead_runs_are_named_and_left_for_the_next_audit(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    assert examine_dagster(workspace.paths).ok
    run = instance.create_run_for_job(made_job).run_id
    lock = lock_liveness_file(workspace.paths, run)
    assert lock is not None
    assert examine_dagster(workspace.paths).ok, "at work"
    lock.release()
    finding = examine_dagster(workspace.paths)
    assert (finding.ok, finding.items) == (False, [run])
    assert [one.status for one in instance.get_runs()] == [dg.DagsterRunStatus.NOT_STARTED]
    mark_dead_runs_failed(instance, workspace.paths)
    assert examine_dagster(workspace.paths).ok


@pytest.mark.parametrize(
    "content",
    [
        "storage: [",
        yaml.safe_dump({"storage": {"postgres": {"postgres_db": {"hostname": "nowhere.invalid"}}}}),
    ],
)
def test_a_storage_that_cannot_be_opened(workspace: Workspace, content: str) -> None:
    ensure_dagster_home(workspace.paths)
    (workspace.paths.dagster_home / "dagster.yaml").write_text(content)
    finding = examine_dagster(workspace.paths)
    assert not finding.ok
    assert finding.message.startswith(
        f"The storage that {workspace.paths.dagster_home / 'dagster.yaml'} configures is unusable"
    )
    assert "\n" not in finding.message


def test_the_command_ends_with_zero_or_one(workspace: Workspace) -> None:
    workspace.write_models(tiny={"control": {"name": "check", "role": "exposed"}})
    workspace.write_config("controls", {"controls": {"check": tiny_control()}})
    workspace.write_benchmarks(made=temporal([8]))
    result = workspace.run("doctor")
    assert (result.exit_code, "!!" in result.stdout) == (0, False), result.output
    workspace.write_config("models", "models: [")
    result = workspace.run("doctor", "--deep", "--all")
    assert result.exit_code == 1
    assert any(line.startswith("!!") and "models.yaml" in line for line in result.stdout.splitlines())
