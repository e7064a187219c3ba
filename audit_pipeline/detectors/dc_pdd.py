"""DC-PDD: the likelihood of a text's tokens, calibrated by their frequency in a reference corpus."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from audit_pipeline.detectors import detector
from audit_pipeline.detectors.detector_inputs import Need, TextStatistics, TokenFrequencies

NAME = "dc_pdd"

FREQUENCY_TABLE: Need[TokenFrequencies] = Need("frequencies", "frequency table")
"""The requirement of the frequency of each token in a reference corpus."""


def compute_calibrated_probabilities(logprob: npt.ArrayLike, log_frequency: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Compute alpha_t = -p(x_t) * log f(x_t) of each token (Zhang et al. 2024, eq. 6).

    Args:
        logprob: log p(x_t) in nats, of shape (n,).
        log_frequency: log f(x_t) in nats, of shape (n,).

    Returns:
        A float64 array of shape (n,).
    """
    return np.asarray(-np.exp(np.asarray(logprob, dtype=np.float64)) * np.asarray(log_frequency, dtype=np.float64))


def find_first_occurrences(token_ids: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """Return the position of each distinct token's first occurrence, ascending (FOS in Zhang et al. 2024, eq. 8)."""
    return np.sort(np.unique(np.asarray(token_ids), return_index=True)[1])


def _score_dc_pdd(statistics: TextStatistics, settings: Sequence[detector.Settings]) -> Sequence[detector.Outcome]:
    log_frequency = statistics.get_extra(FREQUENCY_TABLE).log_frequency
    is_outside = (statistics.token_id < 0) | (statistics.token_id >= len(log_frequency))
    if is_outside.any():
        token = int(statistics.token_id[is_outside][0])
        last = len(log_frequency) - 1
        reason = f"token {token} is not in the frequency table, which ends at token {last}. Rebuild token_frequencies."
        return [detector.Outcome.failed(reason)] * len(settings)
    probabilities = compute_calibrated_probabilities(statistics.logprob, log_frequency[statistics.token_id])

    def score_group(shared: detector.Settings, group: Sequence[detector.Settings]) -> list[detector.Outcome]:
        averaged = probabilities
        if shared["sfo"]:
            averaged = probabilities[find_first_occurrences(statistics.token_id)]
        means = []
        for setting in group:
            bound = float(setting["a"]) if setting["lup"] else np.inf
            means.append(float(np.minimum(averaged, bound).mean()))
        return detector.outcomes(means)

    return detector.by_group(settings, ("sfo",), score_group)


DC_PDD = detector.Detector(
    name=NAME,
    title="DC-PDD",
    summary="mean of p(x) * -log f(x) over each token's first occurrence, bounded by a; f from a reference corpus",
    source="Zhang et al., EMNLP 2024, eq. 4-8 (DC-PDD)",
    needs=(FREQUENCY_TABLE,),
    passes="1",
    compute=_score_dc_pdd,
    parameters={
        "a": detector.Parameter(
            default=0.01,
            grid=(0.001, 0.01, 0.1, 1.0, 10.0),
            description="upper bound of a token's calibrated probability (10 for BookMIA: Zhang et al. 2024, table 5)",
            requirement="a number above 0",
            accepts=lambda value: isinstance(value, float) and math.isfinite(value) and value > 0.0,
        ),
        "lup": detector.boolean_parameter(
            "limit each token's calibrated probability to the value of the parameter 'a' (Zhang et al. 2024, figure 2: "
            "LUP)"
        ),
        "sfo": detector.boolean_parameter(
            "average over the first occurrence of each token only (Zhang et al. 2024, figure 2: SFO)"
        ),
    },
    equation=(
        "mean over the first occurrence of each distinct token of min(a, -p(x_t | x_<t) * log f(x_t)), f = (count in "
        "the reference corpus + 1) / (tokens of the corpus + V)"
    ),
    reported=(
        "Zhang et al. 2024 (table 2): an AUC of 0.677 to 0.766 on WikiMIA for four models (Min-K%: 0.674 to 0.756), "
        "0.699 and 0.689 on PatentMIA for two, and 0.725 on BookMIA for GPT-3."
    ),
    also_reads=(
        "How far the text's subject is from the reference corpus. Tokens that are rare there but easy to guess in "
        "context, such as the second half of a name, raise the score of any text. The score depends on the corpus."
    ),
)
