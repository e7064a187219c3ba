"""One pair of a range that meets a fault: the others are done, it shows as failed, and it can be run again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest
from grid import read_grid
from made_workspace import Workspace, count_loads

from audit_pipeline.definitions import defs
from audit_pipeline.errors import (
    BudgetError,
    ClusterError,
    ConfigError,
    DataError,
    ModelError,
    NotApplicableError,
    PairsFailedError,
    TransientError,
    UnansweredError,
)
from audit_pipeline.extras.servers.client import RefusedError
from audit_pipeline.extras.servers.dialect_interface import BadAnswerError
from audit_pipeline.pipeline.dagster import partition_step
from audit_pipeline.pipeline.dagster.partitions import register
from audit_pipeline.pipeline.dagster.runs import run_job
from audit_pipeline.pipeline.registry import get_stage
from audit_pipeline.pipeline.stage import PAIR, StageResult, StageRun
from audit_pipeline.pipeline.workspace_state import WorkspaceState
from audit_pipeline.tables import Pair

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits", "few_detectors", "no_report")
RANGE = ("made_8|one", "made_12|two")
OF_ONE = ("made_8|one", "made_12|one")
BROKEN = Pair("made_12", "one")
ASSETS = ("token_statistics", "scores", "evaluations")
PAIRS = {"made_8|one", "made_8|two", "made_12|one", "made_12|two"}
FailWith = Callable[[Exception, int], list[int]]


@pytest.fixture(autouse=True)
def registered(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pair is a partition, and nothing waits between two attempts."""
    register(instance, benchmarks=["made_8", "made_12"], models=["one", "two"])
    monkeypatch.setattr(
        partition_step, "run_with_retries", partial(partition_step.run_with_retries, sleep=lambda seconds: None)
    )


@pytest.fixture
def fail_with(built: Workspace) -> FailWith:
    """Let the token statistics of one pair raise, so many times; returns a list that grows with each."""
    # The asset calls the stage by the name that its module has of it.
    module = __import__("assets.token_statistics", fromlist=["run_passes"])
    run_passes = module.run_passes

    def faulty(error: Exception, times: int) -> list[int]:
        met: list[int] = []

        def run(pair: Pair, *arguments: Any, **options: Any) -> Any:
            if pair == BROKEN and len(met) < times:
                met.append(len(met))
                raise error
            return run_passes(pair, *arguments, **options)

        built.monkeypatch.setattr(module, "run_passes", run)
        return met

    return faulty


def audit(instance: dg.DagsterInstance, **target: Any) -> str:
    return run_job(_audit_pairs(), instance, **(target or {"partition_range": RANGE}))


def done(instance: dg.DagsterInstance, asset: str) -> set[str]:
    return set(instance.get_materialized_partitions(dg.AssetKey(asset)))


def status(instance: dg.DagsterInstance, asset: str, pair: Pair) -> dict[str, Any]:
    wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey(asset), asset_partitions=[pair.partition])
    [record] = instance.fetch_materializations(wanted, limit=1).records
    assert record.asset_materialization is not None
    return {name: entry.value for name, entry in record.asset_materialization.metadata.items()}


def test_the_others_are_done_the_run_fails_for_the_one_and_it_can_be_run_again(
    built: Workspace, instance: dg.DagsterInstance, fail_with: FailWith
) -> None:
    loads = count_loads(built.monkeypatch)
    met = fail_with(RuntimeError("the device fell off the bus"), 1)
    with pytest.raises(PairsFailedError, match=r"1 of 4 pairs failed.*made_12\|one: the device fell off the bus"):
        audit(instance)
    assert met == [0], "a fault that is not transient is not tried again"
    assert loads == ["one", "two"]
    [run] = instance.get_runs()
    assert run.status is dg.DagsterRunStatus.FAILURE
    for asset in ASSETS:
        assert done(instance, asset) == PAIRS - {BROKEN.partition}, "exactly the failed pair is left"
    for pair in (Pair("made_8", "one"), Pair("made_12", "two")):
        assert status(instance, "evaluations", pair)["status"] == "done"
        assert status(instance, "evaluations", pair)["AUROC"].startswith("| detector | AUROC |")
    found = checks(instance, run.run_id)
    failed = [key for key, check in found.items() if not check.passed]
    assert failed == [("token_statistics", "every_pair_ran", BROKEN.partition)], "where it failed, and nowhere else"
    broken = found[failed[0]]
    assert broken.severity is dg.AssetCheckSeverity.ERROR
    assert broken.metadata["failed"].value == 1
    assert "the device fell off the bus" in broken.description
    outcome = WorkspaceState(built.paths).find_latest_outcome(BROKEN)
    assert outcome is not None
    assert (outcome.status, outcome.stage, outcome.run_id) == ("failed", "token_statistics", run.run_id)

    # From failure, what failed is made, and nothing else.
    loads.clear()
    options = dg.ReexecutionOptions.from_failure(run.run_id, instance)
    job = dg.reconstructable(_audit_pairs)
    with dg.execute_job(job, instance, tags=dict(run.tags), reexecution_options=options) as result:
        assert result.success
        made = {(event.asset_key.to_user_string(), event.partition) for event in result.all_events if is_made(event)}
    assert {partition for _, partition in made} == {BROKEN.partition}
    assert set(ASSETS) <= {asset for asset, _ in made}
    assert loads == ["one"]
    assert done(instance, "evaluations") == PAIRS
    assert status(instance, "evaluations", BROKEN)["status"] == "done"
    loads.clear()
    audit(instance)
    assert loads == [], "all of it is in the cache"
    for pair in (BROKEN, Pair("made_8", "two")):
        numbers = status(instance, "token_statistics", pair)
        assert (numbers["texts_computed"], numbers["texts_from_cache"]) == (0, numbers["texts"])


def is_made(event: dg.DagsterEvent) -> bool:
    return event.event_type is dg.DagsterEventType.ASSET_MATERIALIZATION


@pytest.mark.parametrize("failing", ASSETS)
def test_dagster_shows_the_cell_as_failed_where_it_failed_and_as_missing_after_it(
    built: Workspace, instance: dg.DagsterInstance, failing: str
) -> None:
    """By the status that the grid of the UI shows."""
    stage = get_stage(failing)
    make = stage.make

    def fail(run: StageRun) -> StageResult:
        if run.pair == BROKEN:
            raise RuntimeError("the device fell off the bus")
        return make(run)

    built.monkeypatch.setattr(stage, "make", fail)
    with pytest.raises(PairsFailedError):
        audit(instance)
    place = ASSETS.index(failing)
    for number, asset in enumerate(ASSETS):
        made, failed = read_grid(instance, asset)
        assert made == (PAIRS if number < place else PAIRS - {BROKEN.partition}), asset
        assert failed == ({BROKEN.partition} if number == place else set()), asset
    [observed] = instance.fetch_observations(dg.AssetKey(failing), limit=5).records
    assert observed.partition_key == BROKEN.partition
    assert observed.asset_observation is not None
    assert observed.asset_observation.metadata["reason"].value == "the device fell off the bus"


def test_data_versions_of_a_range_are_those_of_each_cell_and_the_same_content_leaves_all_fresh(
    built: Workspace, instance: dg.DagsterInstance
) -> None:
    audit(instance)
    versions = {pair: read_tags(instance, "scores", pair)["dagster/data_version"] for pair in PAIRS}
    assert len(set(versions.values())) == len(PAIRS)
    for pair in PAIRS:
        latest = WorkspaceState(built.paths).find_latest_entry("scores", pair)
        assert latest is not None
        assert versions[pair] == latest.data_version
    assert stale_cells(instance) == set()
    audit(instance, partition_key=BROKEN.partition, selection=[dg.AssetKey("token_statistics")])
    assert stale_cells(instance) == set(), "the content is the same"
    tags = {**read_tags(instance, "token_statistics", "made_8|one"), "dagster/data_version": "another"}
    instance.report_runless_asset_event(dg.AssetMaterialization("token_statistics", partition="made_8|one", tags=tags))
    assert stale_cells(instance) == {("scores", "made_8|one")}


def read_tags(instance: dg.DagsterInstance, asset: str, partition: str) -> dict[str, str]:
    wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey(asset), asset_partitions=[partition])
    [record] = instance.fetch_materializations(wanted, limit=1).records
    assert record.asset_materialization is not None
    return dict(record.asset_materialization.tags or {})


def stale_cells(instance: dg.DagsterInstance) -> set[tuple[str, str]]:
    """The cells of pairs that the UI marks as stale because of their data or code."""
    graph = defs().resolve_asset_graph()
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
        return {
            (asset, pair)
            for asset in ASSETS
            for pair in PAIRS
            if resolver.get_status(dg.AssetKey(asset), dg.MultiPartitionKey(split_pair(pair))) is StaleStatus.STALE
        }


def split_pair(pair: str) -> dict[str, str]:
    return dict(zip(PAIR, pair.split("|"), strict=True))


def checks(instance: dg.DagsterInstance, run_id: str) -> dict[tuple[str, str, str | None], Any]:
    """What became of every check of a run, by asset, check and partition."""
    logs = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    found = [entry.dagster_event.event_specific_data for entry in logs if entry.dagster_event]
    return {
        (one.asset_key.to_user_string(), one.check_name, one.partition): one  # type: ignore[union-attr]
        for one in found
    }


def test_findings_of_an_earlier_run_do_not_pass_for_those_of_a_pair_that_failed(
    built: Workspace, instance: dg.DagsterInstance, fail_with: FailWith
) -> None:
    built.audit("one", "made")
    before = set(built.paths.table("evaluations").rglob("*.parquet"))
    fail_with(RuntimeError("the device fell off the bus"), 1)
    with pytest.raises(PairsFailedError):
        audit(instance, partition_range=OF_ONE)
    [new] = set(built.paths.table("evaluations").rglob("*.parquet")) - before
    assert "made_12%7Cone" not in str(new)


def test_a_transient_fault_is_tried_again_and_leaves_no_trace(
    built: Workspace, instance: dg.DagsterInstance, fail_with: FailWith
) -> None:
    met = fail_with(TransientError("the hub does not answer"), 3)
    audit(instance, partition_key=BROKEN.partition)
    assert met == [0, 1, 2]
    assert status(instance, "token_statistics", BROKEN)["status"] == "done"
    assert WorkspaceState(built.paths).find_latest_outcome(BROKEN) is None


def test_a_pair_that_does_not_apply_fails_no_run_in_a_range_or_alone(
    built: Workspace, instance: dg.DagsterInstance, fail_with: FailWith
) -> None:
    met = fail_with(NotApplicableError("the benchmark is of a control"), 99)
    targets: tuple[dict[str, Any], ...] = ({"partition_range": OF_ONE}, {"partition_key": BROKEN.partition})
    for runs, target in enumerate(targets, start=1):
        audit(instance, **target)
        assert len(met) == runs, "it is not tried again"
        assert done(instance, "evaluations") == set(OF_ONE)
        said = status(instance, "evaluations", BROKEN)
        outcome = WorkspaceState(built.paths).find_latest_outcome(BROKEN)
        assert outcome is not None
        expected = ("not_applicable", "the benchmark is of a control")
        assert (said["status"], said["reason"]) == (outcome.status, outcome.reason) == expected


def test_whatever_the_error_the_pair_failed_in_the_grid_and_on_record(
    built: Workspace, instance: dg.DagsterInstance, fail_with: FailWith
) -> None:
    errors = (
        ModelError("no model at /nowhere"),
        DataError("the benchmark is not fit to be audited"),
        ConfigError("models.yaml cannot be read"),
        BudgetError("the limit of tokens is reached"),
        RefusedError("the key is not accepted", 401, ""),
        BadAnswerError("no log-probabilities"),
        UnansweredError("no answer", 503),
        ClusterError("the Ray cluster cannot be reached"),
        TransientError("the hub does not answer"),
    )
    for error in errors:
        met = fail_with(error, 99)
        with pytest.raises(type(error), match=str(error)):
            audit(instance, partition_key=BROKEN.partition)
        assert len(met) == (partition_step.RETRY_POLICY.attempts if error is errors[-1] else 1), error
        outcome = WorkspaceState(built.paths).find_latest_outcome(BROKEN)
        assert outcome is not None
        assert (outcome.status, outcome.reason) == ("failed", str(error))
    assert done(instance, "evaluations") == set()
    fail_with(errors[0], 99)
    with pytest.raises(PairsFailedError, match=r"1 of 2 pairs failed.*no model at /nowhere"):
        audit(instance, partition_range=OF_ONE)
    assert done(instance, "evaluations") == {"made_8|one"}
    outcome = WorkspaceState(built.paths).find_latest_outcome(BROKEN)
    assert outcome is not None
    assert (outcome.status, outcome.reason) == ("failed", "no model at /nowhere")


def test_models_yaml_is_read_once_a_run(built: Workspace, instance: dg.DagsterInstance, fail_with: FailWith) -> None:
    module = __import__("assets.token_statistics", fromlist=["run_passes"])
    run_passes = module.run_passes

    def break_it(*arguments: Any, **options: Any) -> Any:
        built.write_config("models", "models: [")
        return run_passes(*arguments, **options)

    built.monkeypatch.setattr(module, "run_passes", break_it)
    audit(instance, partition_range=("made_8|one", "made_8|two"))
    assert done(instance, "evaluations") == {"made_8|one", "made_8|two"}
    assert WorkspaceState(built.paths).find_latest_outcome(Pair("made_8", "two")) is None


def test_the_last_stage_alone_does_not_pass_old_scores_off_as_new(
    built: Workspace, instance: dg.DagsterInstance, fail_with: FailWith
) -> None:
    built.audit("one", "made_12")
    text = (built.config / "models.yaml").read_text()
    built.write_config("models", text.replace("one:", "one:\n    start_token_policy: tokenizer", 1))
    fail_with(RuntimeError("the device fell off the bus"), 1)
    with pytest.raises(PairsFailedError):
        audit(instance, partition_key=BROKEN.partition)
    with pytest.raises(DataError, match="of other weights, another start token or older statistics: score it again"):
        audit(instance, partition_key=BROKEN.partition, selection=[dg.AssetKey("evaluations")])


def _audit_pairs() -> dg.JobDefinition:
    return defs().resolve_job_def("audit_pairs")
