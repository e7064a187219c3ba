"""Gap-K%: the gap between the text's token and the model's most likely token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from audit_pipeline.detectors.detector import Detector, Outcome, Parameter, Settings, by_group, reads_columns
from audit_pipeline.detectors.detector_inputs import TextStatistics
from audit_pipeline.detectors.min_k import WINDOW, K, compute_moving_means, find_deviation_failure, score_lowest_means


def compute_standardised_gaps(statistics: TextStatistics, variance_floor: float) -> npt.NDArray[np.float64]:
    """Compute (l_t - max log p) / sigma_t of each token, with sigma^2 raised to at least ``variance_floor``.

    A gap is 0 if the token is the argmax. If the floor is 0, a sigma of 0 yields a value that is not finite.

    Returns:
        A float64 array of shape (n,).
    """
    deviation = np.maximum(statistics.std.astype(np.float64), math.sqrt(variance_floor))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((statistics.logprob.astype(np.float64) - statistics.max_logprob) / deviation)


def _score_gap_k(statistics: TextStatistics, settings: Sequence[Settings]) -> list[Outcome]:
    """Score each setting by the mean of the lowest smoothed gaps.

    Gaps are smoothed by moving means over a window of tokens, and k is the share of the moving means that is averaged.
    If a text has fewer tokens than the window, its gaps are not smoothed, as in the authors' code.
    """
    failure = find_deviation_failure(statistics)
    if failure is not None:
        return [failure] * len(settings)

    def score_group(shared: Settings, group: Sequence[Settings]) -> list[Outcome]:
        gaps = compute_standardised_gaps(statistics, float(shared["variance_floor"]))
        window = int(shared["window"])
        if len(gaps) >= window:
            gaps = compute_moving_means(gaps, window)
        return score_lowest_means(gaps, group)

    return by_group(settings, ("variance_floor", "window"), score_group)


GAP_K = Detector(
    name="gap_k",
    title="Gap-K%",
    summary="mean of the k% lowest smoothed gaps between the text's token and the likeliest, in standard deviations",
    source="Kwak and Kim 2026 (Gap-K%)",
    passes="1",
    reads=reads_columns("max_logprob", "std"),
    compute=_score_gap_k,
    parameters={
        "k": replace(
            K, grid=(0.1, 0.2, 0.3, 0.5), description="the share of windows whose gaps are averaged: the lowest"
        ),
        "window": replace(
            WINDOW,
            default=3,
            grid=(1, 3, 6),
            description="the number of consecutive gaps that are averaged before the lowest are selected; the authors "
            "use 6 for Llama",
            quiet=False,
        ),
        "variance_floor": Parameter(
            default=1e-8,
            grid=(1e-8,),
            description="minimum of sigma_t^2, which divides a gap; one of the authors' scripts has no minimum",
            requirement="a number that is 0 or greater",
            accepts=lambda value: isinstance(value, float) and 0.0 <= value < math.inf,
            quiet=True,
        ),
    },
    equation=(
        "mean of the max(1, int(k * N)) lowest of the N = n - window + 1 moving means of g_t over `window` tokens in "
        "a row; g_t = (l_t - max log p(. | x_<t)) / max(sigma_t, 1e-4), 0 where x_t is the model's first choice; with "
        "n < window the n values g_t themselves"
    ),
    reported=(
        "Second-hand, from a note that quotes the paper's tables: an AUROC of 77.8, 78.4 and 77.4 on WikiMIA at 32, "
        "64 and 128 words, the mean of five models (Min-K%++ there: 75.7, 75.8 and 74.8), and 57.3 on MIMIR with "
        "Pythia 12B (57.1). The window was chosen by the family of models."
    ),
    also_reads=(
        "How many of the text's words are unusual at their position: rare names, numbers, style and date. "
        "Windows overlap, so one unusual passage counts several times. In a short text it decides the score."
    ),
)
