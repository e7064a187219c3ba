"""The text against itself in lower case."""

from __future__ import annotations

import math

from audit_pipeline.detectors.detector import Detector, Outcome, for_all_settings
from audit_pipeline.detectors.detector_inputs import Need, TextStatistics
from audit_pipeline.detectors.loss import mean_logprob

LOWERCASED: Need[TextStatistics] = Need("lowercase", "extra pass (the text in lower case)")
"""The statistics of the text in lower case."""


def has_cased_characters(text: str) -> bool:
    """Whether any character of ``text`` is one of an upper-case, lower-case or title-case form (Chinese has none)."""
    return any(character.islower() or character.isupper() or character.istitle() for character in text)


def quotient(dividend: float, divisor: float) -> float:
    """``dividend`` / ``divisor``, a number other than 0; NaN where either is not finite (x / -inf would pass as 0)."""
    return dividend / divisor if math.isfinite(dividend) and math.isfinite(divisor) else math.nan


def _lowercase(statistics: TextStatistics) -> Outcome:
    """mean l(lower(x)) / mean l(x), in [0, inf).

    Both means are negative, so their ratio is that of the losses: it grows as the text itself gets likelier. Text that
    is in lower case already scores 1; text without cased characters has no lower case to be compared with.
    """
    lowercased = statistics.of(LOWERCASED)
    if not has_cased_characters(statistics.text):
        return Outcome.not_applicable("the text has no cased characters")
    if not len(lowercased):
        return Outcome.not_applicable("the text in lower case has no scored token")
    own = mean_logprob(statistics)
    if own == 0:
        return Outcome.not_applicable("the text's mean log-likelihood is 0, and the score divides by it")
    return Outcome.from_score(quotient(mean_logprob(lowercased), own))


LOWERCASE = Detector(
    name="lowercase",
    title="Lowercase",
    summary="mean log-likelihood of the text in lower case divided by that of the text",
    source="Carlini et al., USENIX Security 2021; as used in Zhang et al., ICLR 2025, section 5.1",
    needs=(LOWERCASED,),
    passes="2",
    compute=for_all_settings(_lowercase),
    equation="(mean of l_t over the tokens of the text in lower case) / (mean of l_t over those of the text)",
    reported=(
        "No figure of Carlini et al. 2021 is given here. In Zhang et al. 2025 (table 1) it has an AUROC of 63.5, 60.8 "
        "and 60.4 on WikiMIA at 32, 64 and 128 words, the mean of five models."
    ),
    also_reads=(
        "How much of the text is in capitals: names, headings, abbreviations and German nouns. Lower case also cuts "
        "words into other tokens, so languages and tokenizers differ."
    ),
)
