"""What a comparison before and after comes to, in words.

What belongs here: the rules from numbers to a conclusion, and its sentences. What does not: the numbers (compared.py).

PrivLeak carries the conclusion: whether the texts to be forgotten can still be told from held-out ones by the model's
own probabilities. That the model no longer says them (memorisation, extraction) is the second question, and never
enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Outcome = Literal[
    "forgotten",
    "partly forgotten",
    "only looks forgotten",
    "over-forgotten",
    "still known",
    "never known",
    "undetermined",
]

OUTPUTS = ("exact_memorization", "extraction_strength", "verbatim_coverage")
"""How much of a text the model says. A clear fall of one of them is a change that a user sees; where the texts to be
forgotten stand clearly above held-out ones, something is left of them."""
P_LEVEL = 0.05

_HEADLINES: Mapping[Outcome, str] = {
    "forgotten": (
        "Forgotten, as far as these numbers can tell: {before} told the texts to be forgotten from the held-out ones, "
        "and {after} does so no more than {reference}."
    ),
    "partly forgotten": (
        "Forgotten in part only: by its probabilities {after} tells the texts from the held-out ones no more than "
        "{reference}, but it still says more of them than of held-out ones."
    ),
    "only looks forgotten": (
        "It only looks forgotten: {after} says less of the texts than {before} did, but by its probabilities they can "
        "still be told from the held-out ones."
    ),
    "over-forgotten": (
        "It only looks forgotten: {after} finds the texts less likely than {reference} would. "
        "That gives them away as clearly as if it still knew them."
    ),
    "still known": (
        "Not forgotten: {after} still tells the texts to be forgotten from the held-out ones, and says as much of them "
        "as {before} did."
    ),
    "never known": (
        "Nothing shows that there was anything to forget: {before} does not tell the texts from the held-out ones more "
        "than {reference}. That {after} does not know them now says nothing about forgetting."
    ),
    "undetermined": "These numbers do not settle whether {after} has forgotten the texts.",
}

_REFERENCE_RETRAINED = "the model that was trained without them"
_REFERENCE_STATED = "a model that cannot tell the two sides apart"

STATED_IN_WORDS = (
    "No retrained model was named, so the reference is a model that cannot tell the two sides apart (.5, as stated). "
    "That is right only where the texts to be forgotten and the held-out ones differ in nothing but training: of old "
    "texts against new ones it is wrong."
)
CLEARS_NOBODY_IN_WORDS = (
    "What these numbers do not see may still be there: other words for the same facts, other prompts, or what a little "
    "further training brings back."
)

Key = tuple[str, str, str]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Conclusion:
    """What a comparison comes to: its kind, one sentence, and what it rests on and does not say."""

    outcome: Outcome
    headline: str
    explanation: tuple[str, ...]


def conclude(rows: Iterable[Row], *, before: str, after: str) -> Conclusion:
    """The conclusion from the rows of one comparison: metric, role, side, value, ci_low, ci_high, n, reason.

    ``before`` and ``after`` are the models' names.
    """
    found = {(row["metric"], row["role"], row["side"]): row for row in rows}
    retrained = _value(found, "auroc_min_40", "retrained", "both") is not None
    outcome = _outcome(found)
    names = {"before": before, "after": after, "reference": _REFERENCE_RETRAINED if retrained else _REFERENCE_STATED}
    return Conclusion(outcome, _HEADLINES[outcome].format(**names), tuple(_explained(found, outcome, retrained)))


def _outcome(found: Mapping[Key, Row]) -> Outcome:
    """Known before, unless its PrivLeak is clearly below 0; then what the model after makes of it."""
    before, after = (found[("privleak", role, "both")] for role in ("before", "after"))
    if None in (before["ci_high"], after["ci_low"], after["ci_high"]):
        return "undetermined"
    if before["ci_high"] >= 0:
        return "never known"
    if after["ci_low"] > 0:
        return "over-forgotten"
    if after["ci_high"] < 0:
        return "only looks forgotten" if _says_less(found) else "still known"
    fell = found[("auroc_min_40", "change", "both")]["ci_high"]
    if fell is None or fell >= 0 or _unlike_retrained(found):
        return "undetermined"
    return "partly forgotten" if _says_more(found) else "forgotten"


def _says_more(found: Mapping[Key, Row]) -> bool:
    """Whether the model after says clearly more of the texts to be forgotten than of held-out ones, by any measure.

    Clearly: the intervals are apart. A measure by which the retrained model does so, too, says nothing: the sides
    differ.
    """
    more = {role: {one for one in OUTPUTS if _is_above(found, one, role)} for role in ("after", "retrained")}
    return bool(more["after"] - more["retrained"])


def _is_above(found: Mapping[Key, Row], metric: str, role: str) -> bool:
    forget, holdout = (found.get((metric, role, side)) for side in ("forget", "holdout"))
    if forget is None or holdout is None or forget["ci_low"] is None or holdout["ci_high"] is None:
        return False
    return bool(forget["ci_low"] > holdout["ci_high"])


def _says_less(found: Mapping[Key, Row]) -> bool:
    """Whether the model says clearly less of the texts to be forgotten, by any measure of it."""
    changes = (found.get((metric, "change", "forget")) for metric in OUTPUTS)
    return any(row is not None and row["ci_high"] is not None and row["ci_high"] < 0 for row in changes)


def _unlike_retrained(found: Mapping[Key, Row]) -> bool:
    """Whether the texts to be forgotten, and they alone, are not as likely as in the retrained model."""
    forget, holdout = (_value(found, "forget_quality", "after", side) for side in ("forget", "holdout"))
    return forget is not None and holdout is not None and forget < P_LEVEL <= holdout


def _explained(found: Mapping[Key, Row], outcome: Outcome, retrained: bool) -> Iterable[str]:
    before, after = (found[("privleak", role, "both")] for role in ("before", "after"))
    yield (
        f"PrivLeak {_with_interval(before)} before, {_with_interval(after)} after; 0: as in the reference; -100: every "
        "text to be forgotten stands out as known; above 0: they stand out as unusually unlikely."
    )
    if outcome == "undetermined":
        yield _why_undetermined(found)
    spoken = [
        _spoken(found, side, words) for side, words in (("forget", "of these texts"), ("holdout", "of held-out ones"))
    ]
    yield f"First choices of the model that are the text's own next token: {', '.join(spoken)}."
    yield _suspicious(found)
    if retrained:
        yield _quality(found)
    else:
        yield STATED_IN_WORDS
    yield CLEARS_NOBODY_IN_WORDS


def _why_undetermined(found: Mapping[Key, Row]) -> str:
    after = found[("privleak", "after", "both")]
    if after["ci_low"] is None or found[("privleak", "before", "both")]["ci_high"] is None:
        return f"Nothing follows without an interval ({after['reason'] or after['method']})."
    if _unlike_retrained(found):
        return (
            "The texts can no longer be told from held-out ones, but they are not as likely as in the retrained model, "
            "while held-out texts are: some may be known still and others pushed below what was never read."
        )
    return "The interval of PrivLeak after reaches 0, but nothing clearly changed: there are too few texts."


def _spoken(found: Mapping[Key, Row], side: str, words: str) -> str:
    before, after = (_value(found, "exact_memorization", role, side) for role in ("before", "after"))
    return f"{_percent(before)} before and {_percent(after)} after {words}"


def _suspicious(found: Mapping[Key, Row]) -> str:
    forget, holdout = (found[("suspicious", "change", side)] for side in ("forget", "holdout"))
    if forget["value"] is None:
        moved = [_percent(_value(found, "unchanged", "change", side)) for side in ("forget", "holdout")]
        return (
            f"{moved[0]} of the texts to be forgotten and {moved[1]} of the held-out ones hardly moved. How many of "
            f"them were known before is not said: {forget['reason']}. Unchanged may mean never known."
        )
    beside = "" if holdout["value"] is None else f", {_percent(holdout['value'])} of the held-out ones"
    never = _value(found, "suspicious", "retrained", "forget")
    read_by_nobody = "" if never is None else f"; by the same rule {_percent(never)} of them in the retrained model"
    return (
        f"Suspicious (called a member before, and hardly moved since): {_percent(forget['value'])} of {forget['n']} "
        f"texts to be forgotten{beside}{read_by_nobody}. A score may be as near in a model that never read the text."
    )


def _quality(found: Mapping[Key, Row]) -> str:
    forget, holdout = (_value(found, "forget_quality", "after", side) for side in ("forget", "holdout"))
    return (
        f"Forget quality (p-value of no difference from the retrained model): {_p(forget)}, of held-out texts "
        f"{_p(holdout)}. Where both are small, the two models differ as a whole, not in these texts."
    )


def _value(found: Mapping[Key, Row], metric: str, role: str, side: str) -> float | None:
    row = found.get((metric, role, side))
    return None if row is None else row["value"]


def _with_interval(row: Row) -> str:
    if row["value"] is None:
        return "not defined"
    if row["ci_low"] is None:
        return f"{row['value']:.0f}"
    return f"{row['value']:.0f} [{row['ci_low']:.0f}, {row['ci_high']:.0f}]"


def _percent(value: float | None) -> str:
    return "an unknown share" if value is None else f"{100 * value:.1f}%"


def _p(value: float | None) -> str:
    return "not computed" if value is None else f"{value:.2g}"
