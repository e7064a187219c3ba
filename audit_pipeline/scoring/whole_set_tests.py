"""Tests of whole test sets: the sharded permutation test of their order, and the storage of test results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Literal

import numpy as np

from audit_pipeline.errors import DataError
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.scoring.needs.provider import OnProgress
from audit_pipeline.scoring.session import Session, Statistics
from audit_pipeline.statistics import sharded_permutation
from audit_pipeline.statistics.claims import ClaimLevel
from audit_pipeline.statistics.shards import (
    MIN_ITEMS_PER_SHARD,
    MIN_ORDERS,
    PERMUTATIONS,
    choose_shard_count,
    count_items_needed,
    divide_into_shards,
    explain_shortage,
)
from audit_pipeline.store import store
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import CORPUS_TESTS, Pair
from audit_pipeline.token_statistics.backend import BackendOf
from audit_pipeline.token_statistics.tokens import EncodedText, encode, window_and_stride

SHARDED_PERMUTATION = "sharded_permutation"
SEPARATOR = "\n"


@dataclass(frozen=True)
class CorpusTest:
    """The result of a test of one model: a row of CORPUS_TESTS without the run id."""

    model: str
    benchmark: str
    test: str
    status: Literal["ok", "refused"]
    reason: str | None
    p_value: float | None
    statistic: float | None
    n: int
    n_held_out: int
    assumption: str
    claim_level: ClaimLevel
    method: str
    detectable_auroc: float | None = None


def run_order_test(
    model: TokenizedModel,
    items: Sequence[str],
    paths: DataPaths,
    backend_of: BackendOf,
    *,
    name: str,
    shards: int | None = None,
    permutations: int = PERMUTATIONS,
    rule: sharded_permutation.Rule = "exact",
    separator: str = SEPARATOR,
    order_by_chance: bool = False,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> CorpusTest:
    """Run the sharded permutation test of the published order of items (statistics/sharded_permutation.py).

    The items are divided into contiguous shards. The model reads each shard in the published order and in random
    orders. The log-likelihood of a shard is the sum over its tokens.

    Args:
        model: The audited model.
        items: The items in their published order.
        paths: The data folder.
        backend_of: A function that loads the model. It is called only if the cache lacks a shard.
        name: Name of the test set.
        shards: Number of shards. By default a tenth of the number of items, from 10 to 50, or more if the shards do not
            fit into the model's context.
        permutations: Number of random orders per shard. A small shard has fewer orders.
        rule: The rule for the p-value, see :func:`run_sharded_permutation_test`.
        separator: The string between the items of a shard.
        order_by_chance: True if the publisher shuffled the items. The claim level is then *sound test*. Otherwise it is
            *screening only*, because the order may carry meaning.
        seed: The seed of the random orders.
        on_progress: A callback with the progress of the pass.

    Returns:
        The result. The test is refused if a shard does not fit into the model's context.
    """
    plan = _plan_order_test(model, items, shards, permutations, separator, seed)
    if isinstance(plan, sharded_permutation.OrderTest):
        tested = plan
    else:
        texts = list(chain.from_iterable(plan))
        session = Session(model, [], paths)
        session.run(texts, backend_of, on_progress=on_progress)
        statistics = session.statistics(texts)
        published: list[float] = []
        permuted: list[list[float]] = []
        for shard_texts in plan:
            likelihoods = [_compute_log_likelihood(statistics, text) for text in shard_texts]
            published.append(likelihoods[0])
            permuted.append(likelihoods[1:])
        tested = sharded_permutation.run_sharded_permutation_test(published, permuted, rule=rule)
    return CorpusTest(
        model=model.entry.name,
        benchmark=name,
        test=SHARDED_PERMUTATION,
        status=tested.status,
        reason=tested.reason,
        p_value=tested.p_value,
        statistic=tested.statistic,
        n=len(items),
        n_held_out=tested.orders,
        assumption=tested.assumption,
        claim_level="sound test" if order_by_chance else "screening only",
        method=f"{tested.method}; statistic: nats by which the published order of a shard is likelier; seed {seed}",
        detectable_auroc=tested.detectable_auroc,
    )


def _plan_order_test(
    model: TokenizedModel, items: Sequence[str], shards: int | None, permutations: int, separator: str, seed: int
) -> list[list[str]] | sharded_permutation.OrderTest:
    """Choose the shards and orders of the test, or refuse the test.

    Returns:
        One list per shard: its text in the published order, followed by its texts in random orders. If the test is not
        possible, the refused test instead.
    """
    preferred = shards if shards is not None else choose_shard_count(len(items))

    def refuse(reason: str, n_shards: int = preferred) -> sharded_permutation.OrderTest:
        return sharded_permutation.build_refused_test(
            reason, n_shards, 0, f"{n_shards} shards, up to {permutations} random orders of each"
        )

    problem = _explain_too_few_items(len(items), permutations, shards)
    if problem is not None:
        return refuse(problem)
    window, _ = window_and_stride(model)
    fitting = _find_fitting_shard_count(model, items, separator, preferred, window)
    candidates: Sequence[int] = ()
    if shards is not None:
        candidates = (shards,)
    elif fitting is not None:
        candidates = range(fitting, len(items) // MIN_ITEMS_PER_SHARD + 1)
    longest = 0
    for n_shards in candidates:
        texts = _build_shard_texts(items, n_shards, permutations, separator, seed)
        longest = max(map(_count_tokens, encode(model, list(chain.from_iterable(texts)))))
        if longest <= window:
            problem = explain_shortage(n_shards, sum(map(len, texts)) - n_shards)
            if problem is None:
                return texts
            return refuse(f"{problem}. Items of this length require more shards, and therefore more items", n_shards)
    if shards is None or fitting is None:
        return refuse(
            f"even shards of {MIN_ITEMS_PER_SHARD} items do not fit into the {window} tokens that the model "
            "reads at once"
        )
    return refuse(
        f"the longest shard has {longest} tokens, but the model reads {window} tokens at once. "
        f"Use at least {max(fitting, shards + 1)} shards, or omit the number of shards"
    )


def _explain_too_few_items(n_items: int, permutations: int, shards: int | None) -> str | None:
    """Return the reason why there are too few items for the test, or None if there are enough."""
    needed = count_items_needed(permutations, shards)
    if needed is None:
        n_shards = shards or choose_shard_count(n_items)
        return explain_shortage(n_shards, n_shards * permutations)
    if n_items >= needed:
        return None
    return (
        f"the test requires at least {needed} items, but there are {n_items}. With fewer items, "
        f"{shards or choose_shard_count(needed)} shards have fewer than {MIN_ORDERS} random orders in total"
    )


def _find_fitting_shard_count(
    model: TokenizedModel, items: Sequence[str], separator: str, minimum: int, window: int
) -> int | None:
    """Return the smallest number of shards, at least ``minimum``, such that each shard fits into ``window`` tokens.

    The result is None if no number of shards fits. The length of a shard is estimated as the sum over its items. The
    caller must check the joined texts again, because they may have slightly more or fewer tokens.
    """
    with_separator = encode(model, [item + separator for item in items])
    lengths = np.array([_count_tokens(text) for text in with_separator])
    ends = np.concatenate([[0], np.cumsum(lengths)])
    for n_shards in range(minimum, len(items) // MIN_ITEMS_PER_SHARD + 1):
        shards = divide_into_shards(len(items), n_shards)
        if max(ends[shard.stop] - ends[shard.start] for shard in shards) <= window:
            return n_shards
    return None


def _build_shard_texts(
    items: Sequence[str], shards: int, permutations: int, separator: str, seed: int
) -> list[list[str]]:
    texts_by_shard: list[list[str]] = []
    for number, shard in enumerate(divide_into_shards(len(items), shards)):
        texts: list[str] = []
        for order in [list(shard), *sharded_permutation.draw_orders(shard, permutations, seed=seed, number=number)]:
            texts.append(separator.join(items[position] for position in order))
        texts_by_shard.append(texts)
    return texts_by_shard


def _count_tokens(text: EncodedText) -> int:
    return len(text.token_id) + (text.start_token_id is not None)


def _compute_log_likelihood(statistics_of_texts: Statistics, text: str) -> float:
    statistics = statistics_of_texts.find(text)
    if statistics is None:
        raise DataError("the cache lacks a shard that the model has been run on. Run the test again.")
    # fsum rounds once, so the same values in another order have the same sum.
    return math.fsum(statistics.logprob.tolist())


CODE_VERSION = "1"


def write_corpus_test(result: CorpusTest, model: TokenizedModel, paths: DataPaths, *, run_id: str) -> None:
    """Write the result of a test that a user ran, with its ledger entry.

    Raises:
        DataError: If the name of the test set contains a bar.
    """
    if "|" in result.benchmark:
        raise DataError(
            f"{result.benchmark}: the file name contains '|', which separates the parts of partition names. "
            "Rename the file."
        )
    store.write(
        paths,
        LineageStep.now(run_id, "corpus_test", CODE_VERSION),
        CORPUS_TESTS,
        Pair(result.benchmark, result.model),
        # The tests are one-sided, so there is no direction.
        table_from_rows([{**asdict(result), "direction": None, "run_id": run_id}], CORPUS_TESTS),
        upstream={},
        model_fingerprint=model.identity.model_fingerprint,
        tokenizer_fingerprint=model.identity.tokenizer_fingerprint,
    )
