"""The Dagster assets and jobs of the declared stages.

The assets of a job have the same partitions and are one step (partition_step.py). The documents of each source, the
warehouse and the report are separate steps.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cache, partial
from typing import Any

import dagster as dg
from pydantic import BaseModel, create_model

from audit_pipeline.pipeline.dagster import cell_events
from audit_pipeline.pipeline.dagster.conditions import choose_condition, select_stages
from audit_pipeline.pipeline.dagster.locks import hold_named_lock
from audit_pipeline.pipeline.dagster.partition_step import PartitionLoop, run_with_retries
from audit_pipeline.pipeline.dagster.partitions import partitions_of
from audit_pipeline.pipeline.dagster.resources import AuditData, ModelsResource, ProgressReporter
from audit_pipeline.pipeline.registry import OBSERVED, REPORT_STAGES, STAGES, get_stage
from audit_pipeline.pipeline.stage import PAIR, SOURCE, Stage, StageJob, StageResult, StageRun
from audit_pipeline.pipeline.stage_settings import load_stage_entries
from audit_pipeline.sources.base import Source
from audit_pipeline.sources.config import all_sources

_ALL_STAGES = (*STAGES, *REPORT_STAGES)
_GRID_NOTE = (
    " The grid shows every known model on every known benchmark. So Missing also counts pairs that were not requested "
    "or do not apply. The asset `warehouse` shows how many pairs have to be audited."
)
"""A note in the description of assets with one partition per pair.

Dagster's grid shows every combination of benchmark and model, also those that no audit makes.
"""


@cache
def build_assets() -> tuple[dg.AssetsDefinition, ...]:
    """Return the Dagster assets of all stages."""
    assets: list[dg.AssetsDefinition] = []
    for stages in group_stages():
        if stages[0].dimensions == SOURCE:
            assets += [_build_source_asset(stages[0], source) for source in all_sources().values()]
        elif stages[0].dimensions:
            assets.append(_build_partition_step(stages))
        else:
            assets += [_build_unpartitioned_asset(stage) for stage in stages]
    return tuple(assets)


def group_stages() -> list[list[Stage]]:
    """Return the stages in groups with the same job and dimensions, in the order of an audit."""
    groups: dict[tuple[str, tuple[str, ...]], list[Stage]] = {}
    for stage in _ALL_STAGES:
        groups.setdefault((stage.job.name, stage.dimensions), []).append(stage)
    return list(groups.values())


def build_step_name(stage: Stage) -> str:
    """Return the name of the step that makes a partitioned stage."""
    return f"{stage.job.name}_step"


def build_op_config(options: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the run configuration of steps.

    Args:
        options: The options of assets, by the asset's name.
    """
    ops: dict[str, Any] = {}
    unpartitioned = {stage.name for stage in REPORT_STAGES}
    for name, stage_options in options.items():
        if name in unpartitioned:
            ops[name] = {"config": dict(stage_options)}
        else:
            ops.setdefault(build_step_name(get_stage(name)), {"config": {}})["config"][name] = dict(stage_options)
    return ops


def _build_partition_step(stages: Sequence[Stage]) -> dg.AssetsDefinition:
    """Return the step that makes the assets of stages with the same job and dimensions."""
    partitions = partitions_of(stages[0].dimensions)
    backfill_policy = None
    if stages[0].dimensions[-1] == "model":
        backfill_policy = dg.BackfillPolicy.single_run()
    specs: list[dg.AssetSpec] = []
    checks: list[dg.AssetCheckSpec] = []
    for stage in stages:
        specs.append(_build_spec(stage).replace_attributes(skippable=True, partitions_def=partitions))
        checks += _build_check_specs(stage, dg.AssetKey(stage.name), partitions)

    @dg.multi_asset(
        name=build_step_name(stages[0]),
        specs=specs,
        check_specs=checks,
        partitions_def=partitions,
        can_subset=True,
        backfill_policy=backfill_policy,
        description=stages[0].job.description,
    )
    def step(
        context: dg.AssetExecutionContext,
        config: _build_step_config(stages),  # type: ignore[valid-type]
        data: AuditData,
        models: ModelsResource,
        progress: ProgressReporter,
    ) -> Iterator[Any]:
        selected = [stage for stage in stages if dg.AssetKey(stage.name) in context.selected_asset_keys]
        shared: dict[str, dict[str, Any]] = {stage.name: {} for stage in selected}
        options = {stage.name: _choose_options(stage, getattr(config, stage.name, None)) for stage in selected}

        def start(stage: Stage, partition: str) -> StageRun:
            return StageRun(
                stage,
                STAGES,
                partition,
                partitions=list(map(str, context.partition_keys)),
                paths=data.paths,
                run_id=context.run.run_id,
                options=options[stage.name],
                models=models,
                log=context.log,
                progress=partial(progress.report_progress, log=context.log),
                shared=shared[stage.name],
            )

        lock = None
        for stage in selected:
            lock = lock or stage.lock
        with hold_named_lock(data.paths, lock, context.log.info):
            PartitionLoop(context, data.paths, selected, start, cell_events.CellEvents(context)).run()
        # Dagster requires a generator. All events are already reported.
        yield from ()

    return step


def _build_source_asset(stage: Stage, source: Source[Any]) -> dg.AssetsDefinition:
    """Return the asset of the documents of one source."""
    key = dg.AssetKey([stage.name, source.name])
    spec = _build_spec(stage, key)
    metadata = {**spec.metadata, "licence": source.licence}
    spec = spec.replace_attributes(description=source.description, code_version=str(source.version), metadata=metadata)
    if source.on_request:
        spec = spec.replace_attributes(group_name="6_sources_on_request", freshness_policy=None)
    return _build_single_asset(stage, spec, source.name)


def _build_unpartitioned_asset(stage: Stage) -> dg.AssetsDefinition:
    """Return the asset of a stage without partitions, which is rebuilt after every upstream change."""
    return _build_single_asset(stage, _build_spec(stage), "")


def _build_single_asset(stage: Stage, spec: dg.AssetSpec, partition: str) -> dg.AssetsDefinition:
    """Return an asset that is a separate step and has no partitions in Dagster."""
    name = "__".join(spec.key.path)

    @dg.multi_asset(name=name, specs=[spec], check_specs=_build_check_specs(stage, spec.key, None))
    def asset(
        context: dg.AssetExecutionContext,
        config: _build_config(stage),  # type: ignore[valid-type]
        data: AuditData,
        models: ModelsResource,
        progress: ProgressReporter,
    ) -> Iterator[Any]:
        run = StageRun(
            stage,
            STAGES,
            partition,
            partitions=[partition],
            paths=data.paths,
            run_id=context.run.run_id,
            options=_choose_options(stage, config),
            models=models,
            log=context.log,
            progress=partial(progress.report_progress, log=context.log),
            shared={},
        )
        with hold_named_lock(data.paths, stage.lock, context.log.info):
            result = run_with_retries(partial(stage.make, run), spec.key.to_user_string(), context.log)
        yield _build_result(stage, result)

    return asset


def _build_spec(stage: Stage, key: dg.AssetKey | None = None) -> dg.AssetSpec:
    """Return the specification of a stage's asset, without its partitions."""
    metadata: dict[str, Any] = {**cell_events.build_code_references(stage.make, stage.name)}
    if stage.tables:
        metadata["dagster/column_schema"] = cell_events.build_column_schema(stage.tables[0])
        metadata["dagster/column_lineage"] = _build_column_lineage(stage)
    freshness = None
    if stage.late_after_days is not None:
        warn_after = timedelta(days=stage.late_after_days)
        fail_after = timedelta(days=2 * stage.late_after_days - 1)
        freshness = dg.FreshnessPolicy.time_window(fail_window=fail_after, warn_window=warn_after)
    return dg.AssetSpec(
        key or dg.AssetKey(stage.name),
        deps=[*_iterate_deps(stage), *_iterate_observed_deps(stage, key)],
        description=stage.description + (_GRID_NOTE if stage.dimensions == PAIR else ""),
        group_name=stage.group,
        kinds=set(stage.kinds),
        code_version=stage.code_version,
        automation_condition=choose_condition(stage),
        freshness_policy=freshness,
        metadata=metadata,
        tags=_build_tags(stage),
    )


def _build_tags(stage: Stage) -> dict[str, str]:
    """Return the tags by which users filter assets in the UI: the lock of their runs, and ``on_request``."""
    tags: dict[str, str] = {}
    if stage.lock is not None:
        tags["corpus_audit/lock"] = stage.lock
    if stage.is_on_request:
        tags["corpus_audit/on_request"] = "true"
    return tags


def _build_column_lineage(stage: Stage) -> dg.TableColumnLineage:
    """Return the lineage of the columns of a stage's first table.

    A column comes from the columns with the same name in the first tables of upstream stages. Documents are omitted,
    because each source is a separate asset.
    """
    table = stage.tables[0]
    names = {column.name for column in table.columns}
    upstream: dict[str, list[dg.TableColumnDep]] = {}
    for above in STAGES:
        if above.tables and above.dimensions != SOURCE and above.tables[0].name in table.made_from:
            for column in above.tables[0].columns:
                if column.name in names:
                    dep = dg.TableColumnDep(asset_key=dg.AssetKey(above.name), column_name=column.name)
                    upstream.setdefault(column.name, []).append(dep)
    return dg.TableColumnLineage(deps_by_column=upstream)


def _build_check_specs(
    stage: Stage, key: dg.AssetKey, partitions: dg.PartitionsDefinition[str] | None
) -> list[dg.AssetCheckSpec]:
    return [
        dg.AssetCheckSpec(
            name,
            asset=key,
            description=check.description,
            blocking=check.blocking,
            partitions_def=partitions,
        )
        for name, check in cell_events.list_checks(stage).items()
    ]


def _iterate_deps(stage: Stage) -> Iterator[dg.AssetDep | dg.AssetKey]:
    """Yield the upstream assets of a stage with the partitions that one of its partitions depends on.

    These are the same partition, the partition of a shared dimension such as the benchmark, or all partitions.
    """
    for name in stage.deps:
        kind, _, product = name.partition("/")
        if not stage.dimensions:
            yield dg.AssetKey(kind)
            continue
        above = get_stage(kind)
        if above.dimensions == SOURCE:
            sources = [product] if product else list(all_sources())
            for source in sources:
                yield dg.AssetKey([kind, source])
        elif above.dimensions == stage.dimensions:
            yield dg.AssetDep(kind)
        elif len(above.dimensions) == 1 and above.dimensions[0] in stage.dimensions:
            [shared] = above.dimensions
            mapping = dg.MultiToSingleDimensionPartitionMapping(partition_dimension_name=shared)
            yield dg.AssetDep(kind, partition_mapping=mapping)
        else:
            yield dg.AssetDep(kind, partition_mapping=dg.AllPartitionMapping())


def _iterate_observed_deps(stage: Stage, key: dg.AssetKey | None) -> Iterator[dg.AssetDep]:
    """Yield the observed inputs of a stage with the partition that one of its partitions depends on."""
    for name in stage.observes:
        if stage.dimensions == SOURCE and key is not None:
            yield dg.AssetDep(name, partition_mapping=dg.SpecificPartitionsPartitionMapping([key.path[-1]]))
        elif stage.dimensions == (OBSERVED[name].dimension,):
            yield dg.AssetDep(name)
        else:
            mapping = dg.MultiToSingleDimensionPartitionMapping(partition_dimension_name=OBSERVED[name].dimension)
            yield dg.AssetDep(name, partition_mapping=mapping)


def _build_config(stage: Stage) -> type[dg.Config]:
    """Return the configuration class of a stage, which has the fields of its options."""
    options = stage.options
    if options is None:
        return dg.Config
    fields: dict[str, Any] = {name: (info.annotation, info) for name, info in options.model_fields.items()}
    return create_model(options.__name__, __base__=dg.Config, **fields)


def _build_step_config(stages: Sequence[Stage]) -> type[dg.Config]:
    """Return the configuration class of a step. It has one field per stage with options, named after the stage."""
    fields: dict[str, Any] = {}
    for stage in stages:
        if stage.options is not None:
            config = _build_config(stage)
            fields[stage.name] = (config, config())
    if not fields:
        return dg.Config
    name = "".join(map(str.title, build_step_name(stages[0]).split("_")))
    return create_model(f"{name}Config", __base__=dg.Config, **fields)


def _choose_options(stage: Stage, config: dg.Config | None) -> BaseModel | None:
    """Return the options of a run. For options that the run leaves at their defaults, config/stages.yaml decides."""
    options = stage.options
    if options is None:
        return None
    chosen: dict[str, Any] = {}
    if stage.is_on_request:
        entry = load_stage_entries(STAGES).get(stage.name)
        if entry is not None:
            chosen |= entry.options
    if config is not None:
        for name, value in config.model_dump().items():
            if value != options.model_fields[name].get_default():
                chosen[name] = value
    return options.model_validate(chosen)


def _build_result(stage: Stage, result: StageResult) -> dg.MaterializeResult[Any]:
    check_results = []
    for name, check in cell_events.list_checks(stage).items():
        check_result = result.checks[name]
        check_results.append(
            dg.AssetCheckResult(
                check_name=name,
                passed=check_result.passed,
                severity=cell_events.choose_severity(is_warning=check.is_warning),
                description=check_result.description,
                metadata=cell_events.build_metadata(check_result.metadata),
            )
        )
    data_version = None
    if result.data_version is not None:
        data_version = dg.DataVersion(result.data_version)
    return dg.MaterializeResult(
        data_version=data_version,
        metadata={"status": result.status, **cell_events.build_metadata(result.metadata)},
        check_results=check_results,
    )


def build_jobs() -> list[Any]:
    """Return the jobs that the UI offers and that commands run."""
    stages_by_job: dict[StageJob, list[Stage]] = {}
    for stage in _ALL_STAGES:
        stages_by_job.setdefault(stage.job, []).append(stage)
    jobs = [_build_job(job, *stages) for job, stages in stages_by_job.items()]
    for stage in STAGES:
        if stage.standalone_job is not None:
            jobs.append(_build_job(stage.standalone_job, stage, options=stage.standalone_options))
    return jobs


def _build_job(job: StageJob, *stages: Stage, options: Mapping[str, Any] | None = None) -> Any:
    """Return a job over the assets of stages. It runs in one process, because each process would load the model."""
    config = None
    if options:
        config = {"ops": build_op_config({stages[0].name: options})}
    return dg.define_asset_job(
        job.name,
        selection=select_stages(*stages),
        description=job.description,
        config=config,
        executor_def=dg.in_process_executor,
    )
