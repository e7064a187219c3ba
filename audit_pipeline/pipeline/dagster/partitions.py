"""The partitions of the assets and their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import dagster as dg
import sqlalchemy.exc

from audit_pipeline.config.entries import Entries
from audit_pipeline.errors import ConfigError
from audit_pipeline.extras.chat.config import load_chat_models
from audit_pipeline.extras.controls.config import load_controls, load_studies
from audit_pipeline.extras.corpora.config import DEFAULT, load_references
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


def _names_of(load: Callable[[], Entries[Any]], *, always: Sequence[str] = ()) -> Callable[[], list[str]]:
    """The entries of a file, those that are broken, too; of one that cannot be read those that there ``always`` are.

    So everything else still loads. A run reads the file again, and says what is wrong with it.
    """

    def names() -> list[str]:
        try:
            return list(dict.fromkeys([*always, *load().names]))
        except ConfigError:
            return list(always)

    return names


_STATIC: Mapping[str, Callable[[], list[str]]] = {
    "control": _names_of(load_controls),
    "study": _names_of(load_studies),
    "corpus": _names_of(load_references, always=[DEFAULT]),
    "chat_model": _names_of(load_chat_models),
}
"""The dimensions whose names are those of the configuration when it is loaded; all others are dynamic."""


@cache
def read_static_names(dimension: str) -> list[str]:
    """The names of a dimension that is not dynamic, as the configuration was when they were read first."""
    return _STATIC[dimension]()


def _dimension(name: str) -> dg.PartitionsDefinition[str]:
    if name in _STATIC:
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
