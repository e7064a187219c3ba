"""SURP: tokens that surprise the model although it is certain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from audit_pipeline.detectors.detector import Detector, Outcome, Parameter, Settings, reads_columns
from audit_pipeline.detectors.detector_inputs import TextStatistics
from audit_pipeline.detectors.min_k import K


def _score_surprising_tokens(statistics: TextStatistics, settings: Sequence[Settings]) -> list[Outcome]:
    """Compute the mean l_t of surprising tokens.

    The int(k * n) tokens with the lowest l_t are selected. Of tokens with equal l_t, the earlier ones are selected
    first. A selected token is surprising if the entropy H_t = -mu_t at its position is strictly below ``max_entropy``.
    A text without a surprising token has no score, because any number would rank it among other texts.
    """
    logprob = statistics.logprob.astype(np.float64)
    entropy = -statistics.mean.astype(np.float64)
    if not np.isfinite(entropy).all():
        return [Outcome.failed("a token's entropy is not a finite number")] * len(settings)
    order = np.argsort(logprob, kind="stable")
    return [
        _score_setting(logprob[order], entropy[order], float(setting["k"]), float(setting["max_entropy"]))
        for setting in settings
    ]


def _score_setting(
    logprob: npt.NDArray[np.float64], entropy: npt.NDArray[np.float64], k: float, max_entropy: float
) -> Outcome:
    """Score one setting. The arrays have shape (n,) and are sorted by log-probability, ascending.

    Reasons do not contain numbers that differ between texts, because texts without a score are counted by reason.
    """
    count = int(len(logprob) * k)
    if not count:
        return Outcome.not_applicable(f"k={k:g} selects no token: the text has too few scored tokens")
    surprising = logprob[:count][entropy[:count] < max_entropy]
    if not len(surprising):
        reason = f"no surprising token: the entropy is {max_entropy:g} or more at each of the least likely tokens"
        return Outcome.not_applicable(reason)
    return Outcome.from_score(float(surprising.mean()))


SURP = Detector(
    name="surp",
    title="SURP",
    summary="mean log-likelihood of those of the k% least likely tokens at which the model's entropy is low",
    source="Zhang and Wu 2024 (SURP)",
    passes="1",
    reads=reads_columns("mean"),
    compute=_score_surprising_tokens,
    parameters={
        "k": replace(K, default=0.4, grid=(0.2, 0.4), description="the share of least likely tokens that is searched"),
        "max_entropy": Parameter(
            default=2.0,
            grid=(1.0, 2.0, 4.0),
            description="maximum entropy at a token's position, in nats; only tokens with less entropy count",
            requirement="a number above 0",
            accepts=lambda value: isinstance(value, float) and 0.0 < value < math.inf,
        ),
    },
    equation=(
        "mean of l_t over the surprising tokens: those of the int(k * n) tokens with the lowest l_t that have H_t = "
        "-sum over z of p(z | x_<t) log p(z | x_<t) < max_entropy; not applicable if there is no such token"
    ),
    reported=(
        "The abstract reports up to 29.5% over other detectors on WikiMIA, MIMIR and Dolma-Book. The tables were not "
        "read, and no code of the authors was found. The values here equal those of another group's code."
    ),
    also_reads=(
        "Whether the text breaks off a fixed phrase or misspells a word: that surprises a certain model in any text. "
        "Many short texts have no surprising token, so only a selection of texts is scored."
    ),
)
