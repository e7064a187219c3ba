"""The schedule: when the weekly audit is due, and the job that it starts. It is off until somebody turns it on.

What belongs here: the wiring of the job and its schedule. What does not: what the audit does (weekly.py).
"""

import os

import dagster as dg

from audit_pipeline.benchmarks.rolling import utc_today
from audit_pipeline.operate.dagster.carry_out import Jobs
from audit_pipeline.operate.dagster.resources import AuditData
from audit_pipeline.operate.dagster.tags import SUMMARY_TAG, WEEKLY_TAG
from audit_pipeline.operate.dagster.weekly import WeeklySummary
from audit_pipeline.operate.dagster.weekly import run_week

WEEKLY_IS_ON = "CORPUS_AUDIT_WEEKLY"
"""The environment variable with which the schedule is on where nobody has switched it in the UI."""


def weekly_audit(jobs: Jobs) -> dg.ScheduleDefinition:
    """The schedule with its job; ``jobs`` gives those that a weekly audit runs, by their names."""

    @dg.op(
        name="audit_what_is_new",
        description="Moves relative cutoffs on, fetches the sources again, builds the benchmarks that changed, audits "
        "the pairs that are not done, and rebuilds warehouse and report; each step is a run of its own.",
    )
    def audit_week(context: dg.OpExecutionContext, data: AuditData) -> None:
        tags = {WEEKLY_TAG: context.run_id}
        _tell(context, run_week(jobs, context.instance, data.paths, utc_today(), context.log.info, tags))

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


def _tell(context: dg.OpExecutionContext, week: WeeklySummary) -> None:
    """What the week came to, on its run and in its log; raises Failure where a part of it failed."""
    context.log.info(week.summary)
    context.add_output_metadata(
        {
            "summary": week.summary,
            "cutoffs moved": week.rolled,
            "sources changed": [name for name, changed in week.fetched.items() if changed],
            "benchmarks built": week.built,
            "audited": week.audited,
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
