"""What the rules of the answers go by: a number with its interval, what documents came to, what one detector came to.

What belongs here: the arguments of the rules in answer.py and documents.py, made of rows of queries. What does not: the
rules, and reading rows (page.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Sides = Literal["labelled", "audited against held-out", "none"]
"""What an AUROC compares: labelled members with non-members, or audited texts with held-out ones."""


@dataclass(frozen=True)
class Estimate:
    """A number with its 95% interval; where it is not defined, ``method`` says why."""

    value: float | None
    low: float | None = None
    high: float | None = None
    method: str | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any] | None) -> Estimate | None:
        return None if row is None else cls(**row)


@dataclass(frozen=True)
class ShelfDocuments:
    """What a shelf's documents came to, by the headline detector, or by every detector where none was named.

    ``tested`` documents, of which ``standing_out`` do; ``tests`` p-values by ``detectors``, of which ``can_stand_out``
    are by detectors that are not known to run against training. ``direction``: which of the labelled texts score
    higher, training (members), opposite, none; None where none are known. ``calibration_groups``: the fewest that any
    was compared with; ``smallest_q``: the smallest q-value that so many allow.
    """

    tested: int
    standing_out: int
    detectors: int
    tests: int
    can_stand_out: int
    direction: str | None
    calibration_groups: int
    smallest_q: float


@dataclass(frozen=True)
class OneOfSeveral:
    """What one of several detectors came to, where none was named to answer; ``direction`` as of ShelfDocuments."""

    detector: str
    auroc: Estimate
    direction: str | None
