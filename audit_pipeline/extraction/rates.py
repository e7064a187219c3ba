"""How much of a group, collection or benchmark a model gives word for word.

What belongs here: shares over documents and their intervals. What does not: one document (conclude.py), p-values
(held_out.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from audit_pipeline.catalogue.contracts import Side
from audit_pipeline.extraction.conclude import THRESHOLDS
from audit_pipeline.extraction.search import Extracted
from audit_pipeline.metrics.curves import Floats
from audit_pipeline.metrics.intervals import NO_INTERVAL, RESAMPLES, Interval, percentile_interval
from audit_pipeline.metrics.rates import bounds

RULES: tuple[float | None, ...] = (*THRESHOLDS, None)
"""Which suffixes count: those of at least this probability; None: those of first choices alone."""

_RESAMPLES_AT_ONCE = 64


@dataclass(frozen=True)
class ExtractionRate:
    """Of the ``documents`` of a unit: which share of their characters is ``covered`` by suffixes that reach
    ``threshold`` (None: that are first choices throughout), and how many documents have at least one such window."""

    unit: str
    name: str
    side: Side
    threshold: float | None
    documents: int
    characters: int
    covered: float
    covered_interval: Interval
    n_reached: int
    reached_low: float
    reached_high: float
    median_log_p: float


def extraction_rates(found: Sequence[Extracted], benchmark: str, *, seed: int = 0) -> list[ExtractionRate]:
    """The rates of every group, collection and number of occurrences, and of all together, each side by itself.

    The share of characters has a percentile interval over resampled documents, none where all documents have the same
    share: resamples of them say nothing then. The share of documents has Clopper and Pearson's. Documents without a
    window are in none. Where the model's first choices are unknown there is no rate of them.
    """
    units = _by_unit([one for one in found if len(one.windows)], benchmark)
    return [rate for (unit, name, side), some in units for rate in _of_unit(unit, name, side, some, seed)]


def _by_unit(found: Iterable[Extracted], benchmark: str) -> list[tuple[tuple[str, str, Side], list[Extracted]]]:
    units: dict[tuple[str, str, Side], list[Extracted]] = {}
    for one in found:
        document = one.document
        names = {"group": document.group, "collection": document.collection, "benchmark": benchmark}
        if document.occurrences is not None:
            names["occurrences"] = str(document.occurrences)
        for unit, name in names.items():
            units.setdefault((unit, name, document.side), []).append(one)
    return sorted(units.items(), key=lambda item: item[0])


def _of_unit(unit: str, name: str, side: Side, some: Sequence[Extracted], seed: int) -> Iterator[ExtractionRate]:
    characters = np.array([one.found.characters for one in some], dtype=np.float64)
    rules = [one for one in RULES if one is not None or all(found.found.greedy is not None for found in some)]
    # Where no rule of first choices is counted, what stands in their place is not read.
    shares = np.array([[*one.found.covered, one.found.greedy or 0.0] for one in some])
    covered = shares * characters[:, None]
    resampled = _resampled(covered, characters, seed)
    strongest = [one.windows.log_p[one.found.strongest[0]] if one.found.strongest else -np.inf for one in some]
    for number, threshold in enumerate(rules):
        n_reached = sum(_reaches(one, threshold) for one in some)
        low, high = bounds(n_reached, len(some))
        yield ExtractionRate(
            unit=unit,
            name=name,
            side=side,
            threshold=threshold,
            documents=len(some),
            characters=int(characters.sum()),
            covered=float(covered[:, number].sum() / max(characters.sum(), 1)),
            covered_interval=percentile_interval(resampled[:, number]) if np.ptp(shares[:, number]) else NO_INTERVAL,
            n_reached=n_reached,
            reached_low=float(low),
            reached_high=float(high),
            median_log_p=float(np.median(strongest)),
        )


def _reaches(one: Extracted, threshold: float | None) -> bool:
    windows = one.windows
    which = windows.greedy if threshold is None else windows.log_p_top >= math.log(threshold)
    return bool((which & ~one.judged.apart).any())


def _resampled(covered: Floats, characters: Floats, seed: int) -> Floats:
    """The share of characters, by rule, in resamples of the documents: [resamples, rules]."""
    generator, n = np.random.default_rng(seed), len(characters)
    pieces = []
    for begin in range(0, RESAMPLES, _RESAMPLES_AT_ONCE):
        counts = generator.multinomial(n, np.full(n, 1 / n), size=min(_RESAMPLES_AT_ONCE, RESAMPLES - begin))
        pieces.append((counts @ covered) / np.maximum(counts @ characters, 1)[:, None])
    return np.concatenate(pieces)
