"""The sensors that tell somebody: of runs that failed, and of findings that changed.

What belongs here: ticks, and what an alert says of a run. What does not: which changes of findings count
(operate/alerts/changes.py), and how an alert travels (operate/alerts/deliver.py).
"""

import json
from typing import Any

import dagster as dg

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.tables import read_json, write_json
from audit_pipeline.errors import AuditError, DataError
from audit_pipeline.operate.alerts.changes import State, changes, from_text, read_findings, to_text
from audit_pipeline.operate.alerts.deliver import Alert, NotKeptError, deliver
from audit_pipeline.operate.dagster.resources import AuditData
from audit_pipeline.operate.dagster.tags import WEEKLY_TAG
from audit_pipeline.warehouse.shared import bring_current

_TOLD_TAGS = (
    "dagster/partition",
    "dagster/asset_partition_range_start",
    "dagster/asset_partition_range_end",
    "dagster/backfill",
    "dagster/schedule_name",
    "dagster/sensor_name",
)


@dg.run_failure_sensor(
    minimum_interval_seconds=30,
    # Runs of the command line, and those that the weekly audit starts, belong to no code location.
    monitor_all_code_locations=True,
    description="Tells the webhook in CORPUS_AUDIT_WEBHOOK, or data/alerts.jsonl where there is none, of every run "
    "that failed.",
)
def alert_run_failed(context: dg.RunFailureSensorContext, data: AuditData) -> None:
    """One failed run. An alert that cannot be delivered is kept in the file, and the tick shows why."""
    run = context.dagster_run
    if WEEKLY_TAG in run.tags:
        # The weekly audit that asked for it fails as well, and names it.
        return
    reasons = [_reason(event) for event in context.get_step_failure_events()]
    alert = Alert(
        kind="run_failed",
        title=f"run {run.run_id[:8]} of {run.job_name} failed",
        lines=tuple(reasons or [context.failure_event.message or "no reason was given"]),
        details={
            "run_id": run.run_id,
            "job": run.job_name,
            **{tag.removeprefix("dagster/"): run.tags[tag] for tag in _TOLD_TAGS if tag in run.tags},
        },
    )
    context.log.info(deliver(alert, data.paths, patient=False))


def _reason(event: dg.DagsterEvent) -> str:
    """The step and what the error says of itself, without Dagster's words around it and without a stack trace."""
    error: Any = event.step_failure_data.error
    while error is not None and str(error.cls_name).startswith("Dagster") and error.cause is not None:
        error = error.cause
    message = error.message if error is not None else event.message
    return f"{event.step_key}: {' '.join(str(message).split())}"


@dg.sensor(
    minimum_interval_seconds=60,
    description="Tells the webhook in CORPUS_AUDIT_WEBHOOK, or data/alerts.jsonl where there is none, of findings that "
    "are new, gone, or say something else than before.",
)
def alert_finding_changed(context: dg.SensorEvaluationContext, data: AuditData) -> dg.SensorResult:
    """Compare the warehouse with the last one seen; the first tick only looks."""
    paths = data.paths
    bring_current(paths.warehouse)
    if not paths.warehouse.exists():
        return dg.SensorResult(skip_reason="there is no warehouse yet")
    # The cursor is stored with every tick, so the findings themselves are kept in a file.
    cursor = str(paths.warehouse.stat().st_mtime_ns)
    if context.cursor == cursor:
        return dg.SensorResult(skip_reason="the warehouse is the one that was looked at")
    findings = read_findings(paths.warehouse)
    if not paths.findings_told.exists():
        _remember(paths, findings)
        return dg.SensorResult(skip_reason=f"{len(findings)} findings are watched from now on", cursor=cursor)
    changed = changes(_read_reported_findings(paths), findings)
    if not changed:
        return dg.SensorResult(skip_reason=f"none of {len(findings)} findings changed", cursor=cursor)
    alert = Alert(
        kind="finding_changed",
        title=f"findings of {len(changed)} model(s) on a benchmark changed",
        lines=tuple(change.words for change in changed),
        details={
            "changes": [
                {"model": change.model, "benchmark": change.benchmark, "kinds": list(change.kinds)}
                for change in changed
            ]
        },
    )
    try:
        told = deliver(alert, paths)
    except NotKeptError:
        # Neither sent nor kept: the cursor stays, and the next tick tells it again.
        raise
    except AuditError as error:
        # It lies in the file by now; told again at every tick, it would be there as often.
        context.log.error(str(error))
        told = str(error)
    _remember(paths, findings)
    return dg.SensorResult(skip_reason=f"{len(changed)} pairs changed; {told}", cursor=cursor)


def _read_reported_findings(paths: DataPaths) -> State:
    try:
        content = read_json(paths.findings_told)
    except ValueError as error:
        raise DataError(f"{error}: delete {paths.findings_told}, and comparing starts anew") from error
    return from_text(json.dumps(content))


def _remember(paths: DataPaths, findings: State) -> None:
    write_json(paths.findings_told, json.loads(to_text(findings)))


ALERT_SENSORS = [alert_run_failed, alert_finding_changed]
