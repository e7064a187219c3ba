"""The loop that brings a scope up to date. Before each group of stages it plans again, then it runs their jobs.

The plan (plan.py) lists what is out of date. runs.py runs the jobs. Commands and the weekly audit use the same loop.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import dagster as dg

from audit_pipeline.errors import FailedCheckError
from audit_pipeline.pipeline.dagster.observed_inputs import observe_before_run
from audit_pipeline.pipeline.dagster.partitions import partitions_of
from audit_pipeline.pipeline.dagster.runs import Runner, RunScope
from audit_pipeline.pipeline.plan import AuditPlan, Planner, Step
from audit_pipeline.pipeline.stage import PAIR, SOURCE, Product, Stage
from audit_pipeline.pipeline.workspace_state import Scope


@dataclass
class UpdateOutcome:
    """The outcome of bringing a scope up to date.

    Attributes:
        runs: The id of the run that made a product, by product.
        problems: The reasons why products cannot be made.
        errors: The errors of products whose run failed.
    """

    runs: dict[str, str] = field(default_factory=dict)
    problems: dict[Product, str] = field(default_factory=dict)
    errors: dict[Product, Exception] = field(default_factory=dict)

    def list_failure_reasons(self, *stages: str) -> dict[str, str]:
        """Return the reasons why partitions of these stages were not made, by partition."""
        reasons: dict[str, str] = {}
        for product, reason in (self.problems | self.errors).items():
            if product.stage in stages:
                reasons[product.partition] = str(reason)
        return reasons


def update(scope: Scope, stages: Sequence[Stage], read_planner: Callable[[], Planner], runner: Runner) -> UpdateOutcome:
    """Execute the steps that bring a scope up to date.

    The scope is planned again before each group of stages. If a partition fails or cannot be made, the other partitions
    are made. The products that depend on it are not made. Errors that the runner does not survive are raised.

    Args:
        scope: The products to bring up to date.
        stages: The stages to make. Each stage comes after the stages that it depends on.
        read_planner: Reads the workspace and returns its planner.
        runner: Runs the jobs.
    """
    outcome = UpdateOutcome()
    planned_stages: list[Stage] = []
    for _, stages_of_job in itertools.groupby(stages, key=lambda stage: (stage.dimensions, stage.job)):
        group = list(stages_of_job)
        planned_stages += group
        planner = read_planner()
        plan = _plan_group(scope, group, planned_stages, planner, outcome)
        for product, problem in plan.problems.items():
            if product not in outcome.errors:
                outcome.problems[product] = problem
        steps = plan.select_steps(stage.name for stage in group)
        for run in _plan_runs(steps, runner.instance):
            purpose = ""
            if run.steps[0].stage.dimensions == SOURCE:
                purpose = planner.explain_sources(scope).get(run.partitions[0], "")
            _run_steps(run, runner, outcome, purpose)
    return outcome


def _plan_group(
    scope: Scope, group: Sequence[Stage], planned_stages: Sequence[Stage], planner: Planner, outcome: UpdateOutcome
) -> AuditPlan:
    """Return the plan before a group of stages is made.

    Args:
        scope: The scope.
        group: The stages of the group. Of the stages that the scope's ``again`` names, only those of the group are
            repeated.
        planned_stages: The stages up to and including the group.
        planner: The planner of the workspace.
        outcome: The outcome so far. Failed products are not retried.
    """
    again: dict[str, str] = {}
    for stage in group:
        if stage.name in scope.again:
            again[stage.name] = scope.again[stage.name]
    input_names = {stage.name: stage.input_name for stage in planned_stages}
    left_alone = {}
    for product, error in outcome.errors.items():
        left_alone[f"{input_names[product.stage]}/{product.partition}"] = str(error)
    return planner.plan(scope, planned_stages, again, left_alone)


class _PlannedRun(NamedTuple):
    """A planned run of a job.

    Attributes:
        steps: The steps of the first partition. They are the same stages for every partition.
        partitions: All partitions of the run, which form one range in Dagster.
    """

    steps: Sequence[Step]
    partitions: Sequence[str]


def _plan_runs(steps: Sequence[Step], instance: dg.DagsterInstance) -> Iterator[_PlannedRun]:
    """Yield the runs that execute steps. Partitions share a run if the same stages have to be made.

    A model is loaded once per run. Models with the same benchmarks and stages share a run, so that the base model of
    several adapters is loaded once.
    """
    by_partition: dict[str, list[Step]] = {}
    for step in steps:
        by_partition.setdefault(step.partition, []).append(step)
    by_model: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for partition, partition_steps in by_partition.items():
        model = partition
        if partition_steps[0].stage.dimensions[-1] == "model":
            model = partition.rpartition("|")[2]
        stage_names = tuple(step.stage.name for step in partition_steps)
        by_model.setdefault((model, stage_names), []).append(partition)
    rectangles: dict[object, list[str]] = {}
    for model_and_stages, partitions in by_model.items():
        key: object = model_and_stages
        if by_partition[partitions[0]][0].stage.dimensions == PAIR:
            benchmarks = tuple(partition.partition("|")[0] for partition in partitions)
            key = (benchmarks, model_and_stages[1])
        rectangles.setdefault(key, []).extend(partitions)
    for partitions in rectangles.values():
        first_steps = by_partition[partitions[0]]
        ranges = [partitions]
        if len(partitions) > 1:
            ranges = _split_into_ranges(first_steps[0].stage, partitions, instance)
        for partition_range in ranges:
            yield _PlannedRun(by_partition[partition_range[0]], partition_range)


def _split_into_ranges(stage: Stage, partitions: Sequence[str], instance: dg.DagsterInstance) -> list[list[str]]:
    """Split partitions, every combination of some benchmarks and models, into partition ranges of Dagster.

    The partitions of a range are ordered model by model. Dagster itself would use ranges with one fixed dimension. Then
    models with the same base model would be in different runs, and each run would load the base model.

    Args:
        stage: A stage whose partitions have the dimensions benchmark and model.
        partitions: The partitions. Each model has the same benchmarks.
        instance: The Dagster instance.
    """
    neighbours = []
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        for position, dimension in enumerate(stage.dimensions):
            names = {partition.split("|", 1)[position] for partition in partitions}
            keys = list(partitions_of((dimension,)).get_partition_keys())
            neighbours.append(group_neighbours(keys, names))
    benchmark_groups, model_groups = neighbours
    ranges = []
    for models in model_groups:
        for benchmarks in benchmark_groups:
            ranges.append([f"{benchmark}|{model}" for model in models for benchmark in benchmarks])
    return ranges


def group_neighbours(order: Sequence[str], names: Collection[str]) -> list[list[str]]:
    """Split names into groups. The names of a group are neighbours in the given order of all names."""
    groups: list[list[str]] = []
    previous: str | None = None
    for name in order:
        if name in names:
            if previous in names:
                groups[-1].append(name)
            else:
                groups.append([name])
        previous = name
    return groups


def _run_steps(run: _PlannedRun, runner: Runner, outcome: UpdateOutcome, purpose: str) -> None:
    """Execute a run and add its result to the outcome.

    Args:
        run: The run.
        runner: Runs the job.
        outcome: The outcome.
        purpose: The reason for fetching a source that the user did not name, or an empty string.
    """
    partitions = run.partitions
    stages = [step.stage for step in run.steps]
    if stages[0].progress_message:
        message = stages[0].progress_message.format(*partitions[0].split("|"))
        if purpose:
            message += f" ({purpose})"
        runner.notify(message)
    names = [stage.name for stage in stages]
    options = {name: runner.options[name] for name in names if name in runner.options}
    scope: RunScope = {"ops": options or None}
    if stages[0].dimensions == SOURCE:
        scope["selection"] = [dg.AssetKey([name, partitions[0]]) for name in names]
    else:
        scope["selection"] = list(map(dg.AssetKey, names))
        if len(partitions) > 1:
            scope["partition_range"] = (partitions[0], partitions[-1])
        else:
            scope["partition_key"] = partitions[0]
    observe_before_run(runner.instance, runner.paths, stages, partitions)
    try:
        run_id = _run_and_report(stages, partitions, runner, run.steps[0].reason, scope)
    except runner.survives as error:
        for name, partition in itertools.product(names, partitions):
            outcome.errors[Product(name, partition)] = error
        return
    for name, partition in itertools.product(names, partitions):
        outcome.runs[str(Product(name, partition))] = run_id


def _run_and_report(
    stages: Sequence[Stage], partitions: Sequence[str], runner: Runner, reason: str, scope: RunScope
) -> str:
    """Run stages, print their notes about the products, and return the run's id."""
    failure: FailedCheckError | None = None
    run_id = ""
    try:
        run_id = runner.run(stages[0].job.name, reason, **scope)
    except FailedCheckError as error:
        # The product was made. The notes are printed before the error is raised.
        failure = error
    for stage in stages:
        if stage.get_notes is None:
            continue
        for partition in partitions:
            for note in stage.get_notes(partition, runner.paths):
                runner.notify(note)
    if failure is not None:
        raise failure
    return run_id
