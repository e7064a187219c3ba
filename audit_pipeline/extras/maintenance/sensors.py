"""The sensor that posts changed findings to a webhook.

Messages about failed runs need no code of this project. Dagster has sensors that send them by mail or to Slack
(docs/scheduled-audits.md).
"""

import os

import dagster as dg

from audit_pipeline.errors import DataError
from audit_pipeline.extras.maintenance import alerts
from audit_pipeline.pipeline.dagster.resources import AuditData
from audit_pipeline.store.files import read_json, write_json


@dg.sensor(
    minimum_interval_seconds=60,
    description="Posts findings that are new, gone or different to the address in CORPUS_AUDIT_WEBHOOK.",
)
def alert_finding_changed(context: dg.SensorEvaluationContext, data: AuditData) -> dg.SensorResult:
    """Send the findings that changed since the last tick, and store all findings. The first tick sends nothing.

    If the webhook does not accept the changes, the tick fails, and the next tick posts them again.

    Raises:
        DataError: If the webhook does not accept the changes, or the stored findings are corrupt.
    """
    paths = data.paths
    url = os.environ.get(alerts.WEBHOOK, "").strip()
    if not url:
        return dg.SensorResult(skip_reason=f"{alerts.WEBHOOK} is not set.")
    if not paths.warehouse.exists():
        return dg.SensorResult(skip_reason="The warehouse is not built yet.")
    # Dagster stores the cursor with every tick, so it must be short, and the findings are in a file.
    cursor = str(paths.warehouse.stat().st_mtime_ns)
    if context.cursor == cursor:
        return dg.SensorResult(skip_reason="The warehouse has not changed since the last tick.")
    findings = alerts.read_findings(paths.warehouse)
    if not paths.reported_findings.exists():
        write_json(paths.reported_findings, {"findings": findings})
        return dg.SensorResult(skip_reason=f"Changes of {len(findings)} findings will be posted.", cursor=cursor)
    try:
        before = [alerts.WatchedFinding(*row) for row in read_json(paths.reported_findings)["findings"]]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{paths.reported_findings} is corrupt ({error}). Delete it. The next tick stores the current findings."
        ) from error
    changes = alerts.compare_findings(before, findings)
    if not changes:
        return dg.SensorResult(skip_reason=f"None of {len(findings)} findings changed.", cursor=cursor)
    alerts.post_changes(changes, url)
    write_json(paths.reported_findings, {"findings": findings})
    return dg.SensorResult(skip_reason=f"Posted the changes of {len(changes)} pairs.", cursor=cursor)
