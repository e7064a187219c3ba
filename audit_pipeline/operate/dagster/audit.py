"""The command `corpus-audit audit`: bring one model on some benchmarks up to date, through Dagster, in this process.

What belongs here: in which order the planner's steps are carried out, what each came to, what it would cost. What does
not: which steps there are (operate/plan.py), the work itself (operate/stages/), presentation (cli/).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import dagster as dg

from audit_pipeline.benchmarks.built import read_built
from audit_pipeline.benchmarks.config import BenchmarkSpec, load_benchmarks
from audit_pipeline.benchmarks.relative_days import keep_day, roll, utc_today
from audit_pipeline.catalogue.contracts import Kind, Pair
from audit_pipeline.catalogue.files import read_json
from audit_pipeline.catalogue.paths import DataPaths, texts_are_quoted
from audit_pipeline.cluster.engine import Engine
from audit_pipeline.controls.config import load_controls, load_studies
from audit_pipeline.endpoints.budget import Limits
from audit_pipeline.endpoints.in_use import Endpoints
from audit_pipeline.errors import AuditError, DataError, PairsFailedError
from audit_pipeline.extraction.search import SearchOptions
from audit_pipeline.extraction.windows import explain_window_too_long
from audit_pipeline.models.config import ModelEntry, load_models, resolve_model
from audit_pipeline.models.load import TokenizedModel, reference_of
from audit_pipeline.operate.dagster import in_process, partitions, work_claims
from audit_pipeline.operate.dagster.step_runs import Runner, carry_out, ensure, ensure_frequencies, product, run_pairs
from audit_pipeline.operate.dagster.tags import compute_remaining_limits, tags_of_command
from audit_pipeline.operate.facts import OF_PAIRS, PlannedStep, PlanRequest, Situation
from audit_pipeline.operate.plan import plan, problems
from audit_pipeline.operate.situation import look
from audit_pipeline.scoring.session import audit_session
from audit_pipeline.token_statistics.cached_texts import Plan, require_kinds


@dataclass(frozen=True)
class AuditRequest:
    """What the user asked for. ``again``: pairs that are done are audited again; ``leave_out``: a benchmark that cannot
    be built is left out, and the others go on; ``publish``: warehouse and report follow (False where another audit
    comes right behind it)."""

    model: str
    benchmarks: Sequence[BenchmarkSpec]
    refresh: bool = False
    again: bool = False
    device: str | None = None
    limits: Limits = field(default_factory=Limits)
    engine: Engine | None = None
    kinds: Sequence[Kind] = ("base",)
    logits_budget_gb: float | None = None
    terminal: bool = False
    leave_out: bool = False
    publish: bool = True

    @property
    def asked(self) -> PlanRequest:
        """The same in the planner's words."""
        return PlanRequest(
            pairs=tuple(Pair(spec.name, self.model) for spec in self.benchmarks),
            refresh=self.refresh,
            again=self.again,
            more_statistics=tuple(kind for kind in self.kinds if kind != "base"),
            publish=self.publish,
        )

    @property
    def resources(self) -> Mapping[str, Mapping[str, object]]:
        """The resources of a run that runs the model; without an engine, the environment says which."""
        engine = self.engine.run_config if self.engine is not None else {}
        return {
            "models": {"device": self.device, **engine},
            "progress": {"terminal": self.terminal},
        }


@dataclass(frozen=True)
class DryRun:
    """What an audit would run. ``plans``: by benchmark, what the model would be run on, and why; the reason is empty
    for what is done. ``first``: what is fetched, trained, built and counted before that. ``not_built``: the benchmarks
    whose texts are known only then. ``cannot``: those that cannot be built, and why."""

    plans: Mapping[str, tuple[Plan, str]]
    first: Sequence[PlannedStep]
    not_built: Sequence[str]
    cannot: Mapping[str, str]


@dataclass(frozen=True)
class PassCounts:
    """How many texts of a pair were in the cache, and how many the model was run on."""

    from_cache: int
    computed: int


@dataclass
class AuditOutcome:
    """Which runs were needed, by what they were for; the dead runs found; what each pair's pass came to, or why there
    was none; the error where some pairs met a fault and the others are done; the benchmarks left out, and why."""

    runs: dict[str, str] = field(default_factory=dict)
    passes: dict[str, PassCounts] = field(default_factory=dict)
    not_applicable: dict[str, str] = field(default_factory=dict)
    failed: PairsFailedError | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    dead_runs: list[str] = field(default_factory=list)


def audit(
    request: AuditRequest,
    definitions: dg.Definitions,
    paths: DataPaths,
    on_step: Callable[[str], None],
) -> AuditOutcome:
    """Carry out what the planner says is missing: upstream, then the pairs, then warehouse and report.

    Raises the AuditError that stopped it; what ran before it stays, and the next call goes on from there.
    """
    entry = resolve_model(request.model, load_models())
    _require_same_control(entry, request.benchmarks)
    names, limits = [spec.name for spec in request.benchmarks], request.limits.for_model(entry)
    tags = tags_of_command(entry)
    with (
        work_claims.audit_of(paths, models=_models(entry), benchmarks=names),
        in_process.open_instance(paths) as instance,
    ):
        runner = Runner(definitions.resolve_job_def, instance, paths, on_step, request.device, tags, limits)
        outcome = AuditOutcome(dead_runs=in_process.mark_dead_runs_failed(instance))
        _audit(entry, request, runner, outcome)
        return outcome


def _models(entry: ModelEntry) -> list[str]:
    """The model and, where its entry names one, its reference model: both are run."""
    return [entry.name, *([entry.reference_model] if entry.reference_model is not None else [])]


def _audit(entry: ModelEntry, request: AuditRequest, runner: Runner, outcome: AuditOutcome) -> None:
    if entry.control is not None:
        outcome.runs |= ensure(PlanRequest(controls=(entry.control.name,)), ("fetch", "train"), runner)
    # First of all else, so that a model that cannot be had costs no download and leaves no partition behind.
    endpoints = Endpoints(runner.limits)
    model = endpoints.load(entry, runner.paths, runner.tell)
    runner = replace(runner, asked=endpoints)
    require_kinds(model, request.kinds)
    request = _with_settled_day(request, runner.paths, runner.tell)
    partitions.register(runner.instance, models=[request.model])
    request = _prepare(request, runner, outcome)
    try:
        outcome.runs |= ensure_frequencies(model, runner)
    except AuditError as error:
        # One detector goes without.
        runner.tell(f"dc_pdd is not computed, there are no token frequencies: {error}")
    # What was to be fetched again is there by now.
    request = replace(request, refresh=False)
    steps = [step for step in _steps(request, model, runner.paths) if step.kind in OF_PAIRS]
    try:
        _run_pairs(request, steps, runner, outcome)
    except PairsFailedError as error:
        # The others are done: what they came to is published, and then the error told.
        outcome.failed = error
    for partition in dict.fromkeys(step.what for step in steps if step.kind == "run"):
        _note_pass(runner.instance, partition, outcome)
    if any(
        step.kind == "publish" for step in _steps(replace(request, again=False, kinds=("base",)), model, runner.paths)
    ):
        runner.tell("rebuilding warehouse and report")
        outcome.runs["publish"] = _publish(runner, include_text=texts_are_quoted())


def _inspect_situation(
    request: AuditRequest, entry: ModelEntry, model: TokenizedModel | None, paths: DataPaths
) -> Situation:
    models = {} if model is None else {request.model: model}
    return look(request.asked, paths, specs=request.benchmarks, entries=[entry], models=models)


def _steps(request: AuditRequest, model: TokenizedModel, paths: DataPaths) -> Sequence[PlannedStep]:
    """What is to be done now."""
    return plan(_inspect_situation(request, model.entry, model, paths), request.asked)


def _require_same_control(entry: ModelEntry, benchmarks: Sequence[BenchmarkSpec]) -> None:
    """Raise DataError, before anything is trained, where one of model and benchmark is of a control, the other not."""
    of_model = entry.control.name if entry.control is not None else None
    for spec in benchmarks:
        if spec.control != of_model:
            raise DataError(
                f"{entry.name} and {spec.name} do not belong together: a control's texts are asked of its own models, "
                "and those of nothing else (corpus-audit control)"
            )


def study(study_name: str, definitions: dg.Definitions, paths: DataPaths, on_step: Callable[[str], None]) -> str:
    """Run a study of a control, then warehouse and report; returns the run's id."""
    with in_process.open_instance(paths) as instance:
        in_process.mark_dead_runs_failed(instance)
        runner = Runner(definitions.resolve_job_def, instance, paths, on_step)
        control = load_controls().named(load_studies().named(study_name).control)
        ensure(PlanRequest(sources=control.sources), ("fetch",), runner)
        run = runner.run("run_studies", "corpus-audit study", partition_key=study_name)
        on_step("rebuilding warehouse and report")
        _publish(runner, include_text=texts_are_quoted())
        return run


def prepare(
    request: AuditRequest, definitions: dg.Definitions, paths: DataPaths, on_step: Callable[[str], None]
) -> AuditOutcome:
    """Fetch sources and build benchmarks where that is needed; no model is run."""
    request = _with_settled_day(request, paths, on_step)
    names = [spec.name for spec in request.benchmarks]
    with work_claims.audit_of(paths, benchmarks=names), in_process.open_instance(paths) as instance:
        runner = Runner(definitions.resolve_job_def, instance, paths, on_step, request.device)
        outcome = AuditOutcome(dead_runs=in_process.mark_dead_runs_failed(instance))
        _prepare(request, runner, outcome)
    return outcome


def extract(
    request: AuditRequest,
    asked: SearchOptions,
    definitions: dg.Definitions,
    paths: DataPaths,
    on_step: Callable[[str], None],
) -> None:
    """Search the documents of the request's one benchmark as ``asked``, then publish where the request says so.

    Raises the AuditError that stopped it; finished windows stay, and the next call goes on from there.
    """
    [spec] = request.benchmarks
    entry = resolve_model(request.model, load_models())
    _require_same_control(entry, request.benchmarks)
    limits = request.limits.for_model(entry)
    endpoints = Endpoints(limits)
    model = endpoints.load(entry, paths, on_step)
    if (problem := explain_window_too_long(model, asked.lengths)) is not None:
        raise DataError(problem)
    reference_of(model, paths)
    with (
        work_claims.audit_of(paths, models=_models(entry), benchmarks=[spec.name]),
        in_process.open_instance(paths) as instance,
    ):
        runner = Runner(definitions.resolve_job_def, instance, paths, on_step, request.device)
        outcome = AuditOutcome(dead_runs=in_process.mark_dead_runs_failed(instance))
        partitions.register(instance, models=[request.model])
        _prepare(_with_settled_day(request, paths, on_step), runner, outcome)
        on_step(f"searching the documents of {spec.name} with {request.model}")
        left = compute_remaining_limits(limits, instance, runner.tags, endpoints)
        settings = {"prefix": asked.lengths.prefix, "suffix": asked.lengths.suffix, "stride": asked.stride}
        runner.run(
            "extract",
            "corpus-audit extract",
            partition_key=Pair(spec.name, request.model).partition,
            resources={**request.resources, "models": {**request.resources["models"], **left}},
            ops={"extraction": {"every_pair": True, **settings}},
        )
        if request.publish:
            on_step("rebuilding warehouse and report")
            _publish(runner, include_text=texts_are_quoted())


def publish(
    definitions: dg.Definitions,
    paths: DataPaths,
    on_step: Callable[[str], None],
    *,
    include_text: bool = True,
    everything: bool = False,
) -> str:
    """Bring warehouse and report up to date, with or without excerpts of the audited texts; returns the run's id.

    With ``everything`` every file is loaded again: nothing of the earlier warehouse is carried over.
    """
    with in_process.open_instance(paths) as instance:
        in_process.mark_dead_runs_failed(instance)
        runner = Runner(definitions.resolve_job_def, instance, paths, on_step)
        return _publish(runner, include_text=include_text, everything=everything)


def _publish(runner: Runner, *, include_text: bool, everything: bool = False) -> str:
    quoting = {"include_text": include_text}
    ops = {"warehouse": {**quoting, "everything": everything}, "contamination_report": quoting}
    return runner.run("publish", "findings or report are out of date", ops=ops)


def _with_settled_day(request: AuditRequest, paths: DataPaths, on_step: Callable[[str], None]) -> AuditRequest:
    """The request with relative cutoffs counted from the kept day, which is moved on where a refresh is asked."""
    if not any(spec.is_relative for spec in request.benchmarks):
        return request
    if not request.refresh:
        keep_day(paths)
    elif roll(paths, utc_today()):
        on_step(f"relative cutoffs are counted from {utc_today()} on")
    settled = load_benchmarks()
    return replace(request, benchmarks=[settled[spec.name] for spec in request.benchmarks])


def _prepare(request: AuditRequest, runner: Runner, outcome: AuditOutcome) -> AuditRequest:
    """Fetch, train, build and assess where that is needed; the request without the benchmarks that could not be."""
    partitions.register(runner.instance, benchmarks=[spec.name for spec in request.benchmarks])
    left = list(request.benchmarks)
    # One kind after the other, each seen in the light of the one before: what came out as it was changes nothing.
    for kind in ("fetch", "train", "build", "assess"):
        asked = PlanRequest(benchmarks=tuple(spec.name for spec in left), refresh=request.refresh and kind == "fetch")
        there = look(asked, runner.paths, specs=left, ask_hub=request.refresh and kind == "build")
        cannot = problems(there, asked.benchmarks)
        left = [spec for spec in left if _can_prepare_benchmark(spec, cannot.get(spec.name), request, runner, outcome)]
        failed: dict[str, AuditError] = {}
        for step in plan(there, replace(asked, benchmarks=tuple(spec.name for spec in left))):
            if step.kind == kind:
                try:
                    _carry_out_preparation(step, left, runner, outcome)
                except AuditError as error:
                    failed[product(step)] = error
                    if not request.leave_out:
                        raise
        left = [
            spec
            for spec in left
            if _can_prepare_benchmark(spec, _find_failed_dependency(spec, failed), request, runner, outcome)
        ]
    return replace(request, benchmarks=left)


def _find_failed_dependency(spec: BenchmarkSpec, failed: Mapping[str, AuditError]) -> str | None:
    made_of = [f"documents/{source}" for source in spec.sources]
    made_of += [f"controls/{spec.control}", f"examples/{spec.name}", f"split_quality/{spec.name}"]
    return next((str(failed[one]) for one in made_of if one in failed), None)


def _can_prepare_benchmark(
    spec: BenchmarkSpec, problem: str | None, request: AuditRequest, runner: Runner, outcome: AuditOutcome
) -> bool:
    """Whether nothing keeps the benchmark from being built; what does is told, or raised as a DataError."""
    if problem is None:
        return True
    if not request.leave_out:
        raise DataError(problem)
    runner.tell(f"{spec.name} is left out: {problem}")
    outcome.left_out[spec.name] = problem
    return False


def _carry_out_preparation(
    step: PlannedStep, specs: Sequence[BenchmarkSpec], runner: Runner, outcome: AuditOutcome
) -> None:
    try:
        outcome.runs[product(step)] = carry_out(step, runner)
    except dg.DagsterError:
        # A blocking check that fails ends the run, which has built the benchmark, with an error that only names it.
        asked = PlanRequest(benchmarks=(step.what,))
        built = [spec for spec in specs if step.kind == "build" and spec.name == step.what]
        if built and not any(one.kind == "build" for one in plan(look(asked, runner.paths, specs=built), asked)):
            read_built(runner.paths, step.what).require_fit()
        raise
    if step.kind == "fetch":
        _tell_what_a_source_lacks(step.what, runner.paths, runner.tell)
    if step.kind == "build":
        _tell_skipped_rows(step.what, runner.paths, runner.tell)


def _tell_what_a_source_lacks(name: str, paths: DataPaths, on_step: Callable[[str], None]) -> None:
    manifest = read_json(paths.source_manifest(name))
    for item in manifest["missing"]:
        on_step(f"missing from {name}: {item['part']}: {item['reason']}")
    if left_out := manifest["left_out"]:
        on_step(f"left out of {name}: {len(left_out)}, the first {left_out[0]['part']}: {left_out[0]['reason']}")


def _tell_skipped_rows(benchmark: str, paths: DataPaths, on_step: Callable[[str], None]) -> None:
    skipped = read_built(paths, benchmark).manifest["skipped"]
    if skipped["rows"]:
        first = skipped["first"][0]
        on_step(f"skipped in {benchmark}: {skipped['rows']} row(s), the first {first['row']}: {first['reason']}")


def _run_pairs(request: AuditRequest, steps: Sequence[PlannedStep], runner: Runner, outcome: AuditOutcome) -> None:
    if not steps:
        return
    config: dict[str, object] = {"topk": "topk" in request.kinds, "logits": "logits" in request.kinds}
    if request.logits_budget_gb is not None:
        config["logits_budget_gb"] = request.logits_budget_gb
    benchmarks = dict.fromkeys(step.pair.benchmark for step in steps)
    runner.tell(f"auditing {request.model} on {', '.join(benchmarks)}")
    outcome.runs |= run_pairs(steps, runner, resources=request.resources, config=config)


def _note_pass(instance: dg.DagsterInstance, partition: str, outcome: AuditOutcome) -> None:
    """What the pair's latest materialisation says of its pass."""
    wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey("token_statistics"), asset_partitions=[partition])
    records = instance.fetch_materializations(wanted, limit=1).records
    if not records or records[0].asset_materialization is None:
        outcome.not_applicable[partition] = "its run failed before the model was run"
        return
    said = {name: str(entry.value) for name, entry in records[0].asset_materialization.metadata.items()}
    if "texts_computed" in said:
        outcome.passes[partition] = PassCounts(int(said["texts_from_cache"]), int(said["texts_computed"]))
    else:
        outcome.not_applicable[partition] = said.get("reason", "no reason was given")


def dry_run(request: AuditRequest, entry: ModelEntry, model: TokenizedModel | None, paths: DataPaths) -> DryRun:
    """What an audit would do, without doing any of it; ``model`` is None where it has not been trained yet.

    Raises DataError where model and benchmark do not belong together, and where a benchmark cannot be built, but for a
    request that leaves such out.
    """
    _require_same_control(entry, request.benchmarks)
    if model is not None:
        require_kinds(model, request.kinds)
    there = _inspect_situation(request, entry, model, paths)
    cannot = problems(there, there.benchmarks)
    if cannot and not request.leave_out:
        raise DataError(next(iter(cannot.values())))
    steps = plan(there, request.asked)
    to_build = {step.what for step in steps if step.kind == "build"}
    reasons = {step.pair.benchmark: step.because for step in steps if step.kind in OF_PAIRS}
    plans = {}
    for spec in request.benchmarks:
        if model is not None and spec.name not in cannot and spec.name not in to_build:
            built = read_built(paths, spec.name)
            built.require_fit()
            session = audit_session(built, model, paths)
            plans[spec.name] = (session.plan(built.texts, request.kinds), reasons.get(spec.name, ""))
    first = [step for step in steps if step.kind in ("fetch", "train", "build", "count")]
    not_built = [spec.name for spec in request.benchmarks if spec.name not in plans and spec.name not in cannot]
    return DryRun(plans, first, not_built, cannot)
