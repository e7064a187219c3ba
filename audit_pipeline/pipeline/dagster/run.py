"""Runs in this process: the loop that brings what is wanted up to date, and the runs that it makes.

The steps are planned again before each group of stages, so that what came out as it was changes nothing. Partitions of
one group that need the same stages share a run where a range of Dagster holds exactly them.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypedDict, Unpack

import dagster as dg
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

from audit_pipeline.errors import AuditError, PairsFailedError
from audit_pipeline.models.usage_budget import Limits
from audit_pipeline.pipeline.dagster.locks import hold_liveness_file
from audit_pipeline.pipeline.dagster.partitions import partitions_of
from audit_pipeline.pipeline.dagster.tags import REASON_TAG, compute_remaining_limits
from audit_pipeline.pipeline.freshness import Step
from audit_pipeline.pipeline.situation import Scope, Situation
from audit_pipeline.pipeline.stage import Product, Stage
from audit_pipeline.pipeline.stages.registry import PAIR
from audit_pipeline.readers.retry import iterate_causes
from audit_pipeline.scoring.used_endpoints import Endpoints
from audit_pipeline.store.paths import DataPaths, is_text_output_allowed

CODE_LOCATION = "corpus_audit"
"""As workspace.yaml names it."""
_REPOSITORY = "__repository__"
"""Dagster's name for the definitions of a code location that names none."""

Jobs = Callable[[str], dg.JobDefinition]


@dataclass(frozen=True)
class Runner:
    """What carries steps out: the jobs by name, the instance, the callback ``notify``; ``tags`` are those of every run.

    ``resources`` and ``options`` (by stage) configure the runs. ``limits``: of what the command and all its runs
    together may send to models on servers; they share a tag then (tags.py). ``endpoints``: what the command
    itself has asked before its runs.
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
    """What a step may raise without stopping the others."""

    def run(self, job: str, reason: str, **scope: Unpack[RunScope]) -> str:
        """Run a job (see :func:`run_job`), tagged with the reason; returns the run's id."""
        left = compute_remaining_limits(self.limits, self.instance, self.tags, self.endpoints)
        models = {**self.resources.get("models", {}), **left}
        resources = {**self.resources, **({"models": models} if models else {})}
        tags = {REASON_TAG: reason, **self.tags}
        scope.setdefault("resources", resources)
        return run_job(self.jobs(job), self.instance, tags=tags, **scope)


@dataclass
class UpdateOutcome:
    """What came of bringing something up to date: the runs by what they made, and why products were not made."""

    runs: dict[str, str] = field(default_factory=dict)
    problems: dict[Product, str] = field(default_factory=dict)
    errors: dict[Product, Exception] = field(default_factory=dict)

    def list_failure_reasons(self, *stages: str) -> dict[str, str]:
        """Why partitions of these stages were not made."""
        reasons = {**self.problems, **{product: str(error) for product, error in self.errors.items()}}
        return {product.partition: reason for product, reason in reasons.items() if product.stage in stages}


def bring_up_to_date(
    scope: Scope, stages: Sequence[Stage], read_situation: Callable[[], Situation], runner: Runner
) -> UpdateOutcome:
    """Carry out the steps of ``stages`` that bring the scope up to date; ``read_situation`` reads the situation anew.

    A partition that meets an error that the runner survives, or that cannot be made, does not stop the others; what is
    made of it is left as it is.
    """
    outcome = UpdateOutcome()
    seen: list[Stage] = []
    for _, alike in itertools.groupby(stages, key=lambda stage: (stage.dimensions, stage.job)):
        group = list(alike)
        seen += group
        names = {stage.name for stage in group}
        again = {name: reason for name, reason in scope.again.items() if name in names}
        keys = {stage.name: stage.input_name for stage in seen}
        left = {f"{keys[product.stage]}/{product.partition}": str(error) for product, error in outcome.errors.items()}
        situation = read_situation()
        made = situation.plan(scope, seen, again, left)
        outcome.problems |= {product: why for product, why in made.problems.items() if product not in outcome.errors}
        for steps, partitions in _plan_runs(made.steps_of_stages(names), runner.instance):
            purpose = ""
            if steps[0].stage.dimensions == ("source",):
                purpose = situation.explain_sources(scope).get(partitions[0], "")
            _run_steps(steps, partitions, runner, outcome, purpose)
    return outcome


def _plan_runs(steps: Sequence[Step], instance: dg.DagsterInstance) -> Iterator[tuple[Sequence[Step], Sequence[str]]]:
    """The steps of one run each: those of its first partition, and its partitions, a range of Dagster's."""
    by_partition: dict[str, list[Step]] = {}
    for step in steps:
        by_partition.setdefault(step.partition, []).append(step)
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for partition, own in by_partition.items():
        # A model is loaded once a run.
        model = partition.rpartition("|")[2] if own[0].stage.dimensions[-1] == "model" else partition
        alike.setdefault((model, tuple(step.stage.name for step in own)), []).append(partition)
    # Models of which the same is to be done share a run: the base of several adapters is loaded once.
    rectangles: dict[object, list[str]] = {}
    for of, partitions in alike.items():
        benchmarks = tuple(partition.partition("|")[0] for partition in partitions)
        is_of_pairs = by_partition[partitions[0]][0].stage.dimensions == PAIR
        rectangles.setdefault((benchmarks, of[1]) if is_of_pairs else of, []).extend(partitions)
    for partitions in rectangles.values():
        stage = by_partition[partitions[0]][0].stage
        groups = [partitions] if len(partitions) == 1 else _split_into_ranges(stage, partitions, instance)
        yield from ((by_partition[together[0]], together) for together in groups)


def _split_into_ranges(stage: Stage, partitions: Sequence[str], instance: dg.DagsterInstance) -> list[list[str]]:
    """Partitions of models with the same first names, in groups that are ranges: rectangles of neighbouring names,
    model by model."""
    neighbours = []
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        for place, dimension in enumerate(stage.dimensions):
            names = {partition.split("|", 1)[place] for partition in partitions}
            neighbours.append(group_neighbours(list(partitions_of((dimension,)).get_partition_keys()), names))
    firsts, models = neighbours
    return [[f"{first}|{model}" for model in own for first in names] for own in models for names in firsts]


def group_neighbours(order: Sequence[str], names: Collection[str]) -> list[list[str]]:
    """The ``names`` in ``order``, in groups of those that follow one another."""
    groups: list[list[str]] = []
    before: str | None = None
    for name in order:
        if name in names:
            if before in names:
                groups[-1].append(name)
            else:
                groups.append([name])
        before = name
    return groups


def _run_steps(
    steps: Sequence[Step], partitions: Sequence[str], runner: Runner, outcome: UpdateOutcome, purpose: str
) -> None:
    """Run the steps of partitions; ``purpose``: why a source is fetched that nobody named, empty otherwise."""
    stages, first = [step.stage for step in steps], steps[0]
    if first.stage.step:
        words = first.stage.step.format(*partitions[0].split("|"))
        runner.notify(f"{words} ({purpose})" if purpose else words)
    is_source = stages[0].dimensions == ("source",)
    names = [[stage.name, partitions[0]] if is_source else [stage.name] for stage in stages]
    scope: RunScope = {"selection": [dg.AssetKey(name) for name in names]}
    if not is_source:
        first_and_last = (partitions[0], partitions[-1])
        scope |= {"partition_range": first_and_last} if partitions[1:] else {"partition_key": partitions[0]}
    options = {stage.name: runner.options[stage.name] for stage in stages if stage.name in runner.options}
    scope["ops"] = options or None
    try:
        run = _run_and_note(stages, partitions, runner, first.because, scope)
    except runner.survives as error:
        outcome.errors |= {Product(stage.name, partition): error for stage in stages for partition in partitions}
        return
    for stage in stages:
        outcome.runs |= {f"{stage.name}/{partition}": run for partition in partitions}


def _run_and_note(
    stages: Sequence[Stage], partitions: Sequence[str], runner: Runner, reason: str, scope: RunScope
) -> str:
    """Run the stages, and report what they say of what was made; returns the run's id."""
    failure: dg.DagsterError | None = None
    run = ""
    try:
        run = runner.run(stages[0].job.name, reason, **scope)
    except dg.DagsterError as error:
        # A blocking check that fails ends the run, which has made its product, with an error that only names it: the
        # notes raise what it says.
        failure = error
    for take_notes, partition in itertools.product([stage.notes for stage in stages if stage.notes], partitions):
        for note in take_notes(partition, runner.paths):
            runner.notify(note)
    if failure is not None:
        raise failure
    return run


def publish(runner: Runner, *, include_text: bool | None = None) -> str:
    """Build warehouse and report; returns the run's id. ``include_text``: by default as the environment says."""
    quoting = {"include_text": is_text_output_allowed() if include_text is None else include_text}
    ops = {"warehouse": quoting, "contamination_report": quoting}
    runner.notify("rebuilding warehouse and report")
    return runner.run("publish", "findings or report are out of date", ops=ops, resources=None)


class RunScope(TypedDict, total=False):
    """What a run computes, and how: the ``selection`` of its job's assets, one partition or the first and last of a
    range, and the configuration of resources and of assets, by name."""

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
    """Run ``job``, or the part of it that ``scope`` says; returns the run's id.

    Raises PairsFailedError where some pairs of a range failed, the AuditError that made the run fail, where one did,
    and KeyboardInterrupt on Ctrl-C; other errors keep Dagster's account of them.
    """
    run_id = str(uuid.uuid4())
    run_tags = dict(tags or {})
    if partition_range := scope.get("partition_range"):
        start, end = partition_range
        run_tags |= {"dagster/asset_partition_range_start": start, "dagster/asset_partition_range_end": end}
    run_config: dict[str, Any] = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    for section, configs in (("resources", scope.get("resources")), ("ops", scope.get("ops"))):
        if configs:
            run_config[section] = {name: {"config": dict(config)} for name, config in configs.items()}
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
        cause = next((cause for cause in iterate_causes(error) if isinstance(cause, AuditError)), None)
        if cause is None:
            raise
        raise cause from error
    return result.run_id


@contextmanager
def _attribute_runs_to_job(job: dg.JobDefinition, instance: dg.DagsterInstance) -> Iterator[None]:
    """Within the block, a run that is created belongs to the job of the code location that workspace.yaml names.

    The Timeline shows no other runs, and execute_in_process has no parameter for it.
    """
    location = RegisteredCodeLocationOrigin(CODE_LOCATION)
    origin = RemoteJobOrigin(RemoteRepositoryOrigin(location, _REPOSITORY), job.name)
    create_run = partial(instance.create_run_for_job, remote_job_origin=origin)
    instance.create_run_for_job = create_run  # type: ignore[method-assign]
    try:
        yield
    finally:
        del instance.create_run_for_job
