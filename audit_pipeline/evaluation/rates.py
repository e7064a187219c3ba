"""Shares of texts with exact bounds: Clopper-Pearson, an effective size where texts come in groups, TPR at a FPR.

What belongs here: an interval of a share, and whether so few non-members can tell a FPR at all. What does not: which
threshold is used elsewhere and why, and intervals of metrics that are no share (intervals.py).

Texts of one group are not independent: 100 windows of 5 books say less than 100 articles. The bounds are then those of
an effective size (Korn and Graubard 1998, Survey Methodology 24): n over the design effect, which is the variance of
the share between groups over the variance of a simple sample, and times the squared ratio of Student's t at n - 1 and
at groups - 1 degrees of freedom. It is never above n. Where no text or every text is a hit there is no variance to go
by, and the groups are counted instead of the texts. With one text a group all this is plain Clopper-Pearson.

A FPR below 1/n cannot be told from 0 by n non-members. Windows of one book may well lie above a threshold together, so
n counts groups of non-members, not texts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import beta, t

from audit_pipeline.contracts import MEMBER, NON_MEMBER
from audit_pipeline.errors import DataError
from audit_pipeline.evaluation.intervals import NO_INTERVAL, TAIL, Interval
from audit_pipeline.evaluation.metrics import RocPoints, roc_points, threshold_at

_SLACK = 1e-9


@dataclass(frozen=True)
class Share:
    """A share of n texts: its 95% interval, the effective size that the bounds are of, and how they were computed."""

    value: float
    interval: Interval
    effective_size: float
    method: str


@dataclass(frozen=True)
class TprAtFpr:
    """The TPR at a FPR; ``value`` is None, and ``method`` says why, where the FPR cannot be told."""

    value: float | None
    interval: Interval
    method: str


def clopper_pearson(hits: float, n: float) -> Interval:
    """The exact 95% interval of a share, from ``hits`` of ``n`` independent texts; neither need be whole.

    Clopper and Pearson 1934, by quantiles of the beta distribution. Raises DataError unless 0 <= hits <= n and n > 0.
    """
    if not 0 <= hits <= n or not n > 0:
        raise DataError(f"a share needs texts, and not more hits than texts: {hits} of {n}")
    low = float(beta.ppf(TAIL, hits, n - hits + 1)) if hits > 0 else 0.0
    high = float(beta.ppf(1 - TAIL, hits + 1, n - hits)) if hits < n else 1.0
    return Interval(low, high)


def effective_size(hits: npt.ArrayLike, groups: Sequence[str]) -> float:
    """How many independent texts bound the share of ``hits`` (booleans, [n]) as well as these n texts of ``groups`` do.

    n with one text a group; 0 where several texts are all of one group, whose variance nothing tells.
    """
    called = np.asarray(hits, dtype=np.float64)
    n = len(called)
    _, group = np.unique(np.array(groups, dtype=object), return_inverse=True)
    n_groups = int(group.max()) + 1 if n else 0
    if n_groups == n:
        return float(n)
    if n_groups < 2:
        return 0.0
    share = called.mean()
    if share in (0.0, 1.0):
        return float(n_groups)
    # Of the share as a ratio of group totals; with one text a group it is share * (1 - share) / (n - 1).
    totals = np.bincount(group, weights=called - share)
    variance = n_groups / (n_groups - 1) * float(totals @ totals) / n**2
    if variance == 0:  # every group has the same share of hits
        return float(n)
    simple = share * (1 - share) / (n - 1)
    freedom = (t.ppf(1 - TAIL, n - 1) / t.ppf(1 - TAIL, n_groups - 1)) ** 2
    return float(min(n, n * simple / variance * freedom))


def share_of(hits: npt.ArrayLike, groups: Sequence[str]) -> Share:
    """The share of ``hits`` among n texts of ``groups`` ([n] each) with its 95% interval.

    There is no interval where several texts are all of one group. Raises DataError for no text and for unequal lengths.
    """
    called = np.asarray(hits, dtype=np.bool_)
    n = len(called)
    if not n or n != len(groups):
        raise DataError(f"a share needs texts, and one group for each: {n} texts, {len(groups)} groups")
    count = int(called.sum())
    size = effective_size(called, groups)
    if not size:
        return Share(count / n, NO_INTERVAL, size, f"{count} of {n}; no interval: all are of one group")
    interval = clopper_pearson(count / n * size if size < n else count, size)
    method = f"95% Clopper-Pearson bounds, {count} of {n}"
    n_groups = len(set(groups))
    if n_groups < n:
        method += f" in {n_groups} groups, which bound it as {size:.4g} independent texts would (Korn-Graubard)"
    return Share(count / n, interval, size, method)


def resolution(groups: Sequence[str]) -> int:
    """The n of the smallest FPR, 1/n, that non-members of ``groups`` can tell: how many groups there are."""
    return len(set(groups))


def is_resolvable(fpr: float, n: int) -> bool:
    """Whether n groups of non-members can tell a rate of ``fpr`` from 0: 1/n <= fpr."""
    return n * fpr >= 1 - _SLACK


def groups_to_resolve(fpr: float) -> int:
    """The fewest groups of non-members that can tell a rate of ``fpr`` from 0."""
    return math.ceil(1 / fpr - _SLACK)


def unresolvable(groups: Sequence[str]) -> str:
    """Why a FPR cannot be told by non-members of ``groups`` [n], in words."""
    n = resolution(groups)
    counted = f"{n} non-members" if n == len(groups) else f"{n} groups of non-members ({len(groups)} texts)"
    return f"not resolvable with {counted}: the smallest FPR that can be told is 1/{n}"


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
    sides = {side: [group for group, one in zip(groups, classes, strict=True) if one == side] for side in (0, 1)}
    if not is_resolvable(fpr, resolution(sides[NON_MEMBER])):
        return TprAtFpr(None, NO_INTERVAL, unresolvable(sides[NON_MEMBER]))
    threshold = threshold_at(curve, fpr)
    found = share_of(values[classes == MEMBER] >= threshold, sides[MEMBER])
    method = f"largest TPR with FPR <= {fpr:g}; {found.method}, for the threshold as it was met: its own uncertainty"
    return TprAtFpr(found.value, found.interval, f"{method} is not in them")
