"""Where the windows of a document begin.

What belongs here: places in a document, as numbers of characters. What does not: texts, models.

A window is a prefix and, behind it, a suffix of so many tokens. The suffixes of coarse windows stand one behind the
other, so that every token behind the first prefix is in one. A fine window is worth its pass only where the coarse ones
show that it could be likely.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.integer]

FINE_STEP = 10
"""Characters between the beginnings of fine windows (the grid of Cooper et al. 2025)."""
SLACK = 0.8
"""A half of a coarse suffix counts as likely down to so many nats a token below the threshold: a fine window has other
tokens before it."""


@dataclass(frozen=True)
class Coarse:
    """A coarse window: where it begins, and how likely the halves of its suffix are.

    ``start`` and ``half_on`` are characters: the beginnings of the window and of the one whose suffix begins half a
    suffix later. ``first_half`` and ``second_half`` are log-probabilities.
    """

    start: int
    half_on: int
    first_half: float
    second_half: float


def tiled(token_starts: Ints, prefix: int, suffix: int) -> list[int]:
    """Numbers of the tokens at which coarse windows begin, for a document whose tokens begin at ``token_starts``.

    The last one ends with the document. None where the document is shorter than a window.
    """
    last = len(token_starts) - prefix - suffix
    if last < 0:
        return []
    return sorted({*range(0, last + 1, suffix), last})


def grid(characters: int, step: int) -> range:
    """Every ``step``-th character of a document."""
    return range(0, characters, step)


def choose_fine_starts(coarse: Sequence[Coarse], threshold: float, half: int, step: int = FINE_STEP) -> list[int]:
    """Where fine windows begin: the characters of the grid where one could be above ``threshold``, a log-probability.

    ``half`` is the number of tokens in the first half of a suffix.

    The suffix of a fine window that begins between two coarse ones holds the second half of the first one's suffix or
    the first half of the second one's; where both halves are less likely than the threshold, so is the window.
    """
    found: set[int] = set()
    least = threshold - SLACK * half
    if coarse and max(coarse[-1].first_half, coarse[-1].second_half) >= least:
        # The same text, begun a little later, may be cut into fewer tokens and still have room for a window.
        found.update(_between(coarse[-1].start, coarse[-1].half_on, step))
    for one, following in pairwise(coarse):
        if one.second_half >= least:
            found.update(_between(one.start, one.half_on, step))
        if following.first_half >= least:
            found.update(_between(one.half_on, following.start, step))
    return sorted(found - {one.start for one in coarse})


def _between(low: int, high: int, step: int) -> Iterable[int]:
    """The multiples of ``step`` from ``low`` up to ``high``, both included."""
    return range(-(-low // step) * step, high + 1, step)
