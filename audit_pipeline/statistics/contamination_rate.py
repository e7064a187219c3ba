"""The share of members in a unit (a book, a collection or a benchmark), corrected for the errors of the threshold.

A text is flagged if its score is at least the threshold. FPR is the false-positive rate of the threshold (the flagged
share of non-members), and TPR is its true-positive rate (the flagged share of members).

If a share p of the texts are members, the flagged share is p TPR + (1 - p) FPR. Solved for p, this is
(flagged - FPR) / (TPR - FPR), clipped to 0 and 1 (Rogan and Gladen, American Journal of Epidemiology 107, 1978). FPR
and TPR are measured on calibration texts:

- Rules that select an order statistic use only the non-members. The TPR of the members is therefore unbiased. The FPR
  is measured on the same non-members. The text of the order statistic counts as flagged, although the threshold is
  above its score. With one text per group, the FPR over calibrations is then distributed as Beta(n - k + 1, k). Its
  2.5% quantile is the lower end of the Clopper-Pearson interval. The upper end is above the 97.5% quantile.
- The rule of the largest accuracy uses both sides, so its rates on the same texts would be too good. Therefore ten
  thresholds are chosen, each by nine tenths of the groups. FPR and TPR are measured on the remaining tenth. The
  corrected flagged share is the mean over the same ten thresholds. It differs little from the printed flagged share,
  whose threshold is chosen by all calibration texts.

The interval contains every p for which flagged - (1 - p) FPR - p TPR can be 0. Each of the three terms may vary within
its 95% interval. The intervals are combined by the method of variance estimates recovery (Zou and Donner, Statistics in
Medicine 27, 2008), which keeps their asymmetry. The method assumes independent terms, so audited and calibration texts
must belong to different groups.

FPR and TPR of a single book differ from those of an average book: its style raises or lowers all its scores. The
calibration groups show the size of this effect. The rate of a group is assumed to be Beta distributed, with the
intraclass correlation of an analysis of variance (Ridout, Demetrio and Firth, Biometrics 55, 1999). For a unit of one
group, the central 95% of this distribution is a fourth term, which moves FPR and TPR together. This term is necessary:
95% intervals without it contained the true share in only 50 to 86 of 100 simulated books. (The books had 100 windows,
and 30% of the variance was between books.) If calibration groups have one text each, the effect is unknown. The stored
assumption then says so.

bench/bench_decisions.py measures the coverage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from audit_pipeline.statistics.conformal import Counts
from audit_pipeline.statistics.roc import Floats, Places
from audit_pipeline.statistics.share_bounds import (
    Rate,
    compute_clopper_pearson_bounds,
    compute_difference_interval,
    estimate_grouped_rate,
)
from audit_pipeline.statistics.thresholds import ScoredTexts, Threshold, choose_largest_accuracy
from audit_pipeline.tables import MEMBER, NON_MEMBER

MIN_DIFFERENCE = 0.1
FOLDS = 10
ASSUMPTION = (
    "members of the calibration set behave as the audited texts would if the model had read them, and calibration "
    "non-members as the audited texts would if it had not"
)
ASSUMPTION_OF_ONE_GROUP = f"{ASSUMPTION}; this one group differs from others as calibration groups differ"
CONTRADICTED = (
    "; here that is not so, and there is no interval: the share flagged is beyond what calibration members and "
    "non-members can explain together"
)
"""The text that is appended to an assumption if no share of members is compatible with flagged share, FPR and TPR."""
ASSUMPTION_OF_AN_AVERAGE_GROUP = f"{ASSUMPTION}; of this one group too, not only of groups on average"

_HALVINGS = 50
_MAX_CORRELATION = 0.999


@dataclass(frozen=True)
class GroupSpread:
    """The central 95% range of single groups' FPR and TPR, as distances below and above the average over groups."""

    fpr_down: float
    fpr_up: float
    tpr_down: float
    tpr_up: float


NO_SPREAD = GroupSpread(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class MeasuredThreshold:
    """A threshold with its error rates, which were measured on calibration texts.

    Attributes:
        threshold: The threshold that all calibration texts chose.
        thresholds: The thresholds that ``fpr`` and ``tpr`` were measured with. For the rule of the largest accuracy
            these are several thresholds, and the rates are means over them.
        fpr: The false-positive rate.
        tpr: The true-positive rate.
        spread: The spread of single groups, or None if no calibration group of a side has several texts.
        reason: The reason why flagged shares cannot be corrected, or None if they can.
    """

    threshold: float
    thresholds: tuple[float, ...]
    fpr: Rate
    tpr: Rate
    spread: GroupSpread | None
    reason: str | None


@dataclass(frozen=True, eq=False)
class UnitRates:
    """The flagged and corrected shares of units. All arrays have the shape (n_units,).

    A missing corrected share is NaN. The ends of its interval are NaN, too, if no share of members is compatible with
    the rates of the calibration texts.
    """

    name: npt.NDArray[Any]
    n_texts: Counts
    n_groups: Counts
    n_flagged: Counts
    flagged: Floats
    flagged_low: Floats
    flagged_high: Floats
    corrected: Floats
    corrected_low: Floats
    corrected_high: Floats


def measure_threshold(threshold: Threshold, calibration: ScoredTexts) -> MeasuredThreshold | None:
    """Measure FPR and TPR of a threshold on the calibration texts that chose it, or return None if it was refused."""
    if threshold.threshold is None:
        return None
    nonmembers = calibration.nonmembers
    members = calibration.members
    if threshold.order_statistic is not None:
        thresholds: tuple[float, ...] = (threshold.threshold,)
        false_flags = nonmembers.scores >= threshold.order_statistic
        true_flags = members.scores >= threshold.threshold
    else:
        folds = _assign_folds(calibration)
        n_folds = folds.max() + 1
        choices = [choose_largest_accuracy(calibration.take(folds != fold)).threshold for fold in range(n_folds)]
        thresholds = tuple(choice for choice in choices if choice is not None)
        if len(thresholds) < len(choices) or len(thresholds) < 2:
            reason = "there are too few groups of calibration members or non-members for cross-validation"
            unknown = Rate(None, None, None, len(members), members.n_groups, None)
            return MeasuredThreshold(threshold.threshold, (threshold.threshold,), unknown, unknown, None, reason)
        flags = calibration.scores >= np.array(thresholds)[folds]
        false_flags = flags[calibration.labels == NON_MEMBER]
        true_flags = flags[calibration.labels == MEMBER]
    fpr = estimate_grouped_rate(false_flags, nonmembers.groups)
    tpr = estimate_grouped_rate(true_flags, members.groups)
    fpr_margins = _compute_group_margins(false_flags, nonmembers.groups)
    tpr_margins = _compute_group_margins(true_flags, members.groups)
    spread = None if fpr_margins is None or tpr_margins is None else GroupSpread(*fpr_margins, *tpr_margins)
    return MeasuredThreshold(threshold.threshold, thresholds, fpr, tpr, spread, _explain_refusal(fpr, tpr))


def select_assumption(measured: MeasuredThreshold, n_groups: int) -> str:
    """Return the sentence about the assumption behind the corrected share of a unit with ``n_groups`` groups."""
    if n_groups > 1:
        return ASSUMPTION
    return ASSUMPTION_OF_AN_AVERAGE_GROUP if measured.spread is None else ASSUMPTION_OF_ONE_GROUP


def compute_corrected_shares(
    flagged: Floats,
    flagged_low: Floats,
    flagged_high: Floats,
    fpr: Rate,
    tpr: Rate,
    spread: GroupSpread = NO_SPREAD,
) -> tuple[Floats, Floats, Floats]:
    """Compute (flagged - FPR) / (TPR - FPR), clipped to 0 and 1, with its 95% interval.

    Args:
        flagged: The flagged shares, of shape (n_units,).
        flagged_low: The lower ends of their intervals.
        flagged_high: The upper ends of their intervals.
        fpr: The false-positive rate, which has an interval.
        tpr: The true-positive rate, which has an interval and is above the FPR.
        spread: The spread of single groups, for units of one group.

    Returns:
        The corrected shares, and the lower and upper ends of their intervals. Both ends are NaN if no share of members
        is compatible with the rates. More texts are then flagged than among members, or fewer than among non-members.
    """
    rates = np.array([[rate.value, rate.low, rate.high] for rate in (fpr, tpr)], dtype=np.float64)
    (fpr_share, fpr_low, fpr_high), (tpr_share, tpr_low, tpr_high) = rates

    def excess(shares: Floats) -> Floats:
        return np.asarray(flagged - (1 - shares) * fpr_share - shares * tpr_share)

    def lower(shares: Floats) -> Floats:
        group = (1 - shares) * spread.fpr_up + shares * spread.tpr_up
        terms = (flagged - flagged_low, (1 - shares) * (fpr_high - fpr_share), shares * (tpr_high - tpr_share), group)
        return excess(shares) - np.sqrt(sum(term**2 for term in terms))

    def upper(shares: Floats) -> Floats:
        group = (1 - shares) * spread.fpr_down + shares * spread.tpr_down
        terms = (flagged_high - flagged, (1 - shares) * (fpr_share - fpr_low), shares * (tpr_share - tpr_low), group)
        return excess(shares) + np.sqrt(sum(term**2 for term in terms))

    share = np.clip((flagged - fpr_share) / (tpr_share - fpr_share), 0.0, 1.0)
    # The lower bound is concave in p. If it is above 0 at p = 0, it excludes all shares below its only crossing of 0.
    # The upper bound is convex in p. If it is below 0 at p = 1, it excludes all shares above its only crossing of 0.
    low = np.where(lower(np.zeros_like(share)) <= 0, 0.0, _find_crossing(lower, len(share)))
    high = np.where(upper(np.ones_like(share)) >= 0, 1.0, _find_crossing(upper, len(share)))
    # The result of the bisection may differ from the crossing by a rounding error. The interval must contain its
    # estimate.
    low = np.minimum(low, share)
    high = np.maximum(high, share)
    contradicted = (lower(np.ones_like(share)) >= 0) | (upper(np.zeros_like(share)) <= 0)
    return share, np.where(contradicted, np.nan, low), np.where(contradicted, np.nan, high)


def compute_unit_rates(audited: ScoredTexts, units: npt.NDArray[Any], measured: MeasuredThreshold) -> UnitRates:
    """Compute the flagged and corrected shares of each unit.

    The texts of a single group are the whole population. If a unit has one group, the interval of the flagged share is
    therefore that of Clopper and Pearson. Several groups are a sample of groups, so the interval is that of
    :func:`estimate_grouped_rate`.

    Args:
        audited: The audited texts.
        units: The unit of each text, of shape (n_texts,).
        measured: The measured threshold.
    """
    names, codes = np.unique(units, return_inverse=True)
    flags = (audited.scores >= measured.threshold).astype(np.float64)
    n_texts = np.bincount(codes, minlength=len(names))
    n_flagged = np.bincount(codes, weights=flags, minlength=len(names)).astype(np.int64)
    _, group_codes = np.unique(audited.groups, return_inverse=True)
    n_groups = np.bincount(np.unique(np.stack([codes, group_codes]), axis=1)[0], minlength=len(names))
    printed = _compute_shares(flags, codes, audited.groups, n_groups)
    if measured.reason is not None:
        unknown = np.full(len(names), np.nan)
        return UnitRates(names, n_texts, n_groups, n_flagged, *printed, unknown, unknown, unknown)
    terms = printed
    if len(measured.thresholds) > 1:
        weights = np.mean([audited.scores >= threshold for threshold in measured.thresholds], axis=0)
        terms = _compute_shares(weights, codes, audited.groups, n_groups)
    share, low, high = compute_corrected_shares(*terms, measured.fpr, measured.tpr)
    if measured.spread is not None:
        single = compute_corrected_shares(*terms, measured.fpr, measured.tpr, measured.spread)
        is_single = n_groups == 1
        share = np.where(is_single, single[0], share)
        low = np.where(is_single, single[1], low)
        high = np.where(is_single, single[2], high)
    return UnitRates(names, n_texts, n_groups, n_flagged, *printed, share, low, high)


def _explain_refusal(fpr: Rate, tpr: Rate) -> str | None:
    if not tpr.n:
        return "no calibration members are named, so it is unknown how often a member is flagged"
    for name, rate in (("members", tpr), ("non-members", fpr)):
        if rate.low is None:
            return f"the calibration {name} are all of one group, so the rate among them has no interval"
    lower_bound = compute_difference_interval(tpr, fpr).low
    if lower_bound is None or lower_bound <= MIN_DIFFERENCE:
        return (
            f"members are hardly flagged more often than non-members: the lower bound of TPR - FPR is "
            f"{lower_bound:z.3f} on calibration texts, it needs to exceed {MIN_DIFFERENCE:g}"
        )
    return None


def _assign_folds(calibration: ScoredTexts) -> Places:
    """Assign each text to a fold, so that all texts of a group are in one fold.

    Groups of members, groups of non-members and groups of both are each distributed evenly over the folds.
    """
    names, codes = np.unique(calibration.groups, return_inverse=True)
    sides = np.zeros(len(names), dtype=np.int64)
    for bit, label in ((1, MEMBER), (2, NON_MEMBER)):
        sides += bit * (np.bincount(codes, weights=calibration.labels == label, minlength=len(names)) > 0)
    min_key = np.full(len(names), np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(min_key, codes, calibration.keys)
    fold_of_group = np.empty(len(names), dtype=np.intp)
    fold_of_group[np.lexsort((min_key, sides))] = np.arange(len(names)) % FOLDS
    return np.asarray(fold_of_group[codes])


def _find_crossing(bound: Callable[[Floats], Floats], size: int) -> Floats:
    """Find by bisection the share in [0, 1] at which a function becomes negative.

    The result is 0 if the function is negative at 0, and 1 if the function is nowhere negative.

    Args:
        bound: A function of shares of shape (size,).
        size: Number of shares.
    """
    low = np.zeros(size)
    high = np.ones(size)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_above = bound(middle) > 0
        low = np.where(is_above, middle, low)
        high = np.where(is_above, high, middle)
    return (low + high) / 2


def _compute_group_margins(flags: npt.ArrayLike, groups: npt.NDArray[Any]) -> tuple[float, float] | None:
    """Return the distances from the share of all texts to the ends of the central 95% of the groups' rates.

    The result is None if there is a single group, or if each group has one text.
    """
    values = np.asarray(flags, dtype=np.float64)
    names, codes = np.unique(groups, return_inverse=True)
    n = len(values)
    n_groups = len(names)
    if n_groups < 2 or n == n_groups:
        return None
    share = values.mean()
    sizes = np.bincount(codes)
    shares = np.bincount(codes, weights=values) / sizes
    between = (sizes * (shares - share) ** 2).sum() / (n_groups - 1)
    within = (sizes * shares * (1 - shares)).sum() / (n - n_groups)
    mean_size = (n - (sizes**2).sum() / n) / (n_groups - 1)
    if between <= within:
        return 0.0, 0.0
    correlation = min(_MAX_CORRELATION, (between - within) / (between + (mean_size - 1) * within))
    alpha = share * (1 / correlation - 1)
    beta = (1 - share) * (1 / correlation - 1)
    low, high = scipy.special.betaincinv(alpha, beta, (0.025, 0.975))
    return max(0.0, float(share - low)), max(0.0, float(high - share))


def _compute_shares(
    weights: Floats, codes: Places, groups: npt.NDArray[Any], n_groups: Counts
) -> tuple[Floats, Floats, Floats]:
    """Compute the flagged share of each unit and the ends of its interval.

    Args:
        weights: How much each text counts as flagged, from 0 to 1, of shape (n_texts,).
        codes: The number of each text's unit, of shape (n_texts,).
        groups: The group of each text, of shape (n_texts,).
        n_groups: The number of groups of each unit, of shape (n_units,).
    """
    n = np.bincount(codes, minlength=len(n_groups)).astype(np.float64)
    flagged = np.bincount(codes, weights=weights, minlength=len(n_groups))
    low, high = compute_clopper_pearson_bounds(np.minimum(flagged, n), n)
    for unit in np.flatnonzero(n_groups > 1):
        in_unit = codes == unit
        rate = estimate_grouped_rate(weights[in_unit], groups[in_unit])
        low[unit] = rate.low
        high[unit] = rate.high
    return flagged / n, low, high
