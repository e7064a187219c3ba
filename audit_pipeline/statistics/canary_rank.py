"""The rank test of random canaries: the rank of a published canary among those that were never published.

A publisher draws 1 + K texts from one distribution, publishes one of them, chosen by chance, and keeps the others
secret. If the model was not trained on the published canary, each of the K + 1 was equally likely to be it: its rank by
any score is uniform on 1 … K + 1, whatever the model and the texts are. Several sets are drawn independently of each
other, so, given all scores, their ranks are independent too, and the distribution of their sum is a convolution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from audit_pipeline.errors import DataError

ASSUMPTION = (
    "Chance decided which canary of a set was published, each being equally likely, "
    "and the others were never published or otherwise given away."
)
ALPHA = 0.05

_SMALLEST_P = 1e-300


@dataclass(frozen=True)
class CanaryRank:
    """The test's result: one rank (1: the highest score) and one p-value per set, and the p-value of all together.

    ``statistic`` is the mean rank; ``n_alternatives`` counts those of all sets. Where ``status`` is ``refused``,
    ``reason`` says why and there is neither p-value nor statistic.
    """

    reason: str | None
    p_value: float | None
    statistic: float | None
    ranks: tuple[int, ...]
    n_alternatives: int
    method: str
    assumption: str = ASSUMPTION

    @property
    def status(self) -> Literal["ok", "refused"]:
        return "ok" if self.reason is None else "refused"


def canary_rank_test(
    published: npt.ArrayLike, alternatives: Sequence[npt.ArrayLike], *, alpha: float = ALPHA
) -> CanaryRank:
    """Run the rank test of S published canaries (scores [S]) against the alternatives of their sets (S rows of K_s).

    A set's p-value is (1 + #{alternatives with a score >= the published canary's}) / (K + 1): exact without ties, and
    conservative with them. All sets together: the probability of a sum of ranks as small as this one, exact by
    convolution; of one set it is that set's p-value. It is refused where a canary has no finite score, and where even
    the highest rank in every set could not reach ``alpha``. Raises DataError for unequal lengths or no set.
    """
    scores = np.asarray(published, dtype=np.float64)
    others = [np.asarray(alternative, dtype=np.float64) for alternative in alternatives]
    if scores.ndim != 1 or not len(scores) or len(scores) != len(others):
        raise DataError(f"one published canary for each set is needed: {scores.size} of {len(others)} sets")
    sizes = [len(other) for other in others]
    low, high = min(sizes), max(sizes)
    among = str(low) if low == high else f"{low} to {high}"
    method = f"rank of the published canary among {among} alternatives"
    if len(sizes) > 1:
        method += f", {len(sizes)} sets: sum of ranks, exact by convolution"
    reason = _explain_refusal(scores, others, alpha)
    if reason is not None:
        return CanaryRank(reason, None, None, (), sum(sizes), method)
    ranks = tuple(rank_of(score, row) for score, row in zip(scores, others, strict=True))
    p_value = rank_sum_p(ranks, sizes)
    return CanaryRank(None, p_value, float(np.mean(ranks)), ranks, sum(sizes), method)


def rank_of(score: float, alternatives: npt.ArrayLike) -> int:
    """1 + the number of ``alternatives`` [K] with at least ``score``: 1 is the highest, ties count against it."""
    return 1 + int(np.count_nonzero(np.asarray(alternatives, dtype=np.float64) >= score))


def rank_sum_p(ranks: Sequence[int], alternatives: Sequence[int]) -> float:
    """Return the probability that S independent ranks, uniform on 1 … K_s + 1, have a sum of at most that of ``ranks``.

    ``alternatives`` are the K_s. Exact but for rounding; below 1e-300 it is given as 1e-300. Raises DataError for
    unequal lengths, no rank, or one that is not among 1 … K_s + 1.
    """
    if not len(ranks) or len(ranks) != len(alternatives):
        raise DataError(f"one number of alternatives for each rank is needed: {len(ranks)} and {len(alternatives)}")
    if any(not 1 <= rank <= size + 1 for rank, size in zip(ranks, alternatives, strict=True)):
        raise DataError("a rank is not between 1 and the number of alternatives + 1")
    largest = sum(ranks) - len(ranks)
    # Of the sum of ranks counted from 0, no more than is asked for: memory goes with the sum that was seen.
    probability = np.zeros(largest + 1)
    probability[0] = 1.0
    for size in alternatives:
        below = np.cumsum(probability)
        probability = below.copy()
        probability[size + 1 :] -= below[: -(size + 1)]
        probability /= size + 1
    return float(min(1.0, max(_SMALLEST_P, probability.sum())))


def smallest_p(alternatives: Sequence[int]) -> float:
    """Return the smallest p-value that sets of so many alternatives can give: every published canary ranks first."""
    return math.exp(-sum(math.log(size + 1) for size in alternatives))


def _explain_refusal(
    scores: npt.NDArray[np.float64], others: Sequence[npt.NDArray[np.float64]], alpha: float
) -> str | None:
    for place, (score, row) in enumerate(zip(scores, others, strict=True), start=1):
        n_lacking = int(not np.isfinite(score)) + int(np.count_nonzero(~np.isfinite(row)))
        if n_lacking:
            return f"{n_lacking} canar{'y' if n_lacking == 1 else 'ies'} of set {place} without a score"
    reachable = smallest_p([len(other) for other in others])
    # A hair's breadth: exp and log of 1/20 must not forbid 0.05.
    if reachable > alpha * (1 + 1e-12):
        return (
            f"no rank could give a p-value of {alpha:g}: the smallest that these alternatives allow is "
            f"{reachable:.3g}; one set needs at least {math.ceil(1 / alpha - 1e-9) - 1} alternatives"
        )
    return None
