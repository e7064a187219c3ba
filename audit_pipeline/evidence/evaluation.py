"""From a table of scores and a table of examples to the tables of findings: of each detector, and of every two.

What belongs here: putting metrics, intervals, the blind control and the claim level into rows, and the difference of
two AUROCs on shared texts and shared resamples of groups. What does not: which metrics there are and how any of them is
computed (metrics/), the blind control and the verdict (separability/assessment.py), what a difference means for a claim
(it never raises a level), and where the rows are written.

Differences are as in table 11 of Raoof et al. 2025: difference, standard error and two-sided p-value from 1,000
bootstrap iterations. Both detectors are read on the same draws of groups, so what they have in common cancels.

The p-value is of the centred bootstrap (Hall and Wilson 1991, Biometrics 47): the share of the resamples whose
difference lies as far from the observed difference as that lies from 0, one added to both counts. Twice the smaller
tail, which the paper's even thousandths suggest, calls 8.0% of equal detectors different at 5% with ten groups per
side, the centred one 5.9% (docs/intervals.md). The interval goes with it: the observed difference plus and minus the
95th percentile of those distances.

Resamples of few groups cannot show more than the groups do. With k pairs of groups that share none, no p-value is
smaller than 2^(1-k), the least of a two-sided sign test of k pairs; below six pairs that is above 0.05 and there is no
95% interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from audit_pipeline.catalogue.contracts import COMPARISONS, EVALUATIONS, canonical_json
from audit_pipeline.catalogue.files import table_from_rows
from audit_pipeline.evidence.sides import Key, ScoreColumn, build_score_column, build_score_columns
from audit_pipeline.metrics.claims import ClaimLevel, SplitVerdict
from audit_pipeline.metrics.intervals import NO_INTERVAL, RESAMPLES, TAIL, GroupBootstrap, Interval
from audit_pipeline.metrics.rates import tpr_at_fpr
from audit_pipeline.metrics.roc import (
    ALL_EQUAL,
    AUROC,
    METRICS,
    OF_SCORES,
    RESAMPLED,
    Floats,
    Metric,
    RocPoints,
    explain_undefined,
    rank,
    roc_points,
    weighted_metrics,
)
from audit_pipeline.separability import blind_controls as blind
from audit_pipeline.separability.assessment import AssessedSplit
from audit_pipeline.separability.blind_controls import BlindControl
from audit_pipeline.separability.evaluation_texts import LabelledExamples, select_labelled_examples

ITERATIONS = 1000

_AUROC = (AUROC.name,)
_MEANING = "AUROC less the other's, on the same texts and resamples"
_ROUNDING = 1e-12
"""Differences of AUROCs that are equal but for rounding count as equal."""
_BLIND_NOTE = "the blind control's scores are taken as given, so that the interval is too narrow rather than too wide"


@dataclass(frozen=True)
class Comparison:
    """AUROC of one detector less that of another on the same texts; the rest is None where there are no resamples."""

    difference: float
    standard_error: float | None
    interval: Interval
    p_value: float | None
    method: str


def compute_comparison(
    difference: float, resampled_differences: Floats, bootstrap: GroupBootstrap, *, meaning: str = _MEANING
) -> Comparison:
    """The comparison from an observed ``difference`` and its values [iterations] on the resamples of ``bootstrap``.

    ``meaning`` begins the method.
    """
    if bootstrap.problem or not resampled_differences.size:
        return Comparison(difference, None, NO_INTERVAL, None, f"{meaning}; {bootstrap.problem}")
    distances = np.abs(resampled_differences - difference)
    as_far = int(np.count_nonzero(distances >= abs(difference) - _ROUNDING))
    least = 2.0 ** (1 - bootstrap.independent_pairs)
    method = f"{meaning}; standard error and two-sided p-value of the centred bootstrap from {bootstrap.description}"
    if least > 1 / (resampled_differences.size + 1):
        method += f"; no p-value below 2^(1-k) with k = {bootstrap.independent_pairs} independent pairs of groups"
    if least > 2 * TAIL:
        interval = NO_INTERVAL
        method += "; no 95% interval: six are needed"
    else:
        width = float(np.quantile(distances, 1 - 2 * TAIL, method="higher"))
        interval = Interval(max(-1.0, difference - width), min(1.0, difference + width))
        method += "; 95% interval: the difference ± the 95th percentile of the resamples' distances from it"
    return Comparison(
        difference,
        float(resampled_differences.std(ddof=min(1, resampled_differences.size - 1))),
        interval,
        max(min(1.0, least), (1 + as_far) / (resampled_differences.size + 1)),
        method,
    )


def compare_detectors(
    columns: Sequence[ScoreColumn],
    *,
    model: str,
    benchmark: str,
    run_id: str,
    iterations: int = ITERATIONS,
    seed: int = 0,
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
        scores = np.stack([defaults[index].scores[is_shared[defaults[index].scored]] for index in used])
        places = [(used.index(first_column), used.index(other)) for first_column, other in pairs]
        results = _compare_all(scores, labels, groups, places, iterations, seed)
        n_members = int(labels.sum())
        for (first_column, other), result in zip(pairs, results, strict=True):
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
                "n_groups": len(set(groups)),
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
    """The pairs of columns by the texts that both have scored: one draw of resamples serves all pairs of a list."""
    same: dict[bytes, list[tuple[int, int]]] = {}
    for first_column, other in combinations(range(len(columns)), 2):
        same.setdefault((columns[first_column].scored & columns[other].scored).tobytes(), []).append(
            (first_column, other)
        )
    return same


def _compare_all(
    scores: Floats,
    labels: npt.ArrayLike,
    groups: Sequence[str],
    pairs: Sequence[tuple[int, int]],
    iterations: int,
    seed: int,
) -> list[Comparison]:
    """The comparisons of ``pairs`` of rows of ``scores`` [detectors, n], all on the same resamples."""
    rankings = [rank(row, labels) for row in scores]
    bootstrap = GroupBootstrap(groups, labels, resamples=iterations, seed=seed)
    aurocs = [float(weighted_metrics(ranking, names=_AUROC)[0, 0]) for ranking in rankings]
    resampled = bootstrap.metrics(rankings, _AUROC)[:, :, 0]
    return [
        compute_comparison(aurocs[first_column] - aurocs[other], resampled[first_column] - resampled[other], bootstrap)
        for first_column, other in pairs
    ]


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
    resamples: int = RESAMPLES,
    seed: int = 0,
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
        measured.update(_measure_columns(same_texts, control, resamples, seed))
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
    """The columns in lists of those that score the same texts, so that one draw of resamples serves each list."""
    same: dict[bytes, list[ScoreColumn]] = {}
    for column in columns:
        same.setdefault(column.scored.tobytes(), []).append(column)
    return list(same.values())


@dataclass(frozen=True, eq=False)
class _Resampled:
    """The ``RESAMPLED`` metrics of one column of scores: [m], and on the resamples: [m, resamples]."""

    values: Floats
    draws: Floats

    def of(self, metric: Metric) -> tuple[float, Floats]:
        place = RESAMPLED.index(metric.name)
        return float(self.values[place]), self.draws[place]


def _measure_columns(
    columns: Sequence[ScoreColumn], control: BlindControl, resamples: int, seed: int
) -> dict[Key, _Findings]:
    """The findings of columns that score the same texts."""
    first = columns[0]
    problem = explain_undefined(first.labels)
    if problem:
        return {column.key: dict.fromkeys(OF_SCORES, _Finding(None, NO_INTERVAL, problem)) for column in columns}
    bootstrap = GroupBootstrap(first.groups, first.labels, resamples=resamples, seed=seed)
    scores = [column.scores for column in columns]
    if control.scores is not None and columns[-1].detector != blind.NAME:
        scores.append(control.scores[first.scored])
    rankings = [rank(score, first.labels) for score in scores]
    values = [weighted_metrics(ranking, names=RESAMPLED)[0] for ranking in rankings]
    drawn = bootstrap.metrics(rankings, RESAMPLED)
    resampled = [_Resampled(*draws) for draws in zip(values, drawn.swapaxes(1, 2), strict=True)]
    of_control = resampled[-1] if control.scores is not None else None
    return {
        column.key: dict(_compute_column_findings(column, own, of_control, bootstrap))
        for column, own in zip(columns, resampled[: len(columns)], strict=True)
    }


def _compute_column_findings(
    column: ScoreColumn, column_metrics: _Resampled, control_metrics: _Resampled | None, bootstrap: GroupBootstrap
) -> Iterator[tuple[str, _Finding]]:
    """Every metric of one column, and what sets it apart from the blind control on the same texts and resamples."""
    points = roc_points(column.scores, column.labels)
    is_tied = np.ptp(column.scores) == 0
    for metric in METRICS.values():
        if metric.interval != "paired":
            finding = _compute_score_finding(metric, column, column_metrics, points, bootstrap)
            # The resamples of one value do not scatter.
            tied = is_tied and finding.value is not None
            yield metric.name, _Finding(finding.value, NO_INTERVAL, ALL_EQUAL) if tied else finding
        elif control_metrics is not None and not is_tied and column.detector != blind.NAME:
            yield metric.name, _compute_paired_finding(metric, column_metrics, control_metrics, bootstrap)


def _compute_score_finding(
    metric: Metric, column: ScoreColumn, column_metrics: _Resampled, points: RocPoints, bootstrap: GroupBootstrap
) -> _Finding:
    if metric.at_fpr is not None:
        rate = tpr_at_fpr(column.scores, column.labels, column.groups, metric.at_fpr, points=points)
        return _Finding(rate.value, rate.interval, rate.method)
    value, draws = column_metrics.of(metric)
    interval, method = bootstrap.interval_of(metric, value, draws)
    return _Finding(value, interval, f"{metric.meaning}; {method}")


def _compute_paired_finding(
    metric: Metric, column_metrics: _Resampled, control_metrics: _Resampled, bootstrap: GroupBootstrap
) -> _Finding:
    """The difference of two AUROCs; it never raises a claim level."""
    (value, draws), (of_blind, blind_draws) = column_metrics.of(AUROC), control_metrics.of(AUROC)
    margin = compute_comparison(value - of_blind, draws - blind_draws, bootstrap, meaning=metric.meaning)
    return _Finding(margin.difference, margin.interval, margin.method)


def _format_method(finding: _Finding, control: BlindControl | None) -> str:
    if control is not None and control.reason is not None:
        return control.reason
    return finding.method if control is None or finding.value is None else f"{control.method}; {finding.method}"
