"""The declared assets: the assets of this project (``assets/``) and of installed packages.

An installed package adds an asset with the entry point ``corpus_audit.stages`` (docs/adding-an-asset.md).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace

from assets import ASSETS, OBSERVED_INPUTS
from audit_pipeline.errors import SkippedPluginWarning, to_one_line
from audit_pipeline.pipeline.stage import ALL_RESULTS, PAIR, ObservedInput, Stage
from audit_pipeline.pipeline.stage_settings import build_stages_file
from audit_pipeline.store.stage_plugins import load_stage_plugins
from audit_pipeline.tables import TABLES

OBSERVED: Mapping[str, ObservedInput] = {observed.name: observed for observed in OBSERVED_INPUTS}
"""The observed inputs, by name."""


def _collect_stages() -> Mapping[str, Stage]:
    stages = {stage.name: stage for stage in ASSETS if stage.dimensions}
    for point, value in load_stage_plugins():
        fault = _find_fault(value, stages)
        if fault is None:
            stages[value.name] = value
        else:
            warnings.warn(SkippedPluginWarning(f"the stage {point.value} is skipped ({fault})"), stacklevel=2)
    return stages


def _find_fault(value: object, known: Mapping[str, Stage]) -> str | None:
    """Return why a stage of an installed package cannot be used, or None if it can."""
    if not isinstance(value, Stage):
        return f"it is not a Stage: {to_one_line(str(value))}"
    if not value.name.isidentifier() or value.name in {stage.name for stage in ASSETS} | {*known}:
        return f"its name is {value.name!r}. Use letters, digits and _, and a name that no other asset has."
    reference_fault = _find_reference_fault(value, known)
    if reference_fault is not None:
        return reference_fault
    for other in known.values():
        if other.job.name == value.job.name and other.dimensions != value.dimensions:
            return (
                f"its partitions are {value.dimensions}, but its job {value.job.name} has the partitions "
                f"{other.dimensions}. Use the partitions of the job, or another job."
            )
    return None


def _find_reference_fault(stage: Stage, known: Mapping[str, Stage]) -> str | None:
    """Return which asset, input or table of a stage's declaration is wrong, or None if all are correct."""
    for name in stage.deps:
        if name.partition("/")[0] not in known:
            return f"it depends on {name}, which does not exist. Use the name of another asset."
    for name in stage.observes:
        if name not in OBSERVED or OBSERVED[name].dimension not in stage.dimensions:
            return (
                f"it observes the input {name}, which does not exist or has other partitions than the stage. Use "
                f"{' or '.join(OBSERVED)}."
            )
    for table in stage.tables:
        if TABLES.get(table.name) is not table:
            return f"its table {table.name} has the name of another table. Rename it."
    return None


_BY_NAME = _collect_stages()
STAGES: tuple[Stage, ...] = tuple(_BY_NAME.values())
"""The stages with partitions. Each stage comes after the stages that it depends on."""
BENCHMARK_STAGES = tuple(
    stage for stage in STAGES if stage.dimensions[-1] in ("source", "control", "benchmark", "corpus")
)
"""The stages whose partitions do not depend on a model."""
MODEL_STAGES = tuple(stage for stage in STAGES if stage.dimensions[-1] == "model")
PAIR_STAGES = tuple(stage for stage in MODEL_STAGES if stage.dimensions == PAIR)
_RESULTS = tuple(stage.name for stage in STAGES if stage.is_in_warehouse)


def _build_report_stages() -> Iterator[Stage]:
    """Yield the unpartitioned stages. Replace their dependency ALL_RESULTS by the names of all stages with results."""
    for stage in ASSETS:
        if not stage.dimensions:
            yield replace(stage, deps=_RESULTS) if stage.deps == (ALL_RESULTS,) else stage


REPORT_STAGES = tuple(_build_report_stages())
"""The unpartitioned stages, which depend on all results: the warehouse and the report."""

STAGES_FILE = build_stages_file(STAGES)
"""The declaration of config/stages.yaml."""


def get_stage(name: str) -> Stage:
    """Return the stage with this name.

    Raises:
        KeyError: If there is no such stage.
    """
    return _BY_NAME[name]
