"""The execution of audits for commands: preparation of benchmarks, audits of models, publication and dry runs.

The weekly audit (weekly.py) calls :func:`audit_models` for each of its models. runs.py contains the loop that plans and
runs the jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import dagster as dg

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.config import (
    BenchmarkSpec,
    ensure_reference_day,
    load_benchmarks,
    move_reference_day,
    utc_today,
)
from audit_pipeline.benchmarks.model_inputs import build_benchmark_inputs
from audit_pipeline.errors import DataError, ModelError, NotApplicableError, PairsFailedError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.pipeline import audit_requests
from audit_pipeline.pipeline.dagster import runs
from audit_pipeline.pipeline.dagster.instance import mark_dead_runs_failed, open_instance
from audit_pipeline.pipeline.dagster.locks import mark_audit_running
from audit_pipeline.pipeline.dagster.partitions import register_partitions
from audit_pipeline.pipeline.dagster.resources import build_command_tags
from audit_pipeline.pipeline.dagster.runs import Runner, UpdateOutcome, update
from audit_pipeline.pipeline.plan import AuditPlan, Planner, Step
from audit_pipeline.pipeline.publication_state import explain_unpublished
from audit_pipeline.pipeline.registry import BENCHMARK_STAGES, MODEL_STAGES, PAIR_STAGES, STAGES
from audit_pipeline.pipeline.stage import BENCHMARK, FETCHED_AGAIN, PAIR, Product, StageJob
from audit_pipeline.pipeline.workspace_state import Scope, WorkspaceState
from audit_pipeline.scoring.backends import Endpoints
from audit_pipeline.scoring.session import build_audit_session
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import OPTIONAL_KINDS, Pair
from audit_pipeline.token_statistics.cached_texts import CachePlan, require_kinds


@dataclass(frozen=True)
class DryRun:
    """The work that an audit would do.

    Attributes:
        plans: The plan of the texts that the model would be run on, and the reason, by benchmark. The reason is empty
            if the pair is done.
        preparation_steps: The steps that are executed before the model is run.
        not_built: The benchmarks that have to be built first. Their texts are not known yet.
        problems: The reasons why benchmarks cannot be built, by benchmark.
    """

    plans: Mapping[str, tuple[CachePlan, str]]
    preparation_steps: Sequence[Step]
    not_built: Sequence[str]
    problems: Mapping[str, str]

    @property
    def has_work(self) -> bool:
        """Return whether the audit would fetch, build or run anything."""
        if self.preparation_steps or self.not_built:
            return True
        return any(reason for _, reason in self.plans.values())


def audit(
    request: audit_requests.AuditRequest,
    definitions: dg.Definitions,
    paths: DataPaths,
    on_step: Callable[[str], None],
) -> audit_requests.AuditOutcome:
    """Update the benchmarks, then the pairs, and then warehouse and report.

    Args:
        request: The request.
        definitions: The Dagster definitions.
        paths: The data folder.
        on_step: Receives each line for the user.

    Raises:
        AuditError: If the audit cannot continue. Results so far are kept, and the next call continues from there.
    """
    entry = request.model
    options = request.options
    require_same_control(entry, request.benchmarks)
    limits = options.limits.require_usable_for(entry)
    tags = build_command_tags(entry)
    endpoints = Endpoints(limits)
    with open_runner(definitions, paths, on_step) as (opened, dead_runs):
        runner = replace(opened, tags=tags, resources=request.resources, limits=limits, endpoints=endpoints)
        outcome = audit_requests.AuditOutcome(request.models, request.benchmarks, dead_runs=dead_runs)
        if entry.control is not None:
            outcome.runs |= prepare_scope(Scope(models=(entry.name,)), runner, models=[entry]).runs
        # Models are loaded before anything is downloaded or registered, so that a failure to load changes nothing.
        models = [endpoints.probe_and_load(model, paths, on_step) for model in request.models]
        for model in models:
            require_kinds(model, options.kinds)
        benchmarks = resolve_relative_cutoffs(request.benchmarks, paths, on_step, refresh=options.refresh)
        model_names = [model.name for model in request.models]
        register_partitions(runner.instance, models=model_names)
        scope = Scope(tuple(spec.name for spec in benchmarks))
        if options.refresh:
            scope = replace(scope, again=FETCHED_AGAIN)
        prepared = prepare_scope(scope, runner, benchmarks, leave_out=request.leave_out, ask_hub=options.refresh)
        outcome.runs |= prepared.runs
        required: list[str] = []
        for stage in BENCHMARK_STAGES:
            if stage.dimensions == BENCHMARK and not stage.is_optional:
                required.append(stage.name)
        outcome.left_out = prepared.list_failure_reasons(*required)
        outcome.benchmarks = [spec for spec in benchmarks if spec.name not in outcome.left_out]
        for name, reason in outcome.left_out.items():
            on_step(f"the benchmark {name} is skipped: {reason}")
        audit_models(replace(request, benchmarks=outcome.benchmarks), models, runner, outcome)
        if options.publish and explain_unpublished(model_names, paths) is not None:
            outcome.runs["publish"] = runs.publish(runner)
        return outcome


@contextmanager
def open_runner(
    definitions: dg.Definitions, paths: DataPaths, on_step: Callable[[str], None]
) -> Iterator[tuple[Runner, list[str]]]:
    """Hold the lock of audits. Yield a runner of jobs, and the ids of dead runs that were marked as failed."""
    with mark_audit_running(paths), open_instance(paths) as instance:
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
    """Make the products of a scope that are made before a model is run.

    Args:
        scope: The scope.
        runner: Runs the jobs.
        specs: The benchmarks of the scope.
        models: The entries of the models of the scope.
        leave_out: Whether products that cannot be made are skipped. Otherwise such a product raises an error.
        ask_hub: Whether to query the hub for changes of data sets.

    Raises:
        AuditError: If a product cannot be made, unless ``leave_out`` is set or the product is optional.
    """
    specs_by_name = {spec.name: spec for spec in specs}
    register_partitions(runner.instance, benchmarks=list(specs_by_name))
    entries = {entry.name: entry for entry in models}

    def read_planner() -> Planner:
        return Planner(WorkspaceState(runner.paths, specs_by_name, entries, ask_hub=ask_hub), STAGES)

    updated = update(scope, BENCHMARK_STAGES, read_planner, runner)
    optional = {stage.name for stage in BENCHMARK_STAGES if stage.is_optional}
    for stage in optional:
        for partition, reason in updated.list_failure_reasons(stage).items():
            runner.notify(f"{stage} of {partition} was not made: {reason}")
    if not leave_out:
        for product, error in updated.errors.items():
            if product.stage not in optional:
                raise error
        for product, problem in updated.problems.items():
            if product.stage not in optional:
                raise DataError(problem)
    return updated


def audit_models(
    request: audit_requests.AuditRequest,
    models: Sequence[TokenizedModel],
    runner: Runner,
    outcome: audit_requests.AuditOutcome,
) -> None:
    """Run a request's models on its benchmarks, and score and evaluate the pairs, unless they are done.

    All benchmarks must be built. A failed pair does not stop the other pairs. An optional product that cannot be made
    is reported, and the detectors that need it are skipped.

    Args:
        request: The request.
        models: The loaded models of the request.
        runner: Runs the jobs.
        outcome: The outcome of the audit, which is updated.

    Raises:
        AuditError: If exactly one run failed, and its error is no PairsFailedError. The errors of several runs, and a
            PairsFailedError, are recorded in the outcome instead.
    """
    options = request.options
    scope = audit_requests.build_request_scope(request)
    pass_options: dict[str, object] = {kind: kind in options.kinds for kind in OPTIONAL_KINDS}
    if options.logits_budget_gb is not None:
        pass_options["logits_budget_gb"] = options.logits_budget_gb
    read_planner = partial(audit_requests.build_request_planner, request, models, runner.paths)
    steps = read_planner().plan(scope, MODEL_STAGES).steps
    pending = {step.pair.benchmark for step in steps if step.stage.dimensions == PAIR}
    if pending:
        names = ", ".join(filter(pending.__contains__, scope.benchmarks))
        runner.notify(f"auditing {request.subject} on {names}")
    # The reference corpora of the models can need documents that no benchmark needs.
    corpora = update(Scope(models=scope.models), BENCHMARK_STAGES, read_planner, runner)
    outcome.runs |= corpora.runs
    for product, error in corpora.errors.items():
        runner.notify(f"{product} could not be made: {error}")
    updated = update(scope, MODEL_STAGES, read_planner, replace(runner, options={"token_statistics": pass_options}))
    outcome.runs |= updated.runs
    for stage in MODEL_STAGES:
        for product, error in updated.errors.items():
            if product.stage == stage.name and stage.is_optional:
                runner.notify(f"{product} could not be made, so detectors that need it are skipped: {error}")
                outcome.not_made[str(product)] = error
    # All products of a failed run have the same error object, which is counted once.
    pair_stages = {stage.name for stage in PAIR_STAGES}
    errors_by_id: dict[int, Exception] = {}
    for product, error in updated.errors.items():
        if product.stage in pair_stages:
            errors_by_id[id(error)] = error
    errors = list(errors_by_id.values())
    if len(errors) == 1 and not isinstance(errors[0], PairsFailedError):
        raise errors[0]
    if errors:
        # The other pairs are done. Their findings are published before the error is raised.
        outcome.failed = PairsFailedError("; ".join(map(str, errors)))
    for pair in scope.pairs:
        _record_passes(runner, pair, updated, outcome)


def require_same_control(entry: ModelEntry, benchmarks: Sequence[BenchmarkSpec]) -> None:
    """Check before any training that a model and its benchmarks belong to the same control or to none.

    Raises:
        NotApplicableError: If a benchmark belongs to another control than the model.
    """
    model_control = None
    if entry.control is not None:
        model_control = entry.control.name
    for spec in benchmarks:
        if spec.control != model_control:
            raise NotApplicableError(
                f"{entry.name} and {spec.name} do not belong together: a control's models are audited only on the "
                "texts of the control. Use corpus-audit control, or name another model or benchmark."
            )


def prepare_benchmarks(
    benchmarks: Sequence[BenchmarkSpec], definitions: dg.Definitions, paths: DataPaths, on_step: Callable[[str], None]
) -> None:
    """Fetch the sources and build benchmarks that are out of date. No model is run."""
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
    """Build the warehouse and the report in a run, and return the run's id.

    Args:
        definitions: The Dagster definitions.
        paths: The data folder.
        on_step: Receives each line for the user.
        include_text: Whether to include excerpts of the audited texts.
    """
    with open_instance(paths) as instance:
        mark_dead_runs_failed(instance, paths)
        return runs.publish(Runner(definitions.resolve_job_def, instance, paths, on_step), include_text=include_text)


def resolve_relative_cutoffs(
    benchmarks: Sequence[BenchmarkSpec], paths: DataPaths, on_step: Callable[[str], None], *, refresh: bool = False
) -> Sequence[BenchmarkSpec]:
    """Return benchmarks with their relative cutoffs as dates, computed from the recorded reference day.

    Args:
        benchmarks: The benchmarks.
        paths: The data folder.
        on_step: Receives a line if the reference day changed.
        refresh: Whether to move the reference day to today.
    """
    if not any(spec.has_relative_cutoff for spec in benchmarks):
        return benchmarks
    if not refresh:
        ensure_reference_day(paths)
    elif move_reference_day(paths, utc_today()):
        on_step(f"relative cutoff dates are now computed from {utc_today()}")
    resolved = load_benchmarks()
    return [resolved[spec.name] for spec in benchmarks]


def _record_passes(runner: Runner, pair: Pair, updated: UpdateOutcome, outcome: audit_requests.AuditOutcome) -> None:
    """Add the counts of a pair's cached and newly run texts to the outcome, or the reason why the model was not run."""
    product = Product("token_statistics", pair.partition)
    if str(product) not in updated.runs and product not in updated.errors:
        # The pair was not planned.
        return
    failure = WorkspaceState(runner.paths).find_latest_outcome(pair)
    cell = dg.AssetRecordsFilter(dg.AssetKey(product.stage), asset_partitions=[pair.partition])
    records = runner.instance.fetch_materializations(cell, limit=1).records
    if failure is not None and (not records or failure.at.timestamp() > records[0].timestamp):
        outcome.not_run[pair.partition] = failure.reason
        return
    materialisation = None
    if records:
        materialisation = records[0].asset_materialization
    if materialisation is None:
        outcome.not_run[pair.partition] = "its run failed before the model was run"
        return
    counts = {name: entry.value for name, entry in materialisation.metadata.items()}
    if "texts_computed" in counts:
        passes = audit_requests.PassCounts(int(str(counts["texts_from_cache"])), int(str(counts["texts_computed"])))
        outcome.passes[pair.partition] = passes
    else:
        outcome.not_run[pair.partition] = str(counts.get("reason", "the run recorded no reason"))


def plan_dry_run(request: audit_requests.AuditRequest, model: TokenizedModel | None, paths: DataPaths) -> DryRun:
    """Return the work that an audit would do, without doing it.

    Args:
        request: The request.
        model: The model, or None if its control has not been trained yet.
        paths: The data folder.

    Raises:
        NotApplicableError: If model and benchmark belong to different controls.
        DataError: If a benchmark cannot be built, unless the request skips such benchmarks.
    """
    require_same_control(request.model, request.benchmarks)
    models: list[TokenizedModel] = []
    if model is not None:
        require_kinds(model, request.options.kinds)
        models.append(model)
    plan = audit_requests.plan_request(request, models, paths)
    problems = dict(plan.problems_of("benchmark"))
    if problems and not request.leave_out:
        raise DataError(next(iter(problems.values())))
    preparation_steps = _list_preparation_steps(plan)
    to_build = {step.partition for step in preparation_steps if step.stage.name == "benchmark"}
    reasons: dict[str, str] = {}
    for step in plan.steps:
        if step.stage.dimensions == PAIR:
            # The reason of a pair is the reason of its first step.
            reasons.setdefault(step.pair.benchmark, step.reason)
    plans = {}
    not_built = []
    for spec in request.benchmarks:
        if spec.name in problems:
            continue
        if model is None or spec.name in to_build:
            not_built.append(spec.name)
            continue
        built = read_built(paths, spec.name)
        built.require_passed_checks()
        session = build_audit_session(built, model, paths)
        try:
            texts = build_benchmark_inputs(built, model).distinct_texts
        except (DataError, ModelError) as error:
            if not request.leave_out:
                raise
            problems[spec.name] = str(error)
            continue
        plans[spec.name] = (session.plan(texts, request.options.kinds), reasons.get(spec.name, ""))
    return DryRun(plans, preparation_steps, not_built, problems)


def _list_preparation_steps(plan: AuditPlan) -> list[Step]:
    """Return the steps that come before the pairs. If several steps belong to one run, only the first is returned."""
    first_steps: dict[tuple[StageJob, str], Step] = {}
    for step in plan.steps:
        if step.stage.dimensions != PAIR:
            first_steps.setdefault((step.stage.job, step.partition), step)
    return list(first_steps.values())
