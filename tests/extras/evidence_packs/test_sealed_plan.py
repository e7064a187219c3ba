"""Sealed plans: their content, when a new plan is sealed, and the check that finds a change."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from made_workspace import Workspace
from timestamp_authority import make_authority, serve_authority

from audit_pipeline.errors import DataError
from audit_pipeline.extras.evidence_packs.sealed_plan import (
    SealedPlan,
    compose_plan,
    explain_late_plan,
    plan_from_row,
    read_last_plan,
    seal_plan,
)
from audit_pipeline.extras.evidence_packs.timestamps import Timestamp
from audit_pipeline.store.store import read_documents
from audit_pipeline.tables import Pair, text_sha256

PAIR = Pair("made_8", "tiny")


def rows_of_plans(workspace: Workspace) -> list[dict[str, Any]]:
    files = sorted(workspace.paths.run_file("plans", PAIR.partition, "any").parent.glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def last_plan(workspace: Workspace) -> SealedPlan:
    plan = read_last_plan(PAIR, workspace.paths)
    assert plan is not None
    return plan


def test_a_plan_contains_texts_settings_model_and_code(workspace: Workspace) -> None:
    plan = json.loads(last_plan(workspace).content)
    documents = {
        row["document_id"]: row["text"] for row in read_documents(workspace.paths, "release_notes").to_pylist()
    }
    named = {row["document_id"]: row["sha256"] for side in ("texts", "held_out") for row in plan[side]}
    assert named == {name: text_sha256(documents[name]) for name in named}
    assert {row["document_id"] for row in plan["texts"]} & {row["document_id"] for row in plan["held_out"]} == set()
    assert plan["extraction"] == {"prefix": 12, "suffix": 8, "stride": "coarse-to-fine", "grid": True}
    assert plan["headline"] == "min_k_plus_plus"
    assert {"detector": "min_k", "parameters": '{"k":0.2}'} in plan["detectors"]
    assert plan["model_fingerprint"] == workspace.model("tiny").identity.model_fingerprint
    assert plan["lineage_head"]
    assert plan["texts_in_cache"] == 0


def test_only_a_different_plan_is_sealed_again(workspace: Workspace) -> None:
    first = last_plan(workspace)
    same, is_new = seal_plan(PAIR, workspace.model("tiny"), workspace.paths, None)
    assert not is_new
    assert same == first
    assert len(rows_of_plans(workspace)) == 1
    entry = (workspace.config / "benchmarks.yaml").read_text().replace("suffix: 8", "suffix: 9")
    (workspace.config / "benchmarks.yaml").write_text(entry)
    other, is_new = seal_plan(PAIR, workspace.model("tiny"), workspace.paths, None)
    assert is_new
    assert other.sha256 != first.sha256
    cached = other.fields["texts_in_cache"]
    assert cached > 0, "the model has been run on them by now"
    assert explain_late_plan(first, PAIR, workspace.paths) == []
    late = replace(first, timestamp=Timestamp(b"", datetime.max.replace(tzinfo=UTC), None))
    assert explain_late_plan(late, PAIR, workspace.paths) == [
        "2 run(s) of this model on these texts began before the plan was sealed or timestamped"
    ]
    assert explain_late_plan(other, PAIR, workspace.paths) == [
        "2 run(s) of this model on these texts began before the plan was sealed or timestamped",
        f"the model had run on {cached} of the planned texts and documents before the plan was sealed",
    ]
    again = workspace.run("seal", "--model", "tiny", "--benchmark", "made_8")
    assert again.exit_code == 0
    assert "made_8: the findings will count as not planned beforehand: 2 run(s) of this model" in again.output


def test_a_plan_without_a_timestamp_is_sealed_again_with_a_timestamp(workspace: Workspace, tmp_path: Path) -> None:
    before = last_plan(workspace)
    with serve_authority(make_authority(tmp_path / "authority")) as authority:
        plan, is_new = seal_plan(PAIR, workspace.model("tiny"), workspace.paths, authority.url)
        assert is_new
        assert plan.plans_same_audit(before)
        assert plan.timestamp is not None
        assert last_plan(workspace) == plan
        assert seal_plan(PAIR, workspace.model("tiny"), workspace.paths, authority.url) == (plan, False)


def test_a_changed_timestamp_is_refused(workspace: Workspace) -> None:
    [row] = rows_of_plans(workspace)
    with pytest.raises(DataError, match="it is no response of RFC 3161"):
        plan_from_row({**row, "timestamp": "bm90IGEgdGltZXN0YW1w"})


def test_an_unbuilt_benchmark_has_no_plan(workspace: Workspace) -> None:
    with pytest.raises(DataError, match="has not been built yet"):
        compose_plan(Pair("made_9", "tiny"), workspace.model("tiny"), workspace.paths)
