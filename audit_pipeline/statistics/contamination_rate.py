"""How much of a book, collection or benchmark was read: the share that is flagged, and what it says of members.

A share p of members is flagged at p TPR + (1 - p) FPR, so p = (flagged - FPR) / (TPR - FPR), clipped to 0 and 1
(Rogan and Gladen, American Journal of Epidemiology 107, 1978). FPR and TPR are measured on calibration texts:

- An order statistic is chosen by the non-members, so the members' TPR is that of texts that chose nothing. The FPR is
  measured on the very non-members, but for one thing: the text that is the order statistic counts as flagged, though
  the threshold lies above it. With one text per group the lower end of the Clopper-Pearson interval is then the 2.5%
  quantile of Beta(n - k + 1, k), the distribution of the FPR over calibrations, and the upper end lies above the 97.5%.
- The largest accuracy is chosen by both sides and fits the chance in them. So ten thresholds are chosen, each by nine
  tenths of the groups, and FPR and TPR are those of the tenths that did not choose. The flagged share that is corrected
  is then the mean over the ten thresholds as well, so that all three terms are of the same thresholds; it differs from
  the printed share, which is of the threshold that all calibration texts choose, by little.

The interval holds every p for which flagged - (1 - p) FPR - p TPR could be 0 by the 95% intervals of the three terms:
the method of variance estimates recovery (Zou and Donner, Statistics in Medicine 27, 2008), inverted. It takes the
terms as independent, which needs audited and calibration texts of different groups, and keeps the asymmetry of each
term's interval.

One book's FPR and TPR are not those of books on average: its style raises or lowers all its scores. How far, the
calibration groups say: a group's rate is taken as Beta distributed, with the intraclass correlation that analysis of
variance finds in them (Ridout, Demetrio and Firth, Biometrics 55, 1999), and for a unit of one group its central 95%
is a fourth term, which moves FPR and TPR together. Without it, 95% intervals for one
book of 100 windows, with 30% of their variance its own, held the true share in 50 to 86 of 100 made-up books. Where
calibration groups have one text each, nothing shows this, and the assumption says so.

Measured coverage: bench/bench_decisions.py.
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
from audit_pipeline.statistics.share_bounds import Rate, clopper_pearson_bounds, difference_interval, grouped_rate
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
"""Added to an assumption where no share of members is within the bounds of all terms."""
ASSUMPTION_OF_AN_AVERAGE_GROUP = f"{ASSUMPTION}; of this one group too, not only of groups on average"

_HALVINGS = 50
_MOST_ALIKE = 0.999


@dataclass(frozen=True)
class GroupSpread:
    """How far one group's FPR and TPR may lie below and above those of groups on average, 95 of 100 times."""

    fpr_down: float
    fpr_up: float
    tpr_down: float
    tpr_up: float


NO_SPREAD = GroupSpread(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Instrument:
    """What is known of a threshold from calibration texts.

    ``thresholds`` are those that ``fpr`` and ``tpr`` are of (their mean, where there are several). ``spread`` is that
    of single groups; None where no calibration group of a side has several texts. ``reason`` says why no rate can be
    corrected with them; None where it can.
    """

    threshold: float
    thresholds: tuple[float, ...]
    fpr: Rate
    tpr: Rate
    spread: GroupSpread | None
    reason: str | None


@dataclass(frozen=True, eq=False)
class UnitRates:
    """Flagged and corrected shares of u units, by name: [u] each; corrected ones are NaN where there are none.

    The ends of the interval of a corrected share are NaN, too, where the calibration texts contradict it.
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


def measure_instrument(threshold: Threshold, calibration: ScoredTexts) -> Instrument | None:
    """FPR and TPR of a threshold that ``calibration`` chose, as the module says; None where it was refused."""
    if threshold.threshold is None:
        return None
    nonmembers, members = calibration.nonmembers, calibration.members
    if threshold.order_statistic is not None:
        used: tuple[float, ...] = (threshold.threshold,)
        false, true = nonmembers.scores >= threshold.order_statistic, members.scores >= threshold.threshold
    else:
        folds = _assign_folds(calibration)
        chosen = [choose_largest_accuracy(calibration.take(folds != fold)).threshold for fold in range(folds.max() + 1)]
        used = tuple(column for column in chosen if column is not None)
        if len(used) < len(chosen) or len(used) < 2:
            reason = "the calibration members or non-members are of too few groups to leave any out"
            unknown = Rate(None, None, None, len(members), members.n_groups, None)
            return Instrument(threshold.threshold, (threshold.threshold,), unknown, unknown, None, reason)
        flagged = calibration.scores >= np.array(used)[folds]
        false, true = flagged[calibration.labels == NON_MEMBER], flagged[calibration.labels == MEMBER]
    fpr, tpr = grouped_rate(false, nonmembers.groups), grouped_rate(true, members.groups)
    fpr_margins = _compute_group_margins(false, nonmembers.groups)
    tpr_margins = _compute_group_margins(true, members.groups)
    spread = None if fpr_margins is None or tpr_margins is None else GroupSpread(*fpr_margins, *tpr_margins)
    return Instrument(threshold.threshold, used, fpr, tpr, spread, _explain_refusal(fpr, tpr))


def select_assumption(instrument: Instrument, n_groups: int) -> str:
    """Return what must be true for the corrected share of a unit of ``n_groups`` groups to hold."""
    if n_groups > 1:
        return ASSUMPTION
    return ASSUMPTION_OF_AN_AVERAGE_GROUP if instrument.spread is None else ASSUMPTION_OF_ONE_GROUP


def compute_corrected_shares(
    flagged: Floats,
    flagged_low: Floats,
    flagged_high: Floats,
    fpr: Rate,
    tpr: Rate,
    spread: GroupSpread = NO_SPREAD,
) -> tuple[Floats, Floats, Floats]:
    """(flagged - FPR) / (TPR - FPR), clipped, and the ends of its 95% interval: [u] each, from [u] shares.

    Both ends are NaN where no share is within the bounds: more is flagged than of members, or less than of non-members.
    ``spread``: for units of one group. FPR and TPR have intervals, and the TPR is above the FPR.
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
    # The lower bound is concave in p. So it excludes the shares from 0 to its one crossing, or none where it allows 0.
    # The upper is convex and excludes those from its one crossing to 1, or none where it allows 1.
    low = np.where(lower(np.zeros_like(share)) <= 0, 0.0, _find_crossing(lower, len(share)))
    high = np.where(upper(np.ones_like(share)) >= 0, 1.0, _find_crossing(upper, len(share)))
    # Bisection stops a rounding error from the crossing: the interval holds its estimate.
    low, high = np.minimum(low, share), np.maximum(high, share)
    contradicted = (lower(np.ones_like(share)) >= 0) | (upper(np.zeros_like(share)) <= 0)
    return share, np.where(contradicted, np.nan, low), np.where(contradicted, np.nan, high)


def compute_unit_rates(audited: ScoredTexts, units: npt.NDArray[Any], instrument: Instrument) -> UnitRates:
    """Flagged and corrected shares of the texts of each unit; ``units`` [n] says which unit a text is of.

    The texts of a unit of one group are the whole of what is asked about: their interval is Clopper-Pearson's. Those
    of several groups represent more such groups: their interval is :func:`rates.grouped_rate`'s.
    """
    names, codes = np.unique(units, return_inverse=True)
    flags = (audited.scores >= instrument.threshold).astype(np.float64)
    n_texts = np.bincount(codes, minlength=len(names))
    n_flagged = np.bincount(codes, weights=flags, minlength=len(names)).astype(np.int64)
    _, group_codes = np.unique(audited.groups, return_inverse=True)
    n_groups = np.bincount(np.unique(np.stack([codes, group_codes]), axis=1)[0], minlength=len(names))
    printed = _compute_shares(flags, codes, audited.groups, n_groups)
    if instrument.reason is None:
        weights = np.mean([audited.scores >= threshold for threshold in instrument.thresholds], axis=0)
        terms = (
            printed if len(instrument.thresholds) == 1 else _compute_shares(weights, codes, audited.groups, n_groups)
        )
        corrected = compute_corrected_shares(*terms, instrument.fpr, instrument.tpr)
        if instrument.spread is not None:
            of_single_group = compute_corrected_shares(*terms, instrument.fpr, instrument.tpr, instrument.spread)
            share, low, high = (np.where(n_groups == 1, *pair) for pair in zip(of_single_group, corrected, strict=True))
            corrected = share, low, high
    else:
        corrected = (np.full(len(names), np.nan),) * 3
    return UnitRates(names, n_texts, n_groups, n_flagged, *printed, *corrected)


def _explain_refusal(fpr: Rate, tpr: Rate) -> str | None:
    if not tpr.n:
        return "no calibration members are named, so it is unknown how often a member is flagged"
    for name, rate in (("members", tpr), ("non-members", fpr)):
        if rate.low is None:
            return f"the calibration {name} are all of one group, so the rate among them has no interval"
    least = difference_interval(tpr, fpr).low
    if least is None or least <= MIN_DIFFERENCE:
        return (
            f"members are hardly flagged more often than non-members: the lower bound of TPR - FPR is {least:z.3f} "
            f"on calibration texts, it needs to exceed {MIN_DIFFERENCE:g}"
        )
    return None


def _assign_folds(calibration: ScoredTexts) -> Places:
    """The fold of each text: groups in random order (by key) within those of the same sides, dealt out in turn."""
    names, codes = np.unique(calibration.groups, return_inverse=True)
    sides = np.zeros(len(names), dtype=np.int64)
    for bit, label in ((1, MEMBER), (2, NON_MEMBER)):
        sides += bit * (np.bincount(codes, weights=calibration.labels == label, minlength=len(names)) > 0)
    first_key = np.full(len(names), np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(first_key, codes, calibration.keys)
    dealt = np.empty(len(names), dtype=np.intp)
    dealt[np.lexsort((first_key, sides))] = np.arange(len(names)) % FOLDS
    return np.asarray(dealt[codes])


def _find_crossing(bound: Callable[[Floats], Floats], size: int) -> Floats:
    """Where a function of [u] shares falls below 0 in [0, 1]: at 0 where it starts there, at 1 where it stays above."""
    low, high = np.zeros(size), np.ones(size)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = bound(middle) > 0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return (low + high) / 2


def _compute_group_margins(flags: npt.ArrayLike, groups: npt.NDArray[Any]) -> tuple[float, float] | None:
    """Return how far below and above the share of all texts the central 95% of the groups' own rates reach."""
    values = np.asarray(flags, dtype=np.float64)
    names, codes = np.unique(groups, return_inverse=True)
    n, n_groups = len(values), len(names)
    if n_groups < 2 or n == n_groups:
        return None
    share, sizes = values.mean(), np.bincount(codes)
    shares = np.bincount(codes, weights=values) / sizes
    between = (sizes * (shares - share) ** 2).sum() / (n_groups - 1)
    within = (sizes * shares * (1 - shares)).sum() / (n - n_groups)
    size = (n - (sizes**2).sum() / n) / (n_groups - 1)
    if between <= within:
        return 0.0, 0.0
    alike = min(_MOST_ALIKE, (between - within) / (between + (size - 1) * within))
    low, high = scipy.special.betaincinv(share * (1 / alike - 1), (1 - share) * (1 / alike - 1), (0.025, 0.975))
    return max(0.0, float(share - low)), max(0.0, float(high - share))


def _compute_shares(
    weights: Floats, codes: Places, groups: npt.NDArray[Any], n_groups: Counts
) -> tuple[Floats, Floats, Floats]:
    """Return the share of each unit and the ends of its interval."""
    n = np.bincount(codes, minlength=len(n_groups)).astype(np.float64)
    flagged = np.bincount(codes, weights=weights, minlength=len(n_groups))
    low, high = clopper_pearson_bounds(np.minimum(flagged, n), n)
    for unit in np.flatnonzero(n_groups > 1):
        in_unit = codes == unit
        rate = grouped_rate(weights[in_unit], groups[in_unit])
        low[unit], high[unit] = rate.low, rate.high
    return flagged / n, low, high
