"""The assets of controls: trained once, audited only on their own texts, and only on request."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from automation import Automation
from grid import read_grid
from ledger_lines import lineage_rows
from made_workspace import (
    SOURCE,
    Workspace,
    controlled,
    count_loads,
    made_documents,
    partitions_of_controls,
    temporal,
    tiny_control,
)

from audit_pipeline.definitions import defs
from audit_pipeline.errors import DataError
from audit_pipeline.extras.controls.config import load_controls
from audit_pipeline.extras.controls.draw import compute_control_version
from audit_pipeline.models.config import load_models
from audit_pipeline.pipeline.dagster.audit import prepare_scope
from audit_pipeline.pipeline.dagster.partitions import register_partitions
from audit_pipeline.pipeline.dagster.runs import Runner, run_job
from audit_pipeline.pipeline.workspace_state import Scope, WorkspaceState
from audit_pipeline.store.control_files import read_control
from audit_pipeline.store.ledger import read_latest_run
from audit_pipeline.store.store import compute_documents_version, read_documents
from audit_pipeline.tables import Pair

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits", "no_report")
CONTROL = "check"


@pytest.fixture
def workspace(workspace: Workspace, tiny_folder: Callable[[str], Path]) -> Iterator[Workspace]:
    """Yield a workspace with a control and its two models, and two models and a benchmark without a control."""
    workspace.write_models(
        one={"path": tiny_folder("llama")},
        exposed={"control": {"name": CONTROL, "role": "exposed"}},
        twin={"control": {"name": CONTROL, "role": "twin"}},
        two={"path": tiny_folder("gpt_neox")},
    )
    workspace.write_benchmarks(known=controlled(CONTROL), made=temporal([8]))
    workspace.write_config("controls", {"controls": {CONTROL: tiny_control()}})
    workspace.hold(*made_documents(5, 40))
    with partitions_of_controls():
        yield workspace


def train(instance: dg.DagsterInstance) -> str:
    return run_job(defs().resolve_job_def("train_controls"), instance, partition_key=CONTROL)


def materialized(instance: dg.DagsterInstance, asset: str) -> tuple[str | None, dict[str, Any]]:
    """Return the data version and the metadata of an asset's latest materialisation."""
    event = instance.get_latest_materialization_event(dg.AssetKey(asset))
    assert event is not None
    assert event.asset_materialization is not None
    one = event.asset_materialization
    return (one.tags or {}).get("dagster/data_version"), {name: entry.value for name, entry in one.metadata.items()}


def check_of(instance: dg.DagsterInstance, run_id: str) -> Any:
    """Return the result of the only check of a run."""
    logs = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    found = [entry.dagster_event.event_specific_data for entry in logs if entry.dagster_event is not None]
    [check] = [one for one in found if one.check_name != "values_in_limits"]  # type: ignore[union-attr]
    return check


def ensure(workspace: Workspace, instance: dg.DagsterInstance) -> list[str]:
    """Prepare the control's models for an audit, and return the products that were made."""
    runner = Runner(defs().resolve_job_def, instance, workspace.paths, lambda what: None)
    brought = prepare_scope(Scope(models=("exposed",)), runner, models=[load_models()["exposed"]])
    assert not brought.errors
    return list(brought.runs)


def test_a_control_is_trained_once_and_its_version_is_that_of_its_entry_and_documents(
    workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    assert ensure(workspace, instance) == [f"documents/{SOURCE}", f"controlled_contamination/{CONTROL}"]
    [run] = instance.get_runs(dg.RunsFilter(job_name="train_controls"))
    found = check_of(instance, run.run_id)
    assert (found.check_name, found.passed) == ("training_converged", True)
    version, said = materialized(instance, "controlled_contamination")
    documents = compute_documents_version(read_documents(workspace.paths, SOURCE))
    assert version == compute_control_version(load_controls()[CONTROL], {SOURCE: documents})
    assert (said["dagster/row_count"], said["trained now"]) == (72, True)
    [written] = [row for row in lineage_rows(workspace.paths) if row["table"] == "controls"]
    assert (written["run_id"], written["data_version"]) == (run.run_id, version)
    assert json.loads(written["upstream_data_versions"]) == {f"documents/{SOURCE}": documents}

    assert ensure(workspace, instance) == []
    workspace.write_config("controls", {"controls": {CONTROL: tiny_control(epochs=1, seed=6)}})
    assert ensure(workspace, instance) == [f"controlled_contamination/{CONTROL}"]
    assert materialized(instance, "controlled_contamination")[0] != version
    assert read_control(CONTROL, workspace.paths)["settings"]["seed"] == 6


def test_the_check_reports_a_training_that_did_not_converge(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    workspace.fetch(*made_documents(5, 40))
    workspace.write_config("controls", {"controls": {CONTROL: tiny_control(epochs=1, learning_rate=1.0)}})
    found = check_of(instance, train(instance))
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.ERROR)
    said = {name: entry.value for name, entry in found.metadata.items()}
    vocabulary = read_control(CONTROL, workspace.paths)["vocabulary"]
    assert said["must be below"] == pytest.approx(0.9 * math.log(vocabulary), abs=1e-3)
    assert said["loss of the last epoch"]["exposed"] > said["must be below"]


@pytest.mark.slow
def test_members_are_detected_in_the_exposed_model_and_not_in_its_twin(workspace: Workspace) -> None:
    result = workspace.run("control", CONTROL)
    assert result.exit_code == 0, result.output
    assert result.stderr.count("training the control check") == 1
    found: dict[str, dict[str, float]] = {}
    for row in workspace.query("FROM leaderboard_history WHERE is_latest AND benchmark = 'known_12'"):
        found.setdefault(row["model"], {})[row["detector"]] = row["auroc"]
    assert set(found) == {"exposed", "twin"}
    for detector in ("loss", "min_k", "min_k_plus_plus"):
        assert found["exposed"][detector] > 0.9
        assert 0.2 < found["twin"][detector] < 0.8
    # The line says just that, to two digits.
    [line] = [line for line in result.stdout.splitlines() if line.startswith("Instrument check: AUROC of members")]
    for model in ("exposed", "twin"):
        assert f"min_k {found[model]['min_k']:.2f}, min_k_plus_plus {found[model]['min_k_plus_plus']:.2f}" in line
    rows = workspace.query("SELECT DISTINCT model, split_verdict FROM leaderboard_history WHERE is_latest")
    assert {row["model"]: row["split_verdict"] for row in rows} == dict.fromkeys(found, "randomised by design")
    assert [run.job_name for run in workspace.runs()].count("publish") == 1, "once for both audits"
    runs = len(workspace.runs())
    again = workspace.run("control", CONTROL)
    assert again.exit_code == 0, again.output
    assert line in again.stdout
    assert again.stderr.count("everything is up to date") == 2
    assert len(workspace.runs()) == runs, "neither audited nor published again"


@pytest.fixture
def prepared(workspace: Workspace, instance: dg.DagsterInstance) -> Workspace:
    """Return the workspace with a control trained for one epoch and both benchmarks built."""
    workspace.fetch(*made_documents(5, 40))
    workspace.write_config("controls", {"controls": {CONTROL: tiny_control(epochs=1)}})
    train(instance)
    workspace.build("known")
    workspace.build("made")
    register_partitions(instance, benchmarks=["known_12", "made_8"], models=["exposed", "one"])
    return workspace


def test_pairs_of_another_control_are_not_applicable_and_cost_no_pass(
    prepared: Workspace, instance: dg.DagsterInstance
) -> None:
    reasons = {
        Pair("known_12", "one"): "the labels of known_12 are valid only for the models of the control check, "
        "and not for one",
        Pair(
            "made_8", "exposed"
        ): "exposed was trained on this machine on the texts of the control check. Audit it on these texts.",
    }
    job = defs().resolve_job_def("audit_pairs")
    run_job(job, instance, partition_range=("known_12|one", "made_8|one"))
    parts = prepared.parts()
    assert len(parts) == 1, "of the texts of made_8 alone"
    assert read_latest_run(prepared.paths, "evaluations", "made_8|one")

    # Alone as well; no weights are read for it.
    loads = count_loads(prepared.monkeypatch)
    for pair, reason in reasons.items():
        run_job(job, instance, partition_key=pair.partition)
        outcome = WorkspaceState(prepared.paths).find_latest_outcome(pair)
        assert outcome is not None
        assert (outcome.status, outcome.stage, outcome.reason) == ("not_applicable", "token_statistics", reason)
        with pytest.raises(DataError, match="there are no scores"):
            read_latest_run(prepared.paths, "scores", pair.partition)
    assert (loads, prepared.parts()) == ([], parts)

    # From the page of an asset that follows: not applicable is never failed.
    for asset in ("scores", "evaluations", "extraction"):
        run_job(job, instance, partition_key="known_12|one", selection=[dg.AssetKey(asset)])
        assert read_grid(instance, asset)[1] == set()
    register_partitions(instance, models=["two"])
    with pytest.raises(DataError, match=r"there are no scores of made_8\|two yet.*the asset scores"):
        run_job(job, instance, partition_key="made_8|two", selection=[dg.AssetKey("evaluations")])


def test_a_reference_model_is_not_run_for_a_pair_that_is_not_applicable(
    prepared: Workspace, instance: dg.DagsterInstance, tiny_folder: Callable[[str], Path]
) -> None:
    prepared.write_models(
        one={"path": tiny_folder("llama"), "reference_model": "two"}, two={"path": tiny_folder("gpt_neox")}
    )
    loads = count_loads(prepared.monkeypatch)
    run_job(defs().resolve_job_def("audit_pairs"), instance, partition_key="known_12|one")
    assert (loads, prepared.parts()) == ([], [])


def test_sensors_request_no_control_and_nothing_on_request(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    """The command line has registered a control's model between two others: a range over them would take it along."""
    workspace.fetch(*made_documents(5, 40))
    workspace.write_benchmarks(known=controlled(CONTROL), made=temporal([8]))
    instance.add_dynamic_partitions("benchmark", ["made_8", "known_12"])
    instance.add_dynamic_partitions("model", ["one", "exposed", "two"])
    automation = Automation(instance)
    assert automation.tick() == {}
    asked_for = temporal([16], on_request=True, sources=["sotu"])
    edited = temporal([8], member_before=date(2021, 6, 1))
    workspace.write_benchmarks(known=controlled(CONTROL), made=edited, asked=asked_for)
    assert automation.tick() == {"made_8": "benchmark+split_quality"}
    assert instance.get_dynamic_partitions("benchmark") == ["made_8", "known_12"]
    automation.observe()
    assert {run.cells for run in automation.evaluate()} == {"made_8|one", "made_8|two"}
    assert instance.get_dynamic_partitions("model") == ["one", "exposed", "two"]


def test_a_model_of_another_control_is_refused_before_training(workspace: Workspace) -> None:
    for model, benchmark in (("one", "known"), ("exposed", "made")):
        result = workspace.run("audit", "--model", model, "--benchmark", benchmark)
        assert result.exit_code == 2
        assert "do not belong together" in result.stderr
    assert not workspace.paths.control_pointer(CONTROL).exists()
