"""The answer of one pair in the words of the report, from the tables that its evaluation has just made.

What belongs here: the arguments of the rules (answer.py, brief.py), taken from those tables. What does not: the rules,
and the report itself, which reads the same from the warehouse (sql/answers.sql); a test holds that both say the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from audit_pipeline.evidence.audited_side import IN_WORDS as AGAINST_HELD_OUT
from audit_pipeline.evidence.headline import headline_detector
from audit_pipeline.metrics.claims import few_texts, rests_on
from audit_pipeline.report.answer import answer_words
from audit_pipeline.report.brief import Brief, Judged, brief_of
from audit_pipeline.report.documents import smallest_q
from audit_pipeline.report.inline_picture import axis_markdown, counted_markdown
from audit_pipeline.report.known import Estimate, ShelfDocuments, Sides
from audit_pipeline.report.words import Q_LEVEL, ScoreOrigin, Words
from audit_pipeline.separability.blind_control import NAME as BLIND_CONTROL

Row = Mapping[str, Any]


@dataclass(frozen=True)
class PairAnswer:
    """What a pair's evaluation came to, and the numbers that a picture of it needs."""

    words: Words
    brief: Brief
    auroc: Estimate | None
    blind: Estimate | None
    documents: ShelfDocuments | None

    def picture(self) -> str | None:
        """The answer in one small picture, as Markdown; None where there is no number."""
        if self.documents is not None:
            return counted_markdown("documents that stand out", self.documents.standing_out, self.documents.tested)
        rows = [("the detector", self.auroc), ("the words alone", self.blind)]
        drawn = [(name, one) for name, one in rows if one is not None and one.value is not None]
        return axis_markdown(drawn) if self.auroc is not None and self.auroc.value is not None else None


def answer_of_tables(
    tables: Mapping[str, pa.Table],
    *,
    model: str,
    benchmark: str,
    design: str,
    design_stated_by: str | None,
    has_audited: bool,
    claim_level: str,
    split_verdict: str,
) -> PairAnswer:
    """The answer of ``model`` on ``benchmark`` by the headline detector; ``tables`` by name, EVALUATIONS and
    GROUP_TESTS among them. ``has_audited``: whether the evaluation split holds texts of unknown label."""
    evaluated = [row for row in tables["evaluations"].to_pylist() if row["is_default"]]
    tested = [row for row in tables["group_tests"].to_pylist() if row["is_default"] and row["label"] is None]
    detectors = {row["detector"] for row in evaluated if row["detector"] != BLIND_CONTROL}
    detector = headline_detector(detectors or {row["detector"] for row in tested})
    auroc, margin = _estimate(evaluated, detector, "auroc"), _estimate(evaluated, detector, "auroc_margin")
    blind = _estimate(evaluated, BLIND_CONTROL, "auroc")
    sides = _sides(evaluated, detectors)
    documents = _documents([row for row in tested if row["detector"] == detector]) if has_audited else None
    level = claim_level if evaluated or tested else None
    origin = ScoreOrigin(stated_by=rests_on(level, design_stated_by, None if blind is None else blind.value))
    words = answer_words(
        sides=sides,
        claim_level=level,
        split_verdict=split_verdict if evaluated else None,
        auroc=auroc,
        margin=margin,
        documents=documents,
        origin=origin,
    )
    first = next((row for row in evaluated if row["detector"] == detector), None)
    judged = Judged(
        outcome=words.outcome,
        sides=sides,
        design=design,
        claim_level=level,
        split_verdict=split_verdict if evaluated else None,
        auroc=auroc,
        blind=blind,
        documents=documents,
        warning=None if auroc is None or first is None else few_texts(first["n_members"], first["n_nonmembers"]),
        origin=origin,
    )
    return PairAnswer(words, brief_of(model, benchmark, judged), auroc, blind, documents)


def _sides(evaluated: Sequence[Row], detectors: set[str]) -> Sides:
    if not detectors:
        return "none"
    against_held_out = any((row["method"] or "").startswith(AGAINST_HELD_OUT) for row in evaluated)
    return "audited against held-out" if against_held_out else "labelled"


def _estimate(evaluated: Sequence[Row], detector: str | None, metric: str) -> Estimate | None:
    row = next((row for row in evaluated if (row["detector"], row["metric"]) == (detector, metric)), None)
    return None if row is None else Estimate(row["value"], row["ci_low"], row["ci_high"], row["method"])


def _documents(tests: Sequence[Row]) -> ShelfDocuments | None:
    if not tests:
        return None
    calibration = min(row["n_calibration_groups"] for row in tests)
    return ShelfDocuments(
        tested=len(tests),
        standing_out=sum(row["q_bh"] <= Q_LEVEL for row in tests),
        detectors=1,
        tests=len(tests),
        can_stand_out=len(tests),
        direction=min((row["direction"] for row in tests if row["direction"] is not None), default=None),
        calibration_groups=calibration,
        smallest_q=smallest_q(calibration, len(tests)),
    )
