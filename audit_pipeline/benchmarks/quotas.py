"""Sharing a number of texts out over collections.

What belongs here: the arithmetic of shares. What does not: which texts fill them (temporal.py, splits.py).
"""

from __future__ import annotations

from collections.abc import Mapping


def even_quotas(sizes: Mapping[str, int], total: int) -> dict[str, int]:
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


def proportional_quotas(sizes: Mapping[str, int], fraction: float) -> dict[str, int]:
    """``fraction`` of each collection in whole texts, by the method of the largest remainder.

    Together they are ``fraction`` of all, rounded half up; remainders that are equal go by name.
    """
    quotas = {name: int(fraction * size) for name, size in sizes.items()}
    left = int(fraction * sum(sizes.values()) + 0.5) - sum(quotas.values())
    by_remainder = sorted(sizes, key=lambda name: (quotas[name] - fraction * sizes[name], name))
    for name in by_remainder[:left]:
        quotas[name] += 1
    return quotas
