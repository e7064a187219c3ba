"""Partitions: valid keys, pairs by model, and ranges of exactly the requested pairs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy.exc
from hypothesis import given
from hypothesis import strategies as st
from made_workspace import Workspace, make_workspace, temporal, tiny_control

from audit_pipeline.definitions import defs
from audit_pipeline.errors import ConfigError
from audit_pipeline.pipeline.dagster.instance import ensure_dagster_home
from audit_pipeline.pipeline.dagster.partitions import partitions_of, register_configured, register_partitions
from audit_pipeline.pipeline.dagster.runs import group_neighbours
from audit_pipeline.pipeline.registry import STAGES
from audit_pipeline.pipeline.stage import PAIR
from audit_pipeline.tables import Pair, parse_pair

PAIRS = partitions_of(PAIR)


@pytest.fixture
def store() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def keys(store: dg.DagsterInstance) -> list[str]:
    return [str(key) for key in PAIRS.get_partition_keys(dynamic_partitions_store=store)]


def test_register_adds_what_is_new_and_keeps_what_is_there(store: dg.DagsterInstance) -> None:
    register_partitions(store, benchmarks=["b_32"], models=["m"])
    register_partitions(store, benchmarks=["b_32", "b_64"])
    assert list(store.get_dynamic_partitions("benchmark")) == ["b_32", "b_64"]
    assert list(store.get_dynamic_partitions("model")) == ["m"]
    assert keys(store) == ["b_32|m", "b_64|m"]
    assert [parse_pair(key).partition for key in keys(store)] == keys(store)


def test_register_continues_if_another_process_added_a_name_meanwhile(
    store: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row of the other process is inserted between Dagster's check and its insert."""
    add = store.add_dynamic_partitions

    def add_after_the_other(dimension: str, names: Sequence[str]) -> None:
        monkeypatch.undo()
        add(dimension, ["b"])
        raise sqlalchemy.exc.IntegrityError("INSERT", names, Exception("UNIQUE constraint failed"))

    monkeypatch.setattr(store, "add_dynamic_partitions", add_after_the_other)
    register_partitions(store, models=["a", "b"])
    assert sorted(store.get_dynamic_partitions("model")) == ["a", "b"]


@pytest.mark.parametrize("name", ["a|b", "a...b", "a\nb", "a\x07"])
@pytest.mark.parametrize("dimension", ["benchmark", "model"])
def test_register_refuses_names_that_keys_could_not_hold(store: dg.DagsterInstance, dimension: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot be the name of a {dimension}"):
        register_partitions(store, **{f"{dimension}s": ["fine", name]})  # type: ignore[arg-type]
    assert not store.get_dynamic_partitions(dimension), "none is added where one is refused"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Return a workspace with three models (one of a control), three benchmarks (one on request) and a Dagster home."""
    made = make_workspace(tmp_path / "made", monkeypatch)
    folder = {"path": str(tmp_path)}
    made.write_models(one=folder, two=folder, exposed={"control": {"name": "known", "role": "exposed"}})
    made.write_config("controls", {"controls": {"known": tiny_control()}})
    made.write_benchmarks(made=temporal([8, 12]), asked={**temporal([16]), "on_request": True})
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    ensure_dagster_home(made.paths)
    return made


def read_registered(home: Path) -> dict[str, list[str]]:
    with dg.DagsterInstance.from_config(str(home)) as instance:
        return {name: list(instance.get_dynamic_partitions(name)) for name in ("benchmark", "model")}


def test_loading_the_definitions_adds_what_is_configured_to_the_grid(workspace: Workspace, tmp_path: Path) -> None:
    for _ in range(2):
        defs().get_repository_def()
        assert read_registered(tmp_path / "home") == {"benchmark": ["made_8", "made_12"], "model": ["one", "two"]}
    workspace.write_models(one={"path": str(tmp_path)}, later={"path": str(tmp_path)})
    register_configured()
    assert read_registered(tmp_path / "home")["model"] == ["one", "two", "later"]


def test_definitions_load_if_nothing_can_be_added_to_the_grid(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home, models = tmp_path / "home", workspace.config / "models.yaml"
    models.write_text("models: [")
    assert defs().get_repository_def()
    assert read_registered(home) == {"benchmark": ["made_8", "made_12"], "model": []}
    assert "no model was added to the grid" in caplog.text
    assert str(models) in caplog.text
    caplog.clear()
    for database in home.rglob("*.db"):
        database.write_text("no database")
    register_configured()
    assert f"the Dagster storage in {home} is damaged" in caplog.text
    caplog.clear()
    for missing in ("", str(tmp_path / "missing")):
        monkeypatch.setenv("DAGSTER_HOME", missing)
        register_configured()
    assert not caplog.text
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("name", ["/data/models/my model", "org/model", "./m.gguf", "модель", "m=1,2 (x)"])
def test_paths_and_hub_ids_can_be_keys(store: dg.DagsterInstance, name: str) -> None:
    register_partitions(store, benchmarks=["b_8", "b_16"], models=[name])
    pairs = [f"b_8|{name}", f"b_16|{name}"]
    assert keys(store) == pairs
    assert parse_pair(pairs[0]) == Pair("b_8", name)


def test_neighbours_of_one_model_are_a_range_of_exactly_these(store: dg.DagsterInstance) -> None:
    """A range of Dagster over two dimensions is a rectangle, and the dimensions are sorted by name."""
    register_partitions(store, benchmarks=["b1", "b2", "b3", "b4"], models=["m1", "m2", "m3"])
    with dg.partition_loading_context(dynamic_partitions_store=store):
        found = PAIRS.get_partition_keys_in_range(dg.PartitionKeyRange("b2|m2", "b3|m2"))
    assert list(map(str, found)) == ["b2|m2", "b3|m2"]
    assert all(list(stage.dimensions) == sorted(stage.dimensions) for stage in STAGES)


@given(st.permutations(["a", "b", "c", "d", "e"]), st.sets(st.sampled_from("abcde")))
def test_neighbours_are_maximal_runs_in_order(order: list[str], wanted: set[str]) -> None:
    groups = group_neighbours(order, wanted)
    assert [name for group in groups for name in group] == [name for name in order if name in wanted]
    places = [[order.index(name) for name in group] for group in groups]
    assert all(place == list(range(place[0], place[0] + len(place))) for place in places)
    assert all(after[0] - before[-1] > 1 for before, after in itertools.pairwise(places))
