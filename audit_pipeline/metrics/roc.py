"""The metrics of scores and labels, each declared once and computed from a ROC curve, for many weightings at once.

What belongs here: a metric's name, what it is in plain English, its function, its interval and its range; ranking
examples, and the metrics and the ROC curve of a ranking. What does not: where weights come from and how intervals are
computed (intervals.py, rates.py), whether so few non-members can resolve an FPR (rates.py), what a metric means for a
claim (claims.py), and the rows of an evaluation, for which the list is gone through (evidence/evaluation.py).

To add a metric: its function, and an entry in the list.

A text is called a member where its score is at least a threshold t. The thresholds are the distinct scores and
+infinity (nothing is called a member), so tied texts always pass a threshold together.

A metric's function is given the weight of non-members (``false``) and of members (``true``) at or above each threshold,
from +infinity, which calls no text a member, down: [r, t + 1] each, the r weightings in rows, and gives the metric:
[r]. Both only rise along the curve, so each limit is met up to one place of it, or from one place on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from audit_pipeline.catalogue.contracts import MEMBER, NON_MEMBER
from audit_pipeline.errors import DataError

Floats = npt.NDArray[np.float64]
OfCurve = Callable[[Floats, Floats], Floats]

SLACK = 1e-12
"""Relative: a rate that lies exactly on its limit is within it, whatever the rounding of limit times weight."""


def auroc(false: Floats, true: Floats) -> Floats:
    """The area under the curve; ties count half."""
    trapezoids = np.einsum("rt,rt->r", np.diff(false, axis=1), true[:, 1:] + true[:, :-1])
    return np.asarray(trapezoids / (2 * false[:, -1] * true[:, -1]))


def largest_tpr(false: Floats, true: Floats, *, fpr: float) -> Floats:
    """The largest TPR at a FPR of at most ``fpr``."""
    within = np.count_nonzero(false <= (fpr * (1 + SLACK) * false[:, -1])[:, None], axis=1) - 1
    return np.asarray(true[np.arange(len(true)), within] / true[:, -1])


def smallest_fpr(false: Floats, true: Floats, *, tpr: float) -> Floats:
    """The smallest FPR at a TPR of at least ``tpr``."""
    enough = np.count_nonzero(true < (tpr * (1 - SLACK) * true[:, -1])[:, None], axis=1)
    return np.asarray(false[np.arange(len(false)), enough] / false[:, -1])


IntervalKind = Literal["logit", "percentile", "share", "paired"]


@dataclass(frozen=True)
class Metric:
    """One metric of how well scores separate members from non-members.

    ``label`` is its name for people; ``meaning`` says what it is, and begins the ``method`` of its rows. ``interval``:
    *logit* of the value ± 1.96 standard deviations over resamples of groups; *percentile* of the same resamples;
    *share* of texts, with exact bounds; *paired*, the difference from the blind control on the same resamples.
    ``bounds``: its smallest and largest possible value. ``at_fpr``: of a share of members, the false-positive rate of
    the threshold above which they are counted; with fewer groups of non-members than can resolve that rate the
    metric is not defined.
    """

    name: str
    label: str
    meaning: str
    of_curve: OfCurve
    interval: IntervalKind
    bounds: tuple[float, float] = (0.0, 1.0)
    at_fpr: float | None = None

    def __post_init__(self) -> None:
        if (self.interval == "share") != (self.at_fpr is not None):
            raise ValueError(f"{self.name}: a share has a false-positive rate that it is read at, and nothing else has")


def _build_tpr_metric(name: str, fpr: float) -> Metric:
    return Metric(
        name,
        f"TPR at {100 * fpr:g}% FPR",
        f"largest TPR with FPR <= {fpr}",
        partial(largest_tpr, fpr=fpr),
        "share",
        at_fpr=fpr,
    )


AUROC = Metric("auroc", "AUROC", "area under the ROC curve, ties count half", auroc, "logit")
MARGIN = Metric(
    "auroc_margin",
    "AUROC less the blind control's",
    "AUROC less the blind control's, on the same texts and resamples",
    auroc,
    "paired",
    bounds=(-1.0, 1.0),
)

_DECLARED = (
    AUROC,
    _build_tpr_metric("tpr_at_5_fpr", 0.05),
    _build_tpr_metric("tpr_at_1_fpr", 0.01),
    _build_tpr_metric("tpr_at_01_fpr", 0.001),
    Metric(
        "fpr_at_95_tpr",
        "FPR at 95% TPR",
        "smallest FPR with TPR >= 0.95",
        partial(smallest_fpr, tpr=0.95),
        "percentile",
    ),
    MARGIN,
)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _DECLARED}
"""By name, in the order of the rows of an evaluation."""
OF_SCORES = tuple(metric.name for metric in _DECLARED if metric.interval != "paired")
"""Those of one detector's scores alone."""
RESAMPLED = tuple(metric.name for metric in _DECLARED if metric.interval in ("logit", "percentile"))
"""Those whose interval comes from the resamples of one detector's scores."""


ALL_EQUAL = "no interval: all scores are equal, so they separate nothing"
"""Why a metric of such scores has no interval: resamples of one value do not scatter."""


@dataclass(frozen=True, eq=False)
class Ranking:
    """The examples by descending score; made once, it serves every weighting of them.

    ``order`` [n] are the examples' positions, ``member`` [n] says which of them, in that order, are members,
    ``tie_end`` [t] are the places in that order of the last example of each of the t distinct scores.
    """

    order: npt.NDArray[np.intp]
    member: npt.NDArray[np.bool_]
    tie_end: npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class RocPoints:
    """The ROC curve from (0, 0) to (1, 1): [t + 1] each; ``threshold`` descends from +infinity."""

    fpr: Floats
    tpr: Floats
    threshold: Floats


def rank(scores: npt.ArrayLike, labels: npt.ArrayLike) -> Ranking:
    """The examples ranked by score.

    Raises DataError for a score that is NaN, a label that is neither 0 nor 1, unequal lengths, or one class only.
    """
    values = np.asarray(scores, dtype=np.float64)
    classes = np.asarray(labels)
    if values.ndim != 1 or values.shape != classes.shape:
        raise DataError(f"one score for each label is needed: {values.shape} scores, {classes.shape} labels")
    if np.isnan(values).any():
        raise DataError("a score is not a number: leave texts without a score out")
    if not np.isin(classes, (MEMBER, NON_MEMBER)).all():
        raise DataError("a label is neither 1 (member) nor 0 (non-member): leave unlabelled texts out")
    problem = explain_undefined(classes)
    if problem:
        raise DataError(problem)
    order = np.argsort(-values, kind="stable")
    ordered = values[order]
    tie_end = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    return Ranking(order, classes[order] == MEMBER, tie_end)


def explain_undefined(labels: npt.ArrayLike) -> str | None:
    """Why no metric is defined on examples with these labels (0 or 1); None where they are."""
    classes = np.asarray(labels)
    missing = [
        name for name, label in (("members", MEMBER), ("non-members", NON_MEMBER)) if not (classes == label).any()
    ]
    return f"not defined: there are no {' and no '.join(missing)} with a score" if missing else None


def weighted_metrics(
    ranking: Ranking, weights: npt.ArrayLike | None = None, names: Sequence[str] = OF_SCORES
) -> Floats:
    """The metrics ``names`` (of roc.py) under each of r weightings of the n examples: [r, len(names)].

    ``weights`` [r, n], in the examples' own order, say how often each example is taken (once where None).
    Raises DataError where a weighting leaves a class without weight.
    """
    false, true = _cumulate_weights(ranking, weights)
    return np.stack([METRICS[name].of_curve(false, true) for name in names], axis=1)


def compute_metrics(
    scores: npt.ArrayLike, labels: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> dict[str, float]:
    """The metrics of one detector's scores by name; ``weights`` [n]: how often each example is taken (once where None).

    Raises DataError as :func:`rank` and :func:`weighted_metrics` do.
    """
    rows = None if weights is None else np.asarray(weights, dtype=np.float64)[None, :]
    return dict(zip(OF_SCORES, weighted_metrics(rank(scores, labels), rows)[0].tolist(), strict=True))


def roc_points(scores: npt.ArrayLike, labels: npt.ArrayLike) -> RocPoints:
    """The ROC curve for plots; raises DataError as :func:`rank` does."""
    ranking = rank(scores, labels)
    false, true = _cumulate_weights(ranking, None)
    ordered = np.asarray(scores, dtype=np.float64)[ranking.order]
    threshold = np.concatenate([[np.inf], ordered[ranking.tie_end]])
    return RocPoints(false[0] / false[0, -1], true[0] / true[0, -1], threshold)


def threshold_at(points: RocPoints, limit: float) -> float:
    """The lowest threshold whose FPR is at most ``limit``; +infinity, which calls no text a member, where none is."""
    return float(points.threshold[np.count_nonzero(points.fpr <= limit * (1 + SLACK)) - 1])


def _cumulate_weights(ranking: Ranking, weights: npt.ArrayLike | None) -> tuple[Floats, Floats]:
    """The weight of non-members and of members at or above each threshold, from +infinity down: [r, t + 1] each."""
    n = len(ranking.order)
    given = np.ones((1, n), dtype=np.int64) if weights is None else np.asarray(weights)
    if given.ndim != 2 or given.shape[1] != n:
        raise DataError(f"one weight for each of {n} examples is needed, in rows: {given.shape}")
    ordered = np.take(given, ranking.order, axis=1)
    true = _cumulate_from_zero(ordered * ranking.member, ranking)
    false = _cumulate_from_zero(ordered, ranking) - true
    if not ((false[:, -1] > 0).all() and (true[:, -1] > 0).all()):
        raise DataError("a weighting leaves members or non-members without weight, so no metric is defined")
    return false, true


def _cumulate_from_zero(ordered: npt.NDArray[np.number], ranking: Ranking) -> Floats:
    # Running sums of whole numbers take a tenth of the time of floating-point ones, and are the same.
    sums = np.zeros((len(ordered), ordered.shape[1] + 1), dtype=np.result_type(ordered, np.int64))
    np.cumsum(ordered, axis=1, out=sums[:, 1:])
    if len(ranking.tie_end) < ordered.shape[1]:
        sums = np.take(sums, np.concatenate([[0], ranking.tie_end + 1]), axis=1)
    return np.asarray(sums, dtype=np.float64)
