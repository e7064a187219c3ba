"""The audited model against a reference model on the same text.

What belongs here: detectors that compare a text's likelihood under two models. What does not: which model is the
reference (config/models.yaml), and its pass over the text (token_statistics/).
"""

from __future__ import annotations

from collections.abc import Sequence

from audit_pipeline.detectors.detector import Detector, Outcome, Parameter, Settings
from audit_pipeline.detectors.loss import mean_logprob
from audit_pipeline.detectors.lowercase import quotient
from audit_pipeline.detectors.needs import Need
from audit_pipeline.detectors.statistics import TextStatistics

REFERENCE_MODEL: Need[TextStatistics] = Need("reference", "reference model")
"""The statistics of the text under the reference model."""

DIFFERENCE = "difference"
RATIO = "ratio"
_FORMS = (DIFFERENCE, RATIO)


def _reference(statistics: TextStatistics, settings: Sequence[Settings]) -> list[Outcome]:
    """``difference``: mean l - mean l_ref. ``ratio``: -(mean l / mean l_ref).

    Each mean is over the model's own tokens; two tokenizers may cut the text differently. The difference grows as the
    audited model finds the text likelier than the reference does. Both means of the ratio are negative, so without its
    sign it would be the ratio of the losses, which falls as the text gets likelier (Zhang et al. 2024, appendix A.1: a
    low ratio suggests a member); the minus turns it.
    """
    reference = statistics.of(REFERENCE_MODEL)
    if not len(reference):
        return [Outcome.not_applicable("the text has no scored token under the reference model")] * len(settings)
    own, other = mean_logprob(statistics), mean_logprob(reference)
    return [_outcome(str(setting["form"]), own, other) for setting in settings]


def _outcome(form: str, own: float, other: float) -> Outcome:
    if form == DIFFERENCE:
        return Outcome.of(own - other)
    if other == 0:
        return Outcome.not_applicable(
            "the mean log-likelihood under the reference model is 0, and the ratio divides by it"
        )
    return Outcome.of(-quotient(own, other))


REFERENCE = Detector(
    name="reference",
    summary="mean log-likelihood of the text compared with that under a reference model",
    source="Carlini et al., USENIX Security 2021; as used in Shi et al., ICLR 2024, section 4.2",
    needs=(REFERENCE_MODEL,),
    passes="1, and 1 of the reference model",
    own_logprobs_suffice=True,
    compute=_reference,
    parameters={
        "form": Parameter(
            default=DIFFERENCE,
            grid=_FORMS,
            description="whether the two means are subtracted or divided",
            requirement=f"{DIFFERENCE} or {RATIO}",
            accepts=lambda value: value in _FORMS,
        )
    },
)
