"""Allocation of texts: quotas per collection, and the calibration and evaluation splits of groups."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from audit_pipeline.tables import Split, digest


def compute_even_quotas(sizes: Mapping[str, int], total: int) -> dict[str, int]:
    """Compute even quotas of up to ``total`` texts, by collection.

    Quotas differ by at most one text. A smaller collection has its full size as its quota.
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
    """Compute quotas of ``fraction`` of each collection, in whole texts, by the largest-remainder method.

    The sum is ``fraction`` of all texts, rounded half up. Collections with equal remainders are ordered by name.
    """
    quotas = {name: int(fraction * size) for name, size in sizes.items()}
    remaining = int(fraction * sum(sizes.values()) + 0.5) - sum(quotas.values())
    by_remainder = sorted(sizes, key=lambda name: (quotas[name] - fraction * sizes[name], name))
    for name in by_remainder[:remaining]:
        quotas[name] += 1
    return quotas


@dataclass(frozen=True)
class SplitUnit:
    """The properties of a text that determine its split."""

    group: str
    collection: str
    label: int | None


def assign_splits(texts: Iterable[SplitUnit], *, fraction: float, seed: int, family: str) -> dict[str, Split]:
    """Assign every group to a split.

    About ``fraction`` of the texts of each label and collection are in the calibration split. Whole groups can make
    the fraction inexact. Groups are chosen in the order of a hash of (seed, family, group), so the order of texts does
    not matter. An added or removed group moves only the last chosen groups of its own label and collection. Groups with
    several labels or collections are counted with groups of the same combination.

    Args:
        texts: The texts of all groups.
        fraction: The share of the calibration split.
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

    # There are few combinations and many groups, so the digest of each combination is cached.
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
    """Return the groups that fill ``quota`` texts.

    Groups are taken in order if they fit. One more group is added if the total is then nearer to the quota.
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
