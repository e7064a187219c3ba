"""How the sides of a benchmark are made up: how many texts of each collection, of when, how long, of how many groups.

What belongs here: counts and lengths by side. What does not: whether a difference tells the sides apart
(blind_controls.py), and that a balance is kept where it was asked for (benchmarks/checks.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np

from audit_pipeline.catalogue.contracts import MEMBER, NON_MEMBER

SIDES: Mapping[int | None, str] = {MEMBER: "members", NON_MEMBER: "nonmembers", None: "unlabelled"}
UNDATED = "undated"

_MOST_MONTHS = 36


@dataclass(frozen=True)
class Lengths:
    """Lengths of texts in one unit."""

    mean: float
    std: float
    least: float
    most: float


def by_side(labels: Iterable[int | None]) -> dict[str, list[int]]:
    """The positions of the texts of each side, in order; sides without a text are left out."""
    places: dict[str, list[int]] = {side: [] for side in SIDES.values()}
    for place, label in enumerate(labels):
        places[SIDES[label]].append(place)
    return {side: found for side, found in places.items() if found}


def shares(values: Iterable[str]) -> dict[str, tuple[int, float]]:
    """How often each value stands, and its share of all, by name."""
    counts = Counter(values)
    total = counts.total()
    return {name: (counts[name], counts[name] / total) for name in sorted(counts)}


def date_unit(dates: Iterable[date | None]) -> str:
    """`month` where all dates lie within three years, else `year`: bars that a reader can tell apart."""
    known = [day for day in dates if day is not None]
    if not known:
        return "year"
    first, last = min(known), max(known)
    months = (last.year - first.year) * 12 + last.month - first.month + 1
    return "month" if months <= _MOST_MONTHS else "year"


def date_bins(dates: Iterable[date | None], unit: str) -> list[str]:
    """The bin of each date: `2024` or `2024-03`; `undated` without one."""
    form = "%Y-%m" if unit == "month" else "%Y"
    return [UNDATED if day is None else day.strftime(form) for day in dates]


def lengths(values: Sequence[float]) -> Lengths:
    """Mean, standard deviation (of the population), least and most of at least one length."""
    array = np.asarray(values, dtype=np.float64)
    return Lengths(float(array.mean()), float(array.std()), float(array.min()), float(array.max()))
