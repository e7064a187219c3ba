"""The declared assets: those of this project (``assets/``) and those of installed packages.

A package brings an asset under the entry point ``corpus_audit.stages`` (docs/adding-an-asset.md). No other module has
to name it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
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
            warnings.warn(SkippedPluginWarning(f"the stage {point.value} is left out ({fault})"), stacklevel=2)
    return stages


def _find_fault(value: object, known: Mapping[str, Stage]) -> str | None:
    """Return why a stage of an installed package cannot be used, or None if it can."""
    if not isinstance(value, Stage):
        return f"it is no Stage: {to_one_line(str(value))}"
    if not value.name.isidentifier() or value.name in {stage.name for stage in ASSETS} | {*known}:
        return f"its name is {value.name!r}: use letters, digits and _, and no name that is taken"
    unknown = [name for name in value.deps if name.partition("/")[0] not in known]
    unknown += [
        name for name in value.observes if name not in OBSERVED or OBSERVED[name].dimension not in value.dimensions
    ]
    if unknown:
        return f"it is made of {unknown[0]}, which does not exist, or has none of its partitions"
    if taken := [table.name for table in value.tables if TABLES.get(table.name) is not table]:
        return f"there is a table named {taken[0]} already: give yours another name"
    for other in known.values():
        if other.job.name == value.job.name and other.dimensions != value.dimensions:
            return (
                f"its partitions are {value.dimensions}, and those of its job {value.job.name} are "
                f"{other.dimensions}: give it these partitions or a job of its own"
            )
    return None


_BY_NAME = _collect_stages()
STAGES: tuple[Stage, ...] = tuple(_BY_NAME.values())
"""The stages with partitions, each after those that it is made of."""
OF_BENCHMARKS = tuple(stage for stage in STAGES if stage.dimensions[-1] in ("source", "control", "benchmark", "corpus"))
"""The stages that are made before a model is known."""
OF_MODELS = tuple(stage for stage in STAGES if stage.dimensions[-1] == "model")
OF_PAIRS = tuple(stage for stage in OF_MODELS if stage.dimensions == PAIR)
_RESULTS = tuple(stage.name for stage in STAGES if stage.is_in_warehouse)
REPORT_STAGES: tuple[Stage, ...] = tuple(
    replace(stage, deps=_RESULTS) if stage.deps == (ALL_RESULTS,) else stage for stage in ASSETS if not stage.dimensions
)
"""The unpartitioned stages, which are made of all others: the warehouse and the report."""

STAGES_FILE = build_stages_file(STAGES)
"""config/stages.yaml."""


def get_stage(name: str) -> Stage:
    """Return the stage of a name.

    Raises:
        KeyError: If there is no such stage.
    """
    return _BY_NAME[name]
