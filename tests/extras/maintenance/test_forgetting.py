"""The command `forget`: what stops it, how a stopped removal is finished, and that no query finds the name again."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from pathlib import Path

import dagster as dg
import pytest
from cli_results import LABELLED, error_of, told
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from data_folders import read_tree
from made_workspace import Workspace

from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.definitions import defs
from audit_pipeline.errors import AuditError, DataError
from audit_pipeline.extras.maintenance import forgetting
from audit_pipeline.extras.maintenance.forgetting import RemovalTarget, describe_unfinished_runs, forget, plan_removal
from audit_pipeline.models.config import load_models
from audit_pipeline.pipeline.audit_requests import AuditRequest
from audit_pipeline.pipeline.dagster import locks
from audit_pipeline.pipeline.dagster.audit import audit
from audit_pipeline.pipeline.dagster.locks import hold_liveness_file, hold_removal_lock, lock_liveness_file
from audit_pipeline.pipeline.dagster.partitions import register_partitions
from audit_pipeline.pipeline.options import AuditOptions
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.warehouse.query import open_read_only

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits")
BENCHMARKS = ["made_8", "made_9", "made_10", "twin_8"]
FAMILY = {**LABELLED, "path": ".", "split": "Made{words}"}
MADE_9, TINY = RemovalTarget("benchmark", "made_9"), RemovalTarget("model", "tiny")


@pytest.fixture(scope="module")
def definitions() -> dg.Definitions:
    return defs()


@pytest.fixture
def instance(instance: dg.DagsterInstance) -> dg.DagsterInstance:
    """Register all benchmarks and models, and a model without stored data."""
    register_partitions(instance, benchmarks=BENCHMARKS, models=["tiny", "two", "gone"])
    return instance


def request_run(instance: dg.DagsterInstance, definitions: dg.Definitions, job: str = "audit_pairs") -> str:
    tags = {"dagster/partition": "made_9|tiny"} if job == "audit_pairs" else {}
    return instance.create_run_for_job(definitions.resolve_job_def(job), tags=tags).run_id


def query_values(workspace: Workspace, column: str) -> set[str]:
    """Return all values of a column in the tables and views of the warehouse."""
    values: set[str] = set()
    with open_read_only(workspace.paths.warehouse) as connection:
        columns = "SELECT table_name FROM information_schema.columns WHERE column_name = ?"
        tables = connection.execute(columns, [column]).fetchall()
        assert len(tables) >= 2
        for (table,) in tables:
            values |= {
                str(value) for (value,) in connection.sql(f'SELECT DISTINCT "{column}" FROM "{table}"').fetchall()
            }
    return values


def test_a_benchmark_goes_from_partitions_files_warehouse_and_report(
    workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    wal = workspace.paths.warehouse.with_name("audit.duckdb.wal.20240101T000000Z.aside")
    wal.write_bytes(b"somebody's")

    planned = told(workspace.run("forget", "--benchmark", "made_9", "--dry-run"))
    assert "config/benchmarks.yaml still lists " in planned
    workspace.write_benchmarks(made={**FAMILY, "words": [8, 10]})
    shown = told(workspace.run("forget", "--benchmark", "made_9"))
    table = [line.split() for line in shown.splitlines() if re.match(r"(scores|evaluations|examples) ", line)]
    assert [row[:2] for row in table] == [["evaluations", "2"], ["scores", "2"], ["examples", "2"]]
    assert re.search(r"\d+ lines of the ledger", shown)
    assert table == [line.split() for line in planned.splitlines() if re.match(r"(scores|evaluations|examples) ", line)]
    assert "partition in Dagster" in shown
    assert "still lists" not in shown
    assert str(wal) in shown
    assert wal.exists()

    assert set(instance.get_dynamic_partitions("benchmark")) == set(BENCHMARKS) - {"made_9"}
    assert "made_9" not in query_values(workspace, "benchmark")
    assert not [value for value in query_values(workspace, "partition") if "made_9" in value]
    assert b"made_9" not in workspace.paths.warehouse.read_bytes()
    assert "made_9" not in workspace.paths.report.read_text(encoding="utf-8")
    assert "made_8" in workspace.paths.report.read_text(encoding="utf-8")
    assert not [name for name in read_tree(workspace.paths) if "made_9" in name]
    assert "made_9" not in forgetting.list_stored_names("benchmark", workspace.paths)
    with open_read_only(workspace.paths.warehouse) as connection:
        assert connection.sql("SELECT count(*) FROM lineage_gaps").fetchall() == [(0,)]


@pytest.mark.usefixtures("no_report")
def test_after_the_last_model_the_report_is_empty(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    workspace.write_models(other={"hub": "made-up/other"})
    for name in ("two", "tiny"):
        assert "still lists" not in told(workspace.run("forget", "--model", name))
    assert sorted(instance.get_dynamic_partitions("model")) == ["gone", "other"], "configured models have a partition"
    assert not workspace.parts()
    assert "tiny" not in query_values(workspace, "model")
    assert b"tiny" not in workspace.paths.warehouse.read_bytes()
    assert set(instance.get_dynamic_partitions("benchmark")) == set(BENCHMARKS)


@pytest.mark.usefixtures("no_report")
def test_a_partition_without_data_is_removed(instance: dg.DagsterInstance, workspace: Workspace) -> None:
    shown = told(workspace.run("forget", "--model", "gone"))
    assert "partition in Dagster" in shown
    assert sorted(instance.get_dynamic_partitions("model")) == ["tiny", "two"]
    assert error_of(workspace.run("forget", "--model", "gone")).startswith("Unknown model 'gone'")


@pytest.mark.parametrize("job", ["build_benchmarks", "audit_pairs", "publish", "weekly_audit", "refresh_sources"])
def test_every_unfinished_run_except_a_fetch_stops_it(
    instance: dg.DagsterInstance, definitions: dg.Definitions, job: str
) -> None:
    run = request_run(instance, definitions, job)
    found = describe_unfinished_runs(instance)
    assert [run in words and job in words for words in found] == ([] if job == "refresh_sources" else [True])
    instance.report_run_canceled(instance.get_run_by_id(run))  # type: ignore[arg-type]
    assert describe_unfinished_runs(instance) == []


def test_a_backfill_without_a_run_stops_it(instance: dg.DagsterInstance) -> None:
    backfill = PartitionBackfill(
        "asked", BulkActionStatus.REQUESTED, False, {}, time.time(), partition_names=["made_9|tiny"]
    )
    instance.add_backfill(backfill)
    assert describe_unfinished_runs(instance) == ["backfill asked (requested)"]
    instance.update_backfill(backfill.with_status(BulkActionStatus.CANCELED))
    assert describe_unfinished_runs(instance) == []


def test_nothing_changes_while_a_run_is_unfinished(
    workspace: Workspace, instance: dg.DagsterInstance, definitions: dg.Definitions
) -> None:
    run = request_run(instance, definitions)
    before = read_tree(workspace.paths)
    error = error_of(workspace.run("forget", "--benchmark", "made_10"))
    assert error == (
        "The benchmark made_10 cannot be removed while an audit is unfinished: "
        f"run {run} (audit_pairs, not_started). "
        "Wait until these runs end, or cancel them in the Dagster UI. Then repeat the command. Nothing was removed."
    )
    assert read_tree(workspace.paths) == before
    assert set(instance.get_dynamic_partitions("benchmark")) == set(BENCHMARKS)


@pytest.mark.usefixtures("no_report")
def test_a_dead_run_of_this_machine_does_not_stop_it(
    workspace: Workspace, instance: dg.DagsterInstance, definitions: dg.Definitions
) -> None:
    run = request_run(instance, definitions)
    lock_liveness_file(workspace.paths, run).release()  # type: ignore[union-attr]
    result = workspace.run("forget", "--benchmark", "made_9")
    assert told(result)
    assert "1 run(s) on this machine had no process any more" in result.stderr
    dead = instance.get_run_by_id(run)
    assert dead is not None
    assert dead.status is dg.DagsterRunStatus.FAILURE
    living = request_run(instance, definitions)
    with hold_liveness_file(workspace.paths, living):
        assert "while an audit is unfinished: run" in error_of(workspace.run("forget", "--benchmark", "made_8"))


def test_a_run_that_is_requested_just_before_the_removal_stops_it(
    workspace: Workspace,
    instance: dg.DagsterInstance,
    definitions: dg.Definitions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = read_tree(workspace.paths)
    remove = dg.DagsterInstance.delete_dynamic_partition

    def remove_a_moment_late(self: dg.DagsterInstance, dimension: str, name: str) -> None:
        request_run(self, definitions)
        remove(self, dimension, name)

    monkeypatch.setattr(dg.DagsterInstance, "delete_dynamic_partition", remove_a_moment_late)
    with pytest.raises(AuditError, match=r"unfinished: run .*Nothing was removed"):
        forget(MADE_9, definitions, workspace.paths, lambda what: None)
    assert set(instance.get_dynamic_partitions("benchmark")) == set(BENCHMARKS), "the partition was given back"
    assert read_tree(workspace.paths) == before


@pytest.mark.parametrize(
    "where", ["a file", *(pytest.param(name, marks=pytest.mark.slow) for name in ("erase_lines", "publish"))]
)
@pytest.mark.usefixtures("no_report")
def test_the_same_command_finishes_a_killed_removal(
    workspace: Workspace,
    instance: dg.DagsterInstance,
    definitions: dg.Definitions,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    told(workspace.run("report"))
    remove_files = forgetting._remove_files

    def die(*given: object, **options: object) -> None:
        raise KeyboardInterrupt

    def remove_all_before_scores(files: Iterable[Path], paths: DataPaths) -> None:
        assert list(instance.get_dynamic_partitions("benchmark")) == ["made_8", "made_10", "twin_8"]
        for file in files:
            if "scores" in str(file):
                raise KeyboardInterrupt
            remove_files([file], paths)

    with monkeypatch.context() as patch:
        if where == "a file":
            patch.setattr(forgetting, "_remove_files", remove_all_before_scores)
        else:
            patch.setattr(forgetting, where, die)
        with pytest.raises(KeyboardInterrupt):
            forget(MADE_9, definitions, workspace.paths, lambda what: None)
    # The entry was removed from the configuration before, so only the data folder contains the name.
    workspace.write_benchmarks(made={**FAMILY, "words": [8]})
    if where == "publish":
        assert not workspace.paths.warehouse.exists(), "the data of the benchmark are gone already"
        told(workspace.run("report"))
    else:
        told(workspace.run("forget", "--benchmark", "made_9"))
    assert "made_9" not in query_values(workspace, "benchmark")
    assert not [name for name in read_tree(workspace.paths) if "made_9" in name]
    assert error_of(workspace.run("forget", "--benchmark", "made_9")).startswith("Unknown benchmark 'made_9'")


def test_a_dry_run_changes_nothing_and_makes_no_dagster_home(workspace: Workspace) -> None:
    before = read_tree(workspace.paths)
    shown = told(workspace.run("forget", "--benchmark", "made_9", "--dry-run"))
    assert re.search(r"examples +2", shown)
    assert shown.splitlines()[-1] == "Nothing was removed."
    assert read_tree(workspace.paths) == before
    assert not workspace.paths.dagster_home.exists()


def test_a_broken_entry_is_still_listed_by_the_configuration(workspace: Workspace) -> None:
    workspace.write_benchmarks(made={**FAMILY, "words": [8], "sede": 1})
    shown = told(workspace.run("forget", "--benchmark", "made_8", "--dry-run"))
    assert "config/benchmarks.yaml still lists made_8" in shown


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)], ids=["", "dry run"])
@pytest.mark.usefixtures("instance")
def test_an_unknown_name_is_reported_with_the_known_names(workspace: Workspace, dry_run: tuple[str, ...]) -> None:
    error = error_of(workspace.run("forget", "--benchmark", "maed_9", *dry_run))
    assert error.startswith("Unknown benchmark 'maed_9': config/benchmarks.yaml, Dagster's partitions and ")
    assert "did you mean made_9" in error
    error = error_of(workspace.run("forget", "--model", "quite different", *dry_run))
    assert "there are: gone, tiny, two" in error


@pytest.mark.parametrize("arguments", [(), ("--model", "tiny", "--benchmark", "made_9")], ids=["neither", "both"])
def test_either_a_model_or_a_benchmark_is_required(workspace: Workspace, arguments: tuple[str, ...]) -> None:
    result = workspace.run("forget", *arguments)
    assert result.exit_code == 2
    assert "Give either --model or --benchmark." in result.stderr
    assert not workspace.paths.dagster_home.exists()


@pytest.mark.usefixtures("no_report")
def test_nothing_is_removed_between_two_runs_of_an_audit(
    instance: dg.DagsterInstance, workspace: Workspace, definitions: dg.Definitions
) -> None:
    """Between two runs of an audit, Dagster has no unfinished run. A removal then deleted the partition."""
    refused: dict[str, str] = {}

    def forget_meanwhile(step: str) -> None:
        for target in (MADE_9, TINY, RemovalTarget("benchmark", "made_8")):
            with pytest.raises(AuditError) as error:
                forget(target, definitions, workspace.paths, lambda what: None)
            refused[f"{step.split(':', maxsplit=1)[0]}: {target}"] = str(error.value)

    benchmark = load_benchmarks()["made_10"]
    request = AuditRequest([load_models()["tiny"]], [benchmark], AuditOptions(publish=False))
    with pytest.raises(AuditError, match="Unknown model"):
        forget(RemovalTarget("model", "nobody"), definitions, workspace.paths, lambda what: None)
    audit(request, definitions, workspace.paths, forget_meanwhile)
    assert any(step.startswith("auditing tiny") for step in refused)
    assert all(words.startswith("an audit uses this data folder") for words in refused.values())
    forget(MADE_9, definitions, workspace.paths, lambda what: None)
    assert "made_9" not in instance.get_dynamic_partitions("benchmark")


def test_no_audit_begins_during_a_removal(workspace: Workspace) -> None:
    workspace.monkeypatch.setattr(locks, "_GATE_SECONDS", 0.1)
    with hold_removal_lock(workspace.paths):
        words = error_of(workspace.run("audit", "--model", "tiny", "--benchmark", "made"))
    assert words.startswith("corpus-audit forget is running in this data folder")


def test_a_model_is_found_by_a_relative_path(
    instance: dg.DagsterInstance, workspace: Workspace, definitions: dg.Definitions, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    register_partitions(instance, models=[str(model)])
    workspace.monkeypatch.chdir(tmp_path)
    plan = plan_removal(RemovalTarget("model", "./model"), workspace.paths)
    assert plan.target == RemovalTarget("model", str(model))
    assert plan.had_partition
    assert plan.configured is False


@pytest.mark.usefixtures("no_report")
def test_an_unreadable_configuration_does_not_stop_it(
    instance: dg.DagsterInstance, workspace: Workspace, definitions: dg.Definitions
) -> None:
    workspace.write_config("models", "models: [")
    assert plan_removal(TINY, workspace.paths).configured is None
    with pytest.raises(DataError, match="there are: gone, tiny, two"):
        plan_removal(RemovalTarget("model", "absent"), workspace.paths)
    assert "models.yaml cannot be read" in told(workspace.run("forget", "--model", "gone"))
