"""Going through the pairs of a run: each model's pairs together, and one that cannot run does not stop the others.

What belongs here: the loop that the partitioned assets share. What does not: what is done with a pair (assets/).
"""

from __future__ import annotations

from collections.abc import Callable

import dagster as dg

from audit_pipeline.contracts import Pair
from audit_pipeline.errors import AuditError
from audit_pipeline.orchestration.partitions import by_model


def for_each_pair(context: dg.AssetExecutionContext, run: Callable[[Pair], None]) -> dict[str, str]:
    """Call ``run`` for every pair of the run, a model's pairs one after the other.

    A pair whose input is missing or wrong materialises with the status not_applicable and the reason, and the others
    go on; returned are those reasons by partition. Where it is the run's only pair, its AuditError fails the run.
    """
    partition_keys = context.partition_keys
    not_applicable: dict[str, str] = {}
    for pairs in by_model(partition_keys).values():
        for pair in pairs:
            try:
                run(pair)
            except AuditError as error:
                if len(partition_keys) == 1:
                    raise
                context.log.error(f"{pair.partition} cannot run: {error}")
                not_applicable[pair.partition] = str(error)
                context.add_asset_metadata(
                    {"status": "not_applicable", "reason": str(error)}, partition_key=pair.partition
                )
    return not_applicable


def every_pair_ran_spec(asset: str) -> dg.AssetCheckSpec:
    """The check that no pair of a run was left out."""
    return dg.AssetCheckSpec(
        "every_pair_ran", asset=asset, description="Every pair of the run could be computed; the others say why not."
    )


def every_pair_ran(not_applicable: dict[str, str]) -> dg.AssetCheckResult:
    """Its result; ``not_applicable`` is what :func:`for_each_pair` returns."""
    return dg.AssetCheckResult(
        check_name="every_pair_ran",
        passed=not not_applicable,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"not applicable": not_applicable},
    )
