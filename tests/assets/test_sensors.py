"""Ticks of the sensors that alert people or watch the hub."""

from __future__ import annotations

import json
from typing import Any

import dagster as dg
import pytest
from made_workspace import Workspace

from audit_pipeline.definitions import defs
from audit_pipeline.errors import TransientError
from audit_pipeline.extras.maintenance import sensors as alert_sensors
from audit_pipeline.pipeline.dagster import sensors
from audit_pipeline.pipeline.dagster.resources import AuditData
from audit_pipeline.pipeline.publication import build_warehouse

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits", "few_detectors", "no_report")


class Ticking:
    """A sensor, tick after tick."""

    def __init__(self, sensor: Any, instance: dg.DagsterInstance) -> None:
        self.sensor = sensor
        self.instance = instance
        self.cursor: str | None = None

    def __call__(self) -> dg.SensorResult:
        context = dg.build_sensor_context(instance=self.instance, cursor=self.cursor)
        result: dg.SensorResult = self.sensor(context, data=AuditData())
        self.cursor = result.cursor if result.cursor is not None else self.cursor
        return result


def said(result: dg.SensorResult) -> str:
    """The words of a tick that asks for nothing."""
    assert result.skip_reason is not None
    return str(result.skip_reason.skip_message)


def alerts(workspace: Workspace) -> list[dict[str, Any]]:
    if not workspace.paths.alerts.exists():
        return []
    return [json.loads(line) for line in workspace.paths.alerts.read_text().splitlines()]


def test_findings_that_change_are_told_once(built: Workspace, instance: dg.DagsterInstance) -> None:
    built.monkeypatch.delenv("CORPUS_AUDIT_WEBHOOK", raising=False)
    tick = Ticking(alert_sensors.alert_finding_changed, instance)
    assert said(tick()) == "there is no warehouse yet"
    built.audit("one", "made_8")
    build_warehouse(built.paths)
    assert "are watched from now on" in said(tick())
    built.audit("two", "made_8")
    build_warehouse(built.paths)
    assert "1 pairs changed" in said(tick())
    [alert] = alerts(built)
    assert alert["kind"] == "finding_changed"
    assert [change["model"] for change in alert["details"]["changes"]] == ["two"]
    assert said(tick()) == "the warehouse is the one that was looked at"
    assert len(str(tick.cursor)) < 30, "the cursor is stored with every tick"
    build_warehouse(built.paths)
    assert "none of" in said(tick())
    assert len(alerts(built)) == 1


def failure_tick(instance: dg.DagsterInstance, cursor: str | None) -> str | None:
    """One tick of alert_run_failed as the daemon makes it; returns the next cursor."""
    repository = defs().get_repository_def()
    with dg.build_sensor_context(
        instance=instance, cursor=cursor, repository_def=repository, resources={"data": AuditData()}
    ) as context:
        tick = alert_sensors.alert_run_failed.evaluate_tick(context)
    assert all(reaction.error is None for reaction in tick.dagster_run_reactions or [])
    return tick.cursor


def test_every_failed_run_is_told_once_with_its_reason(built: Workspace, instance: dg.DagsterInstance) -> None:
    built.monkeypatch.delenv("CORPUS_AUDIT_WEBHOOK", raising=False)
    instance.add_dynamic_partitions("benchmark", ["made_8"])
    instance.add_dynamic_partitions("model", ["one"])
    cursor = failure_tick(instance, None)
    built.paths.examples("made_8").unlink()
    job = defs().resolve_job_def("audit_pairs")
    for tags in ({}, {"corpus_audit/weekly_audit": "its run fails as well"}):
        job.execute_in_process(instance=instance, partition_key="made_8|one", tags=tags, raise_on_error=False)
    cursor = failure_tick(instance, cursor)
    failure_tick(instance, cursor)
    [alert] = alerts(built)
    assert alert["kind"] == "run_failed"
    assert alert["details"]["partition"] == "made_8|one"
    [line] = alert["lines"]
    assert line.startswith("token_statistics of made_8|one: the benchmark made_8 has not been built yet")
    assert "Stack" not in line


def test_the_hub_is_not_asked_where_nothing_is_watched(workspace: Workspace) -> None:
    with dg.build_sensor_context() as context:
        skipped = sensors.hub_watcher(context)
    assert "names no owner" in str(skipped.skip_message)


def test_a_hub_that_cannot_be_reached_ends_the_tick_with_words(workspace: Workspace) -> None:
    workspace.write_config("watch", {"hub": ["some-owner"]})

    def unreachable(name: str) -> None:
        raise TransientError(f"the hub cannot be reached for {name}")

    workspace.monkeypatch.setattr("audit_pipeline.models.model_proposals.list_candidates", unreachable)
    with dg.build_sensor_context() as context, pytest.raises(TransientError, match="some-owner"):
        sensors.hub_watcher(context)
    assert not (workspace.config / "models.proposed.yaml").exists()
