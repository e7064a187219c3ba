"""Documents before what is made of them: sources fetched where they are missing or their settings have changed.

What belongs here: the runs that fetch, for controls, studies and token frequencies. What does not: fetching (sources/),
and an audit's own sources, which it may be asked to refresh and may go without (audit.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import dagster as dg

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.operate.dagster import in_process
from audit_pipeline.sources.config import load_source_settings
from audit_pipeline.sources.store import is_stale

Jobs = Callable[[str], dg.JobDefinition]


def ensure_documents(
    sources: Iterable[str],
    jobs: Jobs,
    instance: dg.DagsterInstance,
    paths: DataPaths,
    tell: Callable[[str], None],
    tags: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Fetch those of ``sources`` that are stale; returns the runs by what they were for.

    Raises the AuditError that kept one from being fetched.
    """
    runs = {}
    for source in sources:
        if is_stale(source, paths, load_source_settings()):
            tell(f"fetching documents: {source}")
            key = dg.AssetKey(["documents", source])
            runs[f"documents/{source}"] = in_process.run_job(
                jobs("refresh_sources"), instance, selection=[key], tags=tags, on_wait=tell
            )
    return runs
