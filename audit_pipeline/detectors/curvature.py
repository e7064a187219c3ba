"""The curvature of Fast-DetectGPT: how much likelier the text is than texts that the model itself would write."""

from __future__ import annotations

import math

import numpy as np

from audit_pipeline.detectors.detector import Detector, Outcome, for_all_settings, reads_columns
from audit_pipeline.detectors.detector_inputs import TextStatistics
from audit_pipeline.detectors.loss import divide_finite


def _score_curvature(statistics: TextStatistics) -> Outcome:
    difference = float(np.sum(statistics.logprob, dtype=np.float64) - np.sum(statistics.mean, dtype=np.float64))
    variance = float(np.sum(np.square(statistics.std, dtype=np.float64)))
    if variance == 0:
        return Outcome.not_applicable("the standard deviation is 0 at every token, and the score divides by it")
    return Outcome.from_score(divide_finite(difference, math.sqrt(variance)))


CURVATURE = Detector(
    name="curvature",
    title="Fast-DetectGPT curvature",
    summary="log-likelihood of the text minus what the model expects, in standard deviations of the whole text",
    source="Bao et al., ICLR 2024 (Fast-DetectGPT, analytic form)",
    passes="1",
    reads=reads_columns("mean", "std"),
    compute=for_all_settings(_score_curvature),
    equation=(
        "(sum of l_t - sum of mu_t) / sqrt(sum of sigma_t^2) over the n scored tokens; mu_t and sigma_t are the mean "
        "and the standard deviation of log p(. | x_<t) under the model's own distribution"
    ),
    reported=("The authors designed it to detect machine-written texts, not members. No result for members is cited."),
    also_reads=(
        "Whether a machine wrote the text, which is its original purpose: generated texts score high, members or not. "
        "Its size grows with the square root of the length, so only texts of one length can be compared."
    ),
)
