"""The stages: those of this project, in the order in which an audit makes them, and those of installed packages.

A package brings a stage under the entry point ``corpus_audit.stages`` (docs/adding-a-stage.md); nothing else has to
know of it. A stage of this project is in a module of this package and in this list, or is found by its place: in the
module ``stage`` of a package of extras (or NAME_stage).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from audit_pipeline import extras
from audit_pipeline.config.plugins import collect_by_name
from audit_pipeline.errors import LeftOutWarning, to_one_line
from audit_pipeline.pipeline.stage import Stage
from audit_pipeline.pipeline.stages.benchmarks import BENCHMARK_STAGE, SPLIT_STAGE
from audit_pipeline.pipeline.stages.evaluations import EVALUATIONS_STAGE
from audit_pipeline.pipeline.stages.scores import SCORES_STAGE, STATISTICS_STAGE
from audit_pipeline.pipeline.stages.source_documents import DOCUMENTS_STAGE
from audit_pipeline.store.stage_plugins import load_stage_plugins
from audit_pipeline.tables import TABLES

_CORE = (
    DOCUMENTS_STAGE,
    BENCHMARK_STAGE,
    SPLIT_STAGE,
    STATISTICS_STAGE,
    SCORES_STAGE,
    EVALUATIONS_STAGE,
)


def _list_own_stages() -> Mapping[str, Stage]:
    """Return the stages of the core and of the modules ``stage`` in extras, each after those that it follows.

    Stages of one job are one run, so all that any of them follows comes before the first.
    """
    of_extras: Mapping[str, Stage] = collect_by_name(
        extras.find_modules("stage"),
        label="stages",
        is_wanted=lambda value: isinstance(value, Stage),
        name_of=lambda stage: stage.name,
    )
    waiting = {**{stage.name: stage for stage in _CORE}, **of_extras}
    placed: dict[str, Stage] = {}

    def place(stage: Stage) -> None:
        followed = [waiting[name.partition("/")[0]] for name in stage.after]
        for other in waiting.values():
            if other.job == stage.job:
                above = (waiting[name.partition("/")[0]] for name in other.after)
                followed += [product for product in above if product.job != stage.job]
        # Of its own job last.
        for before in sorted(followed, key=lambda product: product.job == stage.job):
            place(before)
        placed.setdefault(stage.name, stage)

    for stage in waiting.values():
        place(stage)
    return placed


def _collect_stages() -> Mapping[str, Stage]:
    found = dict(_list_own_stages())
    for point, value in load_stage_plugins():
        if (fault := _find_fault(value, found)) is None:
            found[value.name] = value
        else:
            warnings.warn(LeftOutWarning(f"the stage {point.value} is left out ({fault})"), stacklevel=2)
    return found


def _find_fault(value: object, known: Mapping[str, Stage]) -> str | None:
    """Why a stage that a package brings cannot be used; None where it can."""
    if not isinstance(value, Stage):
        return f"it is no Stage: {to_one_line(str(value))}"
    if not value.name.isidentifier() or value.name in known:
        return f"its name is {value.name!r}: use letters, digits and _, and no name that is taken"
    if unknown := [name for name in value.after if name.partition("/")[0] not in known]:
        return f"it is made after {unknown[0]}, which there is not"
    if taken := [table.name for table in value.tables if TABLES.get(table.name) is not table]:
        return f"there is a table named {taken[0]} already: give yours another name"
    return None


_BY_NAME = _collect_stages()
STAGES: tuple[Stage, ...] = tuple(_BY_NAME.values())
OF_BENCHMARKS = tuple(stage for stage in STAGES if stage.dimensions[-1] in ("source", "control", "benchmark", "corpus"))
"""What is made before a model is known."""
OF_MODELS = tuple(stage for stage in STAGES if stage.dimensions[-1] == "model")
PAIR = ("benchmark", "model")
"""The dimensions of what is of a model and a benchmark."""
OF_PAIRS = tuple(stage for stage in OF_MODELS if stage.dimensions == PAIR)


def get_stage(name: str) -> Stage:
    """The stage of that name; raises KeyError where there is none."""
    return _BY_NAME[name]
