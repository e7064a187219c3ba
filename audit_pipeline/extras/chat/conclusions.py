"""The results of answers per document and prompt style: counts, measures, score, p- and q-value and the claim.

The score of a document is fixed before the first request. It is the share of the passage's next 40 words that lie in
runs of at least 5 words that the answer also contains. This is the n-gram coverage of the true text (Hallinan et al.
2025, arXiv 2508.09603). The share is averaged over the answers to a passage, then over the passages.

The score is compared with the scores of held-out documents for the same style. All compared passages have the same
number of answers, and all compared documents the same number of passages. Surplus answers and passages at the end are
ignored, for two reasons. A rare word-for-word answer is more likely among more answers. Beginnings of documents differ
from other passages. Therefore the p-value does not depend on the length of a document.

The p-value assumes that a document that the model has not read resembles the held-out documents.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import numpy as np

from audit_pipeline.extras.extraction.documents import SearchedDocument
from audit_pipeline.statistics.conformal import SHARE_COMPARED, compute_q_values, run_group_tests
from audit_pipeline.statistics.thresholds import ScoredTexts
from audit_pipeline.tables import NON_MEMBER, AskClaim, Outcome, PromptStyle, Side

MAX_NEAR_VERBATIM_EDITS = 5
"""A passage counts as nearly verbatim if at most this number of edits turn an answer into its next 40 words."""

# The label of audited texts, whose membership is unknown.
_UNKNOWN = -1
_TEST_COLUMNS = ("score", "passages_compared", "n_held_out", "p_value", "q_bh")

Row = Mapping[str, Any]
Coverages = Mapping[int, Sequence[float]]
"""The values of one measure by number of the passage: one value per answer to the passage, in the order of draws."""


def conclude_documents(
    documents: Iterable[SearchedDocument], answers: Sequence[Row], *, headline: PromptStyle
) -> list[dict[str, Any]]:
    """Return one row per document and prompt style, without the columns model, benchmark and run_id.

    Args:
        documents: The documents.
        answers: Rows of CHAT_ANSWERS of one model about these documents, in any order. No request occurs twice.
        headline: The style whose results decide the conclusion.
    """
    document_by_name = {document.name: document for document in documents}
    answers_by_style: dict[PromptStyle, dict[str, list[Row]]] = {}
    for answer in answers:
        answers_by_style.setdefault(answer["rung"], {}).setdefault(answer["document_id"], []).append(answer)
    rows: list[dict[str, Any]] = []
    for style, answers_by_document in answers_by_style.items():
        sides = {name: document_by_name[name].side for name in answers_by_document}
        for name, results in _conclude_style(answers_by_document, sides).items():
            keys = {
                "document_id": name,
                "title": document_by_name[name].title,
                "rung": style,
                "is_headline": style == headline,
            }
            rows.append({**keys, **results})
    return rows


def _conclude_style(answers: Mapping[str, Sequence[Row]], sides: Mapping[str, Side]) -> dict[str, dict[str, Any]]:
    """Return the results of each document for one prompt style."""
    measured: dict[str, list[Row]] = {}
    coverages: dict[str, Coverages] = {}
    for name, rows in answers.items():
        measured[name] = [row for row in rows if row["outcome"] == "answered"]
        coverages[name] = _collect_by_passage(measured[name], "passage_coverage")
    tests = _test_documents(coverages, sides)
    results: dict[str, dict[str, Any]] = {}
    for name, rows in answers.items():
        test = tests.get(name, {})
        is_calibrated = sides[name] == "held_out" or "p_value" in test
        results[name] = {
            "side": sides[name],
            "passages": len(set(map(_identify_passage, rows))),
            "requests": len(rows),
            **_count_outcomes(rows),
            "words_in": _compute_mean(row["words_in"] for row in rows),
            **_summarise_measures(measured[name]),
            **dict.fromkeys(_TEST_COLUMNS),
            **test,
            "claim": _choose_claim(measured[name], is_calibrated=is_calibrated),
        }
    return results


def _count_outcomes(answers: Sequence[Row]) -> dict[str, int]:
    counts = Counter(answer["outcome"] for answer in answers)
    return {outcome: counts[outcome] for outcome in get_args(Outcome)}


def _summarise_measures(measured: Sequence[Row]) -> dict[str, Any]:
    """Return the maxima and means of the measures of a document's measurable answers."""
    summary: dict[str, Any] = {}
    for measure in ("words_out", "longest_run", "near_span"):
        summary[measure] = max((answer[measure] for answer in measured), default=None)
    for column, measure in (("coverage", "passage_coverage"), ("answer_coverage", "answer_coverage")):
        values = _collect_by_passage(measured, measure).values()
        summary[f"{column}_mean"] = _compute_mean(map(_compute_mean, values))
        summary[f"{column}_best"] = _compute_mean(map(max, values))
    edited = [answer for answer in measured if answer["edits"] is not None]
    summary["near_verbatim"] = None
    if edited:
        near_verbatim = {_identify_passage(row) for row in edited if row["edits"] <= MAX_NEAR_VERBATIM_EDITS}
        summary["near_verbatim"] = len(near_verbatim)
    return summary


def _choose_claim(measured: Sequence[Row], *, is_calibrated: bool) -> AskClaim:
    """Return the claim about a document. A near stretch (matching.py) needs no comparison with other documents."""
    if not measured:
        return "refused"
    stretches = [answer for answer in measured if answer["near_span"]]
    if any(answer["words_in"] is not None for answer in stretches):
        return "reproduced"
    if stretches:
        return "not graded"
    return "not reproduced" if is_calibrated else "not calibrated"


def _identify_passage(answer: Row) -> int | None:
    """Return a number that identifies an answer's passage.

    It is the passage number, else the passage's start in characters (imported outputs), else None.
    """
    if answer["passage"] is not None:
        return int(answer["passage"])
    if answer["passage_start"] is not None:
        return int(answer["passage_start"])
    return None


def _collect_by_passage(measured: Sequence[Row], measure: str) -> Coverages:
    values: dict[int, list[float]] = {}
    for answer in sorted(measured, key=lambda answer: int(answer["draw"])):
        passage = _identify_passage(answer)
        if passage is not None and answer[measure] is not None:
            values.setdefault(passage, []).append(answer[measure])
    return values


def _test_documents(coverages: Mapping[str, Coverages], sides: Mapping[str, Side]) -> dict[str, dict[str, float | int]]:
    """Return the score of each document, and the test of each audited document if held-out documents have scores.

    A passage is scored by its first m answers. m is the largest number such that at least 80% of all passages have m
    answers or more. If all passages of a document have fewer answers, m is their maximum. An audited document is
    compared with held-out documents at the same m.
    """
    counts = [len(values) for passages in coverages.values() for values in passages.values()]
    counts.sort(reverse=True)
    usual_count = 0
    if counts:
        usual_count = counts[math.ceil(SHARE_COMPARED * len(counts)) - 1]
    audited_by_count: dict[int, list[str]] = {}
    results: dict[str, dict[str, float | int]] = {}
    for name, passages in coverages.items():
        if not passages:
            continue
        n_answers = min(usual_count, max(map(len, passages.values())))
        scores = _score_passages(passages, n_answers)
        results[name] = {"score": float(np.mean(sorted(scores.values()))), "passages_compared": len(scores)}
        if sides[name] == "audited":
            audited_by_count.setdefault(n_answers, []).append(name)
    held_out = [name for name in coverages if sides[name] == "held_out"]
    for n_answers, audited in audited_by_count.items():
        passage_scores = {name: _score_passages(coverages[name], n_answers) for name in [*audited, *held_out]}
        tests = run_group_tests(
            _build_scored_texts(passage_scores, audited, _UNKNOWN),
            _build_scored_texts(passage_scores, held_out, NON_MEMBER),
        )
        columns = (tests.statistic, tests.n_compared, tests.n_calibration_groups, tests.p_value)
        for name, *values in zip(tests.groups.tolist(), *(column.tolist() for column in columns), strict=True):
            results[name] = dict(zip(_TEST_COLUMNS, values, strict=False))
    tested = [name for name, row in results.items() if "p_value" in row]
    q = compute_q_values([results[name]["p_value"] for name in tested], "bh")
    for name, q_value in zip(tested, q.tolist(), strict=True):
        results[name]["q_bh"] = q_value
    return results


def _score_passages(coverages: Coverages, n_answers: int) -> dict[int, float]:
    """Return the mean over the first ``n_answers`` answers of each passage. Passages with fewer answers are skipped."""
    scores: dict[int, float] = {}
    for passage, values in coverages.items():
        if len(values) >= n_answers:
            scores[passage] = float(np.mean(sorted(values[:n_answers])))
    return scores


def _build_scored_texts(scores: Mapping[str, Mapping[int, float]], names: Sequence[str], label: int) -> ScoredTexts:
    """Return the passages of the named documents as texts with scores. The passages of a document are one group."""
    values: list[float] = []
    groups: list[str] = []
    order: list[int] = []
    for name in names:
        values += scores[name].values()
        order += scores[name].keys()
        groups += [name] * len(scores[name])
    return ScoredTexts(
        np.array(values, dtype=np.float64),
        np.full(len(values), label),
        np.array(groups, dtype=np.str_),
        np.array(order, dtype=np.uint64),
    )


def _compute_mean(values: Iterable[float | None]) -> float | None:
    # The values are sorted, because the last bit of a sum depends on the order.
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    return float(np.mean(known))
