"""The AUROC's interval in closed form, for more texts than can be resampled in reasonable time.

What belongs here: DeLong's variance of an AUROC. What does not: the bootstrap, which every finding rests on and which
respects groups (intervals.py); here every text counts as independent.

DeLong, DeLong & Clarke-Pearson 1988, computed from ranks as Sun & Xu 2014 (Fast Implementation of DeLong's Algorithm)
do. The interval is normal on the logit scale, as the bootstrap's is.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit, ndtri
from scipy.stats import rankdata

from audit_pipeline.catalogue.contracts import MEMBER
from audit_pipeline.metrics.intervals import NO_INTERVAL, TAIL, Interval


def auroc_with_interval(scores: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[float, Interval]:
    """The AUROC of ``scores`` [n] with ``labels`` [n], ties counting half, and its 95% interval.

    No interval where the sides do not overlap, or one has fewer than two texts: the variance is 0 or undefined then.
    """
    values, member = np.asarray(scores, dtype=np.float64), np.asarray(labels) == MEMBER
    members, others = values[member], values[~member]
    ranks = rankdata(values)
    # Of each member the share of non-members below it, and of each non-member the share of members above it.
    above = (ranks[member] - rankdata(members)) / len(others)
    below = 1 - (ranks[~member] - rankdata(others)) / len(members)
    auroc = float(above.mean())
    if auroc in (0.0, 1.0) or min(len(members), len(others)) < 2:
        return auroc, NO_INTERVAL
    variance = above.var(ddof=1) / len(members) + below.var(ddof=1) / len(others)
    # The logit's deviation by the delta method.
    deviation = np.sqrt(variance) / (auroc * (1 - auroc))
    low, high = expit(logit(auroc) + ndtri([TAIL, 1 - TAIL]) * deviation)
    return auroc, Interval(float(low), float(high))
