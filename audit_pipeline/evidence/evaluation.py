"""From a table of scores and a table of examples to the tables of findings: of each detector, and of every two.

What belongs here: putting metrics, intervals, the blind control and the claim level into rows, and the difference of
two AUROCs on shared texts. What does not: which metrics there are and how any of them is computed (metrics/), the blind
control and the verdict (separability/assessment.py), what a difference means for a claim (it never raises a level), and
where the rows are written.

Differences are as in table 11 of Raoof et al. 2025: difference, standard error and two-sided p-value. Standard error
and degrees of freedom are those of the difference of both detectors' parts of each group (metrics/intervals.py), so
that what they have in common cancels; with one text per group that is the test of DeLong, DeLong and Clarke-Pearson
1988. The interval goes with the p-value: it leaves 0 out where that is below 0.05.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pyarrow as pa

from audit_pipeline.catalogue.contracts import COMPARISONS, EVALUATIONS, canonical_json
from audit_pipeline.catalogue.files import table_from_rows
from audit_pipeline.evidence.sides import Key, ScoreColumn, build_score_column, build_score_columns
from audit_pipeline.metrics.claims import ClaimLevel, SplitVerdict
from audit_pipeline.metrics.intervals import (
    NO_INTERVAL,
    NOTHING_VARIES,
    GroupedSides,
    Interval,
    MeasuredAuroc,
    measure_auroc,
)
from audit_pipeline.metrics.rates import fpr_at_tpr, tpr_at_fpr
from audit_pipeline.metrics.roc import ALL_EQUAL, AUROC, MARGIN, METRICS, OF_SCORES, explain_undefined, roc_points
from audit_pipeline.separability import blind_controls as blind
from audit_pipeline.separability.assessment import AssessedSplit
from audit_pipeline.separability.blind_controls import BlindControl
from audit_pipeline.separability.evaluation_texts import LabelledExamples, select_labelled_examples

_MEANING = "AUROC less the other's, on the same texts"
_BLIND_NOTE = "the blind control's scores are taken as given, so that the interval is too narrow rather than too wide"


@dataclass(frozen=True)
class Comparison:
    """AUROC of one detector less that of another on the same texts; the rest is None where ``method`` says why."""

    difference: float
    standard_error: float | None
    interval: Interval
    p_value: float | None
    method: str


def compare_aurocs(
    first: MeasuredAuroc, second: MeasuredAuroc, sides: GroupedSides, *, meaning: str = _MEANING
) -> Comparison:
    """The first AUROC less the second, both of the examples of ``sides``; ``meaning`` begins the method."""
    difference = first.value - second.value
    scatter = None if sides.problem else sides.compute_scatter(first.parts - second.parts)
    if scatter is None:
        return Comparison(difference, None, NO_INTERVAL, None, f"{meaning}; {sides.problem or NOTHING_VARIES}")
    reach = scatter.reach()
    return Comparison(
        difference,
        scatter.standard_error,
        Interval(max(-1.0, difference - reach), min(1.0, difference + reach)),
        scatter.p_value(difference),
        f"{meaning}; standard error over {sides.n_groups} groups, 95% interval and two-sided p-value by "
        f"{scatter.description}",
    )


def compare_detectors(
    columns: Sequence[ScoreColumn],
    *,
    model: str,
    benchmark: str,
    run_id: str,
) -> pa.Table:
    """Every two default-setting detectors of ``columns``, and each against the blind control where it is among them.

    ``columns`` are an Evaluation's. The table has the columns of COMPARISONS, one row per pair, in the columns' order,
    the blind control always the other. A pair is compared on the texts that both have scored; where these are not of
    both classes there is no difference, and no row.
    """
    defaults = [column for column in columns if column.is_default]
    defaults.sort(key=lambda column: column.detector == blind.NAME)
    found: dict[tuple[int, int], dict[str, object]] = {}
    for shared, pairs in _group_pairs_by_texts(defaults).items():
        is_shared = np.frombuffer(shared, dtype=np.bool_)
        first = defaults[pairs[0][0]]
        own = is_shared[first.scored]
        labels = first.labels[own]
        if explain_undefined(labels):
            continue
        groups = [group for group, is_scored in zip(first.groups, own, strict=True) if is_scored]
        used = sorted({index for pair in pairs for index in pair})
        sides = GroupedSides(groups, labels)
        measured = {
            index: measure_auroc(roc_points(defaults[index].scores[is_shared[defaults[index].scored]], labels), sides)
            for index in used
        }
        n_members = int(labels.sum())
        for first_column, other in pairs:
            result = compare_aurocs(measured[first_column], measured[other], sides)
            against_blind = defaults[other].detector == blind.NAME
            found[first_column, other] = {
                "model": model,
                "benchmark": benchmark,
                "detector": defaults[first_column].detector,
                "parameters": defaults[first_column].parameters,
                "other": defaults[other].detector,
                "other_parameters": defaults[other].parameters,
                "n_members": n_members,
                "n_nonmembers": len(labels) - n_members,
                "n_groups": sides.n_groups,
                "difference": result.difference,
                "standard_error": result.standard_error,
                "ci_low": result.interval.low,
                "ci_high": result.interval.high,
                "p_value": result.p_value,
                "method": f"{result.method}; {_BLIND_NOTE}" if against_blind else result.method,
                "run_id": run_id,
            }
    return table_from_rows((found[pair] for pair in sorted(found)), COMPARISONS)


def _group_pairs_by_texts(columns: Sequence[ScoreColumn]) -> dict[bytes, list[tuple[int, int]]]:
    """The pairs of columns by the texts that both have scored."""
    same: dict[bytes, list[tuple[int, int]]] = {}
    for first_column, other in combinations(range(len(columns)), 2):
        same.setdefault((columns[first_column].scored & columns[other].scored).tobytes(), []).append(
            (first_column, other)
        )
    return same


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The findings of one model on one benchmark.

    ``table`` has the columns of EVALUATIONS. It has no rows, and ``reason`` says why, where the evaluation split
    holds no labelled example. ``columns`` are the scores behind the rows, the blind control's (where read) last.
    """

    table: pa.Table
    reason: str | None
    split_verdict: SplitVerdict
    claim_level: ClaimLevel
    columns: list[ScoreColumn]


def evaluate(
    scores: pa.Table,
    examples: pa.Table,
    split: AssessedSplit,
    *,
    model: str,
    benchmark: str,
    run_id: str,
) -> Evaluation:
    """The findings: every metric of every detector and setting, and of the blind control, on the evaluation split.

    ``scores`` and ``examples`` have the columns of SCORES and EXAMPLES; rows of other models and benchmarks are left
    aside. ``split`` is what was assessed on these examples; blind control, verdict and claim level are taken from it. A
    detector is evaluated on the texts that it has a score for, the others are counted. A metric that is not defined is
    null, with the reason in ``method``. Raises DataError as :func:`build_score_columns` does, and where the split was
    assessed on other texts.
    """
    labelled = select_labelled_examples(examples)
    columns = build_score_columns(scores, examples, model=model, benchmark=benchmark)
    if not len(labelled):
        reason = "no finding: no example of the evaluation split has a label, so there is nothing to compare"
        return Evaluation(EVALUATIONS.empty_table(), reason, split.verdict, split.claim_level, columns)
    control = split.align_control(labelled.example_ids)
    control_column = _build_blind_column(control, labelled)
    measured: dict[Key, _Findings] = {}
    for same_texts in _group_columns_by_texts([*columns, control_column]):
        measured.update(_measure_columns(same_texts, control))
    rows = [
        {
            "model": model,
            "benchmark": benchmark,
            "detector": column.detector,
            "parameters": column.parameters,
            "is_default": column.is_default,
            "n_members": len(column.members),
            "n_nonmembers": len(column.nonmembers),
            "n_groups": len(set(column.groups)),
            "n_not_scored": column.n_not_scored,
            "metric": metric,
            "value": finding.value,
            "ci_low": finding.interval.low,
            "ci_high": finding.interval.high,
            "method": _format_method(finding, control if column is control_column else None),
            "split_verdict": split.verdict,
            "claim_level": split.claim_level,
            "run_id": run_id,
        }
        for column in (*columns, control_column)
        for metric, finding in measured[column.key].items()
    ]
    read = [*columns, *([control_column] if control.scores is not None else [])]
    return Evaluation(table_from_rows(rows, EVALUATIONS), None, split.verdict, split.claim_level, read)


@dataclass(frozen=True)
class _Finding:
    """One metric's value with its interval; None, and ``method`` says why, where it is not defined."""

    value: float | None
    interval: Interval
    method: str


_Findings = dict[str, _Finding]
"""By metric, in the order of ``METRICS``; those that are paired with the blind control only where it was read."""


def _build_blind_column(control: BlindControl, labelled: LabelledExamples) -> ScoreColumn:
    scored = np.full(len(labelled), control.scores is not None)
    scores = np.empty(0) if control.scores is None else control.scores
    return build_score_column(blind.NAME, canonical_json({}), scores, scored, labelled, is_default=True)


def _group_columns_by_texts(columns: Sequence[ScoreColumn]) -> list[list[ScoreColumn]]:
    """The columns in lists of those that score the same texts, whose groups are counted once."""
    same: dict[bytes, list[ScoreColumn]] = {}
    for column in columns:
        same.setdefault(column.scored.tobytes(), []).append(column)
    return list(same.values())


def _measure_columns(columns: Sequence[ScoreColumn], control: BlindControl) -> dict[Key, _Findings]:
    """The findings of columns that score the same texts."""
    first = columns[0]
    problem = explain_undefined(first.labels)
    if problem:
        return {column.key: dict.fromkeys(OF_SCORES, _Finding(None, NO_INTERVAL, problem)) for column in columns}
    sides = GroupedSides(first.groups, first.labels)
    of_control = None
    if control.scores is not None:
        of_control = measure_auroc(roc_points(control.scores[first.scored], first.labels), sides)
    return {column.key: _compute_column_findings(column, sides, of_control) for column in columns}


def _compute_column_findings(column: ScoreColumn, sides: GroupedSides, of_control: MeasuredAuroc | None) -> _Findings:
    """Every metric of one column, and what sets it apart from the blind control on the same texts."""
    curve = roc_points(column.scores, column.labels)
    measured = measure_auroc(curve, sides)
    findings = {AUROC.name: _Finding(measured.value, measured.interval, f"{AUROC.meaning}; {measured.method}")}
    for metric in METRICS.values():
        if metric.at_fpr is not None:
            share = tpr_at_fpr(column.scores, sides.labels, sides.groups, metric.at_fpr, points=curve)
        elif metric.at_tpr is not None:
            share = fpr_at_tpr(column.scores, sides.labels, sides.groups, metric.at_tpr, points=curve)
        else:
            continue
        findings[metric.name] = _Finding(share.value, share.interval, share.method)
    if measured.method == ALL_EQUAL:
        return {
            name: finding if finding.value is None else _Finding(finding.value, NO_INTERVAL, ALL_EQUAL)
            for name, finding in findings.items()
        }
    if of_control is not None and column.detector != blind.NAME:
        # It never raises a claim level.
        margin = compare_aurocs(measured, of_control, sides, meaning=MARGIN.meaning)
        findings[MARGIN.name] = _Finding(margin.difference, margin.interval, margin.method)
    return findings


def _format_method(finding: _Finding, control: BlindControl | None) -> str:
    if control is not None and control.reason is not None:
        return control.reason
    return finding.method if control is None or finding.value is None else f"{control.method}; {finding.method}"
