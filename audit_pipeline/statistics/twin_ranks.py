"""The test of twins: a test of whether a model scores published versions of items above their secret versions.

Each item has several versions (twins). One version is drawn at random and published, and the others stay secret.
Without training, the scores do not depend on the draw, so each version was equally likely to be published. Given the
scores of all versions, the share of secret versions with a lower score than the published version then has a known
distribution. It is independent of the other items.
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
from audit_pipeline.statistics.claims import POWER, SMALLEST_P, compute_detectable_auroc
from audit_pipeline.statistics.group_means import TEST_LEVEL
from audit_pipeline.statistics.intervals import GroupedSides
from audit_pipeline.statistics.roc import SLACK, Floats
from audit_pipeline.statistics.share_bounds import describe_interval_method, estimate_grouped_rate

ASSUMPTION = (
    "Chance decided which version of an item was published, each being equally likely, "
    "and the others were never published or otherwise given away."
)
ALPHA = 0.05
REDRAWS = 99_999

Counts = npt.NDArray[np.int64]

# The maximum number of additions of a convolution. This many take some seconds.
_MAX_ADDITIONS = 2_000_000_000
# The maximum rounding error of the sum, relative to its standard deviation.
_MAX_RELATIVE_ROUNDING = 0.01


@dataclass(frozen=True)
class TwinComparison:
    """The result of a test of twins.

    Attributes:
        reason: Why the test is refused, or None. A refused test has no numbers.
        p_value: The probability that a random draw of the published versions has a sum of ranks at least as large.
        superiority: The share of an item's secret versions that score lower than the published version, averaged over
            items. Ties count half. It is 0.5 without training, and 1 if the published version always ranks first.
        superiority_low: The lower end of the 95% interval of ``superiority``.
        superiority_high: The upper end of the 95% interval of ``superiority``.
        items: The number of tested items.
        others: The number of secret versions of the tested items.
        left_out: The number of omitted items, which lack a score of some version.
        detectable_auroc: The superiority that a test at 5% detects with a power of 80% (:func:`find_detectable_sum`).
            It is above 1 if no superiority is detected so often.
        method: How the numbers were computed, in words.
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
    """Compute for each version of an item the share of other versions with a lower score. Ties count half.

    If a score is missing or not finite, all shares are NaN, so that the item is omitted. Otherwise the choice of items
    would depend on which version was published.

    Args:
        scores: The scores of the versions, of shape (n_versions,).

    Returns:
        Array of shape (n_versions,).

    Raises:
        DataError: If there are fewer than two versions.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or len(values) < 2:
        raise DataError(f"an item must have at least two versions, but has {values.size}")
    if not np.isfinite(values).all():
        return np.full(len(values), np.nan)
    ordered = np.sort(values)
    n_below = np.searchsorted(ordered, values, "left")
    n_up_to = np.searchsorted(ordered, values, "right")
    return np.asarray((n_below + n_up_to - 1) / (2 * (len(values) - 1)))


def compare_twins(
    shares: Sequence[Sequence[Floats]], published: Sequence[int], *, alpha: float = ALPHA
) -> TwinComparison:
    """Test whether the published versions of N items score above their secret versions, by several detectors together.

    The statistic is the mean share over items and detectors. An item has the same published version for all detectors.
    Their shares are therefore averaged per version, and the p-value needs no correction for the number of detectors.

    Args:
        shares: For each detector the N arrays of :func:`compute_rank_shares`, one per item.
        published: The index of the published version of each item.
        alpha: The level that the test must be able to reach.

    Returns:
        The result. The test is refused if no item has a score by every detector, or if even the highest rank in every
        item cannot reach ``alpha``.

    Raises:
        DataError: If the lengths differ.
    """
    lengths = {len(published), *map(len, shares)}
    if len(lengths) != 1 or not shares:
        raise DataError(f"each item must have a published version and shares, but the lengths are {sorted(lengths)}")
    rows: list[Floats] = []
    drawn: list[int] = []
    for item_shares, published_version in zip(zip(*shares, strict=True), published, strict=True):
        mean_shares = np.mean(item_shares, axis=0)
        if np.isfinite(mean_shares).all():
            rows.append(mean_shares)
            drawn.append(published_version)
    sizes = [len(row) for row in rows]
    left_out = len(published) - len(rows)
    others = sum(sizes) - len(rows)
    min_size = min(sizes, default=0)
    max_size = max(sizes, default=0)
    size_range = f"{min_size}" if min_size == max_size else f"{min_size} to {max_size}"
    method = f"rank of the published version among {size_range} of {len(rows)} items"
    reason = _explain_refusal(sizes, alpha)
    if reason is not None:
        return TwinComparison(reason, None, None, None, None, len(rows), others, left_out, None, method)
    # A share is a multiple of 1 / (2 * (size - 1)). The mean of D detectors is a multiple of 1 / (2 * D * (size - 1)).
    units = [2 * len(shares) * (size - 1) for size in sizes]
    p_value, p_value_method = compute_sum_p_value(rows, drawn, units)
    values = np.array([row[version] for row, version in zip(rows, drawn, strict=True)])
    low, high, interval_method = _measure_interval(values)
    detectable = _limit_detectable(find_detectable_sum(rows, units) / len(rows), _compute_deviation(rows) / len(rows))
    return TwinComparison(
        reason=None,
        p_value=p_value,
        superiority=float(values.mean()),
        superiority_low=low,
        superiority_high=high,
        items=len(rows),
        others=others,
        left_out=left_out,
        detectable_auroc=detectable,
        method=f"{method}: sum of ranks, {p_value_method}; {interval_method}",
    )


def compute_sum_p_value(rows: Sequence[Floats], drawn: Sequence[int], units: Sequence[int]) -> tuple[float, str]:
    """Return the probability of a sum at least as large as the drawn one, and its method.

    The sum is over one value of each row. Every value of a row is equally likely. Ties are allowed.

    Args:
        rows: Arrays of shape (k_i,). The values of row i are multiples of 1 / ``units[i]``.
        drawn: The index of the drawn value in each row.
        units: A whole number for each row.

    Returns:
        The p-value, at least ``SMALLEST_P``, and its method in words. There are three methods:

        1. If the convolution of the rows is small enough, the p-value is exact.
        2. Otherwise the values are rounded to a common grid, so that the p-value can only rise. The rounding must be
           small relative to the standard deviation of the sum.
        3. Otherwise the p-value is estimated by 99,999 random draws. The actual draw is counted as well, which keeps
           the p-value valid.
    """
    deficits = _count_deficits(rows, units)
    # The deficit of a sum is its distance from the largest possible sum. Fractions represent it exactly.
    parts = [Fraction(int(row[index]), unit) for row, index, unit in zip(deficits, drawn, units, strict=True)]
    deficit = sum(parts, Fraction(0))
    grid = math.lcm(*units)
    method = "exact by convolution"
    if deficit and _count_additions(deficits, math.floor(deficit * grid)) > _MAX_ADDITIONS:
        grid = _choose_grid(deficits, deficit)
        method = f"by convolution, ranks rounded to 1/{grid:,} so that p can only rise"
        if grid * _MAX_RELATIVE_ROUNDING * _compute_deviation(rows) < len(rows):
            return _redraw_sum_p(deficits, units, float(deficit)), f"{REDRAWS + 1:,} draws"
    probability = _convolve(deficits, units, grid, math.floor(deficit * grid))
    return float(min(1.0, max(SMALLEST_P, probability.sum()))), method


def find_detectable_sum(rows: Sequence[Floats], units: Sequence[int]) -> float:
    """Return the smallest expected sum that a test at 5% detects with a power of 80%.

    The result is infinite if no sum has a p-value of at most 5%. The effect of training is modelled as follows: a value
    v is drawn with a probability proportional to exp(t v). Among all distributions with the same expected sum, this one
    is closest to the uniform distribution. It weights the distribution of the sum by exp(t sum), so one convolution
    yields the power at every t. For two versions per item this is the power of the binomial test. If the convolution is
    too large, the normal approximation is used.

    Args:
        rows: The rows, see :func:`compute_sum_p_value`.
        units: The units, see :func:`compute_sum_p_value`.
    """
    deficits = _count_deficits(rows, units)
    unit = math.lcm(*units)
    highest = sum(float(row.max()) for row in rows)
    largest = sum(int(row.max()) * unit // row_unit for row, row_unit in zip(deficits, units, strict=True))
    if _count_additions(deficits, largest) > _MAX_ADDITIONS:
        mean = sum(float(row.mean()) for row in rows)
        return mean + (compute_detectable_auroc(_compute_deviation(rows), TEST_LEVEL) - 0.5)
    probability = _convolve(deficits, units, unit, largest)
    n_significant = int(np.searchsorted(np.cumsum(probability), TEST_LEVEL * (1 + SLACK), side="right"))
    if not n_significant:
        return math.inf
    possible = np.flatnonzero(probability)
    distances = possible / unit
    logarithms = np.log(probability[possible])

    def compute_weights(tilt: float) -> Floats:
        exponents = logarithms - tilt * distances
        weights = np.exp(exponents - exponents.max())
        return np.asarray(weights / weights.sum())

    def compute_excess_power(tilt: float) -> float:
        return float(compute_weights(tilt)[possible < n_significant].sum()) - POWER

    max_tilt = 1.0
    while compute_excess_power(max_tilt) < 0:
        max_tilt *= 2
    tilt = float(brentq(compute_excess_power, 0.0, max_tilt))
    return highest - float(compute_weights(tilt) @ distances)


def _count_deficits(rows: Sequence[Floats], units: Sequence[int]) -> list[Counts]:
    """Return the distance of each value from the largest value of its row, in units."""
    multiples = [np.rint(row * unit).astype(np.int64) for row, unit in zip(rows, units, strict=True)]
    return [row.max() - row for row in multiples]


def _count_additions(deficits: Sequence[Counts], largest: int) -> int:
    return (largest + 1) * sum(len(np.unique(row)) for row in deficits)


def _choose_grid(deficits: Sequence[Counts], deficit: Fraction) -> int:
    """Return the finest grid with a small enough convolution up to ``deficit``, or 0 if every grid is too fine."""
    return max(0, math.floor((_MAX_ADDITIONS // _count_additions(deficits, 0) - 1) / deficit))


def _compute_deviation(rows: Sequence[Floats]) -> float:
    return math.sqrt(sum(float(np.var(row)) for row in rows))


def _convolve(deficits: Sequence[Counts], units: Sequence[int], grid: int, largest: int) -> Floats:
    """Return the probability of each sum of deficits, if one value is drawn at random from each row.

    Args:
        deficits: The distance of each value from the largest value of its row, in units of the row.
        units: Number of units per 1, for each row.
        grid: Number of grid steps per 1. Each deficit is rounded down to whole steps.
        largest: The largest sum to compute, in steps.

    Returns:
        Float array of shape (largest + 1,): the probability of each sum in steps.
    """
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
    generator = np.random.default_rng(0)
    sums = np.zeros(REDRAWS)
    for row, unit in zip(deficits, units, strict=True):
        sums += (row / unit)[generator.integers(len(row), size=REDRAWS)]
    # The rounding error of n divisions and n additions is at most half of epsilon each, relative to the deficit.
    rounding = (len(units) + 1) * np.finfo(np.float64).eps * deficit
    return float(1 + np.count_nonzero(sums <= deficit + rounding)) / (REDRAWS + 1)


def compute_rank_sum_p(ranks: Sequence[int], alternatives: Sequence[int]) -> float:
    """Return the p-value of a sum of ranks: the probability that uniform ranks have an equal or smaller sum.

    Args:
        ranks: The rank of each of S sets, from 1 to its number of alternatives + 1.
        alternatives: The number of alternatives of each set.

    Returns:
        The p-value of :func:`compute_sum_p_value`, at least ``SMALLEST_P``.

    Raises:
        DataError: If the lengths differ, there is no rank, or a rank is out of range.
    """
    if not len(ranks) or len(ranks) != len(alternatives):
        raise DataError(
            f"there must be one number of alternatives per rank, but there are {len(alternatives)} for "
            f"{len(ranks)} ranks"
        )
    if any(not 1 <= rank <= size + 1 for rank, size in zip(ranks, alternatives, strict=True)):
        raise DataError("a rank is not between 1 and the number of alternatives + 1")
    rows = [-np.arange(size + 1.0) for size in alternatives]
    return compute_sum_p_value(rows, [rank - 1 for rank in ranks], [1] * len(rows))[0]


def find_detectable_rank_share(alternatives: Sequence[int]) -> float:
    """Return the smallest share of outranked alternatives that a test at 5% detects with a power of 80%.

    Args:
        alternatives: The number of alternatives of each set.

    Returns:
        The share among the alternatives of all sets. It is above 1 if no ranks have a p-value of at most 5%.
    """
    rows = [-np.arange(size + 1.0) for size in alternatives]
    share = 1 + find_detectable_sum(rows, [1] * len(rows)) / sum(alternatives)
    return _limit_detectable(share, _compute_deviation(rows) / sum(alternatives))


def _limit_detectable(share: float, deviation: float) -> float:
    """Return the share if it is finite, else a number above 1. The fewer the data, the larger is that number."""
    if math.isfinite(share):
        return share
    return max(compute_detectable_auroc(deviation, TEST_LEVEL), math.nextafter(1.0, 2.0))


def _explain_refusal(sizes: Sequence[int], alpha: float) -> str | None:
    if not sizes:
        return "no item has a score of every version"
    reachable = math.exp(-sum(map(math.log, sizes)))
    # The tolerance covers rounding: exp(log(1/20)) may slightly exceed 0.05 and must still count as 0.05.
    if reachable <= alpha * (1 + 1e-12):
        return None
    needed = math.ceil(1 / alpha - 1e-9)
    return (
        f"no rank can give a p-value of {alpha:g}: the smallest that these versions allow is {reachable:.3g}. Use more "
        f"items, or {needed} versions of a single item"
    )


def _measure_interval(values: Floats) -> tuple[float | None, float | None, str]:
    """Return both ends of the 95% interval of the mean of values from 0 to 1, and its method.

    The interval is computed on the logit scale from the variance over items (intervals.py). If the items hardly vary,
    it is the interval of a share (share_bounds.py).

    Args:
        values: The values, of shape (n_items,).
    """
    items = np.arange(len(values))
    mean = float(values.mean())
    sides = GroupedSides(items, np.ones(len(values)))
    scatter = sides.compute_scatter(sides.compute_influences(values))
    if scatter is None or min(mean, 1 - mean) * len(values) <= 0.5:
        rate = estimate_grouped_rate(values, items)
        return rate.low, rate.high, describe_interval_method(rate, "items")
    half_width = scatter.compute_half_width() / (mean * (1 - mean))
    low, high = map(float, expit(logit(mean) + np.array([-half_width, half_width])))
    return low, high, f"95% interval by the variance over items, on the logit scale, {scatter.description}"
