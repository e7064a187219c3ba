"""Tests of a corpus that run a model: the order of a test set, and the row that every such test writes."""

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
from audit_pipeline.statistics.claims import ClaimLevel
from audit_pipeline.statistics.sharded_permutation import (
    OrderTest,
    Rule,
    build_refused_test,
    draw_orders,
    run_sharded_permutation_test,
)
from audit_pipeline.statistics.shards import (
    MIN_ITEMS_A_SHARD,
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
    """One test of one model: a row of CORPUS_TESTS but for the run."""

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
    rule: Rule = "exact",
    separator: str = SEPARATOR,
    order_by_chance: bool = False,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> CorpusTest:
    """The sharded permutation test of ``items`` in their published order (statistics/sharded_permutation.py).

    Items are dealt into contiguous ``shards``, those of a shard are joined by ``separator``, and the model is run over
    each shard in the published and in ``permutations`` other orders (or all that it has); the log-likelihood is the sum
    over its tokens.
    Without ``shards`` there are a tenth as many as items, at least 10 and at most 50, and more where those would not
    fit into the model's context. A shard that does not fit is refused: the order is then hardly seen over the end of
    what the model reads at once.

    ``order_by_chance`` says that whoever published the items shuffled them: the claim level is then *sound test*, else
    *screening only*, because nothing shows that the order carries no meaning. ``name`` is the test set's.
    """
    plan = _plan_order_test(model, items, shards, permutations, separator, seed)
    if isinstance(plan, OrderTest):
        tested = plan
    else:
        texts = list(chain.from_iterable(plan))
        session = Session(model, [], paths)
        session.run(texts, backend_of, on_progress=on_progress)
        found = session.statistics(texts)
        likelihood = [[_log_likelihood(found, text) for text in row] for row in plan]
        tested = run_sharded_permutation_test(
            [row[0] for row in likelihood], [row[1:] for row in likelihood], rule=rule
        )
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
) -> list[list[str]] | OrderTest:
    """The texts to run, a row per shard: the published order, then the random ones; or the refusal."""
    wanted = shards if shards is not None else choose_shard_count(len(items))

    def refuse(reason: str, number: int = wanted) -> OrderTest:
        return build_refused_test(reason, number, 0, f"{number} shards, up to {permutations} random orders of each")

    if (short := _explain_too_few_items(len(items), permutations, shards)) is not None:
        return refuse(short)
    window, _ = window_and_stride(model)
    fitting = _find_fitting_shard_count(model, items, separator, wanted, window)
    numbers: Sequence[int] = ()
    if shards is not None:
        numbers = (shards,)
    elif fitting is not None:
        numbers = range(fitting, len(items) // MIN_ITEMS_A_SHARD + 1)
    longest = 0
    for number in numbers:
        texts = _build_shard_texts(items, number, permutations, separator, seed)
        longest = max(map(_count_tokens, encode(model, list(chain.from_iterable(texts)))))
        if longest <= window:
            short = explain_shortage(number, sum(map(len, texts)) - number)
            return texts if short is None else refuse(f"{short}; items as long as these call for more of them", number)
    if shards is None or fitting is None:
        return refuse(f"even {MIN_ITEMS_A_SHARD} items a shard do not fit into the {window} tokens of a pass")
    return refuse(
        f"the longest shard takes {longest} tokens, the model reads {window} at once: "
        f"give at least {max(fitting, shards + 1)} shards, or leave the number out"
    )


def _explain_too_few_items(n_items: int, permutations: int, shards: int | None) -> str | None:
    """Why the test cannot be made of so many items, whatever they are; None where it can."""
    needed = count_items_needed(permutations, shards)
    if needed is None:
        most = shards or choose_shard_count(n_items)
        return explain_shortage(most, most * permutations)
    if n_items >= needed:
        return None
    return (
        f"the test needs at least {needed} items, and there are {n_items}. Fewer do not have {MIN_ORDERS} random "
        f"orders in all in {shards or choose_shard_count(needed)} shards"
    )


def _find_fitting_shard_count(
    model: TokenizedModel, items: Sequence[str], separator: str, minimum: int, window: int
) -> int | None:
    """The smallest number of shards, from ``minimum`` on, that fit into ``window`` tokens, by the items' own lengths.

    Joined texts may take a token more or less than their parts: they are counted again. None: no number fits.
    """
    lengths = np.array([_count_tokens(text) for text in encode(model, [item + separator for item in items])])
    ends = np.concatenate([[0], np.cumsum(lengths)])
    for number in range(minimum, len(items) // MIN_ITEMS_A_SHARD + 1):
        if max(ends[shard.stop] - ends[shard.start] for shard in divide_into_shards(len(items), number)) <= window:
            return number
    return None


def _build_shard_texts(
    items: Sequence[str], shards: int, permutations: int, separator: str, seed: int
) -> list[list[str]]:
    rows = []
    for number, shard in enumerate(divide_into_shards(len(items), shards)):
        orders = [list(shard), *draw_orders(shard, permutations, seed=seed, number=number)]
        rows.append([separator.join(items[place] for place in order) for order in orders])
    return rows


def _count_tokens(text: EncodedText) -> int:
    return len(text.token_id) + (text.start_token_id is not None)


def _log_likelihood(statistics_of_texts: Statistics, text: str) -> float:
    statistics = statistics_of_texts.find(text)
    if statistics is None:
        raise DataError("a shard that the model was run over is not in the cache: run the test again")
    # Rounded once, so that the same tokens in another order have the same sum.
    return math.fsum(statistics.logprob.tolist())


CODE_VERSION = "1"


def write_corpus_test(result: CorpusTest, model: TokenizedModel, paths: DataPaths, *, run_id: str) -> None:
    """Write the result of a test that a user ran, with its lineage row; raises DataError for a name with a bar."""
    if "|" in result.benchmark:
        raise DataError(f"{result.benchmark}: the file's name holds a bar, which divides partitions: rename it")
    store.write(
        paths,
        LineageStep.now(run_id, "corpus_test", CODE_VERSION),
        CORPUS_TESTS,
        Pair(result.benchmark, result.model),
        # Ranks and likelihoods count one way alone: there is no other direction to find.
        table_from_rows([{**asdict(result), "direction": None, "run_id": run_id}], CORPUS_TESTS),
        upstream={},
        model_fingerprint=model.identity.model_fingerprint,
        tokenizer_fingerprint=model.identity.tokenizer_fingerprint,
    )
