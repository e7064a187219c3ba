"""Log-rank: the ranks of the text's tokens among the model's predictions."""

from __future__ import annotations

import numpy as np

from audit_pipeline.detectors.detector import Detector, Outcome, for_all_settings, reads_columns
from audit_pipeline.detectors.detector_inputs import TextStatistics


def _score_log_rank(statistics: TextStatistics) -> Outcome:
    """Compute -mean log(r_t + 1). r_t is 0 for the likeliest token.

    Because of the minus sign, texts with likelier tokens have higher scores.
    """
    return Outcome.from_score(-float(np.mean(np.log1p(statistics.rank.astype(np.float64)))))


LOG_RANK = Detector(
    name="log_rank",
    title="Log-rank",
    summary="mean logarithm of the tokens' ranks among the model's choices, negated",
    source="a baseline in the code of Bao et al., ICLR 2024 (Fast-DetectGPT)",
    passes="1",
    reads=reads_columns("rank"),
    compute=for_all_settings(_score_log_rank),
    equation="-(mean over the n scored tokens of log(r_t + 1)); r_t = 0 if x_t is the model's first choice",
    reported=(
        "Designed to detect machine-written texts, not members. No figure is given here: no table on members was read."
    ),
    also_reads=(
        "The same as the loss: how common the words are, and thus style, topic and length. Tokens with equal logits "
        "share the better rank. Equal logits are frequent if a model runs in low precision."
    ),
)
