"""The kinds of answer, each declared once: its sign and place, its sentences without numbers, what it does not show.

What belongs here: a kind of answer and all that follows from the kind alone, and the limits that hold for every number.
What does not: which kind an answer is, and sentences with numbers (answer.py, extraction_words.py, brief.py).

"How sure" says no more than the claim level allows, nor more than the comparison could have found: *sure* needs a sound
test or what is seen directly, *fairly sure* statistical evidence, and everything else is *not sure*. That nothing was
found is never sure. A 95% interval lies on that side of chance by accident in about 1 of 40 audits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from audit_pipeline.metrics.claims import BEST_OF_SEVERAL, FEW_TEXTS
from audit_pipeline.report.number_format import capitalise_first

Sign = Literal["found", "stands out", "nothing found", "no conclusion"]
"""What an answer comes to: seen directly; higher than chance; the comparison would have found an effect that matters
(metrics/claims.py) and did not; it could hardly have found anything, or what differs cannot be told from training."""

SIGNS: tuple[Sign, ...] = ("found", "stands out", "nothing found", "no conclusion")
"""What matters most first."""

NO_TRACE = "Text that a model read once or twice often leaves no trace that these detectors find."
ALIKE = "comparison texts that are like these by design, chosen at random from the same collection"
WORD_FOR_WORD = "a search for passages that the model gives word for word (corpus-audit extract)"
CANARIES = "canaries, which are planted before publication"
BY_ACCIDENT = "By accident alone, a difference this clear comes about in about 1 of 40 such audits"
OTHER_AUDIT = "A new audit, of other texts or of another model."
NO_RESULT = "There is no result to be sure of."
_NO_SIGN = "Not sure. Scores that point away from training are no sign of it, and may hide one."
_OTHER_DIFFERENCE = "Finding out in what else the two sides differ, as length, age or subject; and texts without it."


Other = Literal["search", "canaries"]
_OTHERS: Mapping[Other, str] = {"search": WORD_FOR_WORD, "canaries": CANARIES}


@dataclass(frozen=True)
class AnswerKind:
    """A kind of answer.

    ``place``: smaller is shown first. ``how_sure`` and ``what_would_change`` are sentences, None where they depend on
    more than the kind; the braces of ``how_sure`` are filled by brief.py. ``worth``: what something that stands out may
    claim; None: as the claim level of the answer says. ``helped_by``: what else may change such an answer; ``others``:
    what does not rest on these scores and may find what they do not show, canaries last; said where it is not done.
    """

    name: str
    sign: Sign
    place: int
    how_sure: str | None
    what_would_change: str | None
    worth: Literal["sound", "evidence", "look"] | None = None
    helped_by: Literal["texts that are alike", "more texts"] | None = None
    others: tuple[Other, ...] = ()


_DECLARED = (
    AnswerKind(
        "passages_reproduced",
        "found",
        0,
        None,
        None,
    ),
    AnswerKind("asked_reproduced", "found", 0, None, None),
    AnswerKind(
        "sound_evidence_of_training",
        "stands out",
        1,
        f"Sure{{if_so}}. {BY_ACCIDENT}, and chance decided which texts are members.",
        "Only a mistake in how the labels were drawn, or in which texts the model was given.",
        worth="sound",
    ),
    AnswerKind(
        "evidence_of_training",
        "stands out",
        1,
        (
            f"Fairly sure. {BY_ACCIDENT}. The rest depends on the two sides being alike by design; a program that reads"
            " their words alone hardly tells them apart."
        ),
        (
            "A difference between the two sides that nobody has noticed. Labels that are drawn at random would rule"
            " that out."
        ),
        worth="evidence",
        others=("canaries",),
    ),
    AnswerKind(
        "documents_stand_out", "stands out", 2, None, None, helped_by="texts that are alike", others=("search",)
    ),
    AnswerKind(
        "difference_to_look_at",
        "stands out",
        3,
        (
            "Not sure. The scores differ by more than chance, but the two sides may differ in more than training: this"
            " is a screening, which says where to look and not what happened."
        ),
        f"{capitalise_first(ALIKE)}, would make it evidence or take it away.",
        worth="look",
        helped_by="texts that are alike",
        others=("search",),
    ),
    AnswerKind(
        "difference_within_control",
        "no conclusion",
        4,
        "Not sure.{words_alone} That may explain the difference as well as training does.",
        "More texts, so that the result stands clearly above what the words alone give away, or falls to it.",
    ),
    AnswerKind(
        "no_detector_named",
        "no conclusion",
        4,
        f"Not sure. {BEST_OF_SEVERAL}, so none of the numbers can be taken for the answer.",
        "One detector that is named before the next audit (--headline NAME), on texts that are new.",
        helped_by="texts that are alike",
    ),
    AnswerKind("reversed_difference", "no conclusion", 4, _NO_SIGN, _OTHER_DIFFERENCE),
    AnswerKind("documents_opposite_direction", "no conclusion", 4, _NO_SIGN, _OTHER_DIFFERENCE),
    AnswerKind(
        "texts_differ",
        "no conclusion",
        4,
        "Not sure. Something differs, and that may be training, or age, subject or style of the texts.",
        f"{capitalise_first(ALIKE)}, would show whether it is more than these; and more of them, which texts it is.",
        helped_by="texts that are alike",
        others=("search",),
    ),
    AnswerKind(
        "separable",
        "no conclusion",
        5,
        ("Not sure at all, in either direction.{words_alone} Whatever the model’s scores show may be that difference."),
        f"Other texts: {ALIKE}. More texts of the same kind, or another detector, change nothing.",
        others=("search", "canaries"),
    ),
    AnswerKind(
        "no_document_stands_out",
        "nothing found",
        6,
        f"Not sure that the documents were not used: what stands out less than this would not be found. {NO_TRACE}",
        None,
        helped_by="more texts",
        others=("search",),
    ),
    AnswerKind("passages_not_reproduced", "nothing found", 7, None, None),
    # What a model that answers in words said (ask_words.py).
    AnswerKind("asked_stands_out", "stands out", 3, None, None),
    AnswerKind("asked_not_reproduced", "nothing found", 7, None, None),
    AnswerKind("asked_without_result", "no conclusion", 8, None, None),
    AnswerKind(
        "no_difference",
        "nothing found",
        6,
        None,
        None,
        helped_by="more texts",
        others=("search", "canaries"),
    ),
    AnswerKind(
        "too_few_texts",
        "no conclusion",
        6,
        (
            "No conclusion. With so few texts, only a detector that separates the sides far better than detectors do"
            " could be told from chance."
        ),
        "More texts on both sides (corpus-audit power says how many are needed).",
        helped_by="more texts",
        others=("search",),
    ),
    AnswerKind(
        "documents_cannot_stand_out",
        "no conclusion",
        6,
        "No conclusion. With so few documents to compare with, even the highest score may be an accident.",
        "More documents that the model cannot have read.",
        helped_by="more texts",
        others=("search",),
    ),
    AnswerKind("passages_stand_out", "stands out", 3, None, None),
    AnswerKind("passages_hardly_searched", "no conclusion", 8, None, None),
    AnswerKind("passages_too_short", "no conclusion", 8, NO_RESULT, None),
    AnswerKind(
        "not_defined",
        "no conclusion",
        8,
        NO_RESULT,
        f"Scores that differ between texts, and at least {FEW_TEXTS} texts on each side.",
    ),
    AnswerKind(
        "not_evaluated",
        "no conclusion",
        9,
        NO_RESULT,
        "Texts that are known to be members or non-members, or texts that the model cannot have read.",
    ),
    # Of tests of whole sets, by their outcome; evidence comes where that from scores does (summary.py).
    AnswerKind("found", "stands out", 3, None, None),
    AnswerKind("opposite_direction", "no conclusion", 4, None, None),
    AnswerKind("not_found", "nothing found", 6, None, None),
    AnswerKind("hardly_testable", "no conclusion", 6, None, None),
    AnswerKind("refused", "no conclusion", 9, NO_RESULT, None),
)

KINDS: Mapping[str, AnswerKind] = {kind.name: kind for kind in _DECLARED}
"""Every kind of answer by its name, which is the ``outcome`` of an answer."""


def kind_of(outcome: str) -> AnswerKind:
    """The kind of that name; of a kind that another version wrote, one without sentences, shown last."""
    return KINDS.get(outcome) or AnswerKind(outcome, "no conclusion", len(KINDS), NO_RESULT, "")


def suggest_others(outcome: str, done: Collection[Other]) -> str:
    """What may find what such an answer does not show, as a sentence; empty where all of it is ``done``."""
    left = [_OTHERS[other] for other in kind_of(outcome).others if other not in done]
    comma = "," if "canaries" in kind_of(outcome).others and "canaries" not in done else ""
    return f"{capitalise_first(' and '.join(left))}{comma} can find what scores do not show." if left else ""


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
        "Texts of one document are not independent of each other. Intervals go by group; with few"
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
    "no conclusion": ("Whether the texts were used or not: the comparison cannot say.",),
}
_NEVER_SHOWN = "Whether a use was lawful. This page reports a measurement of a model."


def not_shown(signs: Sequence[str]) -> list[str]:
    """What answers of these kinds do not show, a sentence or two each."""
    return [sentence for sign in SIGNS if sign in signs for sentence in _NOT_SHOWN[sign]] + [_NEVER_SHOWN]
