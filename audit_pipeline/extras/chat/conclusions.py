"""What follows of answers, by document and rung: the score, its p- and q-value against held-out documents, the claim.

The score of a document is named beforehand: the share of the next 40 words that come back in common runs of 5 words and
more (n-gram coverage of the true text: Hallinan et al. 2025, arXiv 2508.09603), mean over the answers to a passage,
then over passages. It is compared with that of held-out documents at the same rung. On both sides a passage has equally
many answers, the first ones, and a document equally many passages, its first ones: with more of them a rare word for
word answer would be met more often, and beginnings are not like other passages. So neither the length of a document nor
the number of its passages or answers matters. The p-value holds where a document that the model has not read is like
the held-out ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import numpy as np

from audit_pipeline.extras.extraction.documents import SearchedDocument
from audit_pipeline.statistics.conformal import SHARE_COMPARED, compute_q_values, run_group_tests
from audit_pipeline.statistics.thresholds import ScoredTexts
from audit_pipeline.tables import NON_MEMBER, AskClaim, Outcome, Rung, Side

MOST_EDITS = 5
"""A passage is given nearly word for word where so many edits turn an answer into its next 40 words."""

_UNKNOWN = -1
"""The label of audited texts."""
_OF_TEST = ("score", "passages_compared", "n_held_out", "p_value", "q_bh")

Row = Mapping[str, Any]
Coverages = Mapping[int, Sequence[float]]
"""By passage a number of each answer, in the order of draws."""


def conclude_documents(
    documents: Iterable[SearchedDocument], answers: Sequence[Row], *, headline: Rung
) -> list[dict[str, Any]]:
    """Return a row for each document and each rung at which it was asked for, but for model, benchmark and run_id.

    answers: rows of CHAT_ANSWERS of one model about these documents, each request once, in any order.
    """
    known = {document.name: document for document in documents}
    by_rung: dict[Rung, dict[str, list[Row]]] = {}
    for answer in answers:
        by_rung.setdefault(answer["rung"], {}).setdefault(answer["document_id"], []).append(answer)
    return [
        {"document_id": name, "title": known[name].title, "rung": rung, "is_headline": rung == headline, **row}
        for rung, of_rung in by_rung.items()
        for name, row in _conclude_rung(of_rung, {name: known[name].side for name in of_rung}).items()
    ]


def _conclude_rung(answers: Mapping[str, Sequence[Row]], sides: Mapping[str, Side]) -> dict[str, dict[str, Any]]:
    measured = {name: [answer for answer in own if answer["outcome"] == "answered"] for name, own in answers.items()}
    tests = _test_documents({name: _collect(own, "passage_coverage") for name, own in measured.items()}, sides)
    found: dict[str, dict[str, Any]] = {}
    for name, own in answers.items():
        of_passage, of_answer = (
            _collect(measured[name], measure).values() for measure in ("passage_coverage", "answer_coverage")
        )
        test = tests.get(name, {})
        edited = [answer for answer in measured[name] if answer["edits"] is not None]
        near_verbatim = {_identify_passage(answer) for answer in edited if answer["edits"] <= MOST_EDITS}
        found[name] = {
            "side": sides[name],
            "passages": len(set(map(_identify_passage, own))),
            "requests": len(own),
            **{outcome: sum(answer["outcome"] == outcome for answer in own) for outcome in get_args(Outcome)},
            "words_in": _compute_mean(answer["words_in"] for answer in own),
            **{
                measure: max((answer[measure] for answer in measured[name]), default=None)
                for measure in ("words_out", "longest_run", "near_span")
            },
            "coverage_mean": _compute_mean(map(_compute_mean, of_passage)),
            "coverage_best": _compute_mean(map(max, of_passage)),
            "answer_coverage_mean": _compute_mean(map(_compute_mean, of_answer)),
            "answer_coverage_best": _compute_mean(map(max, of_answer)),
            "near_verbatim": len(near_verbatim) if edited else None,
            **{column: test.get(column) for column in _OF_TEST},
            "claim": _choose_claim(measured[name], is_calibrated=sides[name] == "held_out" or "p_value" in test),
        }
    return found


def _choose_claim(measured: Sequence[Row], *, is_calibrated: bool) -> AskClaim:
    """Return the claim. A stretch that came back is an observation of its own: it takes no other document."""
    if not measured:
        return "refused"
    stretches = [answer for answer in measured if answer["near_span"]]
    if any(answer["words_in"] is not None for answer in stretches):
        return "reproduced"
    if stretches:
        return "not graded"
    return "not reproduced" if is_calibrated else "not calibrated"


def _identify_passage(answer: Row) -> int | None:
    """Return the passage of an answer: its number, or of outputs that quote it its first character."""
    number, start = answer["passage"], answer["passage_start"]
    return None if number is None and start is None else int(start if number is None else number)


def _collect(measured: Sequence[Row], measure: str) -> Coverages:
    """Return by passage a measure of each answer, in the order of draws."""
    found: dict[int, list[float]] = {}
    for answer in sorted(measured, key=lambda answer: int(answer["draw"])):
        passage = _identify_passage(answer)
        if passage is not None and answer[measure] is not None:
            found.setdefault(passage, []).append(answer[measure])
    return found


def _test_documents(coverages: Mapping[str, Coverages], sides: Mapping[str, Side]) -> dict[str, dict[str, float | int]]:
    """Return by document its score; of an audited one where there is a held-out one, its test.

    A passage is scored by its first m answers, where m is the largest number that at least 80% of all passages have, or
    the most that any passage of the audited document has, where that is fewer.
    """
    counts = sorted((len(values) for own in coverages.values() for values in own.values()), reverse=True)
    usual = counts[math.ceil(SHARE_COMPARED * len(counts)) - 1] if counts else 0
    by_answers: dict[int, list[str]] = {}
    found: dict[str, dict[str, float | int]] = {}
    for name, own in coverages.items():
        if own:
            answers = min(usual, max(map(len, own.values())))
            scores = _score_passages(own, answers)
            found[name] = {"score": float(np.mean(sorted(scores.values()))), "passages_compared": len(scores)}
            if sides[name] == "audited":
                by_answers.setdefault(answers, []).append(name)
    held_out = [name for name in coverages if sides[name] == "held_out"]
    for answers, audited in by_answers.items():
        scored = {name: _score_passages(coverages[name], answers) for name in [*audited, *held_out]}
        tests = run_group_tests(_to_scored(scored, audited, _UNKNOWN), _to_scored(scored, held_out, NON_MEMBER))
        columns = (tests.statistic, tests.n_compared, tests.n_calibration_groups, tests.p_value)
        for name, *values in zip(tests.groups.tolist(), *(column.tolist() for column in columns), strict=True):
            found[name] = dict(zip(_OF_TEST, values, strict=False))
    tested = [name for name, row in found.items() if "p_value" in row]
    for name, q in zip(
        tested, compute_q_values([found[name]["p_value"] for name in tested], "bh").tolist(), strict=True
    ):
        found[name]["q_bh"] = q
    return found


def _score_passages(coverages: Coverages, answers: int) -> dict[int, float]:
    """Return the mean over the first ``answers`` answers of each passage that has so many."""
    return {
        passage: float(np.mean(sorted(values[:answers])))
        for passage, values in coverages.items()
        if len(values) >= answers
    }


def _to_scored(scores: Mapping[str, Mapping[int, float]], names: Sequence[str], label: int) -> ScoredTexts:
    """Return the passages of documents as texts in the order of their documents."""
    flat = [(name, passage, score) for name in names for passage, score in scores[name].items()]
    values = np.array([score for _, _, score in flat], dtype=np.float64)
    groups = np.array([name for name, _, _ in flat], dtype=np.str_)
    order = np.array([passage for _, passage, _ in flat], dtype=np.uint64)
    return ScoredTexts(values, np.full(len(flat), label), groups, order)


def _compute_mean(values: Iterable[float | None]) -> float | None:
    # Sorted, so that the order of rows changes not even the last bit.
    known = sorted(value for value in values if value is not None)
    return float(np.mean(known)) if known else None
