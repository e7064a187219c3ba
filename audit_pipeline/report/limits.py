"""The limits of what any report can say.

What belongs here: sentences that hold for every number, and what an answer of each kind does not show. What does not:
what is said of one answer (words.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from audit_pipeline.metrics.claims import BEST_OF_SEVERAL
from audit_pipeline.report.kinds import NO_TRACE, SIGNS, Sign

LIMITS: Sequence[tuple[str, str]] = (
    (
        "Screening is not evidence.",
        "Most findings are screening: they say where to look, not what happened. A finding counts as statistical"
        " evidence only where the texts it is calibrated on are exchangeable with the audited ones by design and the"
        " blind control cannot separate the sides.",
    ),
    (
        "Time shifts texts.",
        "Where members are older than non-members, topics, names and habits of writing differ between the sides. A"
        " detector can score that difference and say nothing about training data. The blind control measures what"
        " words alone give away; a language model sees more than words.",
    ),
    (
        "Labels by date are an upper bound.",
        "“Member” then means published early enough to have been collected, not that the text was.",
    ),
    (
        "Texts come in groups.",
        "Passages of one document are not independent of each other. Intervals are resampled by group; with few"
        " groups they are wide, and should be.",
    ),
    (
        "Many detectors, many settings.",
        f"{BEST_OF_SEVERAL}. So one detector at one setting, named beforehand, gives the"
        " answer; the others stand beside it, and the settings are for exploration. Intervals are not corrected for"
        " the number of detectors; the column “q of all” is.",
    ),
    (
        "A detector at chance clears nobody.",
        "These detectors find texts seen often better than texts seen once; text that was trained on can go unnoticed.",
    ),
    (
        "Scores compare texts of one model on one benchmark.",
        "Their size means nothing between models, detectors or text lengths.",
    ),
    (
        "A high score is no finding about a single text.",
        "What is common, formulaic or quoted often scores high without the text itself having been read.",
    ),
    (
        "A corrected rate rests on its assumption.",
        "It takes the audited texts to score as the calibration members and non-members do. Where they are harder"
        " or easier for the model, it is off by as much.",
    ),
)
"""Each as its title and its text."""

_NOT_SHOWN: Mapping[Sign, tuple[str, ...]] = {
    "found": (
        "How the text got into the model: quotations and copies elsewhere suffice.",
        "Whether passages that the model does not give were used.",
    ),
    "stands out": (
        "That training is the reason, unless chance decided which texts the model could read (a sound test): otherwise"
        " age, subject or style of the texts may be.",
        "Which single text was used: a score is no finding about one text.",
    ),
    "nothing found": (f"That the texts were not used. {NO_TRACE}",),
    "no conclusion": ("Whether the texts were used or not: the comparison could not have found it.",),
}
_NEVER_SHOWN = "Whether a use was lawful. This page reports a measurement of a model."


def not_shown(signs: Sequence[str]) -> list[str]:
    """What answers of these kinds (kinds.py) do not show, a sentence or two each."""
    return [sentence for sign in SIGNS if sign in signs for sentence in _NOT_SHOWN[sign]] + [_NEVER_SHOWN]
