"""The metrics of scores and labels. Each metric is declared once and computed from the ROC curve.

A text is called a member if its score is at least a threshold. The thresholds are the distinct scores and +infinity,
which calls no text a member. Texts with equal scores are therefore always called the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from audit_pipeline.errors import DataError
from audit_pipeline.tables import MEMBER, NON_MEMBER

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]

SLACK = 1e-12
"""The relative tolerance of limits, so that a rate equal to its limit is within the limit despite rounding errors."""


@dataclass(frozen=True, eq=False)
class RocPoints:
    """The ROC curve of n examples from (0, 0) to (1, 1), at t + 1 thresholds.

    Attributes:
        false: Number of non-members at or above each threshold, of shape (t + 1,).
        true: Number of members at or above each threshold, of shape (t + 1,).
        threshold: The thresholds in descending order from +infinity, of shape (t + 1,).
        threshold_index: The index of the first threshold that each example reaches, from 1 to t, of shape (n,).
    """

    false: Floats
    true: Floats
    threshold: Floats
    threshold_index: npt.NDArray[np.intp]

    @property
    def fpr(self) -> Floats:
        """Return the share of non-members at or above each threshold, of shape (t + 1,)."""
        return np.asarray(self.false / self.false[-1])

    @property
    def tpr(self) -> Floats:
        """Return the share of members at or above each threshold, of shape (t + 1,)."""
        return np.asarray(self.true / self.true[-1])


def find_index_at_fpr(curve: RocPoints, limit: float) -> int:
    """Return the index of the lowest threshold whose FPR is at most the limit."""
    return int(np.count_nonzero(curve.fpr <= limit * (1 + SLACK))) - 1


def find_index_at_tpr(curve: RocPoints, limit: float) -> int:
    """Return the index of the highest threshold whose TPR is at least the limit."""
    return int(np.count_nonzero(curve.tpr < limit * (1 - SLACK)))


@dataclass(frozen=True)
class Metric:
    """A metric of the separation of members and non-members.

    A metric with ``at_fpr`` or ``at_tpr`` is a share of texts at a threshold. Otherwise it is an area under the curve.

    Attributes:
        name: The name in tables.
        label: The name in reports.
        meaning: The definition, which is the beginning of the column ``method`` in rows of the metric.
        bounds: The smallest and largest possible value.
        at_fpr: For a share of members, the false-positive rate of the threshold. The metric is undefined if the groups
            of non-members are too few to resolve that rate.
        at_tpr: For a share of non-members, the true-positive rate of the threshold.
    """

    name: str
    label: str
    meaning: str
    bounds: tuple[float, float] = (0.0, 1.0)
    at_fpr: float | None = None
    at_tpr: float | None = None

    @property
    def is_share(self) -> bool:
        """Return True if the metric is a share of texts at a threshold."""
        return self.at_fpr is not None or self.at_tpr is not None

    def compute_value(self, curve: RocPoints) -> float:
        """Compute the metric from a curve: the largest TPR at its FPR, the smallest FPR at its TPR, or the area.

        Ties count half in the area.
        """
        if self.at_fpr is not None:
            return float(curve.tpr[find_index_at_fpr(curve, self.at_fpr)])
        if self.at_tpr is not None:
            return float(curve.fpr[find_index_at_tpr(curve, self.at_tpr)])
        trapezoids = np.diff(curve.false) @ (curve.true[1:] + curve.true[:-1])
        return float(trapezoids / (2 * curve.false[-1] * curve.true[-1]))


AUROC = Metric("auroc", "AUROC", "area under the ROC curve, ties count half")
MARGIN = Metric(
    "auroc_margin",
    "AUROC minus the blind control's",
    "AUROC minus the blind control's, on the same texts",
    bounds=(-1.0, 1.0),
)

_DECLARED = (
    AUROC,
    Metric("tpr_at_5_fpr", "TPR at 5% FPR", "largest TPR with FPR <= 0.05", at_fpr=0.05),
    Metric("tpr_at_1_fpr", "TPR at 1% FPR", "largest TPR with FPR <= 0.01", at_fpr=0.01),
    Metric("tpr_at_01_fpr", "TPR at 0.1% FPR", "largest TPR with FPR <= 0.001", at_fpr=0.001),
    Metric("fpr_at_95_tpr", "FPR at 95% TPR", "smallest FPR with TPR >= 0.95", at_tpr=0.95),
    MARGIN,
)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _DECLARED}
"""The metrics by name, in the order of the rows of an evaluation."""
OF_SCORES = tuple(metric.name for metric in _DECLARED if metric is not MARGIN)
"""The metrics that need the scores of one detector only."""

ALL_EQUAL = "no interval: all scores are equal, so they separate nothing"
"""The reason for a missing interval if all scores are equal."""


def explain_undefined(labels: npt.ArrayLike) -> str | None:
    """Return why metrics of examples with these labels (0 or 1) are undefined, or None if they are defined."""
    classes = np.asarray(labels)
    sides = (("members", MEMBER), ("non-members", NON_MEMBER))
    missing = [name for name, label in sides if not (classes == label).any()]
    return f"not defined: there are no {' and no '.join(missing)} with a score" if missing else None


def compute_roc_points(scores: npt.ArrayLike, labels: npt.ArrayLike) -> RocPoints:
    """Compute the ROC curve.

    Args:
        scores: The scores, of shape (n,).
        labels: The labels, 0 or 1, of shape (n,).

    Raises:
        DataError: If a score is NaN, a label is neither 0 nor 1, the lengths differ, or a class is missing.
    """
    values = np.asarray(scores, dtype=np.float64)
    classes = np.asarray(labels)
    if values.ndim != 1 or values.shape != classes.shape:
        raise DataError(f"there must be one score per label, but the shapes are {values.shape} and {classes.shape}")
    if np.isnan(values).any():
        raise DataError("a score is not a number. Omit texts without a score.")
    if not np.isin(classes, (MEMBER, NON_MEMBER)).all():
        raise DataError("a label is neither 1 (member) nor 0 (non-member). Omit unlabelled texts.")
    problem = explain_undefined(classes)
    if problem:
        raise DataError(problem)
    order = np.argsort(-values, kind="stable")
    ordered = values[order]
    member_counts = np.cumsum(classes[order] == MEMBER)
    is_new_score = np.append(True, ordered[1:] != ordered[:-1])
    last_of_ties = np.append(np.flatnonzero(is_new_score)[1:], len(values)) - 1
    threshold_index = np.empty(len(values), dtype=np.intp)
    threshold_index[order] = np.cumsum(is_new_score)
    true = np.append(0, member_counts[last_of_ties]).astype(np.float64)
    at_or_above = np.append(0, last_of_ties + 1)
    return RocPoints(at_or_above - true, true, np.append(np.inf, ordered[last_of_ties]), threshold_index)


def compute_metrics(scores: npt.ArrayLike, labels: npt.ArrayLike) -> dict[str, float]:
    """Compute all metrics of a detector's scores, by name.

    Raises:
        DataError: In the cases of :func:`compute_roc_points`.
    """
    curve = compute_roc_points(scores, labels)
    return {name: METRICS[name].compute_value(curve) for name in OF_SCORES}


def find_threshold_at_fpr(curve: RocPoints, limit: float) -> float:
    """Return the lowest threshold whose FPR is at most the limit. It may be +infinity, which calls no text a member."""
    return float(curve.threshold[find_index_at_fpr(curve, limit)])
