"""The test of twins: does a model score the published version of an item above the versions that were kept secret?

Each item has several versions. Chance draws one of them, which is published. If the model was not trained on it, each
version was equally likely to be it, whatever the versions and their scores are. So, given all scores, the share of the
other versions that the published one scores above is a draw of known distribution, independent of the other items.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit

from audit_pipeline.errors import DataError
from audit_pipeline.statistics.claims import detectable_auroc
from audit_pipeline.statistics.intervals import GroupedSides
from audit_pipeline.statistics.roc import Floats
from audit_pipeline.statistics.score_direction import LEVEL
from audit_pipeline.statistics.share_bounds import describe_interval_method, grouped_rate

ASSUMPTION = (
    "Chance decided which version of an item was published, each being equally likely, "
    "and the others were never published or otherwise given away."
)
ALPHA = 0.05
REDRAWS = 99_999

_SMALLEST_P = 1e-300
# Additions of one convolution: some seconds.
_MOST_WORK = 2_000_000_000


@dataclass(frozen=True)
class TwinComparison:
    """The test's result for ``items`` items.

    ``superiority`` is the mean, over items, of the share of the other versions that the published one scores above,
    ties half: 0.5 without training, 1 where it always ranks first. ``superiority_low`` and ``superiority_high`` are the
    ends of its 95% interval over items. ``others``: the versions of these items that were not published; ``left_out``:
    items of which a version has no score. ``detectable_auroc``: the superiority that a p-value at 5% finds four times
    in five, by the normal approximation (above 1: none is). There is no number where ``reason`` says why the test is
    refused.
    """

    reason: str | None
    p_value: float | None
    superiority: float | None
    superiority_low: float | None
    superiority_high: float | None
    items: int
    others: int
    left_out: int
    detectable_auroc: float | None
    method: str


def compute_rank_shares(scores: npt.ArrayLike) -> Floats:
    """Return for each version of an item (scores [k]) the share of the others that it scores above, ties half: [k].

    All are nan where a score is None or not finite: whether an item counts must not depend on which was published.
    Raises DataError for fewer than two versions.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or len(values) < 2:
        raise DataError(f"an item needs two versions or more: {values.size}")
    if not np.isfinite(values).all():
        return np.full(len(values), np.nan)
    ordered = np.sort(values)
    below, up_to = (np.searchsorted(ordered, values, side) for side in ("left", "right"))
    return np.asarray((below + up_to - 1) / (2 * (len(values) - 1)))


def compare_twins(
    shares: Sequence[Sequence[Floats]], published: Sequence[int], *, alpha: float = ALPHA
) -> TwinComparison:
    """Run the test of N items by D detectors together: ``shares`` has a row a detector, of N arrays [k_i].

    The arrays are those of :func:`compute_rank_shares`, ``published`` [N] the places of the published versions.
    The statistic is the mean over items and detectors. One draw decides the published version for all detectors, so the
    mean of their shares is again a number of each version, and its p-value needs no correction for their number.

    Refused where no item has a score by every detector, and where even the highest rank in every item could not reach
    ``alpha``. Raises DataError for unequal lengths.
    """
    lengths = {len(published), *map(len, shares)}
    if len(lengths) != 1 or not shares:
        raise DataError(f"each item needs a published version and shares: {sorted(lengths)}")
    means = [np.mean(of_item, axis=0) for of_item in zip(*shares, strict=True)]
    usable = [place for place, row in enumerate(means) if np.isfinite(row).all()]
    rows, drawn = [means[place] for place in usable], [published[place] for place in usable]
    sizes = [len(row) for row in rows]
    left_out, others = len(means) - len(rows), sum(sizes) - len(rows)
    low, high = min(sizes, default=0), max(sizes, default=0)
    method = f"rank of the published version among {low if low == high else f'{low} to {high}'} of {len(rows)} items"
    reason = _explain_refusal(sizes, alpha)
    if reason is not None:
        return TwinComparison(reason, None, None, None, None, len(rows), others, left_out, None, method)
    unit = 2 * len(shares) * math.lcm(*(size - 1 for size in sizes))
    p_value, how = compute_sum_p_value(rows, drawn, unit)
    values = np.array([row[place] for row, place in zip(rows, drawn, strict=True)])
    bounds = _measure_interval(values)
    error = math.sqrt(sum(float(np.var(row)) for row in rows)) / len(rows)
    return TwinComparison(
        reason=None,
        p_value=p_value,
        superiority=float(values.mean()),
        superiority_low=bounds[0],
        superiority_high=bounds[1],
        items=len(rows),
        others=others,
        left_out=left_out,
        detectable_auroc=detectable_auroc(error, LEVEL),
        method=f"{method}: sum of ranks, {how}; {bounds[2]}",
    )


def compute_sum_p_value(rows: Sequence[Floats], drawn: Sequence[int], unit: int) -> tuple[float, str]:
    """Return the probability that the sum of one value of each row, all equally likely, is at least that of the values
    at the places ``drawn``, and how it was computed.

    ``rows`` [k_i] hold multiples of 1 / ``unit``. The distribution is exact by convolution, whatever ties there are;
    below 1e-300 it is given as 1e-300. Where that takes too long, it is that of 99,999 redraws (with the draw itself
    counted, which keeps it valid).
    """
    deficits = [row.max() - row for row in rows]
    # What all rows together lack of their largest sum: memory goes with the sum that was seen.
    lacking = sum(float(row[place]) for row, place in zip(deficits, drawn, strict=True))
    work = (lacking * unit + 1) * sum(len(np.unique(row)) for row in deficits)
    if work > _MOST_WORK:
        return _redrawn_sum_p(deficits, lacking), f"{REDRAWS + 1:,} draws"
    counts = [np.rint(row * unit).astype(np.int64) for row in deficits]
    largest = sum(int(row[place]) for row, place in zip(counts, drawn, strict=True))
    probability = np.zeros(largest + 1)
    probability[0] = 1.0
    for row in counts:
        total = np.zeros(largest + 1)
        for value, times in zip(*np.unique(row[row <= largest], return_counts=True), strict=True):
            total[value:] += times / len(row) * probability[: largest + 1 - value]
        probability = total
    return float(min(1.0, max(_SMALLEST_P, probability.sum()))), "exact by convolution"


def _redrawn_sum_p(deficits: Sequence[Floats], lacking: float) -> float:
    generator, sums = np.random.default_rng(0), np.zeros(REDRAWS)
    for row in deficits:
        sums += row[generator.integers(len(row), size=REDRAWS)]
    # Sums of the same values in another order differ in their last digits.
    return float(1 + np.count_nonzero(sums <= lacking + 1e-9)) / (REDRAWS + 1)


def compute_rank_sum_p(ranks: Sequence[int], alternatives: Sequence[int]) -> float:
    """Return the probability that S independent ranks, uniform on 1 … K_s + 1, have a sum of at most that of ``ranks``.

    ``alternatives`` are the K_s. Exact but for rounding; below 1e-300 it is given as 1e-300. Raises DataError for
    unequal lengths, no rank, or one that is not among 1 … K_s + 1.
    """
    if not len(ranks) or len(ranks) != len(alternatives):
        raise DataError(f"one number of alternatives for each rank is needed: {len(ranks)} and {len(alternatives)}")
    if any(not 1 <= rank <= size + 1 for rank, size in zip(ranks, alternatives, strict=True)):
        raise DataError("a rank is not between 1 and the number of alternatives + 1")
    return compute_sum_p_value([-np.arange(size + 1.0) for size in alternatives], [rank - 1 for rank in ranks], 1)[0]


def _explain_refusal(sizes: Sequence[int], alpha: float) -> str | None:
    if not sizes:
        return "no item has a score of every version"
    reachable = math.exp(-sum(map(math.log, sizes)))
    # A hair's breadth: exp and log of 1/20 must not forbid 0.05.
    if reachable <= alpha * (1 + 1e-12):
        return None
    needed = math.ceil(1 / alpha - 1e-9)
    return (
        f"no rank could give a p-value of {alpha:g}: the smallest that these versions allow is {reachable:.3g}; take "
        f"more items, or {needed} versions of a single item"
    )


def _measure_interval(values: Floats) -> tuple[float | None, float | None, str]:
    """Return both ends of the 95% interval of the mean of ``values`` [N], from 0 to 1, and how it was computed.

    On the logit scale, from the variance over items (intervals.py); where that says nothing, the bounds of a share.
    """
    items, mean = np.arange(len(values)), float(values.mean())
    sides = GroupedSides(items, np.ones(len(values)))
    scatter = sides.compute_scatter(sides.compute_influences(values))
    if scatter is None or min(mean, 1 - mean) * len(values) <= 0.5:
        rate = grouped_rate(values, items)
        return rate.low, rate.high, describe_interval_method(rate, "items")
    reach = scatter.compute_half_width() / (mean * (1 - mean))
    low, high = map(float, expit(logit(mean) + np.array([-reach, reach])))
    return low, high, f"95% interval by the variance over items, on the logit scale, {scatter.description}"
