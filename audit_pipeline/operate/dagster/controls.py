"""Controls before an audit: trained where they are missing or their entry has changed.

What belongs here: whether a control is trained, and the runs that train it. What does not: training (controls/).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import dagster as dg

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.controls.config import load_controls
from audit_pipeline.controls.current import is_current
from audit_pipeline.operate.dagster import in_process
from audit_pipeline.operate.dagster.documents import Jobs, ensure_documents


def ensure_control(
    name: str,
    jobs: Jobs,
    instance: dg.DagsterInstance,
    paths: DataPaths,
    tell: Callable[[str], None],
    *,
    device: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Train the control ``name``, with its documents fetched first, unless it is there as its entry has it.

    Returns the runs that this took, by what they were for. Raises the AuditError that kept it from being trained.
    """
    entry = load_controls().named(name)
    runs = ensure_documents(entry.sources, jobs, instance, paths, tell, tags)
    if is_current(entry, paths):
        return runs
    tell(f"training the control {name}: one model on its members, its twin on other texts")
    runs[f"controls/{name}"] = in_process.run_job(
        jobs("train_controls"),
        instance,
        partition_key=name,
        resources={"models": {"device": device}} if device is not None else None,
        tags=tags,
        on_wait=tell,
    )
    return runs
