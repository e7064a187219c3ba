"""Error zone (EZ): how a tuned model and its reference model differ at the tokens that the tuned model gets wrong."""

from __future__ import annotations

import math

import numpy as np

from audit_pipeline.detectors.detector import Detector, Outcome, Parameter, Settings, for_each_setting, reads_columns
from audit_pipeline.detectors.detector_inputs import TextStatistics
from audit_pipeline.detectors.reference import OTHER_TOKENS, REFERENCE_MODEL

LOG_RATIO = "log_ratio"
PUBLISHED = "published"
_FORMS = (LOG_RATIO, PUBLISHED)
_MIN_ERRORS = 2

EPSILON = 1e-6
"""The number in nats that is added to both sums of the log ratio, so that it is finite if a sum is 0.

EPSILON is about the rounding error of a float32 log-probability of -10. Fine-tuning changes a single token by far more,
.001 nats and above, so EPSILON matters only if a sum has no such change.
"""


def _score_error_zone(statistics: TextStatistics, setting: Settings) -> Outcome:
    """Compare the sum of the gains with the sum of the losses at the error positions.

    The error positions are the scored tokens, except the first, that are not the audited model's first choice. The
    published form is 0 if no loss is negative. A text whose every error position gained, the clearest member, then has
    the lowest score. The log ratio gives it a high score.
    """
    reference = statistics.get_extra(REFERENCE_MODEL)
    if not np.array_equal(statistics.token_id, reference.token_id):
        return Outcome.not_applicable(OTHER_TOKENS)
    difference = statistics.logprob.astype(np.float64) - reference.logprob
    if not np.isfinite(difference).all():
        # Sums of only the positive and the negative values would skip NaN.
        return Outcome.from_score(math.nan)
    is_error = statistics.argmax_id != statistics.token_id
    is_error[0] = False
    errors = difference[is_error]
    gain = float(errors[errors > 0].sum())
    loss = -float(errors[errors < 0].sum())
    if setting["form"] == PUBLISHED:
        if len(errors) < _MIN_ERRORS or loss == 0:
            return Outcome.from_score(0.0)
        return Outcome.from_score(gain / loss)
    if len(errors) < _MIN_ERRORS:
        return Outcome.not_applicable(
            "the model's first choice differs from the text at fewer than two tokens after the first"
        )
    return Outcome.from_score(math.log((gain + EPSILON) / (loss + EPSILON)))


ERROR_ZONE = Detector(
    name="error_zone",
    title="Error zone",
    summary="gains over losses in log-likelihood against a reference model, at tokens that the model gets wrong",
    source="Ilić et al. 2026 (EZ-MIA)",
    needs=(REFERENCE_MODEL,),
    passes="1, and 1 of the reference model",
    reads=reads_columns("argmax_id"),
    compute=for_each_setting(_score_error_zone),
    parameters={
        "form": Parameter(
            default=LOG_RATIO,
            grid=_FORMS,
            description=(
                "log_ratio: the logarithm of the ratio; a text with fewer than two error positions has no score. "
                "published: the ratio as in the authors' code, which is 0 for such a text and also if no token lost"
            ),
            requirement=f"{LOG_RATIO} or {PUBLISHED}",
            accepts=lambda value: value in _FORMS,
        )
    },
    equation=(
        f"log_ratio: log((P + {EPSILON:g}) / (N + {EPSILON:g})); published: P / N; P is the sum of d_t > 0 and N the "
        "sum of |d_t| of d_t < 0, over the scored tokens t > 1 that are not the model's first choice; d_t = l_t - "
        "l_ref,t; both models must have the same tokens"
    ),
    reported=(
        "Ilić et al. 2026, for members of the fine-tuning data: a TPR of 66.3% at 1% FPR with GPT-2 on WikiText (the "
        "best earlier method: 17.5%), and 46.7% (15.8%) with Llama-2-7B on AG News. The reference is the model before "
        "fine-tuning."
    ),
    also_reads=(
        "What fine-tuning taught about the subject, the style and the format of all its texts. An unseen text of the "
        "same kind gains, too, and a text from elsewhere loses. Compare only with held-out texts of the same draw. "
        "With few error positions, a single token decides."
    ),
)
