"""The audited model against a reference model on the same text."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from audit_pipeline.detectors.detector import Detector, Outcome, Parameter, Settings, for_each_setting
from audit_pipeline.detectors.detector_inputs import Need, TextStatistics
from audit_pipeline.detectors.loss import mean_logprob
from audit_pipeline.detectors.lowercase import quotient
from audit_pipeline.detectors.min_k import moving_means

REFERENCE_MODEL: Need[TextStatistics] = Need("reference", "reference model")
"""The statistics of the text under the reference model."""

DIFFERENCE = "difference"
RATIO = "ratio"
WBC = "wbc"
_FORMS = (DIFFERENCE, RATIO, WBC)
WBC_WINDOWS = (2, 3, 4, 6, 9, 13, 18, 25, 32, 40)
"""How many tokens are compared at a time (Chen et al. 2026)."""


def vote_share(own_logprob: npt.ArrayLike, other_logprob: npt.ArrayLike, windows: Sequence[int] = WBC_WINDOWS) -> float:
    """The share of windows of so many tokens whose sum is greater in ``own_logprob``, mean over ``windows``: in [0, 1].

    ``own_logprob`` and ``other_logprob`` are log-likelihoods of the same n >= 1 tokens. A window beyond n is one of n
    tokens; equal sums are no vote. NaN where a value on either side is not finite.
    """
    margin = np.asarray(own_logprob, dtype=np.float64) - np.asarray(other_logprob, dtype=np.float64)
    if not np.isfinite(margin).all():
        return math.nan
    return float(np.mean([np.mean(moving_means(margin, min(width, len(margin))) > 0) for width in windows]))


def _reference(statistics: TextStatistics, setting: Settings) -> Outcome:
    """``difference``: mean l - mean l_ref. ``ratio``: -(mean l / mean l_ref). ``wbc``: votes of windows.

    Each mean is over the model's own tokens; two tokenizers may cut the text differently. The difference grows as the
    audited model finds the text likelier than the reference does. Both means of the ratio are negative, so without its
    sign it would be the ratio of the losses, which falls as the text gets likelier (Zhang et al. 2024, appendix A.1: a
    low ratio suggests a member); the minus turns it. Votes need the same tokens on both sides; a window votes for a
    member where the reference's loss is strictly the greater.
    """
    reference = statistics.of(REFERENCE_MODEL)
    if not len(reference):
        return Outcome.not_applicable("the text has no scored token under the reference model")
    if setting["form"] == WBC:
        if not np.array_equal(statistics.token_id, reference.token_id):
            return Outcome.not_applicable("the reference model does not score the same tokens of the text")
        return Outcome.from_score(vote_share(statistics.logprob, reference.logprob))
    own, other = mean_logprob(statistics), mean_logprob(reference)
    if setting["form"] == DIFFERENCE:
        return Outcome.from_score(own - other)
    if other == 0:
        return Outcome.not_applicable(
            "the mean log-likelihood under the reference model is 0, and the ratio divides by it"
        )
    return Outcome.from_score(-quotient(own, other))


REFERENCE = Detector(
    name="reference",
    title="Reference model",
    summary="mean log-likelihood of the text compared with that under a reference model",
    source="Carlini et al., USENIX Security 2021; as in Shi et al., ICLR 2024, section 4.2; wbc: Chen et al. 2026",
    needs=(REFERENCE_MODEL,),
    passes="1, and 1 of the reference model",
    compute=for_each_setting(_reference),
    parameters={
        "form": Parameter(
            default=DIFFERENCE,
            grid=_FORMS,
            description="whether the two means are subtracted or divided, or windows of tokens vote (wbc)",
            requirement=f"{DIFFERENCE}, {RATIO} or {WBC}",
            accepts=lambda value: value in _FORMS,
        )
    },
    equation=(
        "difference: mean l_t - mean l_ref,t; ratio: -(mean l_t / mean l_ref,t), each mean over a model's own tokens; "
        f"wbc: mean over w in {', '.join(map(str, WBC_WINDOWS))} of the share of the n - w' + 1 stretches of w' = "
        "min(w, n) tokens in a row with sum l_t > sum l_ref,t, so that in a text of n < w tokens that window is the "
        "whole text; equal sums are no vote, and the same tokens are needed on both sides"
    ),
    reported=(
        "Shi et al. 2024 (table 1): an AUC of 0.66 on WikiMIA with a smaller model of the same family, the mean of "
        "five models and of original and paraphrased texts; Zhang et al. 2025 (table 2): 52.2 to 58.7 on MIMIR, where "
        "the reference is the best of eight. No figure of Carlini et al. 2021 or, for wbc, Chen et al. 2026 is given "
        "here."
    ),
    also_reads=(
        "What the reference model has read, and how large it is: a text of the reference's training data scores low, "
        "a text on a subject, in a language or of a time that the audited model has read more of scores high, member "
        "or not."
    ),
)
