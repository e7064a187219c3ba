"""The composition root: assets and orchestration as one Dagster code location (named in workspace.yaml)."""

import warnings

import dagster as dg

from assets import stages
from assets.reports import contamination_report, warehouse
from audit_pipeline.errors import ConfigError
from audit_pipeline.models.watch import load_watched
from audit_pipeline.operate.dagster.jobs import JOBS, publish_sensor
from audit_pipeline.operate.dagster.resources import AuditData, Models, ProgressReporter
from audit_pipeline.operate.dagster.sensors import ALERT_SENSORS, SENSORS, hub_watcher
from audit_pipeline.operate.dagster.weekly import build_weekly_schedule


@dg.definitions
def defs() -> dg.Definitions:
    """Everything that the UI, the daemon and the command line run."""
    owners = _read_owners()
    with warnings.catch_warnings():
        # Some of what is used here may change in a later version of Dagster: nothing that a user can act on.
        for category in (dg.BetaWarning, dg.PreviewWarning):
            warnings.simplefilter("ignore", category)
        # Those of the stages name their code themselves: it is not where Dagster would look.
        defined = [*stages.STAGE_ASSETS, *dg.with_source_code_references([warehouse, contamination_report])]
    return dg.Definitions(
        # All are AssetsDefinitions: the package holds nothing else.
        assets=dg.map_asset_specs(lambda spec: spec.replace_attributes(owners=owners), defined),  # type: ignore[arg-type]
        jobs=JOBS,
        schedules=[build_weekly_schedule(_resolve_job)],
        sensors=[*SENSORS, publish_sensor, *ALERT_SENSORS, hub_watcher],
        resources={"data": AuditData(), "models": Models(), "progress": ProgressReporter()},
        executor=dg.in_process_executor,
    )


def _read_owners() -> list[str]:
    """Who watches over the assets; nobody where watch.yaml cannot be read, which the hub watcher and doctor report."""
    try:
        return list(load_watched().get("owners", ()))
    except ConfigError:
        return []


def _resolve_job(name: str) -> dg.JobDefinition:
    return defs().resolve_job_def(name)
