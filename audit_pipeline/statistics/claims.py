"""What may be said: split verdict, claim level, both in words, and what "nothing found" has to be able to find."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal, get_args

from audit_pipeline.errors import ConfigError

if TYPE_CHECKING:
    # The command line reads the sentences, and waits for no statistics.
    from audit_pipeline.statistics.intervals import Interval

Design = Literal["temporal", "exchangeable", "randomised", "selected", "unstated", "unlabelled"]
HeldOutReason = Literal["newer", "unpublished", "random"]
"""Why documents are held out, as the user states it: they are newer than the model, they were never published, or
chance alone chose them out of one collection."""
HELD_OUT_DESIGNS: Mapping[HeldOutReason | None, Design] = {
    "newer": "temporal",
    "unpublished": "selected",
    "random": "exchangeable",
    None: "unstated",
}
"""The design that each reason states, by which the claim level is decided. None: no reason is stated."""
SplitVerdict = Literal["randomised by design", "mild shift", "separable without a model", "undetermined"]
ClaimLevel = Literal["screening only", "statistical evidence", "sound test"]

WHOEVER_RAN_THIS = "whoever ran this"
"""The source of a design that is stated on the command line."""
USER_OF_CHECK = "the user of corpus-audit check"
"""The source of what is stated by options of the command check, whose names follow."""

FEW_TEXTS = 20
"""With fewer texts on a side an AUROC says little, whatever its interval."""

BEST_OF_SEVERAL = "The best of several looks better than it is"
"""The caveat wherever several detectors are shown together."""

AUROC_OF_INTEREST = 0.7
"""The weakest effect that matters. "Nothing found" is only said where the comparison would have found it four times in
five: of scores this AUROC; of documents as many as come to it where each scores higher than every comparison document.
"""

POWER = 0.8
"""Four times in five."""

SMALLEST_P = 1e-300
"""A p-value is never 0: below this float64 has no digits left, and the p-value is given as this."""


def detectable_auroc(standard_error: float, level: float) -> float:
    """The AUROC that a one-sided test at ``level`` finds four times in five, where an estimate of it has that standard
    error: normal approximation, .5 + (z_level + z_.2) standard errors; above 1 where no AUROC could."""
    normal = NormalDist()
    return 0.5 + (normal.inv_cdf(1 - level) + normal.inv_cdf(POWER)) * standard_error


def compute_min_documents_for_effect(tested: int) -> int:
    """Return how many of so many documents have to stand out for an effect that matters: one at least.

    Where a share s scores higher than every comparison document, and the others as these do, the AUROC is (1 + s) / 2.
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
"""A passage counts as reproduced where the model gives it with at least this probability."""

FIRST_CHOICES_UNKNOWN_IN_WORDS = (
    "The model's interface does not give its first choices: only probabilities were examined."
)
LIKELIEST_UNKNOWN_IN_WORDS = (
    "The model's interface does not give the likeliest tokens of every place: the probabilities are those of drawing "
    "every token from the whole distribution."
)
TOO_SHORT = "too short for extraction"
"""Why a document has no window: it has fewer tokens than one."""
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
    """Return the claim where the model reproduces so many passages, those that are set apart not counted.

    It is a direct observation, independent of other texts.
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

AS_STATED_IN_WORDS = (
    "That chance decided which texts could be in the training data is what {who} says, and nothing here can check it. "
    "If it is so, the test's error rate holds without any assumption about the texts or the model."
)


def is_user(stated_by: str) -> bool:
    """Return whether a statement is the user's, who reads the answer."""
    return stated_by == WHOEVER_RAN_THIS or stated_by.startswith(USER_OF_CHECK)


def warn_of_few_texts(n_members: int, n_nonmembers: int) -> str | None:
    """Return the warning for an AUROC of so few texts on a side; None where there are enough."""
    if min(n_members, n_nonmembers) >= FEW_TEXTS:
        return None
    return f"only {n_members} + {n_nonmembers} texts: with fewer than {FEW_TEXTS} on a side an AUROC says little"


def find_claim_source(level: str | None, stated_by: str | None, blind_auroc: float | None) -> str | None:
    """Whose statement a claim level rests on; None where it claims nothing, or rests on more than a statement.

    ``stated_by`` said how the two sides came about; ``blind_auroc`` is the blind control's AUROC, None where it was not
    computed, so that nothing could contradict the statement.
    """
    return None if level in (None, "screening only") or blind_auroc is not None else stated_by


def format_claim_level(level: str, stated_by: str | None) -> str:
    """Return the claim level, and whose statement it rests on (as of :func:`find_claim_source`)."""
    return level if stated_by is None else f"{level}, as stated by {stated_by}"


def decide_split_verdict(design: str, blind_interval: Interval, *, matched: bool = False) -> SplitVerdict:
    """Return what the two sides of a benchmark are, by its design and the 95% interval of the blind control's AUROC.

    Labels stated as randomised that the blind control separates (lower bound > .70) are not randomised: the verdict is
    then *separable without a model*. For sides that were ``matched``, chosen because a classifier hardly separates
    them, a low AUROC only shows how they were chosen: they are at best *undetermined*. Raises ConfigError for an
    unknown design.
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
    """Return the most that may be claimed from a benchmark of this design with this verdict on its split.

    Raises ConfigError for an unknown design.
    """
    _require_known_design(design)
    if verdict == "randomised by design":
        return "sound test"
    if design == "exchangeable" and verdict == "mild shift":
        return "statistical evidence"
    return "screening only"


def _require_known_design(design: str) -> None:
    if design not in get_args(Design):
        raise ConfigError(f"there is no benchmark design '{design}'; use one of {', '.join(get_args(Design))}")
