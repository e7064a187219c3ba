"""Where the windows of a document lie.

What belongs here: drawing positions. What does not: words and texts (words.py), labels and selection (temporal.py).
"""

from __future__ import annotations

import random


def draw_windows(n_words: int, length: int, count: int, seed: int) -> list[int]:
    """The first words of up to ``count`` windows of ``length`` words, none overlapping another, in random order.

    There are min(count, n_words // length) of them. Every set of positions that does not overlap is equally likely:
    k gaps are chosen among the words that no window covers and the k windows themselves, and widened to windows. Their
    order is random too, so that whoever takes the first few does not take the document's beginning.

    Only ``random.Random.random`` is drawn from: its values for a seed never change from one Python to another.
    """
    count = min(count, n_words // length)
    draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
    slots = n_words - count * (length - 1)
    # Floyd's algorithm: every subset of `count` slots with the same probability.
    chosen: set[int] = set()
    for last in range(slots - count, slots):
        slot = int(draw.random() * (last + 1))
        chosen.add(last if slot in chosen else slot)
    starts = [slot + place * (length - 1) for place, slot in enumerate(sorted(chosen))]
    order = sorted((draw.random(), start) for start in starts)
    return [start for _, start in order]
