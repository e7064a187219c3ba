"""The sensors that tell people what happened: a run failed, a finding changed."""

import re
from typing import Any

import dagster as dg

from audit_pipeline.errors import DataError, to_one_line
from audit_pipeline.extras.maintenance.alerts import Alert, WatchedFinding, compare_findings, deliver, read_findings
from audit_pipeline.pipeline.dagster.resources import AuditData
from audit_pipeline.pipeline.dagster.tags import WEEKLY_TAG
from audit_pipeline.store.files import read_json, write_json
from audit_pipeline.store.ledger import read_ledger
from audit_pipeline.store.paths import DataPaths

_REPORTED_TAGS = (
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
    description="Reports to the webhook in CORPUS_AUDIT_WEBHOOK, or else to data/alerts.jsonl, every run that failed.",
)
def alert_run_failed(context: dg.RunFailureSensorContext, data: AuditData) -> None:
    """One failed run. An alert that cannot be delivered is kept in the file, and the log of the tick shows why."""
    run = context.dagster_run
    if WEEKLY_TAG in run.tags:
        # The weekly audit that asked for it fails as well, and names it.
        return
    reasons = _list_failed_cells(run.run_id, data.paths)
    if not reasons:
        reasons = [_format_failure(event) for event in context.get_step_failure_events()]
    alert = Alert(
        kind="run_failed",
        title=f"run {run.run_id[:8]} of {run.job_name} failed",
        lines=tuple(reasons or [context.failure_event.message or "no reason was given"]),
        details={
            "run_id": run.run_id,
            "job": run.job_name,
            **{tag.removeprefix("dagster/"): run.tags[tag] for tag in _REPORTED_TAGS if tag in run.tags},
        },
    )
    context.log.info(deliver(alert, data.paths))


def _list_failed_cells(run_id: str, paths: DataPaths) -> list[str]:
    """Return the failed pairs of a run, each with the asset at which it failed and the reason."""
    outcomes = [outcome for outcome in read_ledger(paths).outcomes if outcome.run_id == run_id]
    return [
        f"{outcome.stage} of {outcome.pair.partition}: {outcome.reason}"
        for outcome in outcomes
        if outcome.status == "failed"
    ]


def _format_failure(event: dg.DagsterEvent) -> str:
    """Return the step and the message of its error, without Dagster's words around it and without a stack trace."""
    error: Any = event.step_failure_data.error
    while error is not None and str(error.cls_name).startswith("Dagster") and error.cause is not None:
        error = error.cause
    message = to_one_line(str(event.message if error is None else error.message))
    # Python puts the name of the class before the message.
    words = re.sub(r"^[\w.]+: ", "", message)
    return f"{event.step_key}: {words}"


@dg.sensor(
    minimum_interval_seconds=60,
    description="Reports to the webhook in CORPUS_AUDIT_WEBHOOK, or else to data/alerts.jsonl, findings that "
    "are new, gone, or say something else than before.",
)
def alert_finding_changed(context: dg.SensorEvaluationContext, data: AuditData) -> dg.SensorResult:
    """Compare the warehouse with the last one seen; the first tick only looks."""
    paths = data.paths
    if not paths.warehouse.exists():
        return dg.SensorResult(skip_reason="there is no warehouse yet")
    # The cursor is stored with every tick, so the findings themselves are kept in a file.
    cursor = str(paths.warehouse.stat().st_mtime_ns)
    if context.cursor == cursor:
        return dg.SensorResult(skip_reason="the warehouse is the one that was looked at")
    findings = read_findings(paths.warehouse)
    if not paths.reported_findings.exists():
        write_json(paths.reported_findings, {"findings": findings})
        return dg.SensorResult(skip_reason=f"{len(findings)} findings are watched from now on", cursor=cursor)
    try:
        before = [WatchedFinding(*row) for row in read_json(paths.reported_findings)["findings"]]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{error}: delete {paths.reported_findings}, and comparing starts anew") from error
    changed = compare_findings(before, findings)
    if not changed:
        return dg.SensorResult(skip_reason=f"none of {len(findings)} findings changed", cursor=cursor)
    alert = Alert(
        kind="finding_changed",
        title=f"findings of {len(changed)} model(s) on a benchmark changed",
        lines=tuple(changed.values()),
        details={"changes": [{"model": model, "benchmark": benchmark} for model, benchmark in changed]},
    )
    delivered = deliver(alert, paths)
    write_json(paths.reported_findings, {"findings": findings})
    return dg.SensorResult(skip_reason=f"{len(changed)} pairs changed; {delivered}", cursor=cursor)
