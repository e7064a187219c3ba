"""The division of an ordered test set into shards, and the minimum numbers of items, shards and orders of its test."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import factorial

from audit_pipeline.errors import DataError

MIN_SHARDS = 10
MIN_ORDERS = 100
MIN_ITEMS_PER_SHARD = 2
PERMUTATIONS = 25
"""The default number of random orders of each shard."""

_DEFAULT_SHARDS = 50
_DEFAULT_ITEMS_PER_SHARD = 10
# A shard of five items has 119 other orders, which is more than the test needs in all shards.
_SUFFICIENT_ITEMS_PER_SHARD = 5


def choose_shard_count(n_items: int) -> int:
    """Return the default number of shards. The caller checks whether they fit the model's context."""
    return min(_DEFAULT_SHARDS, max(MIN_SHARDS, n_items // _DEFAULT_ITEMS_PER_SHARD))


def divide_into_shards(n_items: int, shards: int) -> list[range]:
    """Divide the positions 0 to n_items - 1 into contiguous shards whose lengths differ by at most one.

    Raises:
        DataError: If a shard would have fewer than two items, and so only one order.
    """
    if shards < 1 or n_items < MIN_ITEMS_PER_SHARD * shards:
        raise DataError(
            f"{n_items} items cannot be divided into {shards} shards of at least {MIN_ITEMS_PER_SHARD} items. "
            f"Use 1 to {n_items // MIN_ITEMS_PER_SHARD} shards."
        )
    ends = [n_items * part // shards for part in range(shards + 1)]
    return [range(begin, end) for begin, end in pairwise(ends)]


def count_orders(shards: Iterable[range], permutations: int) -> int:
    """Count the random orders of all shards. A shard has ``permutations`` orders, or fewer if it is small."""
    return sum(min(permutations, factorial(len(shard)) - 1) for shard in shards)


def count_items_needed(permutations: int = PERMUTATIONS, shards: int | None = None) -> int | None:
    """Return the minimum number of items of the test.

    Args:
        permutations: Number of random orders per shard.
        shards: Number of shards. By default it depends on the number of items.

    Returns:
        The number, or None if no number of items suffices, because there are too few shards or orders.
    """
    # With more items, the default number of shards does not increase, and shards of five items have enough orders.
    max_items = _DEFAULT_SHARDS * _DEFAULT_ITEMS_PER_SHARD
    if shards is not None:
        max_items = _SUFFICIENT_ITEMS_PER_SHARD * shards
    for n_items in range(MIN_ITEMS_PER_SHARD * (shards or MIN_SHARDS), max_items + 1):
        ranges = divide_into_shards(n_items, shards or choose_shard_count(n_items))
        if explain_shortage(len(ranges), count_orders(ranges, permutations)) is None:
            return n_items
    return None


def explain_shortage(shards: int, orders: int) -> str | None:
    """Return why the numbers of shards and of orders in all shards are too low, or None if they suffice."""
    if shards < MIN_SHARDS:
        return f"there are {shards} shards, but the test requires {MIN_SHARDS}"
    if orders < MIN_ORDERS:
        return f"there are {orders} random orders in all shards together, but the test requires {MIN_ORDERS}"
    return None
