"""The sentences around answers, and the title of a page: what was asked, how sure an answer is, what would change it.

What belongs here: sentences with numbers, for people who know no statistics. What does not: sentences that follow from
the kind of an answer alone (answer_kinds.py), the answer and its kind (answer.py, extraction_words.py), the
picture beside it (templates/), numbers (number_format.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit_pipeline.evidence.conformal import count_held_out_needed
from audit_pipeline.report.answer import benjamini_yekutieli_factor, find_detectable_auroc
from audit_pipeline.report.answer_kinds import ALIKE, NO_RESULT, NO_TRACE, OTHER_AUDIT, WORD_FOR_WORD, kind_of
from audit_pipeline.report.number_format import count, things
from audit_pipeline.report.vocabulary import (
    Q_LEVEL,
    SEPARABLE,
    SOUND,
    STATISTICAL,
    PairFindings,
    ScoreOrigin,
)

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Brief:
    """The three sentences around an answer, each in one or a few plain sentences."""

    question: str
    how_sure: str
    what_would_change: str


def brief_of(model: str, benchmark: str, outcome: str, findings: PairFindings) -> Brief:
    """The sentences around an answer of that kind, of a model on a benchmark, both by their titles."""
    sure = _state_certainty(outcome, findings)
    if findings.warning is not None and findings.documents is None:
        sure = f"{sure} There are few texts: {findings.warning}."
    return Brief(_state_question(model, benchmark, findings), sure, _describe_possible_changes(outcome, findings))


def format_auroc_per_hundred(auroc: float) -> str:
    """An AUROC as what it means: of two texts, one a side, how often the first scores higher."""
    return f"{100 * auroc:.0f}"


_COMPARED_WITH: Mapping[str, tuple[str, str]] = {
    "temporal": ("the older texts of “{}”", "newer texts, which stand for texts that it has not read"),
    "randomised": ("those texts of “{}” that were chosen at random", "the texts that were not chosen"),
    "exchangeable": ("those texts of “{}” that are labelled as members", "texts that are like them by design"),
}
"""By a benchmark's design, what is asked about and what it is compared with."""


def _state_question(model: str, benchmark: str, findings: PairFindings) -> str:
    if findings.documents is not None:
        tested = findings.documents.tested
        asked = f"the {count(tested)} documents of “{benchmark}”" if tested > 1 else f"the document of “{benchmark}”"
        compared = things(findings.documents.calibration_groups, "document", "documents") + " that it cannot have read"
    elif findings.sides == "labelled" and findings.member_before and findings.nonmember_from:
        asked = f"those texts of “{benchmark}” that are from before {findings.member_before}"
        compared = f"texts from {findings.nonmember_from} and later, which stand for texts that it has not read"
    elif findings.sides == "labelled":
        asked, compared = _COMPARED_WITH.get(
            findings.design or "",
            ("those texts of “{}” that are labelled as members", "the texts that are labelled as non-members"),
        )
        asked = asked.format(benchmark)
    else:
        asked, compared = f"the texts of “{benchmark}”", "texts that it cannot have read"
        if findings.sides == "none":
            return f"We asked whether {model} was trained on {asked}."
    return f"We asked whether {model} was trained on {asked}. They are compared with {compared}."


def _state_certainty(outcome: str, findings: PairFindings) -> str:
    fixed = kind_of(outcome).how_sure
    if fixed is not None:
        return fixed.format(
            words_alone=_describe_blind_control(findings), if_so=_format_label_condition(findings.origin)
        )
    return _state_document_certainty(findings) if outcome == "documents_stand_out" else _state_null_certainty(findings)


def _state_null_certainty(findings: PairFindings) -> str:
    known = findings.auroc
    reach = ""
    if known is not None and known.low is not None and known.high is not None:
        reach = (
            f" With 95% confidence, a text that is asked about scores higher than one that it is compared with in"
            f" {format_auroc_per_hundred(known.low)} to {format_auroc_per_hundred(known.high)} of 100 pairs; "
            "50 is a coin toss."
        )
    return f"Not sure that the texts were not used.{reach} {NO_TRACE}"


def _state_document_certainty(findings: PairFindings) -> str:
    accident = f"Of the documents that stand out, about {Q_LEVEL:.0%} are expected to do so by accident"
    if findings.claim_level == SOUND:
        sure = f"Sure{_format_label_condition(findings.origin)}"
        return f"{sure}. {accident}, and chance decided which ones the model could have read."
    if findings.claim_level == STATISTICAL:
        return f"Fairly sure. {accident}. The rest depends on the comparison documents being like them by design."
    apart = (
        _describe_blind_control(findings)
        if findings.split_verdict == SEPARABLE
        else " The two kinds of documents may differ in age, subject or style."
    )
    return (
        f"Not sure. {accident}, but only if the documents that they are compared with are like them.{apart} This is a"
        " screening, which says where to look and not what happened."
    )


def _describe_blind_control(findings: PairFindings) -> str:
    """What the words alone give away, as a sentence; empty where that is not known."""
    blind = findings.blind.value if findings.blind is not None else None
    if blind is None:
        return " A program that reads the words alone, and not the model, can tell the two sides apart."
    return (
        " A program that reads the words alone, and not the model, picks the right one of two texts"
        f" {format_auroc_per_hundred(blind)} times in 100."
    )


def _format_label_condition(origin: ScoreOrigin) -> str:
    return f", if the labels came about as {origin.stated_by} states" if origin.stated_by else ""


def _describe_possible_changes(outcome: str, findings: PairFindings) -> str:
    if outcome == "documents_stand_out":
        return _describe_document_changes(findings)
    if outcome in ("reversed_difference", "documents_opposite_direction") and findings.origin.handed_over:
        return "Scores with the right sign: the higher, the likelier a member."
    if outcome == "no_difference" and _can_more_texts_help(findings):
        return "More texts make the range narrower (corpus-audit power says how many are needed)."
    if outcome == "no_document_stands_out" and not _is_single_document_detectable(findings):
        return "More documents that the model cannot have read let smaller differences count."
    return kind_of(outcome).what_would_change or OTHER_AUDIT


ENOUGH = 0.55
"""An AUROC that is as near to chance: where it would have been found, more texts are no advice."""


def _can_more_texts_help(findings: PairFindings) -> bool:
    known = [finding.auroc for finding in findings.every] if findings.auroc is None else [findings.auroc]
    return find_detectable_auroc(known) > ENOUGH


def _is_single_document_detectable(findings: PairFindings) -> bool:
    documents = findings.documents
    if documents is None:
        return False
    factor = benjamini_yekutieli_factor(documents.tests) if documents.detectors > 1 else 1.0
    return documents.calibration_groups >= count_held_out_needed(documents.tests, 1, Q_LEVEL, factor)


def _describe_document_changes(findings: PairFindings) -> str:
    if findings.claim_level == SOUND:
        return "Only a mistake in how chance decided, or in which documents the model was given."
    if findings.claim_level == STATISTICAL:
        return "A difference between the documents and those that they are compared with that nobody has noticed."
    return (
        "Documents to compare with that are like these by design, chosen at random from the same shelf, would make it"
        " evidence or take it away."
    )


WITHOUT_ANSWERS = "Contamination report"


def page_heading(models: Sequence[str], benchmarks: Sequence[str], own_documents: int | None) -> str:
    """The title of a page: what was asked of audited models on benchmarks, all by their titles.

    ``own_documents``: how many documents of a user's own files were audited; None where a benchmark is of other texts.
    """
    if not models:
        return WITHOUT_ANSWERS
    was = "Was" if own_documents == 1 else "Were"
    if own_documents is not None:
        texts = "this document" if own_documents == 1 else f"these {things(own_documents, 'document', 'documents')}"
    else:
        texts = "texts of " + (f"“{benchmarks[0]}”" if len(benchmarks) == 1 else f"{len(benchmarks):,} benchmarks")
    data = f"{models[0]}’s training data" if len(models) == 1 else f"the training data of {len(models):,} models"
    return f"{was} {texts} in {data}?"


def overall_brief(
    models: Sequence[str], benchmarks: Sequence[str], answers: Sequence[Row], reproduced_benchmarks: int
) -> Brief:
    """The sentences around all answers of a page, of models and benchmarks by their titles.

    Of each answer: its kind, its claim level, and whether the documents were ``searched`` for passages that the model
    gives word for word. ``reproduced_benchmarks`` is the number of benchmarks of which it gives some.
    """
    levels = Counter(answer["claim_level"] for answer in answers)
    outcomes = Counter(answer["outcome"] for answer in answers)
    return Brief(
        _state_overall_question(models, benchmarks),
        _state_overall_certainty(levels, len(answers), reproduced_benchmarks),
        _describe_overall_changes(
            outcomes,
            reproduced_benchmarks,
            [answer for answer in answers if kind_of(answer["outcome"]).helped_by == "more texts"],
        ),
    )


def _state_overall_question(models: Sequence[str], benchmarks: Sequence[str]) -> str:
    who = f"{models[0]} was" if len(models) == 1 else f"{things(len(models), 'model', 'models')} were"
    what = f"“{benchmarks[0]}”" if len(benchmarks) == 1 else things(len(benchmarks), "benchmark", "benchmarks")
    return f"We asked whether {who} trained on texts of {what}."


def _state_overall_certainty(levels: Mapping[str | None, int], answers: int, reproduced_benchmarks: int) -> str:
    sentences = []
    if reproduced_benchmarks:
        sentences.append("That the model gives passages word for word is seen directly, and can be tried again.")
    raised = [
        f"{count(levels[level])} {words}"
        for level, words in (
            (SOUND, "of a comparison that chance decided"),
            (STATISTICAL, "of texts that are alike by design"),
        )
        if levels.get(level)
    ]
    if raised:
        of = things(answers, "answer", "answers")
        sentences.append(f"Of {of} from scores, {' and '.join(raised)} can be more than a screening.")
    elif answers == 1:
        sentences.append("The answer from scores is a screening, which says where to look and not what happened.")
    elif answers:
        sentences.append(
            "No answer from scores is more than a screening, which says where to look and not what happened: none of"
            f" the {count(answers)} comparisons is of texts that are alike by design."
        )
    return " ".join(sentences) or NO_RESULT


def _describe_overall_changes(
    outcomes: Mapping[str, int], reproduced_benchmarks: int, null_answers: Sequence[Row]
) -> str:
    sentences = []
    if reproduced_benchmarks:
        sentences.append("Passages that also stand elsewhere, as quotations or copies, say nothing of these documents.")
    if separable := outcomes.get("separable"):
        sentences.append(
            f"Where the two sides can be told apart without the model ({count(separable)}), only other texts change the"
            f" answer: {ALIKE}."
        )
    if any(n and kind_of(outcome).helped_by == "texts that are alike" for outcome, n in outcomes.items()):
        sentences.append(f"Where there is something to look at, {ALIKE}, would make it evidence or take it away.")
    if null_answers:
        search = "" if all(answer["searched"] for answer in null_answers) else f" or {WORD_FOR_WORD}"
        sentences.append(f"Where nothing stands out, more texts{search} may find something.")
    return " ".join(sentences) or OTHER_AUDIT
