"""The version tags of a materialised cell: its own data and code version, and those of what it was made of.

Dagster's stale status compares these tags. It writes them itself only for events that a step yields, one version for
all partitions of a run.
"""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
from dagster._core.definitions.data_version import extract_data_version_from_entry

from audit_pipeline.pipeline.registry import OBSERVED, get_stage
from audit_pipeline.pipeline.stage import SOURCE, Stage
from audit_pipeline.sources.config import all_sources

_NO_VERSION = "INITIAL"
"""Dagster's version of an asset that was never materialised."""
_NO_EVENT = "NULL"


def build_version_tags(instance: dg.DagsterInstance, stage: Stage, partition: str, version: str) -> dict[str, str]:
    """Return the tags of a cell that was made now.

    Args:
        instance: The instance with the events of what the cell was made of.
        stage: The cell's stage.
        partition: The cell's partition.
        version: The cell's data version.
    """
    tags = {
        "dagster/data_version": version,
        "dagster/data_version_is_user_provided": "true",
        "dagster/code_version": stage.code_version,
    }
    for key, dep_partition in iterate_upstream_cells(stage, partition):
        record = instance.get_latest_data_version_record(
            key, is_source=key.to_user_string() in OBSERVED, partition_key=dep_partition
        )
        found = None if record is None else extract_data_version_from_entry(record.event_log_entry)
        name = key.to_user_string()
        tags[f"dagster/input_data_version/{name}"] = _NO_VERSION if found is None else found.value
        tags[f"dagster/input_event_pointer/{name}"] = _NO_EVENT if record is None else str(record.storage_id)
    return tags


def iterate_upstream_cells(stage: Stage, partition: str) -> Iterator[tuple[dg.AssetKey, str | None]]:
    """Yield the assets that a cell is made of, each with the partition, or None for all of its partitions."""
    names = dict(zip(stage.dimensions, partition.split("|", 1), strict=True))
    for dep in stage.deps:
        kind, _, product = dep.partition("/")
        above = get_stage(kind)
        if above.dimensions == SOURCE:
            sources = [product] if product else list(all_sources())
            for source in sources:
                yield dg.AssetKey([kind, source]), None
        elif above.dimensions == stage.dimensions:
            yield dg.AssetKey(kind), partition
        elif len(above.dimensions) == 1 and above.dimensions[0] in names:
            yield dg.AssetKey(kind), names[above.dimensions[0]]
        else:
            yield dg.AssetKey(kind), None
    for name in stage.observes:
        yield dg.AssetKey(name), names[OBSERVED[name].dimension]
