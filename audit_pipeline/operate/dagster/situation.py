"""What Dagster is busy with, and what the sensors ask the planner.

What belongs here: reading that for the sensors. What does not: what lies in the data folder (operate/situation.py),
what follows from it (operate/plan.py), and what is requested of Dagster for it (planning.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import dagster as dg

from audit_pipeline.benchmarks.config import BenchmarkSpec
from audit_pipeline.catalogue.contracts import Pair
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.version import entry_version
from audit_pipeline.operate.dagster.in_process import UNFINISHED
from audit_pipeline.operate.facts import OF_PAIRS, PlannedStep, PlanRequest
from audit_pipeline.operate.plan import as_built, plan
from audit_pipeline.operate.seen import read_cards, seen_last, sightings_of
from audit_pipeline.operate.situation import look

PREPARING_JOBS = ("refresh_sources", "build_benchmarks", "weekly_audit")


def model_versions(models: Mapping[str, ModelEntry]) -> dict[str, str]:
    """The versions of the configured models, by name."""
    return {name: entry_version(entry) for name, entry in models.items()}


def pairs_to_audit(
    pairs: Collection[Pair], benchmarks: Mapping[str, BenchmarkSpec], models: Mapping[str, ModelEntry], paths: DataPaths
) -> list[PlannedStep]:
    """The planner's steps of ``pairs`` on the benchmarks as they are built, with the models as they were seen last: a
    tick has no time to load them."""
    if not pairs:
        return []
    asked = PlanRequest(pairs=tuple(pairs))
    named = {pair.benchmark for pair in pairs}
    there = look(asked, paths, specs=[spec for name, spec in benchmarks.items() if name in named])
    written = [
        one
        for pair, audit in there.audits.items()
        for one in sightings_of(pair.model, (audit.scores, audit.evaluations))
    ]
    seen = seen_last(read_cards(paths), written, models, paths)
    audits = {
        pair: replace(audit, now=seen.conventions(pair.model, there.benchmarks[pair.benchmark].built))
        for pair, audit in there.audits.items()
    }
    return [step for step in plan(as_built(replace(there, audits=audits)), asked) if step.kind in OF_PAIRS]


def find_unfinished_preparation(instance: dg.DagsterInstance) -> str | None:
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
