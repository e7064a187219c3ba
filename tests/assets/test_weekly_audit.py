"""The weekly audit: changes are fetched, built, audited and published."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from made_workspace import (
    COLLECTIONS,
    NEW,
    SOURCE,
    Workspace,
    controlled,
    count_loads,
    made_document,
    made_documents,
    made_text,
    temporal,
    tiny_control,
)

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.definitions import defs
from audit_pipeline.pipeline.dagster import weekly
from audit_pipeline.pipeline.dagster.instance import open_instance
from audit_pipeline.pipeline.dagster.locks import has_running_audit
from audit_pipeline.sources.base import MissingPart
from audit_pipeline.store.files import read_json
from audit_pipeline.tables import Pair

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits", "few_detectors", "no_report")
TODAY = datetime.now(UTC).date()


@pytest.fixture
def instance(workspace: Workspace) -> Iterator[dg.DagsterInstance]:
    workspace.hold(*made_documents(2, 40))
    with open_instance(workspace.paths) as made:
        yield made


class Weeks:
    """Runs of the weekly job, with their summary and the runs that they started."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        self.job = defs().resolve_job_def("weekly_audit")

    def __call__(self, *, succeeds: bool = True) -> dict[str, Any]:
        before = {run.run_id for run in self.instance.get_runs()}
        result = self.job.execute_in_process(instance=self.instance, raise_on_error=False)
        assert result.success is succeeds
        self.runs = [run for run in reversed(self.instance.get_runs()) if run.run_id not in before]
        self.jobs = [run.job_name for run in self.runs if run.job_name != "weekly_audit"]
        parents = {run.tags.get("corpus_audit/weekly_audit") for run in self.runs if run.job_name != "weekly_audit"}
        assert parents <= {result.run_id}
        self.summary = next(run for run in self.runs if run.run_id == result.run_id).tags["corpus_audit/summary"]
        events = [event for event in result.all_events if event.is_step_failure]
        return {
            name: entry.value
            for event in events
            for name, entry in event.step_failure_data.user_failure_data.metadata.items()
        }


@pytest.fixture
def week(instance: dg.DagsterInstance) -> Weeks:
    return Weeks(instance)


def test_an_empty_workspace_is_audited_and_then_nothing_is_new(workspace: Workspace, week: Weeks) -> None:
    loads = count_loads(workspace.monkeypatch)
    week()
    assert week.jobs == ["refresh_sources", *["build_benchmarks"] * 2, *["audit_pairs"] * 2, "publish"]
    assert loads == ["one", "two"]
    assert week.summary.startswith(f"sources changed: {SOURCE}; benchmarks built: made_8, made_12; pairs audited: 4")
    assert {row["status"] for row in workspace.query("SELECT status FROM coverage")} == {"done"}
    loads.clear()
    week()
    assert week.jobs == ["refresh_sources", "publish"], "the source is asked every time, and the report says when"
    assert week.summary.startswith("nothing new")
    assert loads == []


def test_conditions_wait_for_the_weekly_audit(workspace: Workspace, week: Weeks) -> None:
    """Between two runs of a weekly audit, Dagster has no running run."""
    at_work: list[bool] = []

    def note(*arguments: Any) -> weekly.WeeklySummary:
        at_work.append(has_running_audit(workspace.paths))
        return weekly.WeeklySummary(lambda line: None)

    workspace.monkeypatch.setattr(weekly, "run_weekly_audit", note)
    week()
    assert (at_work, has_running_audit(workspace.paths)) == ([True], False)


def test_benchmarks_on_request_and_models_of_controls_are_not_audited(workspace: Workspace, week: Weeks) -> None:
    folders = {name: {"path": workspace.model(name).located.folder} for name in ("one", "two")}
    workspace.write_models(**folders, exposed={"control": {"name": "check", "role": "exposed"}})
    workspace.write_config("controls", {"controls": {"check": tiny_control()}})
    workspace.write_benchmarks(known=controlled("check"), made=temporal([8], on_request=True))
    week()
    assert week.jobs == ["publish"]
    assert week.summary.startswith("nothing new: 0 source(s)")
    # Those of the configuration with which the definitions were loaded; the control's are not among them.
    assert "known_12" not in week.instance.get_dynamic_partitions("benchmark")
    assert week.instance.get_dynamic_partitions("model") == ["one", "two"]
    told = workspace.query("SELECT name, on_request FROM configured_models")
    assert told == [
        {"name": "one", "on_request": False},
        {"name": "two", "on_request": False},
        {"name": "exposed", "on_request": True},
    ]
    assert workspace.query("FROM not_audited") == []
    covered = workspace.query("SELECT model, benchmark, status FROM coverage ORDER BY ALL")
    assert [tuple(row.values()) for row in covered] == [
        ("exposed", "known_12", "not_requested"),
        ("exposed", "made_8", "not_applicable"),
        ("one", "known_12", "not_applicable"),
        ("one", "made_8", "not_requested"),
        ("two", "known_12", "not_applicable"),
        ("two", "made_8", "not_requested"),
    ]


@pytest.mark.slow
def test_new_documents_rebuild_what_is_drawn_from_them(workspace: Workspace, week: Weeks) -> None:
    workspace.write_benchmarks(made=temporal([8]))
    week()
    workspace.hold(*made_documents(2, 40), made_document("alder", "late", NEW, made_text("late", 60)))
    week()
    assert week.jobs == ["refresh_sources", "build_benchmarks", *["audit_pairs"] * 2, "publish"]


@pytest.mark.slow
def test_relative_cutoffs_move_on_and_only_their_benchmark_with_them(workspace: Workspace, week: Weeks) -> None:
    workspace.write_benchmarks(made=temporal([8]), recent=temporal([8], nonmember_from="90 days before today"))
    fresh = [made_document("alder", f"fresh {n}", TODAY - timedelta(days=10), made_text(f"f{n}", 40)) for n in range(3)]
    workspace.hold(*made_documents(3, 40), *fresh)
    cutoffs = []
    for day in (TODAY - timedelta(days=7), TODAY):
        workspace.monkeypatch.setattr(weekly, "utc_today", lambda day=day: day)
        week()
        assert read_json(workspace.paths.rolled_day) == {"day": day.isoformat()}
        cutoffs.append(read_built(workspace.paths, "recent_8").manifest["spec"]["nonmember_from"])
        assert cutoffs[-1] == (day - timedelta(days=90)).isoformat()
    assert week.jobs.count("build_benchmarks") == 1, "made_8 stands still"
    assert "benchmarks built: recent_8; pairs audited: 2" in week.summary
    week()
    assert week.summary.startswith("nothing new"), "the same day again"


@pytest.mark.slow
def test_failures_are_reported_and_the_rest_is_audited(workspace: Workspace, week: Weeks) -> None:
    week()
    workspace.hold(missing=[MissingPart(name, "no route to host", name) for name in COLLECTIONS])
    rows_file = {"builder": "labelled", "description": "gone", "path": "gone", "split": "Rows", "words": [8]}
    workspace.write_benchmarks(
        made=temporal([8, 12]), new=temporal([16]), gone={**rows_file, "design": "temporal", "seed": 5}
    )
    models = workspace.config.joinpath("models.yaml").read_text()
    workspace.write_config("models", models + "  lost:\n    path: /nowhere/at/all\n")
    problems = "; ".join(week(succeeds=False)["problems"])
    assert "gone_8" in problems
    assert "lost" in problems
    assert "/nowhere/at/all" in problems
    assert week.jobs == ["refresh_sources", "build_benchmarks", *["audit_pairs"] * 2, "publish"]
    assert "benchmarks built: new_16; pairs audited: 2" in week.summary
    assert {row["benchmark"] for row in workspace.query("SELECT DISTINCT benchmark FROM leaderboard")} == {
        "made_8",
        "made_12",
        "new_16",
    }


@pytest.mark.slow
def test_a_broken_entry_is_among_the_problems_and_the_rest_goes_on(workspace: Workspace, week: Weeks) -> None:
    models = workspace.config.joinpath("models.yaml").read_text()
    workspace.write_config("models", models.replace("two:\n", "two:\n    windw: 8\n"))
    workspace.write_benchmarks(made=temporal([8]), lost=temporal([8], sources=["relase_notes"]))
    workspace.write_config("sources", {"books": {"foldr": "x"}})
    said = week(succeeds=False)
    assert [problem.rpartition(".yaml:")[2].partition(": ")[2] for problem in said["problems"]] == [
        "section books: unknown key 'foldr'; did you mean folder?",
        "model two: unknown key 'windw'; did you mean window?",
        "family lost: sources: there is no source 'relase_notes'; did you mean release_notes?",
    ]
    assert {row["model"] for row in workspace.query("SELECT DISTINCT model FROM leaderboard")} == {"one"}
    coverage = workspace.query("SELECT model, status FROM coverage WHERE benchmark = 'made_8' ORDER BY ALL")
    assert [(row["model"], row["status"]) for row in coverage] == [("one", "done"), ("two", "missing")]


@pytest.mark.slow
def test_one_bad_pair_keeps_no_other_from_being_audited(workspace: Workspace, week: Weeks) -> None:
    module = __import__("assets.token_statistics", fromlist=["run_passes"])
    run_passes = module.run_passes
    errors: dict[Pair, Exception] = {Pair("made_8", "one"): RuntimeError("CUDA error")}

    def faulty(pair: Pair, *arguments: Any, **options: Any) -> Any:
        if pair in errors:
            raise errors[pair]
        return run_passes(pair, *arguments, **options)

    workspace.monkeypatch.setattr(module, "run_passes", faulty)
    week(succeeds=False)
    # The failed pair is the only one left: its run holds nothing else, and still ends in words.
    said = week(succeeds=False)
    assert ["CUDA error" in problem for problem in said["problems"]] == [True]
    workspace.write_benchmarks(made=temporal([8, 12]), other=temporal([10]), new=temporal([14]))
    week(succeeds=False)
    rows_of = workspace.query("SELECT benchmark FROM coverage WHERE model = 'one' AND status = 'done' ORDER BY ALL")
    assert [row["benchmark"] for row in rows_of] == ["made_12", "new_14", "other_10"]
    errors.clear()
    week()
    assert {row["status"] for row in workspace.query("SELECT status FROM coverage")} == {"done"}


def test_the_schedule_is_off_by_default() -> None:
    [weekly_audit] = defs().schedules or []
    assert isinstance(weekly_audit, dg.ScheduleDefinition)
    assert weekly_audit.default_status is dg.DefaultScheduleStatus.STOPPED
    assert weekly_audit.cron_schedule == "0 6 * * 1"
    on = {sensor.name for sensor in defs().sensors or [] if sensor.default_status is dg.DefaultSensorStatus.RUNNING}
    assert on == {"observe_inputs"}, "it runs nothing"
