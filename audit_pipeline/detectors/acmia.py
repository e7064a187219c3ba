"""ACMIA: the text's tokens under the model's distribution, compared with the same distribution at another temperature.

The authors' code tries 51 temperatures. For each score it reports the temperature with the best AUROC on the same
labels. Here the inverse temperature beta is fixed in advance, at 0.5. This value is half way between the model's own
distribution (beta 1) and the uniform distribution (beta 0, for which AC is the loss). It is below 1, so that the
standard deviation does not go to 0 if the model is certain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from audit_pipeline.detectors.dc_pdd import find_first_occurrences
from audit_pipeline.detectors.detector import Detector, Outcome, Parameter, Settings, outcomes, to_canonical_value
from audit_pipeline.detectors.detector_inputs import Float64s, Need, Temperatures, TextStatistics
from audit_pipeline.tables import BETAS, SIGMA_FLOOR

TEMPERATURES: Need[Temperatures] = Need(
    "temperatures", "other temperatures (in the same pass)", ("log_sum_p_beta", "mean_at_beta", "std_at_beta")
)
"""The requirement of statistics of the distribution at every token's position, at other temperatures."""

_BETA_INDEX = {to_canonical_value(beta): index for index, beta in enumerate(BETAS)}
_BETAS_OF_NORM_AC = (1.0, *(beta for beta in BETAS if beta <= 2.0))


def compute_ac(statistics: TextStatistics, beta: float) -> Float64s:
    """Compute AC for the first occurrence of each token: the change of its log-probability due to the temperature.

    l is the log-probability of the token, and l(b) = b l - log sum p^b is its log-probability at the inverse
    temperature b. AC is l(beta) - l if beta > 1, else l - l(beta). It equals |1 - beta| (l + R_beta), with the Rényi
    entropy R_beta of order beta at the token's position.

    Returns:
        A float64 array of shape (n_distinct_tokens,), in nats.
    """
    logprob = statistics.logprob.astype(np.float64)
    difference = (beta - 1.0) * logprob - _compute_log_sum(statistics, beta)
    change = difference if beta > 1.0 else -difference
    return np.asarray(change[find_first_occurrences(statistics.token_id)])


def compute_norm_ac(statistics: TextStatistics, beta: float) -> Float64s:
    """Compute NormAC: l(beta) of each token's first occurrence, standardised by the distribution at that temperature.

    The standard deviation is raised to at least 1e-6, as for all detectors here. The authors add 1e-10 instead. A
    score is NaN if its standard deviation is not finite, because division by infinity would yield the valid score 0.

    Returns:
        A float64 array of shape (n_distinct_tokens,).
    """
    logprob_at_beta = beta * statistics.logprob.astype(np.float64) - _compute_log_sum(statistics, beta)
    if beta == 1.0:
        mean = statistics.mean
        std = statistics.std
    else:
        temperatures = statistics.get_extra(TEMPERATURES)
        index = _BETA_INDEX[to_canonical_value(beta)]
        mean = temperatures.mean[:, index]
        std = temperatures.std[:, index]
    sigma = np.where(np.isfinite(std), np.maximum(std.astype(np.float64), SIGMA_FLOOR), np.nan)
    scores = (logprob_at_beta - mean) / sigma
    return np.asarray(scores[find_first_occurrences(statistics.token_id)])


def _compute_log_sum(statistics: TextStatistics, beta: float) -> Float64s:
    """Return log sum p^beta of each of the n tokens, of shape (n,), float64."""
    if beta == 1.0:
        return np.full(len(statistics), np.log(1))
    temperatures = statistics.get_extra(TEMPERATURES)
    if beta == 0.0:
        return np.full(len(statistics), np.log(temperatures.vocab_size))
    return temperatures.log_sum_p_beta[:, _BETA_INDEX[to_canonical_value(beta)]].astype(np.float64)


def _score_mean(
    compute_token_scores: Callable[[TextStatistics, float], Float64s],
    statistics: TextStatistics,
    settings: Sequence[Settings],
) -> list[Outcome]:
    return outcomes(float(compute_token_scores(statistics, float(setting["beta"])).mean()) for setting in settings)


def _build_beta_parameter(values: Sequence[float]) -> Parameter:
    grid = sorted(map(float, map(to_canonical_value, values)))
    or_zero = ", or 0" if 0.0 in grid else ""
    return Parameter(
        default=0.5,
        grid=tuple(grid),
        description=(
            f"the inverse temperature: 2^(j/10) for a whole number j{or_zero}. The default is the same for all texts "
            "and uses no labels. The authors of the paper tune it on the labels of the texts whose results they report"
        ),
        requirement=f"2^(j/10) for a whole number j, from {min(filter(None, grid)):.3g} to {grid[-1]:.3g}{or_zero}",
        accepts=lambda value: to_canonical_value(value) in grid,
    )


_SOURCE = "Zare Zade et al., 2025, arXiv 2505.03392 (ACMIA)"
_REPORTED = (
    "Measured on WikiMIA, MIMIR and PatentMIA; no figure is given here. For the published gain, the temperature was "
    "chosen on the same labels that the gain is measured on. Here it is fixed beforehand."
)

ACMIA_AC = Detector(
    name="acmia_ac",
    title="ACMIA AC",
    summary="mean change of the log-likelihood of each token's first occurrence at another temperature",
    source=_SOURCE,
    passes="1",
    compute=partial(_score_mean, compute_ac),
    parameters={"beta": _build_beta_parameter((0.0, *BETAS))},
    needs=(TEMPERATURES,),
    on_request=True,
    equation=(
        "mean over first occurrences of l - l(beta), for beta > 1 of l(beta) - l; l(beta) = beta l - log(sum p^beta)"
    ),
    reported=_REPORTED,
    also_reads=(
        "How common the text's words are, and how certain the model is at their positions: AC is |1 - beta| times the "
        "mean of the sum of the log-likelihood and the position's Rényi entropy of order beta."
    ),
)

ACMIA_NORM_AC = Detector(
    name="acmia_norm_ac",
    title="ACMIA NormAC",
    summary="mean standardised log-likelihood of each token's first occurrence at another temperature",
    source=_SOURCE,
    passes="1",
    compute=partial(_score_mean, compute_norm_ac),
    parameters={"beta": _build_beta_parameter(_BETAS_OF_NORM_AC)},
    needs=(TEMPERATURES,),
    reads=lambda setting: ("mean", "std") if setting["beta"] == 1.0 else (),
    on_request=True,
    equation=(
        "mean over first occurrences of (l(beta) - mu(beta)) / sigma(beta); l(beta) is log q of the token, mu and "
        "sigma are mean and standard deviation of log q under q, and q is proportional to p^beta; beta is at most 2, "
        "because sigma(beta) goes to 0 for larger values"
    ),
    reported=_REPORTED,
    also_reads=(
        "The same as Min-K%++ at k = 1. At beta 1 the two differ only in repeated tokens, which this detector omits."
    ),
)
