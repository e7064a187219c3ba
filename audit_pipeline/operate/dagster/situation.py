"""What there is now: the configuration, what is built and audited, and what Dagster is busy with.

What belongs here: reading all that for the sensors, the schedule and the command line. What does not: deciding what
follows from it (planning.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import dagster as dg

from audit_pipeline.benchmarks.build import benchmark_digest, current_digest
from audit_pipeline.benchmarks.built import read_built
from audit_pipeline.benchmarks.config import BenchmarkSpec
from audit_pipeline.benchmarks.staleness import is_on_hub
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.tables import read_json
from audit_pipeline.errors import AuditError, ConfigError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.version import entry_version
from audit_pipeline.operate.dagster.in_process import UNFINISHED
from audit_pipeline.operate.dagster.planning import BenchmarkNow
from audit_pipeline.operate.done import built_digest
from audit_pipeline.sources.config import SourceSettings
from audit_pipeline.sources.store import is_stale as source_is_stale

PREPARING_JOBS = ("refresh_sources", "build_benchmarks", "weekly_audit")


def model_versions(models: Mapping[str, ModelEntry]) -> dict[str, str]:
    """The versions of the configured models, by name."""
    return {name: entry_version(entry) for name, entry in models.items()}


def benchmarks_now(
    specs: Iterable[BenchmarkSpec], paths: DataPaths, settings: SourceSettings
) -> dict[str, BenchmarkNow]:
    """What each benchmark is and would be. Nothing is fetched: rows of the hub count as they were when last read."""
    sources: dict[str, str | None] = {}
    found = {}
    for spec in specs:
        built = built_digest(spec, paths)
        try:
            for name in spec.sources:
                if name not in sources:
                    sources[name] = source_version(name, paths, settings)
        except ConfigError as error:
            found[spec.name] = BenchmarkNow(None, built, (), str(error))
            continue
        lacks = tuple(name for name in spec.sources if sources[name] is None)
        unset = [settings.to_be_set_for(name) for name in lacks if settings.to_be_set_for(name) is not None]
        if unset:
            found[spec.name] = BenchmarkNow(None, built, (), unset[0])
        elif lacks:
            found[spec.name] = BenchmarkNow(None, built, lacks)
        elif spec.sources:
            versions = {name: str(sources[name]) for name in spec.sources}
            found[spec.name] = BenchmarkNow(benchmark_digest(spec, versions), built)
        else:
            found[spec.name] = _labelled_now(spec, built, paths)
    return found


def source_version(name: str, paths: DataPaths, settings: SourceSettings) -> str | None:
    """The version of a source's documents; None where they are missing or were fetched under other settings.

    Raises ConfigError where the source's settings are broken.
    """
    settings.require_usable(name)
    if not paths.documents(name).exists() or (name != "local_files" and source_is_stale(name, paths, settings)):
        return None
    try:
        return str(read_json(paths.source_manifest(name))["data_version"])
    except (OSError, ValueError, KeyError):
        return None


def _labelled_now(spec: BenchmarkSpec, built: str | None, paths: DataPaths) -> BenchmarkNow:
    try:
        if is_on_hub(spec):
            if built is None:
                # Its digest holds the hub's answer, which only its build asks for: the entry stands for it once.
                return BenchmarkNow(benchmark_digest(spec, {}), None)
            return BenchmarkNow(benchmark_digest(spec, read_built(paths, spec.name).manifest["source_versions"]), built)
        return BenchmarkNow(current_digest(spec, paths), built)
    except AuditError as error:
        return BenchmarkNow(None, built, (), str(error))


def preparing(instance: dg.DagsterInstance) -> str | None:
    """The unfinished run that changes sources or benchmarks just now, in words; None where there is none."""
    return _unfinished(instance, PREPARING_JOBS)


def auditing(instance: dg.DagsterInstance) -> str | None:
    """The unfinished run of the job that audits pairs, in words; None where there is none."""
    return _unfinished(instance, ("audit_pairs",))


def _unfinished(instance: dg.DagsterInstance, jobs: Iterable[str]) -> str | None:
    for job in jobs:
        for run in instance.get_runs(dg.RunsFilter(job_name=job, statuses=UNFINISHED), limit=1):
            return f"waiting for run {run.run_id[:8]} of {job}"
    return None
