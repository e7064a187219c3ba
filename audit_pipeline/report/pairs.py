"""The answer of every model on every benchmark, read from the warehouse.

What belongs here: which detector answers a pair, and its numbers as an answer. What does not: the sentences
(report_answer.py), the evidence on one pair (report_section.py), putting a report together (report_data.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from audit_pipeline.detectors.registry import is_default
from audit_pipeline.evidence.audited_side import IN_WORDS as AGAINST_HELD_OUT
from audit_pipeline.evidence.dataset_inference import NAME as DATASET_INFERENCE
from audit_pipeline.evidence.headline import PREFERRED, headline_detector
from audit_pipeline.metrics.claims import few_texts, rests_on
from audit_pipeline.report.answer import answer_words
from audit_pipeline.report.document import Answer, Choice, DetectorAnswer, Documents, Estimate, Sides
from audit_pipeline.report.documents import penalty, smallest_q
from audit_pipeline.report.provenance import GIVEN, Pair, Settings, read_counted
from audit_pipeline.report.rows import Row, cut, estimate, rows
from audit_pipeline.report.section import chosen_rule
from audit_pipeline.report.words import OPPOSITE, Q_LEVEL, Origin, claim_words, labels_words, verdict_words
from audit_pipeline.warehouse.schema import BLIND_CONTROL

Connection = duckdb.DuckDBPyConnection
MAX_DETECTORS = 12
"""Of those that are shown where none was named."""

_PAIRS = """
SELECT runs.model, runs.benchmark, max(runs.finished_at) AS audited_at,
    max(benchmarks.design) AS design, max(benchmarks.design_stated_by) AS design_stated_by,
    max(benchmarks.manifest ->> 'description') AS description, max(benchmarks.manifest ->> '$.spec.builder') AS builder,
    max(benchmarks.manifest ->> 'origin') AS origin,
    coalesce(bool_and(runs.benchmark_digest = benchmarks.digest) FILTER (runs."table" = 'scores'), TRUE) AS is_current
FROM runs LEFT JOIN benchmarks ON benchmarks.benchmark = runs.benchmark
WHERE runs.is_current AND runs.model IS NOT NULL AND runs."table" IN ('scores', 'evaluations')
GROUP BY ALL ORDER BY runs.model, runs.benchmark
"""

_LEADERBOARD = """
SELECT board.*, found.method FROM leaderboard AS board
LEFT JOIN (SELECT * FROM current_evaluations WHERE metric = 'auroc' AND is_default) AS found
    USING (model, benchmark, detector, parameters)
ORDER BY board.model, board.benchmark, board.detector, board.parameters
"""

_BLIND_METHODS = f"""
SELECT model, benchmark, method FROM current_evaluations WHERE detector = '{BLIND_CONTROL}' AND metric = 'auroc'
"""  # noqa: S608 - a name from schema.py

_SCORED = """
SELECT DISTINCT scored.model, scored.benchmark, scored.detector, scored.parameters
FROM scored_settings AS scored SEMI JOIN (SELECT * FROM current_runs WHERE "table" = 'scores') AS latest
    USING (model, benchmark, run_id)
WHERE scored.scored > 0 ORDER BY ALL
"""

# Groups without a label are audited ones, or of texts of both sides where no text is audited.
_TESTED = f"""
SELECT model, benchmark, detector, parameters, count(*) FILTER (label IS NULL) AS tested,
    count(*) FILTER (label IS NULL AND q_bh <= {Q_LEVEL}) AS standing_out,
    count(*) FILTER (label IS NULL AND q_ledger <= {Q_LEVEL}) AS standing_out_of_all,
    min(n_calibration_groups) AS calibration_groups, min(claim_level) AS claim_level, min(direction) AS direction,
    benchmark IN (SELECT benchmark FROM examples WHERE split = 'evaluation' AND label IS NULL) AS has_audited
FROM current_group_tests WHERE is_default GROUP BY ALL ORDER BY ALL
"""  # noqa: S608 - a number of report_words.py

# By any detector, its scores running with training as far as is known.
_TESTED_BY_ANY = f"""
SELECT model, benchmark, count(DISTINCT "group") AS tested, max(n_ledger) AS tests,
    count(*) FILTER (direction IS DISTINCT FROM '{OPPOSITE}') AS can_stand_out,
    count(DISTINCT "group") FILTER (
        q_ledger <= {Q_LEVEL} AND direction IS DISTINCT FROM '{OPPOSITE}'
    ) AS standing_out
FROM current_group_tests WHERE is_default AND label IS NULL GROUP BY ALL
"""  # noqa: S608 - a number and a name of report_words.py

_WHOLE_SETS = f"""
SELECT model, benchmark, direction FROM current_corpus_tests WHERE test = '{DATASET_INFERENCE}'
"""  # noqa: S608 - a name of dataset_inference.py

_CALIBRATION_GROUPS = """
SELECT model, benchmark, detector, max(n_calibration_groups) AS groups FROM current_decisions
WHERE is_default GROUP BY ALL
"""

_WHOLE_RATES = """
SELECT * FROM current_contamination_rates WHERE unit = 'benchmark' AND is_default
ORDER BY model, benchmark, detector, parameters, rule DESC, alpha DESC
"""


@dataclass(frozen=True)
class _Known:
    """What is known of one pair, by detector at its default setting."""

    board: Sequence[Row]
    scored: Sequence[Row]
    tested: Sequence[Row]
    tested_by_any: Row | None
    rates: Sequence[Row]
    calibration_groups: Mapping[str, int]
    blind_method: str | None
    whole_set: str | None
    settings: Settings | None

    @property
    def sides(self) -> Sides:
        return _sides(self.board)


def read_answers(connection: Connection, settings: Mapping[Pair, Settings]) -> dict[Pair, Answer]:
    """The answer of every pair, by model and benchmark; ``settings``: as of report_provenance.read_settings."""
    board = _by_pair(rows(connection, _LEADERBOARD))
    blind_methods = {(row["model"], row["benchmark"]): row["method"] for row in rows(connection, _BLIND_METHODS)}
    scored = _by_pair(rows(connection, _SCORED))
    tested = _by_pair(rows(connection, _TESTED))
    by_any = {(row["model"], row["benchmark"]): row for row in rows(connection, _TESTED_BY_ANY)}
    rates = _by_pair(rows(connection, _WHOLE_RATES))
    calibrating = _by_pair(rows(connection, _CALIBRATION_GROUPS))
    whole_sets = {(row["model"], row["benchmark"]): row["direction"] for row in rows(connection, _WHOLE_SETS)}
    found = {}
    for row in rows(connection, _PAIRS):
        pair = row["model"], row["benchmark"]
        known = _Known(
            board.get(pair, []),
            scored.get(pair, []),
            tested.get(pair, []),
            by_any.get(pair),
            rates.get(pair, []),
            {one["detector"]: one["groups"] for one in calibrating.get(pair, [])},
            blind_methods.get(pair),
            whole_sets.get(pair),
            settings.get(pair),
        )
        found[pair] = _answer(row, known)
    counted = read_counted(connection, found.values())
    return {
        pair: answer.model_copy(update={"counted": counted.get(pair, []) if answer.is_current else []})
        for pair, answer in found.items()
    }


def _by_pair(found: Sequence[Row]) -> dict[Pair, list[Row]]:
    pairs: dict[Pair, list[Row]] = {}
    for row in found:
        pairs.setdefault((row["model"], row["benchmark"]), []).append(row)
    return pairs


def _answer(pair: Row, known: _Known) -> Answer:
    detector, parameters, choice = _chosen(known)
    row = next((one for one in known.board if (one["detector"], one["parameters"]) == (detector, parameters)), None)
    first = row or next(iter(known.board), None)
    every = [] if detector is not None else _every(known)
    tests = next((one for one in known.tested if (one["detector"], one["parameters"]) == (detector, parameters)), None)
    documents = _documents(tests, known) if detector is not None else _documents_of_all(known)
    level = next((one["claim_level"] for one in (first, tests, *known.tested) if one), None)
    verdict = first["split_verdict"] if first else None
    auroc = estimate(row, "auroc", row["method"]) if row else None
    stated_by = rests_on(level, pair["design_stated_by"], first["blind_auroc"] if first else None)
    words = answer_words(
        sides=known.sides,
        claim_level=level,
        split_verdict=verdict,
        auroc=auroc,
        margin=estimate(row, "margin") if row else None,
        documents=documents,
        every=every,
        whole_set=known.whole_set,
        origin=Origin(pair["builder"] == GIVEN, stated_by),
    )
    is_current = first["is_current"] if first else pair["is_current"]
    return Answer(
        model=pair["model"],
        benchmark=pair["benchmark"],
        description=cut(pair["description"], 400) if pair["description"] else None,
        design=pair["design"],
        design_stated_by=pair["design_stated_by"],
        labels_by=labels_words(pair["builder"], pair["origin"]),
        handed_over=str(known.settings["file"]) if known.settings else None,
        sides=known.sides,
        outcome=words.outcome,
        headline=words.headline,
        explanation=words.explanation,
        claim_level=level,
        claim_stated_by=stated_by,
        claim_in_words=claim_words(level, stated_by) if level else None,
        split_verdict=verdict,
        verdict_in_words=verdict_words(verdict, stated_by) if verdict else None,
        detector=detector,
        detector_chosen=choice,
        parameters=parameters,
        every_detector=every[:MAX_DETECTORS],
        more_detectors=max(0, len(every) - MAX_DETECTORS),
        counted=[],
        not_scored=row["n_not_scored"] if row else 0,
        warning=few_texts(first["n_members"], first["n_nonmembers"]) if first and first["auroc"] is not None else None,
        auroc=auroc,
        tpr_at_5_fpr=estimate(row, "tpr_at_5_fpr") if row else None,
        blind=estimate(first, "blind_auroc", known.blind_method) if first else None,
        blind_tpr_at_5_fpr=estimate(first, "blind_tpr_at_5_fpr") if first else None,
        strongest_control=first["worst_control"] if first else None,
        strongest_control_auroc=first["worst_control_auroc"] if first else None,
        documents=documents,
        audited_at=pair["audited_at"],
        is_current=is_current,
        section=None,
        lineage=None,
    )


def _chosen(known: _Known) -> tuple[str | None, str | None, Choice | None]:
    """The detector that answers, with its default parameters, and why it: as evaluated, as tested, or by the registry.

    All None where nobody named one of several, or none has a score.
    """
    named = known.settings["headline"] if known.settings else None
    for some in (
        [row for row in known.board if row["n"]],
        known.tested,
        [row for row in known.scored if is_default(row["detector"], row["parameters"])],
        known.scored,
    ):
        detectors = {row["detector"] for row in some}
        name = headline_detector(detectors, named)
        if name is not None:
            choice: Choice = "named" if named else "default" if name in PREFERRED else "alone"
            return name, next(row["parameters"] for row in some if row["detector"] == name), choice
        if detectors and named is None:
            break
    return None, None, None


def _every(known: _Known) -> list[DetectorAnswer]:
    """What each of several detectors came to, by name."""
    tested = {(row["detector"], row["parameters"]): row for row in known.tested if row["has_audited"]}
    board = {(row["detector"], row["parameters"]): row for row in known.board}
    return [
        DetectorAnswer(
            detector=key[0],
            parameters=key[1],
            auroc=estimate(board[key], "auroc", board[key]["method"]) if key in board else Estimate(value=None),
            tpr_at_5_fpr=estimate(board[key], "tpr_at_5_fpr") if key in board else Estimate(value=None),
            standing_out=tested[key]["standing_out_of_all"] if key in tested else None,
            direction=tested[key]["direction"] if key in tested else None,
        )
        for key in sorted({**board, **tested})
    ]


def _sides(board: Sequence[Row]) -> Sides:
    if any(str(row["method"] or "").startswith(AGAINST_HELD_OUT) for row in board):
        return "audited against held-out"
    return "labelled" if board else "none"


def _documents(tests: Row | None, known: _Known) -> Documents | None:
    """What a shelf's documents came to by the detector of ``tests``; None where none is audited."""
    if tests is None or not tests["has_audited"] or not tests["tested"]:
        return None
    rates = [one for one in known.rates if one["detector"] == tests["detector"]]
    rule = chosen_rule([(row["rule"], row["alpha"]) for row in rates])
    rate: Mapping[str, Any] | None = next((row for row in rates if (row["rule"], row["alpha"]) == rule), None)
    groups = tests["calibration_groups"]
    return Documents(
        tested=tests["tested"],
        standing_out=tests["standing_out"],
        detectors=1,
        tests=tests["tested"],
        can_stand_out=tests["tested"],
        direction=tests["direction"],
        calibration_groups=groups,
        calibration_groups_in_all=known.calibration_groups.get(tests["detector"]),
        smallest_q=smallest_q(groups, tests["tested"]),
        flagged=estimate(rate, "flagged") if rate else None,
        corrected=Estimate(
            value=rate["corrected"], low=rate["corrected_low"], high=rate["corrected_high"], method=rate["reason"]
        )
        if rate
        else None,
        alpha=rate["alpha"] if rate else None,
    )


def _documents_of_all(known: _Known) -> Documents | None:
    """What a shelf's documents came to by any detector, every one allowed for; None where none is audited."""
    tested = [row for row in known.tested if row["has_audited"] and row["tested"]]
    by_any = known.tested_by_any
    if not tested or by_any is None:
        return None
    groups = min(row["calibration_groups"] for row in tested)
    directions = {row["direction"] for row in tested} - {OPPOSITE} or {OPPOSITE}
    return Documents(
        tested=by_any["tested"],
        standing_out=by_any["standing_out"],
        detectors=len(tested),
        tests=by_any["tests"],
        can_stand_out=by_any["can_stand_out"],
        direction=directions.pop() if len(directions) == 1 else "none",
        calibration_groups=groups,
        calibration_groups_in_all=max(known.calibration_groups.values(), default=None),
        smallest_q=smallest_q(
            groups, by_any["tested"], penalty(by_any["tests"]) * by_any["tests"] / max(1, by_any["can_stand_out"])
        ),
        flagged=None,
        corrected=None,
        alpha=None,
    )
