"""Stale benchmarks, and dry runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from made_overlap import FOUND, write_search
from made_workspace import (
    NEW,
    OLD,
    SOURCE,
    Workspace,
    controlled,
    enter_workspace,
    made_document,
    made_documents,
    made_text,
    make_workspace,
    temporal,
    tiny_control,
)
from tiny_models import forward_of

from audit_pipeline.benchmarks.build import compute_digest_from_inputs
from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.config import BUILDERS, BenchmarkSpec, load_benchmarks, resolve_benchmarks
from audit_pipeline.extras.controls.build import ensure_control_trained
from audit_pipeline.extras.controls.config import load_controls
from audit_pipeline.pipeline.audit_requests import AuditRequest
from audit_pipeline.pipeline.dagster.audit import plan_dry_run
from audit_pipeline.pipeline.options import AuditOptions
from audit_pipeline.pipeline.plan import Planner
from audit_pipeline.pipeline.registry import BENCHMARK_STAGES, STAGES
from audit_pipeline.pipeline.workspace_state import Scope, WorkspaceState
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.tables import Kind
from audit_pipeline.token_statistics.run import compute
from audit_pipeline.token_statistics.tokens import cut_windows, encode, window_and_stride

pytestmark = pytest.mark.usefixtures("one_thread")


def spec(name: str = "made_8") -> BenchmarkSpec:
    [found] = resolve_benchmarks(name)
    return found


def steps(workspace: Workspace, *names: str) -> dict[str, dict[str, str]]:
    """Return the reasons of the planned steps by stage and partition, for some benchmarks or all."""
    specs = [one for name, one in load_benchmarks().items() if name in names or not names]
    state = WorkspaceState(workspace.paths, {one.name: one for one in specs})
    found: dict[str, dict[str, str]] = {}
    for step in Planner(state, STAGES).plan(Scope(tuple(state.specs)), BENCHMARK_STAGES).steps:
        found.setdefault(step.stage.name, {})[step.partition] = step.reason
    return found


def is_stale(workspace: Workspace, name: str = "made_8") -> bool:
    return name in steps(workspace, name).get("benchmark", {})


@pytest.fixture
def built(workspace: Workspace) -> Workspace:
    workspace.write_benchmarks(made=temporal([8, 16]))
    workspace.fetch(*made_documents(2, 40))
    workspace.build("made")
    return workspace


def test_built_of_what_there_is_now_is_fresh_and_not_built_is_stale(built: Workspace) -> None:
    assert not is_stale(built)
    built.paths.benchmark_manifest("made_8").unlink()
    assert is_stale(built)
    assert not is_stale(built, "made_16")
    built.paths.examples("made_16").unlink()
    assert is_stale(built, "made_16")


ROWS = {"description": "made up", "calibration_fraction": 0, "seed": 5, "design": "temporal"}
EVERY_BUILDER: Mapping[str, Mapping[str, Any]] = {
    "dated": temporal([8]),
    "later": temporal([8], nonmember_from=date(2024, 1, 1)),
    "labelled": {**ROWS, "builder": "labelled", "path": "rows.jsonl", "words": [8]},
    "sides": {
        **ROWS,
        **{"builder": "sides", "path": ".", "words": "any", "text_column": "input"},
        **{"members": {"files": ["rows.jsonl"]}, "nonmembers": {"files": ["others.jsonl"]}},
    },
    "items": {
        **ROWS,
        **{"builder": "templated", "path": "rows.jsonl", "words": "any", "template": "{{ input }}!"},
        "design": "unlabelled",
    },
    "shelf": {
        **{"builder": "shelf", "description": "made up", "sources": [SOURCE], "words": [8]},
        **{"windows_per_document": 2, "seed": 5},
    },
    "online": {**ROWS, "builder": "online", "path": "rows.jsonl", "words": [4], "lengths": [8]},
    "known": controlled("check"),
    "searched": {
        **{"builder": "found_in_corpus", "description": "made up", "pool": "labelled_8", "corpus": "open"},
        **{"words": [8], "seed": 5},
    },
}
# Of each family one setting that decides its texts, as another might have it.
OTHERWISE: Mapping[str, Mapping[str, Any]] = {
    "dated": {"member_before": date(2021, 1, 1)},
    "later": {"nonmember_from": date(2024, 6, 1)},
    "labelled": {"label_values": {"0": 0, "1": 1}},
    "sides": {"nonmembers": {"files": ["rows.jsonl"]}, "members": {"files": ["others.jsonl"]}},
    "items": {"template": "{{ input }}?"},
    "shelf": {"windows_per_document": 1},
    "online": {"order": "random"},
    "known": {"near_duplicate_threshold": 0.9},
    "searched": {"share": 0.8},
}


def test_labelled_rows_of_a_folder_are_looked_at_every_time(workspace: Workspace) -> None:
    rows = workspace.config / "rows"
    rows.mkdir()
    labelled = {**EVERY_BUILDER["labelled"], "path": "rows", "split": "Rows"}
    lines = [json.dumps({"input": made_text(f"row {place}", 8), "label": place % 2}) for place in range(6)]
    (rows / "Rows.jsonl").write_text("\n".join(lines))
    workspace.write_benchmarks(theirs=labelled)
    workspace.build("theirs_8")
    assert not is_stale(workspace, "theirs_8")
    (rows / "Rows.jsonl").write_text("\n".join(lines[:-1]))
    assert is_stale(workspace, "theirs_8")
    (rows / "Rows.jsonl").write_text("\n".join(lines))
    assert not is_stale(workspace, "theirs_8")
    workspace.write_benchmarks(theirs={**labelled, "seed": 6})
    assert is_stale(workspace, "theirs_8")


def write_rows(workspace: Workspace, name: str) -> None:
    rows = [{"input": made_text(f"{name} {place}", 8), "label": place % 2} for place in range(6)]
    (workspace.config / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))


def digests(workspace: Workspace) -> dict[str, str]:
    return {name: compute_digest_from_inputs(spec, workspace.paths) for name, spec in load_benchmarks().items()}


@pytest.fixture(scope="module")
def every_builder_once(
    tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path], one_thread: None
) -> Path:
    """Build a family of each builder, and return the folder of the workspace."""
    assert {fields["builder"] for fields in EVERY_BUILDER.values()} == set(BUILDERS)
    with pytest.MonkeyPatch.context() as patch:
        made = make_workspace(tmp_path_factory.mktemp("builders") / "made", patch, tiny=tiny_folder("llama"))
        for name in ("rows", "others"):
            write_rows(made, name)
        made.fetch(*made_documents(5, 40))
        train(made)
        made.write_benchmarks(**EVERY_BUILDER)
        for family, fields in EVERY_BUILDER.items():
            if "corpus" in fields:
                write_search(made.paths, fields["pool"], fields["corpus"], lambda row: FOUND if row["label"] else {})
            made.build(family)
    return made.root


@pytest.fixture
def every_builder(every_builder_once: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Return the workspace with its first configuration. Only the last test may change its documents."""
    made = enter_workspace(every_builder_once, monkeypatch)
    made.write_benchmarks(**EVERY_BUILDER)
    assert stale(made) == []
    return made


def train(workspace: Workspace, **changes: Any) -> None:
    workspace.write_config("controls", {"controls": {"check": tiny_control(epochs=1, **changes)}})
    step = LineageStep.now("trained", "controlled_contamination", "1")
    ensure_control_trained(load_controls()["check"], workspace.paths, step, device="cpu")


def stale(workspace: Workspace) -> list[str]:
    return list(steps(workspace).get("benchmark", {}))


def test_a_changed_entry_changes_only_its_own_data_version(every_builder: Workspace) -> None:
    before = digests(every_builder)
    for family, change in OTHERWISE.items():
        every_builder.write_benchmarks(**{**EVERY_BUILDER, family: {**EVERY_BUILDER[family], **change}})
        now = digests(every_builder)
        moved = [name for name in before if now[name] != before[name]]
        assert [resolve_benchmarks(name)[0].family for name in moved] == [family]
        assert stale(every_builder) == moved
    # What only says when it is audited, and of what licence it is, moves nothing.
    words = {"on_request": True, "licence": "mine", "description": "in other words"}
    same = {family: {**fields, **words} for family, fields in EVERY_BUILDER.items()}
    every_builder.write_benchmarks(**same)
    assert digests(every_builder) == before


def test_changed_inputs_of_a_benchmark_change_only_its_data_version(every_builder: Workspace) -> None:
    write_rows(every_builder, "others")
    every_builder.fetch(*reversed(made_documents(5, 40)))
    assert stale(every_builder) == [], "the same rows and documents, written again"
    (every_builder.config / "others.jsonl").write_text(json.dumps({"input": made_text("another", 8)}))
    assert stale(every_builder) == ["sides"]
    every_builder.build("sides")
    train(every_builder, held_out=20)
    assert stale(every_builder) == ["known_12"]
    every_builder.build("known")
    every_builder.fetch(*made_documents(5, 40), made_document("alder", "more", NEW, made_text("more", 40)))
    found = steps(every_builder)
    assert found["controlled_contamination"] == {
        "check": "its entry in the configuration or its documents changed since it was trained"
    }
    changed = "its entry in the configuration or its sources changed since it was built"
    assert found["benchmark"] == {
        **dict.fromkeys(("dated_8", "later_8", "shelf_8"), changed),
        "known_12": "the control check is trained first",
    }


def test_a_missing_source_is_fetched_first(built: Workspace) -> None:
    built.paths.documents(SOURCE).unlink()
    assert steps(built, "made_8") == {
        "documents": {SOURCE: "its documents have not been fetched"},
        "benchmark": {"made_8": f"the source {SOURCE} is fetched first"},
        "split_quality": {
            "made_8": "the split has not been assessed, or a file of the assessment is damaged or missing"
        },
    }


def test_missing_rows_are_a_problem_and_no_step(workspace: Workspace) -> None:
    workspace.write_benchmarks(theirs={**EVERY_BUILDER["labelled"], "path": "nowhere.jsonl"})
    state = WorkspaceState(workspace.paths, {"theirs_8": spec("theirs_8")})
    made = Planner(state, STAGES).plan(Scope(("theirs_8",)), BENCHMARK_STAGES)
    assert made.steps == ()
    assert "nowhere.jsonl" in made.problems_of("benchmark")["theirs_8"]


def test_a_dry_run_counts_what_the_run_would_do(built: Workspace) -> None:
    model = built.model("tiny")
    request = AuditRequest([model.entry], [spec()], AuditOptions(kinds=("base", "topk")))
    before = plan_dry_run(request, model, built.paths).plans["made_8"][0]
    texts = read_built(built.paths, "made_8").examples.column("text").to_pylist()
    encoded = encode(model, texts)
    windows = [
        one for number, text in enumerate(encoded) for one in cut_windows(number, text, *window_and_stride(model))
    ]
    assert (before.texts, before.cached_texts, before.texts_to_run) == (len(texts), 0, len(texts))
    assert before.tokens_to_run == sum(window.length for window in windows)
    assert before.passes == len(windows)
    assert set(before.bytes_to_write) == {"base", "topk", "renyi", "branches"}
    assert 0 < before.branch_tokens < before.tokens_to_run, "m is 1, and not every token has a branch"
    assert not built.parts()

    kinds: tuple[Kind, ...] = ("base", "topk", "renyi")
    compute(model, texts[:5], built.paths, lambda: forward_of(model), kinds=kinds, branch_steps=1)
    after = plan_dry_run(request, model, built.paths).plans["made_8"][0]
    assert (after.cached_texts, after.texts_to_run) == (5, len(texts) - 5)
    assert after.tokens_to_run < before.tokens_to_run


def test_a_dry_run_of_what_is_not_built_names_what_is_built_first(built: Workspace) -> None:
    built.fetch(*(made_document("alder", name, day, made_text(name, 40)) for name, day in (("a", OLD), ("b", NEW))))
    model = built.model("tiny")
    found = plan_dry_run(AuditRequest([model.entry], [spec()]), model, built.paths)
    assert (found.plans, found.not_built) == ({}, ["made_8"])
    assert [str(step.product) for step in found.preparation_steps] == ["benchmark/made_8"]
