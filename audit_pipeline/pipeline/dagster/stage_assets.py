"""The assets of the stages: partitions, dependencies, checks, options and locks, all from their declarations.

Dagster has no word for one partition of a run that failed while the others did not. So a partition that meets a fault
is left out, a pair's with an outcome in the ledger, and the run goes on. At the first stage that concludes, the
partitions that are done are materialised one by one before the run fails: the grid then shows exactly the failures
as failed.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, NoReturn

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData
from pydantic import BaseModel, create_model

from audit_pipeline.errors import AuditError, DataError, NotApplicableError, PairsFailedError, to_one_line
from audit_pipeline.pipeline.dagster.jobs import REBUILT
from audit_pipeline.pipeline.dagster.locks import hold_named_lock
from audit_pipeline.pipeline.dagster.metadata import build_column_schema, build_metadata
from audit_pipeline.pipeline.dagster.partitions import partitions_of
from audit_pipeline.pipeline.dagster.resources import AuditData, ModelsResource, ProgressReporter
from audit_pipeline.pipeline.dagster.retries import run_with_retries
from audit_pipeline.pipeline.freshness import parse_pair
from audit_pipeline.pipeline.stage import Check, Finding, Made, Shown, Stage, StageRun
from audit_pipeline.pipeline.stages.publication import REPORT_STAGES
from audit_pipeline.pipeline.stages.registry import PAIR, STAGES, get_stage
from audit_pipeline.pipeline.stages.settings import is_asked_for, load_stage_entries
from audit_pipeline.sources.base import Source
from audit_pipeline.sources.config import all_sources
from audit_pipeline.store.ledger import PairOutcome, find_run_outcome, record_outcome
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import PairStatus

EVERY_PAIR_RAN, VALUES_IN_LIMITS = "every_pair_ran", "values_in_limits"


def build_stage_assets() -> list[dg.AssetsDefinition]:
    """The assets of all stages; of the stage of documents one a source."""
    with warnings.catch_warnings():
        # Some of what is used here may change in a later version of Dagster: nothing that a user can act on.
        for category in (dg.BetaWarning, dg.PreviewWarning):
            warnings.simplefilter("ignore", category)
        return [
            _build_asset(stage, source)
            for stage in (*STAGES, *REPORT_STAGES)
            for source in (all_sources().values() if stage.dimensions == ("source",) else [None])
        ]


def _build_asset(stage: Stage, source: Source[Any] | None = None) -> dg.AssetsDefinition:
    """The asset of a stage, or of one ``source`` of the stage of documents; without partitions there, and where the
    stage has no dimensions."""
    checks = list_checks(stage)
    partitions = partitions_of(stage.dimensions) if stage.dimensions and source is None else None
    key = dg.AssetKey(stage.name if source is None else [stage.name, source.name])

    def compute(
        context: dg.AssetExecutionContext,
        config: _build_config(stage),  # type: ignore[valid-type]
        data: AuditData,
        models: ModelsResource,
        progress: ProgressReporter,
    ) -> Iterator[Any]:
        keys = [str(key) for key in context.partition_keys] if partitions else ["" if source is None else source.name]
        start = partial(
            StageRun,
            stage,
            partitions=keys,
            paths=data.paths,
            run_id=context.run.run_id,
            options=_choose_options(stage, config),
            models=models,
            log=context.log,
            progress=partial(progress.report_progress, log=context.log),
            shared={},
        )
        with hold_named_lock(data.paths, stage.lock, context.log.info):
            if partitions is not None:
                made = _make_each(stage, context, data.paths, start)
            else:
                label = context.asset_key.to_user_string()
                whole = run_with_retries(partial(stage.make, start(keys[0])), label, context.log)
        yield from _iterate_results(stage, context, made) if partitions else [_build_result(checks, whole)]

    code = stage.make.__code__
    place = dg.LocalFileCodeReference(file_path=code.co_filename, line_number=code.co_firstlineno, label=stage.name)
    own: dict[str, Any] = {
        "description": stage.description,
        "group_name": stage.group,
        "code_version": stage.code,
        "freshness_policy": None,
        "metadata": {
            **({"dagster/column_schema": build_column_schema(stage.tables[0])} if stage.tables else {}),
            "dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[place]),
        },
    }
    if (days := stage.late_after_days) is not None:
        late, failed = timedelta(days=days), timedelta(days=2 * days - 1)
        own["freshness_policy"] = dg.FreshnessPolicy.time_window(fail_window=failed, warn_window=late)
    if source is not None:
        own |= {"description": source.description, "code_version": str(source.version)}
        own["metadata"]["licence"] = source.licence
        own |= {"group_name": "6_sources_on_request", "freshness_policy": None} if source.on_request else {}
    asset: dg.AssetsDefinition = dg.asset(
        key=key,
        kinds=set(stage.kinds),
        partitions_def=partitions,
        backfill_policy=dg.BackfillPolicy.single_run() if stage.dimensions[-1:] == ("model",) else None,
        automation_condition=None if stage.dimensions else REBUILT,
        deps=list(_iterate_deps(stage)),
        check_specs=[
            dg.AssetCheckSpec(
                name, asset=key, description=check.description, blocking=check.blocking, partitions_def=partitions
            )
            for name, check in checks.items()
        ],
        **own,
    )(compute)
    return asset


def _build_result(checks: Mapping[str, Check], made: Made) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """What an asset without partitions yields."""
    return dg.MaterializeResult(
        data_version=None if made.data_version is None else dg.DataVersion(made.data_version),
        metadata={"status": made.status, **build_metadata(made.shown)},
        check_results=[_to_check_result(check, made.checks[name], check_name=name) for name, check in checks.items()],
    )


def list_checks(stage: Stage) -> dict[str, Check]:
    """The checks of a stage: those that it declares, and those that follow from its dimensions and its columns."""
    checks = dict(stage.checks)
    if len(stage.dimensions) > 1:
        checks[EVERY_PAIR_RAN] = Check("The pair could be computed, or says why not.", False)
    limited = dict.fromkeys(column.name for table in stage.tables for column in table.columns if column.has_limits)
    if limited:
        words = f"No value is beyond the limits of its column: {', '.join(limited)}."
        checks[VALUES_IN_LIMITS] = Check(words, False)
    return checks


def _build_config(stage: Stage) -> type[dg.Config]:
    options = stage.options
    if options is None:
        return dg.Config
    fields: dict[str, Any] = {name: (field.annotation, field) for name, field in options.model_fields.items()}
    return create_model(options.__name__, __base__=dg.Config, **fields)


def _iterate_deps(stage: Stage) -> Iterator[dg.AssetDep | dg.AssetKey]:
    """What the stage is made of; partitions of other dimensions are all of them, of its own dimension the one."""
    for name in stage.after:
        kind, _, product = name.partition("/")
        if not stage.dimensions:
            yield dg.AssetKey(kind)
            continue
        above = get_stage(kind)
        if above.dimensions == ("source",):
            yield from (dg.AssetKey([kind, source]) for source in ([product] if product else all_sources()))
        elif above.dimensions == stage.dimensions:
            yield dg.AssetDep(kind)
        elif len(above.dimensions) == 1 and above.dimensions[0] in stage.dimensions:
            [shared] = above.dimensions
            yield dg.AssetDep(
                kind, partition_mapping=dg.MultiToSingleDimensionPartitionMapping(partition_dimension_name=shared)
            )
        else:
            yield dg.AssetDep(kind, partition_mapping=dg.AllPartitionMapping())


def _choose_options(stage: Stage, config: dg.Config) -> BaseModel | None:
    """What the run is given, and for the rest what config/stages.yaml says."""
    kind = stage.options
    if kind is None:
        return None
    entry = load_stage_entries().get(stage.name) if stage.is_on_request else None
    given = config.model_dump()
    changed = {name: value for name, value in given.items() if value != kind.model_fields[name].get_default()}
    return kind.model_validate({**({} if entry is None else entry.options), **changed})


class _LeftOut(NamedTuple):
    """Why a partition was left out, and at which stage."""

    status: PairStatus
    stage: str
    reason: str


@dataclass
class _MadePartitions:
    """What became of the partitions of a run: what was made, why others were left out, and their ``order``."""

    made: dict[str, Made] = field(default_factory=dict)
    left_out: dict[str, _LeftOut] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)

    @property
    def failed(self) -> dict[str, str]:
        """The reasons of those that met a fault."""
        return {name: left_out.reason for name, left_out in self.left_out.items() if left_out.status == "failed"}

    def build_metadata(self, partition: str) -> dict[str, Any]:
        if partition in self.left_out:
            return self.left_out[partition]._asdict()
        made = self.made[partition]
        return {"status": made.status, **build_metadata(made.shown)}

    def finding_of(self, name: str, partition: str) -> Finding:
        """What a check found of a partition; what was left out passes all but the check that says so."""
        if partition in self.made:
            return self.made[partition].checks.get(name, Finding(True))
        if name != EVERY_PAIR_RAN:
            return Finding(True)
        status, _, reason = self.left_out[partition]
        counts = {"failed": int(status == "failed"), "not applicable": int(status != "failed")}
        return Finding(False, f"{partition}: {status}: {reason}", Shown(values=counts))


def _make_each(
    stage: Stage, context: dg.AssetExecutionContext, paths: DataPaths, start: Callable[..., StageRun]
) -> _MadePartitions:
    """Make every partition of the run, a model's partitions in order.

    A transient fault is tried again. A pair whose benchmark was made for other models is left out as not_applicable,
    what meets any error as failed; a pair's reason is recorded, and it is left out of the later stages of the run.
    Where the failed partition is the run's only one, its AuditError, or PairsFailedError, fails the run. Raises
    DataError before the first pair where a benchmark is not built: Dagster marks every partition of a run that goes on
    as materialised.
    """
    result = _MadePartitions()
    partitions = [str(key) for key in context.partition_keys]
    if stage.dimensions == PAIR:
        _require_built(paths, list(dict.fromkeys(parse_pair(partition).benchmark for partition in partitions)))
    entries = load_stage_entries() if stage.is_on_request else {}
    models = [name.rpartition("|")[2] for name in partitions]
    for partition in sorted(partitions, key=lambda name: models.index(name.rpartition("|")[2])):
        run = start(partition)
        earlier = _find_earlier_outcome(stage, context, paths, partition) if stage.dimensions == PAIR else None
        if earlier is not None:
            result.left_out[partition] = _LeftOut(earlier.status, earlier.stage, earlier.reason)
        elif stage.is_on_request and not is_asked_for(stage, partition, entries):
            reason = "config/stages.yaml does not ask for it"
            result.made[partition] = Made(shown=Shown(values={"reason": reason}), status="not_requested")
        else:
            try:
                label = f"{stage.name} of {partition}"
                result.made[partition] = run_with_retries(partial(stage.make, run), label, context.log)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is recorded and fails the run in the end
                result.left_out[partition] = _leave_out(stage, run, error, is_alone=len(partitions) == 1)
        result.order.append(partition)
        context.add_asset_metadata(result.build_metadata(partition), partition_key=partition)
    return result


def _leave_out(stage: Stage, run: StageRun, error: Exception, *, is_alone: bool) -> _LeftOut:
    applies = not isinstance(error, NotApplicableError)
    status: PairStatus = "failed" if applies and not (stage.is_optional and not is_alone) else "not_applicable"
    reason = to_one_line(error) or "an unexpected error without a message; the log of the run has more"
    if stage.dimensions == PAIR and not stage.is_optional:
        record_outcome(run.paths, run.pair, stage.name, status, reason, run.run_id)
    if is_alone and status == "failed":
        if isinstance(error, AuditError):
            raise error
        raise PairsFailedError(f"{run.partition} failed at {stage.name}: {reason}") from error
    words = f"{run.partition}: {status} at {stage.name}: {reason}"
    run.log.log(logging.ERROR, words, exc_info=None if isinstance(error, AuditError) else error)
    return _LeftOut(status, stage.name, reason)


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


def _find_earlier_outcome(
    stage: Stage, context: dg.AssetExecutionContext, paths: DataPaths, partition: str
) -> PairOutcome | None:
    """Why an earlier stage left the pair out, in this run or in the one that this run repeats the end of.

    "Re-execute from failure" runs the last stages alone: without the first ones a failed pair is no better for it.
    """
    run = context.run
    order = [stage.name for stage in STAGES if stage.dimensions == PAIR]
    outcome = find_run_outcome(paths, parse_pair(partition), run.run_id)
    repeats_the_end = run.parent_run_id is not None and order[0] not in (run.step_keys_to_execute or order)
    if outcome is None and repeats_the_end and run.parent_run_id is not None:
        outcome = find_run_outcome(paths, parse_pair(partition), run.parent_run_id)
    return outcome if outcome is not None and _follows(stage, outcome.stage) else None


def _follows(stage: Stage, other: str) -> bool:
    """Whether a stage is made of another, or of what is made of it."""
    above = [name.partition("/")[0] for name in stage.after]
    return other in above or any(_follows(get_stage(name), other) for name in above)


def _iterate_results(stage: Stage, context: dg.AssetExecutionContext, made: _MadePartitions) -> Iterator[Any]:
    """What an asset yields of its run: the partitions as materialised, and each check by partition.

    Dagster gives a check of a run over several partitions no partition, so the evaluations are made here.
    """
    checks = list_checks(stage)
    if stage.concludes and made.failed:
        _fail(stage, context, made)
    versions = [product.data_version for product in made.made.values() if product.data_version is not None]
    # Dagster takes one version for all partitions of a run.
    version = dg.DataVersion(versions[0]) if len(context.partition_keys) == 1 and versions else None
    yield dg.MaterializeResult(data_version=version)
    for name in checks:
        yield dg.Output(None, output_name=dg.AssetCheckSpec(name, asset=context.asset_key).get_python_identifier())
    yield from _iterate_check_evaluations(stage, context, made)


def _iterate_check_evaluations(
    stage: Stage, context: dg.AssetExecutionContext, made: _MadePartitions
) -> Iterator[dg.AssetCheckEvaluation]:
    """The result of each check for each partition as it was materialised last, which is when it counts as current.

    In the order in which they were made: the UI shows the last.
    """
    for partition in made.order:
        target = _latest_materialisation(context, partition)
        for name, check in list_checks(stage).items():
            result = _to_check_result(check, made.finding_of(name, partition))
            is_warning = name == EVERY_PAIR_RAN and partition not in made.failed
            yield dg.AssetCheckEvaluation(
                context.asset_key,
                name,
                passed=result.passed,
                metadata=result.metadata,
                target_materialization_data=target,
                severity=dg.AssetCheckSeverity.WARN if is_warning else result.severity,
                description=result.description,
                blocking=check.blocking,
                partition=partition,
            )


def _to_check_result(check: Check, finding: Finding, check_name: str | None = None) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        check_name=check_name,
        passed=finding.passed,
        severity=dg.AssetCheckSeverity.WARN if check.is_warning else dg.AssetCheckSeverity.ERROR,
        description=finding.description,
        metadata=build_metadata(finding.shown),
    )


def _latest_materialisation(
    context: dg.AssetExecutionContext, partition: str
) -> AssetCheckEvaluationTargetMaterializationData | None:
    of_partition = dg.AssetRecordsFilter(context.asset_key, asset_partitions=[partition])
    for record in context.instance.fetch_materializations(of_partition, limit=1).records:
        return AssetCheckEvaluationTargetMaterializationData(
            storage_id=record.storage_id, run_id=record.run_id, timestamp=record.timestamp
        )
    return None


def _fail(stage: Stage, context: dg.AssetExecutionContext, result: _MadePartitions) -> NoReturn:
    """Materialise the partitions that did not fail, and fail the run.

    Raises dagster.Failure, which names the failures; they can be run again alone, as single partitions of the job.
    """
    for key in context.partition_keys:
        if str(key) not in result.failed:
            metadata = result.build_metadata(str(key))
            # By these the UI finds a partition of two dimensions.
            names = key.keys_by_dimension if isinstance(key, dg.MultiPartitionKey) else {}
            tags = {f"dagster/partition/{name}": value for name, value in names.items()}
            context.log_event(dg.AssetMaterialization(context.asset_key, partition=key, metadata=metadata, tags=tags))
    for evaluation in _iterate_check_evaluations(stage, context, result):
        context.log_event(evaluation)
    first, reason = next(iter(result.failed.items()))
    raise dg.Failure(
        f"{len(result.failed)} of {len(context.partition_keys)} pairs failed, the others are done; {first}: {reason}",
        metadata={"failed": result.failed},
        allow_retries=False,
    )
