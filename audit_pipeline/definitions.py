"""The composition root: assets and orchestration as one Dagster code location (named in workspace.yaml)."""

import dagster as dg

import assets
from audit_pipeline.orchestration.jobs import JOBS
from audit_pipeline.orchestration.resources import AuditData, Models, ProgressTeller


@dg.definitions
def defs() -> dg.Definitions:
    """Everything that the UI, the daemon and the command line run."""
    return dg.Definitions.merge(
        dg.load_defs(assets),
        dg.Definitions(
            jobs=JOBS,
            resources={"data": AuditData(), "models": Models(), "progress": ProgressTeller()},
            executor=dg.in_process_executor,
        ),
    )
