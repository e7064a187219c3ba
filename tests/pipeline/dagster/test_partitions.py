"""Partitions: names that can be keys, pairs by model, and ranges that hold what was asked for and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import dagster as dg
import pytest
import sqlalchemy.exc
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.errors import ConfigError
from audit_pipeline.pipeline.dagster.audit import group_neighbours
from audit_pipeline.pipeline.dagster.partitions import partitions_of, register
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
    register(store, benchmarks=["b_32"], models=["m"])
    register(store, benchmarks=["b_32", "b_64"])
    assert list(store.get_dynamic_partitions("benchmark")) == ["b_32", "b_64"]
    assert list(store.get_dynamic_partitions("model")) == ["m"]
    assert keys(store) == ["b_32|m", "b_64|m"]
    assert [parse_pair(key).partition for key in keys(store)] == keys(store)


def test_register_goes_on_where_another_process_added_a_name_meanwhile(
    store: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster looks, then inserts: the other's row is put in between."""
    add = store.add_dynamic_partitions

    def add_after_the_other(dimension: str, names: Sequence[str]) -> None:
        monkeypatch.undo()
        add(dimension, ["b"])
        raise sqlalchemy.exc.IntegrityError("INSERT", names, Exception("UNIQUE constraint failed"))

    monkeypatch.setattr(store, "add_dynamic_partitions", add_after_the_other)
    register(store, models=["a", "b"])
    assert sorted(store.get_dynamic_partitions("model")) == ["a", "b"]


@pytest.mark.parametrize("name", ["a|b", "a...b", "a\nb", "a\x07"])
@pytest.mark.parametrize("dimension", ["benchmark", "model"])
def test_register_refuses_names_that_keys_could_not_hold(store: dg.DagsterInstance, dimension: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot name a {dimension}"):
        register(store, **{f"{dimension}s": ["fine", name]})  # type: ignore[arg-type]
    assert not store.get_dynamic_partitions(dimension), "none is added where one is refused"


@pytest.mark.parametrize("name", ["/data/models/my model", "org/model", "./m.gguf", "модель", "m=1,2 (x)"])
def test_paths_and_hub_ids_can_be_keys(store: dg.DagsterInstance, name: str) -> None:
    register(store, benchmarks=["b_8", "b_16"], models=[name])
    pairs = [f"b_8|{name}", f"b_16|{name}"]
    assert keys(store) == pairs
    assert parse_pair(pairs[0]) == Pair("b_8", name)


def test_neighbours_of_one_model_are_a_range_of_exactly_these(store: dg.DagsterInstance) -> None:
    """Dagster's range over two dimensions is a rectangle, of the first dimension by name first."""
    register(store, benchmarks=["b1", "b2", "b3", "b4"], models=["m1", "m2", "m3"])
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
