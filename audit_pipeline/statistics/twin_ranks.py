"""The test of twins: does a model score the published version of an item above the versions that were kept secret?

Each item has several versions. Chance draws one of them, which is published. If the model was not trained on it, each
version was equally likely to be it, whatever the versions and their scores are. So, given all scores, the share of the
other versions that the published one scores above is a draw of known distribution, independent of the other items.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import expit, logit

from audit_pipeline.errors import DataError
from audit_pipeline.statistics.claims import POWER, SMALLEST_P, detectable_auroc
from audit_pipeline.statistics.intervals import GroupedSides
from audit_pipeline.statistics.roc import SLACK, Floats
from audit_pipeline.statistics.score_direction import LEVEL
from audit_pipeline.statistics.share_bounds import describe_interval_method, grouped_rate

ASSUMPTION = (
    "Chance decided which version of an item was published, each being equally likely, "
    "and the others were never published or otherwise given away."
)
ALPHA = 0.05
REDRAWS = 99_999

Counts = npt.NDArray[np.int64]

# Additions of one convolution: some seconds.
_MOST_WORK = 2_000_000_000
# Of the standard deviation of the sum: by so much rounding may move it.
_MOST_ROUNDING = 0.01


@dataclass(frozen=True)
class TwinComparison:
    """The result of a test of twins.

    Attributes:
        reason: Why the test is refused, or None. A refused test has no numbers.
        p_value: The probability of so large a sum of ranks under the draw.
        superiority: The mean over items of the share of the other versions that the published version scores above.
            Ties count half. It is 0.5 without training, and 1 if the published version always ranks first.
        superiority_low: The lower end of the 95% interval of ``superiority`` over items.
        superiority_high: The upper end.
        items: The number of items.
        others: The number of versions of these items that were not published.
        left_out: The number of items that lack a score of a version.
        detectable_auroc: The superiority that a p-value at 5% finds four times in five (:func:`find_detectable_sum`).
            It is above 1 if no superiority is found so often.
        method: How the numbers were computed.
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
    # A share is a half of a whole number over size - 1, and the mean is over detectors.
    units = [2 * len(shares) * (size - 1) for size in sizes]
    p_value, how = compute_sum_p_value(rows, drawn, units)
    values = np.array([row[place] for row, place in zip(rows, drawn, strict=True)])
    bounds = _measure_interval(values)
    detectable = _limit_detectable(find_detectable_sum(rows, units) / len(rows), _compute_deviation(rows) / len(rows))
    return TwinComparison(
        reason=None,
        p_value=p_value,
        superiority=float(values.mean()),
        superiority_low=bounds[0],
        superiority_high=bounds[1],
        items=len(rows),
        others=others,
        left_out=left_out,
        detectable_auroc=detectable,
        method=f"{method}: sum of ranks, {how}; {bounds[2]}",
    )


def compute_sum_p_value(rows: Sequence[Floats], drawn: Sequence[int], units: Sequence[int]) -> tuple[float, str]:
    """Return the probability of a sum at least as large as the drawn one, and how it was computed.

    The sum is over one value of each row. Every value of a row is equally likely. Ties are allowed.

    Args:
        rows: Arrays of shape (k_i,). The values of row i are multiples of 1 / ``units[i]``.
        drawn: The place of the drawn value in each row.
        units: A whole number for each row.

    Returns:
        The p-value, never below ``SMALLEST_P``, and its method. The p-value is exact if the convolution is small
        enough. If not, the values are rounded to a common grid so that the p-value can only rise, provided that the
        rounding is small beside the standard deviation of the sum. Otherwise 99,999 redraws give the p-value; the
        draw itself is counted, which keeps it valid.
    """
    deficits = _count_deficits(rows, units)
    # The deficit of a sum is its distance from the largest sum. Python's integers hold the common unit of any sizes.
    parts = [Fraction(int(row[place]), unit) for row, place, unit in zip(deficits, drawn, units, strict=True)]
    deficit = sum(parts, Fraction(0))
    grid, how = math.lcm(*units), "exact by convolution"
    if deficit and _count_additions(deficits, math.floor(deficit * grid)) > _MOST_WORK:
        grid = _choose_grid(deficits, deficit)
        how = f"by convolution, ranks rounded to 1/{grid:,} so that p can only rise"
        if grid * _MOST_ROUNDING * _compute_deviation(rows) < len(rows):
            return _redraw_sum_p(deficits, units, float(deficit)), f"{REDRAWS + 1:,} draws"
    probability = _convolve(deficits, units, grid, math.floor(deficit * grid))
    return float(min(1.0, max(SMALLEST_P, probability.sum()))), how


def find_detectable_sum(rows: Sequence[Floats], units: Sequence[int]) -> float:
    """Return the expected sum that a p-value at 5% finds four times in five; infinite if no sum has such a p-value.

    Training is taken to favour large values: a value v is then drawn with a probability proportional to exp(t v). Of
    all distributions with the same expected sum this one is closest to the equal draw. It weights the distribution of
    the sum by exp(t sum), so that one convolution gives the power at every t. For two versions per item it is the
    power of the binomial test. If the convolution is too large, the normal approximation stands for it.

    Args:
        rows: As of :func:`compute_sum_p_value`.
        units: As of :func:`compute_sum_p_value`.
    """
    deficits, unit = _count_deficits(rows, units), math.lcm(*units)
    highest = sum(float(row.max()) for row in rows)
    largest = sum(int(row.max()) * unit // own for row, own in zip(deficits, units, strict=True))
    if _count_additions(deficits, largest) > _MOST_WORK:
        mean = sum(float(row.mean()) for row in rows)
        return mean + (detectable_auroc(_compute_deviation(rows), LEVEL) - 0.5)
    probability = _convolve(deficits, units, unit, largest)
    found = int(np.searchsorted(np.cumsum(probability), LEVEL * (1 + SLACK), side="right"))
    if not found:
        return math.inf
    possible = np.flatnonzero(probability)
    distances, logarithms = possible / unit, np.log(probability[possible])

    def weight(tilt: float) -> Floats:
        exponents = logarithms - tilt * distances
        weights = np.exp(exponents - exponents.max())
        return np.asarray(weights / weights.sum())

    def exceed_power(tilt: float) -> float:
        return float(weight(tilt)[possible < found].sum()) - POWER

    steep = 1.0
    while exceed_power(steep) < 0:
        steep *= 2
    tilt = float(brentq(exceed_power, 0.0, steep))
    return highest - float(weight(tilt) @ distances)


def _count_deficits(rows: Sequence[Floats], units: Sequence[int]) -> list[Counts]:
    """Return how many units each value lies below the largest of its row."""
    multiples = [np.rint(row * unit).astype(np.int64) for row, unit in zip(rows, units, strict=True)]
    return [row.max() - row for row in multiples]


def _count_additions(deficits: Sequence[Counts], largest: int) -> int:
    return (largest + 1) * sum(len(np.unique(row)) for row in deficits)


def _choose_grid(deficits: Sequence[Counts], deficit: Fraction) -> int:
    """Return the finest grid that keeps the convolution up to ``deficit`` small enough; 0 if there is none."""
    return max(0, math.floor((_MOST_WORK // _count_additions(deficits, 0) - 1) / deficit))


def _compute_deviation(rows: Sequence[Floats]) -> float:
    return math.sqrt(sum(float(np.var(row)) for row in rows))


def _convolve(deficits: Sequence[Counts], units: Sequence[int], grid: int, largest: int) -> Floats:
    """Return the probability of each sum of deficits from 0 to ``largest``, in parts of 1 / ``grid``, rounded down."""
    probability = np.zeros(largest + 1)
    probability[0] = 1.0
    for row, unit in zip(deficits, units, strict=True):
        total = np.zeros(largest + 1)
        for value, times in zip(*np.unique(row, return_counts=True), strict=True):
            shift = int(value) * grid // unit
            if shift <= largest:
                total[shift:] += times / len(row) * probability[: largest + 1 - shift]
        probability = total
    return probability


def _redraw_sum_p(deficits: Sequence[Counts], units: Sequence[int], deficit: float) -> float:
    generator, sums = np.random.default_rng(0), np.zeros(REDRAWS)
    for row, unit in zip(deficits, units, strict=True):
        sums += (row / unit)[generator.integers(len(row), size=REDRAWS)]
    # Each of n divisions and n additions is off by half of epsilon at most, relative to a sum near the drawn one.
    rounding = (len(units) + 1) * np.finfo(np.float64).eps * deficit
    return float(1 + np.count_nonzero(sums <= deficit + rounding)) / (REDRAWS + 1)


def compute_rank_sum_p(ranks: Sequence[int], alternatives: Sequence[int]) -> float:
    """Return the probability that independent uniform ranks have a sum of at most that of ``ranks``.

    Args:
        ranks: The rank of each of S sets, from 1 to its number of alternatives + 1.
        alternatives: The number of alternatives of each set.

    Returns:
        The p-value, never below ``SMALLEST_P``, as :func:`compute_sum_p_value` computes it.

    Raises:
        DataError: If the lengths differ, there is no rank, or a rank is out of range.
    """
    if not len(ranks) or len(ranks) != len(alternatives):
        raise DataError(f"one number of alternatives for each rank is needed: {len(ranks)} and {len(alternatives)}")
    if any(not 1 <= rank <= size + 1 for rank, size in zip(ranks, alternatives, strict=True)):
        raise DataError("a rank is not between 1 and the number of alternatives + 1")
    rows = [-np.arange(size + 1.0) for size in alternatives]
    return compute_sum_p_value(rows, [rank - 1 for rank in ranks], [1] * len(rows))[0]


def find_detectable_rank_share(alternatives: Sequence[int]) -> float:
    """Return the share of alternatives to rank above that a p-value at 5% finds four times in five.

    Args:
        alternatives: The number of alternatives of each set.

    Returns:
        The share, counted over all alternatives; above 1 if no ranks have such a p-value.
    """
    rows = [-np.arange(size + 1.0) for size in alternatives]
    share = 1 + find_detectable_sum(rows, [1] * len(rows)) / sum(alternatives)
    return _limit_detectable(share, _compute_deviation(rows) / sum(alternatives))


def _limit_detectable(share: float, deviation: float) -> float:
    """Return ``share``, or if nothing can be found a number above 1 that shows by how much the data fall short."""
    if math.isfinite(share):
        return share
    return max(detectable_auroc(deviation, LEVEL), math.nextafter(1.0, 2.0))


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
