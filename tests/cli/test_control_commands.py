"""`corpus-audit control` and `study`: what can be run, and what a study ends with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_results import answered, error_of, texts_file, told
from made_workspace import (
    SOURCE,
    Workspace,
    controlled,
    made_documents,
    partitions_of_controls,
    temporal,
    tiny_control,
)

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits")


@pytest.fixture
def with_control(workspace: Workspace) -> Iterator[Workspace]:
    """A control with one of its models, a benchmark, and a study of it; nothing is trained."""
    folder = workspace.model("tiny").located.folder
    workspace.write_models(tiny={"path": folder}, exposed={"control": {"name": "check", "role": "exposed"}})
    workspace.write_benchmarks(known=controlled("check"), made=temporal([8], on_request=True))
    lone = tiny_control(description="without a model")
    workspace.write_config("controls", {"controls": {"check": tiny_control(epochs=1), "lone": lone}})
    study = {"description": "made up", "control": "check", "vary": {"occurrences": [1, 2]}, "detectors": ["loss"]}
    workspace.write_config("studies", {"studies": {"rates": study}})
    workspace.hold(*made_documents(5, 40))
    with partitions_of_controls():
        yield workspace


def test_unusable_controls_and_studies_are_refused(with_control: Workspace, tmp_path: Path) -> None:
    texts = ("--texts", str(texts_file(tmp_path, "a text")), "--out", str(tmp_path / "o.parquet"))
    for arguments, message in (
        (("control", "chekc"), "there is no control 'chekc' in config/controls.yaml; did you mean check?"),
        (("control",), "there is no control 'instrument_check' in config/controls.yaml; configured: check, lone"),
        (("control", "lone"), "The control lone has no model or no benchmark. Add its models to config/models.yaml"),
        (("study", "rate"), "there is no study 'rate' in config/studies.yaml; did you mean rates?"),
        (("score", "--model", "exposed", *texts), "exposed has not been trained yet. Run: corpus-audit control check"),
    ):
        assert message in error_of(with_control.run(*arguments))
    assert not with_control.runs()


def test_all_excludes_benchmarks_on_request_and_a_dry_run_trains_nothing(with_control: Workspace) -> None:
    shown = told(with_control.run("audit", "--model", "tiny", "--benchmark", "all", "--dry-run"))
    assert "known_12" not in shown
    assert "made_8" not in shown
    error = error_of(with_control.run("audit", "--model", "tiny", "--benchmark", "known", "--dry-run"))
    assert "do not belong together" in error
    first = answered(with_control.run("audit", "--model", "exposed", "--benchmark", "known", "--dry-run", "--json"))
    assert ("controlled_contamination", "check") in [(step["step"], step["what"]) for step in first["first"]]
    assert not with_control.paths.control_pointer("check").exists()
    lines = told(with_control.run("models")).splitlines()
    assert any(line.split()[:4] == ["exposed", "control", "check:", "exposed"] for line in lines)


@pytest.mark.usefixtures("no_report")
def test_a_study_ends_with_its_numbers(with_control: Workspace) -> None:
    result = with_control.run("study", "rates")
    shown = told(result)
    steps = [line for line in result.stderr.splitlines() if line.startswith("• ")]
    assert steps == [f"• fetching documents: {SOURCE}", "• rebuilding warehouse and report"]
    rows = [line.split() for line in shown.splitlines() if line.startswith("occurrences")]
    assert [row[1:4] for row in rows if row[3] == "loss"] == [["1", "5", "loss"], ["2", "5", "loss"]]
    assert f"Report: {with_control.paths.report}" in shown
    assert with_control.paths.study("rates").exists()
    again = json.loads(told(with_control.run("study", "rates", "--json")))
    assert [(row["value"], row["seed"], row["detector"]) for row in again["study"] if row["detector"] == "loss"] == [
        ("1", 5, "loss"),
        ("2", 5, "loss"),
    ]
    assert all(row["auroc"] is None or isinstance(row["auroc"], float) for row in again["study"])
    assert not with_control.paths.control_pointer("check").exists(), "a study's models are thrown away"
