"""The answer of one model on one benchmark, as its kind and facts: by AUROCs, or by the documents of a shelf.

What belongs here: from a claim level, AUROCs, and p- and q-values counted to a kind of answer, which never says more
than the level allows, and to the facts of its sentences; how many documents have to be compared with for any to stand
out. What does not: the sentences (answers.yaml), the levels themselves (statistics/claims.py), the p-values
(statistics/conformal.py), reading tables (pair_answer.py).

The rule, for the AUROC of the detector that was named beforehand, by its 95% interval:

* *separable without a model*: no conclusion, whatever the detector reached.
* below chance: the opposite direction, and no finding, at any level.
* *screening only*: above chance is something to look at, and no more.
* *statistical evidence*: a difference counts where the interval lies above chance and the margin over the blind control
  above zero. A margin raises no level; the lack of one keeps the report from saying what the level would allow.
* *sound test*: the interval above chance is enough, for the labels were drawn by chance; where that is somebody's word
  alone, it is said.

"Nothing found" is said where the comparison would have found an effect that matters (AUROC_OF_INTEREST in
statistics/claims.py) and nothing differs: never of scores that point away from training, of documents that the words
alone separate from those they are compared with, or where more is flagged, or scores higher, than chance allows,
though no single document stands out. All of these are no conclusion.

Where nobody named one of several detectors, nothing is concluded from any of them alone: the best of several looks
better than it is. Of documents the q-values that allow for every detector are taken then.

A document stands out with a q-value (Benjamini-Hochberg) of at most 0.05. Conformal p-values that share their
calibration documents are positively dependent, so that it controls the false discovery rate (Bates et al. 2023, Annals
of Statistics 51); Benjamini-Yekutieli, which holds whatever the dependence, is reported too, and counts over every
detector where none was named. Where even the smallest q-value that the calibration documents allow lies above that,
none can, and the report says so instead of "none". Documents stand out with *high* scores; where it is known, or must
be feared, that scores run against training, none is said to stand out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from audit_pipeline.report.number_format import format_count_with_noun
from audit_pipeline.report.sentences import P_LEVEL, Q_LEVEL, render_answer, render_phrase
from audit_pipeline.statistics.claims import AUROC_OF_INTEREST, compute_min_documents_for_effect, detectable_auroc
from audit_pipeline.statistics.conformal import count_held_out_needed
from audit_pipeline.statistics.roc import ALL_EQUAL

CHANCE = 0.5

SEPARABLE = "separable without a model"
STATISTICAL = "statistical evidence"
SOUND = "sound test"
OPPOSITE = "opposite"
TRAINING = "training"

Sides = Literal["labelled", "audited against held-out", "none"]
"""What an AUROC compares: labelled members with non-members, or audited texts with held-out texts."""


@dataclass(frozen=True)
class MetricEstimate:
    """A number with its 95% interval; where it is not defined, ``method`` says why."""

    value: float | None
    low: float | None = None
    high: float | None = None
    method: str | None = None


@dataclass(frozen=True)
class DocumentFindings:
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
    """What one of several detectors came to, where none was named to answer; ``direction`` as of DocumentFindings."""

    detector: str
    auroc: MetricEstimate
    direction: str | None


@dataclass(frozen=True, kw_only=True)
class PairFindings:
    """What the findings of a model on a benchmark came to: what its answer and the sentences around it go by.

    ``auroc`` and ``margin`` (over the blind control) are of the detector that answers; where nobody named one of
    several there are none, but ``every`` one of them. ``blind``: the AUROC of the blind control. ``audited``: documents
    of unknown membership. ``whole_set``: the direction that dataset inference found. ``flagged``: the share of audited
    texts at or above the threshold that is quoted, which aims at a share of ``flagged_alpha`` by accident;
    ``flagged_is_certified``: its false-positive rate is known, so that the share may be shown. ``design_stated_by``:
    who named the texts that the model has not read; None if that follows from how they were drawn. ``warning``:
    what to heed when reading the AUROC. ``fewest_groups``: of the compared side that has fewer. ``handed_over``: the
    scores are a user's own, so their sign may have been forgotten. ``stated_by``: whose word the claim level rests on;
    None where it is more than that. ``member_before`` and ``nonmember_from``: the dates that labels by date go by.
    """

    sides: Sides
    claim_level: str | None
    split_verdict: str | None
    auroc: MetricEstimate | None
    margin: MetricEstimate | None = None
    blind: MetricEstimate | None = None
    every: Sequence[DetectorFindings] = ()
    documents: DocumentFindings | None = None
    audited: int = 0
    whole_set: str | None = None
    flagged: MetricEstimate | None = None
    flagged_alpha: float | None = None
    flagged_is_certified: bool = False
    warning: str | None = None
    fewest_groups: int | None = None
    handed_over: bool = False
    stated_by: str | None = None
    design: str | None = None
    design_stated_by: str | None = None
    member_before: str | None = None
    nonmember_from: str | None = None


Conclusion = tuple[str, Mapping[str, Any]]
"""The kind of an answer, and what its sentences say apart from the findings."""

_Z_95 = 1.959964
_NO_FINDING = ("no_document_stands_out", "documents_cannot_stand_out", "no_difference", "too_few_texts")
"""What is not said where the audited texts together differ from the held-out texts."""
_FEW_GROUPS = range(2, 5)
"""So few groups of a side that an answer by an AUROC says that it rests on them."""


def compute_benjamini_yekutieli_factor(tests: int) -> float:
    """By how much Benjamini and Yekutieli's q-values of so many tests exceed Benjamini and Hochberg's: sum of 1/i."""
    return sum(1 / place for place in range(1, tests + 1))


def compute_smallest_q(calibration_groups: int, tested_documents: int, factor: float = 1.0) -> float:
    """The smallest q-value (Benjamini and Hochberg 1995) there can be: every p-value is 1 / (groups + 1).

    ``factor``: :func:`compute_benjamini_yekutieli_factor` of the tests for Benjamini and Yekutieli's; larger where not
    all of them can stand out.
    """
    return min(1.0, factor / (calibration_groups + 1)) if tested_documents else 1.0


def find_detectable_auroc(aurocs: Sequence[MetricEstimate]) -> float:
    """The AUROC that the comparison with the widest interval would have found four times in five; infinite where none
    has an interval."""
    widths = [auroc.high - auroc.low for auroc in aurocs if auroc.low is not None and auroc.high is not None]
    return detectable_auroc(max(widths, default=math.inf) / (2 * _Z_95), P_LEVEL / 2)


def build_answer(findings: PairFindings, model: str = "", benchmark: str = "") -> dict[str, str]:
    """The answer in sentences, from the results of the detector that was named beforehand, or of every one where none
    was; ``model`` and ``benchmark`` by their titles.

    A shelf's documents come first: they are the question. Else the AUROC of labelled members against
    non-members, or of audited against held-out texts, and whether that rests on few groups.
    """
    kind, known = decide_outcome(findings)
    labelled = findings.sides == "labelled"
    facts = {
        **vars(findings),
        "model": model,
        "benchmark": benchmark,
        "first": "members" if labelled else "the audited texts",
        "second": "non-members" if labelled else "the held-out texts",
        "lower": 0,
        "excluded": (),
        **known,
    }
    answer = render_answer(kind, facts, question="question_of_scores")
    if findings.documents is None and findings.fewest_groups in _FEW_GROUPS:
        answer["explanation"] += f" {render_phrase('few_groups', facts)}"
    if findings.documents is None and findings.warning is not None:
        answer["how_sure"] += f" There are few texts: {findings.warning}."
    return answer


def decide_outcome(findings: PairFindings) -> Conclusion:
    """The kind of the answer, and the facts of its sentences."""
    kind, facts = _conclude_from_scores(findings)
    differences = _find_signs_above_chance(findings)
    if kind in _NO_FINDING and any(differences.values()):
        return "texts_differ", {**facts, **differences, "null_kind": kind}
    return kind, facts


def _find_signs_above_chance(findings: PairFindings) -> dict[str, Any]:
    """In what the audited texts together lie above what chance allows, though no answer rests on it."""
    flagged, alpha, documents = findings.flagged, findings.flagged_alpha, findings.documents
    aurocs = _list_aurocs(findings) if findings.sides == "audited against held-out" else []
    return {
        "flagged_too_often": flagged is not None
        and alpha is not None
        and flagged.low is not None
        and flagged.low > alpha,
        "above_all_too_often": documents is not None and _is_above_all_too_often(documents),
        "together_higher": next((auroc for auroc in aurocs if auroc.low is not None and auroc.low > CHANCE), None),
        "set_higher": findings.whole_set == TRAINING,
    }


def _list_aurocs(findings: PairFindings) -> list[MetricEstimate]:
    named = [] if findings.auroc is None else [findings.auroc]
    return [*named, *(finding.auroc for finding in findings.every)]


def _is_above_all_too_often(documents: DocumentFindings) -> bool:
    """Whether more documents score higher than every comparison document than chance allows: were all exchangeable, the
    k highest of m + n documents would be k of the m audited ones with the probability C(m, k) / C(m + n, k)."""
    m, n, k = documents.tested, documents.calibration_groups, documents.above_all
    return math.comb(m, k) / math.comb(m + n, k) <= P_LEVEL / documents.detectors


def _conclude_from_scores(findings: PairFindings) -> Conclusion:
    documents, audited = findings.documents, findings.audited
    # Where at least one AUROC is known, and every known one is of equal scores.
    methods = [auroc.method for auroc in _list_aurocs(findings) if auroc.value is not None]
    all_equal = bool(methods) and all(method is not None and method.endswith(ALL_EQUAL) for method in methods)
    if all_equal and (documents is not None or findings.split_verdict != SEPARABLE):
        return "not_defined", {"lack": "equal"}
    if documents is not None:
        return _conclude_by_documents(findings, documents)
    if findings.sides == "none" or findings.claim_level is None:
        return "not_evaluated", {"needed": count_held_out_needed(audited, 1, Q_LEVEL) if audited else None}
    if findings.every:
        return _conclude_by_every_detector(findings)
    if findings.auroc is None or findings.auroc.value is None:
        return "not_defined", {"lack": "no number"}
    return _conclude_by_auroc(findings, findings.auroc)


def _conclude_by_auroc(findings: PairFindings, auroc: MetricEstimate) -> Conclusion:
    level, margin = findings.claim_level, findings.margin
    if findings.split_verdict == SEPARABLE:
        return "separable", {"scores_lower": auroc.high is not None and auroc.high < CHANCE}
    if auroc.low is None or auroc.high is None:
        return "not_defined", {"lack": "no interval"}
    if auroc.high < CHANCE:
        return "reversed_difference", {}
    if auroc.low <= CHANCE:
        return _conclude_no_difference([auroc])
    is_larger = margin is not None and margin.low is not None and margin.low > 0
    statistical = "evidence_of_training" if is_larger else "difference_within_control"
    kinds = {SOUND: "sound_evidence_of_training", STATISTICAL: statistical}
    return kinds.get(level or "", "difference_to_look_at"), {}


def _conclude_no_difference(bounded: Sequence[MetricEstimate], lower: int = 0) -> Conclusion:
    """No difference, by what the comparison would have found."""
    detectable = find_detectable_auroc(bounded)
    times = math.ceil(((detectable - CHANCE) / (AUROC_OF_INTEREST - CHANCE)) ** 2)
    kind = "too_few_texts" if detectable > AUROC_OF_INTEREST else "no_difference"
    return kind, {"detectable": detectable, "times": times, "lower": lower}


def _conclude_by_every_detector(findings: PairFindings) -> Conclusion:
    known = [finding.auroc for finding in findings.every if finding.auroc.value is not None]
    bounded = [auroc for auroc in known if auroc.low is not None and auroc.high is not None]
    lower = sum(auroc.high is not None and auroc.high < CHANCE for auroc in bounded)
    if findings.split_verdict == SEPARABLE:
        return "separable", {"scores_lower": lower > 0}
    if not bounded:
        methods = dict.fromkeys(finding.auroc.method or "not defined" for finding in findings.every)
        return "not_defined", {"lack": "no intervals", "methods": list(methods)}
    if lower == len(bounded):
        return "reversed_difference", {}
    if not any(auroc.low is not None and auroc.low > CHANCE for auroc in bounded):
        return _conclude_no_difference(bounded, lower)
    values = [auroc.value for auroc in known if auroc.value is not None]
    return "no_detector_named", {"lowest": min(values), "highest": max(values), "lower": lower}


def _conclude_by_documents(findings: PairFindings, documents: DocumentFindings) -> Conclusion:
    # By which known members score lower.
    excluded = [finding.detector for finding in findings.every if finding.direction == OPPOSITE]
    facts: dict[str, Any] = {
        "those": format_count_with_noun(documents.tested, "document", "documents"),
        "against": format_count_with_noun(documents.calibration_groups, "held-out document", "held-out documents"),
        "excluded": excluded,
    }
    if _is_direction_opposite(findings, documents):
        return "documents_opposite_direction", facts
    if documents.standing_out:
        return "documents_stand_out", facts
    if findings.split_verdict == SEPARABLE:
        return "separable", {**facts, "scores_lower": False}
    reach = _compute_significance_requirements(documents)
    can = not reach["too_few"] and reach["together"] <= compute_min_documents_for_effect(documents.tested)
    return ("no_document_stands_out" if can else "documents_cannot_stand_out"), {**facts, **reach}


def _compute_significance_requirements(documents: DocumentFindings) -> dict[str, Any]:
    """What would have had a q-value of 0.05: one document, where ``as_high`` comparison documents may score as high
    (0 or more), or else ``together`` documents, each by so many detectors (``by_each``) higher than all of these.

    ``alone``: comparison documents that a single document needs; ``too_few``: there are so few that none can stand out,
    and ``fewest`` would be needed.
    """
    factor = compute_benjamini_yekutieli_factor(documents.tests) if documents.detectors > 1 else 1.0
    groups = documents.calibration_groups
    as_high = math.floor(Q_LEVEL * (groups + 1) / (documents.tests * factor) + 1e-9) - 1
    by_each = max(1, documents.can_stand_out // documents.tested)
    together = math.ceil(factor * documents.tests / (Q_LEVEL * (groups + 1) * by_each) - 1e-9)
    return {
        "as_high": as_high,
        "by_each": by_each,
        "together": together if as_high < 0 else 1,
        "alone": count_held_out_needed(documents.tests, 1, Q_LEVEL, factor),
        "too_few": documents.smallest_q > Q_LEVEL,
        "fewest": count_held_out_needed(documents.tests, max(1, documents.can_stand_out), Q_LEVEL, factor),
    }


def _is_direction_opposite(findings: PairFindings, documents: DocumentFindings) -> bool:
    """Whether high scores are no sign of training: texts of known membership decide; without them it is assumed.

    It is assumed of a user's own scores where no text is a known member, and the audited texts together score lower
    than those held out: by every AUROC, or by dataset inference.
    """
    if documents.direction is not None or not findings.handed_over or findings.sides == "labelled":
        return documents.direction == OPPOSITE
    if findings.whole_set == OPPOSITE:
        return True
    highs = [auroc.high for auroc in _list_aurocs(findings) if auroc.high is not None]
    return bool(highs) and all(high < CHANCE for high in highs)
