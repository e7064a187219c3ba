"""The composition root: assets and orchestration as one Dagster code location (named in workspace.yaml)."""

import dagster as dg

import assets
from audit_pipeline.catalogue.paths import PROJECT_ROOT
from audit_pipeline.operate.dagster.alerting import ALERT_SENSORS
from audit_pipeline.operate.dagster.automation import publish_sensor
from audit_pipeline.operate.dagster.hub_watch import hub_watcher
from audit_pipeline.operate.dagster.jobs import JOBS
from audit_pipeline.operate.dagster.resources import AuditData, Models, ProgressReporter
from audit_pipeline.operate.dagster.schedules import weekly_audit
from audit_pipeline.operate.dagster.sensors import SENSORS


@dg.definitions
def defs() -> dg.Definitions:
    """Everything that the UI, the daemon and the command line run."""
    return dg.Definitions.merge(
        # Left to itself Dagster looks for a pyproject.toml above the package, and an installed one has none.
        dg.load_defs(assets, project_root=PROJECT_ROOT),
        dg.Definitions(
            jobs=JOBS,
            schedules=[weekly_audit(_job)],
            sensors=[*SENSORS, publish_sensor, *ALERT_SENSORS, hub_watcher],
            resources={"data": AuditData(), "models": Models(), "progress": ProgressReporter()},
            executor=dg.in_process_executor,
        ),
    )


def _job(name: str) -> dg.JobDefinition:
    return defs().resolve_job_def(name)
