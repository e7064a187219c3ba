"""Carrying out audits: the loop that brings a scope up to date, and the command ``corpus-audit audit``.

The weekly audit takes each of its models through the same :func:`audit_models`. The plan (plan.py) says what is out of
date; runs.py runs the jobs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import dagster as dg

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.config import BenchmarkSpec, load_benchmarks
from audit_pipeline.benchmarks.days_before_today import ensure_reference_day, roll_day, utc_today
from audit_pipeline.errors import DataError, FailedCheckError, NotApplicableError, PairsFailedError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.pipeline.audit_requests import (
    AuditOutcome,
    AuditRequest,
    PassCounts,
    build_request_planner,
    build_request_scope,
    plan_request,
)
from audit_pipeline.pipeline.dagster import runs
from audit_pipeline.pipeline.dagster.instance import mark_dead_runs_failed, open_instance
from audit_pipeline.pipeline.dagster.locks import hold_audit_lock
from audit_pipeline.pipeline.dagster.observed_inputs import observe_before_run
from audit_pipeline.pipeline.dagster.partitions import partitions_of, register
from audit_pipeline.pipeline.dagster.runs import Runner, RunScope
from audit_pipeline.pipeline.dagster.tags import tags_of_command
from audit_pipeline.pipeline.plan import Planner, Step
from audit_pipeline.pipeline.publication_state import explain_unpublished
from audit_pipeline.pipeline.registry import OF_BENCHMARKS, OF_MODELS, OF_PAIRS, STAGES
from audit_pipeline.pipeline.stage import BENCHMARK, FETCHED_AGAIN, PAIR, SOURCE, Product, Stage
from audit_pipeline.pipeline.workspace_state import Scope, WorkspaceState
from audit_pipeline.scoring.session import build_audit_session
from audit_pipeline.scoring.used_endpoints import Endpoints
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import OPTIONAL_KINDS, Pair
from audit_pipeline.token_statistics.cached_texts import CachePlan
from audit_pipeline.token_statistics.cached_texts import require_kinds


@dataclass
class UpdateOutcome:
    """The outcome of bringing a scope up to date.

    Attributes:
        runs: The run of each product that was made.
        problems: Why products cannot be made.
        errors: The errors of products whose run failed.
    """

    runs: dict[str, str] = field(default_factory=dict)
    problems: dict[Product, str] = field(default_factory=dict)
    errors: dict[Product, Exception] = field(default_factory=dict)

    def list_failure_reasons(self, *stages: str) -> dict[str, str]:
        """Return why partitions of these stages were not made, by partition."""
        reasons = {**self.problems, **{product: str(error) for product, error in self.errors.items()}}
        return {product.partition: reason for product, reason in reasons.items() if product.stage in stages}


def update(scope: Scope, stages: Sequence[Stage], read_planner: Callable[[], Planner], runner: Runner) -> UpdateOutcome:
    """Carry out the steps that bring a scope up to date.

    The plan is made again before each group of stages. A partition that fails with an error that the runner survives,
    or that cannot be made, does not stop the others; everything that depends on it is left as it is.

    Args:
        scope: What is to be up to date.
        stages: The stages to make, each after those that it is made of.
        read_planner: Reads the workspace and returns its planner.
        runner: Runs the jobs.
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
        planner = read_planner()
        plan = planner.plan(scope, seen, again, left)
        outcome.problems |= {product: why for product, why in plan.problems.items() if product not in outcome.errors}
        for steps, partitions in _plan_runs(plan.steps_of_stages(names), runner.instance):
            purpose = ""
            if steps[0].stage.dimensions == SOURCE:
                purpose = planner.explain_sources(scope).get(partitions[0], "")
            _run_steps(steps, partitions, runner, outcome, purpose)
    return outcome


def _plan_runs(steps: Sequence[Step], instance: dg.DagsterInstance) -> Iterator[tuple[Sequence[Step], Sequence[str]]]:
    """Yield the steps of each run and its partitions, which are a range of Dagster's."""
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
    """Return partitions with the same first names for each model in groups that are ranges, model by model.

    Dagster's own ranges hold one dimension fixed, so models that share a base would be loaded once per range.
    """
    neighbours = []
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        for place, dimension in enumerate(stage.dimensions):
            names = {partition.split("|", 1)[place] for partition in partitions}
            neighbours.append(group_neighbours(list(partitions_of((dimension,)).get_partition_keys()), names))
    firsts, models = neighbours
    return [[f"{first}|{model}" for model in own for first in names] for own in models for names in firsts]


def group_neighbours(order: Sequence[str], names: Collection[str]) -> list[list[str]]:
    """Return names in groups of neighbours, in the given order."""
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
    """Run the steps of partitions; ``purpose`` is why a source is fetched that nobody named."""
    stages, first = [step.stage for step in steps], steps[0]
    if first.stage.progress_message:
        message = first.stage.progress_message.format(*partitions[0].split("|"))
        runner.notify(f"{message} ({purpose})" if purpose else message)
    is_source = stages[0].dimensions == SOURCE
    names = [[stage.name, partitions[0]] if is_source else [stage.name] for stage in stages]
    scope: RunScope = {"selection": [dg.AssetKey(name) for name in names]}
    if not is_source:
        first_and_last = (partitions[0], partitions[-1])
        scope |= {"partition_range": first_and_last} if partitions[1:] else {"partition_key": partitions[0]}
    options = {stage.name: runner.options[stage.name] for stage in stages if stage.name in runner.options}
    scope["ops"] = options or None
    observe_before_run(runner.instance, runner.paths, stages, partitions)
    try:
        run = _run_and_note(stages, partitions, runner, first.reason, scope)
    except runner.survives as error:
        outcome.errors |= {Product(stage.name, partition): error for stage in stages for partition in partitions}
        return
    for stage in stages:
        outcome.runs |= {f"{stage.name}/{partition}": run for partition in partitions}


def _run_and_note(
    stages: Sequence[Stage], partitions: Sequence[str], runner: Runner, reason: str, scope: RunScope
) -> str:
    """Run the stages, report their notes on what was made, and return the run's id."""
    failure: FailedCheckError | None = None
    run = ""
    try:
        run = runner.run(stages[0].job.name, reason, **scope)
    except FailedCheckError as error:
        # The product was made. The notes report it, and raise what the check found.
        failure = error
    note_functions = [stage.get_notes for stage in stages if stage.get_notes]
    for get_notes, partition in itertools.product(note_functions, partitions):
        for note in get_notes(partition, runner.paths):
            runner.notify(note)
    if failure is not None:
        raise failure
    return run


@dataclass(frozen=True)
class DryRun:
    """What an audit would run. ``plans``: by benchmark, what the model would be run on, and why; the reason is empty
    for what is done. ``first``: what is made before that. ``not_built``: the benchmarks whose texts are known only
    then. ``cannot``: those that cannot be built, and why."""

    plans: Mapping[str, tuple[CachePlan, str]]
    first: Sequence[Step]
    not_built: Sequence[str]
    cannot: Mapping[str, str]

    @property
    def has_work(self) -> bool:
        """Whether anything is to be fetched, built or run."""
        return bool(self.first or self.not_built or any(reason for _, reason in self.plans.values()))


def audit(
    request: AuditRequest,
    definitions: dg.Definitions,
    paths: DataPaths,
    on_step: Callable[[str], None],
) -> AuditOutcome:
    """Bring benchmarks, then the pairs, then warehouse and report up to date.

    Raises the AuditError that stopped it; what ran before it stays, and the next call goes on from there.
    """
    entry, options = request.model, request.options
    require_same_control(entry, request.benchmarks)
    limits, tags = options.limits.require_usable_for(entry), tags_of_command(entry)
    endpoints = Endpoints(limits)
    with open_runner(definitions, paths, on_step) as (opened, dead_runs):
        runner = replace(opened, tags=tags, resources=request.resources, limits=limits, endpoints=endpoints)
        outcome = AuditOutcome(request.models, request.benchmarks, dead_runs=dead_runs)
        if entry.control is not None:
            outcome.runs |= prepare_scope(Scope(models=(entry.name,)), runner, models=[entry]).runs
        # Models first, so that none that cannot be loaded costs a download or leaves a partition.
        models = [endpoints.probe_and_load(model, paths, on_step) for model in request.models]
        for model in models:
            require_kinds(model, options.kinds)
        benchmarks = resolve_relative_cutoffs(request.benchmarks, paths, on_step, refresh=options.refresh)
        register(runner.instance, models=[model.name for model in request.models])
        scope = Scope(tuple(spec.name for spec in benchmarks))
        if options.refresh:
            scope = replace(scope, again=FETCHED_AGAIN)
        prepared = prepare_scope(scope, runner, benchmarks, leave_out=request.leave_out, ask_hub=options.refresh)
        outcome.runs |= prepared.runs
        required = [stage for stage in OF_BENCHMARKS if stage.dimensions == BENCHMARK and not stage.is_optional]
        outcome.left_out = prepared.list_failure_reasons(*(stage.name for stage in required))
        outcome.benchmarks = [spec for spec in benchmarks if spec.name not in outcome.left_out]
        for name, reason in outcome.left_out.items():
            on_step(f"{name} is left out: {reason}")
        audit_models(replace(request, benchmarks=outcome.benchmarks), models, runner, outcome)
        if options.publish and explain_unpublished([model.name for model in request.models], paths) is not None:
            outcome.runs["publish"] = runs.publish(runner)
        return outcome


@contextmanager
def open_runner(
    definitions: dg.Definitions, paths: DataPaths, on_step: Callable[[str], None]
) -> Iterator[tuple[Runner, list[str]]]:
    """Give what runs a command's jobs, and the runs that were marked failed before; hold the lock of audits."""
    with hold_audit_lock(paths), open_instance(paths) as instance:
        dead_runs = mark_dead_runs_failed(instance, paths)
        yield Runner(definitions.resolve_job_def, instance, paths, on_step), dead_runs


def prepare_scope(
    scope: Scope,
    runner: Runner,
    specs: Sequence[BenchmarkSpec] = (),
    models: Sequence[ModelEntry] = (),
    *,
    leave_out: bool = False,
    ask_hub: bool = False,
) -> UpdateOutcome:
    """Make all that the scope takes and no model is run for; ``specs`` and ``models`` are its benchmarks and models.

    Raises what keeps a product from being made, unless ``leave_out``.
    """
    register(runner.instance, benchmarks=[spec.name for spec in specs])
    named, entries = {spec.name: spec for spec in specs}, {entry.name: entry for entry in models}

    def read_planner() -> Planner:
        return Planner(WorkspaceState(runner.paths, named, entries, ask_hub=ask_hub), STAGES)

    brought = update(scope, OF_BENCHMARKS, read_planner, runner)
    optional = {stage.name for stage in OF_BENCHMARKS if stage.is_optional}
    for stage in optional:
        for partition, reason in brought.list_failure_reasons(stage).items():
            runner.notify(f"{stage} of {partition} is not made: {reason}")
    if not leave_out:
        for product, error in brought.errors.items():
            if product.stage not in optional:
                raise error
        for product, problem in brought.problems.items():
            if product.stage not in optional:
                raise DataError(problem)
    return brought


def audit_models(
    request: AuditRequest, models: Sequence[TokenizedModel], runner: Runner, outcome: AuditOutcome
) -> None:
    """Run the request's models and their detectors on those of its benchmarks that are not done, all of them built.

    A pair that meets a fault does not stop the others: ``outcome`` has the error then. What only some detectors need,
    and cannot be made, is told, and they are left out.
    """
    options = request.options
    scope = build_request_scope(request)
    config: dict[str, object] = {kind: kind in options.kinds for kind in OPTIONAL_KINDS}
    if options.logits_budget_gb is not None:
        config["logits_budget_gb"] = options.logits_budget_gb
    read_planner = partial(build_request_planner, request, models, runner.paths)
    pending = {
        step.pair.benchmark for step in read_planner().plan(scope, OF_MODELS).steps if step.stage.dimensions == PAIR
    }
    if pending:
        named = ", ".join(name for name in scope.benchmarks if name in pending)
        runner.notify(f"auditing {request.subject} on {named}")
    # The documents of a reference corpus, whatever became of those of benchmarks.
    corpora = update(Scope(models=scope.models), OF_BENCHMARKS, read_planner, runner)
    outcome.runs |= corpora.runs
    for product, fault in corpora.errors.items():
        runner.notify(f"{product} could not be made: {fault}")
    brought = update(scope, OF_MODELS, read_planner, replace(runner, options={"token_statistics": config}))
    outcome.runs |= brought.runs
    for stage in OF_MODELS:
        for product, error in brought.errors.items():
            if product.stage == stage.name and stage.is_optional:
                runner.notify(f"{product} could not be made, detectors that need it are left out: {error}")
                outcome.not_made[str(product)] = error
    pairs = {stage.name for stage in OF_PAIRS}
    failed = list({id(error): error for product, error in brought.errors.items() if product.stage in pairs}.values())
    if len(failed) == 1 and not isinstance(failed[0], PairsFailedError):
        raise failed[0]
    if failed:
        # The others are done: their findings are published before the error is raised.
        outcome.failed = PairsFailedError("; ".join(map(str, failed)))
    for pair in scope.pairs:
        _record_passes(runner, pair, brought, outcome)


def require_same_control(entry: ModelEntry, benchmarks: Sequence[BenchmarkSpec]) -> None:
    """Raise NotApplicableError, before anything is trained, where only one of model and benchmark is of a control."""
    of_model = entry.control.name if entry.control is not None else None
    for spec in benchmarks:
        if spec.control != of_model:
            raise NotApplicableError(
                f"{entry.name} and {spec.name} do not belong together: a control's texts are asked of its own models, "
                "and those of nothing else (corpus-audit control)"
            )


def prepare_benchmarks(
    benchmarks: Sequence[BenchmarkSpec], definitions: dg.Definitions, paths: DataPaths, on_step: Callable[[str], None]
) -> None:
    """Fetch sources and build ``benchmarks`` where that is needed; no model is run."""
    benchmarks = resolve_relative_cutoffs(benchmarks, paths, on_step)
    with open_runner(definitions, paths, on_step) as (runner, _):
        prepare_scope(Scope(tuple(spec.name for spec in benchmarks)), runner, benchmarks)


def publish(
    definitions: dg.Definitions,
    paths: DataPaths,
    on_step: Callable[[str], None],
    *,
    include_text: bool = True,
) -> str:
    """Build warehouse and report, with or without excerpts of the audited texts; returns the run's id."""
    with open_instance(paths) as instance:
        mark_dead_runs_failed(instance, paths)
        return runs.publish(Runner(definitions.resolve_job_def, instance, paths, on_step), include_text=include_text)


def resolve_relative_cutoffs(
    benchmarks: Sequence[BenchmarkSpec], paths: DataPaths, on_step: Callable[[str], None], *, refresh: bool = False
) -> Sequence[BenchmarkSpec]:
    """The benchmarks with relative cutoffs counted from the kept day, which a ``refresh`` moves on to today."""
    if not any(spec.has_relative_cutoff for spec in benchmarks):
        return benchmarks
    if not refresh:
        ensure_reference_day(paths)
    elif roll_day(paths, utc_today()):
        on_step(f"relative cutoffs are counted from {utc_today()} on")
    settled = load_benchmarks()
    return [settled[spec.name] for spec in benchmarks]


def _record_passes(runner: Runner, pair: Pair, brought: UpdateOutcome, outcome: AuditOutcome) -> None:
    """Record what the pair's run reports of its pass, if the model was to be run."""
    product = Product("token_statistics", pair.partition)
    run_id = brought.runs.get(str(product))
    if run_id is None and product not in brought.errors:
        return
    failure = WorkspaceState(runner.paths).find_latest_outcome(pair)
    wanted = dg.AssetRecordsFilter(dg.AssetKey(product.stage), asset_partitions=[pair.partition])
    records = runner.instance.fetch_materializations(wanted, limit=1).records
    materialisation = records[0].asset_materialization if records else None
    is_failure_newer = failure is not None and (not records or failure.at.timestamp() > records[0].timestamp)
    if failure is not None and is_failure_newer:
        outcome.not_run[pair.partition] = failure.reason
    elif materialisation is None:
        outcome.not_run[pair.partition] = "its run failed before the model was run"
    else:
        counts = {name: entry.value for name, entry in materialisation.metadata.items()}
        if "texts_computed" in counts:
            passes = PassCounts(int(str(counts["texts_from_cache"])), int(str(counts["texts_computed"])))
            outcome.passes[pair.partition] = passes
        else:
            outcome.not_run[pair.partition] = str(counts.get("reason", "no reason was given"))


def plan_dry_run(request: AuditRequest, model: TokenizedModel | None, paths: DataPaths) -> DryRun:
    """What an audit would do, without doing any of it; ``model`` is None where it has not been trained yet.

    Raises DataError where model and benchmark do not belong together, and where a benchmark cannot be built, but for a
    request that leaves such out.
    """
    require_same_control(request.model, request.benchmarks)
    if model is not None:
        require_kinds(model, request.options.kinds)
    made = plan_request(request, [] if model is None else [model], paths)
    cannot = made.problems_of("benchmark")
    if cannot and not request.leave_out:
        raise DataError(next(iter(cannot.values())))
    # Of what one run makes, the first.
    runs = {(step.stage.job, step.partition): step for step in reversed(made.steps) if step.stage.dimensions != PAIR}
    first = [step for step in made.steps if step in runs.values()]
    to_build = {step.partition for step in first if step.stage.name == "benchmark"}
    reasons = {step.pair.benchmark: step.reason for step in reversed(made.steps) if step.stage.dimensions == PAIR}
    plans = {}
    for spec in request.benchmarks:
        if model is not None and spec.name not in cannot and spec.name not in to_build:
            built = read_built(paths, spec.name)
            built.require_passed_checks()
            session = build_audit_session(built, model, paths)
            plans[spec.name] = (session.plan(built.model_inputs, request.options.kinds), reasons.get(spec.name, ""))
    not_built = [spec.name for spec in request.benchmarks if spec.name not in plans and spec.name not in cannot]
    return DryRun(plans, first, not_built, cannot)
