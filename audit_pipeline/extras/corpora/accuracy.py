"""The accuracy of a model's answers to the items with each verdict, compared between contaminated and clean items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from audit_pipeline.extras.corpora.item_verdicts import BenchmarkItem, Verdict
from audit_pipeline.statistics.group_means import bound_mean_error
from audit_pipeline.statistics.intervals import NO_INTERVAL, Interval
from audit_pipeline.statistics.roc import Bools, Floats
from audit_pipeline.statistics.share_bounds import Rate, compute_difference_interval, estimate_grouped_rate

DIFFERENCE_CAVEAT = (
    "A difference does not show that contamination raised the score: items in a corpus may be easier, or better known, "
    "than other items."
)
_PERMUTATIONS = 1999
_BLOCK = 1 << 20
"""Approximate number of values that are permuted at a time, which bounds the memory."""


@dataclass(frozen=True)
class AccuracyComparison:
    """The accuracy on contaminated items minus the accuracy on clean items.

    Attributes:
        contaminated: Accuracy on contaminated items.
        clean: Accuracy on clean items.
        difference: Accuracy on contaminated items minus accuracy on clean items, or None if either is unknown.
        method: The methods of the interval and the p-value, or the reason why they are missing.
    """

    contaminated: Rate
    clean: Rate
    difference: float | None
    interval: Interval
    p_value: float | None
    method: str


def measure_accuracy(items: Sequence[BenchmarkItem], *verdicts: Verdict) -> Rate:
    """Compute the accuracy on the items whose verdict is one of ``verdicts``, with a 95% interval.

    The interval allows for dependent items in a group. Items without a result are ignored.
    """
    correct: list[float] = []
    groups: list[str] = []
    for item in items:
        if item.verdict in verdicts and item.correct is not None:
            correct.append(item.correct)
            groups.append(item.group)
    return estimate_grouped_rate(correct, groups)


def compare_accuracy(items: Sequence[BenchmarkItem], *, seed: int = 0) -> AccuracyComparison:
    """Compare the accuracy on contaminated and on clean items. Items without a result are ignored.

    The interval combines the intervals of the two accuracies as if they were independent. It tends to be too wide if a
    group has both contaminated and clean items. The interval and the p-value are missing if the contaminated items or
    the clean items belong to fewer than two groups.
    """
    contaminated = measure_accuracy(items, "contaminated")
    clean = measure_accuracy(items, "clean")
    difference = None
    if contaminated.value is not None and clean.value is not None:
        difference = contaminated.value - clean.value
    for rate, side in ((contaminated, "contaminated"), (clean, "clean")):
        if rate.n_groups < 2:
            reason = (
                f"no comparison: {rate.n} {side} item(s) with a result, of {rate.n_groups} group(s); two are needed"
            )
            return AccuracyComparison(contaminated, clean, difference, NO_INTERVAL, None, reason)
    chosen = [item for item in items if item.verdict in ("contaminated", "clean") and item.correct is not None]
    chosen.sort(key=lambda item: item.example_id)
    values = np.array([item.correct for item in chosen], dtype=np.float64)
    flags = np.array([item.verdict == "contaminated" for item in chosen])
    groups = [item.group for item in chosen]
    interval = compute_difference_interval(contaminated, clean)
    p_value = compute_permutation_p_value(values, flags, groups, seed)
    method = (
        "95% interval of the difference from those of both accuracies (Newcombe's method 10); two-sided p-value of "
        f"{_PERMUTATIONS} permutations by group (seed {seed})"
    )
    return AccuracyComparison(contaminated, clean, difference, interval, p_value, method)


def compute_permutation_p_value(values: Floats, flags: Bools, groups: Sequence[str], seed: int = 0) -> float:
    """Compute the two-sided permutation p-value of the difference in mean between flagged and other items.

    The flags of uniform groups (all or no items flagged) are permuted between these groups. The flags of mixed groups
    are permuted within each group. Of N permutations, k have a difference that is at least as large as the observed
    one. The p-value is (1 + k) / (1 + N).

    Args:
        values: Float array of shape (n_items,).
        flags: Bool array of shape (n_items,). At least one item is flagged and at least one is not.
        groups: Group of each item.
        seed: Seed of the permutations.
    """
    _, group_at = np.unique(np.array(groups, dtype=object), return_inverse=True)
    order = np.argsort(group_at, kind="stable")
    values = values[order]
    flags = flags[order]
    group_at = group_at[order]
    sizes = np.bincount(group_at)
    share = np.bincount(group_at, weights=flags) / sizes
    is_uniform = (share == 0) | (share == 1)
    is_in_mixed_group = ~is_uniform[group_at]
    sums = np.bincount(group_at, weights=values)[is_uniform]
    total = values.sum()
    n = len(values)
    generator = np.random.default_rng(seed)

    def subtract_means(flagged_sum: Any, count: Any) -> Floats:
        return np.asarray(flagged_sum / count - (total - flagged_sum) / (n - count))

    def permute_differences() -> Iterator[Floats]:
        block_size = max(1, _BLOCK // n)
        for start in range(0, _PERMUTATIONS, block_size):
            count = min(block_size, _PERMUTATIONS - start)
            flagged_groups = generator.permuted(np.tile(share[is_uniform], (count, 1)), axis=1)
            # The sort key is the number of the item's group plus a random number below 1. Sorting by it keeps the
            # items of a group together and shuffles them.
            random_keys = generator.random((count, int(is_in_mixed_group.sum())))
            shuffled = np.argsort(group_at[is_in_mixed_group] + random_keys, axis=1)
            flagged_sums = flagged_groups @ sums + values[is_in_mixed_group][shuffled] @ flags[is_in_mixed_group]
            yield subtract_means(flagged_sums, flagged_groups @ sizes[is_uniform] + flags[is_in_mixed_group].sum())

    observed = abs(subtract_means(values @ flags, flags.sum()))
    # Sums of the same numbers in another order can differ by rounding. Two differences of two means each are compared,
    # so the rounding error of four means is allowed.
    rounding = 4 * float(bound_mean_error(np.abs(values).max(), n))
    n_reached = 0
    for differences in permute_differences():
        n_reached += int((np.abs(differences) >= observed - rounding).sum())
    return (1 + n_reached) / (1 + _PERMUTATIONS)
