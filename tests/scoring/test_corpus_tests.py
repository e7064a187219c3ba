"""The order test with a model: its numbers are those of the bare model, and refusals are rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tiny_models import Tiny, twin_statistics

from audit_pipeline.scoring.whole_set_tests import CorpusTest, run_order_test
from audit_pipeline.statistics.sharded_permutation import draw_orders
from audit_pipeline.statistics.shards import divide_into_shards
from audit_pipeline.statistics.twin_ranks import compute_rank_sum_p
from audit_pipeline.store.paths import DataPaths

pytestmark = pytest.mark.usefixtures("one_thread")
WORDS = ("wind", "sail", "net", "boat")
ITEMS = [f"item {7 * place % 41}: {WORDS[place % 4]}" for place in range(44)]


@pytest.fixture
def ordered(tiny: Tiny, tmp_path: Path) -> Callable[..., CorpusTest]:
    model, forward = tiny("llama")

    def run(items: list[str], **options: object) -> CorpusTest:
        paths = DataPaths(tmp_path / "data")
        given = {"name": "quiz", "permutations": 10, **options}
        return run_order_test(model, items, paths, lambda wanted: forward, **given)  # type: ignore[arg-type]

    return run


def test_the_likelihood_of_orders_is_that_by_the_bare_model(ordered: Callable[..., CorpusTest], tiny: Tiny) -> None:
    done = ordered(ITEMS, shards=12, seed=3)

    def likelihood(order: list[int]) -> float:
        return float(twin_statistics(*tiny("llama"), "\n".join(ITEMS[place] for place in order))["logprob"].sum())

    own, others = [], []
    for number, shard in enumerate(divide_into_shards(len(ITEMS), 12)):
        own.append(likelihood(list(shard)))
        others.append([likelihood(order) for order in draw_orders(shard, 10, seed=3, number=number)])
    sizes = [len(row) for row in others]
    assert sorted(set(sizes)) == [5, 10], "three items have five other orders"
    differences = [one - np.mean(row) for one, row in zip(own, others, strict=True)]
    assert done.statistic == pytest.approx(np.mean(differences), abs=1e-3)
    ranks = [1 + sum(other >= one for other in row) for one, row in zip(own, others, strict=True)]
    assert done.p_value == pytest.approx(compute_rank_sum_p(ranks, sizes))
    assert (done.test, done.model, done.benchmark, done.n) == ("sharded_permutation", "llama", "quiz", 44)
    assert done.n_held_out == sum(sizes)
    assert done.method.startswith("12 shards, ")
    assert done.claim_level == "screening only"
    assert ordered(ITEMS, shards=12, seed=3, order_by_chance=True).claim_level == "sound test"


def test_the_order_that_the_model_prefers_gives_a_small_p_value(ordered: Callable[..., CorpusTest], tiny: Tiny) -> None:
    """In each shard of three items, the likeliest of the six orders is the published order."""
    items = [f"{word} {place}" for place, word in enumerate(["net", "boat", "sail"] * 20)]
    preferred: list[str] = []
    for shard in divide_into_shards(60, 20):
        orders = [list(shard), *draw_orders(shard, 5, seed=0, number=0)]
        texts = ["\n".join(items[place] for place in order) for order in orders]
        best = int(np.argmax([twin_statistics(*tiny("llama"), text)["logprob"].sum() for text in texts]))
        preferred += [items[place] for place in orders[best]]
    done = ordered(preferred, shards=20)
    assert done.p_value == pytest.approx(6.0**-20, rel=1e-6)
    assert done.statistic is not None
    assert done.statistic > 0
    by_t = ordered(preferred, shards=20, rule="t_test")
    assert by_t.p_value is not None
    assert by_t.p_value < 1e-4
    assert "one-sided t-test" in by_t.method


def test_shards_fit_into_the_context_of_the_model(ordered: Callable[..., CorpusTest]) -> None:
    # 80 items: ten shards of eight by themselves, which are far longer than 64 tokens.
    long = [f"the harbour was quiet, number {place}" for place in range(80)]
    done = ordered(long)
    assert done.status == "ok"
    shards = int(done.method.split()[0])
    assert shards > 10
    refused = ordered(long, shards=10)
    assert (refused.status, refused.p_value, refused.n_held_out) == ("refused", None, 0)
    assert refused.reason is not None
    assert "the model reads 64 tokens at once" in refused.reason
    assert f"at least {shards} shards" in refused.reason


def test_a_test_set_that_cannot_be_tested_is_a_refused_row(ordered: Callable[..., CorpusTest]) -> None:
    reasons = [
        ordered(ITEMS[:19]).reason,
        ordered(ITEMS, shards=9).reason,
        ordered(ITEMS, shards=10, permutations=9).reason,
        ordered(ITEMS, shards=30).reason,
        ordered(["word " * 200] * 40).reason,
        ordered([f"{'the harbour was quiet ' * 2}{place}" for place in range(60)]).reason,
    ]
    assert reasons == [
        "the test requires at least 40 items, but there are 19. With fewer items, 10 shards have fewer than 100 random "
        "orders in total",
        "there are 9 shards, but the test requires 10",
        "there are 90 random orders in all shards together, but the test requires 100",
        "the test requires at least 78 items, but there are 44. With fewer items, 30 shards have fewer than 100 random "
        "orders in total",
        "even shards of 2 items do not fit into the 64 tokens that the model reads at once",
        "there are 30 random orders in all shards together, but the test requires 100. Items of this length "
        "require more "
        "shards, and therefore more items",
    ]
