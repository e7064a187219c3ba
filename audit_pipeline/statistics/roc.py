"""The metrics of scores and labels, each declared once and read off the ROC curve.

To add a metric: its function, and an entry in the list.

A text is called a member where its score is at least a threshold t. The thresholds are the distinct scores and
+infinity (nothing is called a member), so tied texts always pass a threshold together.
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
"""Relative: a rate that lies exactly on its limit is within it, whatever the rounding of limit times count."""


@dataclass(frozen=True, eq=False)
class RocPoints:
    """The ROC curve from (0, 0) to (1, 1) of n examples, at t + 1 thresholds.

    ``false`` and ``true``: how many non-members and members lie at or above each ``threshold``, which descends from
    +infinity: [t + 1] each. ``place`` [n]: the first threshold that each example passes, 1 to t.
    """

    false: Floats
    true: Floats
    threshold: Floats
    place: npt.NDArray[np.intp]

    @property
    def fpr(self) -> Floats:
        """The share of non-members at or above each threshold: [t + 1]."""
        return np.asarray(self.false / self.false[-1])

    @property
    def tpr(self) -> Floats:
        """The share of members at or above each threshold: [t + 1]."""
        return np.asarray(self.true / self.true[-1])


def find_place_of_fpr(curve: RocPoints, limit: float) -> int:
    """Return the place of the lowest threshold whose FPR is at most ``limit``."""
    return int(np.count_nonzero(curve.fpr <= limit * (1 + SLACK))) - 1


def find_place_of_tpr(curve: RocPoints, limit: float) -> int:
    """Return the place of the highest threshold whose TPR is at least ``limit``."""
    return int(np.count_nonzero(curve.tpr < limit * (1 - SLACK)))


@dataclass(frozen=True)
class Metric:
    """One metric of how well scores separate members from non-members.

    ``label`` is its name for people; ``meaning`` says what it is, and begins the ``method`` of its rows. ``bounds``:
    its smallest and largest possible value. ``at_fpr``: of a share of members, the false-positive rate of the threshold
    above which they are counted; with fewer groups of non-members than can resolve that rate the metric is not defined.
    ``at_tpr``: of a share of non-members, likewise. Without either it is an area under the curve.
    """

    name: str
    label: str
    meaning: str
    bounds: tuple[float, float] = (0.0, 1.0)
    at_fpr: float | None = None
    at_tpr: float | None = None

    @property
    def is_share(self) -> bool:
        """Whether it is a share of texts at a threshold."""
        return self.at_fpr is not None or self.at_tpr is not None

    def of_curve(self, curve: RocPoints) -> float:
        """Return the largest TPR at its FPR, the smallest FPR at its TPR, or the area, of which ties count half."""
        if self.at_fpr is not None:
            return float(curve.tpr[find_place_of_fpr(curve, self.at_fpr)])
        if self.at_tpr is not None:
            return float(curve.fpr[find_place_of_tpr(curve, self.at_tpr)])
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
    *(
        Metric(f"tpr_at_{name}_fpr", f"TPR at {100 * fpr:g}% FPR", f"largest TPR with FPR <= {fpr}", at_fpr=fpr)
        for name, fpr in (("5", 0.05), ("1", 0.01), ("01", 0.001))
    ),
    Metric("fpr_at_95_tpr", "FPR at 95% TPR", "smallest FPR with TPR >= 0.95", at_tpr=0.95),
    MARGIN,
)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _DECLARED}
"""By name, in the order of the rows of an evaluation."""
OF_SCORES = tuple(metric.name for metric in _DECLARED if metric is not MARGIN)
"""Those of one detector's scores alone."""

ALL_EQUAL = "no interval: all scores are equal, so they separate nothing"
"""Why a metric of such scores has no interval."""


def explain_undefined(labels: npt.ArrayLike) -> str | None:
    """Return why no metric is defined on examples with these labels (0 or 1); None where they are."""
    classes = np.asarray(labels)
    missing = [
        name for name, label in (("members", MEMBER), ("non-members", NON_MEMBER)) if not (classes == label).any()
    ]
    return f"not defined: there are no {' and no '.join(missing)} with a score" if missing else None


def roc_points(scores: npt.ArrayLike, labels: npt.ArrayLike) -> RocPoints:
    """Return the ROC curve of ``scores`` and ``labels`` (0 or 1), [n] each.

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
    ordered, members = values[order], np.cumsum(classes[order] == MEMBER)
    is_first = np.append(True, ordered[1:] != ordered[:-1])
    last = np.append(np.flatnonzero(is_first)[1:], len(values)) - 1
    place = np.empty(len(values), dtype=np.intp)
    place[order] = np.cumsum(is_first)
    true = np.append(0, members[last]).astype(np.float64)
    at_or_above = np.append(0, last + 1)
    return RocPoints(at_or_above - true, true, np.append(np.inf, ordered[last]), place)


def compute_metrics(scores: npt.ArrayLike, labels: npt.ArrayLike) -> dict[str, float]:
    """Return the metrics of one detector's scores by name; raises DataError as :func:`roc_points` does."""
    curve = roc_points(scores, labels)
    return {name: METRICS[name].of_curve(curve) for name in OF_SCORES}


def find_threshold_at_fpr(curve: RocPoints, limit: float) -> float:
    """The lowest threshold whose FPR is at most ``limit``; +infinity, which calls no text a member, where none is."""
    return float(curve.threshold[find_place_of_fpr(curve, limit)])
