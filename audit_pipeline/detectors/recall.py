"""ReCaLL and Con-ReCall: the likelihood of the text after a prefix of other texts, relative to the text alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from audit_pipeline.detectors.detector import Detector, Outcome, Parameter, Settings, for_each_setting
from audit_pipeline.detectors.detector_inputs import Float32s, Need, TextStatistics, UnmetNeed
from audit_pipeline.detectors.loss import compute_mean_logprob, divide_finite

PrefixedLogProbs = Mapping[tuple[int, str], Float32s | UnmetNeed]
"""The log-probabilities of a text after prefixes P of several lengths.

The keys are the number of texts in the prefix (shots) and the value of the parameter ``join``. A value is
l(x_t | P, x_<t) of all T tokens of the text, including the first token, of shape (T,). It is an ``UnmetNeed`` if the
model was not run on the text with this prefix."""

NONMEMBER_PREFIX: Need[PrefixedLogProbs] = Need("nonmember_prefix", "prefix of known non-members")
MEMBER_PREFIX: Need[PrefixedLogProbs] = Need("member_prefix", "prefix of known members")

JOINS = {"none": "", "space": " ", "newline": "\n", "blank_line": "\n\n"}
"""The separator after each text of the prefix, by the value of the parameter ``join``."""


def _score_recall(statistics: TextStatistics, setting: Settings) -> Outcome:
    """Compute (mean l(x | P_non) - gamma * mean l(x | P_mem)) / mean l(x).

    The means in the numerator are over all T tokens, the mean in the denominator is over the scored tokens. All means
    are negative: the less likely the text is after a prefix of non-members, the higher the score. ``recall`` has no
    gamma and no prefix of members.
    """
    gamma = float(setting.get("gamma", 0.0))
    needs = (NONMEMBER_PREFIX, MEMBER_PREFIX) if gamma else (NONMEMBER_PREFIX,)
    means = []
    for need in needs:
        logprob = statistics.get_extra(need)[int(setting["shots"]), str(setting["join"])]
        if isinstance(logprob, UnmetNeed):
            return Outcome.not_applicable(logprob.reason)
        means.append(float(np.mean(logprob, dtype=np.float64)))
    mean = compute_mean_logprob(statistics)
    if mean == 0:
        return Outcome.not_applicable("the text's mean log-likelihood is 0, and the score divides by it")
    numerator = means[0] - gamma * means[1] if gamma else means[0]
    return Outcome.from_score(divide_finite(numerator, mean))


_SHOTS = Parameter(
    default=7,
    grid=(1, 4, 7),
    description="the number of texts in the prefix, in a fixed order; fewer if the model's context is too short",
    requirement="a whole number from 1 to 1000",
    accepts=lambda value: type(value) is int and 1 <= value <= 1000,
    passes_each=True,
)
_JOIN = Parameter(
    default="none",
    grid=("none",),
    description=f"the separator after each text of the prefix: {', '.join(JOINS)}",
    requirement=f"one of {', '.join(JOINS)}",
    accepts=lambda value: value in JOINS,
    quiet=True,
    passes_each=True,
)

_WITHOUT_SHARING = " (models that cannot share a prefix read it again for each text)"

RECALL = Detector(
    name="recall",
    title="ReCaLL",
    summary="mean log-likelihood of the text after a prefix of non-members, divided by that of the text by itself",
    source="Xie et al., EMNLP 2024 (ReCaLL)",
    needs=(NONMEMBER_PREFIX,),
    passes=f"2, and 1 over the prefix for all texts together{_WITHOUT_SHARING}",
    compute=for_each_setting(_score_recall),
    parameters={"shots": _SHOTS, "join": _JOIN},
    equation=(
        "LL(x | P) / LL(x): LL(x | P) is the mean of log p(x_t | P, x_<t) over all T tokens of the text, LL(x) is the "
        "mean over the scored tokens of its own pass; P is the texts of the prefix, in order"
    ),
    reported=(
        "The authors' project page reports 14.8, 15.4 and 14.8 points of AUROC more than the runner-up on WikiMIA of "
        "32, 64 and 128 words, as means over their models."
    ),
    also_reads=(
        "Whether the text is similar to the texts of the prefix in topic, style and date: it reads the shift between "
        "the two sides as much as membership. The separator of the texts changes it, too."
    ),
)

CON_RECALL = Detector(
    name="con_recall",
    title="Con-ReCall",
    summary="recall with a prefix of non-members, minus gamma times recall with a prefix of members",
    source="Wang et al., COLING 2025 (Con-ReCall)",
    needs=(NONMEMBER_PREFIX, MEMBER_PREFIX),
    passes=f"3, and 1 over each prefix for all texts together{_WITHOUT_SHARING}",
    compute=for_each_setting(_score_recall),
    parameters={
        "shots": _SHOTS,
        "gamma": Parameter(
            default=0.5,
            grid=(0.5,),
            description="the weight of the prefix of members; fixed beforehand, never chosen on the labels",
            requirement="a number above 0 and at most 1",
            accepts=lambda value: isinstance(value, float) and 0.0 < value <= 1.0,
        ),
        "join": _JOIN,
    },
    equation=(
        "(LL(x | P_non) - gamma * LL(x | P_mem)) / LL(x), each LL as in recall; both prefixes have the same number of "
        "texts"
    ),
    reported=(
        "The authors call it the state of the art on WikiMIA. Their code tries nine values of gamma and chooses none."
    ),
    also_reads=(
        "Which of the two prefixes is more similar to the text in topic, style and date: it reads the shift between "
        "the two sides as much as membership."
    ),
)
