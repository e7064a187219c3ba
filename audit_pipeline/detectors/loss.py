"""Log-rank, Loss, Zlib and Lowercase: means over all tokens of the text, some relative to another size of the text."""

from __future__ import annotations

import math
import zlib

import numpy as np

from audit_pipeline.detectors.detector import Detector, Outcome, for_all_settings, reads_columns
from audit_pipeline.detectors.detector_inputs import Need, TextStatistics

LOWERCASED: Need[TextStatistics] = Need("lowercase", "extra pass (the text in lower case)")
"""The requirement of the statistics of the text in lower case."""


def compute_mean_logprob(statistics: TextStatistics) -> float:
    """Compute the mean of l_t over the n >= 1 scored tokens, in nats."""
    return float(np.mean(statistics.logprob, dtype=np.float64))


def divide_finite(dividend: float, divisor: float) -> float:
    """Divide two numbers, or return NaN if one of them is not finite. The divisor must not be 0.

    Division by minus infinity would yield the valid score 0.
    """
    return dividend / divisor if math.isfinite(dividend) and math.isfinite(divisor) else math.nan


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
    reported=("The authors designed it to detect machine-written texts, not members. No result for members is cited."),
    also_reads=(
        "The same as the loss: how common the words are, and thus style, topic and length. Tokens with equal logits "
        "share the better rank. Equal logits are frequent if a model runs in low precision."
    ),
)

LOSS = Detector(
    name="loss",
    title="Loss",
    summary="mean log-likelihood of the text's tokens (the negative loss)",
    source="Yeom et al., CSF 2018; as used in Shi et al., ICLR 2024, section 4.2",
    passes="1",
    compute=for_all_settings(lambda statistics: Outcome.from_score(compute_mean_logprob(statistics))),
    equation="mean over the n scored tokens of l_t = log p(x_t | x_<t), in nats",
    reported=(
        "No figure of Yeom et al. 2018 is given here. In Zhang et al. 2025 it has an AUROC of 66.5, 63.3 and 67.4 on "
        "WikiMIA at 32, 64 and 128 words, the mean of five models (table 1), and 52.1 to 54.9 on MIMIR (table 2)."
    ),
    also_reads=(
        "Above all how easy the text is: common words, repetition, quotations and plain style score high, whether the "
        "model saw the text or not. Longer texts score higher, because their later tokens have more context."
    ),
)


def _score_zlib(statistics: TextStatistics) -> Outcome:
    try:
        encoded = statistics.text.encode()
    except UnicodeEncodeError as error:
        reason = f"the text is not valid Unicode: lone surrogate at character {error.start}"
        return Outcome.failed(reason)
    return Outcome.from_score(compute_mean_logprob(statistics) / len(zlib.compress(encoded)))


ZLIB = Detector(
    name="zlib",
    title="Zlib",
    summary="mean log-likelihood divided by the bytes of the zlib-compressed text",
    source="Carlini et al., USENIX Security 2021; as used in Shi et al., ICLR 2024, section 4.2",
    passes="1",
    compute=for_all_settings(_score_zlib),
    equation="(mean over the n scored tokens of l_t) / (bytes of the text in UTF-8, compressed by zlib)",
    reported=(
        "No figure of Carlini et al. 2021 is given here. In Zhang et al. 2025 it has an AUROC of 67.0, 65.0 and 69.4 "
        "on WikiMIA at 32, 64 and 128 words, the mean of five models (table 1), and 52.3 to 54.8 on MIMIR (table 2)."
    ),
    also_reads=(
        "The text's length, which determines most of the bytes: the longer of two texts scores higher. Besides, the "
        "same as the loss, except for repetition that zlib finds."
    ),
)


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
