"""The jobs that the UI offers and the command line runs, and the sensor that publishes."""

import os
from collections.abc import Mapping
from typing import Any

import dagster as dg

from audit_pipeline.pipeline.dagster.asset_definitions import build_op_config
from audit_pipeline.pipeline.registry import REPORT_STAGES, STAGES
from audit_pipeline.pipeline.stage import SOURCE, Stage, StageJob

PUBLISHING_IS_ON = "CORPUS_AUDIT_PUBLISH"
"""Environment variable that switches publishing on if nobody switched it on or off in the UI."""


def build_publish_sensor() -> dg.AutomationConditionSensorDefinition:
    """Return the sensor that rebuilds warehouse and report after an audit; it is on if ``PUBLISHING_IS_ON`` is set."""
    status = dg.DefaultSensorStatus.STOPPED
    if os.environ.get(PUBLISHING_IS_ON):
        status = dg.DefaultSensorStatus.RUNNING
    return dg.AutomationConditionSensorDefinition(
        "publish_what_is_new",
        target=dg.AssetSelection.assets(*(stage.name for stage in REPORT_STAGES)),
        minimum_interval_seconds=30,
        default_status=status,
        description="Rebuilds the warehouse after any audit or backfill, and then the report. While it is off, new "
        "findings are in neither. `corpus-audit dev` switches it on; elsewhere, set CORPUS_AUDIT_PUBLISH=1 for the "
        "process that serves the definitions, or switch it on here.",
    )


def _build_job(job: StageJob, *stages: Stage, options: Mapping[str, Any] | None = None) -> Any:
    """Return a job over the assets of stages, in one process: each further one would load the model again."""
    selection: dg.AssetSelection = dg.AssetSelection.assets()
    for stage in stages:
        if stage.dimensions == SOURCE:
            selection |= dg.AssetSelection.key_prefixes([stage.name])
        else:
            selection |= dg.AssetSelection.assets(stage.name)
    config = {"ops": build_op_config({stages[0].name: options})} if options else None
    return dg.define_asset_job(
        job.name, selection=selection, description=job.description, config=config, executor_def=dg.in_process_executor
    )


_ALL = (*STAGES, *REPORT_STAGES)
JOBS = [
    *(
        _build_job(job, *(stage for stage in _ALL if stage.job == job))
        for job in dict.fromkeys(stage.job for stage in _ALL)
    ),
    *(
        _build_job(stage.standalone_job, stage, options=stage.standalone_options)
        for stage in STAGES
        if stage.standalone_job is not None
    ),
]
