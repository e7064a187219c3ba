"""The partitions of the assets, and the registration of their names."""

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
from audit_pipeline.pipeline.whole_configuration import FILES_BY_DIMENSION, load_configuration
from audit_pipeline.sources.config import all_sources
from audit_pipeline.store.paths import explain_invalid_partition

_logger = logging.getLogger(__name__)

BENCHMARK = "benchmark"
MODEL = "model"
SOURCE = "source"


class PairPartitions(dg.MultiPartitionsDefinition):
    """Partitions with two dimensions, such as benchmark × model, without tags per dimension on runs.

    If a backfill is launched from the page of a job, Dagster's daemon gives every run the tags of the first partition.
    Tags per dimension would override the range of the run. Then each run would compute the first partition again, and
    the backfill would show all partitions as done.
    """

    def get_tags_for_partition_key(self, partition_key: str) -> Mapping[str, str]:
        """Return the tags of a partition without the tags of its dimensions."""
        tags = super().get_tags_for_partition_key(partition_key)
        return {name: value for name, value in tags.items() if not name.startswith("dagster/partition/")}


@cache
def read_static_names(dimension: str) -> list[str]:
    """Return the names of a static dimension. The configuration is read once per process.

    The names of broken entries are included. If the configuration file is unreadable, only the dimension's built-in
    names are returned, so that the other definitions still load. A run reads the file again and reports the error.
    """
    file = FILES_BY_DIMENSION[dimension]
    try:
        return list(dict.fromkeys([*file.permanent_partitions, *file.load().names]))
    except ConfigError:
        return list(file.permanent_partitions)


def _build_dimension(name: str) -> dg.PartitionsDefinition[str]:
    if name == SOURCE:
        return dg.StaticPartitionsDefinition(list(all_sources()))
    if name in FILES_BY_DIMENSION:
        return dg.StaticPartitionsDefinition(read_static_names(name))
    return dg.DynamicPartitionsDefinition(name=name)


@cache
def partitions_of(dimensions: tuple[str, ...]) -> dg.PartitionsDefinition[str]:
    """Return the partitions of a stage with these dimensions."""
    if len(dimensions) == 1:
        return _build_dimension(dimensions[0])
    return PairPartitions({name: _build_dimension(name) for name in dimensions})


def register_partitions(
    instance: dg.DagsterInstance, *, benchmarks: Sequence[str] = (), models: Sequence[str] = ()
) -> None:
    """Add partitions with these names to the instance. Existing partitions do not change.

    Raises:
        ConfigError: If a name cannot be a partition key.
    """
    for dimension, names in ((BENCHMARK, benchmarks), (MODEL, models)):
        require_valid_keys(dimension, names)
        known = set(instance.get_dynamic_partitions(dimension))
        new = [name for name in names if name not in known]
        if new:
            try:
                instance.add_dynamic_partitions(dimension, new)
            except sqlalchemy.exc.IntegrityError:
                # Another process added one of the names at the same time. The second call adds the remaining names.
                instance.add_dynamic_partitions(dimension, new)


def register_configured() -> None:
    """Add the configured benchmarks and models to the instance of DAGSTER_HOME, if that folder exists.

    Benchmarks on request and control models are skipped, as in the weekly audit. A command that audits such a benchmark
    or model adds its partition.
    Errors are logged as warnings, so that the definitions load in any case.
    """
    home = os.environ.get("DAGSTER_HOME")
    if not home or not Path(home).is_dir():
        return
    config = load_configuration()
    names: dict[str, list[str]] = {}
    try:
        names["benchmarks"] = list(exclude_on_request(config.benchmarks))
    except AuditError as error:
        _logger.warning("no benchmark was added to the grid of the Dagster UI: %s", to_one_line(error))
    try:
        names["models"] = list(exclude_control_models(config.models))
    except AuditError as error:
        _logger.warning("no model was added to the grid of the Dagster UI: %s", to_one_line(error))
    try:
        with open_existing_instance(Path(home)) as instance:
            register_partitions(instance, **names)
    except Exception as error:  # noqa: BLE001 - an error here would remove the whole code location from the UI
        _logger.warning(
            "the configured benchmarks and models were not added to the grid of the Dagster UI: %s", to_one_line(error)
        )


def require_valid_keys(dimension: str, names: Iterable[str]) -> None:
    """Raise ConfigError if a name cannot be a partition key."""
    for name in names:
        problem = explain_invalid_partition(dimension, name)
        if problem is not None:
            raise ConfigError(problem)
