"""The answer of one model on one benchmark, in words: by AUROCs, or by the documents of a shelf.

What belongs here: from a claim level, AUROCs, and p- and q-values counted to an outcome and sentences, which never say
more than the level allows; and how many documents have to be compared with for any to stand out. What does not: the
levels themselves (metrics/claims.py), the p-values (evidence/conformal.py), tests of whole sets and the summary
(summary.py), layout (sections/).

The rule, for the AUROC of the detector that was named beforehand, by its 95% interval:

* *separable without a model*: no conclusion, whatever the detector reached.
* below chance: the opposite direction, and no finding, at any level.
* *screening only*: above chance is something to look at, and no more.
* *statistical evidence*: a difference counts where the interval lies above chance and the margin over the blind control
  above zero. A margin raises no level; the lack of one keeps the report from saying what the level would allow.
* *sound test*: the interval above chance is enough, for the labels were drawn by chance; where that is somebody's word
  alone, it is said.

"Nothing found" is said where the comparison would have found an effect that matters (AUROC_OF_INTEREST in
metrics/claims.py) and nothing differs: never of scores that point away from training, of documents that the words alone
tell from those they are compared with, or where more is flagged, or scores higher, than chance allows, though no single
document stands out. All of these are no conclusion.

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
from collections.abc import Sequence
from dataclasses import replace

from audit_pipeline.evidence.conformal import count_held_out_needed
from audit_pipeline.metrics.claims import (
    AUROC_OF_INTEREST,
    BEST_OF_SEVERAL,
    count_documents_of_interest,
    detectable_auroc,
)
from audit_pipeline.metrics.roc import ALL_EQUAL
from audit_pipeline.report.number_format import capitalise_first, count, interval, level, number, percent, things
from audit_pipeline.report.vocabulary import (
    CHANCE,
    COULD_HARDLY,
    COULD_NOT,
    NO_CONCLUSION,
    OPPOSITE,
    P_LEVEL,
    Q_LEVEL,
    SEPARABLE,
    SOUND,
    STATISTICAL,
    TRAINING,
    Estimate,
    PairFindings,
    ScoreOrigin,
    ShelfDocuments,
    Sides,
    Words,
)


def benjamini_yekutieli_factor(tests: int) -> float:
    """By how much Benjamini and Yekutieli's q-values of so many tests exceed Benjamini and Hochberg's: sum of 1/i."""
    return sum(1 / place for place in range(1, tests + 1))


def smallest_q(calibration_groups: int, tested_documents: int, factor: float = 1.0) -> float:
    """The smallest q-value (Benjamini and Hochberg 1995) there can be: every p-value is 1 / (groups + 1).

    ``factor``: :func:`benjamini_yekutieli_factor` of the tests for Benjamini and Yekutieli's; larger where not all of
    them can stand out.
    """
    return min(1.0, factor / (calibration_groups + 1)) if tested_documents else 1.0


def answer_by_documents(findings: PairFindings, aurocs: Sequence[Estimate | None]) -> Words:
    """The answer for a shelf's documents; ``aurocs``: of every detector."""
    assert findings.documents is not None
    against_training = _is_direction_opposite(findings, findings.documents, aurocs)
    words = _answer_from_counts(findings, findings.documents, against_training=against_training)
    # By which known members score lower.
    excluded = [finding.detector for finding in findings.every if finding.direction == OPPOSITE]
    if against_training or not excluded:
        return words
    by = f" By {', '.join(excluded)} known members score lower than non-members: nothing stands out by that."
    return replace(words, explanation=f"{words.explanation}{by} {findings.origin.asked_in_passing}")


def _is_direction_opposite(
    findings: PairFindings, documents: ShelfDocuments, aurocs: Sequence[Estimate | None]
) -> bool:
    """Whether high scores are no sign of training: texts of known membership decide; without them it is assumed.

    It is assumed of a user's own scores where no text is a known member, and the audited texts together score lower
    than those held out: by every AUROC, or by dataset inference.
    """
    if documents.direction is not None or not findings.origin.handed_over or findings.sides == "labelled":
        return documents.direction == OPPOSITE
    if findings.whole_set == OPPOSITE:
        return True
    highs = [auroc.high for auroc in aurocs if auroc is not None and auroc.high is not None]
    return bool(highs) and all(high < CHANCE for high in highs)


def _answer_from_counts(findings: PairFindings, documents: ShelfDocuments, *, against_training: bool) -> Words:
    origin = findings.origin
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
    if documents.standing_out:
        headline, allowed = _describe_standing_out(f"{count(documents.standing_out)} of {those}", findings, documents)
        return Words(
            "documents_stand_out",
            headline,
            f"Their scores are unusually high beside those of {against} the model cannot have read, {allowed_for}"
            f" allowed for (q ≤ {Q_LEVEL}). {allowed}{_describe_unknown_direction(documents, origin)}",
        )
    if findings.split_verdict == SEPARABLE:
        return _answer_separable(None, "audited against held-out", origin)
    if documents.smallest_q > Q_LEVEL:
        factor = benjamini_yekutieli_factor(documents.tests) if documents.detectors > 1 else 1.0
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
    effect, together = _describe_detectable_effect(documents)
    not_one = (
        f"None of {those} has a score that is unusual enough compared with those of {against} the model cannot have"
        f" read, once {allowed_for} is allowed for. Text that was trained on can go unnoticed."
    )
    if together > count_documents_of_interest(documents.tested):
        return Words("documents_cannot_stand_out", f"{COULD_HARDLY} only {effect}.", not_one)
    return Words(
        "no_document_stands_out",
        f"Nothing found, and this comparison would have found {effect}. That clears nobody.",
        not_one,
    )


def _describe_detectable_effect(documents: ShelfDocuments) -> tuple[str, int]:
    """What would have had a q-value of 0.05, and of how many documents it is: of one, and how many of the comparison
    documents may score as high, or of the fewest that would have had to stand out together."""
    factor = benjamini_yekutieli_factor(documents.tests) if documents.detectors > 1 else 1.0
    groups = documents.calibration_groups
    as_high = math.floor(Q_LEVEL * (groups + 1) / (documents.tests * factor) + 1e-9) - 1
    if as_high >= 1:
        return (
            f"any document that scores higher than all but {count(as_high)} of {count(groups)} comparison documents",
            1,
        )
    if as_high == 0:
        return f"any document that scores higher than all {count(groups)} comparison documents", 1
    detectors = max(1, documents.can_stand_out // documents.tested)
    together = math.ceil(factor * documents.tests / (Q_LEVEL * (groups + 1) * detectors) - 1e-9)
    by = f" by each of {count(detectors)} detectors" if detectors > 1 else ""
    alone = count_held_out_needed(documents.tests, 1, Q_LEVEL, factor)
    return (
        f"{count(together)} of {things(documents.tested, 'document', 'documents')} together, each with a higher score"
        f" than all {count(groups)} comparison documents{by}; one document alone needs {count(alone)} comparison"
        " documents",
        together,
    )


def _describe_standing_out(share: str, findings: PairFindings, documents: ShelfDocuments) -> tuple[str, str]:
    """The headline, and what the level allows to say of documents that stand out."""
    verb = "stands" if documents.standing_out == 1 else "stand"
    if findings.claim_level == SOUND:
        return (
            f"{share} {verb} out: higher scores than chance allows.",
            f"{findings.origin.state_random_choice('what the model could have read')}: of the documents that "
            "stand out, at most"
            f" {Q_LEVEL:.0%} are expected to do so by accident.",
        )
    if findings.claim_level == STATISTICAL:
        return (
            f"{share} {verb} out: statistical evidence of training on them.",
            "The documents that they are compared with are like them by design, so this is statistical evidence of"
            f" training on them, with at most {Q_LEVEL:.0%} of these documents expected to stand out by accident.",
        )
    return (
        f"{share} {verb} out: worth a closer look.",
        "That says where to look. It is no evidence: the documents that they are compared with may differ from them"
        + (
            " in more than training, and can be separated from them without the model."
            if findings.split_verdict == SEPARABLE
            else " in more than training."
        ),
    )


def _describe_unknown_direction(documents: ShelfDocuments, origin: ScoreOrigin) -> str:
    """What is unknown about the direction of the scores."""
    if documents.direction == "none":
        return " Where it is known, members do not clearly score higher than non-members here."
    if documents.direction is None and origin.handed_over:
        return (
            " Whether a high score is a sign of training cannot be checked: no text is a known member, and the scores"
            " were handed over."
        )
    return ""


_Z_95 = 1.959964
_NO_FINDING = ("no_document_stands_out", "documents_cannot_stand_out", "no_difference", "too_few_texts")
"""What is not said where the audited texts together differ from the held-out ones."""


_FEW_GROUPS = range(2, 5)
"""So few groups of a side that an answer by an AUROC says that it rests on them."""


def build_answer(findings: PairFindings) -> Words:
    """The answer, from the results of the detector that was named beforehand, or of every one where none was.

    A shelf's documents come first: they are the question. Else the AUROC of labelled members against
    non-members, or of audited against held-out texts, and whether that rests on few groups.
    """
    words = _conclude(findings)
    if words.outcome in _NO_FINDING and (differences := _list_differences(findings)):
        no_single = "no document stands out, but " if findings.documents is not None else ""
        words = Words(
            "texts_differ",
            f"{NO_CONCLUSION} {no_single}{'; '.join(differences)}.",
            "So the audited texts differ from those that the model cannot have read by more than chance allows. Nothing"
            f" says of which that is so, or why. {words.explanation}",
        )
    if findings.documents is not None or findings.fewest_groups not in _FEW_GROUPS:
        return words
    few = f"This rests on {findings.fewest_groups} groups only, on the side that has fewer"
    return replace(
        words, explanation=f"{words.explanation} {few}: however many texts they hold, they say little of others."
    )


def _list_differences(findings: PairFindings) -> list[str]:
    """In what the audited texts together lie above what chance allows, though no answer rests on it."""
    found = []
    flagged, alpha, documents = findings.flagged, findings.flagged_alpha, findings.documents
    if flagged is not None and alpha is not None and flagged.low is not None and flagged.low > alpha:
        ends = interval((flagged.low, flagged.high), rate=True)
        found.append(
            f"{percent(flagged.value)} {ends} of the texts are flagged where {level(alpha)} would be by accident"
        )
    if documents is not None and _is_above_all_too_often(documents):
        found.append(
            f"{count(documents.above_all)} of {things(documents.tested, 'document', 'documents')} score higher than"
            " every comparison document"
        )
    if findings.sides == "audited against held-out":
        aurocs = [findings.auroc, *(finding.auroc for finding in findings.every)]
        higher = [auroc for auroc in aurocs if auroc is not None and auroc.low is not None and auroc.low > CHANCE]
        if higher:
            ends = interval((higher[0].low, higher[0].high))
            found.append(f"the audited texts together score higher (AUROC {number(higher[0].value)} {ends})")
    if findings.whole_set == TRAINING:
        found.append("dataset inference finds that the audited texts together score higher")
    return found


def _is_above_all_too_often(documents: ShelfDocuments) -> bool:
    """Whether more documents score higher than every comparison document than chance allows: were all exchangeable, the
    k highest of m + n documents would be k of the m audited ones with the probability C(m, k) / C(m + n, k)."""
    m, n, k = documents.tested, documents.calibration_groups, documents.above_all
    return math.comb(m, k) / math.comb(m + n, k) <= P_LEVEL / documents.detectors


def _conclude(findings: PairFindings) -> Words:
    aurocs = [findings.auroc, *(finding.auroc for finding in findings.every)]
    if _are_all_scores_equal(aurocs) and (findings.documents is not None or findings.split_verdict != SEPARABLE):
        return _EQUAL
    if findings.documents is not None:
        return answer_by_documents(findings, aurocs)
    if findings.sides == "none" or findings.claim_level is None:
        return Words(
            "not_evaluated",
            f"{COULD_NOT} {_explain_no_comparison(findings.audited)}.",
            "Scored, not evaluated: the benchmark has no texts labelled on both sides and none held out, or the"
            " evaluation has not been run.",
        )
    if findings.every:
        return _answer_by_every_detector(findings)
    if findings.auroc is None or findings.auroc.value is None:
        return Words(
            "not_defined",
            f"{COULD_NOT} there is no number.",
            "The detector that was named beforehand has no AUROC here"
            + (f": {findings.auroc.method}." if findings.auroc is not None and findings.auroc.method else "."),
        )
    return _answer_by_auroc(findings, findings.auroc)


def _explain_no_comparison(audited_documents: int) -> str:
    if not audited_documents:
        return "there is nothing to compare the scores with"
    needed = count(count_held_out_needed(audited_documents, 1, Q_LEVEL))
    return f"no comparison documents, {needed} needed for a document to stand out alone"


_EQUAL = Words(
    "not_defined",
    f"{COULD_NOT} all scores are equal.",
    "Every text has the same score, so the scores separate nothing. Is it the right column?",
)


def _are_all_scores_equal(aurocs: Sequence[Estimate | None]) -> bool:
    """Whether at least one AUROC is known, and every known one is of equal scores."""
    methods = [auroc.method for auroc in aurocs if auroc is not None and auroc.value is not None]
    return bool(methods) and all(method is not None and method.endswith(ALL_EQUAL) for method in methods)


def find_detectable_auroc(aurocs: Sequence[Estimate]) -> float:
    """The AUROC that the comparison with the widest interval would have found four times in five; infinite where none
    has an interval."""
    widths = [auroc.high - auroc.low for auroc in aurocs if auroc.low is not None and auroc.high is not None]
    return detectable_auroc(max(widths, default=math.inf) / (2 * _Z_95), P_LEVEL / 2)


def _describe_no_difference(bounded: Sequence[Estimate]) -> tuple[str, str]:
    """The kind and the headline of no difference, by what the comparison would have found."""
    detectable = find_detectable_auroc(bounded)
    if detectable > AUROC_OF_INTEREST:
        times = math.ceil(((detectable - CHANCE) / (AUROC_OF_INTEREST - CHANCE)) ** 2)
        return (
            "too_few_texts",
            f"{COULD_NOT if detectable > 1 else COULD_HARDLY} too few texts; {times} times as many are needed to find"
            f" an AUROC of {AUROC_OF_INTEREST:g} four times in five.",
        )
    return (
        "no_difference",
        f"Nothing found, and this comparison would have found an AUROC of {number(detectable)} (0.5 is chance) four"
        " times in five. That clears nobody.",
    )


def _name_sides(sides: Sides) -> tuple[str, str]:
    return (
        ("members", "non-members") if sides == "labelled" else ("the audited texts", "texts that it cannot have read")
    )


def _answer_separable(auroc: Estimate | None, sides: Sides, origin: ScoreOrigin) -> Words:
    first, second = _name_sides(sides)
    lower = auroc is not None and auroc.high is not None and auroc.high < CHANCE
    return Words(
        "separable",
        f"{COULD_NOT} the two sides can be told apart without the model.",
        "Their words alone suffice, as where one side is older or of another subject. Whatever the detector finds may"
        " be that difference, so this says nothing about the training data."
        + (f" {capitalise_first(first)} score lower than {second}. {origin.asked_in_passing}" if lower else ""),
    )


def _answer_reversed(words: str, origin: ScoreOrigin) -> Words:
    return Words(
        "reversed_difference",
        origin.opposite,
        f"{words}, the opposite of what training would do. {origin.why_lower} This clears no text.",
    )


def _answer_by_every_detector(findings: PairFindings) -> Words:
    every, origin = findings.every, findings.origin
    first, second = _name_sides(findings.sides)
    known = [finding.auroc for finding in every if finding.auroc.value is not None]
    bounded = [auroc for auroc in known if auroc.low is not None and auroc.high is not None]
    lower = [auroc for auroc in bounded if auroc.high is not None and auroc.high < CHANCE]
    if findings.split_verdict == SEPARABLE:
        return _answer_separable(lower[0] if lower else None, findings.sides, origin)
    if not bounded:
        return Words(
            "not_defined",
            f"{COULD_NOT} no number has an interval.",
            f"Of {things(len(every), 'detector', 'detectors')} none has an AUROC with an interval: "
            + "; ".join(dict.fromkeys(finding.auroc.method or "not defined" for finding in every))
            + ".",
        )
    if len(lower) == len(bounded):
        return _answer_reversed(f"By every detector the scores of {first} are lower than those of {second}", origin)
    against = f" By {count(len(lower))} of them {first} score lower. {origin.asked_in_passing}" if lower else ""
    if not any(auroc.low is not None and auroc.low > CHANCE for auroc in bounded):
        kind, headline = _describe_no_difference(bounded)
        return Words(
            kind,
            headline,
            f"None of {things(len(every), 'detector', 'detectors')} separates {first} from {second} better than chance."
            f"{against} Text that was trained on can go unnoticed.",
        )
    values = [auroc.value for auroc in known if auroc.value is not None]
    return Words(
        "no_detector_named",
        f"{NO_CONCLUSION} a difference by some of {count(len(every))} detectors, of which none was named beforehand.",
        f"Their AUROCs run from {number(min(values))} to {number(max(values))}. {BEST_OF_SEVERAL},"
        f" so nothing is concluded from one of them.{against} Tests of the whole set allow for all of"
        " them, and so does “q of all” where documents were tested. Name the headline detector before you look at any"
        " result: --headline NAME.",
    )


def _answer_by_auroc(findings: PairFindings, auroc: Estimate) -> Words:
    origin = findings.origin
    first, second = _name_sides(findings.sides)
    if findings.split_verdict == SEPARABLE:
        return _answer_separable(auroc, findings.sides, origin)
    if auroc.low is None or auroc.high is None:
        return Words(
            "not_defined",
            f"{COULD_NOT} the number has no interval.",
            f"The AUROC is {number(auroc.value)}, and how far chance alone would move it is not known"
            + (f": {auroc.method}." if auroc.method else "."),
        )
    if auroc.high < CHANCE:
        return _answer_reversed(f"The scores of {first} are lower than those of {second}", origin)
    if auroc.low > CHANCE:
        words = f"The scores of {first} are higher than those of {second}"
        return _answer_difference(findings, first, words)
    words = f"The detector does not separate {first} from {second} better than chance."
    kind, headline = _describe_no_difference([auroc])
    if findings.claim_level == SOUND:
        return Words(
            kind,
            headline,
            f"{words} {origin.state_random_choice('which texts are members')}, so the comparison is fair; but "
            "a text that was seen"
            " once or twice can go unnoticed.",
        )
    return Words(
        kind,
        headline,
        f"{words} Text that was trained on can go unnoticed.",
    )


def _answer_difference(findings: PairFindings, higher_side: str, words: str) -> Words:
    """What a claim level allows to say of an AUROC above chance.

    ``words`` say that the scores of ``higher_side`` are higher.
    """
    claim_level, margin, origin = findings.claim_level, findings.margin, findings.origin
    stand_out = f"{capitalise_first(higher_side)} stand out:"
    if claim_level == SOUND:
        return Words(
            "sound_evidence_of_training",
            f"{stand_out} the model distinguishes texts that it was trained on from texts that it was not"
            + (", if what was stated is so." if origin.stated_by else "."),
            f"{words}, beyond chance. {origin.state_random_choice('which texts are members')}: nothing but "
            "membership differs"
            " between the two sides.",
        )
    if claim_level == STATISTICAL and margin is not None and margin.low is not None and margin.low > 0:
        return Words(
            "evidence_of_training",
            f"{stand_out} statistical evidence of training on them.",
            f"{words}, which are like them by design, and by more than the texts give away without the model.",
        )
    if claim_level == STATISTICAL:
        return Words(
            "difference_within_control",
            f"{NO_CONCLUSION} {higher_side} stand out, but by no more than the texts may give away.",
            f"{words}. The difference is not clearly larger than what a classifier finds that never sees the model, so"
            " it is no evidence of training.",
        )
    return Words(
        "difference_to_look_at",
        f"{stand_out} worth a closer look, and no evidence.",
        f"{words}. That may come from training, or from any other difference between the two sides: screening says"
        " where to look, not what happened.",
    )
