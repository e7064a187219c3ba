"""Sentences of the report besides the answers: claim levels, labels, attempts, error rates.

The functions pass rows of queries as facts to the sentences in notes.yaml.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from audit_pipeline.store.paths import EXPOSED, TWIN

Row = Mapping[str, Any]

MOSTLY_FOUND = 0.9
"""A number of readings is sufficient if the search finds at least this share of the control's texts."""

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
    """Describe what a claim level allows. ``stated_by`` is the person whose statement it depends on, or None."""
    if level == "sound test" and stated_by is not None:
        return AS_STATED_IN_WORDS.format(who=stated_by)
    return CLAIM_IN_WORDS[level]


def describe_verdict(verdict: SplitVerdict, stated_by: str | None = None) -> str:
    """Describe a split verdict. ``stated_by`` is the person whose statement it depends on, or None."""
    sentences = VERDICT_IN_WORDS[verdict]
    if stated_by is None:
        return sentences
    return f"As stated by {stated_by}: {sentences[:1].lower()}{sentences[1:]}"


def describe_label_origin(builder: str | None, origin: str | None, stated_by: str | None) -> str | None:
    """Describe who states which texts are members, or return None if the benchmark does not record its builder.

    Args:
        builder: Builder of the benchmark.
        origin: Origin of the labelled rows.
        stated_by: Person who stated the design, or None.
    """
    if builder is None:
        return None
    return render_phrase("labels_by", {"builder": builder, "origin": origin, "design_stated_by": stated_by})


def describe_design(
    design: str | None, builder: str | None, stated_by: str | None, *, phrase: str = "design"
) -> str | None:
    """Return how the two sides came about and who states it, or None if the benchmark does not record it.

    ``phrase`` is ``design``, or ``held_out_by`` for use behind a number of held-out documents.
    """
    if design is None:
        return None
    return render_phrase(phrase, {"design": design, "builder": builder, "stated_by": stated_by})


def describe_blind_control(blind: Row | None) -> str:
    """Describe how well the blind control separates the two sides, or why it was not computed."""
    return render_phrase("blind_control", {"blind": blind})


def describe_text_counts(split_counts: Sequence[Row]) -> str:
    """Describe how many texts were evaluated and how many calibrate. Return an empty text if that is unknown."""
    counts: dict[str, Row | None] = dict.fromkeys(("evaluation", "calibration"))
    for row in split_counts:
        counts[row["split"]] = row
    return render_phrase("text_counts", counts)


def describe_attempts(attempted: Row | None) -> str | None:
    """Describe how many settings were tried in how many runs, or return None if no lineage entry records it."""
    if attempted is None or attempted["tried"] is None:
        return None
    return render_phrase("attempts", {"attempted": attempted})


def describe_plan(attempted: Row | None) -> str | None:
    """Describe whether results were planned in a sealed plan, and what came before it, or return None if unknown."""
    if attempted is None:
        return None
    return render_phrase("plan", {"attempted": attempted})


def describe_dose(points: Sequence[Row], reproduced: int | None = None) -> str | None:
    """Describe how often a control model had to read a text before the search found it, or return None without points.

    Args:
        points: Shares of texts that the search found, ordered by the number of readings.
        reproduced: Number of documents that a search of an audited model found. If it is not None, the description
            includes what a result of 0 means.
    """
    if not points:
        return None
    # The smallest number of readings from which on every number suffices.
    sufficient = list(takewhile(lambda point: point["reached"]["value"] >= MOSTLY_FOUND, reversed(points)))
    facts = {
        "enough": sufficient[-1] if sufficient else points[-1],
        "least": points[0],
        "reproduced": reproduced,
        "mostly_found": bool(sufficient),
    }
    if reproduced is None:
        return render_phrase("dose", facts)
    return render_phrase("absence", facts)


def describe_error_rates(page: Row) -> list[dict[str, Any]]:
    """Return the parts of the section on error rates, in the order of a court's questions.

    Each part has a ``heading`` and its ``sentences``. Parts without sentences are skipped.
    """
    controls = groupby(page["doses"], key=lambda point: (point["control"], point["benchmark"]))
    facts = {
        **page,
        "searches": list(map(_describe_run, page["searches"])),
        "answers": list(map(_describe_answer_run, page["answers"])),
        "controls": [_summarise_control(name, points) for (name, _), points in controls],
    }
    parts: list[dict[str, Any]] = []
    for sentence in render_list("error_rates", facts):
        if sentence.startswith("# "):
            parts.append({"heading": sentence.removeprefix("# "), "sentences": []})
        else:
            parts[-1]["sentences"].append(sentence)
    return [part for part in parts if part["sentences"]]


def _describe_run(result: Row) -> dict[str, Any]:
    """Add the columns ``made`` (time and code version), ``tried`` (attempts) and ``planned`` (sealed plan)."""
    made = ""
    if result["finished_at"] is not None:
        made = f"; ready on {format_day(result['finished_at'])}, code version {result['code_version']}"
    attempted = result["attempted"]
    return {**result, "made": made, "tried": describe_attempts(attempted), "planned": describe_plan(attempted)}


def _describe_answer_run(answer: Row) -> dict[str, Any]:
    labels_by = describe_label_origin(answer["builder"], answer["origin"], answer["design_stated_by"])
    return {**_describe_run(answer), "labels_by": labels_by, "words_alone": describe_blind_control(answer["blind"])}


def _summarise_control(name: str, points: Iterable[Row]) -> dict[str, Any]:
    exposed = []
    finish_times = []
    n_twin_texts = 0
    n_twin_found = 0
    for point in points:
        if point["role"] == EXPOSED:
            exposed.append(point)
            if point["finished_at"]:
                finish_times.append(point["finished_at"])
        elif point["role"] == TWIN:
            n_twin_texts += point["documents"]
            n_twin_found += point["n_reached"]
    return {
        "name": name,
        "points": exposed,
        "dose": describe_dose(exposed),
        "checked_at": max(finish_times, default=None),
        "twin_texts": n_twin_texts,
        "twin_found": n_twin_found,
    }
