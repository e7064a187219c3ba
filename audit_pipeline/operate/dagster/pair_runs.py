"""Running a model on some benchmarks from this process, in as few runs as ranges of partitions allow.

What belongs here: finding the ranges, for the command line and the weekly audit. What does not: which pairs need
a run (audit.py, weekly.py), and what a run does (assets/).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg

from audit_pipeline.catalogue.contracts import Pair
from audit_pipeline.errors import AuditError, PairsFailedError
from audit_pipeline.operate.dagster import in_process, partitions
from audit_pipeline.operate.dagster.planning import neighbours

Options = Mapping[str, Mapping[str, Any]]


def run_pairs(
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    pairs: Sequence[Pair],
    *,
    resources: Options | None = None,
    ops: Options | None = None,
    tags: Mapping[str, str] | None = None,
    on_wait: Callable[[str], None] = lambda what: None,
) -> dict[str, str]:
    """Run ``pairs``, all of one model and registered; returns run ids by the first partition of each.

    Raises the AuditError of a run that failed (see in_process.run_job), after the others have been run as well.
    """
    options: dict[str, Any] = {"resources": resources, "ops": ops, "tags": tags, "on_wait": on_wait}
    by_benchmark = {pair.benchmark: pair for pair in pairs}
    runs: dict[str, str] = {}
    errors: list[AuditError] = []
    for group in neighbours(instance.get_dynamic_partitions(partitions.BENCHMARK), by_benchmark):
        together = [by_benchmark[name] for name in group]
        first = together[0].partition
        one_range = partitions.range_of(instance, together) if len(together) > 1 else None
        targets: list[dict[str, Any]] = [{"partition_key": pair.partition} for pair in together]
        if one_range is not None:
            targets = [{"partition_range": one_range}]
        for target in targets:
            try:
                runs[target.get("partition_key", first)] = in_process.run_job(job, instance, **target, **options)
            except AuditError as error:
                errors.append(error)
    if len(errors) > 1:
        raise PairsFailedError("; ".join(str(error) for error in errors))
    if errors:
        raise errors[0]
    return runs
