"""Loss and Zlib: the likelihood of the whole text, alone and divided by its compressed size."""

from __future__ import annotations

import math
import zlib

import numpy as np

from audit_pipeline.detectors.detector import Detector, Outcome, for_all_settings
from audit_pipeline.detectors.detector_inputs import TextStatistics


def compute_mean_logprob(statistics: TextStatistics) -> float:
    """Compute the mean of l_t over the n >= 1 scored tokens, in nats."""
    return float(np.mean(statistics.logprob, dtype=np.float64))


def divide_finite(dividend: float, divisor: float) -> float:
    """Divide two numbers, or return NaN if one of them is not finite. The divisor must not be 0.

    Division by minus infinity would yield the valid score 0.
    """
    return dividend / divisor if math.isfinite(dividend) and math.isfinite(divisor) else math.nan


def _score_zlib(statistics: TextStatistics) -> Outcome:
    try:
        encoded = statistics.text.encode()
    except UnicodeEncodeError as error:
        reason = f"the text is not valid Unicode: lone surrogate at character {error.start}"
        return Outcome.failed(reason)
    return Outcome.from_score(compute_mean_logprob(statistics) / len(zlib.compress(encoded)))


LOSS = Detector(
    name="loss",
    title="Loss",
    summary="mean log-likelihood of the text's tokens (the negative loss)",
    source="Yeom et al., CSF 2018; as used in Shi et al., ICLR 2024, section 4.2",
    passes="1",
    compute=for_all_settings(lambda statistics: Outcome.from_score(compute_mean_logprob(statistics))),
    equation="mean over the n scored tokens of l_t = log p(x_t | x_<t), in nats",
    reported=(
        "No figure of Yeom et al. 2018 is given here. In Zhang et al. 2025 it has an AUROC of 66.5, 63.3 and 67.4 on "
        "WikiMIA at 32, 64 and 128 words, the mean of five models (table 1), and 52.1 to 54.9 on MIMIR (table 2)."
    ),
    also_reads=(
        "Above all how easy the text is: common words, repetition, quotations and plain style score high, whether the "
        "model saw the text or not. Longer texts score higher, because their later tokens have more context."
    ),
)

ZLIB = Detector(
    name="zlib",
    title="Zlib",
    summary="mean log-likelihood divided by the bytes of the zlib-compressed text",
    source="Carlini et al., USENIX Security 2021; as used in Shi et al., ICLR 2024, section 4.2",
    passes="1",
    compute=for_all_settings(_score_zlib),
    equation="(mean over the n scored tokens of l_t) / (bytes of the text in UTF-8, compressed by zlib)",
    reported=(
        "No figure of Carlini et al. 2021 is given here. In Zhang et al. 2025 it has an AUROC of 67.0, 65.0 and 69.4 "
        "on WikiMIA at 32, 64 and 128 words, the mean of five models (table 1), and 52.3 to 54.8 on MIMIR (table 2)."
    ),
    also_reads=(
        "The text's length, which determines most of the bytes: the longer of two texts scores higher. Besides, the "
        "same as the loss, except for repetition that zlib finds."
    ),
)
