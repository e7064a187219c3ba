"""The partitions of the assets and their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import dagster as dg
import sqlalchemy.exc

from audit_pipeline.errors import ConfigError
from audit_pipeline.pipeline.whole_configuration import OF_DIMENSIONS
from audit_pipeline.store.paths import explain_invalid_partition

BENCHMARK = "benchmark"
MODEL = "model"


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
    """The names of a dimension that is not dynamic, as the configuration was when they were read first.

    Those of broken entries, too; of a file that cannot be read those that there always are, so that everything else
    still loads. A run reads the file again, and says what is wrong with it.
    """
    file = OF_DIMENSIONS[dimension]
    try:
        return list(dict.fromkeys([*file.always, *file.load().names]))
    except ConfigError:
        return list(file.always)


def _dimension(name: str) -> dg.PartitionsDefinition[str]:
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
    """Make partitions of these names known to the instance; those it knows stay as they are.

    Raises ConfigError for a name that cannot be a partition key.
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


def require_keys(dimension: str, names: Iterable[str]) -> None:
    """Raise ConfigError for a name that cannot be a partition key."""
    for name in names:
        if (problem := explain_invalid_partition(dimension, name)) is not None:
            raise ConfigError(problem)
