"""The command `corpus-audit audit`: bring one model on some benchmarks up to date, through Dagster, in this process.

What belongs here: the order in which the planner's steps are carried out, their outcome, what they would cost; the
weekly audit takes each of its models through the same :func:`audit_model`. What does not: which steps there are
(operate/plan.py), the work itself (operate/stages/), presentation (cli/).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import dagster as dg

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.config import BenchmarkSpec, load_benchmarks
from audit_pipeline.benchmarks.days_before_today import ensure_rolled_day, roll_day, utc_today
from audit_pipeline.catalogue.contracts import OPTIONAL_KINDS, Pair
from audit_pipeline.catalogue.files import read_json
from audit_pipeline.catalogue.paths import DataPaths, texts_are_quoted
from audit_pipeline.controls.config import load_controls, load_studies
from audit_pipeline.endpoints.used_endpoints import Endpoints
from audit_pipeline.errors import AuditError, DataError, NotApplicableError, PairsFailedError
from audit_pipeline.extraction.search import SearchOptions
from audit_pipeline.extraction.windows import explain_window_too_long
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.tokenized_model import TokenizedModel, load_reference_model
from audit_pipeline.operate.audit_request import AuditOutcome, AuditRequest, PassCounts
from audit_pipeline.operate.dagster import in_process, partitions
from audit_pipeline.operate.dagster.audit_locks import hold_audit_lock
from audit_pipeline.operate.dagster.step_runs import (
    Runner,
    ensure_frequencies,
    product_name,
    run_pairs,
    run_step,
    run_steps_of_kinds,
)
from audit_pipeline.operate.dagster.tags import compute_remaining_limits, tags_of_command
from audit_pipeline.operate.facts import OF_PAIRS, PlannedStep, PlanRequest, Situation
from audit_pipeline.operate.plan import assume_benchmarks_current, find_benchmark_problems, plan, state_of
from audit_pipeline.operate.situation import read_situation
from audit_pipeline.scoring.session import build_audit_session
from audit_pipeline.token_statistics.cached_texts import Plan, require_kinds


@dataclass(frozen=True)
class DryRun:
    """What an audit would run. ``plans``: by benchmark, what the model would be run on, and why; the reason is empty
    for what is done. ``first``: what is fetched, trained, built and counted before that. ``not_built``: the benchmarks
    whose texts are known only then. ``cannot``: those that cannot be built, and why."""

    plans: Mapping[str, tuple[Plan, str]]
    first: Sequence[PlannedStep]
    not_built: Sequence[str]
    cannot: Mapping[str, str]


def audit(
    request: AuditRequest,
    definitions: dg.Definitions,
    paths: DataPaths,
    on_step: Callable[[str], None],
) -> AuditOutcome:
    """Carry out what the planner says is missing: upstream, then the pairs, then warehouse and report.

    Raises the AuditError that stopped it; what ran before it stays, and the next call goes on from there.
    """
    entry, options = request.model, request.options
    _require_same_control(entry, request.benchmarks)
    limits, tags = options.limits.require_usable_for(entry), tags_of_command(entry)
    with hold_audit_lock(paths), in_process.open_instance(paths) as instance:
        runner = Runner(definitions.resolve_job_def, instance, paths, on_step, options.device, tags, limits)
        outcome = AuditOutcome(entry, request.benchmarks, dead_runs=in_process.mark_dead_runs_failed(instance))
        _audit(request, runner, outcome)
        return outcome


def _audit(request: AuditRequest, runner: Runner, outcome: AuditOutcome) -> None:
    entry = request.model
    if entry.control is not None:
        outcome.runs |= run_steps_of_kinds(PlanRequest(controls=(entry.control.name,)), ("fetch", "train"), runner)
    # The model first, so that one that cannot be loaded costs no download and leaves no partition behind.
    endpoints = Endpoints(runner.limits)
    model = endpoints.load(entry, runner.paths, runner.tell)
    runner = replace(runner, endpoints=endpoints)
    require_kinds(model, request.options.kinds)
    refresh = request.options.refresh
    benchmarks = _resolve_relative_cutoffs(request.benchmarks, runner.paths, runner.tell, refresh=refresh)
    partitions.register(runner.instance, models=[entry.name])
    runs, outcome.left_out = _prepare_benchmarks(benchmarks, runner, refresh=refresh, leave_out=request.leave_out)
    outcome.runs |= runs
    outcome.benchmarks = [spec for spec in benchmarks if spec.name not in outcome.left_out]
    # What was to be fetched again is there by now.
    request = replace(request, benchmarks=outcome.benchmarks, options=replace(request.options, refresh=False))
    audit_model(request, model, runner, outcome)
    plain = replace(request.options, again=False, kinds=("base",))
    if any(step.kind == "publish" for step in _plan_steps(replace(request, options=plain), model, runner.paths)):
        runner.tell("rebuilding warehouse and report")
        outcome.runs["publish"] = _publish(runner, include_text=texts_are_quoted())


def audit_model(request: AuditRequest, model: TokenizedModel, runner: Runner, outcome: AuditOutcome) -> None:
    """Run the model and its detectors on those of the request's benchmarks that are not done, all of them built.

    A pair that meets a fault does not stop the others: ``outcome`` has the error then. Tokens are counted before, where
    they are to be; if they cannot be counted, one detector is left out.
    """
    try:
        outcome.runs |= ensure_frequencies(model, runner)
    except AuditError as error:
        runner.tell(f"dc_pdd is not computed, there are no token frequencies: {error}")
        outcome.not_counted = error
    steps = plan_pair_steps(request, model, runner.paths)
    if not steps:
        return
    options = request.options
    config: dict[str, object] = {kind: kind in options.kinds for kind in OPTIONAL_KINDS}
    if options.logits_budget_gb is not None:
        config["logits_budget_gb"] = options.logits_budget_gb
    benchmarks = dict.fromkeys(step.pair.benchmark for step in steps)
    runner.tell(f"auditing {request.model.name} on {', '.join(benchmarks)}")
    try:
        outcome.runs |= run_pairs(steps, runner, resources=request.resources, config=config)
    except PairsFailedError as error:
        # The others are done: their findings are published before the error is raised.
        outcome.failed = error
    for partition in dict.fromkeys(step.what for step in steps if step.kind == "run"):
        _note_pass(runner.instance, partition, outcome)


def _plan_request(request: AuditRequest) -> PlanRequest:
    """The request as the planner takes it."""
    options = request.options
    return PlanRequest(
        pairs=tuple(Pair(spec.name, request.model.name) for spec in request.benchmarks),
        refresh=options.refresh,
        again=options.again,
        more_statistics=tuple(kind for kind in options.kinds if kind != "base"),
        publish=options.publish,
    )


def _inspect_situation(request: AuditRequest, model: TokenizedModel | None, paths: DataPaths) -> Situation:
    models = {} if model is None else {request.model.name: model}
    situation = read_situation(
        _plan_request(request), paths, specs=request.benchmarks, entries=[request.model], models=models
    )
    return assume_benchmarks_current(situation) if request.as_built else situation


def _plan_steps(request: AuditRequest, model: TokenizedModel, paths: DataPaths) -> Sequence[PlannedStep]:
    """What is to be done now."""
    return plan(_inspect_situation(request, model, paths), _plan_request(request))


def plan_pair_steps(request: AuditRequest, model: TokenizedModel, paths: DataPaths) -> Sequence[PlannedStep]:
    """What is to be done now of the pairs themselves."""
    return [step for step in _plan_steps(request, model, paths) if step.kind in OF_PAIRS]


def find_done(request: AuditRequest, model: TokenizedModel, paths: DataPaths) -> list[Pair]:
    """The pairs of the request that are done now."""
    situation = _inspect_situation(request, model, paths)
    return [pair for pair in situation.audits if state_of(pair, situation).status == "done"]


def _require_same_control(entry: ModelEntry, benchmarks: Sequence[BenchmarkSpec]) -> None:
    """Raise NotApplicableError, before anything is trained, where only one of model and benchmark is of a control."""
    of_model = entry.control.name if entry.control is not None else None
    for spec in benchmarks:
        if spec.control != of_model:
            raise NotApplicableError(
                f"{entry.name} and {spec.name} do not belong together: a control's texts are asked of its own models, "
                "and those of nothing else (corpus-audit control)"
            )


def run_study_job(
    study_name: str, definitions: dg.Definitions, paths: DataPaths, on_step: Callable[[str], None]
) -> str:
    """Run a study of a control, then warehouse and report; returns the run's id."""
    with hold_audit_lock(paths), in_process.open_instance(paths) as instance:
        in_process.mark_dead_runs_failed(instance)
        runner = Runner(definitions.resolve_job_def, instance, paths, on_step)
        control = load_controls().named(load_studies().named(study_name).control)
        run_steps_of_kinds(PlanRequest(sources=control.sources), ("fetch",), runner)
        run = runner.run("run_studies", "corpus-audit study", partition_key=study_name)
        on_step("rebuilding warehouse and report")
        _publish(runner, include_text=texts_are_quoted())
        return run


def prepare(
    benchmarks: Sequence[BenchmarkSpec], definitions: dg.Definitions, paths: DataPaths, on_step: Callable[[str], None]
) -> None:
    """Fetch sources and build ``benchmarks`` where that is needed; no model is run."""
    benchmarks = _resolve_relative_cutoffs(benchmarks, paths, on_step)
    with hold_audit_lock(paths), in_process.open_instance(paths) as instance:
        runner = Runner(definitions.resolve_job_def, instance, paths, on_step)
        in_process.mark_dead_runs_failed(instance)
        _prepare_benchmarks(benchmarks, runner)


def extract(
    request: AuditRequest,
    search_options: SearchOptions,
    definitions: dg.Definitions,
    paths: DataPaths,
    on_step: Callable[[str], None],
) -> None:
    """Search the documents of the request's benchmark by ``search_options``, then publish where the request says so.

    Raises the AuditError that stopped it; finished windows stay, and the next call goes on from there.
    """
    [spec] = request.benchmarks
    entry, options = request.model, request.options
    _require_same_control(entry, request.benchmarks)
    limits = options.limits.require_usable_for(entry)
    endpoints = Endpoints(limits)
    model = endpoints.load(entry, paths, on_step)
    if (problem := explain_window_too_long(model, search_options.lengths)) is not None:
        raise DataError(problem)
    load_reference_model(model, paths)
    with hold_audit_lock(paths), in_process.open_instance(paths) as instance:
        runner = Runner(definitions.resolve_job_def, instance, paths, on_step, options.device)
        in_process.mark_dead_runs_failed(instance)
        partitions.register(instance, models=[entry.name])
        _prepare_benchmarks(_resolve_relative_cutoffs(request.benchmarks, paths, on_step), runner)
        on_step(f"searching the documents of {spec.name} with {entry.name}")
        left = compute_remaining_limits(limits, instance, runner.tags, endpoints)
        settings = {
            "prefix": search_options.lengths.prefix,
            "suffix": search_options.lengths.suffix,
            "stride": search_options.stride,
            "grid": search_options.grid,
        }
        runner.run(
            "extract",
            "corpus-audit extract",
            partition_key=Pair(spec.name, entry.name).partition,
            resources={**request.resources, "models": {**request.resources["models"], **left}},
            ops={"extraction": {"every_pair": True, **settings}},
        )
        if options.publish:
            on_step("rebuilding warehouse and report")
            _publish(runner, include_text=texts_are_quoted())


def publish(
    definitions: dg.Definitions,
    paths: DataPaths,
    on_step: Callable[[str], None],
    *,
    include_text: bool = True,
) -> str:
    """Build warehouse and report, with or without excerpts of the audited texts; returns the run's id."""
    with in_process.open_instance(paths) as instance:
        in_process.mark_dead_runs_failed(instance)
        runner = Runner(definitions.resolve_job_def, instance, paths, on_step)
        return _publish(runner, include_text=include_text)


def _publish(runner: Runner, *, include_text: bool) -> str:
    quoting = {"include_text": include_text}
    ops = {"warehouse": quoting, "contamination_report": quoting}
    return runner.run("publish", "findings or report are out of date", ops=ops)


def _resolve_relative_cutoffs(
    benchmarks: Sequence[BenchmarkSpec], paths: DataPaths, on_step: Callable[[str], None], *, refresh: bool = False
) -> Sequence[BenchmarkSpec]:
    """The benchmarks with relative cutoffs counted from the kept day, which a ``refresh`` moves on to today."""
    if not any(spec.is_relative for spec in benchmarks):
        return benchmarks
    if not refresh:
        ensure_rolled_day(paths)
    elif roll_day(paths, utc_today()):
        on_step(f"relative cutoffs are counted from {utc_today()} on")
    settled = load_benchmarks()
    return [settled[spec.name] for spec in benchmarks]


def _prepare_benchmarks(
    benchmarks: Sequence[BenchmarkSpec], runner: Runner, *, refresh: bool = False, leave_out: bool = False
) -> tuple[dict[str, str], dict[str, str]]:
    """Fetch, train, build, assess and search corpora where that is needed.

    Returns the runs by what they made, and the reasons of the benchmarks that are left out. Raises the AuditError that
    keeps a benchmark from being built, unless ``leave_out``.
    """
    partitions.register(runner.instance, benchmarks=[spec.name for spec in benchmarks])
    runs: dict[str, str] = {}
    left_out: dict[str, str] = {}
    # One kind after the other, each planned after the one before: what came out as it was changes nothing.
    for kind in ("fetch", "train", "build", "assess", "search"):
        specs = [spec for spec in benchmarks if spec.name not in left_out]
        request = PlanRequest(benchmarks=tuple(spec.name for spec in specs), refresh=refresh and kind == "fetch")
        situation = read_situation(request, runner.paths, specs=specs, ask_hub=refresh and kind == "build")
        unbuildable = find_benchmark_problems(situation, request.benchmarks)
        if kind == "search":
            tell_unsearched_corpora(situation, runner.tell)
        if unbuildable and not leave_out:
            raise DataError(next(iter(unbuildable.values())))
        _leave_out(unbuildable, left_out, runner)
        buildable = [spec for spec in specs if spec.name not in unbuildable]
        failed: dict[str, AuditError] = {}
        for step in plan(situation, replace(request, benchmarks=tuple(spec.name for spec in buildable))):
            if step.kind == kind:
                try:
                    runs[product_name(step)] = _run_preparation_step(step, buildable, runner)
                except AuditError as error:
                    failed[product_name(step)] = error
                    if not leave_out:
                        raise
        faults = {spec.name: fault for spec in buildable if (fault := _find_failed_dependency(spec, failed))}
        _leave_out(faults, left_out, runner)
    return runs, left_out


def tell_unsearched_corpora(situation: Situation, tell: Callable[[str], None]) -> None:
    """Say which corpora of benchmarks' entries cannot be searched, and why."""
    for name, benchmark in situation.benchmarks.items():
        for overlap in benchmark.overlaps:
            if overlap.problem is not None:
                tell(f"{overlap.corpus} is not searched for the texts of {name}: {overlap.problem}")


def _leave_out(reasons: Mapping[str, str], left_out: dict[str, str], runner: Runner) -> None:
    for name, reason in reasons.items():
        runner.tell(f"{name} is left out: {reason}")
        left_out[name] = reason


def _find_failed_dependency(spec: BenchmarkSpec, errors: Mapping[str, AuditError]) -> str | None:
    made_of = [f"documents/{source}" for source in spec.sources]
    made_of += [f"controls/{spec.control}", f"examples/{spec.name}", f"split_quality/{spec.name}"]
    return next((str(errors[name]) for name in made_of if name in errors), None)


def _run_preparation_step(step: PlannedStep, specs: Sequence[BenchmarkSpec], runner: Runner) -> str:
    """Carry the step out, and tell what was left out of it; returns the run's id."""
    try:
        run = run_step(step, runner)
    except dg.DagsterError:
        # A blocking check that fails ends the run, which has built the benchmark, with an error that only names it.
        request = PlanRequest(benchmarks=(step.what,))
        built = [spec for spec in specs if step.kind == "build" and spec.name == step.what]
        if built and not any(
            planned.kind == "build" for planned in plan(read_situation(request, runner.paths, specs=built), request)
        ):
            read_built(runner.paths, step.what).require_passed_checks()
        raise
    if step.kind == "fetch":
        _report_missing_parts(step.what, runner.paths, runner.tell)
    if step.kind == "build":
        _report_skipped_rows(step.what, runner.paths, runner.tell)
    return run


def _report_missing_parts(name: str, paths: DataPaths, on_step: Callable[[str], None]) -> None:
    manifest = read_json(paths.source_manifest(name))
    for item in manifest["missing"]:
        on_step(f"missing from {name}: {item['part']}: {item['reason']}")
    if left_out := manifest["left_out"]:
        on_step(f"left out of {name}: {len(left_out)}, the first {left_out[0]['part']}: {left_out[0]['reason']}")


def _report_skipped_rows(benchmark: str, paths: DataPaths, on_step: Callable[[str], None]) -> None:
    skipped = read_built(paths, benchmark).manifest["skipped"]
    if skipped["rows"]:
        first = skipped["first"][0]
        on_step(f"skipped in {benchmark}: {skipped['rows']} row(s), the first {first['row']}: {first['reason']}")


def _note_pass(instance: dg.DagsterInstance, partition: str, outcome: AuditOutcome) -> None:
    """What the pair's latest materialisation says of its pass."""
    wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey("token_statistics"), asset_partitions=[partition])
    records = instance.fetch_materializations(wanted, limit=1).records
    if not records or records[0].asset_materialization is None:
        outcome.not_run[partition] = "its run failed before the model was run"
        return
    said = {name: str(entry.value) for name, entry in records[0].asset_materialization.metadata.items()}
    if "texts_computed" in said:
        outcome.passes[partition] = PassCounts(int(said["texts_from_cache"]), int(said["texts_computed"]))
    else:
        outcome.not_run[partition] = said.get("reason", "no reason was given")


def plan_dry_run(request: AuditRequest, model: TokenizedModel | None, paths: DataPaths) -> DryRun:
    """What an audit would do, without doing any of it; ``model`` is None where it has not been trained yet.

    Raises DataError where model and benchmark do not belong together, and where a benchmark cannot be built, but for a
    request that leaves such out.
    """
    _require_same_control(request.model, request.benchmarks)
    if model is not None:
        require_kinds(model, request.options.kinds)
    situation = _inspect_situation(request, model, paths)
    cannot = find_benchmark_problems(situation, situation.benchmarks)
    if cannot and not request.leave_out:
        raise DataError(next(iter(cannot.values())))
    steps = plan(situation, _plan_request(request))
    to_build = {step.what for step in steps if step.kind == "build"}
    reasons = {step.pair.benchmark: step.because for step in steps if step.kind in OF_PAIRS}
    plans = {}
    for spec in request.benchmarks:
        if model is not None and spec.name not in cannot and spec.name not in to_build:
            built = read_built(paths, spec.name)
            built.require_passed_checks()
            session = build_audit_session(built, model, paths)
            plans[spec.name] = (session.plan(built.texts, request.options.kinds), reasons.get(spec.name, ""))
    first = [step for step in steps if step.kind in ("fetch", "train", "build", "search", "count")]
    not_built = [spec.name for spec in request.benchmarks if spec.name not in plans and spec.name not in cannot]
    return DryRun(plans, first, not_built, cannot)
