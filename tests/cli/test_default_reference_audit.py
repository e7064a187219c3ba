"""`corpus-audit audit` and `score` of fine-tuned models, whose reference model is the model before fine-tuning."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from made_workspace import Workspace, count_loads
from tiny_models import save_adapter, save_model

from audit_pipeline.extras.evidence_packs.pack import write_pack
from audit_pipeline.extras.evidence_packs.verify import verify_pack
from audit_pipeline.models.config import load_models
from audit_pipeline.pipeline.plan import find_pair_state
from audit_pipeline.pipeline.registry import MODEL_STAGES
from audit_pipeline.pipeline.stage import PAIR
from audit_pipeline.pipeline.whole_configuration import build_configured_planner, load_configuration
from audit_pipeline.pipeline.workspace_creation import resolve_workspace_model
from audit_pipeline.pipeline.workspace_state import Scope
from audit_pipeline.store.files import read_table
from audit_pipeline.store.ledger import read_latest_run
from audit_pipeline.tables import SCORES, Pair

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits", "no_report")


def read_statuses(workspace: Workspace, pair: Pair) -> dict[str, set[str]]:
    run = read_latest_run(workspace.paths, "scores", pair.partition).run_id
    rows = read_table(workspace.paths.run_file("scores", pair.partition, run), SCORES, label="scores").to_pylist()
    statuses: dict[str, set[str]] = {"reference": set(), "error_zone": set()}
    for row in rows:
        if row["detector"] in statuses:
            statuses[row["detector"]].add(row["status"])
    return statuses


def find_references(workspace: Workspace, pair: Pair) -> list[str]:
    upstream = read_latest_run(workspace.paths, "scores", pair.partition).upstream
    return [name for name in upstream if name.startswith("reference_model/")]


def find_reason(workspace: Workspace, pair: Pair) -> str | None:
    """Return the reason why sensors, which load no model, would audit a pair, or None if it is done."""
    planner = build_configured_planner(load_configuration(), workspace.paths)
    stages = [stage for stage in MODEL_STAGES if stage.dimensions == PAIR]
    made = planner.plan(Scope(pairs=(pair,)), stages)
    state = find_pair_state(stages, made, planner.get_product_state, pair)
    return None if state.status == "done" else state.reason


def test_an_adapter_is_compared_with_its_base_without_further_settings(
    workspace: Workspace, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    pytest.importorskip("peft")
    base = tiny_folder("llama")
    adapter = save_adapter(tmp_path / "adapter", base)
    workspace.write_models(tuned={"path": base, "adapter": {"path": str(adapter)}})
    pair = Pair("made_8", "tuned")
    loads = count_loads(workspace.monkeypatch)
    audit = ["audit", "--model", "tuned", "--benchmark", "made_8"]
    result = workspace.run(*audit)
    assert result.exit_code == 0, result.output
    assert loads == ["base of tuned"], "the base stays in memory for its adapter"
    assert read_statuses(workspace, pair) == {"reference": {"ok"}, "error_zone": {"ok"}}
    assert find_references(workspace, pair) == ["reference_model/base of tuned"]
    again = workspace.run(*audit)
    assert "everything is up to date, so nothing is run" in again.stderr
    assert find_reason(workspace, pair) is None

    # Everybody can verify the pack, although its entry has no adapter.
    file = tmp_path / "pack.zip"
    write_pack(
        file, [pair], workspace.model("tuned"), load_configuration(), workspace.paths, on_step=lambda words: None
    )
    checks = list(verify_pack(file, rerun=None, certificates=None, on_step=lambda words: None))
    assert [check for check in checks if check.ok is False] == []

    # The base has an entry now, whose files are the same: nothing is run, but the scores have another reference model.
    workspace.write_models(tuned={"path": base, "adapter": {"path": str(adapter)}}, plain={"path": base})
    assert find_reason(workspace, pair) is not None
    result = workspace.run(*audit)
    assert result.exit_code == 0, result.output
    assert loads == ["base of tuned"]
    assert find_references(workspace, pair) == ["reference_model/plain"]
    assert find_reason(workspace, pair) is None

    workspace.write_models(tuned={"path": base, "adapter": {"path": str(adapter)}, "reference_model": None})
    told = workspace.run(*audit, "--dry-run")
    assert "the reference model changed" in told.output


def test_an_adapter_by_its_path_is_compared_with_its_base(
    workspace: Workspace, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    pytest.importorskip("peft")
    adapter = save_adapter(tmp_path / "adapter", tiny_folder("llama"))
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": f"The harbour was quiet on day {day}."}) + "\n" for day in range(3)))
    detectors = ["--detectors", "reference,error_zone"]
    result = workspace.run("score", "--model", adapter, "--texts", texts, "--out", tmp_path / "out.parquet", *detectors)
    assert result.exit_code == 0, result.output
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert {(row["detector"], row["status"]) for row in rows} == {("reference", "ok"), ("error_zone", "ok")}


def test_checkpoints_are_compared_with_the_first_one(workspace: Workspace, tmp_path: Path) -> None:
    for step in (1, 2):
        save_model(tmp_path / "runs" / f"step{step}", seed=step)
    workspace.write_models(mine={"series": {"folder": str(tmp_path / "runs")}})
    result = workspace.run("audit", "--model", "mine", "--benchmark", "made_8")
    assert result.exit_code == 0, result.output
    first = Pair("made_8", "mine@step1")
    second = Pair("made_8", "mine@step2")
    assert read_statuses(workspace, first) == {"reference": {"not_applicable"}, "error_zone": {"not_applicable"}}
    assert read_statuses(workspace, second) == {"reference": {"ok"}, "error_zone": {"ok"}}
    assert find_references(workspace, second) == ["reference_model/mine@step1"]
    assert (find_reason(workspace, first), find_reason(workspace, second)) == (None, None)
    again = workspace.run("audit", "--model", "mine", "--benchmark", "made_8")
    assert "everything is up to date, so nothing is run" in again.stderr


def test_a_fine_tuned_model_is_compared_with_its_base(workspace: Workspace, tmp_path: Path) -> None:
    tuned = save_model(tmp_path / "tuned", seed=3)
    base = save_model(tmp_path / "base", seed=4)
    workspace.write_models(tuned={"path": tuned, "base": "plain"}, plain={"path": base})
    [row, _] = json.loads(workspace.run("models", "--json").stdout)["models"]
    assert (row["model"], row["reference_model"]) == ("tuned", "plain")
    result = workspace.run("audit", "--model", "tuned", "--benchmark", "made_8")
    assert result.exit_code == 0, result.output
    assert find_references(workspace, Pair("made_8", "tuned")) == ["reference_model/plain"]
    assert find_reason(workspace, Pair("made_8", "tuned")) is None


def test_a_checked_model_takes_its_base_along(workspace: Workspace, tmp_path: Path) -> None:
    save_model(tmp_path / "runs" / "step1", seed=1)
    save_model(tmp_path / "runs" / "step2", seed=2)
    workspace.write_models(
        mine={"series": {"folder": str(tmp_path / "runs")}},
        first={"path": "weights/first"},
        second={"path": "weights/second", "base": "first"},
        third={"path": "weights/third", "base": "second", "reference_model": "mine@step2"},
    )
    _, needed = resolve_workspace_model("third", tmp_path / "made")
    assert set(needed) == {"third", "second", "first", "mine@step1", "mine@step2"}
    assert needed["mine@step2"] == {"path": str(tmp_path / "runs/step2"), "base": "mine@step1"}
    workspace.write_models(**needed)
    found = load_models()
    assert load_configuration().models.problems == ()
    assert {name: entry.detector_reference for name, entry in found.items()} == {
        "third": "mine@step2",
        "second": "first",
        "first": None,
        "mine@step2": "mine@step1",
        "mine@step1": None,
    }
