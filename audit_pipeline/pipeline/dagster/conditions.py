"""The conditions under which Dagster requests assets automatically, and the sensors that evaluate them.

A condition requests a cell (a partition of an asset) if its inputs or its code changed, or if it is new in the
configuration. A requested run makes only the cells that are out of date according to the ledger
(:func:`find_due_products`). A failed cell is requested again only after one of its inputs changed. Nothing is requested
at the first evaluation, so that an existing workspace is not audited as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import dagster as dg

from audit_pipeline.pipeline.dagster.locks import has_running_audit
from audit_pipeline.pipeline.dagster.resources import REASON_TAG
from audit_pipeline.pipeline.plan import Planner, plan_steps
from audit_pipeline.pipeline.registry import BENCHMARK_STAGES, OBSERVED, PAIR_STAGES, REPORT_STAGES, get_stage
from audit_pipeline.pipeline.stage import SOURCE, Product, Stage
from audit_pipeline.pipeline.whole_configuration import (
    build_configured_planner,
    build_configured_scope,
    load_configuration,
)
from audit_pipeline.store.paths import DataPaths

PUBLISHING_IS_ON = "CORPUS_AUDIT_PUBLISH"
"""Environment variable that switches publishing on, unless somebody switched it in the UI."""
ONLY_IF_DUE = "corpus_audit/only_if_due"
"""The tag of a run that makes only cells that are out of date according to the ledger."""

_AUTOMATED = tuple(
    stage for stage in (*BENCHMARK_STAGES, *PAIR_STAGES) if stage.dimensions[0] in ("source", "benchmark")
)
"""The stages whose cells are requested after a change. Controls and token frequencies are made by commands."""

Condition = dg.AutomationCondition

REBUILT = (
    Condition.any_deps_match(Condition.newly_updated()).since(Condition.newly_requested()) & ~Condition.in_progress()
).with_label("rebuilt when an upstream asset was rebuilt")
"""The condition of assets that are rebuilt as a whole, even if partitions are missing upstream.

``eager()`` would wait forever for missing partitions. ``any_deps_updated().since_last_handled()`` would count an update
during a rebuild as handled by the rebuild. This condition holds if an update is later than the last request. So the
report includes the last pair of an audit, and a warehouse that was built during the build of the report.
"""


class CanBeMade(dg.AutomationCondition[dg.AssetKey]):
    """Condition that holds for partitions that the configuration requests and whose inputs exist.

    Dagster has no information on the pairs that audits include, and on the inputs that an entry of the configuration
    names.
    """

    @property
    def name(self) -> str:
        """Return the name in the UI."""
        return "can_be_made"

    @property
    def description(self) -> str:
        """Return the description in the UI."""
        return "The configuration requests the partition, and all its inputs exist"

    def evaluate(self, context: dg.AutomationContext[dg.AssetKey]) -> dg.AutomationResult[dg.AssetKey]:
        """Return the candidates of the context's asset that fulfil the condition."""
        kind, *source = context.key.path
        candidates = context.candidate_subset
        if candidates.is_empty:
            return dg.AutomationResult(context, candidates)
        planner = _read_planner(DataPaths.from_environment(), context.evaluation_time)
        wanted = set(planner.list_partitions(get_stage(kind), build_configured_scope(planner)))
        if source:
            if source[0] in wanted and planner.has_inputs(Product(kind, source[0])):
                return dg.AutomationResult(context, candidates)
            return dg.AutomationResult(context, context.get_empty_subset())
        # At a tick, only a few of the thousands of cells are candidates.
        wanted &= set(candidates.expensively_compute_partition_keys())
        ready = {partition for partition in wanted if planner.has_inputs(Product(kind, partition))}
        return dg.AutomationResult(context, candidates.compute_intersection_with_partition_keys(ready))


class AuditIsAtWork(dg.AutomationCondition[dg.AssetKey]):
    """Condition that holds while the weekly audit or an audit command is running. The audit itself makes due cells."""

    @property
    def name(self) -> str:
        """Return the name in the UI."""
        return "audit_is_at_work"

    def evaluate(self, context: dg.AutomationContext[dg.AssetKey]) -> dg.AutomationResult[dg.AssetKey]:
        """Return all candidates of the context's asset if an audit is running, else none."""
        if has_running_audit(DataPaths.from_environment()):
            return dg.AutomationResult(context, context.candidate_subset)
        return dg.AutomationResult(context, context.get_empty_subset())


@lru_cache(maxsize=1)
def _read_planner(paths: DataPaths, time: datetime) -> Planner:
    """Return the planner that all conditions of one evaluation use."""
    return build_configured_planner(load_configuration(), paths)


def choose_condition(stage: Stage) -> dg.AutomationCondition[Any] | None:
    """Return the condition under which a stage's asset is requested, or None if only people request it."""
    if not stage.dimensions:
        return REBUILT
    return _build_condition(stage) if stage in _AUTOMATED else None


def _build_condition(stage: Stage) -> dg.AutomationCondition[dg.AssetKey]:
    """Return the condition under which cells of a partitioned stage are requested.

    Upstream assets with other dimensions are ignored, because observed inputs cover their changes. For example, the
    version of a benchmark's entry changes with the documents of its sources.

    A request handles all earlier changes. A materialisation handles changes of the assets that its run makes. It does
    not handle changes of other inputs, because its run may have begun before them. If the run did use the change, the
    cell is current according to the ledger. For sources, a materialisation handles every change, because a fetch
    takes minutes.
    """
    changed = Condition.data_version_changed()
    same_cell = _select_deps_of_same_cell(stage)
    observed = dg.AssetSelection.assets(*OBSERVED)
    is_first_observation = (~Condition.missing()).newly_true()
    is_new = (Condition.missing() & CanBeMade()).newly_true()
    is_changed_inside = Condition.code_version_changed() | Condition.any_deps_match(changed).allow(same_cell)
    is_changed_outside = Condition.any_deps_match(changed).ignore(
        _select_distant_deps(stage) | same_cell | observed
    ) | Condition.any_deps_match(changed & ~is_first_observation).allow(observed)
    # If an input changes between a request and the next tick, the request does not count as handling that change.
    is_requested = (Condition.newly_requested() & ~is_changed_outside) | Condition.initial_evaluation()
    is_handled = Condition.newly_requested() | Condition.newly_updated() | Condition.initial_evaluation()
    is_due = (is_new | is_changed_inside).since(is_handled) | is_changed_outside.since(
        is_handled if stage.dimensions == SOURCE else is_requested
    )
    is_dep_requested = Condition.any_deps_match(Condition.will_be_requested())
    is_in_progress = Condition.any_deps_in_progress() | Condition.in_progress() | AuditIsAtWork()
    is_waiting = Condition.any_deps_missing().allow(same_cell) | is_in_progress
    label = "requested by the configuration, and new or with changed inputs"
    return ((is_due | is_dep_requested) & ~is_waiting & CanBeMade()).with_label(label)


def _select_distant_deps(stage: Stage) -> dg.AssetSelection:
    """Return the upstream assets with a dimension that the stage does not have."""
    return select_stages(*(above for above in _list_deps(stage) if not {*above.dimensions} <= {*stage.dimensions}))


def _select_deps_of_same_cell(stage: Stage) -> dg.AssetSelection:
    """Return the upstream assets with the stage's partitions.

    ``CanBeMade`` checks whether the partitions of the other upstream assets exist.
    """
    return select_stages(*(above for above in _list_deps(stage) if above.dimensions == stage.dimensions))


def _list_deps(stage: Stage) -> list[Stage]:
    return [get_stage(name.partition("/")[0]) for name in stage.deps]


def select_stages(*stages: Stage) -> dg.AssetSelection:
    """Return the selection of the assets of stages. Each source is a separate asset."""
    selection: dg.AssetSelection = dg.AssetSelection.assets()
    for stage in stages:
        if stage.dimensions == SOURCE:
            selection |= dg.AssetSelection.key_prefixes([stage.name])
        else:
            selection |= dg.AssetSelection.assets(stage.name)
    return selection


def find_due_products(stages: Sequence[Stage], partitions: Sequence[str], paths: DataPaths) -> set[Product]:
    """Return the products that are out of date according to the ledger, cannot be made, or have no declared inputs.

    Products that cannot be made are included, so that the run shows the reason.

    Args:
        stages: The stages of a run, which have the same dimensions.
        partitions: The partitions of the run.
        paths: The data folder.
    """
    planner = build_configured_planner(load_configuration(), paths, on_request=True)
    plan = plan_steps(stages, {stage.name: partitions for stage in stages}, planner.get_product_state)
    products = {step.product for step in plan.steps} | plan.problems.keys()
    for stage in stages:
        if not stage.has_inputs:
            for partition in partitions:
                products.add(Product(stage.name, partition))
    return products


def build_audit_sensor() -> dg.AutomationConditionSensorDefinition:
    """Return the sensor that audits changes. Its conditions read the configuration, so the code server runs it."""
    return dg.AutomationConditionSensorDefinition(
        "audit_what_changed",
        target=select_stages(*_AUTOMATED),
        use_user_code_server=True,
        minimum_interval_seconds=30,
        run_tags={ONLY_IF_DUE: "true", REASON_TAG: "an input or the code changed"},
        description="Requests the cells that a change affects: the documents of a source whose settings changed; a "
        "benchmark whose entry or documents changed, and its pairs; all pairs of a model that is new or whose entry or "
        "files changed; and all cells of an asset whose code changed. It does not request cells that were missing when "
        "it was switched on: launch the job weekly_audit once for these. The sensor `observe_inputs` must be on, too.",
    )


def build_publish_sensor() -> dg.AutomationConditionSensorDefinition:
    """Return the sensor that rebuilds warehouse and report. It is on by default if ``PUBLISHING_IS_ON`` is set."""
    status = dg.DefaultSensorStatus.STOPPED
    if os.environ.get(PUBLISHING_IS_ON):
        status = dg.DefaultSensorStatus.RUNNING
    return dg.AutomationConditionSensorDefinition(
        "publish_what_is_new",
        target=dg.AssetSelection.assets(*(stage.name for stage in REPORT_STAGES)),
        minimum_interval_seconds=30,
        default_status=status,
        description="Rebuilds the warehouse after any audit or backfill, and then the report. While it is off, "
        "warehouse and report do not include new findings. `corpus-audit dev` switches it on. Elsewhere, set "
        "CORPUS_AUDIT_PUBLISH=1 for the process that serves the definitions, or switch it on here.",
    )
