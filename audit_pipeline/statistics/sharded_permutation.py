"""The sharded permutation test of an ordered test set: does the model prefer the published order of the items?

Source: Oren et al. 2023, arXiv 2310.17623. An order that carries no meaning is as likely as any other one before
training. A model that was trained on the file as it is published finds that order likelier than others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations as permutations_of
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import stats

from audit_pipeline.errors import DataError
from audit_pipeline.statistics.claims import SMALLEST_P
from audit_pipeline.statistics.roc import SLACK
from audit_pipeline.statistics.shards import explain_shortage
from audit_pipeline.statistics.twin_ranks import compute_rank_sum_p, find_detectable_rank_share

Rule = Literal["exact", "t_test"]

ASSUMPTION = (
    "Before training, every order of the items was as likely as the published order: "
    "they are not sorted by topic, date, length, difficulty or source."
)
_LISTED_UP_TO = 7


@dataclass(frozen=True)
class OrderTest:
    """The result of the sharded permutation test.

    Attributes:
        reason: Why the test is refused, or None. A refused test has no numbers.
        p_value: The p-value by the rule that was chosen beforehand.
        statistic: By how many nats the published order of a shard is likelier than the mean of its other orders; the
            mean over shards.
        shards: The number of shards.
        orders: The number of random orders in all shards together.
        method: How the p-value was computed, the p-value of the other rule, and the mean rank of the published order
            in its shard (1 is the likeliest).
        detectable_auroc: How often the published order has to be likelier than a random order for an exact p-value at
            5% in four of five tests (:func:`find_detectable_rank_share`).
        assumption: What the p-value rests on.
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
    """Test whether the published order of each shard is likelier than other orders of it.

    The test is refused with fewer than 10 shards or 100 random orders in all, or if a log-likelihood is not finite: a
    t-test of fewer than 10 skewed differences does not hold, and the mean of few orders is noise.

    Args:
        canonical_log_likelihoods: Nats of the published order of each shard, float array of shape (n_shards,).
        permuted_log_likelihoods: One array per shard, of its other orders. They are drawn without repeats from all but
            the published order (:func:`draw_orders`).
        rule: ``exact``: without training, the rank of the published order in its shard is uniform, and independent of
            the other shards. The p-value is that of the sum of ranks, for any log-likelihoods. ``t_test``: a one-sided
            t-test over shards of the published order minus the mean of the others. The paper takes that mean for
            normal.

    Raises:
        DataError: If there is not one row of other orders per shard.
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
    p_t_test = 1.0
    # Equal differences say nothing of their spread.
    if np.ptp(differences) > SLACK * np.abs(own).max():
        p_t_test = max(SMALLEST_P, float(stats.ttest_1samp(differences, 0, alternative="greater").pvalue))
    # The highest has rank 1, and ties count against it. Two orders may have the same log-likelihoods, added in another
    # order; the slack is that of sums of some thousand tokens.
    least = own - SLACK * np.abs(own)
    ranks = [1 + int(np.count_nonzero(row >= score)) for score, row in zip(least, others, strict=True)]
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
        detectable_auroc=find_detectable_rank_share(sizes),
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
