"""Shares of texts with exact bounds: Clopper-Pearson intervals, effective sizes of grouped texts, and TPR at a FPR.

Texts of one group are not independent: 100 windows of 5 books carry less information than 100 articles. The bounds are
those of an effective size (Korn and Graubard 1998, Survey Methodology 24):

    n / design effect * (t at n - 1 degrees of freedom / t at groups - 1 degrees of freedom)^2, at most n

The design effect is the variance of the share between groups divided by the variance of a simple sample. The variance
between groups is that of the jackknife, as in intervals.py.

In two cases this variance shows little about other groups. Either all hits (or all misses) belong to at most two
groups, or every group has the same share of hits. The effective size is then the number of groups. With one text per
group the bounds are those of Clopper and Pearson. docs/intervals.md lists the measured coverage.

The FPR of n non-members is a multiple of 1/n, so a smaller FPR cannot be measured. Windows of one book may exceed a
threshold together. Therefore n counts groups of non-members and not texts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from audit_pipeline.errors import DataError
from audit_pipeline.statistics import intervals
from audit_pipeline.statistics.roc import Floats, Metric, Places, RocPoints, find_index_at_fpr, find_index_at_tpr
from audit_pipeline.tables import MEMBER, NON_MEMBER

_SLACK = 1e-9


@dataclass(frozen=True)
class Rate:
    """A share of texts with its 95% interval.

    Attributes:
        value: The share, or None if it is undefined.
        low: The lower end of the interval, or None without an interval.
        high: The upper end of the interval, or None without an interval.
        n: Number of texts.
        n_groups: Number of groups.
        n_effective: Number of independent texts that would have the same uncertainty, or None without an interval.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    n_groups: int
    n_effective: float | None

    @property
    def interval(self) -> intervals.Interval:
        """Return the 95% interval. Both ends are None if there is no interval."""
        return intervals.Interval(self.low, self.high)


def compute_clopper_pearson_bounds(successes: npt.ArrayLike, trials: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Compute the exact 95% interval of a proportion (Clopper and Pearson, 1934).

    For whole counts it equals scipy's ``binomtest(...).proportion_ci(method="exact")``. Fractional counts are allowed,
    which scipy does not support.

    Args:
        successes: Numbers of successes.
        trials: Numbers of trials, above 0.
    """
    x, n = np.broadcast_arrays(np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64))
    has_hit = x > 0
    has_miss = x < n
    low = np.where(has_hit, scipy.special.betaincinv(np.where(has_hit, x, 1.0), n - x + 1, intervals.TAIL), 0.0)
    high = np.where(has_miss, scipy.special.betaincinv(x + 1, np.where(has_miss, n - x, 1.0), 1 - intervals.TAIL), 1.0)
    return low, high


def compute_effective_size(hits: npt.ArrayLike, groups: intervals.Groups, weights: Floats | None = None) -> float:
    """Compute the effective size: the number of independent texts with the same uncertainty as these grouped texts.

    Args:
        hits: Numbers from 0 to 1, of shape (n,).
        groups: The group of each entry.
        weights: The number of units (such as characters) per entry, of shape (n,). The result then counts units.

    Returns:
        The effective size. It is n if each group has one text. It is 0 if there are several texts and a single group,
        because the variance between groups is then unknown.
    """
    values = np.asarray(hits, dtype=np.float64)
    codes = intervals.encode_groups(groups)
    unit_counts = np.ones(len(values)) if weights is None else weights
    n = float(unit_counts.sum())
    sizes = np.bincount(codes, weights=unit_counts)
    n_groups = len(sizes)
    if n_groups == len(values) and weights is None:
        return n
    if n_groups < 2:
        return 0.0
    totals = np.bincount(codes, weights=values * unit_counts)
    share = float(totals.sum() / n)
    # These are the jackknife's influences of groups on a ratio of totals, see intervals.py.
    parts = (totals - share * sizes) / (n - sizes)
    variance = (n_groups - 1) / n_groups * float(parts @ parts)
    if variance <= _SLACK**2:
        return float(n_groups)
    simple_variance = share * (1 - share) / (n - 1)
    freedom_ratio = (
        scipy.special.stdtrit(n - 1, 1 - intervals.TAIL) / scipy.special.stdtrit(n_groups - 1, 1 - intervals.TAIL)
    ) ** 2
    effective = float(min(n, n * simple_variance / variance * freedom_ratio))
    n_groups_with_hits = np.count_nonzero(totals > 0)
    n_groups_with_misses = np.count_nonzero(totals < sizes)
    if min(n_groups_with_hits, n_groups_with_misses) <= 2:
        return min(effective, float(n_groups))
    return effective


def estimate_grouped_rate(flags: npt.ArrayLike, groups: intervals.Groups, weights: Floats | None = None) -> Rate:
    """Compute the share of flagged texts with its 95% interval.

    The interval is that of Clopper and Pearson. If groups have several texts or ``weights`` are given, it is computed
    from the effective sample size (:func:`compute_effective_size`). If several texts are all of one group, there is no
    interval. If there is no text, the share is undefined.

    Args:
        flags: Numbers from 0 to 1, of shape (n,).
        groups: The group of each entry.
        weights: The number of units per entry, of shape (n,), such as a document's characters. ``flags`` are then the
            shares of flagged units.

    Raises:
        DataError: If the lengths differ.
    """
    values = np.asarray(flags, dtype=np.float64)
    codes = intervals.encode_groups(groups)
    n = len(values)
    if n != len(codes):
        raise DataError(f"there must be one group per text, but there are {n} texts and {len(codes)} groups")
    if not n:
        return Rate(None, None, None, 0, 0, None)
    n_groups = int(codes.max()) + 1
    share = float(np.average(values, weights=weights))
    if n_groups == 1 and (n > 1 or weights is not None):
        return Rate(share, None, None, n, 1, None)
    effective = compute_effective_size(values, codes, weights)
    low, high = compute_clopper_pearson_bounds(values.sum() if effective == n else share * effective, effective)
    # Due to rounding, the interval of the effective size may narrowly miss the share. min and max prevent that.
    return Rate(share, min(float(low), share), max(float(high), share), n, n_groups, effective)


def compute_difference_interval(first: Rate, second: Rate) -> intervals.Interval:
    """Compute the 95% interval of the first share minus the second share, which must be of independent texts.

    The intervals of the two shares are combined by Newcombe's method 10 (Statistics in Medicine 17, 1998). If a share
    has no interval, the difference has no interval either.
    """
    if None in (first.value, first.low, second.value, second.low):
        return intervals.NO_INTERVAL
    values, lows, highs = np.array([[rate.value, rate.low, rate.high] for rate in (first, second)], dtype=np.float64).T
    down = values - lows
    up = highs - values
    difference = float(values[0] - values[1])
    return intervals.Interval(
        difference - float(np.hypot(down[0], up[1])), difference + float(np.hypot(up[0], down[1]))
    )


def describe_interval_method(rate: Rate, unit: str = "texts") -> str:
    """Describe the method of :func:`estimate_grouped_rate`, or the reason for a missing interval.

    Args:
        rate: The share.
        unit: The name of the counted units, in the plural.
    """
    if rate.value is None:
        return f"no rate from {rate.n} {unit}" if rate.n else f"no rate: there are no such {unit} with a score"
    if rate.n_effective is None:
        return f"no interval: all {rate.n} {unit} are of one group"
    if rate.n_groups == rate.n:
        return f"95% Clopper-Pearson interval of {rate.n} {unit}, one per group"
    return (
        f"95% Clopper-Pearson interval of {rate.n_effective:.3g} effective {unit}, "
        f"{rate.n} {unit} in {rate.n_groups} groups (Korn-Graubard)"
    )


def count_groups_to_resolve(fpr: float) -> int:
    """Return the minimum number of non-member groups for measuring a FPR: the smallest n with 1/n <= fpr."""
    return math.ceil(1 / fpr - _SLACK)


def measure_share(metric: Metric, curve: RocPoints, sides: intervals.GroupedSides) -> intervals.Measurement:
    """Measure the TPR at a FPR, or the FPR at a TPR, with Clopper-Pearson bounds.

    The threshold is chosen on the same examples. The bounds treat it as fixed and do not include its uncertainty. A TPR
    is undefined if there are too few groups of non-members to measure its FPR (:func:`count_groups_to_resolve`).

    Args:
        metric: The metric, with ``at_fpr`` or ``at_tpr``.
        curve: The ROC curve of the examples.
        sides: The groups of the same examples.
    """
    is_member = sides.labels == MEMBER
    is_nonmember = sides.labels == NON_MEMBER
    if metric.at_fpr is not None:
        problem = _explain_unresolvable(metric.at_fpr, sides.groups[is_nonmember])
        if problem is not None:
            return intervals.Measurement(None, intervals.NO_INTERVAL, problem)
        counted = is_member
        threshold = find_index_at_fpr(curve, metric.at_fpr)
    else:
        assert metric.at_tpr is not None
        counted = is_nonmember
        threshold = find_index_at_tpr(curve, metric.at_tpr)
    rate = estimate_grouped_rate(curve.threshold_index[counted] <= threshold, sides.groups[counted])
    method = (
        f"{metric.meaning}; {describe_interval_method(rate)}, for a fixed threshold: the threshold's uncertainty is "
        "not included"
    )
    return intervals.Measurement(rate.value, rate.interval, method)


def _explain_unresolvable(fpr: float, nonmember_groups: Places) -> str | None:
    """Return the reason why the non-members are too few to measure a FPR, or None if they suffice."""
    n_groups = len(np.unique(nonmember_groups))
    n_texts = len(nonmember_groups)
    if n_groups >= count_groups_to_resolve(fpr):
        return None
    nonmembers = f"{n_groups} non-members"
    if n_groups != n_texts:
        nonmembers = f"{n_groups} groups of non-members ({n_texts} texts)"
    return f"not resolvable with {nonmembers}: the smallest FPR that can be measured is 1/{n_groups}"
