"""The ranks of the text's tokens among the model's choices."""

from __future__ import annotations

import numpy as np

from audit_pipeline.detectors.detector import Detector, Outcome, for_all_settings, reads_columns
from audit_pipeline.detectors.detector_inputs import TextStatistics


def _log_rank(statistics: TextStatistics) -> Outcome:
    """-mean log(r_t + 1), r_t = 0 for the likeliest token: a better rank has to score higher, hence the minus."""
    return Outcome.from_score(-float(np.mean(np.log1p(statistics.rank.astype(np.float64)))))


LOG_RANK = Detector(
    name="log_rank",
    title="Log-rank",
    summary="mean logarithm of the tokens' ranks among the model's choices, negated",
    source="a baseline in the code of Bao et al., ICLR 2024 (Fast-DetectGPT)",
    passes="1",
    reads=reads_columns("rank"),
    compute=for_all_settings(_log_rank),
    equation="-(mean over the n scored tokens of log(r_t + 1)), r_t = 0 where x_t is the model's first choice",
    reported=(
        "Made to detect texts that a machine wrote, not members. No figure is given here: no table on members was read."
    ),
    also_reads=(
        "What the loss reads: how usual the words are, and so style, topic and length. Tokens of equal logits share "
        "the better rank, which a model in low precision often has."
    ),
)
