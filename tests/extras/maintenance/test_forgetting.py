"""The command `forget`: who stops it, what is left when it was stopped, and that nothing of the name can be queried."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import dagster as dg
import pytest
from cli_results import error_of, told
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from made_workspace import Workspace, made_documents, make_workspace, temporal

from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.definitions import defs
from audit_pipeline.errors import AuditError, DataError
from audit_pipeline.extras.maintenance import forgetting
from audit_pipeline.extras.maintenance import forgetting as removal_module
from audit_pipeline.extras.maintenance.forgetting import (
    RemovalTarget,
    find_unfinished_runs,
    forget,
    list_stored_names,
    plan_to_forget,
)
from audit_pipeline.models.config import load_models
from audit_pipeline.models.tokenized_model import write_card
from audit_pipeline.pipeline.audit_requests import AuditRequest
from audit_pipeline.pipeline.dagster.audit import audit
from audit_pipeline.pipeline.dagster.locks import hold_liveness_file, hold_removal_lock, lock_liveness_file
from audit_pipeline.pipeline.dagster.partitions import register
from audit_pipeline.pipeline.options import AuditOptions
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.warehouse.query import open_read_only

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits")
BENCHMARKS = ["made_8", "made_9", "made_10", "made_11"]
MADE_9, TINY = RemovalTarget("benchmark", "made_9"), RemovalTarget("model", "tiny")
PARTITION = "dagster/partition"


@pytest.fixture(scope="module")
def definitions() -> dg.Definitions:
    return defs()


@pytest.fixture
def partitioned(workspace: Workspace, instance: dg.DagsterInstance) -> dg.DagsterInstance:
    """Four benchmarks and two models are known, and configured but for one model."""
    workspace.write_benchmarks(made=temporal([8, 9, 10, 11]))
    register(instance, benchmarks=BENCHMARKS, models=["tiny", "gone"])
    return instance


@pytest.fixture(scope="module")
def audited_once(
    tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path], one_thread: None, quick_audits: None
) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        made = make_workspace(tmp_path_factory.mktemp("audited") / "made", patch, tiny=tiny_folder("llama"))
        made.write_benchmarks(made=temporal([8, 9, 10, 11]))
        made.fetch(*made_documents(2, 40))
        made.build("made")
        write_card(made.model("tiny"), made.paths)
        for benchmark in ("made_8", "made_9"):
            # By a run that is not named after the model.
            made.assess(benchmark)
            made.audit("tiny", benchmark)
    return made.paths.root


@pytest.fixture
def audited(workspace: Workspace, partitioned: dg.DagsterInstance, audited_once: Path) -> Workspace:
    """One model on two of them."""
    shutil.copytree(audited_once, workspace.paths.root, dirs_exist_ok=True)
    return workspace


def started(instance: dg.DagsterInstance, job: str, tags: dict[str, str], definitions: dg.Definitions) -> str:
    """A run that somebody has requested."""
    return instance.create_run_for_job(definitions.resolve_job_def(job), tags=tags).run_id


def files(workspace: Workspace) -> dict[str, int]:
    """Everything under the data folder but Dagster's own and locks, with the time of its last change."""
    root = workspace.paths.root
    return {
        str(path.relative_to(root)): path.stat().st_mtime_ns
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.suffix != ".lock" and workspace.paths.dagster_home not in path.parents
    }


def queried(workspace: Workspace, column: str) -> set[str]:
    """Every value of a column, in whichever table or view of the warehouse it is."""
    with open_read_only(workspace.paths.warehouse) as connection:
        tables = connection.execute(
            "SELECT table_name FROM information_schema.columns WHERE column_name = $column", {"column": column}
        ).fetchall()
        assert len(tables) >= 2
        return {
            str(value)
            for (table,) in tables
            for (value,) in connection.execute(f'SELECT DISTINCT "{column}" FROM "{table}"').fetchall()
        }


def test_a_benchmark_goes_from_partitions_files_warehouse_and_report(
    audited: Workspace, instance: dg.DagsterInstance
) -> None:
    told(audited.run("report"))
    assert "made_9" in queried(audited, "benchmark")
    assert "made_9" in audited.paths.report.read_text(encoding="utf-8")
    wal = audited.paths.warehouse.with_name("audit.duckdb.wal.20240101T000000Z.aside")
    wal.write_bytes(b"somebody's")

    planned = told(audited.run("forget", "--benchmark", "made_9", "--dry-run"))
    assert "config/benchmarks.yaml still lists " in planned
    audited.write_benchmarks(made=temporal([8, 10, 11]))
    shown = told(audited.run("forget", "--benchmark", "made_9"))
    table = [line.split() for line in shown.splitlines() if re.match(r"(scores|evaluations|examples) ", line)]
    assert [row[:2] for row in table] == [["evaluations", "1"], ["scores", "1"], ["examples", "2"]]
    assert re.search(r"\d+ lines of the ledger", shown)
    assert table == [line.split() for line in planned.splitlines() if re.match(r"(scores|evaluations|examples) ", line)]
    assert "partition in Dagster" in shown
    assert "still lists" not in shown
    assert str(wal) in shown
    assert wal.exists()

    assert set(instance.get_dynamic_partitions("benchmark")) == set(BENCHMARKS) - {"made_9"}
    assert "made_9" not in queried(audited, "benchmark")
    assert not [value for value in queried(audited, "partition") if "made_9" in value]
    assert b"made_9" not in audited.paths.warehouse.read_bytes()
    assert "made_9" not in audited.paths.report.read_text(encoding="utf-8")
    assert "made_8" in audited.paths.report.read_text(encoding="utf-8")
    assert not [name for name in files(audited) if "made_9" in name]
    assert "made_9" not in list_stored_names("benchmark", audited.paths)
    with open_read_only(audited.paths.warehouse) as connection:
        assert connection.sql("SELECT count(*) FROM lineage_gaps").fetchall() == [(0,)]


@pytest.mark.usefixtures("no_report")
def test_a_model_goes_and_the_last_one_leaves_an_empty_report(audited: Workspace, instance: dg.DagsterInstance) -> None:
    audited.write_models(other={"hub": "made-up/other"})
    shown = told(audited.run("forget", "--model", "tiny"))
    assert "still lists" not in shown
    assert sorted(instance.get_dynamic_partitions("model")) == ["gone", "other"], "what is configured has a partition"
    assert not audited.parts()
    assert "tiny" not in queried(audited, "model")
    assert b"tiny" not in audited.paths.warehouse.read_bytes()
    assert set(instance.get_dynamic_partitions("benchmark")) == set(BENCHMARKS)


@pytest.mark.usefixtures("no_report")
def test_a_partition_of_which_nothing_lies_on_disk(partitioned: dg.DagsterInstance, workspace: Workspace) -> None:
    shown = told(workspace.run("forget", "--model", "gone"))
    assert "partition in Dagster" in shown
    assert partitioned.get_dynamic_partitions("model") == ["tiny"]
    assert error_of(workspace.run("forget", "--model", "gone")).startswith("Unknown model 'gone'")


@pytest.mark.parametrize("job", ["build_benchmarks", "audit_pairs", "publish", "weekly_audit", "refresh_sources"])
def test_every_unfinished_run_but_a_fetch_refuses_it(
    partitioned: dg.DagsterInstance, definitions: dg.Definitions, job: str
) -> None:
    run = started(partitioned, job, {}, definitions)
    found = find_unfinished_runs(partitioned)
    assert [run in words and job in words for words in found] == ([] if job == "refresh_sources" else [True])
    partitioned.report_run_canceled(partitioned.get_run_by_id(run))  # type: ignore[arg-type]
    assert find_unfinished_runs(partitioned) == []


def test_a_backfill_that_has_requested_no_run_yet_refuses_it(partitioned: dg.DagsterInstance) -> None:
    backfill = PartitionBackfill(
        "asked", BulkActionStatus.REQUESTED, False, {}, time.time(), partition_names=["made_9|tiny"]
    )
    partitioned.add_backfill(backfill)
    assert find_unfinished_runs(partitioned) == ["backfill asked (requested)"]
    partitioned.update_backfill(backfill.with_status(BulkActionStatus.CANCELED))
    assert find_unfinished_runs(partitioned) == []


def test_it_is_refused_while_a_run_is_unfinished_and_nothing_changes(
    audited: Workspace, instance: dg.DagsterInstance, definitions: dg.Definitions
) -> None:
    run = started(instance, "audit_pairs", {PARTITION: "made_9|tiny"}, definitions)
    before = files(audited)
    error = error_of(audited.run("forget", "--benchmark", "made_10"))
    assert error == (
        "benchmark made_10 cannot be removed while an audit is unfinished: "
        f"run {run} (audit_pairs, not_started). "
        "Wait for its end or cancel it, then repeat the command. Nothing was removed."
    )
    assert files(audited) == before
    assert set(instance.get_dynamic_partitions("benchmark")) == set(BENCHMARKS)


@pytest.mark.usefixtures("no_report")
def test_a_dead_run_of_this_machine_does_not_stop_it(
    audited: Workspace, instance: dg.DagsterInstance, definitions: dg.Definitions
) -> None:
    run = started(instance, "audit_pairs", {PARTITION: "made_9|tiny"}, definitions)
    lock_liveness_file(audited.paths, run).release()  # type: ignore[union-attr]
    result = audited.run("forget", "--benchmark", "made_9")
    assert told(result)
    assert "marked 1 dead run(s)" in result.stderr
    dead = instance.get_run_by_id(run)
    assert dead is not None
    assert dead.status is dg.DagsterRunStatus.FAILURE
    living = started(instance, "audit_pairs", {PARTITION: "made_8|tiny"}, definitions)
    with hold_liveness_file(audited.paths, living):
        assert "while an audit is unfinished: run" in error_of(audited.run("forget", "--benchmark", "made_8"))


def test_a_run_that_is_requested_between_the_look_and_the_removal_is_seen(
    audited: Workspace,
    instance: dg.DagsterInstance,
    definitions: dg.Definitions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = files(audited)
    remove = dg.DagsterInstance.delete_dynamic_partition

    def remove_a_moment_late(self: dg.DagsterInstance, dimension: str, name: str) -> None:
        started(self, "audit_pairs", {PARTITION: "made_9|tiny"}, definitions)
        remove(self, dimension, name)

    monkeypatch.setattr(dg.DagsterInstance, "delete_dynamic_partition", remove_a_moment_late)
    with pytest.raises(AuditError, match=r"unfinished: run .*Nothing was removed"):
        forget(MADE_9, definitions, audited.paths, lambda what: None)
    assert set(instance.get_dynamic_partitions("benchmark")) == set(BENCHMARKS), "the partition was given back"
    assert files(audited) == before


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize(
    "where", ["a file", *(pytest.param(name, marks=pytest.mark.slow) for name in ("erase_lines", "publish"))]
)
@pytest.mark.usefixtures("no_report")
def test_a_removal_that_was_killed_is_finished_by_the_same_command(
    audited: Workspace,
    instance: dg.DagsterInstance,
    definitions: dg.Definitions,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    told(audited.run("report"))
    remove_files = removal_module._remove_files

    def die(*given: object, **options: object) -> None:
        raise Killed

    def remove_all_before_scores(files: Iterable[Path], paths: DataPaths) -> None:
        assert list(instance.get_dynamic_partitions("benchmark")) == ["made_8", "made_10", "made_11"]
        for file in files:
            if "scores" in str(file):
                raise Killed
            remove_files([file], paths)

    with monkeypatch.context() as patch:
        if where == "a file":
            patch.setattr(removal_module, "_remove_files", remove_all_before_scores)
        else:
            patch.setattr(removal_module if where == "erase_lines" else forgetting, where, die)
        with pytest.raises(Killed):
            forget(MADE_9, definitions, audited.paths, lambda what: None)
    # As where the entry was taken out of the configuration before: only the disk knows the name.
    audited.write_benchmarks(made=temporal([8]))
    if where == "publish":
        assert not audited.paths.warehouse.exists(), "what named it is gone already"
        told(audited.run("report"))
    else:
        told(audited.run("forget", "--benchmark", "made_9"))
    assert "made_9" not in queried(audited, "benchmark")
    assert not [name for name in files(audited) if "made_9" in name]
    assert error_of(audited.run("forget", "--benchmark", "made_9")).startswith("Unknown benchmark 'made_9'")


def test_a_dry_run_touches_nothing_and_makes_no_home(workspace: Workspace) -> None:
    workspace.write_benchmarks(made=temporal([8, 9]))
    workspace.fetch(*made_documents(2, 40))
    workspace.build("made")
    before = files(workspace)
    shown = told(workspace.run("forget", "--benchmark", "made_9", "--dry-run"))
    assert re.search(r"examples +2", shown)
    assert shown.splitlines()[-1] == "Nothing was removed."
    assert files(workspace) == before
    assert not workspace.paths.dagster_home.exists()


def test_an_entry_that_is_broken_is_named_by_the_configuration_still(workspace: Workspace) -> None:
    workspace.write_benchmarks(made=temporal([8]))
    workspace.fetch(*made_documents(2, 40))
    workspace.build("made")
    workspace.write_benchmarks(made=temporal([8], sede=1))
    shown = told(workspace.run("forget", "--benchmark", "made_8", "--dry-run"))
    assert "config/benchmarks.yaml still lists " in shown


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)], ids=["", "dry run"])
def test_names_that_nobody_knows(audited: Workspace, dry_run: tuple[str, ...]) -> None:
    error = error_of(audited.run("forget", "--benchmark", "maed_9", *dry_run))
    assert error.startswith("Unknown benchmark 'maed_9': config/benchmarks.yaml, Dagster's partitions and ")
    assert "did you mean made_9" in error
    error = error_of(audited.run("forget", "--model", "quite different", *dry_run))
    assert "there are: gone, tiny" in error


@pytest.mark.parametrize("arguments", [(), ("--model", "tiny", "--benchmark", "made_9")], ids=["neither", "both"])
def test_one_thing_at_a_time(workspace: Workspace, arguments: tuple[str, ...]) -> None:
    result = workspace.run("forget", *arguments)
    assert result.exit_code == 2
    assert "Give either --model or --benchmark." in result.stderr
    assert not workspace.paths.dagster_home.exists()


@pytest.mark.usefixtures("no_report")
def test_an_audit_that_has_begun_keeps_what_it_is_about_to_run(
    partitioned: dg.DagsterInstance, workspace: Workspace, definitions: dg.Definitions
) -> None:
    """Between two of its runs Dagster knows nothing of an audit: there a removal took its partition away."""
    workspace.hold(*made_documents(2, 40))
    refused: dict[str, str] = {}

    def forget_meanwhile(step: str) -> None:
        for target in (MADE_9, TINY, RemovalTarget("benchmark", "made_8")):
            with pytest.raises(AuditError) as error:
                forget(target, definitions, workspace.paths, lambda what: None)
            refused[f"{step.split(':', maxsplit=1)[0]}: {target}"] = str(error.value)

    benchmark = load_benchmarks()["made_9"]
    request = AuditRequest([load_models()["tiny"]], [benchmark], AuditOptions(publish=False))
    with pytest.raises(AuditError, match="Unknown model"):
        forget(RemovalTarget("model", "nobody"), definitions, workspace.paths, lambda what: None)
    audit(request, definitions, workspace.paths, forget_meanwhile)
    assert any(step.startswith("auditing tiny") for step in refused)
    assert all(words.startswith("nothing can be forgotten while an audit uses") for words in refused.values())
    forget(MADE_9, definitions, workspace.paths, lambda what: None)
    assert "made_9" not in partitioned.get_dynamic_partitions("benchmark")


def test_an_audit_does_not_begin_while_something_is_removed(workspace: Workspace) -> None:
    workspace.write_benchmarks(made=temporal([8, 9]))
    with hold_removal_lock(workspace.paths):
        words = error_of(workspace.run("audit", "--model", "tiny", "--benchmark", "made"))
    assert words.startswith("another process forgets something of this data folder")


def test_a_model_by_a_path_that_leads_to_it(
    partitioned: dg.DagsterInstance, workspace: Workspace, definitions: dg.Definitions, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    register(partitioned, models=[str(model)])
    workspace.monkeypatch.chdir(tmp_path)
    plan = plan_to_forget(RemovalTarget("model", "./model"), workspace.paths)
    assert plan.target == RemovalTarget("model", str(model))
    assert plan.had_partition
    assert plan.configured is False


@pytest.mark.usefixtures("no_report")
def test_a_configuration_that_cannot_be_read_does_not_stop_it(
    partitioned: dg.DagsterInstance, workspace: Workspace, definitions: dg.Definitions
) -> None:
    workspace.write_config("models", "models: [")
    assert plan_to_forget(TINY, workspace.paths).configured is None
    with pytest.raises(DataError, match="there are: gone, tiny"):
        plan_to_forget(RemovalTarget("model", "absent"), workspace.paths)
    assert "models.yaml cannot be read" in told(workspace.run("forget", "--model", "gone"))
