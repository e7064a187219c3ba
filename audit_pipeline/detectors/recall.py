"""The text after a prefix of other texts, against the text by itself."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from audit_pipeline.detectors.detector import Detector, Outcome, Parameter, Settings, for_each_setting
from audit_pipeline.detectors.detector_inputs import Float32s, Need, TextStatistics, UnmetNeed
from audit_pipeline.detectors.loss import mean_logprob
from audit_pipeline.detectors.lowercase import quotient

PrefixedLogProbs = Mapping[tuple[int, str], Float32s | UnmetNeed]
"""By the number of shots and what joins them: l(x_t | P, x_<t) of every token of the text, the first one included, [T];
or why it has none after that prefix."""

NONMEMBER_PREFIX: Need[PrefixedLogProbs] = Need("nonmember_prefix", "prefix of known non-members")
MEMBER_PREFIX: Need[PrefixedLogProbs] = Need("member_prefix", "prefix of known members")

JOINS = {"none": "", "space": " ", "newline": "\n", "blank_line": "\n\n"}
"""What follows each shot, before the next one and before the text, by the values of the parameter ``join``."""


def _recall(statistics: TextStatistics, setting: Settings) -> Outcome:
    """(mean l(x | P_non) - gamma * mean l(x | P_mem)) / mean l(x): over all T tokens / over the scored ones.

    All means are negative: the less likely a prefix of non-members makes the text, the higher the score. ``recall`` has
    no gamma, and no prefix of members.
    """
    means, gamma = [], float(setting.get("gamma", 0.0))
    for need in (NONMEMBER_PREFIX, MEMBER_PREFIX) if gamma else (NONMEMBER_PREFIX,):
        found = statistics.of(need)[int(setting["shots"]), str(setting["join"])]
        if isinstance(found, UnmetNeed):
            return Outcome.not_applicable(found.reason)
        means.append(float(np.mean(found, dtype=np.float64)))
    own = mean_logprob(statistics)
    if own == 0:
        return Outcome.not_applicable("the text's mean log-likelihood is 0, and the score divides by it")
    return Outcome.from_score(quotient(means[0] - gamma * means[1] if gamma else means[0], own))


_SHOTS = Parameter(
    default=7,
    grid=(1, 4, 7),
    description="how many texts make the prefix, the first of a fixed order; fewer where a model has no room for them",
    requirement="a whole number from 1 to 1000",
    accepts=lambda value: type(value) is int and 1 <= value <= 1000,
    passes_each=True,
)
_JOIN = Parameter(
    default="none",
    grid=("none",),
    description=f"what separates the texts of the prefix, and precedes the text: {', '.join(JOINS)}",
    requirement=f"one of {', '.join(JOINS)}",
    accepts=lambda value: value in JOINS,
    quiet=True,
    passes_each=True,
)

_ANEW = " (prefix + text anew for models that cannot share it)"

RECALL = Detector(
    name="recall",
    title="ReCaLL",
    summary="mean log-likelihood of the text after a prefix of non-members, divided by that of the text by itself",
    source="Xie et al., EMNLP 2024 (ReCaLL)",
    needs=(NONMEMBER_PREFIX,),
    passes=f"2, and 1 of the prefix in all{_ANEW}",
    compute=for_each_setting(_recall),
    parameters={"shots": _SHOTS, "join": _JOIN},
    equation=(
        "LL(x | P) / LL(x): LL(x | P) is the mean of log p(x_t | P, x_<t) over all T tokens of the text, LL(x) the "
        "mean over the scored tokens of its own pass; P is the texts of the prefix, in order"
    ),
    reported=(
        "Its authors' project page gives 14.8, 15.4 and 14.8 points of AUROC more than the runner-up on WikiMIA of 32, "
        "64 and 128 words, as means over their models."
    ),
    also_reads=(
        "Whether the text is like the texts of the prefix, in topic, style and date: it reads the shift between the "
        "two sides as much as membership. How the texts are joined moves it, too."
    ),
)

CON_RECALL = Detector(
    name="con_recall",
    title="Con-ReCall",
    summary="recall with a prefix of non-members, minus gamma times recall with a prefix of members",
    source="Wang et al., COLING 2025 (Con-ReCall)",
    needs=(NONMEMBER_PREFIX, MEMBER_PREFIX),
    passes=f"3, and 1 of each prefix in all{_ANEW}",
    compute=for_each_setting(_recall),
    parameters={
        "shots": _SHOTS,
        "gamma": Parameter(
            default=0.5,
            grid=(0.5,),
            description="how much the prefix of members counts; fixed beforehand, never chosen on the labels",
            requirement="a number above 0 and at most 1",
            accepts=lambda value: isinstance(value, float) and 0.0 < value <= 1.0,
        ),
        "join": _JOIN,
    },
    equation="(LL(x | P_non) - gamma * LL(x | P_mem)) / LL(x), each LL as in recall, both prefixes of as many texts",
    reported=(
        "Its authors call it the state of the art on WikiMIA; their code tries nine values of gamma and chooses none."
    ),
    also_reads=(
        "Which of the two prefixes the text is more like, in topic, style and date: it reads the shift between the two "
        "sides as much as membership."
    ),
)
