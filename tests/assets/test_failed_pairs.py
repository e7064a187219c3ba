"""A failed pair of a range: the others are done, the cell is shown as failed, and it can be run again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import dagster as dg
import pytest
from grid import find_stale, read_grid
from made_workspace import Workspace, count_loads

from assets import token_statistics
from audit_pipeline.definitions import defs
from audit_pipeline.errors import (
    BudgetError,
    DataError,
    ModelError,
    NotApplicableError,
    PairsFailedError,
    TransientError,
    UnansweredError,
)
from audit_pipeline.extras.servers.client import RefusedError
from audit_pipeline.pipeline.dagster import partition_step
from audit_pipeline.pipeline.dagster.partitions import register_partitions
from audit_pipeline.pipeline.dagster.runs import run_job
from audit_pipeline.pipeline.registry import get_stage
from audit_pipeline.pipeline.stage import StageResult, StageRun
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
    """Register every pair as a partition, and remove the waits between attempts."""
    register_partitions(instance, benchmarks=["made_8", "made_12"], models=["one", "two"])
    monkeypatch.setattr(
        partition_step, "run_with_retries", partial(partition_step.run_with_retries, sleep=lambda seconds: None)
    )


@pytest.fixture
def fail_with(built: Workspace) -> FailWith:
    """Return a function that makes the token statistics of one pair raise, and returns the list of failures."""
    run_passes = token_statistics.run_passes

    def faulty(error: Exception, times: int) -> list[int]:
        met: list[int] = []

        def run(pair: Pair, *arguments: Any, **options: Any) -> Any:
            if pair == BROKEN and len(met) < times:
                met.append(len(met))
                raise error
            return run_passes(pair, *arguments, **options)

        built.monkeypatch.setattr(token_statistics, "run_passes", run)
        return met

    return faulty


def audit(instance: dg.DagsterInstance, **target: Any) -> str:
    return run_job(_audit_pairs(), instance, **(target or {"partition_range": RANGE}))


def done(instance: dg.DagsterInstance, asset: str) -> set[str]:
    return set(instance.get_materialized_partitions(dg.AssetKey(asset)))


def read_latest(instance: dg.DagsterInstance, asset: str, partition: str) -> Any:
    """Return the latest materialisation of a cell."""
    wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey(asset), asset_partitions=[partition])
    [record] = instance.fetch_materializations(wanted, limit=1).records
    return record.asset_materialization


def status(instance: dg.DagsterInstance, asset: str, pair: Pair) -> dict[str, Any]:
    """Return the metadata of the latest materialisation of a cell."""
    return {name: entry.value for name, entry in read_latest(instance, asset, pair.partition).metadata.items()}


def test_one_failed_pair_fails_the_run_and_only_it_is_run_again(
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
    logs = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    evaluations: list[Any] = [entry.dagster_event.event_specific_data for entry in logs if entry.dagster_event]
    [broken] = [check for check in evaluations if not check.passed]
    assert (broken.asset_key, broken.check_name, broken.partition) == (
        dg.AssetKey("token_statistics"),
        "every_pair_ran",
        BROKEN.partition,
    )
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
        made = {
            (event.asset_key.to_user_string(), event.partition)
            for event in result.all_events
            if event.event_type is dg.DagsterEventType.ASSET_MATERIALIZATION
        }
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


@pytest.mark.parametrize("failing", ASSETS[:2])
def test_dagster_shows_the_failed_cell_as_failed_and_later_cells_as_missing(
    built: Workspace, instance: dg.DagsterInstance, failing: str
) -> None:
    """The status is that of the grid in the UI."""
    stage = get_stage(failing)
    make = stage.make

    def fail(run: StageRun) -> StageResult:
        if run.pair == BROKEN:
            raise RuntimeError("the device fell off the bus")
        return make(run)

    built.monkeypatch.setattr(stage, "make", fail)
    with pytest.raises(PairsFailedError):
        audit(instance, partition_range=OF_ONE)
    place = ASSETS.index(failing)
    for number, asset in enumerate(ASSETS):
        made, failed = read_grid(instance, asset)
        assert made == ({*OF_ONE} if number < place else {*OF_ONE} - {BROKEN.partition}), asset
        assert failed == ({BROKEN.partition} if number == place else set()), asset
    [observed] = instance.fetch_observations(dg.AssetKey(failing), limit=5).records
    assert observed.partition_key == BROKEN.partition
    assert observed.asset_observation is not None
    assert observed.asset_observation.metadata["reason"].value == "the device fell off the bus"


def test_each_cell_of_a_range_has_its_own_data_version_and_the_same_content_leaves_all_fresh(
    built: Workspace, instance: dg.DagsterInstance
) -> None:
    audit(instance, partition_range=OF_ONE)
    versions = {pair: read_latest(instance, "scores", pair).tags["dagster/data_version"] for pair in OF_ONE}
    assert len(set(versions.values())) == len(OF_ONE)
    for pair in OF_ONE:
        latest = WorkspaceState(built.paths).find_latest_entry("scores", pair)
        assert latest is not None
        assert versions[pair] == latest.data_version

    def find_all_stale() -> dict[str, list[str]]:
        stale = {asset: list(find_stale(instance, asset)) for asset in ASSETS}
        return {asset: pairs for asset, pairs in stale.items() if pairs}

    assert find_all_stale() == {}
    audit(instance, partition_key=BROKEN.partition, selection=[dg.AssetKey("token_statistics")])
    assert find_all_stale() == {}, "the content is the same"
    tags = {**read_latest(instance, "token_statistics", "made_8|one").tags, "dagster/data_version": "another"}
    instance.report_runless_asset_event(dg.AssetMaterialization("token_statistics", partition="made_8|one", tags=tags))
    assert find_all_stale() == {"scores": ["made_8|one"]}


def test_earlier_findings_are_not_those_of_a_failed_pair(
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


def test_every_kind_of_error_fails_the_pair_in_the_grid_and_on_record(
    built: Workspace, instance: dg.DagsterInstance, fail_with: FailWith
) -> None:
    errors = (
        ModelError("no model at /nowhere"),
        BudgetError("the next request could exceed the limit of tokens"),
        RefusedError("the key is not accepted", 401, ""),
        UnansweredError("no answer", 503),
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


def test_models_yaml_is_read_once_per_run(built: Workspace, instance: dg.DagsterInstance, fail_with: FailWith) -> None:
    run_passes = token_statistics.run_passes

    def break_it(*arguments: Any, **options: Any) -> Any:
        built.write_config("models", "models: [")
        return run_passes(*arguments, **options)

    built.monkeypatch.setattr(token_statistics, "run_passes", break_it)
    audit(instance, partition_range=("made_8|one", "made_8|two"))
    assert done(instance, "evaluations") == {"made_8|one", "made_8|two"}
    assert WorkspaceState(built.paths).find_latest_outcome(Pair("made_8", "two")) is None


def test_the_last_stage_alone_refuses_outdated_scores(
    built: Workspace, instance: dg.DagsterInstance, fail_with: FailWith
) -> None:
    built.audit("one", "made_12")
    text = (built.config / "models.yaml").read_text()
    built.write_config("models", text.replace("one:", "one:\n    start_token_policy: tokenizer", 1))
    fail_with(RuntimeError("the device fell off the bus"), 1)
    with pytest.raises(PairsFailedError):
        audit(instance, partition_key=BROKEN.partition)
    with pytest.raises(DataError, match="with other weights, another start token or older token statistics"):
        audit(instance, partition_key=BROKEN.partition, selection=[dg.AssetKey("evaluations")])


def _audit_pairs() -> dg.JobDefinition:
    return defs().resolve_job_def("audit_pairs")
