"""The Dagster code location, which workspace.yaml names: assets, jobs, schedules, sensors and resources.

It also defines the sensor that watches the hub, and collects the sensors of extras from their modules ``sensors``.
"""

import warnings
from collections.abc import Mapping, Sequence

import dagster as dg
from huggingface_hub import ModelInfo

from audit_pipeline import extras
from audit_pipeline.config.plugins import collect_by_name
from audit_pipeline.errors import ConfigError
from audit_pipeline.models import model_proposals
from audit_pipeline.models.config import load_models
from audit_pipeline.pipeline.dagster.asset_definitions import build_assets, build_jobs
from audit_pipeline.pipeline.dagster.conditions import build_audit_sensor, build_publish_sensor
from audit_pipeline.pipeline.dagster.observed_inputs import build_observed_assets, observe_inputs
from audit_pipeline.pipeline.dagster.partition_step import plan_cells_one_by_one
from audit_pipeline.pipeline.dagster.partitions import register_configured
from audit_pipeline.pipeline.dagster.resources import AuditData, ModelsResource, ProgressReporter
from audit_pipeline.pipeline.dagster.weekly import build_weekly_schedule


@dg.definitions
def defs() -> dg.Definitions:
    """Return all definitions for the UI, the daemon and the command line, and register the configured partitions."""
    plan_cells_one_by_one()
    register_configured()
    try:
        owners = list(model_proposals.load_watched().get("owners", ()))
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


@dg.sensor(
    minimum_interval_seconds=6 * 3600,
    description="Looks up the owners in config/watch.yaml on the hub and writes their models that are not configured "
    "yet to config/models.proposed.yaml. It audits nothing. To audit a model, move its entry to models.yaml.",
)
def hub_watcher(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Write the models of watched owners that are not configured yet to config/models.proposed.yaml.

    Raises:
        TransientError: If the hub cannot be reached. The next tick tries again.
    """
    listed = model_proposals.load_watched()
    watched: Sequence[str] = ()
    if "hub" in listed.names:
        watched = listed.get_entry("hub")
    if not watched:
        return dg.SkipReason("config/watch.yaml names no owner to watch")
    candidates: list[ModelInfo] = []
    for owner in watched:
        candidates += model_proposals.list_candidates(owner)
    proposals = model_proposals.propose_entries(candidates, load_models())
    model_proposals.write_proposals(model_proposals.proposals_path(), proposals)
    return dg.SkipReason(f"{len(proposals)} of {len(candidates)} models proposed in {model_proposals.proposals_path()}")


_SENSORS_OF_EXTRAS: Mapping[str, dg.SensorDefinition] = collect_by_name(
    extras.find_modules("sensors"),
    label="sensors",
    is_wanted=lambda value: isinstance(value, dg.SensorDefinition),
    name_of=lambda sensor: sensor.name,
)
SENSORS = [*_SENSORS_OF_EXTRAS.values(), hub_watcher]
