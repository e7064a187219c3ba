"""The weekly audit: when it is due, cutoffs move on, sources are fetched again, what has changed is built and audited.

What belongs here: the order in which the planner's steps are carried out, what is reported of them, the job that does
so, and its schedule, which is off until a user turns it on. What does not: which steps there are (operate/plan.py),
and what they run (the jobs that the UI and the command line run as well).
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

import dagster as dg

from audit_pipeline.asking.config import load_chat_models
from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.config import BenchmarkSpec, exclude_on_request, find_moved_cutoffs, load_benchmarks
from audit_pipeline.benchmarks.days_before_today import roll_day, utc_today
from audit_pipeline.catalogue.contracts import Pair
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.store import read_documents_version
from audit_pipeline.endpoints.used_endpoints import Endpoints
from audit_pipeline.errors import AuditError, ConfigError, DataError
from audit_pipeline.models.config import ModelEntry, exclude_control_models
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.operate.audit_request import AuditOutcome, AuditRequest
from audit_pipeline.operate.dagster import in_process, partitions
from audit_pipeline.operate.dagster.audit import audit_model, find_done, plan_pair_steps, tell_unsearched_corpora
from audit_pipeline.operate.dagster.resources import AuditData
from audit_pipeline.operate.dagster.step_runs import Jobs, Runner, run_step
from audit_pipeline.operate.dagster.tags import SUMMARY_TAG, WEEKLY_TAG
from audit_pipeline.operate.facts import PlannedStep, PlanRequest
from audit_pipeline.operate.plan import assume_benchmarks_current, find_benchmark_problems, plan
from audit_pipeline.operate.situation import read_situation
from audit_pipeline.operate.stages.asking import needs_asking
from audit_pipeline.operate.whole_configuration import OF_AUDITS, load_configuration

Log = Callable[[str], None]


@dataclass
class WeeklySummary:
    """The outcome of a weekly audit: what changed, what was audited, and what went wrong, each in words."""

    rolled: list[str] = field(default_factory=list)
    fetched: dict[str, bool] = field(default_factory=dict)
    built: list[str] = field(default_factory=list)
    not_built: list[str] = field(default_factory=list)
    assessed: list[str] = field(default_factory=list)
    audited: dict[str, list[str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def nothing_new(self) -> bool:
        return not (self.built or self.assessed or self.asked or any([*self.audited.values(), *self.fetched.values()]))

    @property
    def summary(self) -> str:
        """One line for people."""
        changed = [name for name, differs in self.fetched.items() if differs]
        pairs = sum(len(benchmarks) for benchmarks in self.audited.values())
        if self.nothing_new:
            what = f"nothing new: {len(self.fetched)} source(s) brought what they had brought before"
        else:
            built = ", ".join(self.built) or "none"
            what = f"sources changed: {', '.join(changed) or 'none'}; benchmarks built: {built}; pairs audited: {pairs}"
            what += f"; splits assessed again: {', '.join(self.assessed)}" if self.assessed else ""
            what += f"; asked in words: {', '.join(self.asked)}" if self.asked else ""
        return f"{what}; problems: {len(self.problems)}" if self.problems else what


def run_week(
    jobs: Jobs, instance: dg.DagsterInstance, paths: DataPaths, today: date, tell: Log, tags: Mapping[str, str]
) -> WeeklySummary:
    """Move relative cutoffs on to ``today``, fetch, build what changed, audit what is not done, and publish.

    Each step is a run of its own, with ``tags``. A source, benchmark or model that fails is among the problems, and
    the rest goes on with what there is; so is an entry of the configuration that cannot be used. Raises ConfigError
    where a file of it cannot be read, and DataError where the day that relative cutoffs count from cannot be.
    """
    week, runner = WeeklySummary(), Runner(jobs, instance, paths, tell, tags=tags)
    in_process.mark_dead_runs_failed(instance)
    _roll_cutoffs(paths, today, week, tell)
    config = load_configuration()
    for name in OF_AUDITS:
        for problem in config.problems_of(name):
            _note(week, tell, str(problem))
    specs = list(exclude_on_request(config.benchmarks).values())
    models = exclude_control_models(config.models)
    partitions.register(instance, benchmarks=[spec.name for spec in specs], models=list(models))
    _fetch(specs, runner, week)
    _build(specs, runner, week)
    fit = _select_fit_benchmarks(specs, paths, week, tell)
    _assess(fit, runner, week)
    _audit(fit, models, runner, week)
    _ask(fit, runner, week)
    # Also where nothing is new: the report says what could not be audited, and when the audit was.
    runner.run("publish", "the weekly audit")
    tell(week.summary)
    return week


def _roll_cutoffs(paths: DataPaths, today: date, week: WeeklySummary, tell: Log) -> None:
    before = load_benchmarks()
    if not any(spec.is_relative for spec in before.values()):
        return
    try:
        if not roll_day(paths, today):
            return
    except DataError as error:
        _note(week, tell, str(error))
        return
    after = load_benchmarks()
    week.rolled = [words for moved in find_moved_cutoffs(before, after).values() for words in moved]
    tell(f"relative cutoffs are counted from {today} on: {', '.join(week.rolled) or 'none moved'}")


def _fetch(specs: Sequence[BenchmarkSpec], runner: Runner, week: WeeklySummary) -> None:
    request = PlanRequest(benchmarks=tuple(spec.name for spec in specs), refresh=True)
    situation = read_situation(request, runner.paths, specs=specs)
    for source in situation.sources.values():
        # A broken section was told with the rest of the configuration.
        if source.wanted is not None and source.problem is not None:
            runner.tell(source.problem)
    for step in plan(situation, request):
        if step.kind != "fetch":
            continue
        before = _read_documents_version(step.what, runner.paths)
        if _try_step(step, f"{step.what} could not be fetched, its earlier documents stay", runner, week):
            week.fetched[step.what] = _read_documents_version(step.what, runner.paths) != before


def _try_step(step: PlannedStep, failure_message: str, runner: Runner, week: WeeklySummary) -> bool:
    """Run a step and return whether it went well; where it did not, log the ``failure_message``."""
    try:
        run_step(step, runner)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the rest goes on
        _note(week, runner.tell, f"{failure_message}: {error}")
        return False
    return True


def _read_documents_version(source: str, paths: DataPaths) -> str | None:
    try:
        return read_documents_version(paths, source)
    except DataError:
        return None


def _build(specs: Sequence[BenchmarkSpec], runner: Runner, week: WeeklySummary) -> None:
    request = PlanRequest(benchmarks=tuple(spec.name for spec in specs))
    situation = read_situation(request, runner.paths, specs=specs, ask_hub=True)
    for name, problem in find_benchmark_problems(situation, request.benchmarks).items():
        week.not_built.append(name)
        _note(week, runner.tell, f"{name}: {problem}")
    steps = plan(situation, request)
    not_fetched = {step.what for step in steps if step.kind == "fetch"}
    for step in steps:
        # What is made of a source that could not be fetched is left as it is.
        if step.kind != "build" or not_fetched & set(situation.benchmarks[step.what].sources):
            continue
        done = _try_step(step, f"{step.what} could not be built", runner, week)
        (week.built if done else week.not_built).append(step.what)


def _assess(specs: Sequence[BenchmarkSpec], runner: Runner, week: WeeklySummary) -> None:
    """Assess the splits of what is built where the build did not (the code that does it changed since, for one), and
    search the corpora that entries name."""
    request = PlanRequest(benchmarks=tuple(spec.name for spec in specs))
    situation = assume_benchmarks_current(read_situation(request, runner.paths, specs=specs))
    tell_unsearched_corpora(situation, lambda problem: _note(week, runner.tell, problem))
    for step in plan(situation, request):
        what = f"the split of {step.what}" if step.kind == "assess" else f"the overlap of {step.what}"
        if _try_step(step, f"{what} could not be assessed", runner, week):
            week.assessed.append(step.what)


def _audit(
    specs: Sequence[BenchmarkSpec], models: Mapping[str, ModelEntry], runner: Runner, week: WeeklySummary
) -> None:
    for name, entry in models.items():
        try:
            _audit_model(Endpoints().load(entry, runner.paths, runner.tell), specs, runner, week)
        except AuditError as error:
            _note(week, runner.tell, f"{name}: {error}")


def _audit_model(model: TokenizedModel, specs: Sequence[BenchmarkSpec], runner: Runner, week: WeeklySummary) -> None:
    request = AuditRequest(model.entry, specs, as_built=True, terminal=False)
    pending = {step.pair for step in plan_pair_steps(request, model, runner.paths)}
    if not pending:
        return
    outcome = AuditOutcome(model.entry, specs)
    try:
        audit_model(request, model, runner, outcome)
    finally:
        done = find_done(request, model, runner.paths)
        week.audited[model.entry.name] = [pair.benchmark for pair in done if pair in pending]
    # An entry that names no usable corpus is no problem of the week: as without a reference model, the scores say it.
    if outcome.not_counted is not None and not isinstance(outcome.not_counted, ConfigError):
        corpus = model.entry.reference_corpus
        _note(week, runner.tell, f"the tokens of {corpus} could not be counted: {outcome.not_counted}")
    if outcome.failed is not None:
        raise outcome.failed


def _ask(specs: Sequence[BenchmarkSpec], runner: Runner, week: WeeklySummary) -> None:
    """Ask the models whose entries in chat_models.yaml name benchmarks, about what is not answered yet."""
    try:
        entries = load_chat_models()
    except AuditError as error:
        _note(week, runner.tell, str(error))
        return
    for entry in entries.values():
        for benchmark in entry.weekly:
            partition = Pair(benchmark, entry.name).partition
            try:
                if benchmark not in {spec.name for spec in specs}:
                    raise ConfigError(f"weekly names {benchmark}, which is no benchmark of the weekly audit")
                if needs_asking(benchmark, entry, runner.paths):
                    runner.tell(f"asking {entry.name} about {benchmark}: {entry.sent_to}")
                    runner.run("ask", "the weekly audit", partition_key=partition)
                    week.asked.append(partition)
            except AuditError as error:
                _note(week, runner.tell, f"{partition}: {error}")


def _select_fit_benchmarks(
    specs: Sequence[BenchmarkSpec], paths: DataPaths, week: WeeklySummary, tell: Log
) -> list[BenchmarkSpec]:
    fit = []
    for spec in specs:
        try:
            read_built(paths, spec.name).require_passed_checks()
        except AuditError as error:
            if spec.name not in week.not_built:
                _note(week, tell, f"{spec.name}: {error}")
        else:
            fit.append(spec)
    return fit


def _note(week: WeeklySummary, tell: Log, problem: str) -> None:
    week.problems.append(problem)
    tell(problem)


WEEKLY_IS_ON = "CORPUS_AUDIT_WEEKLY"
"""The environment variable with which the schedule is on where it was not switched in the UI."""


def build_weekly_schedule(jobs: Jobs) -> dg.ScheduleDefinition:
    """The schedule with its job; ``jobs`` gives those that a weekly audit runs, by their names."""

    @dg.op(
        name="audit_what_is_new",
        description="Moves relative cutoffs on, fetches the sources again, builds the benchmarks that changed, audits "
        "the pairs that are not done, and rebuilds warehouse and report; each step is a run of its own.",
    )
    def audit_week(context: dg.OpExecutionContext, data: AuditData) -> None:
        tags = {WEEKLY_TAG: context.run_id}
        _report_week(context, run_week(jobs, context.instance, data.paths, utc_today(), context.log.info, tags))

    @dg.job(
        name="weekly_audit",
        executor_def=dg.in_process_executor,
        description="Everything that has changed since the last time: cutoffs, documents, benchmarks, models.",
    )
    def weekly_audit_job() -> None:
        audit_week()

    return dg.ScheduleDefinition(
        name="weekly_audit",
        job=weekly_audit_job,
        cron_schedule="0 6 * * 1",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING
        if os.environ.get(WEEKLY_IS_ON)
        else dg.DefaultScheduleStatus.STOPPED,
        description="Mondays at 06:00 UTC: audits what is new, and says so where nothing is.",
    )


def _report_week(context: dg.OpExecutionContext, week: WeeklySummary) -> None:
    """Put the outcome of the week on its run and into its log; raises Failure where a part of it failed."""
    context.log.info(week.summary)
    context.add_output_metadata(
        {
            "summary": week.summary,
            "cutoffs moved": week.rolled,
            "sources changed": [name for name, changed in week.fetched.items() if changed],
            "benchmarks built": week.built,
            "audited": week.audited,
            "asked in words": week.asked,
            "problems": week.problems,
        }
    )
    context.instance.add_run_tags(context.run_id, {SUMMARY_TAG: week.summary[:250]})
    if week.problems:
        raise dg.Failure(
            f"{len(week.problems)} part(s) of the weekly audit failed, the others are done; {week.problems[0]}",
            metadata={"problems": week.problems, "summary": week.summary},
            allow_retries=False,
        )
