"""From a table of scores and a table of examples to the table of findings.

What belongs here: putting metrics, intervals, the blind control and the claim level into rows. What does not: which
metrics there are (metrics/declared.py) and how any of them is computed (metrics/), the blind control and the verdict
(separability/assessed.py), and where the rows are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from audit_pipeline.catalogue.contracts import EVALUATIONS, canonical_json
from audit_pipeline.catalogue.tables import table_from_rows
from audit_pipeline.evidence.columns import Key, ScoreColumn, column_of, score_columns
from audit_pipeline.evidence.comparison import compared
from audit_pipeline.metrics.claims import ClaimLevel, SplitVerdict
from audit_pipeline.metrics.curves import Floats
from audit_pipeline.metrics.declared import AUROC, METRICS, OF_SCORES, RESAMPLED, Metric
from audit_pipeline.metrics.intervals import NO_INTERVAL, RESAMPLES, GroupBootstrap, Interval
from audit_pipeline.metrics.metrics import ALL_EQUAL, RocPoints, rank, roc_points, undefined, weighted_metrics
from audit_pipeline.metrics.rates import tpr_at_fpr
from audit_pipeline.separability import blind_control as blind
from audit_pipeline.separability.assessed import AssessedSplit
from audit_pipeline.separability.blind_control import BlindControl
from audit_pipeline.separability.labelled import LabelledExamples, labelled_examples


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
    null, with the reason in ``method``. Raises DataError as :func:`score_columns` does, and where the split was
    assessed on other texts.
    """
    labelled = labelled_examples(examples)
    columns = score_columns(scores, examples, model=model, benchmark=benchmark)
    if not len(labelled):
        reason = "no finding: no example of the evaluation split has a label, so there is nothing to compare"
        return Evaluation(EVALUATIONS.empty_table(), reason, split.verdict, split.claim_level, columns)
    control = split.control_of(labelled.example_ids)
    control_column = _blind_column(control, labelled)
    measured: dict[Key, _Findings] = {}
    for same_texts in _by_texts([*columns, control_column]):
        measured.update(_measure(same_texts, control, resamples, seed))
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
            "method": _method(finding, control if column is control_column else None),
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


def _blind_column(control: BlindControl, labelled: LabelledExamples) -> ScoreColumn:
    scored = np.full(len(labelled), control.scores is not None)
    scores = np.empty(0) if control.scores is None else control.scores
    return column_of(blind.NAME, canonical_json({}), scores, scored, labelled, is_default=True)


def _by_texts(columns: Sequence[ScoreColumn]) -> list[list[ScoreColumn]]:
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


def _measure(columns: Sequence[ScoreColumn], control: BlindControl, resamples: int, seed: int) -> dict[Key, _Findings]:
    """The findings of columns that score the same texts."""
    first = columns[0]
    problem = undefined(first.labels)
    if problem:
        return {column.key: dict.fromkeys(OF_SCORES, _Finding(None, NO_INTERVAL, problem)) for column in columns}
    bootstrap = GroupBootstrap(first.groups, first.labels, resamples=resamples, seed=seed)
    scores = [column.scores for column in columns]
    if control.scores is not None and columns[-1].detector != blind.NAME:
        scores.append(control.scores[first.scored])
    rankings = [rank(score, first.labels) for score in scores]
    values = [weighted_metrics(ranking, names=RESAMPLED)[0] for ranking in rankings]
    drawn = bootstrap.metrics(rankings, RESAMPLED)
    resampled = [_Resampled(*one) for one in zip(values, drawn.swapaxes(1, 2), strict=True)]
    of_control = resampled[-1] if control.scores is not None else None
    return {
        column.key: dict(_findings(column, own, of_control, bootstrap))
        for column, own in zip(columns, resampled[: len(columns)], strict=True)
    }


def _findings(
    column: ScoreColumn, own: _Resampled, of_control: _Resampled | None, bootstrap: GroupBootstrap
) -> Iterator[tuple[str, _Finding]]:
    """Every metric of one column, and what sets it apart from the blind control on the same texts and resamples."""
    points = roc_points(column.scores, column.labels)
    is_tied = np.ptp(column.scores) == 0
    for metric in METRICS.values():
        if metric.interval != "paired":
            finding = _of_scores(metric, column, own, points, bootstrap)
            # The resamples of one value do not scatter.
            tied = is_tied and finding.value is not None
            yield metric.name, _Finding(finding.value, NO_INTERVAL, ALL_EQUAL) if tied else finding
        elif of_control is not None and not is_tied and column.detector != blind.NAME:
            yield metric.name, _paired(metric, own, of_control, bootstrap)


def _of_scores(
    metric: Metric, column: ScoreColumn, own: _Resampled, points: RocPoints, bootstrap: GroupBootstrap
) -> _Finding:
    if metric.at_fpr is not None:
        rate = tpr_at_fpr(column.scores, column.labels, column.groups, metric.at_fpr, points=points)
        return _Finding(rate.value, rate.interval, rate.method)
    value, draws = own.of(metric)
    interval, method = bootstrap.interval_of(metric, value, draws)
    return _Finding(value, interval, f"{metric.meaning}; {method}")


def _paired(metric: Metric, own: _Resampled, of_control: _Resampled, bootstrap: GroupBootstrap) -> _Finding:
    """The difference of two AUROCs; it never raises a claim level."""
    (value, draws), (of_blind, blind_draws) = own.of(AUROC), of_control.of(AUROC)
    margin = compared(value - of_blind, draws - blind_draws, bootstrap, meaning=metric.meaning)
    return _Finding(margin.difference, margin.interval, margin.method)


def _method(finding: _Finding, control: BlindControl | None) -> str:
    if control is not None and control.reason is not None:
        return control.reason
    return finding.method if control is None or finding.value is None else f"{control.method}; {finding.method}"
