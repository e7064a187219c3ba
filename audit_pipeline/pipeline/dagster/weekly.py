"""The weekly audit: it moves relative cutoffs, fetches the sources again, and audits what changed."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

import dagster as dg

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.config import (
    BenchmarkSpec,
    exclude_on_request,
    find_moved_cutoffs,
    load_benchmarks,
    move_reference_day,
    utc_today,
)
from audit_pipeline.errors import AuditError, ConfigError, DataError
from audit_pipeline.models.config import ModelEntry, exclude_control_models
from audit_pipeline.pipeline.audit_requests import AuditOutcome, AuditRequest
from audit_pipeline.pipeline.dagster import partitions
from audit_pipeline.pipeline.dagster.audit import audit_models
from audit_pipeline.pipeline.dagster.instance import mark_dead_runs_failed
from audit_pipeline.pipeline.dagster.locks import mark_audit_running
from audit_pipeline.pipeline.dagster.resources import SUMMARY_TAG, WEEKLY_TAG, AuditData
from audit_pipeline.pipeline.dagster.runs import Jobs, Runner, UpdateOutcome, update
from audit_pipeline.pipeline.plan import Planner
from audit_pipeline.pipeline.registry import BENCHMARK_STAGES, MODEL_STAGES, STAGES, get_stage
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
from audit_pipeline.pipeline.whole_configuration import FILES_OF_AUDITS, load_configuration
from audit_pipeline.pipeline.workspace_state import Scope, WorkspaceState
from audit_pipeline.scoring.backends import Endpoints
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import read_documents_version

Log = Callable[[str], None]
_OTHERS = tuple(stage for stage in STAGES if stage not in (*BENCHMARK_STAGES, *MODEL_STAGES))


@dataclass
class WeeklySummary:
    """The outcome of a weekly audit.

    Attributes:
        notify: Receives every problem.
        moved_cutoffs: Descriptions of the cutoffs that moved.
        changed_sources: The sources whose documents changed.
        made: The partitions that were made, by job.
        problems: Descriptions of the problems.
    """

    notify: Log
    moved_cutoffs: list[str] = field(default_factory=list)
    changed_sources: list[str] = field(default_factory=list)
    made: dict[StageJob, list[str]] = field(default_factory=lambda: {BUILD_BENCHMARKS: [], AUDIT_PAIRS: []})
    problems: list[str] = field(default_factory=list)

    def note_problem(self, problem: str) -> None:
        """Add a problem."""
        self.problems.append(problem)
        self.notify(problem)

    def add_outcome(self, outcome: UpdateOutcome, stages: Sequence[Stage] = ()) -> None:
        """Add the products that were made, and the problems of the given stages.

        A reason is added only once, because products that depend on a failed product have the same reason.
        """
        for product in outcome.runs:
            stage_name, _, partition = product.partition("/")
            made_by_job = self.made.setdefault(get_stage(stage_name).job, [])
            if partition not in made_by_job:
                made_by_job.append(partition)
        noted_reasons: set[str] = set()
        for stage in stages:
            for partition, reason in outcome.list_failure_reasons(stage.name).items():
                # Broken entries of sources are already among the problems of the configuration.
                is_broken_entry = stage.dimensions == SOURCE and Product(stage.name, partition) in outcome.problems
                if reason not in noted_reasons and not is_broken_entry:
                    self.note_problem(f"{stage.name} of {partition} could not be made: {reason}")
                    noted_reasons.add(reason)

    @property
    def summary(self) -> str:
        """Return a summary of one line."""
        summary = self._summarise_changes()
        if self.problems:
            summary += f"; problems: {len(self.problems)}"
        return summary

    def _summarise_changes(self) -> str:
        names_by_job = {job: names for job, names in self.made.items() if job != REFRESH_SOURCES}
        if not self.changed_sources and not any(names_by_job.values()):
            n_sources = len(self.made.get(REFRESH_SOURCES, ()))
            return f"nothing new: {n_sources} source(s) have the same documents as before"
        parts = [f"sources changed: {', '.join(self.changed_sources) or 'none'}"]
        for job, names in names_by_job.items():
            if job == AUDIT_PAIRS:
                parts.append(f"{job.done}: {len(names)}")
            else:
                parts.append(f"{job.done}: {', '.join(names) or 'none'}")
        return "; ".join(parts)


def run_weekly_audit(
    jobs: Jobs, instance: dg.DagsterInstance, paths: DataPaths, today: date, notify: Log, tags: Mapping[str, str]
) -> WeeklySummary:
    """Move relative cutoffs, fetch the sources, build benchmarks, audit pairs that are not done, and publish.

    Each step is a separate run. A source, benchmark, model or entry that fails becomes a problem of the summary, and
    the audit continues without it.

    Args:
        jobs: Returns the job with a given name.
        instance: The Dagster instance.
        paths: The data folder.
        today: The day from which relative cutoffs count.
        notify: Receives each line for the log.
        tags: The tags of all runs.

    Raises:
        ConfigError: If a file of the configuration is unreadable.
        DataError: If the recorded day of relative cutoffs is unreadable.
    """
    week = WeeklySummary(notify)
    runner = Runner(jobs, instance, paths, notify, tags=tags, survives=Exception)
    mark_dead_runs_failed(instance, paths)
    _move_cutoffs(paths, today, week)
    config = load_configuration()
    for name in FILES_OF_AUDITS:
        for problem in config.problems_of(name):
            week.note_problem(str(problem))
    specs = dict(exclude_on_request(config.benchmarks))
    models = exclude_control_models(config.models)
    partitions.register_partitions(instance, benchmarks=list(specs), models=list(models))
    scope = Scope(tuple(specs), again=FETCHED_AGAIN)

    def read_planner() -> Planner:
        return Planner(WorkspaceState(paths, specs, ask_hub=True), STAGES)

    sources = dict.fromkeys(source for spec in specs.values() for source in spec.sources)
    versions_before = {source: _read_documents_version(source, paths) for source in sources}
    updated = update(scope, BENCHMARK_STAGES, read_planner, runner)
    for source, version in versions_before.items():
        if _read_documents_version(source, paths) != version:
            week.changed_sources.append(source)
    week.add_outcome(updated, BENCHMARK_STAGES)
    fit = _select_fit_benchmarks(specs, updated, week, paths)
    for entry in models.values():
        _audit_model(entry, fit, runner, week)
    try:
        week.add_outcome(update(replace(scope, again={}), _OTHERS, read_planner, runner), _OTHERS)
    except AuditError as error:
        week.note_problem(str(error))
    # The report is also built if nothing is new. It lists pairs that could not be audited, and the time of the audit.
    runner.run("publish", "the weekly audit")
    notify(week.summary)
    return week


def _move_cutoffs(paths: DataPaths, today: date, week: WeeklySummary) -> None:
    before = load_benchmarks()
    if not any(spec.has_relative_cutoff for spec in before.values()):
        return
    try:
        if move_reference_day(paths, today):
            moved = find_moved_cutoffs(before, load_benchmarks())
            week.moved_cutoffs = [change for changes in moved.values() for change in changes]
            names = ", ".join(week.moved_cutoffs) or "no benchmark"
            week.notify(f"relative cutoff dates are now computed from {today}, for: {names}")
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
    week.add_outcome(UpdateOutcome(outcome.runs))
    # An unusable reference corpus is no problem of the audit. The scores that need the corpus contain the reason.
    for product, reason in outcome.not_made.items():
        if not isinstance(reason, ConfigError):
            week.note_problem(f"{product} could not be made: {reason}")
    if outcome.failed is not None:
        week.note_problem(f"{entry.name}: {outcome.failed}")


def _select_fit_benchmarks(
    specs: Mapping[str, BenchmarkSpec], updated: UpdateOutcome, week: WeeklySummary, paths: DataPaths
) -> list[BenchmarkSpec]:
    """Return the benchmarks that are built and passed their blocking checks, even if they are out of date."""
    noted = updated.list_failure_reasons(*(stage.name for stage in BENCHMARK_STAGES))
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
"""Environment variable that switches the schedule on, unless somebody switched it in the UI."""


def build_weekly_schedule(jobs: Jobs) -> dg.ScheduleDefinition:
    """Return the schedule with its job.

    Args:
        jobs: Returns the job with a given name.
    """

    @dg.op(
        name="audit_what_is_new",
        description="Moves relative cutoffs, fetches the sources again, builds the benchmarks that changed, audits "
        "the pairs that are not done, and rebuilds warehouse and report. Each step is a separate run.",
    )
    def audit_week(context: dg.OpExecutionContext, data: AuditData) -> None:
        tags = {WEEKLY_TAG: context.run_id}
        with mark_audit_running(data.paths):
            week = run_weekly_audit(jobs, context.instance, data.paths, utc_today(), context.log.info, tags)
        context.log.info(week.summary)
        metadata: dict[str, Any] = {
            "summary": week.summary,
            "cutoffs moved": week.moved_cutoffs,
            "sources changed": week.changed_sources,
        }
        metadata |= {job.done: made for job, made in week.made.items()}
        metadata["problems"] = week.problems
        context.add_output_metadata(metadata)
        context.instance.add_run_tags(context.run_id, {SUMMARY_TAG: week.summary[:250]})
        if week.problems:
            raise dg.Failure(
                f"{len(week.problems)} part(s) of the weekly audit failed, the others are done. The first problem: "
                f"{week.problems[0]}",
                metadata={"problems": week.problems, "summary": week.summary},
                allow_retries=False,
            )

    @dg.job(
        name="weekly_audit",
        executor_def=dg.in_process_executor,
        description="Audits everything that changed since the last audit: cutoffs, documents, benchmarks, models.",
    )
    def weekly_audit_job() -> None:
        audit_week()

    status = dg.DefaultScheduleStatus.STOPPED
    if os.environ.get(WEEKLY_IS_ON):
        status = dg.DefaultScheduleStatus.RUNNING
    return dg.ScheduleDefinition(
        name="weekly_audit",
        job=weekly_audit_job,
        cron_schedule="0 6 * * 1",
        execution_timezone="UTC",
        default_status=status,
        description="Audits what is new, every Monday at 06:00 UTC.",
    )
