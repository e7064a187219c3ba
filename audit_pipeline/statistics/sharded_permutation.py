"""The sharded permutation test of an ordered test set: a test of whether the model prefers the published order.

Source: Oren et al. 2023, arXiv 2310.17623. If the order of the items carries no meaning, a model without training on
them finds every order equally likely. A model that was trained on the published file prefers the published order.
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
_MAX_LISTED_ITEMS = 7


@dataclass(frozen=True)
class OrderTest:
    """The result of the sharded permutation test.

    Attributes:
        reason: Why the test is refused, or None. A refused test has no numbers.
        p_value: The p-value by the rule (exact or t-test) that the user chose beforehand.
        statistic: Log-likelihood of the published order minus the mean of the other orders, in nats, averaged over
            shards.
        shards: The number of shards.
        orders: The number of random orders in all shards together.
        method: The method of the p-value, the p-value of the other rule, and the mean rank of the published order in
            its shard (1 is the likeliest).
        detectable_auroc: The mean share of random orders that the published order must exceed, so that the exact test
            at 5% has a power of 80% (:func:`find_detectable_rank_share`).
        assumption: The assumption of the p-value.
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
        """Return ``refused`` if there is a reason."""
        return "ok" if self.reason is None else "refused"


def run_sharded_permutation_test(
    canonical_log_likelihoods: npt.ArrayLike, permuted_log_likelihoods: Sequence[npt.ArrayLike], *, rule: Rule = "exact"
) -> OrderTest:
    """Test whether the published order of each shard is likelier than its other orders.

    The test is refused with fewer than 10 shards or 100 random orders in all, or if a log-likelihood is not finite. A
    t-test of fewer than 10 skewed differences does not hold, and the mean of few orders is noise.

    Args:
        canonical_log_likelihoods: Nats of the published order of each shard, float array of shape (n_shards,).
        permuted_log_likelihoods: One array per shard, of its other orders. They are drawn without repetition from all
            orders except the published one (:func:`draw_orders`).
        rule: ``exact`` uses the sum of ranks. Without training, the rank of the published order is uniform and
            independent of other shards. ``t_test`` is a one-sided t-test over shards of the published order minus the
            mean of the others, which the paper assumes to be normal.

    Raises:
        DataError: If the number of arrays of other orders differs from the number of shards.
    """
    published = np.asarray(canonical_log_likelihoods, dtype=np.float64)
    permuted = [np.asarray(row, dtype=np.float64) for row in permuted_log_likelihoods]
    if published.ndim != 1 or len(published) != len(permuted) or any(row.ndim != 1 for row in permuted):
        raise DataError(
            f"each of the {published.size} shards needs one row with the log-likelihoods of its other orders, but "
            f"there are {len(permuted)} rows"
        )
    sizes = [len(row) for row in permuted]
    n_shards = len(published)
    n_orders = sum(sizes)
    name = "sum of the published order's ranks, exact by convolution" if rule == "exact" else "one-sided t-test"
    method = f"{n_shards} shards, {n_orders} random orders: {name}"
    reason = explain_shortage(n_shards, n_orders)
    if reason is None and not all(np.isfinite(row).all() for row in (published, *permuted)):
        reason = "a log-likelihood is not finite"
    if reason is None and min(sizes) < 1:
        reason = "a shard has no random order with which its published order could be compared"
    if reason is not None:
        return build_refused_test(reason, n_shards, n_orders, method)
    differences = published - np.array([row.mean() for row in permuted])
    p_t_test = 1.0
    # If all differences are equal, their spread is unknown, and a t-test is not possible.
    if np.ptp(differences) > SLACK * np.abs(published).max():
        p_t_test = max(SMALLEST_P, float(stats.ttest_1samp(differences, 0, alternative="greater").pvalue))
    # The likeliest order has rank 1, and ties count against the published order. Two orders of the same token
    # log-likelihoods may have sums that differ by rounding. The tolerance covers sums of some thousand tokens.
    limits = published - SLACK * np.abs(published)
    ranks = [1 + int(np.count_nonzero(row >= limit)) for limit, row in zip(limits, permuted, strict=True)]
    p_exact = compute_rank_sum_p(ranks, sizes)
    other_rule = f"t-test p = {p_t_test:.3g}" if rule == "exact" else f"exact p = {p_exact:.3g}"
    expected_rank = f"{np.mean(sizes) / 2 + 1:.3g} without training"
    return OrderTest(
        reason=None,
        p_value=p_exact if rule == "exact" else p_t_test,
        statistic=float(np.mean(differences)),
        shards=n_shards,
        orders=n_orders,
        method=f"{method} (mean rank {np.mean(ranks):.3g}, {expected_rank}; {other_rule})",
        detectable_auroc=find_detectable_rank_share(sizes),
    )


def build_refused_test(reason: str, shards: int, orders: int, method: str) -> OrderTest:
    """Build the result of a test that is refused, because its conditions are not met."""
    return OrderTest(reason, None, None, shards, orders, method, None)


def draw_orders(shard: Sequence[int], permutations: int, *, seed: int, number: int) -> list[list[int]]:
    """Draw random orders of a shard without repetition, from all orders except the published one.

    Without training, the published order is then equally likely to have any rank among itself and the drawn orders.
    The p-value by this rank is therefore exact.

    Args:
        shard: The positions of the items in their published order.
        permutations: Number of orders. A small shard with fewer other orders yields all of them.
        seed: The seed of the test.
        number: The number of the shard. The same seed and number yield the same orders.
    """
    generator = np.random.default_rng([seed, number])
    published = tuple(shard)
    if len(published) <= _MAX_LISTED_ITEMS:
        others = list(permutations_of(published))[1:]
        return [list(others[index]) for index in generator.permutation(len(others))[:permutations]]
    drawn: dict[tuple[int, ...], None] = {}
    while len(drawn) < permutations:
        order = tuple(generator.permutation(published).tolist())
        if order != published:
            drawn[order] = None
    return [list(order) for order in drawn]
