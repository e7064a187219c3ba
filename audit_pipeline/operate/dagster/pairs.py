"""Going through the pairs of a run: each model's pairs together, and one that cannot run does not stop the others.

What belongs here: the loop that the partitioned assets share, and what becomes of a pair that is left out. What does
not: what is done with a pair (assets/), which faults are tried again (retries.py).

Dagster has no word for one partition of a run that failed while the others did not. So a pair that meets a fault is
recorded as an outcome, its run goes on to the last stage, and there the pairs that are done are materialised one by
one before the run fails: the grid then shows exactly the failed pairs as failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import dagster as dg

from audit_pipeline.catalogue.contracts import Pair
from audit_pipeline.catalogue.outcomes import PairOutcome, Status, outcome_of_run, record_outcome
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.endpoints.client import RefusedError
from audit_pipeline.endpoints.dialects.dialect import BadAnswerError
from audit_pipeline.errors import AuditError, BudgetError, ClusterError, ConfigError, DataError, PairsFailedError
from audit_pipeline.operate.dagster.partitions import by_model, pair_of
from audit_pipeline.operate.dagster.retries import is_transient, with_retries
from audit_pipeline.operate.facts import EXTRACTION

EVERY_PAIR_RAN = "every_pair_ran"
FIRST_STAGE = "token_statistics"
Metadata = Mapping[str, Any]


@dataclass
class PairsRun:
    """What became of the pairs of a run, by partition: metadata of those done, outcomes of those left out."""

    done: dict[str, Metadata] = field(default_factory=dict)
    left_out: dict[str, PairOutcome] = field(default_factory=dict)

    @property
    def failed(self) -> dict[str, str]:
        """The reasons of the pairs that met a fault."""
        return {key: outcome.reason for key, outcome in self.left_out.items() if outcome.status == "failed"}

    @property
    def _words(self) -> str | None:
        if not self.left_out:
            return None
        partition, outcome = next(iter(sorted(self.left_out.items(), key=lambda item: item[1].status != "failed")))
        others = f", and {len(self.left_out) - 1} more" if len(self.left_out) > 1 else ""
        return f"{partition}: {outcome.status}: {outcome.reason}{others}"

    @property
    def check(self) -> dg.AssetCheckResult:
        """The check that no pair was left out: a warning where one could not run, an error where one failed."""
        return dg.AssetCheckResult(
            check_name=EVERY_PAIR_RAN,
            passed=not self.left_out,
            description=self._words,
            severity=dg.AssetCheckSeverity.ERROR if self.failed else dg.AssetCheckSeverity.WARN,
            metadata={
                "failed": self.failed,
                "not applicable": {
                    key: outcome.reason for key, outcome in self.left_out.items() if outcome.status == "not_applicable"
                },
            },
        )


def for_each_pair(
    context: dg.AssetExecutionContext, paths: DataPaths, stage: str, run: Callable[[Pair], Metadata]
) -> PairsRun:
    """Call ``run`` for every pair of the run, a model's pairs one after the other; it returns the pair's metadata.

    A transient fault is tried again. A pair whose input is missing or wrong is left out as not_applicable, one that
    meets any other fault (a limit that is reached, a server that refuses) as failed; both are recorded, with the
    reason, and left out of the later stages of the run, and the others go on. Where it is the run's only pair, its
    AuditError, or PairsFailedError, fails the run. Raises DataError before the first pair where a benchmark is not
    built: Dagster marks every partition of a run that goes on as materialised.
    """
    result = PairsRun()
    partition_keys = context.partition_keys
    _require_built(paths, list(dict.fromkeys(pair_of(key).benchmark for key in partition_keys)))
    for pairs in by_model(partition_keys).values():
        for pair in pairs:
            earlier = _earlier_outcome(context, paths, pair)
            if earlier is not None:
                _leave_out(context, result, earlier)
                continue
            try:
                metadata = with_retries(partial(run, pair), f"{stage} of {pair.partition}", context.log)
            except Exception as error:
                # Whatever it is, it is recorded and fails the run in the end.
                bad_input = _is_of_the_input(error)
                status: Status = "not_applicable" if bad_input else "failed"
                reason = " ".join(str(error).split()) or type(error).__name__
                outcome = record_outcome(paths, pair, stage, status, reason, context.run.run_id)
                if len(partition_keys) == 1:
                    if isinstance(error, AuditError):
                        raise
                    raise PairsFailedError(f"{pair.partition} failed at {stage}: {reason}") from error
                context.log.error(f"{pair.partition}: {status} at {stage}: {reason}", exc_info=not bad_input)
                _leave_out(context, result, outcome)
            else:
                result.done[pair.partition] = metadata
                context.add_asset_metadata(metadata, partition_key=pair.partition)
    return result


def _require_built(paths: DataPaths, benchmarks: Sequence[str]) -> None:
    missing = [
        name for name in benchmarks if not (paths.examples(name).exists() and paths.benchmark_manifest(name).exists())
    ]
    if not missing:
        return
    which = f"the benchmark {missing[0]} has" if len(missing) == 1 else f"the benchmarks {', '.join(missing)} have"
    raise DataError(
        f"{which} not been built yet, so nothing was run: materialise `benchmark` first (the job build_benchmarks), or "
        "audit the others alone"
    )


def _is_of_the_input(error: Exception) -> bool:
    """Whether what a pair is made of cannot be used, so that running it again as it is comes to the same.

    A file of the configuration that is being edited, a limit that is reached, machines that do not run the model and a
    server that refuses or answers nonsense are no faults of the pair's: the audit applies, and is run again.
    """
    others = ConfigError | BudgetError | ClusterError | RefusedError | BadAnswerError
    return isinstance(error, AuditError) and not isinstance(error, others) and not is_transient(error)


def _earlier_outcome(context: dg.AssetExecutionContext, paths: DataPaths, pair: Pair) -> PairOutcome | None:
    """What an earlier stage left the pair out for, in this run or in the one that this run repeats the end of.

    "Re-execute from failure" runs the last stage alone: without the first ones a failed pair is no better for it. What
    is searched last of all leaves out nothing.
    """
    found = _outcome_before(context, paths, pair)
    return None if found is not None and found.stage == EXTRACTION else found


def _outcome_before(context: dg.AssetExecutionContext, paths: DataPaths, pair: Pair) -> PairOutcome | None:
    run = context.run
    outcome = outcome_of_run(paths, pair, run.run_id)
    repeats_the_end = run.parent_run_id is not None and FIRST_STAGE not in (run.step_keys_to_execute or [FIRST_STAGE])
    if outcome is None and repeats_the_end and run.parent_run_id is not None:
        return outcome_of_run(paths, pair, run.parent_run_id)
    return outcome


def _leave_out(context: dg.AssetExecutionContext, result: PairsRun, outcome: PairOutcome) -> None:
    partition = outcome.pair.partition
    result.left_out[partition] = outcome
    context.add_asset_metadata(_metadata_of(outcome), partition_key=partition)


def _metadata_of(outcome: PairOutcome) -> Metadata:
    return {"status": outcome.status, "stage": outcome.stage, "reason": outcome.reason}


def fail_for(context: dg.AssetExecutionContext, result: PairsRun, checks: list[dg.AssetCheckResult]) -> None:
    """At the last stage: nothing where no pair failed; else materialise the other pairs, and fail the run.

    Raises dagster.Failure, which names the pairs; they can be run again alone, as single partitions of the job.
    """
    if not result.failed:
        return
    not_applicable = {
        key: _metadata_of(outcome) for key, outcome in result.left_out.items() if outcome.status == "not_applicable"
    }
    for key in context.partition_keys:
        metadata = result.done.get(str(key), not_applicable.get(str(key)))
        if metadata is not None:
            context.log_event(
                dg.AssetMaterialization(
                    context.asset_key, partition=key, metadata=dict(metadata), tags=_dimension_tags(key)
                )
            )
    for check in checks:
        assert check.check_name is not None
        context.log_event(
            dg.AssetCheckEvaluation(
                asset_key=context.asset_key,
                check_name=check.check_name,
                passed=check.passed,
                metadata=dict(check.metadata or {}),
                severity=check.severity,
                description=check.description,
            )
        )
    first, reason = next(iter(result.failed.items()))
    raise dg.Failure(
        f"{len(result.failed)} of {len(context.partition_keys)} pairs failed, the others are done; {first}: {reason}",
        metadata={"failed": result.failed},
        allow_retries=False,
    )


def _dimension_tags(key: str) -> dict[str, str]:
    """The tags by which the UI finds a partition of two dimensions."""
    if not isinstance(key, dg.MultiPartitionKey):
        return {}
    return {f"dagster/partition/{name}": value for name, value in key.keys_by_dimension.items()}


def every_pair_ran_spec(asset: str) -> dg.AssetCheckSpec:
    """The check that no pair of a run was left out."""
    return dg.AssetCheckSpec(
        EVERY_PAIR_RAN, asset=asset, description="Every pair of the run could be computed; the others say why not."
    )
