"""Tokens that surprise a model which is sure of itself: SURP."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from audit_pipeline.detectors.detector import Detector, Outcome, Parameter, Settings, reads_columns
from audit_pipeline.detectors.detector_inputs import TextStatistics
from audit_pipeline.detectors.min_k import K


def _surp(statistics: TextStatistics, settings: Sequence[Settings]) -> list[Outcome]:
    """mean l_t over the int(k * n) tokens of lowest l_t whose entropy H_t = -mu_t is strictly below ``max_entropy``.

    Of equal l_t at the border the first in the text are taken. Where no token is left, a number in place of the mean
    would rank the text against others: it is not applicable.
    """
    logprob, entropy = statistics.logprob.astype(np.float64), -statistics.mean.astype(np.float64)
    if not np.isfinite(entropy).all():
        return [Outcome.failed("a token's entropy is not a finite number")] * len(settings)
    rising = np.argsort(logprob, kind="stable")
    return [
        _outcome(logprob[rising], entropy[rising], float(setting["k"]), float(setting["max_entropy"]))
        for setting in settings
    ]


def _outcome(
    logprob: npt.NDArray[np.float64], entropy: npt.NDArray[np.float64], k: float, max_entropy: float
) -> Outcome:
    """The outcome from the values of n tokens [n] in rising order of log-probability.

    A reason has no number of the single text: texts without a score are counted by their reason.
    """
    count = int(len(logprob) * k)
    if not count:
        return Outcome.not_applicable(f"k={k:g} selects none of so few scored tokens")
    surprising = logprob[:count][entropy[:count] < max_entropy]
    if not len(surprising):
        reason = f"no surprising token: the entropy is {max_entropy:g} or more at each of the least likely tokens"
        return Outcome.not_applicable(reason)
    return Outcome.from_score(float(surprising.mean()))


SURP = Detector(
    name="surp",
    title="SURP",
    summary="mean log-likelihood of the k% least likely tokens, of those where the model's entropy is low",
    source="Zhang and Wu 2024 (SURP)",
    passes="1",
    reads=reads_columns("mean"),
    compute=_surp,
    parameters={
        "k": replace(
            K, default=0.4, grid=(0.2, 0.4), description="the share of tokens, the least likely, that is looked at"
        ),
        "max_entropy": Parameter(
            default=2.0,
            grid=(1.0, 2.0, 4.0),
            description="the entropy, in nats, that a token's distribution has to be below",
            requirement="a number above 0",
            accepts=lambda value: isinstance(value, float) and 0.0 < value < math.inf,
        ),
    },
    equation=(
        "mean of l_t over the surprising tokens: the int(k * n) of lowest l_t, of them those with H_t = -sum over z "
        "of p(z | x_<t) log p(z | x_<t) < max_entropy; not applicable where there is none"
    ),
    reported=(
        "The abstract says up to 29.5% over other detectors, on WikiMIA, MIMIR and Dolma-Book; the tables were not "
        "read, and no code of the authors was found: the values here meet those of another group's code."
    ),
    also_reads=(
        "Whether the text breaks off a fixed phrase or misspells a word: that surprises a sure model in any text. "
        "Many short texts have no surprising token, so that what is scored is a selection of texts."
    ),
)
