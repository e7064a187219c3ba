"""`corpus-audit audit` of a series: one run, one load of the base model, and the series in the report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from made_workspace import Workspace, count_loads
from tiny_models import save_adapter

from audit_pipeline.store.files import read_json

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits")


@pytest.mark.slow
@pytest.mark.usefixtures("few_detectors")
def test_a_series_of_adapters_is_audited_in_one_run(
    workspace: Workspace, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    pytest.importorskip("peft")
    base = tiny_folder("llama")
    for step in (20, 5):
        save_adapter(tmp_path / "runs" / f"checkpoint-{step}", base, seed=step)
    series = {"folder": str(tmp_path / "runs"), "tokens_per_step": 100}
    workspace.write_models(tuned={"path": base, "series": series, "reference_model": None})
    loads = count_loads(workspace.monkeypatch)
    result = workspace.run("audit", "--model", "tuned", "--benchmark", "made", "--json")
    assert result.exit_code == 0, result.output
    assert loads == ["tuned@checkpoint-5"]
    assert "auditing 2 models of tuned on made_8, made_12" in result.stderr
    assert {row["model"] for row in json.loads(result.stdout)["findings"]} == {
        "tuned@checkpoint-5",
        "tuned@checkpoint-20",
    }
    assert len([run for run in workspace.runs() if run.job_name == "audit_pairs"]) == 1
    again = workspace.run("audit", "--model", "tuned", "--benchmark", "made")
    assert "2 models of tuned on made_8, made_12: everything is up to date, so nothing is run" in again.stderr
    page = read_json(workspace.paths.reports / "contamination_report.json")["series"]
    assert [(row["series"], row["benchmark"]) for row in page] == [("tuned", "made_12"), ("tuned", "made_8")]
    assert [(point["place"], point["tokens"]) for point in page[0]["points"]] == [("step 5", 500), ("step 20", 2000)]
    html = (workspace.paths.reports / "contamination_report.html").read_text(encoding="utf-8")
    assert "tuned on made_8, by checkpoint" in html
    refused = workspace.run("score", "--model", "tuned", "--texts", base / "config.json", "--out", tmp_path / "out")
    assert refused.exit_code != 0
    assert "tuned is a series of 2 models" in refused.stderr
