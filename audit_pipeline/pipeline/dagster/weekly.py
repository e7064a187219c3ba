"""The weekly audit: cutoffs move on, sources are fetched again, what has changed is made and audited."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

import dagster as dg

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.config import BenchmarkSpec, exclude_on_request, find_moved_cutoffs, load_benchmarks
from audit_pipeline.benchmarks.days_before_today import roll_day, utc_today
from audit_pipeline.errors import AuditError, ConfigError, DataError
from audit_pipeline.models.config import ModelEntry, exclude_control_models
from audit_pipeline.pipeline.audit_requests import AuditOutcome, AuditRequest
from audit_pipeline.pipeline.dagster import partitions
from audit_pipeline.pipeline.dagster.audit import UpdateOutcome, audit_models, update
from audit_pipeline.pipeline.dagster.instance import mark_dead_runs_failed
from audit_pipeline.pipeline.dagster.locks import hold_audit_lock
from audit_pipeline.pipeline.dagster.resources import AuditData
from audit_pipeline.pipeline.dagster.runs import Jobs, Runner
from audit_pipeline.pipeline.dagster.tags import SUMMARY_TAG, WEEKLY_TAG
from audit_pipeline.pipeline.plan import Planner
from audit_pipeline.pipeline.registry import OF_BENCHMARKS, OF_MODELS, STAGES, get_stage
from audit_pipeline.pipeline.stage import (
    AUDIT_PAIRS,
    BUILD_BENCHMARKS,
    FETCHED_AGAIN,
    REFRESH_SOURCES,
    SOURCE,
    Product,
    Stage,
    StageJob,
)
from audit_pipeline.pipeline.whole_configuration import OF_AUDITS, load_configuration
from audit_pipeline.pipeline.workspace_state import Scope, WorkspaceState
from audit_pipeline.scoring.used_endpoints import Endpoints
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import read_documents_version

Log = Callable[[str], None]
_OTHERS = tuple(stage for stage in STAGES if stage not in (*OF_BENCHMARKS, *OF_MODELS))


@dataclass
class WeeklySummary:
    """The outcome of a weekly audit: cutoffs that moved, what was made by job, and what went wrong, each in words.

    ``notify`` is called with every problem.
    """

    notify: Log
    rolled: list[str] = field(default_factory=list)
    changed_sources: list[str] = field(default_factory=list)
    made: dict[StageJob, list[str]] = field(default_factory=lambda: {BUILD_BENCHMARKS: [], AUDIT_PAIRS: []})
    problems: list[str] = field(default_factory=list)

    def note_problem(self, problem: str) -> None:
        """Take in what went wrong."""
        self.problems.append(problem)
        self.notify(problem)

    def note(self, brought: UpdateOutcome, stages: Sequence[Stage] = ()) -> None:
        """Take in what was made, and what could not be made of ``stages``, each reason once: what is made of it has the
        same."""
        for product in brought.runs:
            stage, _, partition = product.partition("/")
            made = self.made.setdefault(get_stage(stage).job, [])
            if partition not in made:
                made.append(partition)
        noted: set[str] = set()
        for of in stages:
            for partition, reason in brought.list_failure_reasons(of.name).items():
                is_broken_entry = of.dimensions == SOURCE and Product(of.name, partition) in brought.problems
                if reason not in noted and not is_broken_entry:
                    self.note_problem(f"{of.name} of {partition} could not be made: {reason}")
                    noted.add(reason)

    @property
    def summary(self) -> str:
        """One line for people."""
        made = {job: partitions for job, partitions in self.made.items() if job != REFRESH_SOURCES}
        if self.changed_sources or any(made.values()):
            what = "; ".join(
                [
                    f"sources changed: {', '.join(self.changed_sources) or 'none'}",
                    *(
                        f"{job.done}: {len(names) if job == AUDIT_PAIRS else ', '.join(names) or 'none'}"
                        for job, names in made.items()
                    ),
                ]
            )
        else:
            what = (
                f"nothing new: {len(self.made.get(REFRESH_SOURCES, ()))} source(s) brought what they had brought before"
            )
        return f"{what}; problems: {len(self.problems)}" if self.problems else what


def run_weekly_audit(
    jobs: Jobs, instance: dg.DagsterInstance, paths: DataPaths, today: date, notify: Log, tags: Mapping[str, str]
) -> WeeklySummary:
    """Move relative cutoffs on to ``today``, fetch, make what changed, audit what is not done, and publish.

    Each step is a run of its own, with ``tags``. A source, benchmark or model that fails is among the problems, and
    the rest goes on with what there is; so is an entry of the configuration that cannot be used. Raises ConfigError
    where a file of it cannot be read, and DataError where the day that relative cutoffs count from cannot be.
    """
    week = WeeklySummary(notify)
    runner = Runner(jobs, instance, paths, notify, tags=tags, survives=Exception)
    mark_dead_runs_failed(instance, paths)
    _roll_cutoffs(paths, today, week)
    config = load_configuration()
    for name in OF_AUDITS:
        for problem in config.problems_of(name):
            week.note_problem(str(problem))
    specs = dict(exclude_on_request(config.benchmarks))
    models = exclude_control_models(config.models)
    partitions.register(instance, benchmarks=list(specs), models=list(models))
    scope = Scope(tuple(specs), again=FETCHED_AGAIN)

    def read_planner() -> Planner:
        return Planner(WorkspaceState(paths, specs, ask_hub=True), STAGES)

    before = {source: _read_documents_version(source, paths) for spec in specs.values() for source in spec.sources}
    brought = update(scope, OF_BENCHMARKS, read_planner, runner)
    week.changed_sources = [name for name, version in before.items() if _read_documents_version(name, paths) != version]
    week.note(brought, OF_BENCHMARKS)
    fit = _select_fit_benchmarks(specs, brought, week, paths)
    for entry in models.values():
        _audit_model(entry, fit, runner, week)
    try:
        week.note(update(replace(scope, again={}), _OTHERS, read_planner, runner), _OTHERS)
    except AuditError as error:
        week.note_problem(str(error))
    # Also where nothing is new: the report says what could not be audited, and when the audit was.
    runner.run("publish", "the weekly audit")
    notify(week.summary)
    return week


def _roll_cutoffs(paths: DataPaths, today: date, week: WeeklySummary) -> None:
    before = load_benchmarks()
    if not any(spec.has_relative_cutoff for spec in before.values()):
        return
    try:
        if roll_day(paths, today):
            moved = find_moved_cutoffs(before, load_benchmarks())
            week.rolled = [words for of_family in moved.values() for words in of_family]
            week.notify(f"relative cutoffs are counted from {today} on: {', '.join(week.rolled) or 'none moved'}")
    except DataError as error:
        week.note_problem(str(error))


def _read_documents_version(source: str, paths: DataPaths) -> str | None:
    try:
        return read_documents_version(paths, source)
    except DataError:
        return None


def _audit_model(entry: ModelEntry, specs: Sequence[BenchmarkSpec], runner: Runner, week: WeeklySummary) -> None:
    outcome = AuditOutcome([entry], specs)
    try:
        model = Endpoints().probe_and_load(entry, runner.paths, runner.notify)
        audit_models(AuditRequest([entry], specs, terminal=False), [model], runner, outcome)
    except runner.survives as error:
        week.note_problem(f"{entry.name}: {error}")
    week.note(UpdateOutcome(outcome.runs))
    # An entry that names no usable corpus is no problem of the week: as without a reference model, the scores say it.
    for product, reason in outcome.not_made.items():
        if not isinstance(reason, ConfigError):
            week.note_problem(f"{product} could not be made: {reason}")
    if outcome.failed is not None:
        week.note_problem(f"{entry.name}: {outcome.failed}")


def _select_fit_benchmarks(
    specs: Mapping[str, BenchmarkSpec], brought: UpdateOutcome, week: WeeklySummary, paths: DataPaths
) -> list[BenchmarkSpec]:
    """Those that are built and passed their checks, up to date or not."""
    noted = brought.list_failure_reasons(*(stage.name for stage in OF_BENCHMARKS))
    fit = []
    for name, spec in specs.items():
        try:
            read_built(paths, name).require_passed_checks()
        except AuditError as error:
            if name not in noted:
                week.note_problem(f"{name}: {error}")
        else:
            fit.append(spec)
    return fit


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
        with hold_audit_lock(data.paths):
            week = run_weekly_audit(jobs, context.instance, data.paths, utc_today(), context.log.info, tags)
        context.log.info(week.summary)
        context.add_output_metadata(
            {
                "summary": week.summary,
                "cutoffs moved": week.rolled,
                "sources changed": week.changed_sources,
                **{job.done: made for job, made in week.made.items()},
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
