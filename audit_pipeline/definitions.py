"""The Dagster code location, which workspace.yaml names: assets, jobs, schedules, sensors and resources."""

import warnings

import dagster as dg

from audit_pipeline.errors import ConfigError
from audit_pipeline.models.model_proposals import load_watched
from audit_pipeline.pipeline.dagster.asset_definitions import build_assets, build_jobs
from audit_pipeline.pipeline.dagster.conditions import build_audit_sensor, build_publish_sensor
from audit_pipeline.pipeline.dagster.observed_inputs import build_observed_assets, observe_inputs
from audit_pipeline.pipeline.dagster.partition_step import plan_cells_one_by_one
from audit_pipeline.pipeline.dagster.partitions import register_configured
from audit_pipeline.pipeline.dagster.resources import AuditData, ModelsResource, ProgressReporter
from audit_pipeline.pipeline.dagster.sensors import SENSORS
from audit_pipeline.pipeline.dagster.weekly import build_weekly_schedule


@dg.definitions
def defs() -> dg.Definitions:
    """Return all definitions for the UI, the daemon and the command line, and register the configured partitions."""
    plan_cells_one_by_one()
    register_configured()
    try:
        owners = list(load_watched().get("owners", ()))
    except ConfigError:
        # Without owners the assets still work. The hub watcher and doctor report the invalid file.
        owners = []
    with warnings.catch_warnings():
        # Users cannot act on warnings that a later version of Dagster may change these functions.
        for category in (dg.BetaWarning, dg.PreviewWarning):
            warnings.simplefilter("ignore", category)
        assets = dg.map_asset_specs(lambda spec: spec.replace_attributes(owners=owners), build_assets())
        return dg.Definitions(
            assets=[*assets, *build_observed_assets()],
            jobs=build_jobs(),
            schedules=[build_weekly_schedule(lambda name: defs().resolve_job_def(name))],
            sensors=[observe_inputs, build_audit_sensor(), build_publish_sensor(), *SENSORS],
            resources={"data": AuditData(), "models": ModelsResource(), "progress": ProgressReporter()},
            executor=dg.in_process_executor,
        )
