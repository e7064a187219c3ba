"""The loop that brings a scope up to date, and the execution of its jobs in this process.

The loop plans again before each group of stages, then it runs their jobs. The plan (plan.py) lists what is out of
date. Commands and the weekly audit use the same loop.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypedDict, Unpack

import dagster as dg
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

from audit_pipeline.errors import AuditError, FailedCheckError, PairsFailedError
from audit_pipeline.http.faults import iterate_causes
from audit_pipeline.models.usage_budget import Limits
from audit_pipeline.pipeline.dagster.asset_definitions import build_op_config
from audit_pipeline.pipeline.dagster.locks import hold_liveness_file
from audit_pipeline.pipeline.dagster.observed_inputs import observe_before_run
from audit_pipeline.pipeline.dagster.partitions import partitions_of
from audit_pipeline.pipeline.dagster.resources import REASON_TAG, build_remaining_budget_config
from audit_pipeline.pipeline.plan import AuditPlan, Planner, Step
from audit_pipeline.pipeline.stage import PAIR, SOURCE, Product, Stage
from audit_pipeline.pipeline.workspace_state import Scope
from audit_pipeline.scoring.backends import Endpoints
from audit_pipeline.store.paths import DataPaths, is_text_output_allowed


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

    The scope is planned again before each group of stages. If a partition fails or cannot be made, the products that
    depend on the partition are not made. All other products are made. Errors that are not in ``runner.survives`` are
    raised.

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
        group: The stages of the group. A stage that the scope's ``again`` names is repeated only if it is in the group.
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


CODE_LOCATION = "corpus_audit"
"""The name of the code location in workspace.yaml."""
_REPOSITORY = "__repository__"
"""Dagster's name for the definitions of a code location without a repository name."""

Jobs = Callable[[str], dg.JobDefinition]


@dataclass(frozen=True)
class Runner:
    """Runner of the jobs of a command.

    Attributes:
        jobs: Returns the job with a given name.
        instance: The Dagster instance.
        paths: The data folder.
        notify: Receives each line for the user.
        tags: The tags of every run.
        resources: The configuration of resources, by name.
        options: The options of assets, by the asset's name.
        limits: The limits of the requests to models on servers, for the command and all its runs together. The runs
            share a tag (resources.py).
        endpoints: The endpoints to which the command itself sent requests before its first run.
        survives: The class of errors that fail one step only. Errors of other classes end the command.
    """

    jobs: Jobs
    instance: dg.DagsterInstance
    paths: DataPaths
    notify: Callable[[str], None]
    tags: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    endpoints: Endpoints | None = None
    survives: type[Exception] = AuditError

    def run(self, job: str, reason: str, **scope: Unpack[RunScope]) -> str:
        """Run a job (:func:`run_job`) with the reason as a tag, and return the run's id."""
        remaining_limits = build_remaining_budget_config(self.limits, self.instance, self.tags, self.endpoints)
        models = {**self.resources.get("models", {}), **remaining_limits}
        resources = dict(self.resources)
        if models:
            resources["models"] = models
        scope.setdefault("resources", resources)
        return run_job(self.jobs(job), self.instance, tags={REASON_TAG: reason, **self.tags}, **scope)


class RunScope(TypedDict, total=False):
    """The scope and the configuration of a run.

    Attributes:
        selection: The assets of the job that are made. By default all.
        partition_key: The partition.
        partition_range: The first and the last partition of a range.
        resources: The configuration of resources, by name.
        ops: The options of assets, by the asset's name.
    """

    selection: Sequence[dg.AssetKey] | None
    partition_key: str | None
    partition_range: tuple[str, str] | None
    resources: Mapping[str, Mapping[str, Any]] | None
    ops: Mapping[str, Mapping[str, Any]] | None


def run_job(
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    *,
    tags: Mapping[str, str] | None = None,
    **scope: Unpack[RunScope],
) -> str:
    """Run a job or a part of it.

    Args:
        job: The job.
        instance: The Dagster instance.
        tags: The tags of the run.
        scope: The part of the job, and its configuration (:class:`RunScope`).

    Returns:
        The run's id.

    Raises:
        PairsFailedError: If some pairs of a range failed.
        AuditError: If this error made the run fail.
        dagster.DagsterError: If another error made the run fail.
        KeyboardInterrupt: On Ctrl-C.
    """
    run_id = str(uuid.uuid4())
    run_tags = dict(tags or {})
    partition_range = scope.get("partition_range")
    if partition_range:
        start, end = partition_range
        run_tags |= {"dagster/asset_partition_range_start": start, "dagster/asset_partition_range_end": end}
    run_config: dict[str, Any] = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    resources = scope.get("resources")
    if resources:
        run_config["resources"] = {name: {"config": dict(config)} for name, config in resources.items()}
    options = scope.get("ops")
    if options:
        run_config["ops"] = build_op_config(options)
    try:
        with hold_liveness_file(DataPaths.from_environment(), run_id), _attribute_runs_to_job(job, instance):
            result = job.execute_in_process(
                instance=instance,
                run_config=run_config,
                run_id=run_id,
                tags=run_tags,
                partition_key=scope.get("partition_key"),
                asset_selection=scope.get("selection"),
            )
    except dg.DagsterExecutionInterruptedError as error:
        raise KeyboardInterrupt from error
    except dg.Failure as failure:
        raise PairsFailedError(str(failure.description)) from failure
    except dg.DagsterError as error:
        for cause in iterate_causes(error):
            if isinstance(cause, AuditError):
                raise cause from error
        raise
    return result.run_id


@contextmanager
def _attribute_runs_to_job(job: dg.JobDefinition, instance: dg.DagsterInstance) -> Iterator[None]:
    """Assign runs that are created within the block to the job of the code location in workspace.yaml.

    The Timeline of the UI shows only such runs, and execute_in_process has no parameter for the code location.
    """
    location = RegisteredCodeLocationOrigin(CODE_LOCATION)
    origin = RemoteJobOrigin(RemoteRepositoryOrigin(location, _REPOSITORY), job.name)
    create_run = partial(instance.create_run_for_job, remote_job_origin=origin)
    instance.create_run_for_job = create_run  # type: ignore[method-assign]
    try:
        yield
    finally:
        del instance.create_run_for_job


def publish(runner: Runner, *, include_text: bool | None = None) -> str:
    """Build warehouse and report, and return the run's id.

    Args:
        runner: Runs the job.
        include_text: Whether to include excerpts of the audited texts. By default the environment decides.
    """
    if include_text is None:
        include_text = is_text_output_allowed()
    quoting = {"include_text": include_text}
    ops = {"warehouse": quoting, "contamination_report": quoting}
    runner.notify("rebuilding warehouse and report")
    return runner.run("publish", "findings or report are out of date", ops=ops, resources=None)
