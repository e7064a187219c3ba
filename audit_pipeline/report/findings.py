"""What the answer of a model on a benchmark goes by: its findings, as types.

What belongs here: a number with its interval; what documents, detectors and a pair came to. What does not: the rules
(answer.py), reading tables (pair_answer.py), sentences (answers.yaml).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

CHANCE = 0.5

SEPARABLE = "separable without a model"
STATISTICAL = "statistical evidence"
SOUND = "sound test"
OPPOSITE = "opposite"
TRAINING = "training"

Sides = Literal["labelled", "audited against held-out", "none"]
"""What an AUROC compares: labelled members with non-members, or audited texts with held-out texts."""


@dataclass(frozen=True)
class Estimate:
    """A number with its 95% interval; where it is not defined, ``method`` says why."""

    value: float | None
    low: float | None = None
    high: float | None = None
    method: str | None = None


@dataclass(frozen=True)
class ShelfDocuments:
    """What a shelf's documents came to, by the headline detector, or by every detector where none was named.

    ``tested`` documents, of which ``standing_out`` do; ``tests`` p-values by ``detectors``, of which ``can_stand_out``
    are by detectors that are not known to run against training. ``direction``: which of the labelled texts score
    higher, training (members), opposite, none; None where none are known. ``calibration_groups``: the fewest that any
    was compared with; ``smallest_q``: the smallest q-value that so many allow; ``above_all``: documents that score
    higher than every one they were compared with, by the detector by which most do.
    """

    tested: int
    standing_out: int
    detectors: int
    tests: int
    can_stand_out: int
    direction: str | None
    calibration_groups: int
    smallest_q: float
    above_all: int


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
    of unknown membership. ``whole_set``: the direction that dataset inference found. ``flagged``: the share of audited
    texts at or above the threshold that is quoted, which aims at a share of ``flagged_alpha`` by accident. ``warning``:
    what to heed when reading the AUROC. ``fewest_groups``: of the compared side that has fewer. ``handed_over``: the
    scores are a user's own, so their sign may have been forgotten. ``stated_by``: whose word the claim level rests on;
    None where it is more than that. ``member_before`` and ``nonmember_from``: the dates that labels by date go by.
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
    flagged: Estimate | None = None
    flagged_alpha: float | None = None
    warning: str | None = None
    fewest_groups: int | None = None
    handed_over: bool = False
    stated_by: str | None = None
    design: str | None = None
    member_before: str | None = None
    nonmember_from: str | None = None
