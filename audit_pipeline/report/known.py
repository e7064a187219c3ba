"""What the rules of the answers go by: a number with its interval, what documents and detectors came to, all of a pair.

What belongs here: the arguments of the rules in answer.py, documents.py and brief.py. What does not: the rules, and
reading rows (pair_answer.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from audit_pipeline.report.words import ScoreOrigin

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
class DetectorFindings:
    """What one of several detectors came to, where none was named to answer; ``direction`` as of ShelfDocuments."""

    detector: str
    auroc: Estimate
    direction: str | None


@dataclass(frozen=True, kw_only=True)
class PairFindings:
    """What the findings of a model on a benchmark came to: what its answer and the sentences around it go by.

    ``auroc`` and ``margin`` (over the blind control) are of the detector that answers; where nobody named one of
    several there are none, but ``every`` one of them. ``blind``: the AUROC of the blind control. ``audited``: documents
    of unknown membership. ``whole_set``: the direction that dataset inference found. ``warning``: what to heed when
    reading the AUROC. ``member_before`` and ``nonmember_from``: the dates that labels by date go by.
    """

    sides: Sides
    claim_level: str | None
    split_verdict: str | None
    auroc: Estimate | None
    margin: Estimate | None = None
    blind: Estimate | None = None
    every: Sequence[DetectorFindings] = ()
    documents: ShelfDocuments | None = None
    audited: int = 0
    whole_set: str | None = None
    warning: str | None = None
    origin: ScoreOrigin = field(default_factory=ScoreOrigin)
    design: str | None = None
    member_before: str | None = None
    nonmember_from: str | None = None
