"""How the items of an ordered test set are dealt into shards, and how many items, shards and orders the test needs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import factorial

from audit_pipeline.errors import DataError

MIN_SHARDS = 10
MIN_ORDERS = 100
MIN_ITEMS_A_SHARD = 2
PERMUTATIONS = 25
"""The default number of random orders of each shard."""

_USUAL_SHARDS = 50
_USUAL_ITEMS_A_SHARD = 10
# A shard of five items has 119 other orders: more than are needed in all.
_ENOUGH_ITEMS_A_SHARD = 5


def choose_shard_count(n_items: int) -> int:
    """Return the default number of shards, if they fit the model's context."""
    return min(_USUAL_SHARDS, max(MIN_SHARDS, n_items // _USUAL_ITEMS_A_SHARD))


def divide_into_shards(n_items: int, shards: int) -> list[range]:
    """Return the places 0 … n_items - 1 in ``shards`` contiguous stretches whose lengths differ by at most one.

    Raises DataError where a shard would have fewer than two items: it has one order only.
    """
    if shards < 1 or n_items < MIN_ITEMS_A_SHARD * shards:
        raise DataError(
            f"{n_items} items do not make {shards} shards of at least {MIN_ITEMS_A_SHARD}: "
            f"ask for 1 to {n_items // MIN_ITEMS_A_SHARD}"
        )
    ends = [n_items * part // shards for part in range(shards + 1)]
    return [range(begin, end) for begin, end in pairwise(ends)]


def count_orders(shards: Iterable[range], permutations: int) -> int:
    """How many random orders the shards have together: of each ``permutations``, or all others where it has fewer."""
    return sum(min(permutations, factorial(len(shard)) - 1) for shard in shards)


def count_items_needed(permutations: int = PERMUTATIONS, shards: int | None = None) -> int | None:
    """Return the fewest items that the test can be made of, in ``shards`` shards or in the usual number of them.

    None where no number of items suffices: with so few shards, or random orders of each.
    """
    # Beyond these more items give neither more shards nor, as far as the test needs them, more orders.
    most = _USUAL_SHARDS * _USUAL_ITEMS_A_SHARD if shards is None else _ENOUGH_ITEMS_A_SHARD * shards
    for n_items in range(MIN_ITEMS_A_SHARD * (shards or MIN_SHARDS), most + 1):
        dealt = divide_into_shards(n_items, shards or choose_shard_count(n_items))
        if explain_shortage(len(dealt), count_orders(dealt, permutations)) is None:
            return n_items
    return None


def explain_shortage(shards: int, orders: int) -> str | None:
    """Return why so many shards, and random orders of all of them together, are too few; None where they are enough."""
    if shards < MIN_SHARDS:
        return f"{shards} shards, the test needs {MIN_SHARDS}"
    if orders < MIN_ORDERS:
        return f"{orders} random orders in all shards together, the test needs {MIN_ORDERS}"
    return None
