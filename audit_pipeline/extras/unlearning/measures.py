"""The measures of a comparison, and their intervals.

Exact memorisation and extraction strength are those of open-unlearning (Dorna et al. 2025). PrivLeak is that of MUSE
(Shi et al. 2025), and forget quality follows TOFU (Maini et al. 2024, TOFU). docs/unlearning.md lists the differences.
They are implemented here, because open-unlearning and MUSE are frameworks that also train and run the models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy

from audit_pipeline.statistics import intervals
from audit_pipeline.statistics.claims import SMALLEST_P
from audit_pipeline.statistics.roc import Bools, Floats

MIN_RATIO = 1.15
"""A Min-K% score that changes by less than this factor has hardly moved (Shi et al. 2024, section 7)."""
STATED_REFERENCE = 0.5
"""The reference A' of PrivLeak without a retrained model: 1 - AUROC of a model that cannot separate the two sides."""

ALL_EQUAL = "no interval: all have the same value"
"""The part of a method's description that a mean without an interval has if all values are equal."""


def compute_exact_memorization(matches: Bools) -> float:
    """Return the share of scored tokens that are the model's first choice.

    Args:
        matches: A mask of shape (n,) of the tokens that are first choices, n >= 1.
    """
    return float(matches.mean())


def compute_extraction_strength(matches: Bools) -> float:
    """Return the share of scored tokens after the last token that is not the model's first choice.

    The value is 1 - k/n for the smallest k such that all tokens after the first k are first choices. It is 0 if the
    last token is not a first choice. open-unlearning returns 1/n in this case.

    Args:
        matches: A mask of shape (n,) of the tokens that are first choices, n >= 1.
    """
    wrong = np.flatnonzero(~matches)
    if not len(wrong):
        return 1.0
    return 1 - (int(wrong[-1]) + 1) / len(matches)


def is_nearly_unchanged(before: Floats, after: Floats) -> Bools:
    """Return which Min-K% scores changed by less than the factor 1.15: abs(ln(after / before)) < ln 1.15.

    Scores are means of log-probabilities, so at most 0. A score that becomes 0, or was 0 before, has moved unless both
    are 0.

    Args:
        before: Float array of shape (n,), in nats.
        after: Float array of shape (n,), in nats.

    Returns:
        A mask of shape (n,).
    """
    is_same = before == after
    are_negative = (before < 0) & (after < 0)
    ratio = np.divide(after, before, out=np.ones(len(before)), where=are_negative)
    return np.asarray(is_same | (are_negative & (np.abs(np.log(ratio)) < np.log(MIN_RATIO))))


def compute_mean(
    values: Floats,
    groups: Sequence[str],
    *,
    unit: str = "texts",
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> intervals.Measurement:
    """Compute a mean with a 95% interval over groups by Student's t.

    Args:
        values: Float array of shape (n,), n >= 1.
        groups: The group of each value.
        unit: The noun for the values' subjects, in the plural.
        bounds: The smallest and the largest possible value. The interval is clipped to them.
    """
    sides = intervals.GroupedSides(groups, np.ones(len(values)))
    mean = float(values.mean())
    meaning = f"mean over {unit}"
    if sides.n_groups < 2:
        return intervals.Measurement(mean, intervals.NO_INTERVAL, f"{meaning}; no interval: all are of one group")
    scatter = sides.compute_scatter(sides.compute_influences(values))
    if scatter is None:
        reason = intervals.NOTHING_VARIES
        if (values == values[0]).all():
            reason = ALL_EQUAL
        return intervals.Measurement(mean, intervals.NO_INTERVAL, f"{meaning}; {reason}")
    low, high = np.clip(mean + scatter.compute_half_width() * np.array([-1, 1]), *bounds)
    method = f"95% interval over {sides.n_groups} groups by {scatter.description}"
    return intervals.Measurement(mean, intervals.Interval(float(low), float(high)), f"{meaning}; {method}")


def compute_difference_of_means(
    values: Floats, forget: Bools, groups: Sequence[str], *, n_measures: int, unit: str = "texts"
) -> intervals.Measurement:
    """Compute the mean over the texts to be forgotten minus the mean over held-out texts.

    The intervals of all measures together contain the true values with a probability of 95% (Bonferroni). There is no
    interval if there are too few groups for a sign test to reach this level. Few groups may lack the rare values that
    are not 0, and would then seem not to vary.

    Args:
        values: Float array of shape (n,).
        forget: A mask of shape (n,) of the texts to be forgotten. Both sides have texts.
        groups: The group of each value.
        n_measures: The number of measures whose intervals are read together.
        unit: The noun for the values' subjects, in the plural.
    """
    difference = float(values[forget].mean() - values[~forget].mean())
    meaning = f"mean over {unit} to be forgotten minus that over held-out ones"
    sides = intervals.GroupedSides(groups, forget.astype(np.int8))
    if sides.problem:
        return intervals.Measurement(difference, intervals.NO_INTERVAL, f"{meaning}; {sides.problem}")
    tail = intervals.TAIL / n_measures
    min_pairs = 1 - math.floor(math.log2(2 * tail))
    if sides.independent_pairs < min_pairs:
        reason = f"no interval: {min_pairs} independent pairs of groups are needed"
        return intervals.Measurement(difference, intervals.NO_INTERVAL, f"{meaning}; {reason}")
    scatter = sides.compute_scatter(sides.compute_influences(np.where(forget, values, -values)))
    if scatter is None:
        return intervals.Measurement(difference, intervals.NO_INTERVAL, f"{meaning}; {intervals.NOTHING_VARIES}")
    half_width = scatter.compute_half_width(tail)
    method = (
        f"simultaneous 95% interval for {n_measures} measures (Bonferroni), over {sides.n_groups} groups, by "
        f"{scatter.description}"
    )
    return intervals.Measurement(
        difference, intervals.Interval(difference - half_width, difference + half_width), f"{meaning}; {method}"
    )


def compute_privleak(
    auroc: float, interval: intervals.Interval, reference: float, method: str
) -> intervals.Measurement:
    """Compute PrivLeak = 100 (A - A') / A' with A = 1 - AUROC (Shi et al. 2025, MUSE).

    Args:
        auroc: The AUROC with the texts to be forgotten as members.
        interval: The interval of the AUROC. PrivLeak is linear in the AUROC, so the interval transforms directly.
        reference: A' > 0.
        method: The description of the method, which is stored in the result.
    """
    low: float | None = None
    high: float | None = None
    if interval.high is not None:
        low = _privleak_from_auroc(interval.high, reference)
    if interval.low is not None:
        high = _privleak_from_auroc(interval.low, reference)
    return intervals.Measurement(_privleak_from_auroc(auroc, reference), intervals.Interval(low, high), method)


def compute_relative_privleak(
    auroc: intervals.MeasuredAuroc, retrained: intervals.MeasuredAuroc, sides: intervals.GroupedSides
) -> intervals.Measurement:
    """Compute PrivLeak against the retrained model, A' = 1 - AUROC of the retrained model > 0.

    The interval is that of the logarithm of A / A', so it includes the uncertainty of A'. If the interval of the AUROC
    reaches 0 or 1, A' counts as exact, and the interval is the AUROC's exact bound.
    """
    reference = 1 - retrained.value
    if auroc.interval.low == 0.0 or auroc.interval.high == 1.0:
        method = f"reference: the retrained model, taken as exact; AUROC: {auroc.method}"
        return compute_privleak(auroc.value, auroc.interval, reference, method)
    meaning = "reference: the retrained model, on the same texts"
    value = _privleak_from_auroc(auroc.value, reference)
    scatter = None
    if not sides.problem:
        scatter = sides.compute_scatter(retrained.parts / reference - auroc.parts / (1 - auroc.value))
    if scatter is None:
        return intervals.Measurement(
            value, intervals.NO_INTERVAL, f"{meaning}; {sides.problem or intervals.NOTHING_VARIES}"
        )
    low, high = 100 * (np.exp(scatter.compute_half_width() * np.array([-1, 1])) * (1 - auroc.value) / reference - 1)
    method = f"95% interval over {sides.n_groups} groups, of the logarithm of the ratio, by {scatter.description}"
    return intervals.Measurement(value, intervals.Interval(float(low), float(high)), f"{meaning}; {method}")


def compute_kolmogorov_smirnov(values: Floats, others: Floats) -> tuple[float, float]:
    """Return the two-sided p-value, never 0, and the statistic of the two-sample Kolmogorov-Smirnov test.

    Args:
        values: Float array of shape (n,).
        others: Float array of shape (m,).
    """
    result = scipy.stats.ks_2samp(values, others)
    return max(SMALLEST_P, float(result.pvalue)), float(result.statistic)


def _privleak_from_auroc(auroc: float, reference: float) -> float:
    return 100 * ((1 - auroc) / reference - 1)
