"""Running a model on some benchmarks from this process, in as few runs as ranges of partitions allow.

What belongs here: from the planner's steps of pairs to ranges and selections, for the command line and the weekly
audit. What does not: which pairs need a run (operate/plan.py), and what a run does (assets/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from audit_pipeline.catalogue.contracts import Pair
from audit_pipeline.errors import AuditError, PairsFailedError
from audit_pipeline.operate.dagster import partitions
from audit_pipeline.operate.dagster.carry_out import Runner
from audit_pipeline.operate.dagster.planning import neighbours
from audit_pipeline.operate.dagster.spending import compute_remaining_limits
from audit_pipeline.operate.facts import OF_PAIRS, Kind, PlannedStep

_ASSETS: Mapping[Kind, str] = {
    "run": "token_statistics",
    "extract": "extraction",
    "score": "scores",
    "evaluate": "evaluations",
}
_MODEL = "token_statistics"


def run_pairs(
    steps: Sequence[PlannedStep],
    runner: Runner,
    *,
    resources: Mapping[str, Mapping[str, Any]] | None = None,
    config: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """Carry out the steps of pairs, all of one model and registered; returns run ids by the first partition of each.

    Pairs of the same steps share runs. ``config`` is that of the asset which runs the model. Raises the AuditError of a
    run that failed (see in_process.run_job), after the others have been run as well.
    """
    kinds: dict[Pair, tuple[Kind, ...]] = {}
    reasons = {step.pair.partition: step.because for step in reversed(steps)}
    for step in steps:
        kinds[step.pair] = (*kinds.get(step.pair, ()), step.kind)
    runs: dict[str, str] = {}
    errors: list[AuditError] = []
    for some in sorted(set(kinds.values()), key=lambda one: (OF_PAIRS.index(one[0]), one)):
        assets = [_ASSETS[one] for one in some]
        for first_partition, target in _targets([pair for pair in kinds if kinds[pair] == some], runner.instance):
            try:
                runs[first_partition] = runner.run(
                    "audit_pairs",
                    reasons[first_partition],
                    selection=[dg.AssetKey(asset) for asset in assets],
                    resources=_with_limits(resources, runner),
                    ops={_MODEL: config} if config is not None and _MODEL in assets else None,
                    **target,
                )
            except AuditError as error:
                errors.append(error)
    if len(errors) > 1:
        raise PairsFailedError("; ".join(str(error) for error in errors))
    if errors:
        raise errors[0]
    return runs


def _with_limits(
    resources: Mapping[str, Mapping[str, Any]] | None, runner: Runner
) -> Mapping[str, Mapping[str, Any]] | None:
    """The same with what is left of the limits after the runs so far."""
    left = compute_remaining_limits(runner.limits, runner.instance, runner.tags, runner.asked)
    if not left:
        return resources
    given = resources or {}
    return {**given, "models": {**given.get("models", {}), **left}}


def _targets(pairs: Sequence[Pair], instance: dg.DagsterInstance) -> list[tuple[str, dict[str, Any]]]:
    """The ranges that hold exactly these pairs, each with its first partition; single ones where no range does."""
    by_benchmark = {pair.benchmark: pair for pair in pairs}
    targets: list[tuple[str, dict[str, Any]]] = []
    for group in neighbours(instance.get_dynamic_partitions(partitions.BENCHMARK), by_benchmark):
        together = [by_benchmark[name] for name in group]
        one_range = partitions.range_of(instance, together) if len(together) > 1 else None
        if one_range is not None:
            targets.append((together[0].partition, {"partition_range": one_range}))
        else:
            targets += [(pair.partition, {"partition_key": pair.partition}) for pair in together]
    return targets
