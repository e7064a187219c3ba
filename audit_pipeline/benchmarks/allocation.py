"""How texts are shared out: a number of them over collections, and groups over calibration and evaluation."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from audit_pipeline.tables import Split, digest


def compute_even_quotas(sizes: Mapping[str, int], total: int) -> dict[str, int]:
    """Up to ``total`` texts, one per collection in turn, by name; one that is used up is passed over.

    So collections have equally many (to one), but for small ones, which have all they hold.
    """
    quotas = dict.fromkeys(sorted(sizes), 0)
    left = min(total, sum(sizes.values()))
    while left:
        for name in quotas:
            if left and quotas[name] < sizes[name]:
                quotas[name] += 1
                left -= 1
    return quotas


def compute_proportional_quotas(sizes: Mapping[str, int], fraction: float) -> dict[str, int]:
    """``fraction`` of each collection in whole texts, by the method of the largest remainder.

    Together they are ``fraction`` of all, rounded half up; remainders that are equal go by name.
    """
    quotas = {name: int(fraction * size) for name, size in sizes.items()}
    left = int(fraction * sum(sizes.values()) + 0.5) - sum(quotas.values())
    by_remainder = sorted(sizes, key=lambda name: (quotas[name] - fraction * sizes[name], name))
    for name in by_remainder[:left]:
        quotas[name] += 1
    return quotas


@dataclass(frozen=True)
class SplitUnit:
    """What of a text matters to its split."""

    group: str
    collection: str
    label: int | None


def assign_splits(texts: Iterable[SplitUnit], *, fraction: float, seed: int, family: str) -> dict[str, Split]:
    """The split of every group: about ``fraction`` of the texts of each label and collection to calibration.

    Groups are taken in the order of a hash of (seed, family, group), so the order of texts is irrelevant, and a group
    more or less moves no others but the last ones taken in its own label and collection. A group with several labels
    or collections counts with those of the same mixture. Whole groups may make the fraction inexact.
    """
    sizes: Counter[str] = Counter()
    labels: dict[str, set[str]] = defaultdict(set)
    collections: dict[str, set[str]] = defaultdict(set)
    for text in texts:
        sizes[text.group] += 1
        labels[text.group].add(str(text.label))
        collections[text.group].add(text.collection)

    # Few mixtures for many groups, so each is digested once.
    mixture = cache(lambda *collections: digest(list(collections)))
    strata: dict[tuple[str, ...], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for group in sizes:
        strata[tuple(sorted(labels[group]))][mixture(*sorted(collections[group]))].append(group)

    splits: dict[str, Split] = dict.fromkeys(sizes, "evaluation")
    for by_collection in strata.values():
        totals = {name: sum(sizes[group] for group in groups) for name, groups in by_collection.items()}
        quotas = compute_proportional_quotas(totals, fraction)
        for name, groups in by_collection.items():
            order = sorted(groups, key=lambda group: digest(seed, family, "split", group))
            for group in _fill_quota(order, sizes, quotas[name]):
                splits[group] = "calibration"
    return splits


def _fill_quota(order: list[str], sizes: Mapping[str, int], quota: int) -> list[str]:
    """The groups of ``order`` that fill ``quota`` texts: all that fit, then one more where that comes nearer."""
    taken: dict[str, None] = {}
    left = quota
    for group in order:
        if sizes[group] <= left:
            taken[group] = None
            left -= sizes[group]
    nearest = next((group for group in order if group not in taken and sizes[group] < 2 * left), None)
    return [*taken, *([nearest] if nearest is not None else [])]
