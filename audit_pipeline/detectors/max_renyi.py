"""Max-Rényi-K%: how spread out the model's distribution is where it is most so."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from audit_pipeline.detectors.detector import Detector, Outcome, Parameter, Settings, by_group, outcomes
from audit_pipeline.detectors.detector_inputs import Float64s, Need, PowerSums, TextStatistics
from audit_pipeline.detectors.min_k import lowest_means

POWER_SUMS: Need[PowerSums] = Need("renyi", "sums of powers (in the same pass)", ("log_sum_p2", "log_sum_sqrt_p"))
"""Sums over powers of the probabilities at every token's position."""

OF_POWER_SUMS = ("0.5", "2")
"""The orders that are made of :data:`POWER_SUMS`; the others are in the statistics that every text has."""


def renyi_entropy(statistics: TextStatistics, alpha: str) -> Float64s:
    """The Rényi entropy of order ``alpha`` of the model's distribution at each of the n tokens, in nats: [n], float64.

    R_0.5 = 2 log sum sqrt(p), p at least 1e-10 as in the authors' code; R_1 = -sum p log p; R_2 = -log sum p^2;
    R_inf = -log max p. For the orders of ``OF_POWER_SUMS`` that need must be met.
    """
    if alpha == "1":
        return np.asarray(-statistics.mean.astype(np.float64))
    if alpha == "inf":
        return np.asarray(-statistics.max_logprob.astype(np.float64))
    sums = statistics.of(POWER_SUMS)
    if alpha == "2":
        return np.asarray(-sums.log_sum_p2.astype(np.float64))
    return np.asarray(2.0 * sums.log_sum_sqrt_p.astype(np.float64))


def _max_renyi(statistics: TextStatistics, settings: Sequence[Settings]) -> list[Outcome]:
    lacking = statistics.explain_unmet_need(POWER_SUMS)

    def group(given: Settings, same: Sequence[Settings]) -> list[Outcome]:
        alpha = str(given["alpha"])
        if lacking is not None and alpha in OF_POWER_SUMS:
            return [Outcome.not_applicable(lacking)] * len(same)
        # An entropy: the surer the model, the more likely a member. So the highest entropies are the lowest scores.
        entropy, ks = renyi_entropy(statistics, alpha), [float(setting["k"]) for setting in same]
        means = lowest_means(-entropy, ks) if given["select"] == "max" else -lowest_means(entropy, ks)
        return outcomes(means.tolist())

    return by_group(settings, ("alpha", "select"), group)


MAX_RENYI = Detector(
    name="max_renyi",
    title="Max-Rényi",
    summary="minus the mean Rényi entropy of the model's distribution, over the k% of positions where it is highest",
    source="Li et al., NeurIPS 2024 (Max-Rényi-K%)",
    passes="1",
    reads=lambda setting: {"1": ("mean",), "inf": ("max_logprob",)}.get(str(setting["alpha"]), ()),
    compute=_max_renyi,
    optional_needs=(POWER_SUMS,),
    parameters={
        "alpha": Parameter(
            default="1",
            grid=("0.5", "1", "2", "inf"),
            description="the order of the entropy; 1 is Shannon's, inf the mode's alone",
            requirement="0.5, 1, 2 or inf",
            accepts=lambda value: value in ("0.5", "1", "2", "inf"),
            spellings={".5": "0.5", "1.0": "1", "2.0": "2"},
        ),
        "k": Parameter(
            default=0.1,
            grid=(0.0, 0.1, 0.5, 1.0),
            description="the share of positions that is averaged; 0 is the single largest",
            requirement="a number from 0 to 1",
            accepts=lambda value: isinstance(value, float) and 0.0 <= value <= 1.0,
        ),
        "select": Parameter(
            default="max",
            grid=("max",),
            description="which positions: those of the highest entropy, or of the lowest",
            requirement="max or min",
            accepts=lambda value: value in ("max", "min"),
            quiet=True,
        ),
    },
    equation=(
        "-mean of the c highest R_alpha, c = int(n k) or 1 where that is 0; R_alpha = log(sum p^alpha) / (1 - alpha), "
        "R_1 = -sum p log p, R_inf = -log max p; p at least 1e-10 under the root of R_0.5"
    ),
    reported=("Made for vision-language models, and measured on their texts and images; no figure is given here."),
    also_reads=(
        "How predictable the topic and the style are: the text's own tokens are not looked at, beyond what they make "
        "the model expect next."
    ),
)
