"""Ticks of the two sensors of changes. The requested runs are executed as Dagster's daemon executes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import dagster as dg

from audit_pipeline.definitions import defs
from audit_pipeline.pipeline.dagster.conditions import build_audit_sensor
from audit_pipeline.pipeline.dagster.observed_inputs import observe_inputs
from audit_pipeline.pipeline.dagster.resources import AuditData

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


class RequestedRun(NamedTuple):
    """A run as the daemon starts it. ``cells`` is a partition, or a range such as ``first..last``."""

    assets: Sequence[str]
    cells: str
    tags: Mapping[str, str]


class Automation:
    """The two sensors on an instance, tick after tick."""

    def __init__(self, instance: dg.DagsterInstance, evaluation_cursor: str | None = None) -> None:
        self.instance = instance
        self.evaluation_cursor = evaluation_cursor

    def observe(self) -> str:
        """Evaluate a tick of observe_inputs, and return its message."""
        context = dg.build_sensor_context(instance=self.instance, cursor=None)
        result = observe_inputs(context, data=AuditData())
        assert isinstance(result, dg.SensorResult)
        assert result.skip_reason is not None
        for request in result.dynamic_partitions_requests or []:
            self.instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        return str(result.skip_reason.skip_message)

    def evaluate(self) -> list[RequestedRun]:
        """Evaluate a tick of audit_what_changed, and return the requested runs."""
        repository = defs().get_repository_def()
        with dg.build_sensor_context(
            instance=self.instance, cursor=self.evaluation_cursor, repository_def=repository
        ) as context:
            data = build_audit_sensor().evaluate_tick(context)
        self.evaluation_cursor = data.cursor
        return [run for request in data.run_requests or [] for run in self._iterate_runs(request)]

    def request(self) -> dict[str, str]:
        """Evaluate a tick of both and run nothing. Return the assets of each requested run by its cells."""
        self.observe()
        return {run.cells: "+".join(run.assets) for run in self.evaluate()}

    def tick(self) -> dict[str, str]:
        """Evaluate a tick of both and run what is requested. Return the assets of each run by its cells."""
        self.observe()
        runs = self.evaluate()
        for run in runs:
            self.run(run.assets, run.cells, run.tags)
        return {run.cells: "+".join(run.assets) for run in runs}

    def run(self, assets: Sequence[str], cells: str, tags: Mapping[str, str] | None = None) -> bool:
        """Make cells of assets, and return whether all of them succeeded."""
        start, dots, end = cells.partition("..")
        of_range = {"dagster/asset_partition_range_start": start, "dagster/asset_partition_range_end": end}
        result = (
            defs()
            .resolve_implicit_global_asset_job_def()
            .execute_in_process(
                instance=self.instance,
                run_config=QUIET,
                asset_selection=[dg.AssetKey(name.split("/")) for name in assets],
                tags={**(tags or {}), **(of_range if dots else {})},
                partition_key=None if dots else cells or None,
                raise_on_error=False,
            )
        )
        return bool(result.success)

    def count(self, asset: str) -> dict[str, int]:
        """Return how often each cell of an asset was materialised."""
        wanted = dg.AssetRecordsFilter(dg.AssetKey(asset))
        records = self.instance.fetch_materializations(wanted, limit=1000).records
        return dict(Counter(str(record.partition_key) for record in records))

    def _iterate_runs(self, request: dg.RunRequest) -> Iterator[RequestedRun]:
        """Yield the runs of a request. A request for several partitions is a backfill, whose pairs run by ranges."""
        subset = request.asset_graph_subset
        if subset is None:
            names = sorted(key.to_user_string() for key in request.asset_selection or [])
            yield RequestedRun(names, request.partition_key or "", request.tags)
            return
        alike: dict[frozenset[str], list[str]] = {}
        for key in sorted(subset.asset_keys):
            partitions = frozenset(subset.get_partitions_subset(key).get_partition_keys())
            alike.setdefault(partitions, []).append(key.to_user_string())
        graph = defs().resolve_asset_graph()
        tags = {**request.tags, "dagster/backfill": "requested"}
        with dg.partition_loading_context(dynamic_partitions_store=self.instance):
            for partitions, names in alike.items():
                definition = graph.get(dg.AssetKey(names[0])).partitions_def
                assert definition is not None
                if not isinstance(definition, dg.MultiPartitionsDefinition):
                    yield from (RequestedRun(names, key, tags) for key in sorted(partitions))
                    continue
                for found in definition.subset_with_partition_keys(partitions).get_partition_key_ranges(definition):
                    ends = dict.fromkeys([found.start, found.end])
                    yield RequestedRun(names, "..".join(ends), tags)
