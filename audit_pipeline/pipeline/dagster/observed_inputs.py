"""The inputs that people change outside Dagster: their assets, and the sensor that observes them.

A cell records the observed versions of its inputs when it begins. If an input has another version now, Dagster shows
the cell as stale. The conditions (conditions.py) request the cells that a change affects.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache

import dagster as dg

from audit_pipeline.errors import AuditError
from audit_pipeline.pipeline.dagster.cell_events import build_code_references
from audit_pipeline.pipeline.dagster.instance import mark_dead_runs_failed
from audit_pipeline.pipeline.dagster.partitions import BENCHMARK, MODEL, SOURCE, partitions_of, require_valid_keys
from audit_pipeline.pipeline.dagster.resources import AuditData
from audit_pipeline.pipeline.plan import Planner
from audit_pipeline.pipeline.registry import OBSERVED
from audit_pipeline.pipeline.stage import ObservedInput, Stage
from audit_pipeline.pipeline.whole_configuration import (
    build_configured_planner,
    build_configured_scope,
    load_configuration,
)
from audit_pipeline.store.paths import DataPaths

_MAX_REASON = 2000
"""Maximum number of characters of a skip reason. Dagster stores a skip reason at every tick."""


@cache
def build_observed_assets() -> tuple[dg.SourceAsset, ...]:
    """Return the assets of all observed inputs."""
    return tuple(_build_observed_asset(observed) for observed in OBSERVED.values())


def _build_observed_asset(observed: ObservedInput) -> dg.SourceAsset:
    """Return the asset of an observed input. Its button *Observe* reports changes as the sensor does."""

    @dg.observable_source_asset(
        name=observed.name,
        partitions_def=partitions_of((observed.dimension,)),
        description=observed.description,
        group_name=observed.group,
        metadata=build_code_references(observed.get_version, observed.name),
        tags={f"dagster/kind/{kind}": "" for kind in observed.kinds},
    )
    def observe(context: dg.OpExecutionContext, data: AuditData) -> dg.DataVersionsByPartition:
        planner = build_configured_planner(load_configuration(), data.paths)
        versions, problems = _read_versions(observed, planner)
        for problem in problems:
            context.log.warning(problem)
        return dg.DataVersionsByPartition(versions)

    return observe


def observe_before_run(
    instance: dg.DagsterInstance, paths: DataPaths, stages: Iterable[Stage], partitions: Iterable[str]
) -> None:
    """Report the changed inputs of a run, so that its cells record the current versions.

    An unreadable file does not stop the run here. The code that needs the file reports the error.

    Args:
        instance: The Dagster instance.
        paths: The data folder.
        stages: The stages of the run.
        partitions: The partitions of the run.
    """
    wanted: dict[str, set[str]] = {}
    for stage in stages:
        for name in stage.observes:
            position = stage.dimensions.index(OBSERVED[name].dimension)
            wanted[name] = {partition.split("|", 1)[position] for partition in partitions}
    if not wanted:
        return
    try:
        planner = build_configured_planner(load_configuration(), paths)
        versions = {name: _read_versions(OBSERVED[name], planner, only)[0] for name, only in wanted.items()}
    except AuditError:
        return
    for event in _iterate_changes(versions, instance):
        instance.report_runless_asset_event(event)


@dg.sensor(
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Checks the configuration, the documents and the files of models, and reports each change, so that "
    "the UI shows stale assets. Adds the partitions of new benchmarks and models. It runs nothing. The sensor "
    "`audit_what_changed` runs audits, if it is on.",
)
def observe_inputs(context: dg.SensorEvaluationContext, data: AuditData) -> dg.SensorResult:
    """Report the inputs that changed since the last tick, and add partitions for new benchmarks and models.

    Runs whose process was killed are marked as failed. Otherwise the conditions would wait for them forever.

    Raises:
        ConfigError: If a file of the configuration is unreadable. In this case nothing is reported.
    """
    for run_id in mark_dead_runs_failed(context.instance, data.paths):
        context.log.warning(f"run {run_id} is marked as failed, because its process has ended")
    config = load_configuration()
    planner = build_configured_planner(config, data.paths)
    versions, faults = _read_all_versions(planner)
    problems = [*map(str, (*config.benchmarks.problems, *config.models.problems)), *faults]
    for problem in problems:
        context.log.warning(problem)
    changed = list(_iterate_changes(versions, context.instance))
    count = f"{len(planner.state.specs)} benchmarks and {len(planner.state.entries)} models"
    message = f"nothing changed in {count}"
    if changed:
        message = f"{len(changed)} inputs changed"
    return dg.SensorResult(
        asset_events=changed,
        dynamic_partitions_requests=[
            *_build_partition_requests(BENCHMARK, list(planner.state.specs), context.instance),
            *_build_partition_requests(MODEL, list(planner.state.entries), context.instance),
        ],
        skip_reason="; ".join([message, *problems])[:_MAX_REASON],
    )


def _read_all_versions(planner: Planner) -> tuple[dict[str, Mapping[str, str]], list[str]]:
    """Return the known versions by observed input and partition, and the problems of partitions that cannot be read."""
    versions: dict[str, Mapping[str, str]] = {}
    problems: list[str] = []
    for name, observed in OBSERVED.items():
        versions[name], faults = _read_versions(observed, planner)
        problems += faults
    return versions, problems


def _read_versions(
    observed: ObservedInput, planner: Planner, only: Collection[str] | None = None
) -> tuple[dict[str, str], list[str]]:
    """Return the known versions by configured partition, and the problems of partitions that cannot be read.

    Args:
        observed: The observed input.
        planner: The planner of the configuration.
        only: The partitions to read. By default all.
    """
    versions: dict[str, str] = {}
    problems: list[str] = []
    for partition in _list_names(observed.dimension, planner):
        if only is not None and partition not in only:
            continue
        try:
            version = observed.get_version(partition, planner.state)
        except (AuditError, OSError) as error:
            problems.append(f"{partition}: {error}")
            continue
        if version is not None:
            versions[partition] = version
    return versions, problems


def _list_names(dimension: str, planner: Planner) -> list[str]:
    if dimension == BENCHMARK:
        return list(planner.state.specs)
    if dimension == MODEL:
        return list(planner.state.entries)
    if dimension == SOURCE:
        return list(dict.fromkeys(planner.list_sources(build_configured_scope(planner))))
    raise ValueError(f"inputs of the dimension '{dimension}' cannot be observed. Use {BENCHMARK}, {MODEL} or {SOURCE}.")


def _iterate_changes(
    versions: Mapping[str, Mapping[str, str]], instance: dg.DagsterInstance
) -> Iterator[dg.AssetObservation]:
    """Yield an observation for each version that differs from the last observed version."""
    for name, by_partition in versions.items():
        for partition, version in by_partition.items():
            record = instance.get_latest_data_version_record(dg.AssetKey(name), is_source=True, partition_key=partition)
            known = None if record is None else record.asset_observation
            if known is None or known.data_version != version:
                tags = {"dagster/data_version": version}
                yield dg.AssetObservation(dg.AssetKey(name), partition=partition, tags=tags)


def _build_partition_requests(
    dimension: str, names: list[str], instance: dg.DagsterInstance
) -> list[dg.AddDynamicPartitionsRequest]:
    known = set(instance.get_dynamic_partitions(dimension))
    new = [name for name in names if name not in known]
    require_valid_keys(dimension, new)
    if not new:
        return []
    return [dg.AddDynamicPartitionsRequest(dimension, new)]
