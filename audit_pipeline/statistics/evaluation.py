"""From a table of scores and a table of examples to the tables of findings: of each detector, and of every two.

Differences are as in table 11 of Raoof et al. 2025: difference, standard error and two-sided p-value. Standard error
and degrees of freedom are those of the difference of both detectors' parts of each group (statistics/intervals.py), so
that what they have in common cancels; with one text per group that is the test of DeLong, DeLong and Clarke-Pearson
1988. The interval goes with the p-value: it leaves 0 out where that is below 0.05.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pyarrow as pa

from audit_pipeline.splits import blind_controls as blind
from audit_pipeline.splits.assessment import AssessedSplit
from audit_pipeline.splits.blind_controls import BlindControl
from audit_pipeline.splits.evaluation_texts import select_labelled_examples
from audit_pipeline.statistics.claims import ClaimLevel, SplitVerdict
from audit_pipeline.statistics.intervals import (
    NO_INTERVAL,
    NOTHING_VARIES,
    GroupedSides,
    Interval,
    MeasuredAuroc,
    Measurement,
    measure_auroc,
)
from audit_pipeline.statistics.roc import ALL_EQUAL, AUROC, MARGIN, METRICS, OF_SCORES, explain_undefined, roc_points
from audit_pipeline.statistics.score_columns import Key, ScoreColumn, build_score_column, build_score_columns
from audit_pipeline.statistics.share_bounds import measure_share
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.tables import COMPARISONS, EVALUATIONS, Pair, canonical_json

_MEANING = "AUROC minus the other's, on the same texts"
_BLIND_NOTE = "the blind control's scores are taken as given, so that the interval is too narrow rather than too wide"


@dataclass(frozen=True)
class Comparison(Measurement):
    """The AUROC of one detector minus that of another on the same texts.

    All but ``value`` is None if it cannot be computed. ``method`` then gives the reason.
    """

    value: float
    standard_error: float | None
    p_value: float | None


def compare_aurocs(
    first: MeasuredAuroc, second: MeasuredAuroc, sides: GroupedSides, *, meaning: str = _MEANING
) -> Comparison:
    """Return the first AUROC minus the second, both of the examples of ``sides``; ``meaning`` begins the method."""
    difference = first.value - second.value
    scatter = None if sides.problem else sides.compute_scatter(first.parts - second.parts)
    if scatter is None:
        return Comparison(difference, NO_INTERVAL, f"{meaning}; {sides.problem or NOTHING_VARIES}", None, None)
    reach = scatter.compute_half_width()
    interval = Interval(max(-1.0, difference - reach), min(1.0, difference + reach))
    how = f"standard error over {sides.n_groups} groups, 95% interval and two-sided p-value by {scatter.description}"
    p_value = scatter.p_value(difference)
    return Comparison(difference, interval, f"{meaning}; {how}", scatter.standard_error, p_value)


def compare_detectors(columns: Sequence[ScoreColumn], pair: Pair, run_id: str) -> pa.Table:
    """Every two default-setting detectors of ``columns``, and each against the blind control where it is among them.

    ``columns`` are an Evaluation's. The table has the columns of COMPARISONS, a row per two detectors, in the columns'
    order, the blind control always the other. They are compared on the texts that both have scored; where these are not
    of both classes there is no difference, and no row.
    """
    defaults = [column for column in columns if column.is_default]
    defaults.sort(key=lambda column: column.detector == blind.NAME)
    by_texts: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
    for first, other in combinations(range(len(defaults)), 2):
        by_texts[(defaults[first].scored & defaults[other].scored).tobytes()].append((first, other))
    found: dict[tuple[int, int], dict[str, object]] = {}
    for shared, couples in by_texts.items():
        is_shared = np.frombuffer(shared, dtype=np.bool_)
        column = defaults[couples[0][0]]
        own = is_shared[column.scored]
        labels = column.labels[own]
        if explain_undefined(labels):
            continue
        sides = GroupedSides([group for group, is_own in zip(column.groups, own, strict=True) if is_own], labels)
        measured = {
            place: measure_auroc(roc_points(defaults[place].scores[is_shared[defaults[place].scored]], labels), sides)
            for place in {place for couple in couples for place in couple}
        }
        n_members = int(labels.sum())
        for first, other in couples:
            result = compare_aurocs(measured[first], measured[other], sides)
            against_blind = defaults[other].detector == blind.NAME
            found[first, other] = {
                "model": pair.model,
                "benchmark": pair.benchmark,
                "detector": defaults[first].detector,
                "parameters": defaults[first].parameters,
                "other": defaults[other].detector,
                "other_parameters": defaults[other].parameters,
                "n_members": n_members,
                "n_nonmembers": len(labels) - n_members,
                "n_groups": sides.n_groups,
                "difference": result.value,
                "standard_error": result.standard_error,
                "ci_low": result.interval.low,
                "ci_high": result.interval.high,
                "p_value": result.p_value,
                "method": f"{result.method}; {_BLIND_NOTE}" if against_blind else result.method,
                "run_id": run_id,
            }
    return table_from_rows((found[couple] for couple in sorted(found)), COMPARISONS)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The findings of one model on one benchmark.

    ``table`` has the columns of EVALUATIONS. It has no rows, and ``reason`` says why, where the evaluation split
    holds no labelled example. ``columns`` are the scores that the rows rest on, the blind control's (where read) last.
    """

    table: pa.Table
    reason: str | None
    split_verdict: SplitVerdict
    claim_level: ClaimLevel
    columns: list[ScoreColumn]


def evaluate(scores: pa.Table, examples: pa.Table, split: AssessedSplit, pair: Pair, run_id: str) -> Evaluation:
    """The findings: every metric of every detector and setting, and of the blind control, on the evaluation split.

    ``scores`` and ``examples`` have the columns of SCORES and EXAMPLES; rows of other models and benchmarks are left
    aside. ``split`` is what was assessed on these examples; blind control, verdict and claim level are taken from it. A
    detector is evaluated on the texts that it has a score for, the others are counted. A metric that is not defined is
    null, with the reason in ``method``. Raises DataError as :func:`build_score_columns` does, and where the split was
    assessed on other texts.
    """
    labelled = select_labelled_examples(examples)
    columns = build_score_columns(scores, examples, pair)
    if not len(labelled):
        reason = "no finding: no example of the evaluation split has a label, so there is nothing to compare"
        return Evaluation(EVALUATIONS.empty_table(), reason, split.verdict, split.claim_level, columns)
    control = split.align_control(labelled.example_ids)
    has_control = control.scores is not None
    control_column = build_score_column(
        blind.NAME,
        canonical_json({}),
        np.empty(0) if control.scores is None else control.scores,
        np.full(len(labelled), has_control),
        labelled,
        is_default=True,
    )
    by_texts: dict[bytes, list[ScoreColumn]] = defaultdict(list)
    for column in (*columns, control_column):
        by_texts[column.scored.tobytes()].append(column)
    measured: dict[Key, dict[str, Measurement]] = {}
    for same_texts in by_texts.values():
        measured |= _measure_columns(same_texts, control)
    rows = []
    for column in (*columns, control_column):
        same = {
            "model": pair.model,
            "benchmark": pair.benchmark,
            "detector": column.detector,
            "parameters": column.parameters,
            "is_default": column.is_default,
            "n_members": len(column.members),
            "n_nonmembers": len(column.nonmembers),
            "n_groups": len(set(column.groups)),
            "n_not_scored": column.n_not_scored,
            "split_verdict": split.verdict,
            "claim_level": split.claim_level,
            "run_id": run_id,
        }
        for metric, found in measured[column.key].items():
            method = found.method
            if column is control_column and found.value is not None:
                method = f"{control.method}; {method}"
            if column is control_column and control.reason is not None:
                method = control.reason
            interval = {"ci_low": found.interval.low, "ci_high": found.interval.high}
            rows.append({**same, "metric": metric, "value": found.value, **interval, "method": method})
    read = [*columns, *([control_column] if has_control else [])]
    return Evaluation(table_from_rows(rows, EVALUATIONS), None, split.verdict, split.claim_level, read)


def _measure_columns(columns: Sequence[ScoreColumn], control: BlindControl) -> dict[Key, dict[str, Measurement]]:
    """The findings of columns that score the same texts, whose groups are counted once: by metric, in the order of
    ``METRICS``; what is paired with the blind control only where that was read."""
    first = columns[0]
    problem = explain_undefined(first.labels)
    if problem:
        return {column.key: dict.fromkeys(OF_SCORES, Measurement(None, NO_INTERVAL, problem)) for column in columns}
    sides = GroupedSides(first.groups, first.labels)
    of_control: MeasuredAuroc | None = None
    if control.scores is not None:
        of_control = measure_auroc(roc_points(control.scores[first.scored], first.labels), sides)
    return {column.key: _measure_column(column, sides, of_control) for column in columns}


def _measure_column(
    column: ScoreColumn, sides: GroupedSides, of_control: MeasuredAuroc | None
) -> dict[str, Measurement]:
    """Return every metric of one column, and what sets it apart from the blind control on the same texts."""
    curve = roc_points(column.scores, column.labels)
    measured = measure_auroc(curve, sides)
    found = {AUROC.name: Measurement(measured.value, measured.interval, f"{AUROC.meaning}; {measured.method}")}
    found |= {name: measure_share(metric, curve, sides) for name, metric in METRICS.items() if metric.is_share}
    if measured.method == ALL_EQUAL:
        return {
            name: metric if metric.value is None else replace(metric, interval=NO_INTERVAL, method=ALL_EQUAL)
            for name, metric in found.items()
        }
    if of_control is not None and column.detector != blind.NAME:
        # It never raises a claim level.
        found[MARGIN.name] = compare_aurocs(measured, of_control, sides, meaning=MARGIN.meaning)
    return found
