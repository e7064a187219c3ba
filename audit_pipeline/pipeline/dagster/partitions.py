"""The partitions of the assets and their names."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import dagster as dg
import sqlalchemy.exc

from audit_pipeline.benchmarks.config import exclude_on_request
from audit_pipeline.errors import AuditError, ConfigError, to_one_line
from audit_pipeline.models.config import exclude_control_models
from audit_pipeline.pipeline.dagster.instance import open_existing_instance
from audit_pipeline.pipeline.whole_configuration import OF_DIMENSIONS, load_configuration
from audit_pipeline.sources.config import all_sources
from audit_pipeline.store.paths import explain_invalid_partition

_logger = logging.getLogger(__name__)

BENCHMARK = "benchmark"
MODEL = "model"
SOURCE = "source"


class PairPartitions(dg.MultiPartitionsDefinition):
    """Benchmark × model, without a tag a dimension on runs.

    To every run of a backfill that is launched from the page of a job, Dagster's daemon gives the tags of the
    backfill's first partition. Tags of its dimensions would go before the run's range: each run would compute that one
    partition again, and the backfill would show all of them as done.
    """

    def get_tags_for_partition_key(self, partition_key: str) -> Mapping[str, str]:
        tags = super().get_tags_for_partition_key(partition_key)
        return {name: value for name, value in tags.items() if not name.startswith("dagster/partition/")}


@cache
def read_static_names(dimension: str) -> list[str]:
    """Return the names of a static dimension, as the configuration was when they were read first.

    Broken entries keep their names. If the file cannot be read, only its built-in names are returned, so that
    everything else still loads. A run reads the file again, and reports what is wrong with it.
    """
    file = OF_DIMENSIONS[dimension]
    try:
        return list(dict.fromkeys([*file.permanent_partitions, *file.load().names]))
    except ConfigError:
        return list(file.permanent_partitions)


def _dimension(name: str) -> dg.PartitionsDefinition[str]:
    if name == SOURCE:
        return dg.StaticPartitionsDefinition(list(all_sources()))
    if name in OF_DIMENSIONS:
        return dg.StaticPartitionsDefinition(read_static_names(name))
    return dg.DynamicPartitionsDefinition(name=name)


@cache
def partitions_of(dimensions: tuple[str, ...]) -> dg.PartitionsDefinition[str]:
    """The partitions of a stage with these dimensions."""
    if len(dimensions) == 1:
        return _dimension(dimensions[0])
    return PairPartitions({name: _dimension(name) for name in dimensions})


def register(instance: dg.DagsterInstance, *, benchmarks: Sequence[str] = (), models: Sequence[str] = ()) -> None:
    """Add partitions of these names to the instance; existing partitions stay unchanged.

    Raises:
        ConfigError: If a name cannot be a partition key.
    """
    for dimension, names in ((BENCHMARK, benchmarks), (MODEL, models)):
        require_keys(dimension, names)
        known = set(instance.get_dynamic_partitions(dimension))
        new = [name for name in names if name not in known]
        if new:
            try:
                instance.add_dynamic_partitions(dimension, new)
            except sqlalchemy.exc.IntegrityError:
                # Another process added one of them after Dagster had looked; it adds what is missing now.
                instance.add_dynamic_partitions(dimension, new)


def register_configured() -> None:
    """Add the configured benchmarks and models to the instance of DAGSTER_HOME, if that folder exists.

    Benchmarks on request and control models are left out, as in the weekly audit: a command that audits them adds them.
    Definitions load whether or not this succeeds. A file that cannot be read, or an instance that cannot be opened or
    written, is logged as a warning.
    """
    home = os.environ.get("DAGSTER_HOME")
    if not home or not Path(home).is_dir():
        return
    config = load_configuration()
    names: dict[str, list[str]] = {}
    try:
        names["benchmarks"] = list(exclude_on_request(config.benchmarks))
    except AuditError as error:
        _logger.warning("no benchmark was added to the grid: %s", to_one_line(error))
    try:
        names["models"] = list(exclude_control_models(config.models))
    except AuditError as error:
        _logger.warning("no model was added to the grid: %s", to_one_line(error))
    try:
        with open_existing_instance(Path(home)) as instance:
            register(instance, **names)
    except Exception as error:  # noqa: BLE001 - without this the whole code location would be missing in the UI
        _logger.warning("the configured benchmarks and models were not added to the grid: %s", to_one_line(error))


def require_keys(dimension: str, names: Iterable[str]) -> None:
    """Raise ConfigError if a name cannot be a partition key."""
    for name in names:
        if (problem := explain_invalid_partition(dimension, name)) is not None:
            raise ConfigError(problem)
