"""Every metric of an evaluation, declared once.

What belongs here: a metric's name, what it is in plain English, its function, its interval and its range. What does
not: the function itself (curves.py), how intervals are computed (intervals.py, rates.py), and the rows of an
evaluation, for which this list is gone through (evidence/evaluate.py).

To add a metric: its function in curves.py, and an entry here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from audit_pipeline.metrics.curves import OfCurve, auroc, largest_tpr, smallest_fpr

IntervalKind = Literal["logit", "percentile", "share", "paired"]


@dataclass(frozen=True)
class Metric:
    """One metric of how well scores tell members from non-members.

    ``label`` is its name for people; ``meaning`` says what it is, and begins the ``method`` of its rows. ``interval``:
    *logit* of the value ± 1.96 standard deviations over resamples of groups; *percentile* of the same resamples;
    *share* of texts, with exact bounds; *paired*, the difference from the blind control on the same resamples.
    ``bounds``: its smallest and largest possible value. ``at_fpr``: of a share of members, the false-positive rate of
    the threshold above which they are counted; with fewer groups of non-members than can tell that rate from 0 the
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


def _tpr(name: str, fpr: float) -> Metric:
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
    _tpr("tpr_at_5_fpr", 0.05),
    _tpr("tpr_at_1_fpr", 0.01),
    _tpr("tpr_at_01_fpr", 0.001),
    Metric(
        "fpr_at_95_tpr",
        "FPR at 95% TPR",
        "smallest FPR with TPR >= 0.95",
        partial(smallest_fpr, tpr=0.95),
        "percentile",
    ),
    MARGIN,
)

METRICS: Mapping[str, Metric] = {one.name: one for one in _DECLARED}
"""By name, in the order of the rows of an evaluation."""
OF_SCORES = tuple(one.name for one in _DECLARED if one.interval != "paired")
"""Those of one detector's scores alone."""
RESAMPLED = tuple(one.name for one in _DECLARED if one.interval in ("logit", "percentile"))
"""Those whose interval comes from the resamples of one detector's scores."""
