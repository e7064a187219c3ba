"""The jobs that the UI offers and the command line runs, from the stages, and when warehouse and report follow."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from audit_pipeline.pipeline.stage import Job, Stage
from audit_pipeline.pipeline.stages.publication import REPORT_STAGES
from audit_pipeline.pipeline.stages.registry import STAGES

REBUILT = (
    dg.AutomationCondition.any_deps_match(dg.AutomationCondition.newly_updated()).since(
        dg.AutomationCondition.newly_requested()
    )
    & ~dg.AutomationCondition.in_progress()
).with_label("rebuilt when anything upstream was")
"""For what is rebuilt whole, however much is missing upstream: eager() would wait for every partition, so for ever.

Not any_deps_updated().since_last_handled() either: the two are made of "and" and "or", which forget when a thing
happened, so that what is updated while a rebuild runs would be taken for handled by it. Without them the later of
update and request decides, and the last pair of an audit is never left out, nor a
warehouse that is built while the report is made.
"""

publish_sensor = dg.AutomationConditionSensorDefinition(
    "publish_what_is_new",
    target=dg.AssetSelection.assets(*(stage.name for stage in REPORT_STAGES)),
    minimum_interval_seconds=30,
    description="Rebuilds the warehouse after any audit, and then the report.",
)


def _build_job(job: Job, *stages: Stage, options: Mapping[str, Any] | None = None) -> Any:
    """A job over the assets of these stages; one process: every further one would import torch and load the model
    again."""
    selection: dg.AssetSelection = dg.AssetSelection.assets()
    for stage in stages:
        of_source = stage.dimensions == ("source",)
        selection |= dg.AssetSelection.key_prefixes([stage.name]) if of_source else dg.AssetSelection.assets(stage.name)
    config = {"ops": {stages[0].name: {"config": dict(options)}}} if options else None
    return dg.define_asset_job(
        job.name, selection=selection, description=job.description, config=config, executor_def=dg.in_process_executor
    )


_ALL = (*STAGES, *REPORT_STAGES)
JOBS = [
    *(
        _build_job(job, *(stage for stage in _ALL if stage.job == job))
        for job in dict.fromkeys(stage.job for stage in _ALL)
    ),
    *(_build_job(stage.alone, stage, options=stage.alone_options) for stage in STAGES if stage.alone is not None),
]
