"""Runs of the planner's steps in this process: each step of what comes before an audit, and then the pairs.

What belongs here: which job a step is a run of, carrying out one after another, and from the steps of pairs to as few
runs as ranges of partitions allow, for the command line and the weekly audit. What does not: which steps there are and
which pairs need a run (operate/plan.py), what a run does (assets/).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

import dagster as dg

from audit_pipeline.catalogue.contracts import Pair
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.controls.config import load_controls
from audit_pipeline.endpoints.budget import Limits
from audit_pipeline.endpoints.used_endpoints import Endpoints
from audit_pipeline.errors import AuditError, PairsFailedError
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.operate.dagster import in_process, partitions
from audit_pipeline.operate.dagster.in_process import RunScope
from audit_pipeline.operate.dagster.planning import group_neighbours
from audit_pipeline.operate.dagster.tags import REASON_TAG, compute_remaining_limits
from audit_pipeline.operate.facts import OF_PAIRS, Kind, PlannedStep, PlanRequest
from audit_pipeline.operate.plan import plan
from audit_pipeline.operate.situation import read_situation
from audit_pipeline.references.frequencies import find_countable_corpus

Jobs = Callable[[str], dg.JobDefinition]
SPLIT_QUALITY = dg.AssetKey("split_quality")


@dataclass(frozen=True)
class Runner:
    """What carries steps out: the jobs by name, the instance, the callback ``tell``; ``tags`` are those of every run.

    ``limits``: of what the command and all its runs together may send to models behind interfaces; they share a tag
    then (tags.py). ``endpoints``: what the command itself has asked before its runs.
    """

    jobs: Jobs
    instance: dg.DagsterInstance
    paths: DataPaths
    tell: Callable[[str], None]
    device: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    endpoints: Endpoints | None = None

    def run(self, job: str, reason: str, **scope: Unpack[RunScope]) -> str:
        """Run a job (see in_process.run_job), tagged with the reason; returns the run's id."""
        tags = {REASON_TAG: reason, **self.tags}
        return in_process.run_job(self.jobs(job), self.instance, tags=tags, on_wait=self.tell, **scope)


def run_step(step: PlannedStep, runner: Runner) -> str:
    """Carry out a step before an audit; returns the run's id. Raises the AuditError that the run ended with."""
    if step.kind == "fetch":
        runner.tell(f"fetching documents: {step.what}")
        return runner.run("refresh_sources", step.because, selection=[dg.AssetKey(["documents", step.what])])
    if step.kind == "train":
        runner.tell(f"training the control {step.what}: one model on its members, the control model on other texts")
        resources = {"models": {"device": runner.device}} if runner.device is not None else None
        return runner.run("train_controls", step.because, partition_key=step.what, resources=resources)
    if step.kind == "build":
        runner.tell(f"building benchmark: {step.what}")
        return runner.run("build_benchmarks", step.because, partition_key=step.what)
    if step.kind == "assess":
        runner.tell(f"assessing the split of {step.what}")
        return runner.run("build_benchmarks", step.because, selection=[SPLIT_QUALITY], partition_key=step.what)
    if step.kind == "search":
        benchmark, _, corpus = step.what.partition("|")
        runner.tell(f"looking for the texts of {benchmark} in {corpus}")
        return runner.run("search_corpora", step.because, partition_key=step.what)
    if step.kind == "count":
        corpus, _, model = step.what.partition("|")
        runner.tell(f"counting tokens of {corpus} for {model}")
        return runner.run("count_tokens", step.because, partition_key=step.what)
    raise TypeError(f"{step.kind} {step.what} is not a step before an audit")


_PRODUCT: Mapping[Kind, str] = {
    "fetch": "documents",
    "train": "controls",
    "build": "examples",
    "assess": "split_quality",
    "search": "corpus_overlap",
    "count": "token_frequencies",
}


def product_name(step: PlannedStep) -> str:
    """What a step makes, in one word."""
    return f"{_PRODUCT[step.kind]}/{step.what.partition('|')[0]}"


def run_steps_of_kinds(
    request: PlanRequest, kinds: Sequence[Kind], runner: Runner, *, models: Collection[TokenizedModel] = ()
) -> dict[str, str]:
    """Carry out the steps of these kinds that the request takes, one kind after the other.

    Returns the runs by what they made. Raises the AuditError that kept one from being made.
    """
    for control in request.controls:
        # Raises what is wrong with its entry.
        load_controls().named(control)
    runs: dict[str, str] = {}
    for kind in kinds:
        situation = read_situation(
            request,
            runner.paths,
            entries=[model.entry for model in models],
            models={model.entry.name: model for model in models},
        )
        for step in plan(situation, request):
            if step.kind == kind:
                runs[product_name(step)] = run_step(step, runner)
    return runs


def ensure_frequencies(model: TokenizedModel, runner: Runner) -> dict[str, str]:
    """Count the model's reference corpus with its tokenizer, where an audit is to do so and there is no table of it.

    Returns the runs by what they made. Raises the AuditError that kept it from being counted.
    """
    find_countable_corpus(model.entry)
    return run_steps_of_kinds(PlanRequest(models=(model.entry.name,)), ("fetch", "count"), runner, models=[model])


_ASSETS: Mapping[Kind, str] = {
    "run": "token_statistics",
    "extract": "extraction",
    "score": "scores",
    "evaluate": "evaluations",
}
_MODEL = "token_statistics"


def run_pairs(
    steps: Sequence[PlannedStep],
    runner: Runner,
    *,
    resources: Mapping[str, Mapping[str, Any]] | None = None,
    config: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """Carry out the steps of pairs, all of one model and registered; returns run ids by the first partition of each.

    Pairs of the same steps share runs. ``config`` is that of the asset which runs the model. Raises the AuditError of a
    run that failed (see in_process.run_job), after the others have been run as well.
    """
    kinds: dict[Pair, tuple[Kind, ...]] = {}
    reasons = {step.pair.partition: step.because for step in reversed(steps)}
    for step in steps:
        kinds[step.pair] = (*kinds.get(step.pair, ()), step.kind)
    runs: dict[str, str] = {}
    errors: list[AuditError] = []
    for same_kinds in sorted(set(kinds.values()), key=lambda found: (OF_PAIRS.index(found[0]), found)):
        assets = [_ASSETS[kind] for kind in same_kinds]
        for first_partition, partitions_of_run in _build_run_scopes(
            [pair for pair in kinds if kinds[pair] == same_kinds], runner.instance
        ):
            scope: RunScope = {
                **partitions_of_run,
                "selection": [dg.AssetKey(asset) for asset in assets],
                "resources": _with_limits(resources, runner),
                "ops": {_MODEL: config} if config is not None and _MODEL in assets else None,
            }
            try:
                runs[first_partition] = runner.run("audit_pairs", reasons[first_partition], **scope)
            except AuditError as error:
                errors.append(error)
    if len(errors) > 1:
        raise PairsFailedError("; ".join(str(error) for error in errors))
    if errors:
        raise errors[0]
    return runs


def _with_limits(
    resources: Mapping[str, Mapping[str, Any]] | None, runner: Runner
) -> Mapping[str, Mapping[str, Any]] | None:
    """The same with what is left of the limits after the runs so far."""
    left = compute_remaining_limits(runner.limits, runner.instance, runner.tags, runner.endpoints)
    if not left:
        return resources
    given = resources or {}
    return {**given, "models": {**given.get("models", {}), **left}}


def _build_run_scopes(pairs: Sequence[Pair], instance: dg.DagsterInstance) -> list[tuple[str, RunScope]]:
    """The ranges that hold exactly these pairs, each with its first partition; single ones where no range does."""
    by_benchmark = {pair.benchmark: pair for pair in pairs}
    scopes: list[tuple[str, RunScope]] = []
    for group in group_neighbours(instance.get_dynamic_partitions(partitions.BENCHMARK), by_benchmark):
        together = [by_benchmark[name] for name in group]
        one_range = partitions.range_of(instance, together) if len(together) > 1 else None
        if one_range is not None:
            scopes.append((together[0].partition, {"partition_range": one_range}))
        else:
            scopes += [(pair.partition, {"partition_key": pair.partition}) for pair in together]
    return scopes
