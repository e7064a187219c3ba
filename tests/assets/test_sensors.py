"""Ticks of the sensors that post changed findings or watch the hub."""

from __future__ import annotations

import dagster as dg
import pytest
from made_workspace import Workspace

from audit_pipeline import definitions
from audit_pipeline.errors import DataError, TransientError
from audit_pipeline.extras.maintenance import sensors as alert_sensors
from audit_pipeline.pipeline.dagster.resources import AuditData
from audit_pipeline.pipeline.publication import build_warehouse

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits", "few_detectors", "no_report")


def said(result: dg.SensorResult) -> str:
    """Return the skip message of a tick."""
    assert result.skip_reason is not None
    return str(result.skip_reason.skip_message)


def test_findings_that_change_are_posted_once(built: Workspace, instance: dg.DagsterInstance) -> None:
    posted: list[dict[tuple[str, str], str]] = []
    fault: list[Exception] = [DataError("The webhook did not accept the changes.")]

    def post(changes: dict[tuple[str, str], str], url: str) -> None:
        assert url == "https://hook.example/1"
        if fault:
            raise fault.pop()
        posted.append(changes)

    built.monkeypatch.setattr(alert_sensors, "post_changes", post)
    built.monkeypatch.delenv("CORPUS_AUDIT_WEBHOOK", raising=False)
    cursors: list[str | None] = [None]

    def tick() -> dg.SensorResult:
        context = dg.build_sensor_context(instance=instance, cursor=cursors[-1])
        result = alert_sensors.alert_finding_changed(context, data=AuditData())
        assert isinstance(result, dg.SensorResult)
        cursors.append(result.cursor if result.cursor is not None else cursors[-1])
        return result

    assert said(tick()) == "The environment variable CORPUS_AUDIT_WEBHOOK is not set, so nothing is posted."
    built.monkeypatch.setenv("CORPUS_AUDIT_WEBHOOK", "https://hook.example/1")
    assert said(tick()) == "The warehouse is not built yet."
    built.audit("one", "made_8")
    build_warehouse(built.paths)
    assert "later ticks post their changes" in said(tick())
    built.audit("two", "made_8")
    build_warehouse(built.paths)
    with pytest.raises(DataError, match="did not accept"):
        tick()
    assert said(tick()) == "Posted the changes of 1 pairs.", "the next tick posts what the last one could not"
    assert [list(changes) for changes in posted] == [[("two", "made_8")]]
    assert said(tick()) == "The warehouse has not changed since the last tick."
    assert len(str(cursors[-1])) < 30, "the cursor is stored with every tick"
    build_warehouse(built.paths)
    assert "None of" in said(tick())
    assert len(posted) == 1


def test_the_hub_is_not_queried_if_no_owner_is_watched(workspace: Workspace) -> None:
    with dg.build_sensor_context() as context:
        skipped = definitions.hub_watcher(context)
    assert "names no owner" in str(skipped.skip_message)


def test_an_unreachable_hub_ends_the_tick_with_a_reason(workspace: Workspace) -> None:
    workspace.write_config("watch", {"hub": ["some-owner"]})

    def unreachable(name: str) -> None:
        raise TransientError(f"the hub cannot be reached for {name}")

    workspace.monkeypatch.setattr("audit_pipeline.models.model_proposals.list_candidates", unreachable)
    with dg.build_sensor_context() as context, pytest.raises(TransientError, match="some-owner"):
        definitions.hub_watcher(context)
    assert not (workspace.config / "models.proposed.yaml").exists()
