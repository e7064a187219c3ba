"""The partitions of the assets and their names.

What belongs here: partition definitions and conversions between keys and domain names. What does not: which
partitions there should be (the command line and the sensors add them from config/).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import dagster as dg
import sqlalchemy.exc

from audit_pipeline.catalogue.contracts import Pair
from audit_pipeline.catalogue.paths import explain_invalid_partition
from audit_pipeline.errors import ConfigError

BENCHMARK = "benchmark"
MODEL = "model"
CHAT_MODEL = "chat_model"


class PairPartitions(dg.MultiPartitionsDefinition):
    """Benchmark × model, without a tag a dimension on runs.

    To every run of a backfill that is launched from the page of a job, Dagster's daemon gives the tags of the
    backfill's first partition. Tags of its dimensions would go before the run's range: each run would compute that one
    partition again, and the backfill would show all of them as done.
    """

    def get_tags_for_partition_key(self, partition_key: str) -> Mapping[str, str]:
        tags = super().get_tags_for_partition_key(partition_key)
        return {name: value for name, value in tags.items() if not name.startswith("dagster/partition/")}


benchmark_partitions = dg.DynamicPartitionsDefinition(name=BENCHMARK)
model_partitions = dg.DynamicPartitionsDefinition(name=MODEL)
pair_partitions = PairPartitions({BENCHMARK: benchmark_partitions, MODEL: model_partitions})
GRID_NOTE = (
    " The grid shows every known model on every known benchmark, so Missing there also counts pairs that were not "
    "requested or do not apply; how many pairs are to be audited is shown with `warehouse`."
)
"""Of an asset whose partitions are pairs: Dagster knows no grid with holes."""


def pair_of(partition_key: str) -> Pair:
    """The pair behind ``benchmark|model`` (dimensions are sorted by name)."""
    benchmark, _, model = partition_key.partition("|")
    return Pair(benchmark, model)


def group_by_model(partition_keys: Iterable[str]) -> dict[str, list[Pair]]:
    """Pairs grouped by model, so that each model is loaded once."""
    groups: dict[str, list[Pair]] = {}
    for key in partition_keys:
        pair = pair_of(key)
        groups.setdefault(pair.model, []).append(pair)
    return groups


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


def range_of(instance: dg.DagsterInstance, pairs: Sequence[Pair]) -> tuple[str, str] | None:
    """First and last key of the range that holds exactly ``pairs``; None where no single range does."""
    wanted = {pair.partition for pair in pairs}
    known = pair_partitions.get_partition_keys(dynamic_partitions_store=instance)
    order = {str(key): number for number, key in enumerate(known)}
    ordered = sorted(wanted, key=lambda key: order.get(key, -1))
    first, last = ordered[0], ordered[-1]
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        keys = pair_partitions.get_partition_keys_in_range(dg.PartitionKeyRange(first, last))
    return (first, last) if set(keys) == wanted else None
