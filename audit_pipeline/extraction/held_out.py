"""Documents against documents that the model cannot have seen: is the strongest window stronger than theirs?

What belongs here: the statistic of a document, its p-value and q-value. What does not: p-values as such
(evidence/conformal.py), windows (conclude.py), how many documents reach a threshold (rates.py).

Windows of one document are not independent, so a document has one statistic, its strongest window. The strongest of
many is stronger than that of few, so both sides take equally many: c = min(n, q) windows of a document of n, where q is
what most held-out documents have, spread evenly over the document. Only the coarse windows count: fine ones are where
coarse ones are strong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from audit_pipeline.errors import DataError
from audit_pipeline.evidence.conformal import compared_texts, conformal_p_values, q_values
from audit_pipeline.metrics.curves import Floats


@dataclass(frozen=True)
class Compared:
    """One document against the held-out ones: how many windows were compared, and with how many documents."""

    windows: int
    held_out: int
    p_value: float
    q_value: float


def compare(audited: Sequence[Floats], held_out: Sequence[Floats]) -> list[Compared | None]:
    """Each document's test; None for one without a window.

    audited, held_out: for each document the log-probabilities of its coarse windows, in their order, minus infinity for
    those that are set apart. The p-value holds
    where a document that the model has not read is exchangeable with the held-out ones. q-values are
    Benjamini-Hochberg's over the documents. Raises DataError where no held-out document has a window.
    """
    known = [values for values in held_out if len(values)]
    if not known:
        raise DataError("no held-out document is as long as a window: there is nothing to compare with")
    most = compared_texts([len(values) for values in known])
    tested: dict[int, tuple[int, int, float]] = {}
    for number, values in enumerate(audited):
        if not len(values):
            continue
        count = min(len(values), most)
        against = [_strongest(one, count) for one in known if len(one) >= count]
        [p_value] = conformal_p_values([_strongest(values, count)], against)
        tested[number] = count, len(against), float(p_value)
    q = dict(zip(tested, q_values([p for _, _, p in tested.values()], "bh"), strict=True))
    return [Compared(*tested[number], float(q[number])) if number in tested else None for number in range(len(audited))]


def _strongest(values: Floats, count: int) -> float:
    """The strongest of ``count`` windows, spread evenly over the document."""
    return float(values[np.linspace(0, len(values) - 1, count).round().astype(int)].max())
