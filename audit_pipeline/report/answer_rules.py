"""Rules that turn the findings of a model on a benchmark into an outcome.

An outcome is a kind of answer (answers.yaml) and the facts of its sentences. It never claims more than the claim level
allows (statistics/claims.py).

If one detector was named beforehand, its AUROC decides, by its 95% interval:

* *separable without a model*: no conclusion, regardless of the AUROC.
* The interval lies below chance: the scores point away from training. That is no finding at any level.
* *screening only*: an interval above chance is worth a closer look, but is no evidence.
* *statistical evidence*: the interval must lie above chance, and the margin over the blind control above zero.
* *sound test*: an interval above chance is enough, because the labels were drawn by chance. If only a user states that,
  the answer names this condition.

"Nothing found" requires that the comparison would have found an effect that matters (``AUROC_OF_INTEREST``) and that it
found no difference. In all other cases without a finding there is no conclusion.

If none of several detectors was named, no single AUROC decides, because the best of several looks better than it is.
Documents are then judged by q-values that are corrected for the number of detectors.

A document stands out if its q-value (Benjamini-Hochberg) is at most 0.05. Conformal p-values that share calibration
documents are positively dependent, and Benjamini-Hochberg controls the false discovery rate under that dependence
(Bates et al. 2023, Annals of Statistics 51). Benjamini-Yekutieli, which holds under any dependence, is reported too. It
counts the tests of every detector if none was named. If the smallest possible q-value exceeds 0.05, no document can
stand out, and the answer reports this. Only *high* scores stand out. Scores *run against training* if they are lower
for texts that the model has read. If scores run against training, or may do so, no document stands out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from audit_pipeline.report.number_format import format_count_with_noun
from audit_pipeline.report.sentences import P_LEVEL, Q_LEVEL, render_answer, render_phrase
from audit_pipeline.statistics.claims import (
    AUROC_OF_INTEREST,
    compute_detectable_auroc,
    compute_min_documents_for_effect,
)
from audit_pipeline.statistics.conformal import compute_benjamini_yekutieli_factor, count_held_out_needed
from audit_pipeline.statistics.roc import ALL_EQUAL

CHANCE = 0.5
"""The AUROC of scores that do not separate the two sides."""

SEPARABLE = "separable without a model"
STATISTICAL = "statistical evidence"
SOUND = "sound test"
OPPOSITE = "opposite"
TRAINING = "training"

ComparedSides = Literal["labelled", "audited against held-out", "none"]
"""The two sides of an AUROC: labelled members and non-members, or audited and held-out texts."""

Outcome = tuple[str, Mapping[str, Any]]
"""The kind of an answer, and further facts for its sentences besides the findings."""

_SIDE_NAMES: Mapping[ComparedSides, tuple[str, str]] = {"labelled": ("members", "non-members")}
_Z_95 = 1.959964
# Outcomes without a finding. "texts_differ" replaces them if the audited texts together differ from the others.
_OUTCOMES_WITHOUT_FINDING = (
    "no_document_stands_out",
    "documents_cannot_stand_out",
    "no_difference",
    "too_few_texts",
)
# The answer mentions these numbers of groups on one side, because an AUROC of few groups is uncertain.
_FEW_GROUPS = range(2, 5)
# Requirements are rounded to whole documents. Without this tolerance, a floating-point error could change a number that
# is exactly whole.
_ROUNDING_ERROR = 1e-9


@dataclass(frozen=True)
class MetricEstimate:
    """A metric with its 95% interval.

    Attributes:
        value: The metric, or None if it is not defined.
        low: Lower bound of the interval.
        high: Upper bound of the interval.
        method: Method of the interval, or the reason why there is none.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    method: str | None = None

    @property
    def is_above_chance(self) -> bool:
        """Return True if the whole interval of an AUROC lies above 0.5."""
        return self.low is not None and self.low > CHANCE

    @property
    def is_below_chance(self) -> bool:
        """Return True if the whole interval of an AUROC lies below 0.5."""
        return self.high is not None and self.high < CHANCE


@dataclass(frozen=True)
class DocumentFindings:
    """Test results of the audited documents, by the headline detector or by every detector if none was named.

    Attributes:
        tested: Number of tested documents.
        standing_out: Number of documents that stand out.
        detectors: Number of detectors.
        tests: Number of p-values.
        can_stand_out: Number of p-values of detectors that are not known to run against training.
        direction: Side of known membership that scores higher: "training" (members), "opposite" or "none". None if no
            membership is known.
        calibration_groups: Smallest number of documents that a tested document was compared with.
        smallest_q: Smallest q-value that this number of calibration documents allows.
        above_all: Number of documents that score higher than every comparison document. Of several detectors, the
            largest number counts.
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
    """Findings of one of several detectors if none was named.

    Attributes:
        detector: The detector.
        auroc: Its AUROC.
        direction: As in :class:`DocumentFindings`.
    """

    detector: str
    auroc: MetricEstimate
    direction: str | None


@dataclass(frozen=True, kw_only=True)
class PairFindings:
    """Findings of a model on a benchmark.

    Attributes:
        sides: The two sides of the AUROC.
        claim_level: Strongest claim that the design allows (statistics/claims.py), or None without an evaluation.
        split_verdict: Verdict on how well the two sides can be separated without the model.
        auroc: AUROC of the headline detector, or None if no detector was named.
        margin: Margin of its AUROC over the blind control.
        blind: AUROC of the blind control.
        every: Findings of every detector if no detector was named, else empty.
        documents: Test results of the documents, or None without tested documents.
        audited: Number of documents of unknown membership.
        whole_set: Direction that dataset inference found.
        flagged: Share of audited texts at or above the quoted threshold.
        flagged_alpha: False-positive rate that the threshold aims at.
        flagged_is_certified: True if the threshold is certified. Only then may ``flagged`` be shown.
        warning: Warning for readers of the AUROC.
        fewest_groups: Number of groups of the side with fewer groups.
        handed_over: True if the user supplied the scores. Their sign may be wrong.
        stated_by: Person whose statement the claim level depends on, or None if it depends on no statement.
        design: Design of the benchmark (``claims.Design``), which states how the two sides were chosen.
        design_stated_by: Person who named the texts that the model has not read. None if their choice by the benchmark
            builder implies it.
        member_before: Latest date of members, if labels follow from dates.
        nonmember_from: Earliest date of non-members, if labels follow from dates.
    """

    sides: ComparedSides
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

    @property
    def aurocs(self) -> list[MetricEstimate]:
        """Return the AUROC of the headline detector, or those of every detector."""
        aurocs = [finding.auroc for finding in self.every]
        if self.auroc is not None:
            aurocs.insert(0, self.auroc)
        return aurocs


def build_answer(findings: PairFindings, model_title: str = "", benchmark_title: str = "") -> dict[str, str]:
    """Return the answer in sentences, with its outcome and sign."""
    kind, outcome_facts = decide_outcome(findings)
    first, second = _SIDE_NAMES.get(findings.sides, ("the audited texts", "the held-out texts"))
    facts = {
        **vars(findings),
        "model": model_title,
        "benchmark": benchmark_title,
        "first": first,
        "second": second,
        "lower": 0,
        "excluded": (),
        **outcome_facts,
    }
    answer = render_answer(kind, facts, question="question_of_scores")
    if findings.documents is None and findings.fewest_groups in _FEW_GROUPS:
        answer["explanation"] += f" {render_phrase('few_groups', facts)}"
    if findings.documents is None and findings.warning is not None:
        answer["how_sure"] += f" There are few texts: {findings.warning}."
    return answer


def decide_outcome(findings: PairFindings) -> Outcome:
    """Decide the outcome of a model on a benchmark.

    Outcomes without a finding become "texts_differ" if the audited texts together differ from the others.
    """
    kind, facts = _decide_from_scores(findings)
    differences = _find_signs_above_chance(findings)
    if kind in _OUTCOMES_WITHOUT_FINDING and any(differences.values()):
        return "texts_differ", {**facts, **differences, "null_kind": kind}
    return kind, facts


def _decide_from_scores(findings: PairFindings) -> Outcome:
    """Decide by the tested documents if there are any, else by AUROCs."""
    if _has_only_equal_scores(findings) and (findings.documents or findings.split_verdict != SEPARABLE):
        return "not_defined", {"lack": "equal"}
    if findings.documents is not None:
        return _decide_by_documents(findings, findings.documents)
    if findings.sides == "none" or findings.claim_level is None:
        needed = count_held_out_needed(findings.audited, 1, Q_LEVEL) if findings.audited else None
        return "not_evaluated", {"needed": needed}
    if findings.every:
        return _decide_by_every_detector(findings)
    if findings.auroc is None or findings.auroc.value is None:
        return "not_defined", {"lack": "no number"}
    return _decide_by_auroc(findings, findings.auroc)


def _has_only_equal_scores(findings: PairFindings) -> bool:
    """Return True if at least one AUROC is known, and every known AUROC was computed from equal scores."""
    n_known = 0
    for auroc in findings.aurocs:
        if auroc.value is None:
            continue
        if not (auroc.method or "").endswith(ALL_EQUAL):
            return False
        n_known += 1
    return n_known > 0


def _decide_by_auroc(findings: PairFindings, auroc: MetricEstimate) -> Outcome:
    if findings.split_verdict == SEPARABLE:
        return "separable", {"scores_lower": auroc.is_below_chance}
    if auroc.low is None or auroc.high is None:
        return "not_defined", {"lack": "no interval"}
    if auroc.is_below_chance:
        return "reversed_difference", {}
    if not auroc.is_above_chance:
        return _decide_without_difference([auroc])
    return _name_difference(findings), {}


def _name_difference(findings: PairFindings) -> str:
    """Return the strongest outcome of an AUROC above chance that the claim level allows."""
    if findings.claim_level == SOUND:
        return "sound_evidence_of_training"
    if findings.claim_level != STATISTICAL:
        return "difference_to_look_at"
    margin = findings.margin
    if margin is not None and margin.low is not None and margin.low > 0:
        return "evidence_of_training"
    return "difference_within_control"


def _decide_without_difference(aurocs: Sequence[MetricEstimate], n_below_chance: int = 0) -> Outcome:
    """Decide if the comparison is a null result, or too small to find an effect that matters."""
    detectable = find_detectable_auroc(aurocs)
    # The standard error shrinks with the square root of the number of texts.
    times_as_many_texts = math.ceil(((detectable - CHANCE) / (AUROC_OF_INTEREST - CHANCE)) ** 2)
    kind = "too_few_texts" if detectable > AUROC_OF_INTEREST else "no_difference"
    return kind, {"detectable": detectable, "times": times_as_many_texts, "lower": n_below_chance}


def find_detectable_auroc(aurocs: Sequence[MetricEstimate]) -> float:
    """Return the smallest AUROC above chance that would be detected with a power of 80%, given the widest interval.

    It is infinite if no AUROC has an interval.
    """
    widths = []
    for auroc in aurocs:
        if auroc.low is not None and auroc.high is not None:
            widths.append(auroc.high - auroc.low)
    return compute_detectable_auroc(max(widths, default=math.inf) / (2 * _Z_95), P_LEVEL / 2)


def _decide_by_every_detector(findings: PairFindings) -> Outcome:
    values: list[float] = []
    with_interval: list[MetricEstimate] = []
    for finding in findings.every:
        auroc = finding.auroc
        if auroc.value is None:
            continue
        values.append(auroc.value)
        if auroc.low is not None and auroc.high is not None:
            with_interval.append(auroc)
    n_below_chance = sum(auroc.is_below_chance for auroc in with_interval)
    if findings.split_verdict == SEPARABLE:
        return "separable", {"scores_lower": n_below_chance > 0}
    if not with_interval:
        methods = dict.fromkeys(finding.auroc.method or "not defined" for finding in findings.every)
        return "not_defined", {"lack": "no intervals", "methods": list(methods)}
    if n_below_chance == len(with_interval):
        return "reversed_difference", {}
    if not any(auroc.is_above_chance for auroc in with_interval):
        return _decide_without_difference(with_interval, n_below_chance)
    return "no_detector_named", {"lowest": min(values), "highest": max(values), "lower": n_below_chance}


def _decide_by_documents(findings: PairFindings, documents: DocumentFindings) -> Outcome:
    detectors_against_training = [finding.detector for finding in findings.every if finding.direction == OPPOSITE]
    facts: dict[str, Any] = {
        "those": format_count_with_noun(documents.tested, "document", "documents"),
        "against": format_count_with_noun(documents.calibration_groups, "held-out document", "held-out documents"),
        "excluded": detectors_against_training,
    }
    if _is_direction_opposite(findings, documents):
        return "documents_opposite_direction", facts
    if documents.standing_out:
        return "documents_stand_out", facts
    if findings.split_verdict == SEPARABLE:
        return "separable", {**facts, "scores_lower": False}
    requirements = _compute_significance_requirements(documents)
    facts.update(requirements)
    max_documents = compute_min_documents_for_effect(documents.tested)
    if requirements["too_few"] or requirements["together"] > max_documents:
        return "documents_cannot_stand_out", facts
    return "no_document_stands_out", facts


def _is_direction_opposite(findings: PairFindings, documents: DocumentFindings) -> bool:
    """Return True if high scores are no sign of training.

    Texts of known membership decide. Without them, only the direction of external scores is in doubt. It is opposite if
    the audited texts together score lower than the held-out texts, by dataset inference or by every AUROC.
    """
    if documents.direction is not None or not findings.handed_over or findings.sides == "labelled":
        return documents.direction == OPPOSITE
    if findings.whole_set == OPPOSITE:
        return True
    upper_bounds = [auroc.high for auroc in findings.aurocs if auroc.high is not None]
    return max(upper_bounds, default=CHANCE) < CHANCE


def _compute_significance_requirements(documents: DocumentFindings) -> dict[str, Any]:
    """Compute the requirements for a document to stand out.

    Returns:
        ``as_high`` is the maximum number of comparison documents that may score as high as a single document that
        stands out. If it is negative, a single document cannot stand out. Then ``together`` documents stand out if each
        scores higher than all comparison documents by ``by_each`` detectors. ``alone`` is the number of comparison
        documents with which a single document can stand out. ``too_few`` is True if no document can stand out.
        ``fewest`` is the number of comparison documents with which at least one document can stand out.
    """
    factor = 1.0
    if documents.detectors > 1:
        factor = compute_benjamini_yekutieli_factor(documents.tests)
    n_ranks = documents.calibration_groups + 1
    as_high = math.floor(Q_LEVEL * n_ranks / (documents.tests * factor) + _ROUNDING_ERROR) - 1
    by_each = max(1, documents.can_stand_out // documents.tested)
    together = 1
    if as_high < 0:
        together = math.ceil(factor * documents.tests / (Q_LEVEL * n_ranks * by_each) - _ROUNDING_ERROR)
    return {
        "as_high": as_high,
        "by_each": by_each,
        "together": together,
        "alone": count_held_out_needed(documents.tests, 1, Q_LEVEL, factor),
        "too_few": documents.smallest_q > Q_LEVEL,
        "fewest": count_held_out_needed(documents.tests, max(1, documents.can_stand_out), Q_LEVEL, factor),
    }


def compute_smallest_q(calibration_groups: int, tested_documents: int, factor: float = 1.0) -> float:
    """Compute the smallest possible q-value (Benjamini and Hochberg 1995), if every p-value is 1 / (groups + 1).

    Args:
        calibration_groups: Number of documents that a tested document is compared with.
        tested_documents: Number of tested documents.
        factor: :func:`compute_benjamini_yekutieli_factor` for Benjamini and Yekutieli's q-values, times the ratio of
            all tests to those that can stand out.
    """
    if not tested_documents:
        return 1.0
    return min(1.0, factor / (calibration_groups + 1))


def _find_signs_above_chance(findings: PairFindings) -> dict[str, Any]:
    """Return the four signs that the audited texts together exceed chance.

    Returns:
        Facts for the outcome ``texts_differ``. A sign that was not found is False or None.
    """
    together_higher = None
    if findings.sides == "audited against held-out":
        together_higher = next((auroc for auroc in findings.aurocs if auroc.is_above_chance), None)
    documents = findings.documents
    return {
        "flagged_too_often": _is_flagged_too_often(findings.flagged, findings.flagged_alpha),
        "above_all_too_often": documents is not None and _is_above_all_too_often(documents),
        "together_higher": together_higher,
        "set_higher": findings.whole_set == TRAINING,
    }


def _is_flagged_too_often(flagged: MetricEstimate | None, alpha: float | None) -> bool:
    if flagged is None or flagged.low is None or alpha is None:
        return False
    return flagged.low > alpha


def _is_above_all_too_often(documents: DocumentFindings) -> bool:
    """Return True if more documents than chance allows score higher than every comparison document.

    Let m audited and n comparison documents be exchangeable. Then the k highest are all audited with the probability
    C(m, k) / C(m + n, k). The level is divided by the number of detectors (Bonferroni).
    """
    m = documents.tested
    n = documents.calibration_groups
    k = documents.above_all
    return math.comb(m, k) / math.comb(m + n, k) <= P_LEVEL / documents.detectors
