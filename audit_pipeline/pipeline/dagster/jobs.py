"""The jobs that the UI offers and the command line runs."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from audit_pipeline.pipeline.dagster.asset_definitions import build_op_config
from audit_pipeline.pipeline.dagster.conditions import select_stages
from audit_pipeline.pipeline.registry import REPORT_STAGES, STAGES
from audit_pipeline.pipeline.stage import Stage, StageJob


def _build_job(job: StageJob, *stages: Stage, options: Mapping[str, Any] | None = None) -> Any:
    """Return a job over the assets of stages, in one process: each further one would load the model again."""
    config = {"ops": build_op_config({stages[0].name: options})} if options else None
    return dg.define_asset_job(
        job.name,
        selection=select_stages(*stages),
        description=job.description,
        config=config,
        executor_def=dg.in_process_executor,
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
