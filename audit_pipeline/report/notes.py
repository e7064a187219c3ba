"""What the report says that is no answer, from rows of its queries: levels, labels, how much was tried, error rates.

What belongs here: which facts the sentences of notes.yaml are of. What does not: the sentences, answers
(answer_rules.py), queries (sections/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, takewhile
from typing import Any

from audit_pipeline.report.number_format import format_day
from audit_pipeline.report.sentences import render_list, render_phrase
from audit_pipeline.statistics.claims import (
    AS_STATED_IN_WORDS,
    CLAIM_IN_WORDS,
    VERDICT_IN_WORDS,
    ClaimLevel,
    SplitVerdict,
)
from audit_pipeline.store.control_names import EXPOSED, TWIN

Row = Mapping[str, Any]

MOSTLY_FOUND = 0.9
"""The share of a control's texts from which on a number of readings counts as enough to be found."""

RULE_IN_WORDS: Mapping[str, str] = {
    "largest_accuracy": "largest accuracy",
    "marginal": "marginal: aimed at on average",
    "certified": "certified: exceeded in 5% of calibrations at most",
}
TEST_IN_WORDS: Mapping[str, str] = {
    "dataset_inference": "dataset inference",
    "twins": "rank of the published versions",
    "sharded_permutation": "order of the test set (sharded permutation)",
}
STEP_IN_WORDS: Mapping[str, str] = {
    "token_statistics": "passes of the model",
    "scores": "detectors",
    "evaluations": "evaluation",
}


def describe_claim_level(level: ClaimLevel, stated_by: str | None = None) -> str:
    """What a claim level allows to say, in plain sentences; ``stated_by``: whose word it rests on (claims.py)."""
    if level == "sound test" and stated_by is not None:
        return AS_STATED_IN_WORDS.format(who=stated_by)
    return CLAIM_IN_WORDS[level]


def describe_verdict(verdict: SplitVerdict, stated_by: str | None = None) -> str:
    """What a split verdict means, in plain sentences; ``stated_by``: whose word it rests on (claims.py)."""
    words = VERDICT_IN_WORDS[verdict]
    return words if stated_by is None else f"As stated by {stated_by}: {words[:1].lower()}{words[1:]}"


def describe_label_origin(builder: str | None, origin: str | None, stated_by: str | None) -> str | None:
    """Who says which texts are members, and which the model cannot have read; None where the benchmark does not say how
    it was built. ``stated_by``: whose statement its design is."""
    if builder is None:
        return None
    return render_phrase("labels_by", {"builder": builder, "origin": origin, "design_stated_by": stated_by})


def describe_design(
    design: str | None, builder: str | None, stated_by: str | None, *, phrase: str = "design"
) -> str | None:
    """Return how the two sides came about and who states it, or None if the benchmark does not record it.

    Args:
        phrase: ``design``, or ``held_out_by`` for use behind a number of held-out documents.
    """
    if design is None:
        return None
    return render_phrase(phrase, {"design": design, "builder": builder, "stated_by": stated_by})


def describe_blind_control(blind: Row | None) -> str:
    """How well the blind control separates the two sides, or why it was not computed."""
    return render_phrase("blind_control", {"blind": blind})


def describe_text_counts(split_counts: Sequence[Row]) -> str:
    """How many texts were evaluated and how many calibrate, a row a split; empty where that is not known."""
    by_split = {row["split"]: row for row in split_counts}
    return render_phrase("text_counts", {split: by_split.get(split) for split in ("evaluation", "calibration")})


def describe_attempts(attempted: Row | None) -> str | None:
    """How much was tried, and in how many runs; None where no lineage entry says so."""
    is_known = attempted is not None and attempted["tried"] is not None
    return render_phrase("attempts", {"attempted": attempted}) if is_known else None


def describe_plan(attempted: Row | None) -> str | None:
    """Whether results were planned, when the plan was sealed, and what came before; None where no lineage entry says
    when they were made."""
    return None if attempted is None else render_phrase("plan", {"attempted": attempted})


def describe_dose(points: Sequence[Row], reproduced: int | None = None) -> str | None:
    """How often a text had to be read to be found in a control, from its ``points`` by number of readings; where
    ``reproduced`` counts what a search found, also what it means where that is nothing.

    The fewest readings by which nine texts of ten are found; the most that there are, where none reaches that.
    """
    if not points:
        return None
    # The fewest readings from which on every number of them suffices.
    sufficing = list(takewhile(lambda point: point["reached"]["value"] >= MOSTLY_FOUND, reversed(points)))
    facts = {
        "enough": sufficing[-1] if sufficing else points[-1],
        "least": points[0],
        "reproduced": reproduced,
        "mostly_found": bool(sufficing),
    }
    return render_phrase("dose" if reproduced is None else "absence", facts)


def describe_error_rates(page: Row) -> list[dict[str, Any]]:
    """What a court asks of a method, in that order: the parts of the page on error rates, each with a heading and its
    sentences; a part without a sentence is left out."""

    def add_words(result: Row) -> Row:
        made = ""
        if result["finished_at"] is not None:
            made = f"; ready on {format_day(result['finished_at'])}, code version {result['code_version']}"
        tried, planned = describe_attempts(result["attempted"]), describe_plan(result["attempted"])
        return {**result, "made": made, "tried": tried, "planned": planned}

    def add_source(answer: Row) -> Row:
        labels_by = describe_label_origin(answer["builder"], answer["origin"], answer["design_stated_by"])
        return {**answer, "labels_by": labels_by, "words_alone": describe_blind_control(answer["blind"])}

    answers = [add_source(add_words(answer)) for answer in page["answers"]]
    controls = groupby(page["doses"], key=lambda point: (point["control"], point["benchmark"]))
    facts = {
        **page,
        "searches": [add_words(search) for search in page["searches"]],
        "answers": answers,
        "controls": [_summarise_control(name, list(points)) for (name, _), points in controls],
    }
    parts: list[dict[str, Any]] = []
    for sentence in render_list("error_rates", facts):
        if sentence.startswith("# "):
            parts.append({"heading": sentence.removeprefix("# "), "sentences": []})
        else:
            parts[-1]["sentences"].append(sentence)
    return [part for part in parts if part["sentences"]]


def _summarise_control(name: str, points: Sequence[Row]) -> dict[str, Any]:
    exposed, twin = ([point for point in points if point["role"] == role] for role in (EXPOSED, TWIN))
    return {
        "name": name,
        "points": exposed,
        "dose": describe_dose(exposed),
        "checked_at": max((point["finished_at"] for point in exposed if point["finished_at"]), default=None),
        "twin_texts": sum(point["documents"] for point in twin),
        "twin_found": sum(point["n_reached"] for point in twin),
    }
