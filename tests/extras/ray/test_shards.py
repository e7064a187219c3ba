"""Shards of work: every text is in one shard, with its data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.extras.ray.ray_backend import split_into_shards
from audit_pipeline.token_statistics.backend import Work
from audit_pipeline.token_statistics.cached_texts import Prepared
from audit_pipeline.token_statistics.tokens import EncodedText, Prefix, cut_windows

WINDOW, STRIDE = 50, 25
sizes = st.lists(st.integers(0, 160), max_size=40)


def work_of(sizes: list[int], steps: int = 0, prefix: Prefix | None = None) -> Work:
    """Return work with a text of each size. Every third text lacks only its branches."""
    ids = [np.arange(size, dtype=np.int32) for size in sizes]
    encoded = [EncodedText(f"sha{number}", own, own, own, 7, 0) for number, own in enumerate(ids)]
    lacking = [frozenset({"branches"} if steps and number % 3 == 0 else {"base"}) for number in range(len(sizes))]
    windows = [window for number, text in enumerate(encoded) for window in cut_windows(number, text, WINDOW, STRIDE)]
    keys = [{"base": f"key{number}"} for number in range(len(sizes))]
    prepared = Prepared(len(sizes), keys, encoded, lacking, windows, prefix)
    modes = {number: ids[number] for number in range(len(sizes)) if "branches" in lacking[number]}
    return Work(prepared, {"logprob"}, steps, modes)


@given(sizes, st.integers(1, 5), st.integers(1, 4000), st.sampled_from([0, 3]))
def test_every_window_is_in_one_shard_with_the_data_of_its_text(sizes, workers, most, steps) -> None:
    work = work_of(sizes, steps)
    shards = split_into_shards(work, workers, most)
    whole = [window for shard in shards for window in shard.windows]
    assert sorted(whole, key=lambda one: (one.text, one.begin)) == work.prepared.windows
    for shard in shards:
        own = shard.work.prepared
        assert len(own.windows) == len(shard.windows)
        assert own.distinct == len(own.encoded) == len({window.text for window in shard.windows})
        assert (shard.work.steps, shard.work.wanted) == (steps, {"logprob"})
        for inside, outside in zip(own.windows, shard.windows, strict=True):
            assert own.encoded[inside.text] is work.prepared.encoded[outside.text]
            assert own.keys[inside.text] is work.prepared.keys[outside.text]
            assert own.missing[inside.text] == work.prepared.missing[outside.text]
            assert shard.work.modes.get(inside.text) is work.modes.get(outside.text)
            assert (inside.begin, inside.end, inside.score_from) == (outside.begin, outside.end, outside.score_from)
        tokens = sum(window.length for window in shard.windows)
        assert own.distinct == 1 or tokens <= max(most, 2000)


def test_shards_have_similar_lengths_and_the_longest_is_first() -> None:
    shards = split_into_shards(work_of([10, 49, 20, 49, 30, 15] * 100), 1, 4000)
    longest = [max(window.length for window in shard.windows) for shard in shards]
    shortest = [min(window.length for window in shard.windows) for shard in shards]
    assert len(shards) > 3
    assert all(low >= high for low, high in zip(shortest, longest[1:], strict=False))


@pytest.mark.parametrize(("workers", "expected"), [(1, 4), (2, 8), (100, 10)])
def test_every_worker_gets_several_shards_of_sufficient_size(workers: int, expected: int) -> None:
    assert len(split_into_shards(work_of([39] * 500), workers, 20_000)) == pytest.approx(expected, abs=1)


def test_a_prefix_belongs_to_each_shard_and_counts() -> None:
    prefix = Prefix("sha", tuple(range(101)))
    shards = split_into_shards(work_of([9] * 100, prefix=prefix), 1, 10_000)
    assert {shard.work.prepared.prefix for shard in shards} == {prefix}
    # 10 tokens each, and 100 of the prefix.
    assert [len(shard.windows) for shard in shards] == [25] * 4
