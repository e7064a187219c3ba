"""ACMIA: a text's tokens under the model's distribution and under the same at another temperature.

The authors' code goes through 51 temperatures and keeps, for each score, the one with the best AUROC on the labels that
it then reports. Here beta is fixed beforehand, at 0.5: half way from the model's own distribution (beta 1) to the
uniform one (beta 0, where AC is the loss), and below 1, so that no deviation goes to 0 where the model is sure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from audit_pipeline.detectors.dc_pdd import first_occurrences
from audit_pipeline.detectors.detector import Detector, Outcome, Parameter, Settings, outcomes, to_canonical_value
from audit_pipeline.detectors.detector_inputs import Float64s, Need, Temperatures, TextStatistics
from audit_pipeline.tables import BETAS, SIGMA_FLOOR

TEMPERATURES: Need[Temperatures] = Need(
    "temperatures", "other temperatures (in the same pass)", ("log_sum_p_beta", "mean_at_beta", "std_at_beta")
)
"""The distribution at every token's position at other temperatures."""

_PLACES = {to_canonical_value(beta): place for place, beta in enumerate(BETAS)}
_LARGEST_OF_NORM_AC = 2.0


def ac(statistics: TextStatistics, beta: float) -> Float64s:
    """How much of each first occurrence's log-probability is the temperature's: [distinct tokens], float64.

    With l(b) = b l - log sum p^b, the log-probability at the inverse temperature b: l(beta) - l for beta > 1, else
    l - l(beta). It is |1 - beta| (l + R_beta), R_beta being the position's Rényi entropy.
    """
    logprob = statistics.logprob.astype(np.float64)
    difference = (beta - 1.0) * logprob - _log_sum(statistics, beta)
    return np.asarray((difference if beta > 1.0 else -difference)[first_occurrences(statistics.token_id)])


def norm_ac(statistics: TextStatistics, beta: float) -> Float64s:
    """Each first occurrence's l(beta), standardised by mean and deviation at that temperature: [distinct tokens].

    The deviation is at least 1e-6, as everywhere here; the authors add 1e-10 to it. NaN where the deviation is not
    finite: divided by infinity, a value would pass as 0.
    """
    own = beta * statistics.logprob.astype(np.float64) - _log_sum(statistics, beta)
    if beta == 1.0:
        mean, std = statistics.mean, statistics.std
    else:
        temperatures, place = statistics.of(TEMPERATURES), _PLACES[to_canonical_value(beta)]
        mean, std = temperatures.mean[:, place], temperatures.std[:, place]
    sigma = np.where(np.isfinite(std), np.maximum(std.astype(np.float64), SIGMA_FLOOR), np.nan)
    scores = (own - mean) / sigma
    return np.asarray(scores[first_occurrences(statistics.token_id)])


def _log_sum(statistics: TextStatistics, beta: float) -> Float64s:
    """log sum p^beta of each of the n tokens: [n], float64."""
    if beta in (0.0, 1.0):
        vocab_size = statistics.of(TEMPERATURES).vocab_size if beta == 0.0 else 1
        return np.full(len(statistics), np.log(vocab_size))
    return statistics.of(TEMPERATURES).log_sum_p_beta[:, _PLACES[to_canonical_value(beta)]].astype(np.float64)


def _score_mean(
    token_scores: Callable[[TextStatistics, float], Float64s], statistics: TextStatistics, settings: Sequence[Settings]
) -> list[Outcome]:
    return outcomes(float(token_scores(statistics, float(setting["beta"])).mean()) for setting in settings)


def _build_beta_parameter(values: Sequence[float]) -> Parameter:
    grid = sorted(map(float, map(to_canonical_value, values)))
    return Parameter(
        default=0.5,
        grid=tuple(grid),
        description=(
            f"the inverse temperature: 2^(j/10) for some whole j{', or 0' if 0.0 in grid else ''}; the default is "
            "fixed beforehand, where the authors choose it on the labels that they report"
        ),
        requirement="one of the values of its grid",
        accepts=lambda value: to_canonical_value(value) in grid,
    )


_SOURCE = "Zare Zade et al., 2025, arXiv 2505.03392 (ACMIA)"
_REPORTED = (
    "Measured on WikiMIA, MIMIR and PatentMIA; no figure is given here. The published gain chooses the temperature on "
    "the labels that it is measured on; here it is fixed beforehand."
)

ACMIA_AC = Detector(
    name="acmia_ac",
    title="ACMIA AC",
    summary="mean change of the log-likelihood of each token's first occurrence at another temperature",
    source=_SOURCE,
    passes="1",
    compute=partial(_score_mean, ac),
    parameters={"beta": _build_beta_parameter((0.0, *BETAS))},
    needs=(TEMPERATURES,),
    on_request=True,
    equation=(
        "mean over first occurrences of l - l(beta), for beta > 1 of l(beta) - l; l(beta) = beta l - log(sum p^beta)"
    ),
    reported=_REPORTED,
    also_reads=(
        "How common the text's words are, and how sure the model is there: AC is |1 - beta| times the mean "
        "of the log-likelihood and the position's Rényi entropy of order beta together."
    ),
)

ACMIA_NORM_AC = Detector(
    name="acmia_norm_ac",
    title="ACMIA NormAC",
    summary="mean standardised log-likelihood of each token's first occurrence at another temperature",
    source=_SOURCE,
    passes="1",
    compute=partial(_score_mean, norm_ac),
    parameters={"beta": _build_beta_parameter((1.0, *(beta for beta in BETAS if beta <= _LARGEST_OF_NORM_AC)))},
    needs=(TEMPERATURES,),
    reads=lambda setting: ("mean", "std") if setting["beta"] == 1.0 else (),
    on_request=True,
    equation=(
        "mean over first occurrences of (l(beta) - mu(beta)) / sigma(beta), the mean and deviation of log q under q, "
        "which is proportional to p^beta; beta at most 2, since sigma(beta) goes to 0 above"
    ),
    reported=_REPORTED,
    also_reads="What Min-K%++ at k = 1 reads, which it is at beta 1 but for the tokens that occur again.",
)
