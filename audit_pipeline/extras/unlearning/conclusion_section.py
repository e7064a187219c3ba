"""The conclusion of a comparison before and after unlearning, as sentences for the command and the report.

*The model before* and *the model after* are the model before and after unlearning. If the model after reproduces a
passage that the retrained model does not, the document of the passage was not forgotten. Averages over other documents
do not change this.

Otherwise the conclusion rests on PrivLeak: can the model's probabilities still separate the texts to be forgotten from
held-out texts? The measures of reproduced text (memorisation, extraction) come second. They never suffice, because a
model may know texts that it no longer reproduces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from audit_pipeline.extras.unlearning.comparison_rows import OUTPUTS, REPRODUCED, STILL_REPRODUCED
from audit_pipeline.extras.unlearning.measures import ALL_EQUAL

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
MIN_PRIVLEAK = -30.0
"""The outcome ``never known`` requires that PrivLeak before is clearly above this value. With a reference of .5, this
corresponds to an AUROC of .65."""
MAX_REMAINING_SHARE = 0.5
"""The outcome ``forgotten`` requires that PrivLeak after is clearly nearer to 0 than this share of PrivLeak before."""
MIN_GROUPS = 20
"""With this many groups per side, the test of forget quality detects a distance of .43 between two distributions."""

_HEADLINES: Mapping[Outcome, str] = {
    "forgotten": "Forgotten by these measures: {after} scores the texts like held-out texts.",
    "still reproduced": "Not forgotten: {after} reproduces passages of {count} of {documents} documents to forget.",
    "partly forgotten": "Partly forgotten: {after} still reproduces more of the texts than of held-out texts.",
    "only looks forgotten": "It only looks forgotten: {after} reproduces less, but still scores the texts as known.",
    "over-forgotten": "It only looks forgotten: {after} finds the texts unusually unlikely.",
    "still known": "Not forgotten: {after} still scores the texts as known.",
    "never known": "Nothing to forget was found: {before} does not clearly know the texts.",
    "undetermined": "These numbers do not settle whether {after} has forgotten the texts.",
}
"""One sentence of at most 15 words per outcome."""
_MEANINGS: Mapping[Outcome, str] = {
    "forgotten": (
        "{before} separates the texts to be forgotten from held-out texts. {after} does not clearly do so more than "
        "{reference}."
    ),
    "partly forgotten": (
        "The probabilities of {after} do not separate the texts from held-out texts clearly better than those of "
        "{reference}."
    ),
    "only looks forgotten": (
        "{after} reproduces less of the texts than {before}. Its probabilities still separate them from held-out texts."
    ),
    "over-forgotten": (
        "{after} finds the texts less likely than {reference} would. Such low probabilities also reveal the texts."
    ),
    "still known": (
        "{after} still separates the texts from held-out texts. It does not clearly reproduce less of them than "
        "{before}."
    ),
    "never known": "{before} does not clearly separate the texts from held-out texts more than {reference}.",
}
"""The line under the headline, by outcome. For outcomes that are missing here, the line is built from the numbers."""

_OUTWEIGHED: tuple[Outcome, ...] = ("forgotten", "never known", "undetermined")
"""The outcomes that are replaced by ``still reproduced`` if a document to be forgotten is still reproduced."""
_MAX_NAMES = 3
"""The maximum number of documents that a sentence names."""
_REFERENCE_RETRAINED = "the model that was trained without them"
_REFERENCE_STATED = "a model that cannot separate the two sides"

STATED_REFERENCE_NOTE = (
    "No retrained model was named, so the reference is a model that cannot separate the two sides (.5, as stated). "
    "This is right only if the texts to be forgotten and the held-out texts differ in nothing but training. It is "
    "wrong if one side is older than the other."
)
LIMITS_NOTE = (
    "These numbers do not measure everything. The model may still know the facts in other words or with other prompts, "
    "or a little further training may bring them back."
)

Key = tuple[str, str, str]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Conclusion:
    """The conclusion of a comparison.

    Attributes:
        outcome: The kind of the conclusion.
        headline: A sentence of at most 15 words.
        explanation: The lines under the headline.
    """

    outcome: Outcome
    headline: str
    explanation: tuple[str, ...]


def conclude_unlearning(rows: Iterable[Row], *, before: str, after: str) -> Conclusion:
    """Return the conclusion of one comparison.

    Args:
        rows: The rows of the comparison with the columns metric, role, side, value, ci_low, ci_high, n, method, reason
            and documents.
        before: The name of the model before.
        after: The name of the model after.
    """
    rows_by_key = {(row["metric"], row["role"], row["side"]): row for row in rows}
    has_retrained = _find_value(rows_by_key, "auroc_min_40", "retrained", "both") is not None
    outcome, reason = _decide_outcome(rows_by_key)
    facts = {"before": before, "after": after, "reference": _REFERENCE_STATED}
    if has_retrained:
        facts["reference"] = _REFERENCE_RETRAINED
    lines = []
    reproduced = rows_by_key.get((STILL_REPRODUCED, "after", "forget"))
    n_reproduced = _count_reproduced(reproduced)
    if reproduced is not None and n_reproduced:
        facts["count"] = str(n_reproduced)
        facts["documents"] = str(reproduced["n"])
        lines.append(_format_reproduced(reproduced, facts, has_retrained))
        if outcome in _OUTWEIGHED:
            outcome = "still reproduced"
    if outcome in _MEANINGS:
        lines.insert(0, _MEANINGS[outcome].format(**facts))
    lines += _explain_outcome(rows_by_key, reason, has_retrained)
    return Conclusion(outcome, _HEADLINES[outcome].format(**facts), tuple(lines))


def _count_reproduced(row: Row | None) -> int:
    """Count the documents to be forgotten that the model after still reproduces."""
    if row is None or row["value"] is None:
        return 0
    count: float = row["value"] * row["n"]
    return round(count)


def _format_reproduced(row: Row, facts: Mapping[str, str], has_retrained: bool) -> str:
    names = list(row.get("documents") or ())
    named = ""
    if names:
        more = ""
        if len(names) > _MAX_NAMES:
            more = f" and {len(names) - _MAX_NAMES} more"
        named = f" ({', '.join(names[:_MAX_NAMES])}{more})"
    other = ""
    if has_retrained:
        other = f", and {_REFERENCE_RETRAINED} does not"
    return (
        f"{facts['after']} reproduces passages of {facts['count']} of {facts['documents']} documents that it was to "
        f"forget{named}{other}."
    )


def _decide_outcome(rows: Mapping[Key, Row]) -> tuple[Outcome, str | None]:
    """Decide the outcome by PrivLeak, and return the reason if it is undetermined.

    The model before knew the texts if its PrivLeak is clearly below 0. In this case, the model after decides the
    outcome.
    """
    before = rows["privleak", "before", "both"]
    after = rows["privleak", "after", "both"]
    for row in (after, before):
        if row["ci_low"] is None or row["ci_high"] is None:
            reason = row["reason"] or row["method"]
            return "undetermined", f"PrivLeak has no interval, so nothing can be concluded ({reason})."
    if before["ci_high"] < 0:
        return _decide_for_known_texts(rows, before, after)
    doubt = _explain_unclear_prior(rows, before, after)
    if doubt is not None:
        return "undetermined", doubt
    return "never known", None


def _decide_for_known_texts(rows: Mapping[Key, Row], before: Row, after: Row) -> tuple[Outcome, str | None]:
    """Decide the outcome for texts that the model before knew, and return the reason if it is undetermined."""
    if after["ci_low"] > 0:
        return "over-forgotten", None
    if after["ci_high"] < 0:
        if _has_fallen_output(rows):
            return "only looks forgotten", None
        return "still known", None
    doubt = _explain_unclear_change(rows)
    if doubt is None:
        if _has_higher_output(rows, "after"):
            return "partly forgotten", None
        if after["ci_low"] > MAX_REMAINING_SHARE * before["value"]:
            return "forgotten", None
        doubt = (
            "There are too few texts: half of PrivLeak before unlearning is within the interval of PrivLeak after "
            f"unlearning, {_format_with_interval(after)}."
        )
    return "undetermined", doubt


def _has_fallen_output(rows: Mapping[Key, Row]) -> bool:
    """Return True if a measure of reproduced text clearly fell.

    The rows contain the change of the texts to be forgotten minus that of held-out texts. A fall that held-out texts
    share thus does not count. All intervals together contain the true values with a probability of 95%.
    """
    for metric in OUTPUTS:
        row = rows.get((metric, "change", "both"))
        if row is not None and row["ci_high"] is not None and row["ci_high"] < 0:
            return True
    return False


def _explain_unclear_change(rows: Mapping[Key, Row]) -> str | None:
    """Return why texts that can no longer be separated from held-out texts cannot be called forgotten, or None."""
    fell = rows[("auroc_min_40", "change", "both")]["ci_high"]
    if fell is None or fell >= 0:
        return (
            "There are too few texts: the interval of PrivLeak after unlearning reaches 0, but the AUROC did not "
            "clearly fall."
        )
    # The following doubts apply only if the model after differs from the retrained model in the texts to be forgotten,
    # but not in held-out texts.
    forget = _find_value(rows, "forget_quality", "after", "forget")
    holdout = _find_value(rows, "forget_quality", "after", "holdout")
    if forget is None or holdout is None or not forget < P_LEVEL <= holdout:
        return None
    n_held_out = rows[("forget_quality", "after", "holdout")]["n"]
    unlike = "The texts no longer differ from held-out texts, but they are not as likely as in the retrained model"
    if n_held_out < MIN_GROUPS:
        return (
            f"{unlike}; {n_held_out} groups of held-out texts are too few to decide whether the models differ as a "
            "whole."
        )
    return (
        f"{unlike}. Held-out texts show no such difference. Some texts may still be known, and others may be less "
        "likely than unread texts."
    )


def _explain_unclear_prior(rows: Mapping[Key, Row], before: Row, after: Row) -> str | None:
    """Return why texts whose PrivLeak before is not clearly below 0 cannot be called never known, or None."""
    if after["ci_high"] < 0:
        return (
            "The model before unlearning does not clearly know the texts, but the model after unlearning does. Either "
            "it has read the texts since, or --before and --after were given in the wrong order."
        )
    reproduced_before = _find_value(rows, REPRODUCED, "before", "forget") or 0
    reproduced_retrained = _find_value(rows, REPRODUCED, "retrained", "forget") or 0
    if _has_higher_output(rows, "before") or reproduced_before > reproduced_retrained:
        return (
            "By its probabilities, the model before unlearning does not clearly separate the texts from held-out "
            "texts. But it reproduces more of them, so it may have known them."
        )
    if before["ci_low"] > 0:
        return (
            "The model before unlearning already finds the texts less likely than the reference would, so it may have "
            "read them."
        )
    if before["ci_low"] <= MIN_PRIVLEAK:
        return (
            "There are too few texts to say whether the model before knew them: its PrivLeak may be as low as "
            f"{before['ci_low']:z.0f}."
        )
    return None


def _has_higher_output(rows: Mapping[Key, Row], role: str) -> bool:
    """Return True if a model reproduces clearly more of the texts to be forgotten than of held-out texts.

    One measure is enough if the intervals of both sides do not overlap. A measure does not count if the retrained model
    shows the same difference, because then the texts differ for other reasons than training.
    """
    return any(
        _is_above_held_out(rows, metric, role) and not _is_above_held_out(rows, metric, "retrained")
        for metric in OUTPUTS
    )


def _is_above_held_out(rows: Mapping[Key, Row], metric: str, role: str) -> bool:
    forget = _find_interval(rows.get((metric, role, "forget")))
    holdout = _find_interval(rows.get((metric, role, "holdout")))
    return forget is not None and holdout is not None and forget[0] > holdout[1]


def _find_interval(row: Row | None) -> tuple[float, float] | None:
    """Return the interval of a mean, or None if there is none. If all values are equal, both ends are this value."""
    if row is None or row["value"] is None:
        return None
    if row["ci_low"] is not None and row["ci_high"] is not None:
        return row["ci_low"], row["ci_high"]
    if ALL_EQUAL in row["method"]:
        return row["value"], row["value"]
    return None


def _explain_outcome(rows: Mapping[Key, Row], reason: str | None, has_retrained: bool) -> Iterable[str]:
    """Yield the lines that explain the outcome. The reason is None if the outcome is determined."""
    before = rows["privleak", "before", "both"]
    after = rows["privleak", "after", "both"]
    yield (
        f"PrivLeak is {_format_with_interval(before)} before and {_format_with_interval(after)} after unlearning. 0: "
        "as in the reference. -100: every text to be forgotten is known. Above 0: these texts are unusually unlikely."
    )
    if reason is not None:
        yield reason
    if _find_value(rows, "exact_memorization", "after", "forget") is not None:
        first_choices = _format_before_and_after(rows, "exact_memorization", "texts")
        yield f"First choices of the model that are the text's own next token: {first_choices}."
    if _find_value(rows, "verbatim_coverage", "after", "forget") is not None:
        covered = _format_before_and_after(rows, "verbatim_coverage", "documents")
        reproduced = _format_before_and_after(rows, REPRODUCED, "documents")
        yield f"Characters in passages that the model reproduces with a probability of at least 0.001: {covered}."
        yield f"Documents with a passage that is reproduced: {reproduced}."
    yield _format_suspicious(rows)
    if has_retrained:
        forget = _format_p_value(_find_value(rows, "forget_quality", "after", "forget"))
        holdout = _format_p_value(_find_value(rows, "forget_quality", "after", "holdout"))
        yield (
            f"Forget quality (p-value of no difference from the retrained model): {forget}, of held-out texts "
            f"{holdout}. If both are small, the two models differ as a whole, not only in these texts."
        )
    else:
        yield STATED_REFERENCE_NOTE
    yield LIMITS_NOTE


def _format_p_value(value: float | None) -> str:
    if value is None:
        return "not computed"
    return f"{value:.2g}"


def _format_before_and_after(rows: Mapping[Key, Row], metric: str, unit: str) -> str:
    parts = []
    for side, subject in (("forget", f"of these {unit}"), ("holdout", "of held-out ones")):
        before = _format_percent(_find_value(rows, metric, "before", side))
        after = _format_percent(_find_value(rows, metric, "after", side))
        parts.append(f"{before} before and {after} after {subject}")
    return ", ".join(parts)


def _format_suspicious(rows: Mapping[Key, Row]) -> str:
    forget = rows["suspicious", "change", "forget"]
    holdout = rows["suspicious", "change", "holdout"]
    if forget["value"] is None:
        unmoved_forget = _format_percent(_find_value(rows, "unchanged", "change", "forget"))
        unmoved_holdout = _format_percent(_find_value(rows, "unchanged", "change", "holdout"))
        return (
            f"{unmoved_forget} of the texts to be forgotten and {unmoved_holdout} of the held-out texts hardly moved. "
            f"The share that was known before is missing: {forget['reason']}. Unchanged texts may never have been "
            "known."
        )
    held_out_share = ""
    if holdout["value"] is not None:
        held_out_share = f", {_format_percent(holdout['value'])} of the held-out texts"
    retrained_value = _find_value(rows, "suspicious", "retrained", "forget")
    retrained_share = ""
    if retrained_value is not None:
        percent = _format_percent(retrained_value)
        retrained_share = f"; by the same rule {percent} of the texts to be forgotten in the retrained model"
    return (
        f"Suspicious (called a member before, and hardly moved since): {_format_percent(forget['value'])} of "
        f"{forget['n']} texts to be forgotten{held_out_share}{retrained_share}. A score may change as little in a "
        "model that never read the text."
    )


def _find_value(rows: Mapping[Key, Row], metric: str, role: str, side: str) -> float | None:
    row = rows.get((metric, role, side))
    if row is None:
        return None
    value: float | None = row["value"]
    return value


def _format_with_interval(row: Row) -> str:
    if row["value"] is None:
        return "not defined"
    if row["ci_low"] is None:
        return f"{row['value']:z.0f}"
    return f"{row['value']:z.0f} [{row['ci_low']:z.0f}, {row['ci_high']:z.0f}]"


def _format_percent(value: float | None) -> str:
    if value is None:
        return "an unknown share"
    return f"{100 * value:.1f}%"


def add_conclusion(row: dict[str, Any], results: object) -> dict[str, Any]:
    """Add the columns of the conclusion to a row of the section's query, which is the result of one comparison."""
    conclusion = conclude_unlearning(row["raw_compared"], before=row["before"], after=row["model"])
    return {**row, **asdict(conclusion)}


COMPLETED_BY = {"unlearning": add_conclusion}
"""The functions that complete a row of a section's query, by the section's name."""
