"""Audits on request: unlabelled local files, and chunks in their context."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pytest
from made_workspace import Workspace, made_text
from tiny_models import forward_of, twin_statistics

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.store.files import read_table
from audit_pipeline.store.ledger import read_latest_run
from audit_pipeline.tables import SCORES, Pair
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.warehouse.query import query_warehouse

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits")


def jsonl(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def fill_a_shelf(folder: Path) -> None:
    """Write a text, rows of two books and of none, and four unusable parts."""
    folder.mkdir()
    (folder / "essay.txt").write_text(made_text("essay", 25))
    (folder / "café.txt").write_bytes("un café noir".encode("latin-1"))
    (folder / "cover.png").write_bytes(b"\x89PNG")
    rows = [{"text": made_text(f"page {number}", 20), "book": f"book {number % 2}"} for number in range(4)]
    (folder / "books.jsonl").write_text(jsonl(*rows, {"text": made_text("loose", 20)}) + '{"text": "bro')


@pytest.mark.usefixtures("few_detectors")
def test_an_unlabelled_benchmark_has_scores_without_metrics_and_names_bad_files(workspace: Workspace) -> None:
    fill_a_shelf(workspace.root / "shelf")
    workspace.write_config("sources", {"local_files": {"path": "../shelf", "group_column": "book"}})
    shelf = {"builder": "shelf", "description": "mine", "sources": ["local_files"], "windows_per_document": 9}
    workspace.write_benchmarks(shelf={**shelf, "on_request": True, "words": [10], "seed": 5})

    result = workspace.run("audit", "--model", "tiny", "--benchmark", "shelf_10")
    assert result.exit_code == 0, result.output
    assert "• local_files: café.txt could not be fetched: " in result.stderr
    assert "invalid UTF-8 at byte 7" in result.stderr
    [line] = [line for line in result.stderr.splitlines() if "were skipped" in line]
    assert line.startswith("• local_files: 3 part(s) were skipped, the first is books.jsonl#")
    assert "shelf_10: No conclusion: there are no comparison documents." in result.stdout
    assert "59 comparison documents are needed for a single document to score high" in result.stdout

    rows = query_warehouse(workspace.paths.warehouse, "FROM scores_with_examples WHERE detector = 'loss'").to_pylist()
    assert [row["status"] for row in rows] == ["ok"] * 10, "2 windows of the essay, 2 of each page"
    assert {row["label"] for row in rows} == {None}
    assert {row["group"] for row in rows} == {"book 0", "book 1", "local_files:local:essay.txt"}
    assert query_warehouse(workspace.paths.warehouse, "FROM leaderboard").num_rows == 0
    assert query_warehouse(workspace.paths.warehouse, "FROM evaluations").num_rows == 0
    assert query_warehouse(workspace.paths.warehouse, "FROM lineage_gaps").num_rows == 0
    assert read_built(workspace.paths, "shelf_10").manifest["counts"]["unlabelled"] == 10
    with workspace.instance() as instance:
        event = instance.get_latest_materialization_event(dg.AssetKey("evaluations"))
    assert event is not None
    assert event.asset_materialization is not None
    reason = event.asset_materialization.metadata["reason"].value
    assert "no example of the evaluation split has a label" in str(reason)
    assert "shelf_10" in workspace.paths.report.read_text(encoding="utf-8")


def logprobs_behind(model: TokenizedModel, forward: ForwardPass, before: str, text: str) -> np.ndarray:
    """Compute the log-probabilities of the tokens of ``text`` after ``before`` in one pass."""
    ends = [end for _, end in model.tokenizer.encode([before + text], add_special_tokens=True)[0].offsets]
    logprob = twin_statistics(model, forward, before + text)["logprob"]
    assert len(ends) == len(logprob)
    return np.asarray([one for one, end in zip(logprob, ends, strict=True) if end > len(before)])


def test_a_chunk_is_scored_in_all_of_its_context(workspace: Workspace) -> None:
    rows = [{"input": made_text(f"article {number}", 8), "label": number % 2} for number in range(6)]
    (workspace.config / "Rows.jsonl").write_text(jsonl(*rows))
    online = {"builder": "online", "description": "made up", "path": ".", "split": "Rows", "lengths": [8]}
    fields = {"words": [4], "design": "temporal", "calibration_fraction": 0, "seed": 5}
    workspace.write_benchmarks(online={**online, **fields, "on_request": True})
    workspace.build("online")
    workspace.assess("online")
    workspace.audit("tiny", "online")

    examples = {row["example_id"]: row for row in read_built(workspace.paths, "online_4").examples.to_pylist()}
    standing_before = sorted(len((row["context"] or "").split()) for row in examples.values())
    assert standing_before == [0, 0, 0, 4, 4, 4, 8, 8, 8, 12, 12, 12], "3 inputs of 16 words"
    scores = scored(workspace, Pair("online_4", "tiny"))
    model = workspace.model("tiny")
    forward = forward_of(model)
    for example_id, row in examples.items():
        before, text = row["context"] or "", row["text"]
        behind = logprobs_behind(model, forward, before, text)
        assert scores[example_id, "loss", "{}"]["score"] == pytest.approx(behind.mean(), abs=1e-4)
        lowest = np.sort(behind)[: max(1, int(0.2 * len(behind)))]
        assert scores[example_id, "min_k", '{"k":0.2}']["score"] == pytest.approx(lowest.mean(), abs=1e-4)
        if before:
            alone = twin_statistics(model, forward, text)["logprob"].mean()
            assert abs(scores[example_id, "loss", "{}"]["score"] - alone) > 1e-3, "the context makes a difference"
        lower = scores[example_id, "lowercase", "{}"]
        assert (lower["score"], lower["status"]) == (None, "not_applicable")
        assert lower["reason"] == "the text is scored after a context, so the model has not read the text alone"
    assert {row["status"] for (_, detector, _), row in scores.items() if detector == "infilling"} == {"ok"}


def scored(workspace: Workspace, pair: Pair) -> dict[tuple[str, str, str], dict[str, Any]]:
    run_id = read_latest_run(workspace.paths, "scores", pair.partition).run_id
    table = read_table(workspace.paths.run_file("scores", pair.partition, run_id), SCORES, label="scores")
    return {(row["example_id"], row["detector"], row["parameters"]): row for row in table.to_pylist()}
