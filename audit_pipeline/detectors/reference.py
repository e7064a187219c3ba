"""Reference: the likelihood of the text under the audited model, compared with a reference model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from audit_pipeline.detectors.detector import Detector, Outcome, Parameter, Settings, for_each_setting
from audit_pipeline.detectors.detector_inputs import Need, TextStatistics
from audit_pipeline.detectors.loss import compute_mean_logprob, divide_finite
from audit_pipeline.detectors.min_k import compute_moving_means

REFERENCE_MODEL: Need[TextStatistics] = Need("reference", "reference model")
"""The requirement of the text's statistics under a reference model."""
OTHER_TOKENS = "the reference model does not score the same tokens of the text"
"""The reason why a comparison token by token has no score."""

DIFFERENCE = "difference"
RATIO = "ratio"
WBC = "wbc"
_FORMS = (DIFFERENCE, RATIO, WBC)
WBC_WINDOWS = (2, 3, 4, 6, 9, 13, 18, 25, 32, 40)
"""The window lengths in tokens (Chen et al. 2026)."""


def compute_vote_share(
    logprob: npt.ArrayLike, reference_logprob: npt.ArrayLike, windows: Sequence[int] = WBC_WINDOWS
) -> float:
    """Compute the share of windows in which the sum of ``logprob`` exceeds the sum of ``reference_logprob``.

    The result is the mean of this share over the window lengths, in [0, 1]. Windows with equal sums do not count as
    exceeding. The result is NaN if a value is not finite.

    Args:
        logprob: The log-likelihoods of n >= 1 tokens under the audited model.
        reference_logprob: The log-likelihoods of the same tokens under the reference model.
        windows: The window lengths in tokens. Lengths above n are shortened to n.
    """
    margin = np.asarray(logprob, dtype=np.float64) - np.asarray(reference_logprob, dtype=np.float64)
    if not np.isfinite(margin).all():
        return math.nan
    return float(np.mean([np.mean(compute_moving_means(margin, min(width, len(margin))) > 0) for width in windows]))


def _score_against_reference(statistics: TextStatistics, setting: Settings) -> Outcome:
    """Compute the score by one of three comparisons, which the setting selects.

    - The difference is mean l - mean l_ref. It is larger if the text is likelier under the audited model than under the
      reference model.
    - The ratio is -(mean l / mean l_ref). Both means are negative, so the quotient is the ratio of the losses. A low
      ratio suggests a member (Zhang et al. 2024, appendix A.1), hence the minus sign.
    - WBC is the share of windows that vote for a member (:func:`compute_vote_share`). A window votes for a member if
      the reference model's loss is strictly greater. Both models must split the text into the same tokens.

    Each mean is over the tokens of its model, because two tokenizers may split the text differently.
    """
    reference = statistics.get_extra(REFERENCE_MODEL)
    if not len(reference):
        return Outcome.not_applicable("the text has no scored token under the reference model")
    if setting["form"] == WBC:
        if not np.array_equal(statistics.token_id, reference.token_id):
            return Outcome.not_applicable(OTHER_TOKENS)
        return Outcome.from_score(compute_vote_share(statistics.logprob, reference.logprob))
    mean = compute_mean_logprob(statistics)
    reference_mean = compute_mean_logprob(reference)
    if setting["form"] == DIFFERENCE:
        return Outcome.from_score(mean - reference_mean)
    if reference_mean == 0:
        return Outcome.not_applicable(
            "the mean log-likelihood under the reference model is 0, and the ratio divides by it"
        )
    return Outcome.from_score(-divide_finite(mean, reference_mean))


REFERENCE = Detector(
    name="reference",
    title="Reference model",
    summary="mean log-likelihood of the text compared with that under a reference model",
    source="Carlini et al., USENIX Security 2021; as in Shi et al., ICLR 2024, section 4.2; wbc: Chen et al. 2026",
    needs=(REFERENCE_MODEL,),
    passes="1, and 1 of the reference model",
    compute=for_each_setting(_score_against_reference),
    parameters={
        "form": Parameter(
            default=DIFFERENCE,
            grid=_FORMS,
            description="the comparison: subtract the two means, divide them, or count the votes of windows (wbc)",
            requirement=f"{DIFFERENCE}, {RATIO} or {WBC}",
            accepts=lambda value: value in _FORMS,
        )
    },
    equation=(
        "difference: mean l_t - mean l_ref,t; ratio: -(mean l_t / mean l_ref,t), each mean over a model's own tokens; "
        f"wbc: mean over w in {', '.join(map(str, WBC_WINDOWS))} of the share of the n - w' + 1 stretches of w' = "
        "min(w, n) tokens in a row with sum l_t > sum l_ref,t; if n < w, the window is the whole text; equal sums are "
        "no vote, and both models must have the same tokens"
    ),
    reported=(
        "Shi et al. 2024 (table 1): an AUC of 0.66 on WikiMIA with a smaller model of the same family, the mean of "
        "five models and of original and paraphrased texts; Zhang et al. 2025 (table 2): 52.2 to 58.7 on MIMIR with "
        "the best of eight references. No figure of Carlini et al. 2021 or, for wbc, Chen et al. 2026 is given here."
    ),
    also_reads=(
        "The reference model's training data and size. A text from its training data scores low. A text scores high, "
        "member or not, if the audited model has read more about its subject, in its language or from its time."
    ),
)
