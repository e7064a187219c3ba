"""Shares of texts with exact bounds: Clopper-Pearson, an effective size where texts come in groups, TPR at a FPR.

What belongs here: an interval of a share, and whether so few non-members can resolve a FPR at all. What does not: which
threshold is used elsewhere and why, and intervals of metrics that are no share (intervals.py).

Texts of one group are not independent: 100 windows of 5 books say less than 100 articles. The bounds are then those of
an effective size (Korn and Graubard 1998, Survey Methodology 24): n over the design effect, which is the variance of
the share between groups over the variance of a simple sample, and times the squared ratio of Student's t at n - 1 and
at groups - 1 degrees of freedom. It is never above n. Where no text or every text is a hit there is no variance to go
by, and the groups are counted instead of the texts. With one text per group all this is plain Clopper-Pearson.

A FPR below 1/n cannot be resolved by n non-members. Windows of one book may well lie above a threshold together, so
n counts groups of non-members, not texts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from audit_pipeline.catalogue.contracts import MEMBER, NON_MEMBER
from audit_pipeline.errors import DataError
from audit_pipeline.metrics.intervals import NO_INTERVAL, TAIL, Interval
from audit_pipeline.metrics.roc import Floats, RocPoints, roc_points, threshold_at

_SLACK = 1e-9


@dataclass(frozen=True)
class Rate:
    """A share of ``n`` texts in ``n_groups`` groups with its 95% interval; None where there is none.

    ``n_effective``: how many independent texts would be as uncertain.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    n_groups: int
    n_effective: float | None

    @property
    def interval(self) -> Interval:
        """The 95% interval; both ends are None where there is none."""
        return Interval(self.low, self.high)


@dataclass(frozen=True)
class TprAtFpr:
    """The TPR at a FPR; ``value`` is None, and ``method`` says why, where the FPR cannot be resolved."""

    value: float | None
    interval: Interval
    method: str


def clopper_pearson_bounds(successes: npt.ArrayLike, trials: npt.ArrayLike) -> tuple[Floats, Floats]:
    """The exact 95% interval of a proportion (Clopper and Pearson, 1934), for arrays and for fractional counts.

    For whole counts it is scipy's ``binomtest(...).proportion_ci(method="exact")``; ``trials`` are positive.
    """
    x, n = np.broadcast_arrays(np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64))
    any_hit, any_miss = x > 0, x < n
    low = np.where(any_hit, scipy.special.betaincinv(np.where(any_hit, x, 1.0), n - x + 1, TAIL), 0.0)
    high = np.where(any_miss, scipy.special.betaincinv(x + 1, np.where(any_miss, n - x, 1.0), 1 - TAIL), 1.0)
    return low, high


def effective_size(hits: npt.ArrayLike, groups: npt.ArrayLike) -> float:
    """How many independent texts bound the share of ``hits`` ([n], 0 to 1) as well as these n texts of ``groups`` do.

    n with one text per group; 0 where several texts are all of one group, whose variance is not known.
    """
    called = np.asarray(hits, dtype=np.float64)
    n = len(called)
    _, group = np.unique(np.asarray(groups), return_inverse=True)
    n_groups = int(group.max()) + 1 if n else 0
    if n_groups == n:
        return float(n)
    if n_groups < 2:
        return 0.0
    share = called.mean()
    if share in (0.0, 1.0):
        return float(n_groups)
    # Of the share as a ratio of group totals; with one text per group it is share * (1 - share) / (n - 1).
    totals = np.bincount(group, weights=called - share)
    variance = n_groups / (n_groups - 1) * float(totals @ totals) / n**2
    if variance == 0:  # every group has the same share of hits
        return float(n)
    simple = share * (1 - share) / (n - 1)
    freedom = (scipy.special.stdtrit(n - 1, 1 - TAIL) / scipy.special.stdtrit(n_groups - 1, 1 - TAIL)) ** 2
    return float(min(n, n * simple / variance * freedom))


def grouped_rate(flags: npt.ArrayLike, groups: npt.ArrayLike) -> Rate:
    """The share of flagged texts with a 95% interval; ``flags`` [n] holds 0, 1 or something in between.

    With one text per group the interval is Clopper-Pearson's, else that of an effective number of texts, as the module
    says. There is none for several texts of one group, and nothing at all for no text. Raises DataError for unequal
    lengths.
    """
    values, names = np.asarray(flags, dtype=np.float64), np.asarray(groups)
    n = len(values)
    if n != len(names):
        raise DataError(f"a share needs one group for each text: {n} texts, {len(names)} groups")
    if not n:
        return Rate(None, None, None, 0, 0, None)
    n_groups, share = len(np.unique(names)), float(values.mean())
    if n_groups == 1 and n > 1:
        return Rate(share, None, None, n, 1, None)
    effective = effective_size(values, names)
    low, high = clopper_pearson_bounds(share * effective if effective < n else values.sum(), effective)
    return Rate(share, float(low), float(high), n, n_groups, effective)


def describe_interval_method(rate: Rate, things: str = "texts") -> str:
    """How :func:`grouped_rate` computed the interval of a share of ``things``, or why there is none."""
    if rate.value is None:
        return f"no rate from {rate.n} {things}" if rate.n else f"no rate: there are no such {things} with a score"
    if rate.n_effective is None:
        return f"no interval: all {rate.n} {things} are of one group"
    if rate.n_groups == rate.n:
        return f"95% Clopper-Pearson interval of {rate.n} {things}, one per group"
    return (
        f"95% Clopper-Pearson interval of {rate.n_effective:.3g} effective {things}, "
        f"{rate.n} {things} in {rate.n_groups} groups (Korn-Graubard)"
    )


def count_distinct_groups(groups: Sequence[str]) -> int:
    """The n of the smallest FPR, 1/n, that non-members of ``groups`` can resolve: the number of groups."""
    return len(set(groups))


def is_resolvable(fpr: float, n: int) -> bool:
    """Whether n groups of non-members can resolve a rate of ``fpr``: 1/n <= fpr."""
    return n * fpr >= 1 - _SLACK


def count_groups_to_resolve(fpr: float) -> int:
    """The fewest groups of non-members that can resolve a rate of ``fpr``."""
    return math.ceil(1 / fpr - _SLACK)


def explain_unresolvable(groups: Sequence[str]) -> str:
    """Why non-members of ``groups`` [n] cannot resolve a FPR, in words."""
    n = count_distinct_groups(groups)
    counted = f"{n} non-members" if n == len(groups) else f"{n} groups of non-members ({len(groups)} texts)"
    return f"not resolvable with {counted}: the smallest FPR that can be measured is 1/{n}"


def tpr_at_fpr(
    scores: npt.ArrayLike,
    labels: npt.ArrayLike,
    groups: Sequence[str],
    fpr: float,
    *,
    points: RocPoints | None = None,
) -> TprAtFpr:
    """The largest TPR with a FPR of at most ``fpr`` on n examples ([n] each), with Clopper-Pearson bounds.

    The threshold is the lowest that keeps the FPR on these very non-members, and the bounds take it as it was met:
    that other non-members would have set another one is not in them. ``points``: the ROC curve of the same examples,
    where it is at hand. Raises DataError as metrics.rank does, and for groups of another length.
    """
    values, classes = np.asarray(scores, dtype=np.float64), np.asarray(labels)
    curve = roc_points(values, classes) if points is None else points
    if len(groups) != len(values):
        raise DataError(f"one group for each label is needed: {len(groups)} groups, {len(values)} labels")
    sides = {
        side: [group for group, class_of_group in zip(groups, classes, strict=True) if class_of_group == side]
        for side in (0, 1)
    }
    if not is_resolvable(fpr, count_distinct_groups(sides[NON_MEMBER])):
        return TprAtFpr(None, NO_INTERVAL, explain_unresolvable(sides[NON_MEMBER]))
    threshold = threshold_at(curve, fpr)
    found = grouped_rate(values[classes == MEMBER] >= threshold, sides[MEMBER])
    how = describe_interval_method(found)
    method = f"largest TPR with FPR <= {fpr:g}; {how}, for the threshold as it was met: its own uncertainty"
    return TprAtFpr(found.value, found.interval, f"{method} is not in them")
