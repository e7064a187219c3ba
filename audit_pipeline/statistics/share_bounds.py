"""Shares of texts with exact bounds: Clopper-Pearson, an effective size where texts come in groups, TPR at a FPR.

Texts of one group are not independent: 100 windows of 5 books say less than 100 articles. The bounds are then those of
an effective size (Korn and Graubard 1998, Survey Methodology 24): n over the design effect, which is the variance of
the share between groups over the variance of a simple sample, and times the squared ratio of Student's t at n - 1 and
at groups - 1 degrees of freedom. It is never above n. The variance between groups is the jackknife's, as intervals.py
has it. Where all hits (or all misses) are of two groups or fewer, or every group has the same share of hits, that
variance says little of other groups, and the groups are counted instead of the texts. With one text per group all this
is plain Clopper-Pearson. How often the bounds hold the share: docs/intervals.md.

A FPR below 1/n cannot be resolved by n non-members. Windows of one book may well lie above a threshold together, so
n counts groups of non-members, not texts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from audit_pipeline.errors import DataError
from audit_pipeline.statistics.intervals import (
    NO_INTERVAL,
    TAIL,
    GroupedSides,
    Groups,
    Interval,
    Measurement,
    encode_groups,
)
from audit_pipeline.statistics.roc import Floats, Metric, RocPoints, find_place_of_fpr, find_place_of_tpr
from audit_pipeline.tables import MEMBER, NON_MEMBER

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


def clopper_pearson_bounds(successes: npt.ArrayLike, trials: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return the exact 95% interval of a proportion (Clopper and Pearson, 1934), for arrays and for fractional counts.

    For whole counts it is scipy's ``binomtest(...).proportion_ci(method="exact")``; ``trials`` are positive.
    """
    x, n = np.broadcast_arrays(np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64))
    any_hit, any_miss = x > 0, x < n
    low = np.where(any_hit, scipy.special.betaincinv(np.where(any_hit, x, 1.0), n - x + 1, TAIL), 0.0)
    high = np.where(any_miss, scipy.special.betaincinv(x + 1, np.where(any_miss, n - x, 1.0), 1 - TAIL), 1.0)
    return low, high


def compute_effective_size(hits: npt.ArrayLike, groups: Groups, weights: Floats | None = None) -> float:
    """How many independent texts bound the share of ``hits`` ([n], 0 to 1) as well as these n texts of ``groups`` do.

    n with one text per group; 0 where several texts are all of one group, whose variance is not known. ``weights`` [n]:
    how many units each entry counts for; then units are counted, and entries are of as many groups as are named.
    """
    called, codes = np.asarray(hits, dtype=np.float64), encode_groups(groups)
    weight = np.ones(len(called)) if weights is None else weights
    n, sizes = float(weight.sum()), np.bincount(codes, weights=weight)
    n_groups = len(sizes)
    if n_groups == len(called) and weights is None:
        return n
    if n_groups < 2:
        return 0.0
    totals = np.bincount(codes, weights=called * weight)
    share = float(totals.sum() / n)
    # Of the share as a ratio of group totals, each group left out once; see intervals.py.
    parts = (totals - share * sizes) / (n - sizes)
    variance = (n_groups - 1) / n_groups * float(parts @ parts)
    if variance <= _SLACK**2:
        return float(n_groups)
    simple = share * (1 - share) / (n - 1)
    freedom = (scipy.special.stdtrit(n - 1, 1 - TAIL) / scipy.special.stdtrit(n_groups - 1, 1 - TAIL)) ** 2
    effective = float(min(n, n * simple / variance * freedom))
    few = min(np.count_nonzero(totals > 0), np.count_nonzero(totals < sizes)) <= 2
    return min(effective, float(n_groups)) if few else effective


def grouped_rate(flags: npt.ArrayLike, groups: Groups, weights: Floats | None = None) -> Rate:
    """Return the share of flagged texts with a 95% interval; ``flags`` [n] holds 0, 1 or something in between.

    With one text per group the interval is Clopper-Pearson's, else that of an effective number of texts, as the module
    says. ``weights`` [n]: how many units each entry counts for, such as a document's characters, of which ``flags`` is
    then the share that is a hit. There is no interval for several texts of one group, and nothing at all for no text.
    Raises DataError for unequal lengths.
    """
    values, codes = np.asarray(flags, dtype=np.float64), encode_groups(groups)
    n = len(values)
    if n != len(codes):
        raise DataError(f"a share needs one group for each text: {n} texts, {len(codes)} groups")
    if not n:
        return Rate(None, None, None, 0, 0, None)
    n_groups, share = int(codes.max()) + 1, float(np.average(values, weights=weights))
    if n_groups == 1 and (n > 1 or weights is not None):
        return Rate(share, None, None, n, 1, None)
    effective = compute_effective_size(values, codes, weights)
    low, high = clopper_pearson_bounds(values.sum() if effective == n else share * effective, effective)
    # Rounding of a share of an effective size.
    return Rate(share, min(float(low), share), max(float(high), share), n, n_groups, effective)


def difference_interval(first: Rate, second: Rate) -> Interval:
    """The 95% interval of the first share minus the second, of independent texts; none where one of them has none.

    Newcombe's method 10 (Statistics in Medicine 17, 1998) with their own intervals.
    """
    if None in (first.value, first.low, second.value, second.low):
        return NO_INTERVAL
    values, lows, highs = np.array([[rate.value, rate.low, rate.high] for rate in (first, second)], dtype=np.float64).T
    down, up = values - lows, highs - values
    difference = float(values[0] - values[1])
    return Interval(difference - float(np.hypot(down[0], up[1])), difference + float(np.hypot(up[0], down[1])))


def describe_interval_method(rate: Rate, things: str = "texts") -> str:
    """Return how :func:`grouped_rate` computed the interval of a share of ``things``, or why there is none."""
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


def count_groups_to_resolve(fpr: float) -> int:
    """Return the fewest groups of non-members that can resolve a rate of ``fpr``: the smallest n with 1/n <= fpr."""
    return math.ceil(1 / fpr - _SLACK)


def measure_share(metric: Metric, curve: RocPoints, sides: GroupedSides) -> Measurement:
    """Measure a ``metric`` at a threshold, TPR at a FPR or FPR at a TPR, with Clopper-Pearson bounds.

    ``curve`` and ``sides`` are of the same n examples. The threshold is the one that keeps the metric's rate on these
    very examples, and the bounds take it as it was met: that others would have set another is not in them. A TPR is
    not defined where the groups of non-members are too few to resolve its FPR.
    """
    nonmembers = sides.groups[sides.labels == NON_MEMBER]
    n = len(np.unique(nonmembers))
    if metric.at_fpr is not None and n < count_groups_to_resolve(metric.at_fpr):
        counted = f"{n} non-members" if n == len(nonmembers) else f"{n} groups of non-members ({len(nonmembers)} texts)"
        return Measurement(
            None, NO_INTERVAL, f"not resolvable with {counted}: the smallest FPR that can be measured is 1/{n}"
        )
    if metric.at_fpr is not None:
        side, place = sides.labels == MEMBER, find_place_of_fpr(curve, metric.at_fpr)
    else:
        assert metric.at_tpr is not None
        side, place = sides.labels == NON_MEMBER, find_place_of_tpr(curve, metric.at_tpr)
    found = grouped_rate(curve.place[side] <= place, sides.groups[side])
    how = f"{metric.meaning}; {describe_interval_method(found)}, for the threshold as it was met: its own uncertainty"
    return Measurement(found.value, found.interval, f"{how} is not in them")
