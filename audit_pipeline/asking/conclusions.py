"""What follows of answers, by document and rung: the score, its p- and q-value beside held-out documents, the claim.

What belongs here: from rows of CHAT_ANSWERS to rows of CHAT_DOCUMENTS. What does not: what one answer is worth
(matching.py), the quiz (quiz.py).

The score of a document is named beforehand: the share of a passage's 40 words that come back in common runs of 5 words
and more (n-gram coverage of the true text: Hallinan et al. 2025, arXiv 2508.09603), mean over the answers to a passage,
then over passages. It is compared with that of held-out documents at the same rung. On both sides a passage has equally
many answers, and a document equally many passages, which a hash chooses (evidence/conformal.py): with more of them a
rare word for word answer would be met more often. So neither the length of a document nor the number of its passages or
answers matters. The p-value holds where a document that the model has not read is like the held-out ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import numpy as np

from audit_pipeline.asking.ladder import HEADLINE
from audit_pipeline.catalogue.contracts import NON_MEMBER, AskClaim, Outcome, Rung, Side
from audit_pipeline.evidence.conformal import SHARE_COMPARED, q_values, run_group_tests
from audit_pipeline.evidence.thresholds import ScoredTexts, draw_keys
from audit_pipeline.extraction.documents import SearchedDocument

MOST_EDITS = 5
"""A passage is given nearly word for word where so many edits turn an answer into its next 40 words."""

_LABELS: Mapping[Side, int] = {"audited": -1, "held_out": NON_MEMBER}
"""An audited document is of unknown label."""
_OF_TEST = ("score", "passages_compared", "n_held_out", "p_value", "q_bh")

Row = Mapping[str, Any]


def conclude_documents(
    documents: Iterable[SearchedDocument], answers: Sequence[Row], *, headline: Rung = HEADLINE
) -> list[dict[str, Any]]:
    """A row for each document and each rung at which it was asked for, but for model, benchmark and run_id.

    answers: rows of CHAT_ANSWERS of one model, each request once, in any order.
    """
    titles = {document.name: document.title for document in documents}
    by_rung: dict[Rung, dict[str, list[Row]]] = {}
    for answer in answers:
        by_rung.setdefault(answer["rung"], {}).setdefault(answer["document_id"], []).append(answer)
    return [
        {"document_id": name, "title": titles.get(name), "rung": rung, "is_headline": rung == headline, **row}
        for rung, of_rung in by_rung.items()
        for name, row in _conclude_rung(of_rung).items()
    ]


def _conclude_rung(answers: Mapping[str, Sequence[Row]]) -> dict[str, dict[str, Any]]:
    measured = {name: [one for one in own if one["outcome"] == "answered"] for name, own in answers.items()}
    sides: dict[str, Side] = {name: own[0]["side"] for name, own in answers.items()}
    tests = _test_documents(_score_passages(measured), sides)
    found: dict[str, dict[str, Any]] = {}
    for name, own in answers.items():
        coverages = _collect_coverages(measured[name]).values()
        test = tests.get(name, {})
        found[name] = {
            "side": sides[name],
            "passages": len({answer["passage"] for answer in own}),
            "requests": len(own),
            **{outcome: sum(answer["outcome"] == outcome for answer in own) for outcome in get_args(Outcome)},
            "words_in": _mean(answer["words_in"] for answer in own),
            **{measure: _most(measured[name], measure) for measure in ("words_out", "longest_run", "near_span")},
            "coverage_mean": _mean(map(_mean, coverages)),
            "coverage_best": _mean(map(max, coverages)),
            "near_verbatim": _count_near_verbatim(measured[name]),
            **{column: test.get(column) for column in _OF_TEST},
            "claim": _claim(measured[name], is_calibrated=sides[name] == "held_out" or "p_value" in test),
        }
    return found


def _claim(measured: Sequence[Row], *, is_calibrated: bool) -> AskClaim:
    """A stretch that came back is an observation of its own: it takes no other document."""
    if not measured:
        return "refused"
    if any(answer["near_span"] for answer in measured):
        return "reproduced"
    return "not reproduced" if is_calibrated else "not calibrated"


def _score_passages(measured: Mapping[str, Sequence[Row]]) -> dict[str, dict[int, float]]:
    """The score of each passage, by document: the mean over its first m answers, where m is the largest number that at
    least 80% of the passages have. Passages with fewer are left out."""
    coverages = {name: _collect_coverages(own) for name, own in measured.items()}
    counts = sorted((len(values) for own in coverages.values() for values in own.values()), reverse=True)
    most = counts[math.ceil(SHARE_COMPARED * len(counts)) - 1] if counts else 0
    return {
        name: {passage: float(np.mean(sorted(values[:most]))) for passage, values in own.items() if len(values) >= most}
        for name, own in coverages.items()
    }


def _collect_coverages(measured: Sequence[Row]) -> dict[int, list[float]]:
    """By passage the coverage of each answer, in the order of draws."""
    found: dict[int, list[float]] = {}
    for answer in sorted(measured, key=lambda answer: int(answer["draw"])):
        if answer["passage"] is not None and answer["passage_coverage"] is not None:
            found.setdefault(answer["passage"], []).append(answer["passage_coverage"])
    return found


def _test_documents(
    scores: Mapping[str, Mapping[int, float]], sides: Mapping[str, Side]
) -> dict[str, dict[str, float | int]]:
    """By document its score; of an audited one where there is a held-out one, its test."""
    found: dict[str, dict[str, float | int]] = {
        name: {"score": float(np.mean(sorted(own.values()))), "passages_compared": len(own)}
        for name, own in scores.items()
        if own
    }
    audited, held_out = (_score_texts(scores, sides, side, label) for side, label in _LABELS.items())
    tests = run_group_tests(audited, held_out)
    columns = (tests.statistic, tests.n_compared, tests.n_calibration, tests.p_value, q_values(tests.p_value, "bh"))
    for name, *values in zip(tests.groups.tolist(), *(column.tolist() for column in columns), strict=True):
        found[name] = dict(zip(_OF_TEST, values, strict=True))
    return found


def _score_texts(
    scores: Mapping[str, Mapping[int, float]], sides: Mapping[str, Side], side: Side, label: int
) -> ScoredTexts:
    flat = [
        (name, str(passage), one) for name, own in scores.items() if sides[name] == side for passage, one in own.items()
    ]
    names, passages = [name for name, _, _ in flat], [passage for _, passage, _ in flat]
    values = np.array([one for _, _, one in flat], dtype=np.float64)
    return ScoredTexts(values, np.full(len(flat), label), np.array(names), draw_keys(names, passages, seed=0))


def _mean(values: Iterable[float | None]) -> float | None:
    # Sorted, so that the order of rows changes not even the last bit.
    known = sorted(value for value in values if value is not None)
    return float(np.mean(known)) if known else None


def _most(answers: Sequence[Row], measure: str) -> int | None:
    return max((answer[measure] for answer in answers), default=None)


def _count_near_verbatim(measured: Sequence[Row]) -> int | None:
    known = [answer for answer in measured if answer["edits"] is not None]
    return len({answer["passage"] for answer in known if answer["edits"] <= MOST_EDITS}) if known else None
