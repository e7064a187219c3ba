"""The sharded permutation test of an ordered test set: does the model prefer the published order of the items?

Source: Oren et al. 2023, arXiv 2310.17623. An order that carries no meaning is as likely as any other one before
training. A model that was trained on the file as it is published finds that order likelier than others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations as permutations_of
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import stats

from audit_pipeline.errors import DataError
from audit_pipeline.statistics.claims import detectable_auroc
from audit_pipeline.statistics.score_direction import LEVEL
from audit_pipeline.statistics.shards import explain_shortage
from audit_pipeline.statistics.twin_ranks import compute_rank_sum_p

Rule = Literal["exact", "t_test"]

ASSUMPTION = (
    "Before training, every order of the items was as likely as the published order: "
    "they are not sorted by topic, date, length, difficulty or source."
)
_LISTED_UP_TO = 7


@dataclass(frozen=True)
class OrderTest:
    """The test's result, its ``p_value`` by the rule chosen beforehand.

    ``statistic``: by how many nats the published order of a shard is likelier than the mean of its other orders, mean
    over shards. ``orders``: how many random ones there were in all shards together. ``method`` names the p-value of the
    other rule and the mean rank of the published order among those of its shard (1: the likeliest).
    ``detectable_auroc``: how often the published order has to be likelier than a random one for a p-value at 5% in four
    of five tests, by the normal approximation of a mean of uniform ranks. Where ``status`` is ``refused``, ``reason``
    says why and there is no number.
    """

    reason: str | None
    p_value: float | None
    statistic: float | None
    shards: int
    orders: int
    method: str
    detectable_auroc: float | None
    assumption: str = ASSUMPTION

    @property
    def status(self) -> Literal["ok", "refused"]:
        return "ok" if self.reason is None else "refused"


def run_sharded_permutation_test(
    canonical_log_likelihoods: npt.ArrayLike, permuted_log_likelihoods: Sequence[npt.ArrayLike], *, rule: Rule = "exact"
) -> OrderTest:
    """The test of R shards: log-likelihoods (nats) of the published order [R] and of m_r other orders of each, R rows.

    The other orders of a shard are drawn without repeats from all but the published order (:func:`draw_orders`).
    ``exact``: the rank of the published order among the m_r + 1 is then uniform without training, and independent over
    shards; the p-value is that of their sum (twin_ranks.compute_rank_sum_p), valid for any log-likelihoods. ``t_test``:
    one-sided t-test over shards of published - mean of the others, as in the paper, which takes their mean for normal.

    Refused with fewer than 10 shards or 100 random orders in all, or a log-likelihood that is not finite: of fewer than
    10 differences no t-test holds where they are skewed, and the mean of few orders is noise. Raises DataError where
    there is not one row per shard.
    """
    own = np.asarray(canonical_log_likelihoods, dtype=np.float64)
    others = [np.asarray(row, dtype=np.float64) for row in permuted_log_likelihoods]
    if own.ndim != 1 or len(own) != len(others) or any(row.ndim != 1 for row in others):
        raise DataError(f"one row of log-likelihoods of other orders for each shard is needed: {len(others)} rows")
    sizes = [len(row) for row in others]
    name = "sum of the published order's ranks, exact by convolution" if rule == "exact" else "one-sided t-test"
    method = f"{len(own)} shards, {sum(sizes)} random orders: {name}"
    reason = explain_shortage(len(own), sum(sizes))
    if reason is None and not (np.isfinite(own).all() and all(np.isfinite(row).all() for row in others)):
        reason = "a log-likelihood is not finite"
    if reason is None and min(sizes) < 1:
        reason = "a shard has no other order"
    if reason is not None:
        return build_refused_test(reason, len(own), sum(sizes), method)
    differences = own - np.array([row.mean() for row in others])
    # Equal differences say nothing of their spread.
    p_t_test = (
        1.0 if np.ptp(differences) == 0 else float(stats.ttest_1samp(differences, 0, alternative="greater").pvalue)
    )
    # 1 is the highest, ties count against it.
    ranks = [1 + int(np.count_nonzero(row >= score)) for score, row in zip(own, others, strict=True)]
    p_exact = compute_rank_sum_p(ranks, sizes)
    other_rule = f"t-test p = {p_t_test:.3g}" if rule == "exact" else f"exact p = {p_exact:.3g}"
    expected = f"{np.mean(sizes) / 2 + 1:.3g} without training"
    return OrderTest(
        reason=None,
        p_value=p_exact if rule == "exact" else p_t_test,
        statistic=float(np.mean(differences)),
        shards=len(own),
        orders=sum(sizes),
        method=f"{method} (mean rank {np.mean(ranks):.3g}, {expected}; {other_rule})",
        detectable_auroc=detectable_auroc(1 / math.sqrt(12 * len(own)), LEVEL),
    )


def build_refused_test(reason: str, shards: int, orders: int, method: str) -> OrderTest:
    """Return the result of a test whose conditions are not met."""
    return OrderTest(reason, None, None, shards, orders, method, None)


def draw_orders(shard: Sequence[int], permutations: int, *, seed: int, number: int) -> list[list[int]]:
    """``permutations`` orders of a shard's places, drawn without repeats from all but the given one; fewer if there are
    no more.

    The given order and the drawn ones are then a random choice of orders, of which each was equally likely to be the
    given one: its rank is exact. The same ``seed`` and shard ``number`` give the same orders.
    """
    generator = np.random.default_rng([seed, number])
    given = tuple(shard)
    if len(given) <= _LISTED_UP_TO:
        others = list(permutations_of(given))[1:]
        return [list(others[place]) for place in generator.permutation(len(others))[:permutations]]
    drawn: dict[tuple[int, ...], None] = {}
    while len(drawn) < permutations:
        order = tuple(generator.permutation(given).tolist())
        if order != given:
            drawn[order] = None
    return [list(order) for order in drawn]
