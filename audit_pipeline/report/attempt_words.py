"""What is said of how much was tried, of plans, and of what a control shows of texts that were read so often.

What belongs here: from rows of the views attempts, plan_in_force and dose_response to sentences. What does not: what a
search found (extraction_words.py), the printed page of error rates (error_rates.py), layout (sections/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any

from audit_pipeline.report.number_format import count, percent, things

Row = Mapping[str, Any]

NOT_PLANNED = "Not planned beforehand."
MOSTLY_FOUND = 0.9
"""The share of a control's texts from which on a number of readings counts as enough to be found."""


def describe_attempts(attempted: Row | None) -> str | None:
    """How much was tried, and in how many runs; None where no lineage entry says so."""
    if attempted is None or attempted["tried"] is None:
        return None
    tried, settings = attempted["tried"], attempted["settings"]
    if attempted["kind"] == "search":
        found = attempted["windows_found"]
        grid = f", and {count(attempted['grid_settings'])} of a grid" if attempted["grid_settings"] else ""
        first = (
            f"{count(found)} of {things(tried, 'window', 'windows')} of audited documents"
            f" {'is' if found == 1 else 'are'} given word for word (settings tried: {count(settings)}{grid})"
        )
    else:
        first = (
            f"{things(tried, 'text', 'texts')} at {things(settings, 'setting of a detector', 'settings of detectors')}"
        )
    others, findings = attempted["other_runs"], attempted["other_findings"]
    if not others:
        return f"{first}; this data folder knows of no other run on these texts."
    runs = things(others, "other run", "other runs")
    return f"{first}; {runs} on these texts, {count(findings) if findings else 'none'} with a finding."


def describe_plan(attempted: Row | None) -> str | None:
    """Whether results were planned, when the plan was sealed, and what came before; None where no lineage entry says
    when they were made."""
    if attempted is None:
        return None
    plans = attempted["plans_sealed"]
    if attempted["plan_sha256"] is None:
        late = f" {things(plans, 'plan was', 'plans were')} sealed after the run began." if plans else ""
        return NOT_PLANNED + late
    passes, deviations = attempted["passes_before"], attempted["deviations"]
    cached, forgotten = attempted["texts_in_cache"], attempted["rows_forgotten"]
    before = f"{things(passes, 'pass', 'passes')} over these texts came before in this data folder"
    sealed = f"sealed on {_format_minute(attempted['sealed_at'])} ({_describe_timestamp(attempted)})"
    is_planned = attempted["planned_beforehand"]
    return (
        (f"Planned beforehand: {sealed}, {before};" if is_planned else f"{NOT_PLANNED} A plan was {sealed}; {before};")
        + f" {things(deviations, 'deviation', 'deviations')} from the plan."
        + (
            f" The results are of another audit than the plan: {other}."
            if (other := attempted["other_subject"])
            else ""
        )
        + (f" By then the model’s cache had {things(cached, 'text', 'texts')} of the plan." if cached else "")
        + (
            f" By then {things(forgotten, 'lineage row', 'lineage rows')} had been removed with corpus-audit forget:"
            " what they were of is not known."
            if forgotten
            else ""
        )
        + (f" {things(plans, 'plan', 'plans')} were sealed in all." if plans > 1 else "")
    )


def _describe_timestamp(attempted: Row) -> str:
    if attempted["timestamped_at"] is None:
        return "no timestamp"
    late = (
        ", later than the run: it does not show that the plan came first"
        if attempted["timestamped_at"] > attempted["started_at"]
        else ""
    )
    return (
        f"timestamp in the name of {attempted['authority'] or 'an authority without a name'}, whose signature"
        f" corpus-audit verify checks{late}"
    )


def _format_minute(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def describe_dose(points: Sequence[Row]) -> str | None:
    """How often a text had to be read to be found in a control, from its ``points`` by number of readings.

    The fewest readings by which nine texts of ten are found; the most that there are, where none reaches that.
    """
    if not points:
        return None
    # The fewest readings from which on every number of them suffices.
    sufficing = list(takewhile(lambda point: point["reached"]["value"] >= MOSTLY_FOUND, reversed(points)))
    enough = sufficing[-1] if sufficing else points[-1]
    least = points[0]
    so_often = f"A text that was read {things(enough['occurrences'], 'time', 'times')} would have been found in"
    fewer = (
        f", a text that was read {things(least['occurrences'], 'time', 'times')} in"
        f" {percent(least['reached']['value'])}"
        if least is not enough
        else ""
    )
    return (
        f"{so_often} {percent(enough['reached']['value'])} of cases ({format_interval(enough['reached'])}){fewer}: in"
        f" the control {enough['control']}, trained here. Other models need other doses."
    )


def format_interval(estimate: Row) -> str:
    """The interval of a rate in words."""
    return f"95% interval {percent(estimate['low'])} to {percent(estimate['high'])}"


def describe_absence(reproduced: int, points: Sequence[Row]) -> str | None:
    """What a control says of a search: how often a text must be read, and what it means where nothing was found."""
    dose = describe_dose(points)
    if dose is None or reproduced:
        return dose
    if points[-1]["reached"]["value"] < MOSTLY_FOUND:
        return f"{dose} So that nothing was found says little."
    return (
        f"{dose} So that nothing was found speaks against many readings of a text like the control's, not against few."
    )
