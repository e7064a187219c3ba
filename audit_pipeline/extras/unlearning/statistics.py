"""Statistics of forgetting: how much of a text a model holds, and how far two models agree on it.

Exact memorisation and extraction strength are as open-unlearning computes them (Dorna et al. 2025), PrivLeak as MUSE
does (Shi et al. 2025), forget quality after TOFU (Maini et al. 2024, TOFU). docs/unlearning.md says where ours differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy

from audit_pipeline.statistics.intervals import (
    NO_INTERVAL,
    NOTHING_VARIES,
    TAIL,
    GroupedSides,
    Interval,
    MeasuredAuroc,
    Measurement,
    encode_groups,
)
from audit_pipeline.statistics.roc import Bools, Floats

LEAST_RATIO = 1.15
"""A Min-K% score that changes by less than this factor has hardly moved (Shi et al. 2024, section 7)."""
STATED_REFERENCE = 0.5
"""1 - AUROC of a model that cannot separate the two sides: the reference of PrivLeak without a retrained model."""

ALL_EQUAL = "no interval: all have the same value"
"""In the method of a mean that has no interval because nothing varies."""


def compute_exact_memorization(matches: Bools) -> float:
    """Return the share of the scored tokens that are the model's first choice; ``matches`` [n >= 1] says which are."""
    return float(matches.mean())


def compute_extraction_strength(matches: Bools) -> float:
    """Return the share of the scored tokens that follow the last one that is not the model's first choice.

    1 - k/n, with k the shortest beginning after which every one of the n >= 1 tokens is a first choice. 0 where the
    last token is none: open-unlearning returns 1/n then.
    """
    wrong = np.flatnonzero(~matches)
    return 1.0 if not len(wrong) else 1 - (int(wrong[-1]) + 1) / len(matches)


def is_nearly_unchanged(before: Floats, after: Floats) -> Bools:
    """Of each text whether its Min-K% score changed by less than the factor 1.15: |ln(after / before)| < ln 1.15: [n].

    Scores are means of log-probabilities, so at most 0; one that is 0 has moved unless the other is 0, too.
    """
    same = before == after
    both = (before < 0) & (after < 0)
    ratio = np.divide(after, before, out=np.ones(len(before)), where=both)
    return np.asarray(same | (both & (np.abs(np.log(ratio)) < np.log(LEAST_RATIO))))


def compute_group_means(values: Floats, groups: Sequence[str]) -> Floats:
    """Return the mean of ``values`` [n] in each group, by the groups' names: [groups]."""
    places = encode_groups(groups)
    return np.asarray(np.bincount(places, weights=values) / np.bincount(places))


def compute_mean(
    values: Floats,
    groups: Sequence[str],
    *,
    things: str = "texts",
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Measurement:
    """Return the mean of ``values`` [n >= 1] of ``things``, with the interval over groups [n] by Student's t.

    ``bounds``: the least and the largest value that there can be.
    """
    side, mean = GroupedSides(groups, np.ones(len(values))), float(values.mean())
    if side.n_groups < 2:
        return Measurement(mean, NO_INTERVAL, f"mean over {things}; no interval: all are of one group")
    scatter = side.compute_scatter(side.compute_parts(values))
    if scatter is None:
        why = ALL_EQUAL if (values == values[0]).all() else NOTHING_VARIES
        return Measurement(mean, NO_INTERVAL, f"mean over {things}; {why}")
    low, high = np.clip(mean + scatter.reach() * np.array([-1, 1]), *bounds)
    how = f"95% interval over {side.n_groups} groups by {scatter.description}"
    return Measurement(mean, Interval(float(low), float(high)), f"mean over {things}; {how}")


def compute_difference_of_means(
    values: Floats, forget: Bools, groups: Sequence[str], *, n_measures: int, things: str = "texts"
) -> Measurement:
    """Return the mean of ``values`` [n] where ``forget`` [n], less that of the others; both sides have some.

    Its interval over groups [n] is wide enough that with a probability of 95% those of ``n_measures`` measures are
    right at once (Bonferroni). None where so few groups could not show that by a sign test: where few values are not 0,
    a handful of groups may hold none of them, and would seem not to vary.
    """
    difference = float(values[forget].mean() - values[~forget].mean())
    meaning = f"mean over {things} to be forgotten less that over held-out ones"
    sides = GroupedSides(groups, forget.astype(np.int8))
    if sides.problem:
        return Measurement(difference, NO_INTERVAL, f"{meaning}; {sides.problem}")
    tail = TAIL / n_measures
    needed = 1 - math.floor(math.log2(2 * tail))
    if sides.independent_pairs < needed:
        how = f"no interval: {needed} independent pairs of groups are needed"
        return Measurement(difference, NO_INTERVAL, f"{meaning}; {how}")
    scatter = sides.compute_scatter(sides.compute_parts(np.where(forget, values, -values)))
    if scatter is None:
        return Measurement(difference, NO_INTERVAL, f"{meaning}; {NOTHING_VARIES}")
    reach = scatter.reach(tail)
    how = f"interval over {sides.n_groups} groups, 95% for {n_measures} measures together, by {scatter.description}"
    return Measurement(difference, Interval(difference - reach, difference + reach), f"{meaning}; {how}")


def compute_privleak(auroc: float, interval: Interval, reference: float, how: str) -> Measurement:
    """100 (A - A') / A' with A = 1 - AUROC (the forget texts are the members) and A' = ``reference`` > 0.

    ``interval`` is the AUROC's, and ``how`` it was computed: PrivLeak is a straight line in the AUROC.
    """
    low, high = (None if end is None else _convert_auroc(end, reference) for end in (interval.high, interval.low))
    return Measurement(_convert_auroc(auroc, reference), Interval(low, high), how)


def compute_relative_privleak(auroc: MeasuredAuroc, retrained: MeasuredAuroc, sides: GroupedSides) -> Measurement:
    """PrivLeak against the ``retrained`` model's A' = 1 - AUROC > 0; the interval holds its uncertainty, too.

    It is built for the logarithm of A / A'. Where the AUROC is 0 or 1, or as good as, A' is taken as it is, and the
    interval is the AUROC's exact bound.
    """
    reference = 1 - retrained.value
    if auroc.interval.low == 0.0 or auroc.interval.high == 1.0:
        how = f"reference: the retrained model, as it is; AUROC: {auroc.method}"
        return compute_privleak(auroc.value, auroc.interval, reference, how)
    meaning, value = "reference: the retrained model, on the same texts", _convert_auroc(auroc.value, reference)
    scatter = None
    if not sides.problem:
        scatter = sides.compute_scatter(retrained.parts / reference - auroc.parts / (1 - auroc.value))
    if scatter is None:
        return Measurement(value, NO_INTERVAL, f"{meaning}; {sides.problem or NOTHING_VARIES}")
    low, high = 100 * (np.exp(scatter.reach() * np.array([-1, 1])) * (1 - auroc.value) / reference - 1)
    how = f"95% interval over {sides.n_groups} groups, of the logarithm of the ratio, by {scatter.description}"
    return Measurement(value, Interval(float(low), float(high)), f"{meaning}; {how}")


def compute_kolmogorov_smirnov(values: Floats, others: Floats) -> tuple[float, float]:
    """The two-sided p-value and the statistic of the two-sample Kolmogorov-Smirnov test of [n] and [m] values."""
    found = scipy.stats.ks_2samp(values, others)
    return float(found.pvalue), float(found.statistic)


def _convert_auroc(auroc: float, reference: float) -> float:
    return 100 * ((1 - auroc) / reference - 1)
