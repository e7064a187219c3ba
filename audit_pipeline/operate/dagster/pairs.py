"""Going through the pairs of a run: each model's pairs together, and one that cannot run does not stop the others.

What belongs here: the loop that the partitioned assets share, and what becomes of a pair that is left out. What does
not: what is done with a pair (assets/), which faults are tried again (retries.py).

Dagster has no word for one partition of a run that failed while the others did not. So a pair that meets a fault is
recorded as an outcome, its run goes on to the last stage, and there the pairs that are done are materialised one by
one before the run fails: the grid then shows exactly the failed pairs as failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData

from audit_pipeline.catalogue.contracts import Pair, PairStatus
from audit_pipeline.catalogue.ledger import PairOutcome, find_run_outcome, record_outcome
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import AuditError, DataError, NotApplicableError, PairsFailedError, to_one_line
from audit_pipeline.operate.dagster.partitions import group_by_model, pair_of, pair_partitions
from audit_pipeline.operate.dagster.retries import with_retries
from audit_pipeline.operate.facts import EXTRACTION

EVERY_PAIR_RAN = "every_pair_ran"
FIRST_STAGE = "token_statistics"
Metadata = Mapping[str, Any]
PairCheck = Callable[[str], dg.AssetCheckResult]
"""The result of a check, by partition."""
PairResults = Iterator[Any]
"""A materialisation, check outputs and check evaluations, as Dagster takes them from an asset that yields."""


@dataclass
class PairsRun:
    """What became of the pairs of a run, by partition: metadata of those done, outcomes of those left out."""

    done: dict[str, Metadata] = field(default_factory=dict)
    left_out: dict[str, PairOutcome] = field(default_factory=dict)

    @property
    def failed(self) -> dict[str, str]:
        """The reasons of the pairs that met a fault."""
        return {key: outcome.reason for key, outcome in self.left_out.items() if outcome.status == "failed"}

    def every_pair_ran(self, partition: str) -> dg.AssetCheckResult:
        """The check that a pair was not left out: a warning where it does not apply, an error where it failed."""
        outcome = self.left_out.get(partition)
        failed = outcome is not None and outcome.status == "failed"
        return dg.AssetCheckResult(
            passed=outcome is None,
            description=None if outcome is None else f"{partition}: {outcome.status}: {outcome.reason}",
            severity=dg.AssetCheckSeverity.ERROR if failed else dg.AssetCheckSeverity.WARN,
            metadata={"failed": int(failed), "not applicable": int(outcome is not None and not failed)},
        )


def for_each_pair(
    context: dg.AssetExecutionContext, paths: DataPaths, stage: str, run: Callable[[Pair], Metadata]
) -> PairsRun:
    """Call ``run`` for every pair of the run, a model's pairs one after the other; it returns the pair's metadata,
    whose ``status`` is done where it says no other.

    A transient fault is tried again. A pair whose benchmark was made for other models is left out as not_applicable,
    one that meets any error as failed; both are recorded, with the reason, and left out of the later stages of the run,
    and the others go on. Where the failed pair is the run's only one, its AuditError, or PairsFailedError, fails the
    run. Raises DataError before the first pair where a benchmark is not
    built: Dagster marks every partition of a run that goes on as materialised.
    """
    result = PairsRun()
    partition_keys = context.partition_keys
    _require_built(paths, list(dict.fromkeys(pair_of(key).benchmark for key in partition_keys)))
    for pairs in group_by_model(partition_keys).values():
        for pair in pairs:
            earlier = _earlier_outcome(context, paths, pair)
            if earlier is not None:
                _leave_out(context, result, earlier)
                continue
            try:
                metadata = with_retries(partial(run, pair), f"{stage} of {pair.partition}", context.log)
            except Exception as error:
                # Whatever it is, it is recorded and fails the run in the end.
                status: PairStatus = "not_applicable" if isinstance(error, NotApplicableError) else "failed"
                reason = to_one_line(error) or "an unexpected error without a message; the log of the run has more"
                outcome = record_outcome(paths, pair, stage, status, reason, context.run.run_id)
                if len(partition_keys) == 1 and status == "failed":
                    if isinstance(error, AuditError):
                        raise
                    raise PairsFailedError(f"{pair.partition} failed at {stage}: {reason}") from error
                context.log.error(
                    f"{pair.partition}: {status} at {stage}: {reason}", exc_info=not isinstance(error, AuditError)
                )
                _leave_out(context, result, outcome)
            else:
                metadata = {"status": "done", **metadata}
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


def _earlier_outcome(context: dg.AssetExecutionContext, paths: DataPaths, pair: Pair) -> PairOutcome | None:
    """What an earlier stage left the pair out for, in this run or in the one that this run repeats the end of.

    "Re-execute from failure" runs the last stage alone: without the first ones a failed pair is no better for it. What
    is searched last of all leaves out nothing.
    """
    found = _read_run_outcome(context, paths, pair)
    return None if found is not None and found.stage == EXTRACTION else found


def _read_run_outcome(context: dg.AssetExecutionContext, paths: DataPaths, pair: Pair) -> PairOutcome | None:
    run = context.run
    outcome = find_run_outcome(paths, pair, run.run_id)
    repeats_the_end = run.parent_run_id is not None and FIRST_STAGE not in (run.step_keys_to_execute or [FIRST_STAGE])
    if outcome is None and repeats_the_end and run.parent_run_id is not None:
        return find_run_outcome(paths, pair, run.parent_run_id)
    return outcome


def _leave_out(context: dg.AssetExecutionContext, result: PairsRun, outcome: PairOutcome) -> None:
    partition = outcome.pair.partition
    result.left_out[partition] = outcome
    context.add_asset_metadata(_metadata_of(outcome), partition_key=partition)


def _metadata_of(outcome: PairOutcome) -> Metadata:
    return {"status": outcome.status, "stage": outcome.stage, "reason": outcome.reason}


def pair_results(
    context: dg.AssetExecutionContext,
    pairs: PairsRun,
    checks: Mapping[str, PairCheck] | None = None,
    *,
    is_last: bool = False,
    unpartitioned_checks: Sequence[dg.AssetCheckResult] = (),
) -> PairResults:
    """What an asset yields of its run: the partitions as materialised, and each check by partition.

    Dagster gives a check of a run over several partitions no partition, so the evaluations are made here. At the last
    stage, ``is_last``, a pair that failed ends the run: see :func:`_fail`.
    """
    checks = {EVERY_PAIR_RAN: pairs.every_pair_ran, **(checks or {})}
    if is_last and pairs.failed:
        _fail(context, pairs, checks)
    yield dg.MaterializeResult(check_results=list(unpartitioned_checks))
    for name in checks:
        yield dg.Output(None, output_name=dg.AssetCheckSpec(name, asset=context.asset_key).get_python_identifier())
    yield from _iterate_check_evaluations(context, checks)


def _iterate_check_evaluations(
    context: dg.AssetExecutionContext, checks: Mapping[str, PairCheck]
) -> Iterator[dg.AssetCheckEvaluation]:
    """The result of each check for each partition as it was materialised last, which is when it counts as current."""
    blocking = {spec.name: spec.blocking for spec in context.assets_def.check_specs}
    for partition in map(str, context.partition_keys):
        target = _latest_materialisation(context, partition)
        for name, check in checks.items():
            result = check(partition)
            yield dg.AssetCheckEvaluation(
                context.asset_key,
                name,
                passed=result.passed,
                metadata=result.metadata,
                target_materialization_data=target,
                severity=result.severity,
                description=result.description,
                blocking=blocking[name],
                partition=partition,
            )


def _latest_materialisation(
    context: dg.AssetExecutionContext, partition: str
) -> AssetCheckEvaluationTargetMaterializationData | None:
    wanted = dg.AssetRecordsFilter(context.asset_key, asset_partitions=[partition])
    for record in context.instance.fetch_materializations(wanted, limit=1).records:
        return AssetCheckEvaluationTargetMaterializationData(
            storage_id=record.storage_id, run_id=record.run_id, timestamp=record.timestamp
        )
    return None


def _fail(context: dg.AssetExecutionContext, result: PairsRun, checks: Mapping[str, PairCheck]) -> NoReturn:
    """Materialise the pairs that did not fail, and fail the run.

    Raises dagster.Failure, which names the pairs; they can be run again alone, as single partitions of the job.
    """
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
    for evaluation in _iterate_check_evaluations(context, checks):
        context.log_event(evaluation)
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
    return pair_check_spec(EVERY_PAIR_RAN, asset, "The pair could be computed; one that could not says why.")


def pair_check_spec(name: str, asset: str, description: str, *, blocking: bool = False) -> dg.AssetCheckSpec:
    """A check that is made of each pair: its results are shown by partition."""
    return dg.AssetCheckSpec(
        name, asset=asset, description=description, blocking=blocking, partitions_def=pair_partitions
    )
