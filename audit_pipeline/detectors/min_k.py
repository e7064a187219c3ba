"""The least likely tokens of a text: Min-K% and Min-K%++."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from audit_pipeline.detectors import detector
from audit_pipeline.detectors.detector_inputs import TextStatistics
from audit_pipeline.tables import SIGMA_FLOOR


def count_selected(n: int, k: float) -> int:
    """Return the number of tokens that the share k of n tokens selects: max(1, int(n * k)).

    n * k is a float64 product, which may be slightly below a whole number: int(90 * .7) is 62.
    """
    return max(1, int(n * k))


def compute_lowest_means(values: npt.ArrayLike, ks: Sequence[float]) -> npt.NDArray[np.float64]:
    """Compute for each k the mean of the ``count_selected(n, k)`` lowest of n >= 1 values.

    One sort and one running sum serve every k. If a value is not finite, every mean is NaN. Without this rule, the sort
    would move NaN to the end, and a small k would never read it.

    Returns:
        A float64 array of shape (len(ks),).
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    if not (np.isfinite(ordered[0]) and np.isfinite(ordered[-1])):
        return np.full(len(ks), np.nan)
    sums = np.cumsum(ordered)
    counts = np.array([count_selected(len(ordered), k) for k in ks])
    return np.asarray(sums[counts - 1] / counts)


def compute_moving_means(values: npt.ArrayLike, window: int) -> npt.NDArray[np.float64]:
    """Compute the mean of each run of ``window`` consecutive values.

    Returns:
        A float64 array of shape (max(0, n - window + 1),). A window of 1 returns the values unchanged.
    """
    exact = np.asarray(values, dtype=np.float64)
    if window == 1:
        return exact
    if len(exact) < window:
        return exact[:0]
    return np.asarray(sliding_window_view(exact, window).mean(axis=1))


def find_deviation_failure(statistics: TextStatistics) -> detector.Outcome | None:
    """Return a failure if a token's sigma is not finite, else None.

    Division by an infinite sigma would yield the valid score 0.
    """
    if np.isfinite(statistics.std).all():
        return None
    return detector.Outcome.failed(
        "the standard deviation of the model's log-probabilities at a token is infinite or not a number"
    )


def compute_z_scores(
    statistics: TextStatistics, *, with_mean: bool = True, with_std: bool = True
) -> npt.NDArray[np.float64]:
    """Compute z_t = (l_t - mu_t) / sigma_t of each token, with sigma clamped at 1e-6 (Min-K%++, eq. 3).

    Args:
        statistics: The statistics of a text with n scored tokens.
        with_mean: False omits the subtraction of mu_t, as in the ablation of the paper.
        with_std: False omits the division by sigma_t, as in the ablation of the paper.

    Returns:
        A float64 array of shape (n,).
    """
    values = statistics.logprob.astype(np.float64)
    if with_mean:
        values = values - statistics.mean
    if with_std:
        values = values / np.maximum(statistics.std.astype(np.float64), SIGMA_FLOOR)
    return np.asarray(values)


def score_lowest_means(values: npt.ArrayLike, settings: Sequence[detector.Settings]) -> list[detector.Outcome]:
    """Score each setting by the mean of the lowest values, whose share is ``k``. There must be n >= 1 values."""
    return detector.outcomes(compute_lowest_means(values, [float(setting["k"]) for setting in settings]).tolist())


def _score_windows(values: npt.NDArray[np.floating], settings: Sequence[detector.Settings]) -> list[detector.Outcome]:
    """Score each setting by the mean of the lowest moving means. ``k`` is their share of all moving means."""

    def score_group(shared: detector.Settings, group: Sequence[detector.Settings]) -> list[detector.Outcome]:
        window = int(shared["window"])
        if len(values) < window:
            # The reason omits the number of tokens, because texts without a score are counted by their reason.
            reason = f"the text has fewer than {window} scored tokens, the length of a window"
            return [detector.Outcome.not_applicable(reason)] * len(group)
        return score_lowest_means(compute_moving_means(values, window), group)

    return detector.by_group(settings, ("window",), score_group)


def _score_min_k_plus_plus(statistics: TextStatistics, settings: Sequence[detector.Settings]) -> list[detector.Outcome]:
    failure = find_deviation_failure(statistics)
    if failure is not None:
        return [failure] * len(settings)

    def score_group(shared: detector.Settings, group: Sequence[detector.Settings]) -> list[detector.Outcome]:
        values = compute_z_scores(statistics, with_mean=bool(shared["mu"]), with_std=bool(shared["sigma"]))
        return _score_windows(values, group)

    return detector.by_group(settings, ("mu", "sigma"), score_group)


def is_count(value: detector.ParameterValue) -> bool:
    """Return True if ``value`` is a whole number above 0."""
    return type(value) is int and value >= 1


K = detector.Parameter(
    default=0.2,
    grid=tuple(step / 10 for step in range(1, 11)),
    description="the share of tokens whose scores are averaged: the tokens with the lowest scores",
    requirement="a number above 0 and at most 1",
    accepts=lambda value: isinstance(value, float) and 0.0 < value <= 1.0,
)

WINDOW = detector.Parameter(
    default=1,
    grid=(1, 3),
    description=(
        "the number of consecutive tokens whose values are averaged before the lowest are selected (Win-k); 1 leaves "
        "the values unchanged; a text with fewer scored tokens has no score at this setting (not_applicable, with the "
        "reason)"
    ),
    requirement="a whole number above 0",
    accepts=is_count,
    quiet=True,
)

MIN_K = detector.Detector(
    name="min_k",
    title="Min-K%",
    summary="mean log-likelihood of the k% least likely tokens",
    source="Shi et al., ICLR 2024, eq. 1 (Min-K% Prob); window: Arkhmammadova et al. 2025 (Win-k)",
    passes="1",
    compute=lambda statistics, settings: _score_windows(statistics.logprob, settings),
    parameters={"k": K, "window": WINDOW},
    equation=(
        "mean of the max(1, int(k * N)) lowest of the N = n - window + 1 moving means of l_t = log p(x_t | x_<t) over "
        "`window` tokens in a row; with window 1 these are the n values l_t themselves"
    ),
    reported=(
        "Shi et al. 2024 (table 1): an AUC of 0.72 on WikiMIA, the mean of five models and of original and "
        "paraphrased texts (the loss: 0.67); 0.88 on excerpts of books for GPT-3 (figure 3). Window: no figure is "
        "given here."
    ),
    also_reads=(
        "Rare words: names, numbers and typing errors are among the lowest tokens whether or not the text was seen. "
        "Topic, style and date of a text change them, too. In short texts a single token decides."
    ),
)

MIN_K_PLUS_PLUS = detector.Detector(
    name="min_k_plus_plus",
    title="Min-K%++",
    summary="mean of the k% lowest log-likelihoods, each standardised by its position's mean and standard deviation",
    source="Zhang et al., ICLR 2025, eq. 3 and 4 (Min-K%++)",
    passes="1",
    reads=detector.reads_columns("mean", "std"),
    compute=_score_min_k_plus_plus,
    parameters={
        "k": K,
        "mu": detector.boolean_parameter(
            "subtract the mean of the position's distribution (Zhang et al. 2025, table 3)"
        ),
        "sigma": detector.boolean_parameter(
            "divide by the standard deviation of the position's distribution (Zhang et al. 2025, table 3)"
        ),
        "window": WINDOW,
    },
    equation=(
        "mean of the max(1, int(k * N)) lowest of the N = n - window + 1 moving means of z_t over `window` tokens in "
        "a row; z_t = (l_t - mu_t) / max(sigma_t, 1e-6), where mu_t and sigma_t are the mean and the standard "
        "deviation of log p(. | x_<t) under the model's own distribution"
    ),
    reported=(
        "Zhang et al. 2025 (table 1): an AUROC of 78.3, 78.6 and 77.2 on WikiMIA at 32, 64 and 128 words, the mean of "
        "five models (Min-K%: 67.8, 66.3 and 71.0); 52.4 to 58.7 on MIMIR with Pythia of 160M to 12B (table 2). "
        "Window, second-hand: a note on the paper of Gap-K% quotes 73.8 where plain Min-K%++ has 72.6."
    ),
    also_reads=(
        "How unusual the text's words are at their position, and thus style, topic and date. If the model is nearly "
        "certain, sigma_t is small, and a single unusual token has a large weight."
    ),
)
