"""Max-Rényi-K%: the entropy of the model's distribution at the positions of highest entropy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from audit_pipeline.detectors.detector import Detector, Outcome, Parameter, Settings, by_group, outcomes
from audit_pipeline.detectors.detector_inputs import Float64s, Need, PowerSums, TextStatistics
from audit_pipeline.detectors.min_k import compute_lowest_means

POWER_SUMS: Need[PowerSums] = Need("renyi", "sums of powers (in the same pass)", ("log_sum_p2", "log_sum_sqrt_p"))
"""The requirement of sums of powers of the probabilities at every token's position."""

ORDERS_OF_POWER_SUMS = ("0.5", "2")
"""The orders whose entropy is computed from :data:`POWER_SUMS`. The others need only the statistics of every text."""


def compute_renyi_entropy(statistics: TextStatistics, alpha: str) -> Float64s:
    """Compute the Rényi entropy of order ``alpha`` of the model's distribution at each of the n tokens.

    R_0.5 = 2 log sum sqrt(p), with p at least 1e-10 as in the authors' code; R_1 = -sum p log p; R_2 = -log sum p^2;
    R_inf = -log max p. The orders in ``ORDERS_OF_POWER_SUMS`` require that the need POWER_SUMS is met.

    Returns:
        A float64 array of shape (n,), in nats.
    """
    if alpha == "1":
        return np.asarray(-statistics.mean.astype(np.float64))
    if alpha == "inf":
        return np.asarray(-statistics.max_logprob.astype(np.float64))
    sums = statistics.get_extra(POWER_SUMS)
    if alpha == "2":
        return np.asarray(-sums.log_sum_p2.astype(np.float64))
    return np.asarray(2.0 * sums.log_sum_sqrt_p.astype(np.float64))


def _score_max_renyi(statistics: TextStatistics, settings: Sequence[Settings]) -> list[Outcome]:
    reason = statistics.explain_unmet_need(POWER_SUMS)

    def score_group(shared: Settings, group: Sequence[Settings]) -> list[Outcome]:
        alpha = str(shared["alpha"])
        if reason is not None and alpha in ORDERS_OF_POWER_SUMS:
            return [Outcome.not_applicable(reason)] * len(group)
        # A low entropy means that the model is certain, which indicates a member. The entropy is negated, so that the
        # highest entropies are the lowest scores.
        entropy = compute_renyi_entropy(statistics, alpha)
        ks = [float(setting["k"]) for setting in group]
        if shared["select"] == "max":
            return outcomes(compute_lowest_means(-entropy, ks).tolist())
        return outcomes((-compute_lowest_means(entropy, ks)).tolist())

    return by_group(settings, ("alpha", "select"), score_group)


MAX_RENYI = Detector(
    name="max_renyi",
    title="Max-Rényi",
    summary="minus the mean Rényi entropy of the model's distribution, over the k% of positions with most entropy",
    source="Li et al., NeurIPS 2024 (Max-Rényi-K%)",
    passes="1",
    reads=lambda setting: {"1": ("mean",), "inf": ("max_logprob",)}.get(str(setting["alpha"]), ()),
    compute=_score_max_renyi,
    optional_needs=(POWER_SUMS,),
    parameters={
        "alpha": Parameter(
            default="1",
            grid=("0.5", "1", "2", "inf"),
            description="the order of the entropy; 1 is Shannon's entropy, inf depends on the likeliest token only",
            requirement="0.5, 1, 2 or inf",
            accepts=lambda value: value in ("0.5", "1", "2", "inf"),
            spellings={".5": "0.5", "1.0": "1", "2.0": "2"},
        ),
        "k": Parameter(
            default=0.1,
            grid=(0.0, 0.1, 0.5, 1.0),
            description="the share of positions that is averaged; 0 means the single position with the largest entropy",
            requirement="a number from 0 to 1",
            accepts=lambda value: isinstance(value, float) and 0.0 <= value <= 1.0,
        ),
        "select": Parameter(
            default="max",
            grid=("max",),
            description="the positions that are averaged: the positions of highest (max) or of lowest entropy (min)",
            requirement="max or min",
            accepts=lambda value: value in ("max", "min"),
            quiet=True,
        ),
    },
    equation=(
        "-mean of the c highest R_alpha, c = max(1, int(n k)); R_alpha = log(sum p^alpha) / (1 - alpha), "
        "R_1 = -sum p log p, R_inf = -log max p; p is at least 1e-10 in R_0.5"
    ),
    reported="Designed for vision-language models and measured on their texts and images. No figure is given here.",
    also_reads=(
        "How predictable the topic and the style are: the text's tokens matter only as context for the model's next "
        "prediction."
    ),
)
