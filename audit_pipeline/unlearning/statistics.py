"""Statistics of forgetting: how much of a text a model holds, and how far two models agree on it.

What belongs here: arrays in, numbers out. What does not: which texts and models (inputs.py), rows (measures.py), words
(conclusion.py).

Exact memorisation and extraction strength are as open-unlearning computes them (Dorna et al. 2025), PrivLeak as MUSE
does (Shi et al. 2025), forget quality after TOFU (Maini et al. 2024, TOFU). docs/unlearning.md says where ours differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt
import scipy

from audit_pipeline.metrics.intervals import (
    NO_INTERVAL,
    RESAMPLES,
    TAIL,
    GroupBootstrap,
    Interval,
    percentile_interval,
)
from audit_pipeline.metrics.roc import Floats

Bools = npt.NDArray[np.bool_]

LEAST_RATIO = 1.15
"""A Min-K% score that changes by less than this factor has hardly moved (Shi et al. 2024, section 7)."""
STATED_REFERENCE = 0.5
"""1 - AUROC of a model that cannot separate the two sides: the reference of PrivLeak without a retrained model."""

ALL_EQUAL = "no interval: all have the same value"
"""In the method of a mean that has no interval because nothing varies."""

_BLOCK = 1 << 20


@dataclass(frozen=True)
class MeasuredValue:
    """A number with its 95% interval, which is missing where ``method`` says so."""

    value: float
    interval: Interval
    method: str


def exact_memorization(matches: Bools) -> float:
    """The share of the scored tokens that are the model's first choice; ``matches`` [n >= 1] says which are."""
    return float(matches.mean())


def extraction_strength(matches: Bools) -> float:
    """The share of the scored tokens that follow the last one that is not the model's first choice.

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


def group_means(values: Floats, groups: Sequence[str]) -> Floats:
    """The mean of ``values`` [n] in each group, by the groups' names: [groups]."""
    _, places = np.unique(np.array(groups, dtype=object), return_inverse=True)
    return np.asarray(np.bincount(places, weights=values) / np.bincount(places))


def mean_of(values: Floats, groups: Sequence[str], *, things: str = "texts", seed: int = 0) -> MeasuredValue:
    """The mean of ``values`` [n >= 1] of ``things``, with the percentile interval of resampled groups [n]."""
    _, places = np.unique(np.array(groups, dtype=object), return_inverse=True)
    sizes, sums = np.bincount(places), np.bincount(places, weights=values)
    mean, n_groups = float(values.mean()), len(sizes)
    if n_groups < 2:
        return MeasuredValue(mean, NO_INTERVAL, f"mean over {things}; no interval: all are of one group")
    if (values == values[0]).all():
        return MeasuredValue(mean, NO_INTERVAL, f"mean over {things}; {ALL_EQUAL}")
    generator, rows = np.random.default_rng(seed), max(1, _BLOCK // n_groups)
    drawn = []
    for start in range(0, RESAMPLES, rows):
        counts = generator.multinomial(n_groups, np.full(n_groups, 1 / n_groups), size=min(rows, RESAMPLES - start))
        drawn.append((counts @ sums) / (counts @ sizes))
    how = f"95% percentile interval from {RESAMPLES} bootstrap resamples of {n_groups} groups (seed {seed})"
    return MeasuredValue(mean, percentile_interval(np.concatenate(drawn)), f"mean over {things}; {how}")


def difference_of_means(
    values: Floats, forget: Bools, groups: Sequence[str], *, n_measures: int, things: str = "texts"
) -> MeasuredValue:
    """The mean of ``values`` [n] where ``forget`` [n], less that of the others; both sides have some.

    Its percentile interval from resampled groups [n] is wide enough that with a probability of 95% those of
    ``n_measures`` measures are right at once (Bonferroni). None where so few groups could not show that by a sign test,
    as evidence/evaluation.py asks of a difference.
    """
    difference = float(values[forget].mean() - values[~forget].mean())
    meaning = f"mean over {things} to be forgotten less that over held-out ones"
    bootstrap = GroupBootstrap(groups, forget.astype(np.int8))
    if bootstrap.problem:
        return MeasuredValue(difference, NO_INTERVAL, f"{meaning}; {bootstrap.problem}")
    tail = TAIL / n_measures
    needed = 1 - math.floor(math.log2(2 * tail))
    if bootstrap.independent_pairs < needed:
        how = f"no interval: {needed} independent pairs of groups are needed"
        return MeasuredValue(difference, NO_INTERVAL, f"{meaning}; {how}")
    _, places = np.unique(np.array(groups, dtype=object), return_inverse=True)
    sums, sizes = (
        [np.bincount(places, weights=weighed * side) for side in (forget, ~forget)]
        for weighed in (values, np.ones(len(values)))
    )
    drawn = [
        (counts @ sums[0]) / (counts @ sizes[0]) - (counts @ sums[1]) / (counts @ sizes[1])
        for counts in bootstrap.counts()
    ]
    low, high = np.quantile(np.concatenate(drawn), (tail, 1 - tail))
    how = f"percentile interval, 95% for {n_measures} measures together, from {bootstrap.description}"
    return MeasuredValue(difference, Interval(float(low), float(high)), f"{meaning}; {how}")


def privleak(auroc: float, interval: Interval, reference: float, how: str) -> MeasuredValue:
    """100 (A - A') / A' with A = 1 - AUROC (the forget texts are the members) and A' = ``reference`` > 0.

    ``interval`` is the AUROC's, and ``how`` it was computed: PrivLeak is a straight line in the AUROC.
    """
    low, high = (None if end is None else _compute_privleak(end, reference) for end in (interval.high, interval.low))
    return MeasuredValue(_compute_privleak(auroc, reference), Interval(low, high), how)


def privleak_against_retrained(
    auroc: float, retrained_auroc: float, auroc_draws: Floats, retrained_auroc_draws: Floats, bootstrap: GroupBootstrap
) -> MeasuredValue:
    """PrivLeak against the retrained model's A' = 1 - ``retrained_auroc`` > 0; the interval holds its uncertainty, too.

    ``auroc_draws`` and ``retrained_auroc_draws`` are AUROCs on the same resamples [r] of ``bootstrap``. Where the AUROC
    is 0 or 1, no resample of it differs: then A' is taken as it is, and the interval is the AUROC's exact bound.
    """
    meaning, reference = "reference: the retrained model, on the same resamples", 1 - retrained_auroc
    if auroc in (0.0, 1.0):
        how = f"reference: the retrained model, as it is; AUROC: {bootstrap.describe_auroc_method(auroc)}"
        return privleak(auroc, bootstrap.auroc_interval(auroc, auroc_draws), reference, how)
    if not bootstrap.problem and retrained_auroc_draws.max() == 1:
        how = "no interval: in some resamples the retrained model tells all texts apart"
        return MeasuredValue(_compute_privleak(auroc, reference), NO_INTERVAL, f"{meaning}; {how}")
    interval = percentile_interval(_compute_privleak(auroc_draws, 1 - retrained_auroc_draws))
    return MeasuredValue(_compute_privleak(auroc, reference), interval, f"{meaning}; {bootstrap.percentile_method}")


def kolmogorov_smirnov(values: Floats, others: Floats) -> tuple[float, float]:
    """The two-sided p-value and the statistic of the two-sample Kolmogorov-Smirnov test of [n] and [m] values."""
    found = scipy.stats.ks_2samp(values, others)
    return float(found.pvalue), float(found.statistic)


@overload
def _compute_privleak(auroc: float, reference: float) -> float: ...
@overload
def _compute_privleak(auroc: Floats, reference: Floats) -> Floats: ...
def _compute_privleak(auroc: float | Floats, reference: float | Floats) -> float | Floats:
    return 100 * ((1 - auroc) / reference - 1)
