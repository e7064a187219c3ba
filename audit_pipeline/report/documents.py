"""What is said of a shelf's documents, and how many have to be compared with for any to stand out.

What belongs here: from p- and q-values counted to an outcome and sentences. What does not: the p-values
(evidence/conformal.py), AUROCs (answer.py), layout (sections/).

A document stands out with a q-value (Benjamini-Hochberg) of at most 0.05. Conformal p-values that share their
calibration documents are positively dependent, so that it controls the false discovery rate (Bates et al. 2023,
Annals of Statistics 51); Benjamini-Yekutieli, which holds whatever the dependence, stands beside it, and counts over
every detector where none was named. Where even the smallest q-value that the calibration documents allow lies above
that, none can, and the report says so instead of "none". Documents stand out with *high* scores; where it is known, or
must be feared, that scores run against training, none is said to stand out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from audit_pipeline.evidence.conformal import count_held_out_needed
from audit_pipeline.report.known import Estimate, PairFindings, ShelfDocuments
from audit_pipeline.report.numbers import count, number, things
from audit_pipeline.report.words import (
    CHANCE,
    COULD_NOT,
    OPPOSITE,
    Q_LEVEL,
    SEPARABLE,
    SOUND,
    STATISTICAL,
    ScoreOrigin,
    Words,
)


def penalty(tests: int) -> float:
    """By how much Benjamini and Yekutieli's q-values of so many tests exceed Benjamini and Hochberg's: sum of 1/i."""
    return sum(1 / place for place in range(1, tests + 1))


def smallest_q(calibration_groups: int, tested: int, factor: float = 1.0) -> float:
    """The smallest q-value (Benjamini and Hochberg 1995) there can be: every p-value is 1 / (groups + 1).

    ``factor``: :func:`penalty` of the tests for Benjamini and Yekutieli's; larger where not all of them can stand out.
    """
    return min(1.0, factor / (calibration_groups + 1)) if tested else 1.0


def of_documents(found: PairFindings, aurocs: Sequence[Estimate | None]) -> Words:
    """What is said of a shelf's documents, which there are; ``aurocs``: of every detector."""
    assert found.documents is not None
    against_training = _runs_against_training(found, found.documents, aurocs)
    words = _answer_from_counts(found, found.documents, against_training=against_training)
    # By which known members score lower.
    left_aside = [one.detector for one in found.every if one.direction == OPPOSITE]
    if against_training or not left_aside:
        return words
    by = f" By {', '.join(left_aside)} known members score lower than non-members: nothing stands out by that."
    return replace(words, explanation=f"{words.explanation}{by} {found.origin.asked_in_passing}")


def _runs_against_training(found: PairFindings, documents: ShelfDocuments, aurocs: Sequence[Estimate | None]) -> bool:
    """Whether high scores are no sign of training: by texts of which it is known; else it must be feared.

    It must be feared of a user's own scores where no text is a known member, and the audited texts together score lower
    than those held out: by every AUROC, or by dataset inference.
    """
    if documents.direction is not None or not found.origin.handed_over or found.sides == "labelled":
        return documents.direction == OPPOSITE
    if found.whole_set == OPPOSITE:
        return True
    highs = [auroc.high for auroc in aurocs if auroc is not None and auroc.high is not None]
    return bool(highs) and all(high < CHANCE for high in highs)


def _answer_from_counts(found: PairFindings, documents: ShelfDocuments, *, against_training: bool) -> Words:
    origin = found.origin
    those = things(documents.tested, "document", "documents")
    against = things(documents.calibration_groups, "document that", "documents that")
    detectors = f" and of detectors ({documents.detectors})" if documents.detectors > 1 else ""
    allowed_for = f"the number of documents{detectors}"
    if against_training:
        known = documents.direction == OPPOSITE
        lower = "members score lower than non-members" if known else "the audited texts score lower than the held-out"
        return Words(
            "documents_opposite_direction",
            origin.opposite,
            f"{'Where it is known, ' if known else 'Taken together, '}{lower}, the opposite of what training would do."
            f" {origin.why_lower} So no document is said to stand out, whatever its score. This clears none.",
        )
    if documents.smallest_q > Q_LEVEL:
        factor = penalty(documents.tests) if documents.detectors > 1 else 1.0
        fewest = count_held_out_needed(documents.tests, documents.can_stand_out, Q_LEVEL, factor)
        return Words(
            "documents_cannot_stand_out",
            f"{COULD_NOT} {things(documents.calibration_groups, 'comparison document', 'comparison documents')},"
            f" {count(count_held_out_needed(documents.tests, 1, Q_LEVEL, factor))} needed for a document to stand out"
            " alone.",
            f"Each of {those} was compared with {against} the model cannot have read. So few allow no q-value below"
            f" {number(documents.smallest_q)}, whatever the scores."
            f" {count(fewest)} would be the fewest that do, if every document stood out.",
        )
    if documents.standing_out == 0:
        return Words(
            "no_document_stands_out",
            f"Nothing found, and this comparison would have found {_describe_detectable_effect(documents)}. That clears"
            " nobody.",
            f"None of {those} stands out: no score is unusual beside those of {against} the model cannot have read,"
            f" once {allowed_for} is allowed for. Text that was trained on can go unnoticed.",
        )
    headline, allowed = _describe_standing_out(f"{count(documents.standing_out)} of {those}", found, documents)
    return Words(
        "documents_stand_out",
        headline,
        f"Their scores are unusually high beside those of {against} the model cannot have read, {allowed_for}"
        f" allowed for (q ≤ {Q_LEVEL}). {allowed}{_orientation_words(documents, origin)}",
    )


def _describe_detectable_effect(documents: ShelfDocuments) -> str:
    """What would have had a q-value of 0.05: one document and how many of the comparison documents may score as high,
    or the fewest documents that would have had to stand out together."""
    factor = penalty(documents.tests) if documents.detectors > 1 else 1.0
    groups = documents.calibration_groups
    as_high = math.floor(Q_LEVEL * (groups + 1) / (documents.tests * factor) + 1e-9) - 1
    if as_high >= 1:
        return f"any document that scores higher than all but {count(as_high)} of {count(groups)} comparison documents"
    if as_high == 0:
        return f"any document that scores higher than all {count(groups)} comparison documents"
    together = math.ceil(factor * documents.tests / (Q_LEVEL * (groups + 1)) - 1e-9)
    alone = count_held_out_needed(documents.tests, 1, Q_LEVEL, factor)
    return (
        f"{count(together)} documents that all score higher than all {count(groups)} comparison documents; for a"
        f" document to stand out alone {count(alone)} of these are needed"
    )


def _describe_standing_out(some: str, found: PairFindings, documents: ShelfDocuments) -> tuple[str, str]:
    """The headline, and what the level allows to say of documents that stand out."""
    stand = "stands" if documents.standing_out == 1 else "stand"
    if found.claim_level == SOUND:
        return (
            f"{some} {stand} out: higher scores than chance allows.",
            f"{found.origin.chance('what the model could have read')}: of the documents that stand out, at most"
            f" {Q_LEVEL:.0%} are expected to do so by accident.",
        )
    if found.claim_level == STATISTICAL:
        return (
            f"{some} {stand} out: statistical evidence of training on them.",
            "The documents that they are compared with are like them by design, so this is statistical evidence of"
            f" training on them, with at most {Q_LEVEL:.0%} of these documents expected to stand out by accident.",
        )
    return (
        f"{some} {stand} out: worth a closer look.",
        "That says where to look. It is no evidence: the documents that they are compared with may differ from them"
        + (
            " in more than training, and can be separated from them without the model."
            if found.split_verdict == SEPARABLE
            else " in more than training."
        ),
    )


def _orientation_words(documents: ShelfDocuments, origin: ScoreOrigin) -> str:
    """What is not known of the direction that the scores run in."""
    if documents.direction == "none":
        return " Where it is known, members do not clearly score higher than non-members here."
    if documents.direction is None and origin.handed_over:
        return (
            " Whether a high score is a sign of training cannot be checked: no text is a known member, and the scores"
            " were handed over."
        )
    return ""
