"""The least likely tokens of a text: Min-K% and Min-K%++.

What belongs here: means of the lowest k% of a score that each token has. What does not: where the token statistics
come from (token_statistics/).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from audit_pipeline.catalogue.contracts import SIGMA_FLOOR
from audit_pipeline.detectors.detector import (
    Detector,
    Outcome,
    Parameter,
    ParameterValue,
    Settings,
    by_group,
    outcomes,
    switch,
)
from audit_pipeline.detectors.statistics import TextStatistics


def selected(n: int, k: float) -> int:
    """How many of n tokens k selects: max(1, int(n * k)), with n * k as a float64 product (int(90 * .7) is 62)."""
    return max(1, int(n * k))


def lowest_means(values: npt.ArrayLike, ks: Sequence[float]) -> npt.NDArray[np.float64]:
    """For each k the mean of the ``selected(n, k)`` lowest of n >= 1 values: [len(ks)], in float64.

    One sort and one running sum serve every k. Wherever a value is not finite, every mean is NaN: a sort would
    otherwise move a NaN to the end, where a small k does not look.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    if not (np.isfinite(ordered[0]) and np.isfinite(ordered[-1])):
        return np.full(len(ks), np.nan)
    sums = np.cumsum(ordered)
    counts = np.array([selected(len(ordered), k) for k in ks])
    return np.asarray(sums[counts - 1] / counts)


def z_scores(statistics: TextStatistics, *, mu: bool = True, sigma: bool = True) -> npt.NDArray[np.float64]:
    """(l_t - mu_t) / sigma_t of each token, sigma clamped at 1e-6 (Min-K%++, eq. 3): [n], float64.

    ``mu`` and ``sigma`` say whether the mean is subtracted and the deviation divided by.
    """
    values = statistics.logprob.astype(np.float64)
    if mu:
        values = values - statistics.mean
    if sigma:
        values = values / np.maximum(statistics.std.astype(np.float64), SIGMA_FLOOR)
    return np.asarray(values)


def _ks(settings: Sequence[Settings]) -> list[float]:
    return [float(setting["k"]) for setting in settings]


def _scored(values: npt.ArrayLike, settings: Sequence[Settings]) -> list[Outcome]:
    return outcomes(lowest_means(values, _ks(settings)).tolist())


def _min_k(statistics: TextStatistics, settings: Sequence[Settings]) -> list[Outcome]:
    return _scored(statistics.logprob, settings)


def _min_k_plus_plus(statistics: TextStatistics, settings: Sequence[Settings]) -> list[Outcome]:
    # An infinite sigma would pass as a z of 0.
    if not np.isfinite(statistics.std).all():
        return [Outcome.failed("a token's standard deviation is not a finite number")] * len(settings)

    def group(given: Settings, same: Sequence[Settings]) -> list[Outcome]:
        return _scored(z_scores(statistics, mu=bool(given["mu"]), sigma=bool(given["sigma"])), same)

    return by_group(settings, ("mu", "sigma"), group)


def _is_share(value: ParameterValue) -> bool:
    return isinstance(value, float) and 0.0 < value <= 1.0


K = Parameter(
    default=0.2,
    grid=tuple(step / 10 for step in range(1, 11)),
    description="the share of tokens, the lowest ones, that is averaged",
    requirement="a number above 0 and at most 1",
    accepts=_is_share,
)

MIN_K = Detector(
    name="min_k",
    summary="mean log-likelihood of the k% least likely tokens",
    source="Shi et al., ICLR 2024, eq. 1 (Min-K% Prob)",
    passes="1",
    own_logprobs_suffice=True,
    compute=_min_k,
    parameters={"k": K},
)

MIN_K_PLUS_PLUS = Detector(
    name="min_k_plus_plus",
    summary="mean of the k% lowest log-likelihoods, each standardised by its position's mean and standard deviation",
    source="Zhang et al., ICLR 2025, eq. 3 and 4 (Min-K%++)",
    passes="1",
    own_logprobs_suffice=False,
    compute=_min_k_plus_plus,
    parameters={
        "k": K,
        "mu": switch("subtract the mean of the position's distribution (Zhang et al. 2025, table 3)"),
        "sigma": switch("divide by the standard deviation of the position's distribution (Zhang et al. 2025, table 3)"),
    },
)
