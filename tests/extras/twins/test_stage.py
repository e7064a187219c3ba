"""The stage twins: an audit tests the twins of benchmarks in config/stages.yaml, and repeats the test after changes."""

from __future__ import annotations

import json

import pytest
import yaml
from made_workspace import Workspace, made_text

from audit_pipeline.extras.twins.publication_draw import TwinItem, draw_twins, write_published
from audit_pipeline.warehouse.query import query_warehouse

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits", "few_detectors", "no_report")


def test_an_audit_tests_the_twins_of_a_benchmark(workspace: Workspace) -> None:
    items = [
        TwinItem(f"q{n}", f"q{n}", tuple(made_text(f"item {n} version {k}", 10) for k in range(3))) for n in range(12)
    ]
    secrets, shelf = workspace.root / "secrets", workspace.root / "shelf"
    secrets.mkdir()
    shelf.mkdir()
    write_published(shelf / "quiz.jsonl", draw_twins(items, secrets / "quiz_10.json"))
    workspace.write_config("sources", {"local_files": {"path": "../shelf"}})
    quiz = {"builder": "shelf", "description": "mine", "sources": ["local_files"], "on_request": True, "seed": 5}
    quiz |= {"windows_per_document": 1}
    workspace.write_benchmarks(quiz={**quiz, "words": [10]})
    stages = workspace.config / "stages.yaml"
    stages.write_text(yaml.safe_dump({"twins": {"benchmarks": ["quiz_10"], "secrets": str(secrets)}}))

    done = workspace.run("audit", "--model", "tiny", "--benchmark", "quiz_10")
    assert done.exit_code == 0, done.output
    (row,) = query_warehouse(workspace.paths.warehouse, "FROM current_twins").to_pylist()
    assert (row["items"], row["others"], row["detector"]) == (12, 24, "loss")
    (test,) = query_warehouse(workspace.paths.warehouse, "FROM current_corpus_tests WHERE test = 'twins'").to_pylist()
    assert test["p_value"] == row["p_value"]
    again = workspace.run("audit", "--model", "tiny", "--benchmark", "quiz_10", "--dry-run")
    assert "twins" not in again.output

    document = json.loads((secrets / "quiz_10.json").read_text())
    assert len(document["items"]) == 12
    (secrets / "quiz_10.json").unlink()
    draw_twins(items, secrets / "quiz_10.json")
    changed = workspace.run("audit", "--model", "tiny", "--benchmark", "quiz_10", "--dry-run")
    assert "its secret file changed" in changed.output
    # The versions that this file draws are not those that the benchmark has.
    refused = workspace.run("audit", "--model", "tiny", "--benchmark", "quiz_10")
    assert "The secret file belongs to another draw" in refused.output
