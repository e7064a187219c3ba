"""The conclusion of a comparison before and after, in words.

A passage that the model after gives of a document to be forgotten, and the retrained model does not, is a direct
observation: that document was not forgotten, whatever averages say. Else PrivLeak carries the conclusion: whether the
texts to be forgotten can still be separated from held-out texts by the model's probabilities. That the model no longer
says them (memorisation, extraction) is the second question, and never enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from audit_pipeline.extras.unlearning.measures import ALL_EQUAL, OUTPUTS, REPRODUCED, STILL_REPRODUCED

Outcome = Literal[
    "forgotten",
    "still reproduced",
    "partly forgotten",
    "only looks forgotten",
    "over-forgotten",
    "still known",
    "never known",
    "undetermined",
]

P_LEVEL = 0.05
LEAST_RULED_OUT = -30.0
"""Never known is said only where PrivLeak before is clearly above this: an AUROC of .65, where the reference is .5."""
LEFT_AT_MOST = 0.5
"""Forgotten is said only where PrivLeak after is clearly nearer to 0 than this share of what it was before."""
ENOUGH_GROUPS = 20
"""With so many groups a side, the test of forget quality sees a distance of .43 between two distributions."""

_HEADLINES: Mapping[Outcome, str] = {
    "forgotten": "Forgotten by these measures: {after} scores the texts like held-out texts.",
    "still reproduced": "Not forgotten: {after} reproduces passages of {count} of {documents} documents to forget.",
    "partly forgotten": "Partly forgotten: {after} still says more of the texts than of held-out texts.",
    "only looks forgotten": "It only looks forgotten: {after} says less, but still scores the texts as known.",
    "over-forgotten": "It only looks forgotten: {after} finds the texts unusually unlikely.",
    "still known": "Not forgotten: {after} still scores the texts as known.",
    "never known": "Nothing to forget was found: {before} does not clearly know the texts.",
    "undetermined": "These numbers do not settle whether {after} has forgotten the texts.",
}
"""One sentence of at most 15 words, whatever the models are called."""
_MEANINGS: Mapping[Outcome, str] = {
    "forgotten": (
        "{before} separates the texts to be forgotten from held-out texts. {after} does not clearly do so more than "
        "{reference}."
    ),
    "partly forgotten": (
        "By its probabilities {after} does not clearly separate the texts from held-out texts more than {reference}."
    ),
    "only looks forgotten": (
        "{after} says less of the texts than {before}. Its probabilities still separate them from held-out texts."
    ),
    "over-forgotten": "{after} finds the texts less likely than {reference} would. That gives them away, too.",
    "still known": (
        "{after} still separates the texts from held-out texts. It does not clearly say less of them than {before}."
    ),
    "never known": "{before} does not clearly separate the texts from held-out texts more than {reference}.",
}
"""The line under the headline; the other outcomes have their own reasons."""

_OUTWEIGHED: tuple[Outcome, ...] = ("forgotten", "never known", "undetermined")
"""Outcomes that a document gives way to that is to be forgotten and is still reproduced."""
_NAMED = 3
_REFERENCE_RETRAINED = "the model that was trained without them"
_REFERENCE_STATED = "a model that cannot separate the two sides"

STATED_IN_WORDS = (
    "No retrained model was named, so the reference is a model that cannot separate the two sides (.5, as stated). "
    "That is right only where the texts to be forgotten and the held-out texts differ in nothing but training: of old "
    "texts against new texts it is wrong."
)
CLEARS_NOBODY_IN_WORDS = (
    "What these numbers do not see may still be there: other words for the same facts, other prompts, or what a little "
    "further training brings back."
)

Key = tuple[str, str, str]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Conclusion:
    """The conclusion of a comparison: its kind, a headline of at most 15 words, and the lines under it."""

    outcome: Outcome
    headline: str
    explanation: tuple[str, ...]


def conclude_unlearning(rows: Iterable[Row], *, before: str, after: str) -> Conclusion:
    """Return the conclusion from the rows of one comparison: metric, role, side, value, ci_low, ci_high, n,
    method, reason, documents.

    ``before`` and ``after`` are the models' names.
    """
    found = {(row["metric"], row["role"], row["side"]): row for row in rows}
    retrained = _find_value(found, "auroc_min_40", "retrained", "both") is not None
    outcome, why = _judge(found)
    # The documents to be forgotten that the model after still reproduces; None where there are none.
    reproduced = found.get((STILL_REPRODUCED, "after", "forget"))
    if reproduced is None or reproduced["value"] is None or round(reproduced["value"] * reproduced["n"]) < 1:
        reproduced = None
    if reproduced and outcome in _OUTWEIGHED:
        outcome = "still reproduced"
    facts = {"before": before, "after": after, "reference": _REFERENCE_RETRAINED if retrained else _REFERENCE_STATED}
    if reproduced:
        facts |= {"count": str(round(reproduced["value"] * reproduced["n"])), "documents": str(reproduced["n"])}
    lines = [_MEANINGS[outcome].format(**facts)] if outcome in _MEANINGS else []
    lines += [_format_reproduced(reproduced, facts, retrained)] if reproduced else []
    return Conclusion(outcome, _HEADLINES[outcome].format(**facts), (*lines, *_explain(found, why, retrained)))


def _format_reproduced(row: Row, facts: Mapping[str, str], retrained: bool) -> str:
    names = list(row.get("documents") or ())
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    named = f" ({', '.join(names[:_NAMED])}{more})" if names else ""
    other = f", and {_REFERENCE_RETRAINED} was not seen to" if retrained else ""
    return (
        f"{facts['after']} reproduces passages of {facts['count']} of {facts['documents']} documents that it was to "
        f"forget{named}{other}."
    )


def _judge(rows: Mapping[Key, Row]) -> tuple[Outcome, str | None]:
    """Known before, if its PrivLeak is clearly below 0; then the outcome by the model after.

    An outcome that is undetermined comes with the reason.
    """
    before, after = (rows[("privleak", role, "both")] for role in ("before", "after"))
    for row in (after, before):
        if row["ci_low"] is None or row["ci_high"] is None:
            return "undetermined", f"Nothing follows without an interval ({row['reason'] or row['method']})."
    if before["ci_high"] >= 0:
        doubt = _explain_unclear_prior(rows, before, after)
        return ("never known", None) if doubt is None else ("undetermined", doubt)
    return _judge_known(rows, before, after)


def _judge_known(rows: Mapping[Key, Row], before: Row, after: Row) -> tuple[Outcome, str | None]:
    """Return the outcome for texts that the model before knew."""
    if after["ci_low"] > 0:
        return "over-forgotten", None
    if after["ci_high"] < 0:
        # A fall that held-out texts share does not count, and all measures have one chance in twenty together.
        changes = (rows.get((metric, "change", "both")) for metric in OUTPUTS)
        fell = any(row is not None and row["ci_high"] is not None and row["ci_high"] < 0 for row in changes)
        return "only looks forgotten" if fell else "still known", None
    doubt = _explain_unclear_change(rows)
    if doubt is None:
        if _has_higher_output(rows, "after"):
            return "partly forgotten", None
        if after["ci_low"] > LEFT_AT_MOST * before["value"]:
            return "forgotten", None
        doubt = f"There are too few texts: half of what PrivLeak was before is within {_format_with_interval(after)}."
    return "undetermined", doubt


def _explain_unclear_change(rows: Mapping[Key, Row]) -> str | None:
    """Return why texts that can no longer be separated from held-out ones cannot be called forgotten."""
    fell = rows[("auroc_min_40", "change", "both")]["ci_high"]
    if fell is None or fell >= 0:
        return "The interval of PrivLeak after reaches 0, but nothing clearly changed: there are too few texts."
    # Whether the texts to be forgotten, and they alone, are not as likely as in the retrained model.
    forget, holdout = (_find_value(rows, "forget_quality", "after", side) for side in ("forget", "holdout"))
    if forget is None or holdout is None or not forget < P_LEVEL <= holdout:
        return None
    n_held_out = rows[("forget_quality", "after", "holdout")]["n"]
    unlike = "The texts no longer differ from held-out texts, but they are not as likely as in the retrained model"
    if n_held_out < ENOUGH_GROUPS:
        return (
            f"{unlike}; {n_held_out} groups of held-out texts are too few to say whether the models differ as a whole."
        )
    return (
        f"{unlike}, while no difference was seen in held-out texts: some may be known still and others pushed below"
        " what was never read."
    )


def _explain_unclear_prior(rows: Mapping[Key, Row], before: Row, after: Row) -> str | None:
    """Return why the model before cannot be said to know nothing, where its PrivLeak is not clearly below 0."""
    if after["ci_high"] < 0:
        return (
            "The model before was not seen to know the texts, but the model after does: it has read them since, or the "
            "two were named in the wrong order."
        )
    reproduced = [_find_value(rows, REPRODUCED, role, "forget") or 0 for role in ("before", "retrained")]
    if _has_higher_output(rows, "before") or reproduced[0] > reproduced[1]:
        return (
            "By its probabilities the model before does not clearly separate the texts from held-out texts, but it "
            "says more of them: it may have known them."
        )
    if before["ci_low"] > 0:
        return "The model before already finds the texts less likely than the reference would: it may have read them."
    if before["ci_low"] <= LEAST_RULED_OUT:
        return (
            "There are too few texts to say whether the model before knew them: its PrivLeak may be as low as "
            f"{before['ci_low']:z.0f}."
        )
    return None


def _has_higher_output(rows: Mapping[Key, Row], role: str) -> bool:
    """Return whether this model says clearly more of the texts to be forgotten than of held-out ones, by any measure.

    Clearly: the intervals are apart. A measure by which the retrained model does so, too, says nothing: the sides
    differ.
    """
    return any(_is_above(rows, metric, role) and not _is_above(rows, metric, "retrained") for metric in OUTPUTS)


def _is_above(rows: Mapping[Key, Row], metric: str, role: str) -> bool:
    forget, holdout = (_find_interval(rows.get((metric, role, side))) for side in ("forget", "holdout"))
    return forget is not None and holdout is not None and forget[0] > holdout[1]


def _find_interval(row: Row | None) -> tuple[float, float] | None:
    """Return the interval of a mean; where all its values are equal, that value."""
    if row is None or row["value"] is None:
        return None
    if row["ci_low"] is None or row["ci_high"] is None:
        return (row["value"], row["value"]) if ALL_EQUAL in row["method"] else None
    return row["ci_low"], row["ci_high"]


def _explain(rows: Mapping[Key, Row], reason: str | None, retrained: bool) -> Iterable[str]:
    before, after = (rows[("privleak", role, "both")] for role in ("before", "after"))
    yield (
        f"PrivLeak {_format_with_interval(before)} before, {_format_with_interval(after)} after; 0: as in the "
        "reference; -100: every text to be forgotten is known; above 0: they are unusually unlikely."
    )
    if reason is not None:
        yield reason
    if _find_value(rows, "exact_memorization", "after", "forget") is not None:
        first_choices = _format_before_and_after(rows, "exact_memorization", "texts")
        yield f"First choices of the model that are the text's own next token: {first_choices}."
    if _find_value(rows, "verbatim_coverage", "after", "forget") is not None:
        covered, reproduced = (
            _format_before_and_after(rows, metric, "documents") for metric in ("verbatim_coverage", REPRODUCED)
        )
        yield f"Characters that the model gives with a probability of at least .001: {covered}."
        yield f"Documents with a passage that is reproduced: {reproduced}."
    yield _format_suspicious(rows)
    if retrained:
        forget, holdout = (_find_value(rows, "forget_quality", "after", side) for side in ("forget", "holdout"))
        p_values = ["not computed" if value is None else f"{value:.2g}" for value in (forget, holdout)]
        yield (
            f"Forget quality (p-value of no difference from the retrained model): {p_values[0]}, of held-out texts "
            f"{p_values[1]}. Where both are small, the two models differ as a whole, not in these texts."
        )
    else:
        yield STATED_IN_WORDS
    yield CLEARS_NOBODY_IN_WORDS


def _format_before_and_after(rows: Mapping[Key, Row], metric: str, things: str) -> str:
    parts = []
    for side, words in (("forget", f"of these {things}"), ("holdout", "of held-out ones")):
        before, after = (_find_value(rows, metric, role, side) for role in ("before", "after"))
        parts.append(f"{_format_percent(before)} before and {_format_percent(after)} after {words}")
    return ", ".join(parts)


def _format_suspicious(rows: Mapping[Key, Row]) -> str:
    forget, holdout = (rows[("suspicious", "change", side)] for side in ("forget", "holdout"))
    if forget["value"] is None:
        moved = [_format_percent(_find_value(rows, "unchanged", "change", side)) for side in ("forget", "holdout")]
        return (
            f"{moved[0]} of the texts to be forgotten and {moved[1]} of the held-out texts hardly moved. How many of "
            f"them were known before is not said: {forget['reason']}. Unchanged may mean never known."
        )
    of_held_out = "" if holdout["value"] is None else f", {_format_percent(holdout['value'])} of the held-out texts"
    never = _find_value(rows, "suspicious", "retrained", "forget")
    read_by_nobody = (
        "" if never is None else f"; by the same rule {_format_percent(never)} of them in the retrained model"
    )
    return (
        f"Suspicious (called a member before, and hardly moved since): {_format_percent(forget['value'])} of "
        f"{forget['n']} "
        f"texts to be forgotten{of_held_out}{read_by_nobody}. A score may be as near in a model that never read the"
        " text."
    )


def _find_value(rows: Mapping[Key, Row], metric: str, role: str, side: str) -> float | None:
    row = rows.get((metric, role, side))
    return None if row is None else row["value"]


def _format_with_interval(row: Row) -> str:
    if row["value"] is None:
        return "not defined"
    if row["ci_low"] is None:
        return f"{row['value']:z.0f}"
    return f"{row['value']:z.0f} [{row['ci_low']:z.0f}, {row['ci_high']:z.0f}]"


def _format_percent(value: float | None) -> str:
    return "an unknown share" if value is None else f"{100 * value:.1f}%"
