"""Ticks of the sensors on real files: what they ask Dagster for, what they say, and what a broken file does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from typing import Any

import dagster as dg
import pytest
from made_workspace import SOURCE, Workspace, made_documents, temporal

from audit_pipeline.definitions import defs
from audit_pipeline.errors import ConfigError, TransientError
from audit_pipeline.extras.maintenance import sensors as alert_sensors
from audit_pipeline.pipeline.dagster import sensors
from audit_pipeline.pipeline.dagster.resources import AuditData
from audit_pipeline.pipeline.dagster.runs import run_job
from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.store.ledger import record_outcome
from audit_pipeline.tables import Pair

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits", "few_detectors", "no_report")


class Ticking:
    """A sensor, tick after tick: its requests are carried out as the daemon does, but for the runs themselves."""

    def __init__(self, sensor: Any, instance: dg.DagsterInstance) -> None:
        self.sensor = sensor
        self.instance = instance
        self.cursor: str | None = None

    def __call__(self) -> dg.SensorResult:
        context = dg.build_sensor_context(instance=self.instance, cursor=self.cursor)
        result: dg.SensorResult = self.sensor(context, data=AuditData())
        self.cursor = result.cursor if result.cursor is not None else self.cursor
        for request in result.dynamic_partitions_requests or []:
            self.instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
        for request in result.run_requests or []:
            job = defs().resolve_job_def(request.job_name or "")
            tags = {"dagster/run_key": request.run_key or ""}
            self.instance.create_run_for_job(job, tags=tags, status=dg.DagsterRunStatus.SUCCESS)
        return result

    def run(self, result: dg.SensorResult) -> None:
        """Run what was requested."""
        for request in result.run_requests or []:
            assert request.job_name is not None
            tags = request.tags
            selection = request.asset_selection
            start = tags.get("dagster/asset_partition_range_start")
            run_job(
                defs().resolve_job_def(request.job_name),
                self.instance,
                selection=list(selection) if selection else None,
                partition_key=request.partition_key,
                partition_range=(start, tags["dagster/asset_partition_range_end"]) if start else None,
            )


def said(result: dg.SensorResult) -> str:
    """The words of a tick that asks for nothing."""
    assert result.skip_reason is not None
    return str(result.skip_reason.skip_message)


def asked(result: dg.SensorResult) -> list[tuple[str | None, ...]]:
    """Job and target of each requested run."""
    return [(request.job_name, *_target(request)) for request in result.run_requests or []]


def _target(request: dg.RunRequest) -> tuple[str, ...]:
    tags: Mapping[str, str] = request.tags
    if "dagster/asset_partition_range_start" in tags:
        return tags["dagster/asset_partition_range_start"], tags["dagster/asset_partition_range_end"]
    if request.partition_key:
        return (request.partition_key,)
    return tuple(key.to_user_string() for key in request.asset_selection or [])


@pytest.fixture
def new_models(instance: dg.DagsterInstance) -> Ticking:
    return Ticking(sensors.new_models, instance)


@pytest.fixture
def changed(instance: dg.DagsterInstance) -> Ticking:
    return Ticking(sensors.changed_benchmarks, instance)


def audit(workspace: Workspace, *benchmarks: str) -> None:
    """Both models on these, as the runs that were asked for would."""
    for benchmark in benchmarks:
        for model in ("one", "two"):
            workspace.audit(model, benchmark)


def test_both_from_nothing_to_every_pair(workspace: Workspace, new_models: Ticking, changed: Ticking) -> None:
    workspace.hold(*made_documents(2, 40))
    assert "no benchmark is built yet" in said(new_models())
    first = changed()
    assert asked(first) == [("refresh_sources", f"documents/{SOURCE}")]
    changed.run(first)
    second = changed()
    assert asked(second) == [("build_benchmarks", "made_8"), ("build_benchmarks", "made_12")]
    changed.run(second)
    assert asked(changed()) == [], "no model is registered yet: new models are the other sensor's"
    models = new_models()
    assert asked(models) == [("audit_pairs", "made_8|one", "made_12|one"), ("audit_pairs", "made_8|two", "made_12|two")]
    new_models.run(models)
    for sensor, words in ((new_models, "nothing new among 2 models"), (changed, "nothing changed in 2 benchmarks")):
        result = sensor()
        assert (asked(result), said(result)) == ([], words)


def test_what_is_not_built_stays_missing_and_the_tick_says_so(
    built: Workspace, new_models: Ticking, changed: Ticking
) -> None:
    built.write_benchmarks(made=temporal([8, 10, 12]))
    result = new_models()
    assert asked(result) == [
        ("audit_pairs", f"{benchmark}|{model}", f"{benchmark}|{model}")
        for model in ("one", "two")
        for benchmark in ("made_8", "made_12")
    ]
    audit(built, "made_8", "made_12")
    words = "1 benchmark(s) are not built, their pairs stay missing: made_10; switch on the sensor changed_benchmarks"
    assert words in said(new_models())
    changed.run(changed())
    assert asked(changed()) == [
        ("audit_pairs", "made_10|one", "made_10|one"),
        ("audit_pairs", "made_10|two", "made_10|two"),
    ]
    assert said(new_models()) == "nothing new among 2 models"


def test_new_models_first_and_no_pair_is_asked_for_twice(
    built: Workspace, new_models: Ticking, changed: Ticking
) -> None:
    models = new_models()
    assert len(asked(models)) == 2
    job = defs().resolve_job_def("audit_pairs")
    running = new_models.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    assert asked(changed()) == []
    audit(built, "made")
    new_models.instance.report_run_canceled(running)
    assert asked(changed()) == []


def test_a_run_whose_process_is_gone_is_not_waited_for(built: Workspace, new_models: Ticking) -> None:
    instance = new_models.instance
    run_id = "0d6a1d0e-8a5c-4f0c-9d9b-2f5f7a3f6a11"
    instance.create_run_for_job(
        defs().resolve_job_def("build_benchmarks"), run_id=run_id, status=dg.DagsterRunStatus.STARTED
    )
    built.paths.claims.mkdir(parents=True, exist_ok=True)
    (built.paths.claims / f"{run_id}.alive").touch()
    assert len(asked(new_models())) == 2
    run = instance.get_run_by_id(run_id)
    assert run is not None
    assert run.status is dg.DagsterRunStatus.FAILURE


def test_a_pair_that_failed_since_is_asked_for(built: Workspace, new_models: Ticking) -> None:
    built.audit("one", "made")
    record_outcome(built.paths, Pair("made_8", "one"), "scores", "failed", "no reason", "later")
    assert ("audit_pairs", "made_8|one", "made_8|one") in asked(new_models())


def test_another_start_token_or_other_weights_are_another_model(built: Workspace, new_models: Ticking) -> None:
    new_models.run(new_models())
    assert asked(new_models()) == []
    text = (built.config / "models.yaml").read_text()
    built.write_config("models", text.replace("two:", "two:\n    start_token_policy: tokenizer"))
    assert asked(new_models()) == [("audit_pairs", "made_8|two", "made_12|two")]
    built.write_config("models", text.replace("two:", "two:\n    start_token_policy: tokenizer\n    notes: in words"))
    assert asked(new_models()) == [], "words about it change nothing"


@pytest.mark.parametrize("broken", ["models: [", "", "- one\n"])
def test_a_broken_file_changes_nothing_and_says_which(built: Workspace, new_models: Ticking, broken: str) -> None:
    new_models()
    cursor, partitions = new_models.cursor, new_models.instance.get_dynamic_partitions("model")
    whole = (built.config / "models.yaml").read_text()
    built.write_config("models", broken)
    with pytest.raises(ConfigError, match=r"models\.yaml"):
        new_models()
    assert (new_models.cursor, new_models.instance.get_dynamic_partitions("model")) == (cursor, partitions)
    built.write_config("models", whole)
    assert asked(new_models()) == [], "nothing was forgotten meanwhile"


@pytest.mark.parametrize("broken", ["path: [1]", "pth: x", "window: 1"])
def test_a_broken_entry_is_no_entry_that_was_taken_out(built: Workspace, new_models: Ticking, broken: str) -> None:
    new_models()
    whole = (built.config / "models.yaml").read_text()
    third = whole.partition("one:")[2].partition("two:")[0].join(["  third:", ""])
    built.write_config("models", whole.replace("two:\n", f"two:\n    {broken}\n", 1) + third)
    result = new_models()
    assert asked(result) == [("audit_pairs", "made_8|third", "made_12|third")], "the others go on"
    assert "models.yaml:" in said(new_models())
    assert "model two: " in said(new_models())
    assert new_models.instance.get_dynamic_partitions("model") == ["one", "two", "third"]
    built.write_config("models", whole + third)
    assert asked(new_models()) == [], "mended, it is the model that it was"


@pytest.mark.slow
def test_a_broken_family_is_no_family_that_was_taken_out(
    built: Workspace, new_models: Ticking, changed: Ticking
) -> None:
    new_models.run(new_models())
    assert asked(changed()) == []
    misspelt = temporal([8, 12])
    misspelt["member_befor"] = misspelt.pop("member_before")
    built.write_benchmarks(made=misspelt, new=temporal([16]))
    result = changed()
    assert asked(result) == [("build_benchmarks", "new_16")], "the others go on"
    changed.run(result)
    changed.run(changed())
    assert "family made: unknown key 'member_befor'; did you mean member_before?" in said(changed())
    assert changed.instance.get_dynamic_partitions("benchmark") == ["made_8", "made_12", "new_16"]
    built.write_benchmarks(made=temporal([8, 12]), new=temporal([16]))
    assert asked(changed()) == [], "mended, it is the benchmark that it was"


@pytest.mark.slow
def test_what_came_to_be_due_while_an_entry_was_broken_is_asked_for_when_it_is_mended(
    built: Workspace, new_models: Ticking, changed: Ticking
) -> None:
    new_models.run(new_models())
    assert asked(changed()) == []
    whole = (built.config / "models.yaml").read_text()
    built.write_config("models", whole.replace("two:\n", "two:\n    window: 1\n"))
    built.write_benchmarks(made=temporal([8, 12], member_before=date(2021, 6, 1)))
    changed.run(changed())
    pairs = changed()
    assert asked(pairs) == [("audit_pairs", "made_8|one", "made_12|one")]
    changed.run(pairs)
    assert asked(changed()) == [], "nothing is asked for twice"
    built.write_config("models", whole)
    assert asked(changed()) == [("audit_pairs", "made_8|two", "made_12|two")]


def test_a_source_with_a_broken_section_is_told_and_its_benchmarks_stay(built: Workspace, changed: Ticking) -> None:
    assert asked(changed()) == []
    built.write_config("sources", {SOURCE: {"projekts": ["django"]}})
    assert "made_8: " in said(changed())
    assert "section release_notes: unknown key 'projekts'; did you mean projects?" in said(changed())
    built.write_config("sources", {})
    assert asked(changed()) == []


def test_an_edited_cutoff_asks_for_exactly_its_benchmark_and_then_its_pairs(
    built: Workspace, new_models: Ticking, changed: Ticking
) -> None:
    built.write_benchmarks(made=temporal([8, 12]), other=temporal([16]))
    built.build("other_16")
    built.assess("other_16")
    new_models()
    audit(built, "made", "other")
    assert asked(changed()) == []
    built.write_benchmarks(made=temporal([8, 12]), other=temporal([16], member_before=date(2021, 6, 1)))
    edited = changed()
    assert asked(edited) == [("build_benchmarks", "other_16")]
    changed.run(edited)
    pairs = changed()
    assert asked(pairs) == [("audit_pairs", f"other_16|{name}", f"other_16|{name}") for name in ("one", "two")]
    audit(built, "other")
    assert asked(changed()) == []
    built.write_benchmarks(
        made=temporal([8, 12], description="in other words"), other=temporal([16], member_before=date(2021, 6, 1))
    )
    assert asked(changed()) == []


def test_a_benchmark_that_cannot_be_looked_at_is_named_and_stops_no_other(built: Workspace, changed: Ticking) -> None:
    gone = {"builder": "labelled", "description": "gone", "path": "gone", "split": "Rows", "words": [8]}
    built.write_benchmarks(made=temporal([8, 12]), new=temporal([16]), gone={**gone, "design": "temporal", "seed": 5})
    result = changed()
    assert asked(result) == [("build_benchmarks", "new_16")]
    changed.run(result)
    assert "gone_8: " in said(changed())


def alerts(workspace: Workspace) -> list[dict[str, Any]]:
    if not workspace.paths.alerts.exists():
        return []
    return [json.loads(line) for line in workspace.paths.alerts.read_text().splitlines()]


def test_findings_that_change_are_told_once(built: Workspace, instance: dg.DagsterInstance) -> None:
    built.monkeypatch.delenv("CORPUS_AUDIT_WEBHOOK", raising=False)
    tick = Ticking(alert_sensors.alert_finding_changed, instance)
    assert said(tick()) == "there is no warehouse yet"
    built.audit("one", "made_8")
    build_warehouse(built.paths)
    assert "are watched from now on" in said(tick())
    built.audit("two", "made_8")
    build_warehouse(built.paths)
    assert "1 pairs changed" in said(tick())
    [alert] = alerts(built)
    assert alert["kind"] == "finding_changed"
    assert [change["model"] for change in alert["details"]["changes"]] == ["two"]
    assert said(tick()) == "the warehouse is the one that was looked at"
    assert len(str(tick.cursor)) < 30, "the cursor is stored with every tick"
    build_warehouse(built.paths)
    assert "none of" in said(tick())
    assert len(alerts(built)) == 1


def failure_tick(instance: dg.DagsterInstance, cursor: str | None) -> str | None:
    """One tick of alert_run_failed as the daemon makes it; returns the next cursor."""
    repository = defs().get_repository_def()
    with dg.build_sensor_context(
        instance=instance, cursor=cursor, repository_def=repository, resources={"data": AuditData()}
    ) as context:
        tick = alert_sensors.alert_run_failed.evaluate_tick(context)
    assert all(reaction.error is None for reaction in tick.dagster_run_reactions or [])
    return tick.cursor


def test_every_failed_run_is_told_once_with_its_reason(built: Workspace, instance: dg.DagsterInstance) -> None:
    built.monkeypatch.delenv("CORPUS_AUDIT_WEBHOOK", raising=False)
    instance.add_dynamic_partitions("benchmark", ["made_8"])
    instance.add_dynamic_partitions("model", ["one"])
    cursor = failure_tick(instance, None)
    built.paths.examples("made_8").unlink()
    job = defs().resolve_job_def("audit_pairs")
    for tags in ({}, {"corpus_audit/weekly_audit": "its run fails as well"}):
        job.execute_in_process(instance=instance, partition_key="made_8|one", tags=tags, raise_on_error=False)
    cursor = failure_tick(instance, cursor)
    failure_tick(instance, cursor)
    [alert] = alerts(built)
    assert alert["kind"] == "run_failed"
    assert alert["details"]["partition"] == "made_8|one"
    [line] = alert["lines"]
    assert line.startswith("token_statistics of made_8|one: the benchmark made_8 has not been built yet")
    assert "Stack" not in line


def test_the_hub_is_not_asked_where_nothing_is_watched(workspace: Workspace) -> None:
    with dg.build_sensor_context() as context:
        skipped = sensors.hub_watcher(context)
    assert "names no owner" in str(skipped.skip_message)


def test_a_hub_that_cannot_be_reached_ends_the_tick_with_words(workspace: Workspace) -> None:
    workspace.write_config("watch", {"hub": ["some-owner"]})

    def unreachable(name: str) -> None:
        raise TransientError(f"the hub cannot be reached for {name}")

    workspace.monkeypatch.setattr(sensors, "list_candidates", unreachable)
    with dg.build_sensor_context() as context, pytest.raises(TransientError, match="some-owner"):
        sensors.hub_watcher(context)
    assert not (workspace.config / "models.proposed.yaml").exists()
