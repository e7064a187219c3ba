"""The Dagster assets of the declared stages.

The assets of a job with the same partitions are one step (partition_step.py). The documents of each source, the
warehouse and the report are one asset each.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cache, partial
from typing import Any

import dagster as dg
from pydantic import BaseModel, create_model

from audit_pipeline.pipeline.dagster.cell_events import CellEvents, list_checks
from audit_pipeline.pipeline.dagster.conditions import choose_condition
from audit_pipeline.pipeline.dagster.locks import hold_named_lock
from audit_pipeline.pipeline.dagster.metadata import build_code_references, build_column_schema, build_metadata
from audit_pipeline.pipeline.dagster.partition_step import PartitionLoop
from audit_pipeline.pipeline.dagster.partitions import partitions_of
from audit_pipeline.pipeline.dagster.resources import AuditData, ModelsResource, ProgressReporter
from audit_pipeline.pipeline.dagster.retries import run_with_retries
from audit_pipeline.pipeline.registry import OBSERVED, REPORT_STAGES, STAGES, get_stage
from audit_pipeline.pipeline.stage import PAIR, SOURCE, Stage, StageResult, StageRun
from audit_pipeline.pipeline.stage_settings import load_stage_entries
from audit_pipeline.sources.base import Source
from audit_pipeline.sources.config import all_sources

_ALL_STAGES = (*STAGES, *REPORT_STAGES)
_GRID_NOTE = (
    " The grid shows every known model on every known benchmark, so Missing there also counts pairs that were not "
    "requested or do not apply; how many pairs are to be audited is shown with `warehouse`."
)
"""Added to the description of assets per pair: Dagster knows no grid with holes."""


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


def name_step(stage: Stage) -> str:
    """Return the name of the step that makes a partitioned stage."""
    return f"{stage.job.name}_step"


def build_op_config(options: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the run configuration of steps from options by stage."""
    ops: dict[str, Any] = {}
    by_name = {stage.name: stage for stage in _ALL_STAGES}
    for name, own in options.items():
        stage = by_name[name]
        if stage.dimensions:
            ops.setdefault(name_step(stage), {"config": {}})["config"][name] = dict(own)
        else:
            ops[name] = {"config": dict(own)}
    return ops


def _build_partition_step(stages: Sequence[Stage]) -> dg.AssetsDefinition:
    """Return the step that makes the assets of some stages, which have the same job and dimensions."""
    partitions = partitions_of(stages[0].dimensions)
    is_per_model = stages[0].dimensions[-1] == "model"
    specs = [_build_spec(stage).replace_attributes(skippable=True, partitions_def=partitions) for stage in stages]
    checks = [spec for stage in stages for spec in _build_check_specs(stage, dg.AssetKey(stage.name), partitions)]

    @dg.multi_asset(
        name=name_step(stages[0]),
        specs=specs,
        check_specs=checks,
        partitions_def=partitions,
        can_subset=True,
        backfill_policy=dg.BackfillPolicy.single_run() if is_per_model else None,
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
                partitions=[str(key) for key in context.partition_keys],
                paths=data.paths,
                run_id=context.run.run_id,
                options=options[stage.name],
                models=models,
                log=context.log,
                progress=partial(progress.report_progress, log=context.log),
                shared=shared[stage.name],
            )

        lock = next((stage.lock for stage in selected if stage.lock is not None), None)
        with hold_named_lock(data.paths, lock, context.log.info):
            PartitionLoop(context, data.paths, selected, start, CellEvents(context)).run()
        # A step of a multi-asset is a generator. All events were reported by then.
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
    """Return the asset of a stage without partitions, which is rebuilt whenever something upstream was."""
    return _build_single_asset(stage, _build_spec(stage), "")


def _build_single_asset(stage: Stage, spec: dg.AssetSpec, partition: str) -> dg.AssetsDefinition:
    """Return an asset that is a step of its own, without partitions in Dagster."""
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
    metadata: dict[str, Any] = {**build_code_references(stage.make, stage.name)}
    if stage.tables:
        metadata["dagster/column_schema"] = build_column_schema(stage.tables[0])
        metadata["dagster/column_lineage"] = _build_column_lineage(stage)
    freshness = None
    if stage.late_after_days is not None:
        late = timedelta(days=stage.late_after_days)
        failed = timedelta(days=2 * stage.late_after_days - 1)
        freshness = dg.FreshnessPolicy.time_window(fail_window=failed, warn_window=late)
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
    """Return the tags by which the UI filters assets: the lock of their runs, and whether they are on request."""
    tags: dict[str, str] = {}
    if stage.lock is not None:
        tags["corpus_audit/lock"] = stage.lock
    if stage.is_on_request:
        tags["corpus_audit/on_request"] = "true"
    return tags


def _build_column_lineage(stage: Stage) -> dg.TableColumnLineage:
    """Return the columns of a stage's first table that are handed on from the first tables that it is made from.

    A handed-on column has the same name in both tables. Documents are left out: each source is an asset of its own.
    """
    table = stage.tables[0]
    own = {column.name for column in table.columns}
    upstream: dict[str, list[dg.TableColumnDep]] = {}
    for above in STAGES:
        if above.tables and above.dimensions != SOURCE and above.tables[0].name in table.made_from:
            for column in above.tables[0].columns:
                if column.name in own:
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
        for name, check in list_checks(stage).items()
    ]


def _iterate_deps(stage: Stage) -> Iterator[dg.AssetDep | dg.AssetKey]:
    """Yield what a stage is made of: the same partition, that of a shared dimension, or all partitions."""
    for name in stage.deps:
        kind, _, product = name.partition("/")
        if not stage.dimensions:
            yield dg.AssetKey(kind)
            continue
        above = get_stage(kind)
        if above.dimensions == SOURCE:
            sources = [product] if product else list(all_sources())
            yield from (dg.AssetKey([kind, source]) for source in sources)
        elif above.dimensions == stage.dimensions:
            yield dg.AssetDep(kind)
        elif len(above.dimensions) == 1 and above.dimensions[0] in stage.dimensions:
            [shared] = above.dimensions
            mapping = dg.MultiToSingleDimensionPartitionMapping(partition_dimension_name=shared)
            yield dg.AssetDep(kind, partition_mapping=mapping)
        else:
            yield dg.AssetDep(kind, partition_mapping=dg.AllPartitionMapping())


def _iterate_observed_deps(stage: Stage, key: dg.AssetKey | None) -> Iterator[dg.AssetDep]:
    """Yield the observed inputs of a stage: the partition of the same name, or that of a shared dimension."""
    for name in stage.observes:
        if stage.dimensions == SOURCE and key is not None:
            yield dg.AssetDep(name, partition_mapping=dg.SpecificPartitionsPartitionMapping([key.path[-1]]))
        elif stage.dimensions == (OBSERVED[name].dimension,):
            yield dg.AssetDep(name)
        else:
            mapping = dg.MultiToSingleDimensionPartitionMapping(partition_dimension_name=OBSERVED[name].dimension)
            yield dg.AssetDep(name, partition_mapping=mapping)


def _build_config(stage: Stage) -> type[dg.Config]:
    """Return the configuration of a stage's own step: its options."""
    options = stage.options
    if options is None:
        return dg.Config
    fields: dict[str, Any] = {name: (info.annotation, info) for name, info in options.model_fields.items()}
    return create_model(options.__name__, __base__=dg.Config, **fields)


def _build_step_config(stages: Sequence[Stage]) -> type[dg.Config]:
    """Return the configuration of a step: the options of each of its stages that has any, by the stage's name."""
    fields: dict[str, Any] = {}
    for stage in stages:
        if stage.options is not None:
            config = _build_config(stage)
            fields[stage.name] = (config, config())
    name = "".join(part.title() for part in name_step(stages[0]).split("_"))
    return create_model(f"{name}Config", __base__=dg.Config, **fields) if fields else dg.Config


def _choose_options(stage: Stage, config: dg.Config | None) -> BaseModel | None:
    """Return the options of a run; those that the run leaves at their defaults are as config/stages.yaml sets them."""
    kind = stage.options
    if kind is None:
        return None
    entry = load_stage_entries(STAGES).get(stage.name) if stage.is_on_request else None
    given = {} if config is None else config.model_dump()
    changed = {name: value for name, value in given.items() if value != kind.model_fields[name].get_default()}
    return kind.model_validate({**({} if entry is None else entry.options), **changed})


def _build_result(stage: Stage, result: StageResult) -> dg.MaterializeResult[Any]:
    checks = list_checks(stage)
    return dg.MaterializeResult(
        data_version=None if result.data_version is None else dg.DataVersion(result.data_version),
        metadata={"status": result.status, **build_metadata(result.metadata)},
        check_results=[
            dg.AssetCheckResult(
                check_name=name,
                passed=result.checks[name].passed,
                severity=dg.AssetCheckSeverity.WARN if check.is_warning else dg.AssetCheckSeverity.ERROR,
                description=result.checks[name].description,
                metadata=build_metadata(result.checks[name].metadata),
            )
            for name, check in checks.items()
        ],
    )
