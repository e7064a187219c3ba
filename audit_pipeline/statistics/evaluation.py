"""The metrics of each detector, and the differences between detectors, as tables of findings.

Differences have the columns of table 11 of Raoof et al. 2025: difference, standard error and two-sided p-value.
Standard error and degrees of freedom are computed over groups. The influence of a group on the difference is its
influence on one AUROC minus its influence on the other (statistics/intervals.py), so common variation cancels. With one
text per group this is the test of DeLong, DeLong and Clarke-Pearson 1988. The interval excludes 0 if the p-value is
below 0.05.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, compress

import numpy as np
import pyarrow as pa

from audit_pipeline.splits import blind_controls as blind
from audit_pipeline.splits.blind_controls import BlindControl
from audit_pipeline.splits.evaluation_split import AssessedSplit, select_labelled_examples
from audit_pipeline.statistics import intervals, roc
from audit_pipeline.statistics.claims import ClaimLevel, SplitVerdict
from audit_pipeline.statistics.score_columns import Key, ScoreColumn, build_score_column, build_score_columns
from audit_pipeline.statistics.share_bounds import measure_share
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.tables import COMPARISONS, EVALUATIONS, Pair, canonical_json

_MEANING = "AUROC minus the other's, on the same texts"
_BLIND_NOTE = "the blind control's scores are taken as given, so that the interval is too narrow rather than too wide"


@dataclass(frozen=True)
class Comparison(intervals.Measurement):
    """The AUROC of one detector minus that of another on the same texts.

    If standard error and p-value cannot be computed, they are None, as are the ends of the interval. ``method`` then
    contains the reason.
    """

    value: float
    standard_error: float | None
    p_value: float | None


def compare_aurocs(
    first: intervals.MeasuredAuroc,
    second: intervals.MeasuredAuroc,
    sides: intervals.GroupedSides,
    *,
    meaning: str = _MEANING,
) -> Comparison:
    """Compute the first AUROC minus the second AUROC.

    Args:
        first: The AUROC of one detector.
        second: The AUROC of another detector on the same examples.
        sides: The groups of the examples by side.
        meaning: The beginning of ``Comparison.method``.
    """
    difference = first.value - second.value
    scatter = None if sides.problem else sides.compute_scatter(first.parts - second.parts)
    if scatter is None:
        return Comparison(
            difference, intervals.NO_INTERVAL, f"{meaning}; {sides.problem or intervals.NOTHING_VARIES}", None, None
        )
    half_width = scatter.compute_half_width()
    interval = intervals.Interval(max(-1.0, difference - half_width), min(1.0, difference + half_width))
    method = (
        f"{meaning}; standard error over {sides.n_groups} groups, 95% interval and two-sided p-value by "
        f"{scatter.description}"
    )
    p_value = scatter.p_value(difference)
    return Comparison(difference, interval, method, scatter.standard_error, p_value)


def compare_detectors(columns: Sequence[ScoreColumn], pair: Pair, run_id: str) -> pa.Table:
    """Compare all pairs of detectors at their default settings, including the blind control.

    Two detectors are compared on the texts that both have scored. If all these texts are members, or all are
    non-members, the pair of detectors has no row.

    Args:
        columns: The columns of an evaluation.
        pair: The pair of benchmark and model.
        run_id: The id of the run, written to the table.

    Returns:
        A table of schema COMPARISONS in the order of the columns. The blind control is always in the column ``other``.
    """
    defaults = [column for column in columns if column.is_default]
    defaults.sort(key=lambda column: column.detector == blind.NAME)
    # Groups and AUROCs are computed once for all pairs of detectors that are compared on the same texts.
    couples_by_texts: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
    for i, j in combinations(range(len(defaults)), 2):
        couples_by_texts[(defaults[i].scored & defaults[j].scored).tobytes()].append((i, j))
    rows: dict[tuple[int, int], dict[str, object]] = {}
    for shared_texts, couples in couples_by_texts.items():
        is_shared = np.frombuffer(shared_texts, dtype=np.bool_)
        column = defaults[couples[0][0]]
        is_used = is_shared[column.scored]
        labels = column.labels[is_used]
        if roc.explain_undefined(labels):
            continue
        sides = intervals.GroupedSides(list(compress(column.groups, is_used)), labels)
        aurocs: dict[int, intervals.MeasuredAuroc] = {}
        for i in set(chain.from_iterable(couples)):
            scores = defaults[i].scores[is_shared[defaults[i].scored]]
            aurocs[i] = intervals.measure_auroc(roc.compute_roc_points(scores, labels), sides)
        n_members = int(labels.sum())
        for i, j in couples:
            result = compare_aurocs(aurocs[i], aurocs[j], sides)
            is_against_blind = defaults[j].detector == blind.NAME
            rows[i, j] = {
                "model": pair.model,
                "benchmark": pair.benchmark,
                "detector": defaults[i].detector,
                "parameters": defaults[i].parameters,
                "other": defaults[j].detector,
                "other_parameters": defaults[j].parameters,
                "n_members": n_members,
                "n_nonmembers": len(labels) - n_members,
                "n_groups": sides.n_groups,
                "difference": result.value,
                "standard_error": result.standard_error,
                "ci_low": result.interval.low,
                "ci_high": result.interval.high,
                "p_value": result.p_value,
                "method": f"{result.method}; {_BLIND_NOTE}" if is_against_blind else result.method,
                "run_id": run_id,
            }
    return table_from_rows((rows[couple] for couple in sorted(rows)), COMPARISONS)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The evaluation of a model on a benchmark.

    Attributes:
        table: A table of schema EVALUATIONS. It is empty if no evaluated example is labelled.
        reason: Why the table is empty, or None.
        split_verdict: The verdict on the two sides.
        claim_level: The claim level.
        columns: The evaluated scores by detector setting, followed by those of the blind control if it was computed.
    """

    table: pa.Table
    reason: str | None
    split_verdict: SplitVerdict
    claim_level: ClaimLevel
    columns: list[ScoreColumn]


def evaluate(scores: pa.Table, examples: pa.Table, split: AssessedSplit, pair: Pair, run_id: str) -> Evaluation:
    """Compute all metrics of all detectors and settings, and of the blind control, on the evaluation split.

    A detector is evaluated on the texts that it has scored. The column ``n_not_scored`` has the number of texts without
    a score. An undefined metric is null, with the reason in ``method``.

    Args:
        scores: The scores (schema SCORES). Rows of other pairs are ignored.
        examples: The examples (schema EXAMPLES).
        split: The assessment of these examples, with blind control, verdict and claim level.
        pair: The pair of benchmark and model.
        run_id: The id of the run, written to the table.

    Raises:
        DataError: In the cases of :func:`build_score_columns`, and if the split was assessed on other texts.
    """
    labelled = select_labelled_examples(examples)
    columns = build_score_columns(scores, examples, pair)
    if not len(labelled):
        reason = "there is no finding, because no example of the evaluation split has a label"
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
    measured: dict[Key, dict[str, intervals.Measurement]] = {}
    for same_texts in by_texts.values():
        measured |= _measure_columns(same_texts, control)
    rows: list[dict[str, object]] = []
    for column in (*columns, control_column):
        common = {
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
        for metric, measurement in measured[column.key].items():
            method = measurement.method
            if column is control_column and measurement.value is not None:
                method = f"{control.method}; {method}"
            if column is control_column and control.reason is not None:
                method = control.reason
            row = {
                "metric": metric,
                "value": measurement.value,
                "ci_low": measurement.interval.low,
                "ci_high": measurement.interval.high,
                "method": method,
            }
            rows.append({**common, **row})
    if has_control:
        columns.append(control_column)
    return Evaluation(table_from_rows(rows, EVALUATIONS), None, split.verdict, split.claim_level, columns)


def _measure_columns(
    columns: Sequence[ScoreColumn], control: BlindControl
) -> dict[Key, dict[str, intervals.Measurement]]:
    """Compute the metrics of columns that score the same texts, by metric in the order of ``METRICS``.

    The groups are counted only once, because all columns have the same texts.
    """
    labels = columns[0].labels
    problem = roc.explain_undefined(labels)
    if problem:
        return {
            column.key: dict.fromkeys(roc.OF_SCORES, intervals.Measurement(None, intervals.NO_INTERVAL, problem))
            for column in columns
        }
    sides = intervals.GroupedSides(columns[0].groups, labels)
    control_auroc: intervals.MeasuredAuroc | None = None
    if control.scores is not None:
        control_auroc = intervals.measure_auroc(
            roc.compute_roc_points(control.scores[columns[0].scored], labels), sides
        )
    return {column.key: _measure_column(column, sides, control_auroc) for column in columns}


def _measure_column(
    column: ScoreColumn, sides: intervals.GroupedSides, control_auroc: intervals.MeasuredAuroc | None
) -> dict[str, intervals.Measurement]:
    """Compute the metrics of a column, and the margin over the blind control if the control was computed."""
    curve = roc.compute_roc_points(column.scores, column.labels)
    auroc = intervals.measure_auroc(curve, sides)
    measurements = {
        roc.AUROC.name: intervals.Measurement(auroc.value, auroc.interval, f"{roc.AUROC.meaning}; {auroc.method}")
    }
    for name, metric in roc.METRICS.items():
        if metric.is_share:
            measurements[name] = measure_share(metric, curve, sides)
    if auroc.method == roc.ALL_EQUAL:
        for name, measurement in measurements.items():
            if measurement.value is not None:
                measurements[name] = replace(measurement, interval=intervals.NO_INTERVAL, method=roc.ALL_EQUAL)
        return measurements
    if control_auroc is not None and column.detector != blind.NAME:
        # The margin never raises a claim level.
        measurements[roc.MARGIN.name] = compare_aurocs(auroc, control_auroc, sides, meaning=roc.MARGIN.meaning)
    return measurements
