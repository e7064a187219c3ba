"""The cells of assets per pair as the grid of Dagster's UI shows them."""

from __future__ import annotations

import dagster as dg
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest
from dagster._core.storage.partition_status_cache import get_and_update_asset_status_cache_value

from audit_pipeline.definitions import defs
from audit_pipeline.pipeline.dagster.partitions import partitions_of
from audit_pipeline.pipeline.stage import PAIR


def read_grid(instance: dg.DagsterInstance, asset: str) -> tuple[set[str], set[str]]:
    """Return the materialised and the failed partitions of an asset, from the cache that the UI reads."""
    pairs = partitions_of(PAIR)
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        cached = get_and_update_asset_status_cache_value(instance, dg.AssetKey(asset), pairs, instance)
        assert cached is not None
        made = cached.deserialize_materialized_partition_subsets(pairs).get_partition_keys()
        failed = cached.deserialize_failed_partition_subsets(pairs).get_partition_keys()
    return set(map(str, made)), set(map(str, failed))


def find_stale(instance: dg.DagsterInstance, asset: str) -> dict[str, list[str]]:
    """Return the pairs of an asset that the UI marks as stale, with the assets that changed."""
    stale: dict[str, list[str]] = {}
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        resolver = CachingStaleStatusResolver(instance, defs().resolve_asset_graph(), LoadingContextForTest(instance))
        for key in partitions_of(PAIR).get_partition_keys():
            causes = resolver.get_stale_causes(dg.AssetKey(asset), key)
            if causes:
                changed = [cause.dependency for cause in causes if cause.dependency is not None]
                stale[str(key)] = [dep.asset_key.to_user_string() for dep in changed]
    return stale
