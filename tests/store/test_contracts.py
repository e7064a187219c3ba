"""Canonical forms, identities and paths."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from audit_pipeline.store.paths import DataPaths, name_from_path_segment, to_path_segment
from audit_pipeline.tables import Pair, canonical_json, digest, digest_of_items, each_to_canonical_json, example_id

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(VALUES)
def test_canonical_json_has_one_spelling(value: object) -> None:
    once = canonical_json(value)
    assert canonical_json(json.loads(once)) == once


def test_canonical_json_by_hand() -> None:
    assert canonical_json({"k": 0.1 * 3, "a": [1, True, None, "é"]}) == '{"a":[1,true,null,"é"],"k":0.3}'
    assert canonical_json({"k": 0.3}) == canonical_json({"k": 0.30000000000000004})
    assert canonical_json({"b": 1, "a": 2}) == canonical_json({"a": 2, "b": 1})
    with pytest.raises(ValueError, match="JSON"):
        canonical_json(float("nan"))


@pytest.mark.parametrize("items", [[], ["a"], [1.5] * 3000, ['b"\\', "c\n", "é"], [("a", 1.0), [None, True]]])
def test_a_digest_of_items_equals_the_digest_of_their_list(items: list[object]) -> None:
    assert digest_of_items(iter(items)) == digest(items)


@given(
    st.lists(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text())
)
@example(["a\nb", "\n", "\x1e", "\u2028", ""])
def test_values_in_a_batch_are_spelled_like_single_values(values: list[object]) -> None:
    assert each_to_canonical_json(values) == [canonical_json(value) for value in values]


def test_a_digest_separates_its_parts() -> None:
    assert digest("ab", "c") != digest("a", "bc")
    assert digest("a") != digest(["a"])
    assert digest("1") != digest(1)


def test_example_ids_depend_on_all_three_parts() -> None:
    ids = {example_id(*parts) for parts in [("b", "d", "t"), ("c", "d", "t"), ("b", "e", "t"), ("b", "d", "u")]}
    assert len(ids) == 4
    assert all(len(one) == 16 for one in ids)


def test_a_partition_names_the_benchmark_first() -> None:
    assert Pair(benchmark="notes-32", model="owner/name").partition == "notes-32|owner/name"


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_segments_are_single_path_parts_and_reversible(name: str) -> None:
    part = to_path_segment(name)
    assert name_from_path_segment(part) == name
    assert "/" not in part
    assert "\\" not in part
    assert "\0" not in part
    assert part not in {".", ".."}


def test_no_benchmark_in_the_cache_path() -> None:
    paths = DataPaths(Path("/d"))
    assert paths.token_statistics("base", "f00").relative_to("/d").as_posix() == "token_statistics/kind=base/model=f00"
    assert paths.run_file("scores", "b|owner/name", "r1").name == "run_id=r1.parquet"
    assert paths.run_file("scores", "b|owner/name", "r1").parent.parent == paths.table("scores")
