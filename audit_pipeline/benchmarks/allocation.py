"""Allocation of texts: quotas per collection, and the calibration and evaluation splits of groups."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from audit_pipeline.tables import Split, digest


def compute_even_quotas(sizes: Mapping[str, int], total: int) -> dict[str, int]:
    """Compute how many texts to take from each collection, as evenly as possible and at most ``total`` in all.

    The numbers differ by at most one text. A collection with too few texts contributes all its texts.

    Args:
        sizes: The number of available texts of each collection.
        total: Maximum number of texts in all.
    """
    quotas = dict.fromkeys(sorted(sizes), 0)
    remaining = min(total, sum(sizes.values()))
    while remaining:
        for name in quotas:
            if remaining and quotas[name] < sizes[name]:
                quotas[name] += 1
                remaining -= 1
    return quotas


def compute_proportional_quotas(sizes: Mapping[str, int], fraction: float) -> dict[str, int]:
    """Compute how many texts make up ``fraction`` of each collection, by the largest-remainder method.

    The sum of the numbers is ``fraction`` of all texts, rounded half up. Of collections with equal remainders, the
    first by name gets the additional text.
    """
    quotas = {name: int(fraction * size) for name, size in sizes.items()}
    remaining = int(fraction * sum(sizes.values()) + 0.5) - sum(quotas.values())
    by_remainder = sorted(sizes, key=lambda name: (quotas[name] - fraction * sizes[name], name))
    for name in by_remainder[:remaining]:
        quotas[name] += 1
    return quotas


@dataclass(frozen=True)
class SplitUnit:
    """The properties of a text that determine whether it is in the calibration or the evaluation split."""

    group: str
    collection: str
    label: int | None


def assign_splits(texts: Iterable[SplitUnit], *, fraction: float, seed: int, family: str) -> dict[str, Split]:
    """Assign every group to a split.

    About ``fraction`` of the texts of each label and collection are in the calibration split. Whole groups can make
    the fraction inexact. Groups are chosen in the order of a hash of (seed, family, group), so the order of texts does
    not matter. An added or removed group moves only the last chosen groups of its own label and collection. A
    group with several labels or collections counts only with other groups of the same labels and collections.

    Args:
        texts: The texts of all groups.
        fraction: The share of the texts that are in the calibration split.
        seed: The seed of the hash.
        family: The family of the benchmark.

    Returns:
        The split of each group.
    """
    sizes: Counter[str] = Counter()
    labels: dict[str, set[str]] = defaultdict(set)
    collections: dict[str, set[str]] = defaultdict(set)
    for text in texts:
        sizes[text.group] += 1
        labels[text.group].add(str(text.label))
        collections[text.group].add(text.collection)

    # There are few combinations of collections and many groups, so the digest of each combination is cached.
    digest_collections = cache(lambda *names: digest(list(names)))
    strata: dict[tuple[str, ...], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for group in sizes:
        stratum = strata[tuple(sorted(labels[group]))]
        stratum[digest_collections(*sorted(collections[group]))].append(group)

    splits: dict[str, Split] = dict.fromkeys(sizes, "evaluation")
    for by_collection in strata.values():
        totals = {}
        for name, groups in by_collection.items():
            totals[name] = sum(sizes[group] for group in groups)
        quotas = compute_proportional_quotas(totals, fraction)
        for name, groups in by_collection.items():
            order = sorted(groups, key=lambda group: digest(seed, family, "split", group))
            for group in _fill_quota(order, sizes, quotas[name]):
                splits[group] = "calibration"
    return splits


def _fill_quota(order: list[str], sizes: Mapping[str, int], quota: int) -> list[str]:
    """Return groups that together have about ``quota`` texts.

    A group is taken, in the given order, if the total does not exceed the quota. Then one more group is added if that
    brings the total nearer to the quota.
    """
    chosen: dict[str, None] = {}
    remaining = quota
    for group in order:
        if sizes[group] <= remaining:
            chosen[group] = None
            remaining -= sizes[group]
    for group in order:
        if group not in chosen and sizes[group] < 2 * remaining:
            return [*chosen, group]
    return list(chosen)
