"""The claims that results allow: split verdicts, claim levels, their sentences, and the effect of interest."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal, get_args

from audit_pipeline.errors import ConfigError

if TYPE_CHECKING:
    # The command line imports this module for its sentences. The statistics modules would slow down its start.
    from audit_pipeline.statistics.intervals import Interval

Design = Literal["temporal", "exchangeable", "randomised", "selected", "unstated", "unlabelled"]
HeldOutReason = Literal["newer", "unpublished", "random"]
"""The user's reason why documents are held out: they are newer than the model, they were never published, or they were
drawn at random from one collection."""
HELD_OUT_DESIGNS: Mapping[HeldOutReason | None, Design] = {
    "newer": "temporal",
    "unpublished": "selected",
    "random": "exchangeable",
    None: "unstated",
}
"""The design that follows from each reason. It determines the claim level. None means that no reason is stated."""
SplitVerdict = Literal["randomised by design", "mild shift", "separable without a model", "undetermined"]
ClaimLevel = Literal["screening only", "statistical evidence", "sound test"]

WHOEVER_RAN_THIS = "whoever ran this"
"""The source of a benchmark design that the user states on the command line."""
USER_OF_CHECK = "the user of corpus-audit check"
"""The source of statements that a user makes with options of ``check``. The option names are appended."""

MIN_TEXTS_PER_SIDE = 20
"""The number of texts per side below which an AUROC is reported with a warning, regardless of its interval."""

BEST_OF_SEVERAL = "The best of several looks better than it is"
"""The caveat of tables and pictures that show several detectors."""

AUROC_OF_INTEREST = 0.7
"""The weakest effect that matters, as an AUROC.

The answer is "nothing found" only if the comparison detects this effect with a probability of 80%. For documents, the
equivalent effect is a number of documents that score higher than every comparison document
(:func:`compute_min_documents_for_effect`)."""

POWER = 0.8
"""The required probability of detecting the effect."""

SMALLEST_P = 1e-300
"""The smallest reported p-value. float64 loses precision below about 1e-308, and a p-value is never 0."""


def compute_detectable_auroc(standard_error: float, level: float) -> float:
    """Return the AUROC that a one-sided test detects with a power of 80%, by the normal approximation.

    The AUROC is 0.5 + (z_level + z_0.2) * standard_error. It is above 1 if the test has less power at every AUROC.

    Args:
        standard_error: The standard error of the AUROC.
        level: The level of the test.
    """
    normal = NormalDist()
    return 0.5 + (normal.inv_cdf(1 - level) + normal.inv_cdf(POWER)) * standard_error


def compute_min_documents_for_effect(tested: int) -> int:
    """Return the number of tested documents, at least 1, that must stand out for an AUROC of ``AUROC_OF_INTEREST``.

    A document stands out if it scores higher than every comparison document. If a share s of the tested documents
    stands out and the others score like comparison documents, the AUROC is (1 + s) / 2.
    """
    return max(1, int((2 * AUROC_OF_INTEREST - 1) * tested + 1e-9))


MILD_BELOW = 0.60
SEPARABLE_ABOVE = 0.70

VERDICT_IN_WORDS: dict[SplitVerdict, str] = {
    "randomised by design": (
        "Which texts are members was decided by chance, so the two sides differ in nothing but membership."
    ),
    "mild shift": (
        "A classifier that never sees the model can hardly separate the two sides. "
        "What a detector finds beyond that is unlikely to be a difference of topic or style."
    ),
    "separable without a model": (
        "The two sides can be separated without any model, by their words alone. "
        "A high score may show when or about what a text was written, not that the model was trained on it."
    ),
    "undetermined": (
        "It is not known how far the two sides can be separated without a model. "
        "A detector's result may come from a difference between the sides other than membership."
    ),
}

CLAIM_IN_WORDS: dict[ClaimLevel, str] = {
    "screening only": (
        "The scores rank texts for a closer look. They are no evidence that any text was in the training data."
    ),
    "statistical evidence": (
        "The audited texts are compared with texts that are like them by design, and without a model the two sides can "
        "hardly be separated. A clear difference in scores is statistical evidence of training on the audited texts."
    ),
    "sound test": (
        "Chance decided which texts could be in the training data. "
        "The test's error rate holds without any assumption about the texts or the model."
    ),
}

ExtractionClaim = Literal["reproduced", "not reproduced"]
REPRODUCED_FROM = 0.001
"""A passage counts as reproduced if the model generates it with at least this probability."""

FIRST_CHOICES_UNKNOWN_IN_WORDS = (
    "The model's interface does not give its first choices: only probabilities were examined."
)
LIKELIEST_UNKNOWN_IN_WORDS = (
    "The model's interface does not give the likeliest tokens of every position: the probabilities are those of "
    "drawing "
    "every token from the whole distribution."
)
TOO_SHORT = "too short for extraction"
"""The reason why no passage is searched in a document that has fewer tokens than a window."""
ANSWER_TOO_SHORT = "the answer is too short for extraction"
"""Reason for skipping an answer with fewer tokens than a suffix."""
ANSWER_WITHOUT_CONTEXT = "nothing precedes the answer"
"""Reason for skipping an answer at the beginning of its text."""
ANSWER_BEYOND_CONTEXT = "the conversation before the answer is too long for the model's context"
"""Reason for skipping an answer that does not fit into the model's context."""
ANSWER_NOT_MEASURED = "the probability of the answer is not known"
"""Reason for a missing result: the back end returned no log-probability for a token of the answer."""
EXTRACTION_IN_WORDS: dict[ExtractionClaim, str] = {
    "reproduced": (
        "Given the words just before it, the model produces such a passage word for word: by its first choices alone, "
        "or in the number of draws shown with an even chance. This is a direct observation of the model. It does not "
        "say how the text got into it: near-duplicates and quotations suffice. A passage that was not found clears "
        "nobody."
    ),
    "not reproduced": (
        "No passage was found that the model produces word for word, neither by its first choices alone nor with a "
        f"probability of at least {REPRODUCED_FROM}; passages that are set apart do not count. "
        "That clears nobody: other passages, other prefixes or another way of asking may bring out a passage."
    ),
}


def find_extraction_claim(reproduced: int) -> ExtractionClaim:
    """Return the claim that follows from the number of reproduced passages.

    Args:
        reproduced: The number of reproduced passages that are evidence of memorisation. Passages with another
            explanation (see ``SET_APART_IN_WORDS``) are not counted.
    """
    return "reproduced" if reproduced else "not reproduced"


SET_APART_IN_WORDS = (
    "Set apart are passages that the model reproduces although it need not have read the document: their suffix goes "
    "on as their prefix did, their words are in three of the documents or more, the reference model reproduces them, "
    "too, or they are about as likely after prefixes of other documents. They count nowhere else."
)

NOT_CALIBRATED_IN_WORDS = (
    "Not calibrated: nothing here says how often documents that the model cannot have seen reach the same numbers. "
    "Name such documents: with --held-out, or as the non-members of a benchmark."
)

CALIBRATED_IN_WORDS = (
    "The p-values compare the strongest window of each document with that of each held-out document, among as many "
    "windows of both. They hold where a document that the model has not read is like the held-out documents: of the "
    "same kind, about the same things. Of a document with many more windows than were compared, they say little."
)

CALIBRATED_ANSWERS_IN_WORDS = (
    "The p-values compare each answer with the answers at the same place of the held-out conversations, by their first "
    "tokens. They hold if a conversation that the model has not read is like the held-out conversations: of the same "
    "kind, about the same things."
)

AS_STATED_IN_WORDS = (
    "According to {who}, chance decided which texts could be in the training data. Nothing here can check this. "
    "If it is true, the test's error rate holds without any assumption about the texts or the model."
)


def is_stated_by_user(stated_by: str) -> bool:
    """Return True if the source of a statement is the user of the command line, and not a publisher."""
    return stated_by == WHOEVER_RAN_THIS or stated_by.startswith(USER_OF_CHECK)


def warn_of_few_texts(n_members: int, n_nonmembers: int) -> str | None:
    """Return the warning for an AUROC of few texts, or None if both sides have enough texts."""
    if min(n_members, n_nonmembers) >= MIN_TEXTS_PER_SIDE:
        return None
    return (
        f"only {n_members} + {n_nonmembers} texts: with fewer than {MIN_TEXTS_PER_SIDE} on a side an AUROC says little"
    )


def find_claim_source(level: str | None, stated_by: str | None, blind_auroc: float | None) -> str | None:
    """Return the source of the statement that a claim level rests on.

    Args:
        level: The claim level.
        stated_by: The source of the statement about the origin of the two sides.
        blind_auroc: The AUROC of the blind control, which tests the statement, or None if it was not computed.

    Returns:
        The source. None if the level claims nothing, or if a blind control has tested the statement.
    """
    if level in (None, "screening only") or blind_auroc is not None:
        return None
    return stated_by


def format_claim_level(level: str, stated_by: str | None) -> str:
    """Format the claim level, followed by the source of the statement that it rests on (:func:`find_claim_source`)."""
    return level if stated_by is None else f"{level}, as stated by {stated_by}"


def decide_split_verdict(design: str, blind_interval: Interval, *, matched: bool = False) -> SplitVerdict:
    """Return the verdict on the two sides of a benchmark.

    If the blind control separates labels that are stated as randomised (lower bound > 0.70), they are not randomised.
    The verdict is then *separable without a model*.

    Args:
        design: The design of the benchmark.
        blind_interval: The 95% interval of the blind control's AUROC.
        matched: True if the texts were selected so that a classifier hardly separates the two sides. A low AUROC is
            then a result of the selection, so the verdict is at best *undetermined*.

    Raises:
        ConfigError: If the design is unknown.
    """
    _require_known_design(design)
    if blind_interval.low is not None and blind_interval.low > SEPARABLE_ABOVE:
        return "separable without a model"
    if design == "randomised":
        return "randomised by design"
    if not matched and blind_interval.high is not None and blind_interval.high < MILD_BELOW:
        return "mild shift"
    return "undetermined"


def decide_claim_level(design: str, verdict: SplitVerdict) -> ClaimLevel:
    """Return the strongest claim that a benchmark's design and verdict allow.

    Raises:
        ConfigError: If the design is unknown.
    """
    _require_known_design(design)
    if verdict == "randomised by design":
        return "sound test"
    if design == "exchangeable" and verdict == "mild shift":
        return "statistical evidence"
    return "screening only"


def _require_known_design(design: str) -> None:
    if design not in get_args(Design):
        raise ConfigError(f"there is no benchmark design '{design}'. Use one of {', '.join(get_args(Design))}.")
