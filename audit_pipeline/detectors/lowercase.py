"""Lowercase: the likelihood of the text in lower case, relative to the text itself."""

from __future__ import annotations

from audit_pipeline.detectors.detector import Detector, Outcome, for_all_settings
from audit_pipeline.detectors.detector_inputs import Need, TextStatistics
from audit_pipeline.detectors.loss import compute_mean_logprob, divide_finite

LOWERCASED: Need[TextStatistics] = Need("lowercase", "extra pass (the text in lower case)")
"""The requirement of the statistics of the text in lower case."""


def has_cased_characters(text: str) -> bool:
    """Return True if a character of ``text`` is in upper, lower or title case. Chinese has no such characters."""
    return any(character.islower() or character.isupper() or character.istitle() for character in text)


def _score_lowercase(statistics: TextStatistics) -> Outcome:
    """Compute mean l(lower(x)) / mean l(x), in [0, inf).

    Both means are negative, so the score is the ratio of the losses. It grows as the text itself gets likelier. A text
    in lower case scores 1. A text without cased characters has no score.
    """
    lowercased = statistics.get_extra(LOWERCASED)
    if not has_cased_characters(statistics.text):
        return Outcome.not_applicable("the text has no cased characters")
    if not len(lowercased):
        return Outcome.not_applicable("the text in lower case has no scored token")
    mean = compute_mean_logprob(statistics)
    if mean == 0:
        return Outcome.not_applicable("the text's mean log-likelihood is 0, and the score divides by it")
    return Outcome.from_score(divide_finite(compute_mean_logprob(lowercased), mean))


LOWERCASE = Detector(
    name="lowercase",
    title="Lowercase",
    summary="mean log-likelihood of the text in lower case divided by that of the text",
    source="Carlini et al., USENIX Security 2021; as used in Zhang et al., ICLR 2025, section 5.1",
    needs=(LOWERCASED,),
    passes="2",
    compute=for_all_settings(_score_lowercase),
    equation="(mean of l_t over the tokens of the text in lower case) / (mean of l_t over those of the text)",
    reported=(
        "No figure of Carlini et al. 2021 is given here. In Zhang et al. 2025 (table 1) it has an AUROC of 63.5, 60.8 "
        "and 60.4 on WikiMIA at 32, 64 and 128 words, the mean of five models."
    ),
    also_reads=(
        "How much of the text is in capitals: names, headings, abbreviations and German nouns. Words in lower case "
        "also split into other tokens, so languages and tokenizers differ."
    ),
)
