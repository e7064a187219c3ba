"""The share of a text's tokens that the model found at least as likely as not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from audit_pipeline.detectors.detector import Detector, Outcome, Settings, outcomes
from audit_pipeline.detectors.detector_inputs import TextStatistics


def _likely(statistics: TextStatistics, settings: Sequence[Settings]) -> Sequence[Outcome]:
    share = float(np.mean(np.asarray(statistics.logprob, dtype=np.float64) >= np.log(0.5)))
    return outcomes([share] * len(settings))


LIKELY = Detector(
    name="likely_tokens",
    summary="share of tokens whose probability is at least 1/2",
    source="an example",
    passes="1",
    compute=_likely,
    equation="(number of scored tokens with p >= 1/2) / n",
    reported="Nothing: it is an example.",
    also_reads="How predictable the text's words are.",
)
