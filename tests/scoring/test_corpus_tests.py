"""Tests of a corpus with a model: the numbers are those of the bare model, reruns cost nothing, refusals are rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from tiny_models import twin_statistics

from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.scoring.corpus_tests import CorpusTest, run_canary_test, run_order_test
from audit_pipeline.statistics.canaries import Canaries, CanarySet, make_canaries, seal_path, write_canaries
from audit_pipeline.statistics.canary_rank import rank_sum_p
from audit_pipeline.statistics.sharded_permutation import draw_orders
from audit_pipeline.statistics.shards import divide_into_shards
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import CORPUS_TESTS
from audit_pipeline.token_statistics.forward import ForwardPass

pytestmark = pytest.mark.usefixtures("one_thread")
Tiny = Callable[[str], tuple[TokenizedModel, ForwardPass]]
WORDS = ("wind", "sail", "net", "boat")
ITEMS = [f"item {7 * place % 41}: {WORDS[place % 4]}" for place in range(44)]


def mean_logprob(tiny: Tiny, text: str) -> float:
    return float(twin_statistics(*tiny("llama"), text)["logprob"].mean())


def published_by_rank(made: Canaries, scores: dict[str, float], rank: int) -> Canaries:
    """The same canaries, but that of each set the one at ``rank`` by ``scores`` is published."""
    sets = []
    for one in made.sets:
        ordered = sorted(one.canaries, key=lambda canary: -scores[canary.text])
        chosen = [replace(canary, published=place == rank - 1) for place, canary in enumerate(ordered)]
        rest = tuple(sorted((c for c in chosen if not c.published), key=lambda canary: canary.name))
        sets.append(CanarySet(one.number, chosen[rank - 1], rest))
    return replace(made, sets=tuple(sets))


@pytest.mark.parametrize(("rank", "p_value"), [(1, 1 / 20), (3, 3 / 20), (20, 1.0)])
def test_the_rank_of_a_canary_is_that_by_the_bare_model(tiny: Tiny, tmp_path: Path, rank: int, p_value: float) -> None:
    made = make_canaries(1, 19, seed=1, words=5)
    scores = {canary.text: mean_logprob(tiny, canary.text) for canary in made.sets[0].canaries}
    file = tmp_path / "planted.jsonl"
    write_canaries(file, published_by_rank(made, scores, rank))
    model, forward = tiny("llama")
    done = run_canary_test(model, file, DataPaths(tmp_path / "data"), lambda wanted: forward)
    assert (done.test, done.model, done.benchmark) == ("canary_rank", "llama", "planted")
    assert done.p_value == pytest.approx(p_value)
    assert done.statistic == rank
    assert (done.n, done.n_held_out) == (1, 19)
    assert "by loss {}" in done.method


def test_several_sets_come_from_the_cache_the_second_time(tiny: Tiny, tmp_path: Path) -> None:
    made = make_canaries(3, 9, seed=2, words=5)
    scores = {canary.text: mean_logprob(tiny, canary.text) for one in made.sets for canary in one.canaries}
    file = tmp_path / "planted.jsonl"
    write_canaries(file, published_by_rank(made, scores, 2))
    model, forward = tiny("llama")
    paths = DataPaths(tmp_path / "data")
    done = run_canary_test(model, file, paths, lambda wanted: forward)
    assert done.p_value == pytest.approx(rank_sum_p([2, 2, 2], [9, 9, 9]))

    def never(wanted: TokenizedModel) -> ForwardPass:
        raise AssertionError("the model is loaded, though every text is in the cache")

    assert run_canary_test(model, file, paths, never) == done
    other = run_canary_test(model, file, paths, never, detector="min_k")
    assert 'by min_k {"k":0.2}' in other.method
    with pytest.raises(ConfigError, match=r"own pass alone: .*loss"):
        run_canary_test(model, file, paths, never, detector="reference")
    with pytest.raises(ConfigError, match="no detector"):
        run_canary_test(model, file, paths, never, detector="los")


def test_what_may_be_claimed_of_canaries_follows_from_their_seal(tiny: Tiny, tmp_path: Path) -> None:
    model, forward = tiny("llama")
    paths = DataPaths(tmp_path / "data")

    def level(file: Path) -> str:
        return run_canary_test(model, file, paths, lambda wanted: forward).claim_level

    drawn, seeded = tmp_path / "drawn.jsonl", tmp_path / "seeded.jsonl"
    write_canaries(drawn, make_canaries(1, 19, words=5))
    write_canaries(seeded, make_canaries(1, 19, words=5, seed=1))
    assert (level(drawn), level(seeded)) == ("sound test", "screening only")
    drawn.chmod(0o600)
    lines = [json.loads(line) for line in drawn.read_text().splitlines()]
    drawn.write_text("".join(json.dumps(line, sort_keys=True) + "\n" for line in lines))
    with pytest.raises(DataError, match="not the file that was sealed"):
        level(drawn)
    seal_path(drawn).unlink()
    assert level(drawn) == "screening only"


def test_too_few_alternatives_are_a_refused_row(tiny: Tiny, tmp_path: Path) -> None:
    file = tmp_path / "few.jsonl"
    write_canaries(file, make_canaries(1, 9, words=5))
    model, forward = tiny("llama")
    done = run_canary_test(model, file, DataPaths(tmp_path / "data"), lambda wanted: forward)
    assert (done.status, done.p_value, done.statistic) == ("refused", None, None)
    assert done.reason is not None
    assert "at least 19 alternatives" in done.reason


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
    assert done.p_value == pytest.approx(rank_sum_p(ranks, sizes))
    assert (done.test, done.model, done.benchmark, done.n) == ("sharded_permutation", "llama", "quiz", 44)
    assert done.n_held_out == sum(sizes)
    assert done.method.startswith("12 shards, ")
    assert done.claim_level == "screening only"
    assert ordered(ITEMS, shards=12, seed=3, order_by_chance=True).claim_level == "sound test"


def test_the_order_that_the_model_prefers_gives_a_small_p_value(ordered: Callable[..., CorpusTest], tiny: Tiny) -> None:
    """In each shard of three the likeliest of the six orders is taken as the published one."""
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


def test_shards_are_sized_to_what_the_model_reads_at_once(ordered: Callable[..., CorpusTest]) -> None:
    # 80 items: ten shards of eight by themselves, which are far longer than 64 tokens.
    long = [f"the harbour was quiet, number {place}" for place in range(80)]
    done = ordered(long)
    assert done.status == "ok"
    shards = int(done.method.split()[0])
    assert shards > 10
    refused = ordered(long, shards=10)
    assert (refused.status, refused.p_value, refused.n_held_out) == ("refused", None, 0)
    assert refused.reason is not None
    assert "the model reads 64 at once" in refused.reason
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
        "the test needs at least 40 items, and there are 19. Fewer do not have 100 random orders in all in 10 shards",
        "9 shards, the test needs 10",
        "90 random orders in all shards together, the test needs 100",
        "the test needs at least 78 items, and there are 44. Fewer do not have 100 random orders in all in 30 shards",
        "even 2 items a shard do not fit into the 64 tokens of a pass",
        "30 random orders in all shards together, the test needs 100; items as long as these call for more of them",
    ]


def test_both_tests_are_rows_of_the_table(ordered: Callable[..., CorpusTest]) -> None:
    tested = ordered(ITEMS, shards=12), ordered(ITEMS[:9])
    rows = [{**asdict(test), "direction": None, "run_id": "run-1"} for test in tested]
    table = table_from_rows(rows, CORPUS_TESTS)
    assert table.column("status").to_pylist() == ["ok", "refused"]
    assert table.column("run_id").to_pylist() == ["run-1"] * 2
