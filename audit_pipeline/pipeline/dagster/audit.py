"""The command `corpus-audit audit`: bring a model, or a series, up to date on some benchmarks, through Dagster, here.

The weekly audit takes each of its models through the same :func:`audit_models`. Which steps there are say freshness.py
and the stages; run.py carries them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import dagster as dg

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.config import BenchmarkSpec, load_benchmarks
from audit_pipeline.benchmarks.days_before_today import ensure_reference_day, roll_day, utc_today
from audit_pipeline.errors import DataError, NotApplicableError, PairsFailedError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.pipeline.dagster import partitions, run
from audit_pipeline.pipeline.dagster.instance import mark_dead_runs_failed, open_instance
from audit_pipeline.pipeline.dagster.locks import hold_audit_lock
from audit_pipeline.pipeline.dagster.run import Runner, UpdateOutcome, bring_up_to_date
from audit_pipeline.pipeline.dagster.tags import tags_of_command
from audit_pipeline.pipeline.freshness import Step
from audit_pipeline.pipeline.publication_state import explain_unpublished
from audit_pipeline.pipeline.requests import AuditOutcome, AuditRequest, PassCounts
from audit_pipeline.pipeline.situation import Scope, Situation, build_situation, plan_audit, scope_of_request
from audit_pipeline.pipeline.stage import Product
from audit_pipeline.pipeline.stages.benchmarks import BENCHMARK_STAGE
from audit_pipeline.pipeline.stages.registry import OF_BENCHMARKS, OF_MODELS, OF_PAIRS, PAIR
from audit_pipeline.pipeline.stages.scores import STATISTICS_STAGE
from audit_pipeline.pipeline.stages.source_documents import FETCHED_AGAIN
from audit_pipeline.scoring.session import build_audit_session
from audit_pipeline.scoring.used_endpoints import Endpoints
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import OPTIONAL_KINDS, Pair
from audit_pipeline.token_statistics.cached_texts import Plan as PassPlan
from audit_pipeline.token_statistics.cached_texts import require_kinds


@dataclass(frozen=True)
class DryRun:
    """What an audit would run. ``plans``: by benchmark, what the model would be run on, and why; the reason is empty
    for what is done. ``first``: what is made before that. ``not_built``: the benchmarks whose texts are known only
    then. ``cannot``: those that cannot be built, and why."""

    plans: Mapping[str, tuple[PassPlan, str]]
    first: Sequence[Step]
    not_built: Sequence[str]
    cannot: Mapping[str, str]

    @property
    def has_work(self) -> bool:
        """Whether anything is to be fetched, built or run."""
        return bool(self.first or self.not_built or any(because for _, because in self.plans.values()))


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
        partitions.register(runner.instance, models=[model.name for model in request.models])
        scope = Scope(tuple(spec.name for spec in benchmarks))
        if options.refresh:
            scope = replace(scope, again=FETCHED_AGAIN)
        prepared = prepare_scope(scope, runner, benchmarks, leave_out=request.leave_out, ask_hub=options.refresh)
        outcome.runs |= prepared.runs
        required = [stage for stage in OF_BENCHMARKS if stage.dimensions == ("benchmark",) and not stage.is_optional]
        outcome.left_out = prepared.list_failure_reasons(*(stage.name for stage in required))
        outcome.benchmarks = [spec for spec in benchmarks if spec.name not in outcome.left_out]
        for name, reason in outcome.left_out.items():
            on_step(f"{name} is left out: {reason}")
        audit_models(replace(request, benchmarks=outcome.benchmarks), models, runner, outcome)
        if options.publish and explain_unpublished([model.name for model in request.models], paths) is not None:
            outcome.runs["publish"] = run.publish(runner)
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
    partitions.register(runner.instance, benchmarks=[spec.name for spec in specs])
    named, entries = {spec.name: spec for spec in specs}, {entry.name: entry for entry in models}
    read_situation = partial(Situation, runner.paths, named, entries, ask_hub=ask_hub)
    brought = bring_up_to_date(scope, OF_BENCHMARKS, read_situation, runner)
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
    scope = scope_of_request(request)
    config: dict[str, object] = {kind: kind in options.kinds for kind in OPTIONAL_KINDS}
    if options.logits_budget_gb is not None:
        config["logits_budget_gb"] = options.logits_budget_gb
    read_situation = partial(build_situation, request, models, runner.paths)
    pending = {
        step.pair.benchmark for step in read_situation().plan(scope, OF_MODELS).steps if step.stage.dimensions == PAIR
    }
    if pending:
        named = ", ".join(name for name in scope.benchmarks if name in pending)
        runner.notify(f"auditing {request.subject} on {named}")
    # The documents of a reference corpus, whatever became of those of benchmarks.
    corpora = bring_up_to_date(Scope(models=scope.models), OF_BENCHMARKS, read_situation, runner)
    outcome.runs |= corpora.runs
    for product, fault in corpora.errors.items():
        runner.notify(f"{product} could not be made: {fault}")
    brought = bring_up_to_date(
        scope, OF_MODELS, read_situation, replace(runner, options={STATISTICS_STAGE.name: config})
    )
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
        _record_passes(runner.instance, pair, brought, outcome)


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
        return run.publish(Runner(definitions.resolve_job_def, instance, paths, on_step), include_text=include_text)


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


def _record_passes(instance: dg.DagsterInstance, pair: Pair, brought: UpdateOutcome, outcome: AuditOutcome) -> None:
    """What the pair's latest materialisation says of its pass, where the model was to be run."""
    product = Product(STATISTICS_STAGE.name, pair.partition)
    if str(product) not in brought.runs and product not in brought.errors:
        return
    wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey(product.stage), asset_partitions=[pair.partition])
    records = instance.fetch_materializations(wanted, limit=1).records
    if not records or records[0].asset_materialization is None:
        outcome.not_run[pair.partition] = "its run failed before the model was run"
        return
    said = {name: str(entry.value) for name, entry in records[0].asset_materialization.metadata.items()}
    if "texts_computed" in said:
        outcome.passes[pair.partition] = PassCounts(int(said["texts_from_cache"]), int(said["texts_computed"]))
    else:
        outcome.not_run[pair.partition] = said.get("reason", "no reason was given")


def plan_dry_run(request: AuditRequest, model: TokenizedModel | None, paths: DataPaths) -> DryRun:
    """What an audit would do, without doing any of it; ``model`` is None where it has not been trained yet.

    Raises DataError where model and benchmark do not belong together, and where a benchmark cannot be built, but for a
    request that leaves such out.
    """
    require_same_control(request.model, request.benchmarks)
    if model is not None:
        require_kinds(model, request.options.kinds)
    made = plan_audit(request, [] if model is None else [model], paths)
    cannot = made.problems_of(BENCHMARK_STAGE.name)
    if cannot and not request.leave_out:
        raise DataError(next(iter(cannot.values())))
    # Of what one run makes, the first.
    runs = {(step.stage.job, step.partition): step for step in reversed(made.steps) if step.stage.dimensions != PAIR}
    first = [step for step in made.steps if step in runs.values()]
    to_build = {step.partition for step in first if step.stage is BENCHMARK_STAGE}
    reasons = {step.pair.benchmark: step.because for step in reversed(made.steps) if step.stage.dimensions == PAIR}
    plans = {}
    for spec in request.benchmarks:
        if model is not None and spec.name not in cannot and spec.name not in to_build:
            built = read_built(paths, spec.name)
            built.require_passed_checks()
            session = build_audit_session(built, model, paths)
            plans[spec.name] = (session.plan(built.model_inputs, request.options.kinds), reasons.get(spec.name, ""))
    not_built = [spec.name for spec in request.benchmarks if spec.name not in plans and spec.name not in cannot]
    return DryRun(plans, first, not_built, cannot)
