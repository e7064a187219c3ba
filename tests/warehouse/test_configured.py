"""Tables of the configured models and benchmarks. Broken files are reported and stop no build."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from made_workspace import SOURCE, Workspace, made_documents, make_workspace, temporal

from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.pipeline import workspace_state
from audit_pipeline.pipeline.coverage import is_built_as_configured
from audit_pipeline.pipeline.plan import Planner
from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.pipeline.registry import STAGES
from audit_pipeline.pipeline.whole_configuration import load_configuration
from audit_pipeline.sources.base import FetchedDocuments
from audit_pipeline.sources.config import all_sources, load_source_settings
from audit_pipeline.sources.store import refresh_source
from audit_pipeline.warehouse.query import query_warehouse


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    workspace = make_workspace(tmp_path, monkeypatch)
    workspace.write_benchmarks(made=temporal([8, 16]), other=temporal([8], description="others"))
    workspace.fetch(*made_documents(2, 40))
    workspace.build("made")
    return workspace


def told(workspace: Workspace, sql: str) -> list[dict[str, Any]]:
    report = build_warehouse(workspace.paths)
    assert report.left_out == ()
    return query_warehouse(workspace.paths.warehouse, sql).to_pylist()


def test_models_have_the_values_of_their_entries(made: Workspace) -> None:
    made.write_config(
        "models",
        {
            "models": {
                "packed": {
                    "package": {"distribution": "a-package", "file": "a.gguf"},
                    "release_date": date(2024, 11, 1),
                },
                "hubbed": {"hub": "owner/name", "title": "A model of the hub", "training_cutoff": date(2023, 12, 31)},
                "pinned": {"hub": "owner/name", "revision": "main"},
                "own": {"path": "weights/own"},
                "trained": {"control": {"name": "check", "role": "twin"}},
            }
        },
    )
    unknown = {
        **{"release_date": None, "training_cutoff": None, "on_request": False},
        **{"series": None, "position": None, "step": None, "tokens": None},
    }
    assert told(made, "FROM configured_models") == [
        {
            **unknown,
            "name": "packed",
            "title": "packed (a)",
            "origin": "package a-package: a.gguf",
            "release_date": date(2024, 11, 1),
        },
        {
            **{**unknown, "name": "hubbed", "title": "A model of the hub (name)", "origin": "hub owner/name"},
            "training_cutoff": date(2023, 12, 31),
        },
        {**unknown, "name": "pinned", "title": "pinned (name)", "origin": "hub owner/name at main"},
        {**unknown, "name": "own", "title": "own", "origin": f"path {made.config / 'weights/own'}"},
        {**unknown, "name": "trained", "title": "trained", "origin": "control check: twin", "on_request": True},
    ]


def test_benchmarks_have_the_values_of_their_entries_and_their_state(made: Workspace) -> None:
    columns = "SELECT benchmark, family, words, design, description, is_up_to_date FROM configured_benchmarks"
    names = ("benchmark", "family", "words", "design", "description", "is_up_to_date")
    made_up = [("made_8", "made", 8, "temporal", "made up"), ("made_16", "made", 16, "temporal", "made up")]
    other = ("other_8", "other", 8, "temporal", "others")

    def rows(up_to_date: bool | None) -> list[dict[str, Any]]:
        return [
            *(dict(zip(names, (*row, up_to_date), strict=True)) for row in made_up),
            dict(zip(names, (*other, None), strict=True)),
        ]

    assert told(made, columns) == rows(up_to_date=True)
    made.write_benchmarks(
        made=temporal([8, 16], member_before=date(2021, 1, 1)), other=temporal([8], description="others")
    )
    assert told(made, columns) == rows(up_to_date=False)
    made.paths.documents(SOURCE).unlink()
    assert told(made, columns) == rows(up_to_date=None)


def test_titles_name_the_length_if_there_are_several(made: Workspace) -> None:
    made.write_benchmarks(made=temporal([8, 16], title="Notes"), other=temporal([8], title="Talks"))
    columns = "SELECT benchmark, title, is_up_to_date FROM configured_benchmarks ORDER BY benchmark"
    assert [tuple(row.values()) for row in told(made, columns)] == [
        ("made_16", "Notes (16 words a text)", True),
        ("made_8", "Notes (8 words a text)", True),
        ("other_8", "Talks", None),
    ]


def test_a_benchmark_of_a_source_that_is_gone_is_read_as_one_that_was_taken_out(
    made: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = "chinese_changelogs"
    fetched = FetchedDocuments(tuple(made_documents(2, 40)))
    source = replace(all_sources()[SOURCE], name=gone, fetch=lambda settings, downloads: fetched)
    with monkeypatch.context() as earlier:
        earlier.setitem(all_sources(), gone, source)  # type: ignore[arg-type]
        made.write_benchmarks(made=temporal([8]), chinese_changelogs=temporal([8], sources=[gone]))
        refresh_source(gone, made.paths, "fetched", load_source_settings())
        made.build(gone)
    made.write_benchmarks(made=temporal([8]))
    examples = "SELECT DISTINCT benchmark FROM examples ORDER BY ALL"
    assert told(made, examples) == [{"benchmark": name} for name in (f"{gone}_8", "made_16", "made_8")]
    assert told(made, "SELECT DISTINCT source FROM documents ORDER BY ALL") == [{"source": gone}, {"source": SOURCE}]
    assert told(made, "SELECT benchmark FROM configured_benchmarks") == [{"benchmark": "made_8"}]
    # An entry that names it still is told so, and stops no other.
    made.write_benchmarks(made=temporal([8]), old=temporal([8], sources=[gone]))
    assert load_configuration().benchmarks["made_8"].sources == (SOURCE,)
    assert f"there is no source '{gone}'" in " ".join(map(str, load_configuration().problems))


def up_to_date(made: Workspace) -> dict[str, bool | None]:
    state = workspace_state.WorkspaceState(made.paths, dict(load_benchmarks()))
    planner = Planner(state, STAGES)
    return {name: is_built_as_configured(name, planner) for name in state.specs}


def test_an_unreadable_manifest_leaves_the_state_unknown(made: Workspace) -> None:
    made.paths.benchmark_manifest("made_8").write_text("[]", encoding="utf-8")
    made.paths.benchmark_manifest("made_16").write_text("{}", encoding="utf-8")
    assert up_to_date(made) == {"made_8": None, "made_16": None, "other_8": None}


def test_a_source_is_read_once_for_all_its_benchmarks(made: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    version_of_source = workspace_state.read_documents_version

    def counted(paths: Any, source: str) -> str:
        asked.append(source)
        return version_of_source(paths, source)

    monkeypatch.setattr(workspace_state, "read_documents_version", counted)
    made.build("other")
    assert set(up_to_date(made).values()) == {True}
    assert asked == [SOURCE]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("models", "wrong entry"),
        ("benchmarks", "missing"),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in [
                *(("models", damage) for damage in ("missing", "no YAML", "folder")),
                *(("benchmarks", damage) for damage in ("wrong entry", "no YAML", "folder")),
            ]
        ),
    ],
)
def test_a_broken_file_is_reported_and_the_other_file_is_read(made: Workspace, name: str, damage: str) -> None:
    made.write_models(one={"path": Path("weights")})
    file = made.config / f"{name}.yaml"
    if damage in ("missing", "folder"):
        file.unlink()
    if damage == "folder":
        file.mkdir()
    elif damage != "missing":
        made.write_config(name, "models: [" if damage == "no YAML" else {name: {"one": {"colour": "red"}}})
    report = build_warehouse(made.paths)
    (left_out,) = report.left_out
    assert left_out.path == file
    assert str(file) in left_out.reason
    assert "\n" not in left_out.reason
    counts = {
        "models": report.rows["configured_models"],
        "benchmarks": report.rows["configured_benchmarks"],
    }
    # An entry that is broken was not taken out: a model has a row; a benchmark has one where it was built.
    assert counts == {"models": 1, "benchmarks": 3, name: int(damage == "wrong entry" and name == "models")}


def test_a_broken_entry_is_reported_and_stays_configured(made: Workspace) -> None:
    made.write_models(one={"path": Path("weights"), "colour": "red"}, two={"path": Path("weights")})
    made.write_benchmarks(made=temporal([8, 16], member_befor=1), other=temporal([8]))
    report = build_warehouse(made.paths)
    assert [one.path.name for one in report.left_out] == ["benchmarks.yaml", "models.yaml"]
    assert "model one: unknown key 'colour'" in report.left_out[1].reason
    models = query_warehouse(made.paths.warehouse, "SELECT name, origin FROM configured_models").to_pylist()
    assert [(row["name"], row["origin"].partition(":")[0]) for row in models] == [
        ("two", f"path {made.config / 'weights'}"),
        ("one", "unknown"),
    ]
    benchmarks = query_warehouse(
        made.paths.warehouse, "SELECT benchmark, is_up_to_date FROM configured_benchmarks"
    ).to_pylist()
    assert {row["benchmark"]: row["is_up_to_date"] for row in benchmarks} == {
        "other_8": None,
        "made_16": None,
        "made_8": None,
    }


def test_a_configuration_folder_is_judged_by_its_own_files(made: Workspace, tmp_path: Path) -> None:
    """What stands in the workspace's sources.yaml says nothing of a folder that brings its own."""
    own = tmp_path / "own"
    shutil.copytree(made.config, own)
    made.write_config("sources", "sources: [")
    build_warehouse(made.paths, config=own)
    rows = query_warehouse(
        made.paths.warehouse, "SELECT benchmark, is_up_to_date FROM configured_benchmarks"
    ).to_pylist()
    assert {row["benchmark"]: row["is_up_to_date"] for row in rows} == {
        "made_8": True,
        "made_16": True,
        "other_8": None,
    }
