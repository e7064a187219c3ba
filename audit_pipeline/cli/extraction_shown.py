"""What the command extract prints.

What belongs here: tables and sentences for people, and the same for programs. What does not: options (extraction.py),
any number (audit_pipeline/extraction/). Heavy packages are imported by the function that needs them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from audit_pipeline.cli.extraction_generated import draws_needed
from audit_pipeline.metrics.claims import (
    CALIBRATED_IN_WORDS,
    EXTRACTION_IN_WORDS,
    FIRST_CHOICES_UNKNOWN_IN_WORDS,
    LIKELIEST_UNKNOWN_IN_WORDS,
    NOT_CALIBRATED_IN_WORDS,
    SET_APART_IN_WORDS,
    extraction_claim,
)
from audit_pipeline.operate.console import Columns, Row, report_slow_work, say, show_table
from audit_pipeline.report.numbers import DASH, probability, share, thousands

if TYPE_CHECKING:
    from audit_pipeline.extraction.held_out import Compared
    from audit_pipeline.extraction.search import Extracted

_SHOWN_DOCUMENTS = 20
_SHOWN_PASSAGES = 3
_DRAWS = "draws for an even chance"


def strongest_of(found: Sequence[Extracted]) -> Sequence[Extracted]:
    """The audited documents that are shown one by one, the strongest first."""
    by_strength = sorted(
        (one for one in _of_side(found, "audited") if one.found.strongest), key=_get_strongest_log_p, reverse=True
    )
    if len(by_strength) > _SHOWN_DOCUMENTS:
        say(f"Passages of the {_SHOWN_DOCUMENTS} strongest documents of {len(by_strength)}; --out has every window.")
    return by_strength[:_SHOWN_DOCUMENTS]


def show_passages(
    shown: Sequence[Extracted], generated_of: Callable[[Extracted, int], Row], columns: Columns, *, quoted: bool
) -> None:
    """The strongest passages of the documents ``shown``; ``generated_of`` gives what ``columns`` show of each."""
    passages: list[Row] = []
    with report_slow_work("generating continuations of passages in") as tell_what:
        for one in shown:
            tell_what(one.document.name)
            passages += _passages(one, generated_of, quoted=quoted)
    show_table(
        "passages",
        passages,
        [
            ("document", "document"),
            ("characters", lambda row: f"{row['begin']:,} to {row['end']:,}"),
            (_DRAWS, "log_p", draws_needed),
            ("tokens that are its first choice", _matches),
            ("words before", "prefix", lambda words: words or DASH),
            ("passage", "suffix", lambda words: words or DASH),
            *columns,
        ],
    )


def show_claims(found: Sequence[Extracted]) -> None:
    """What may be said of the audited documents, and what the held-out ones say of that."""
    searched = [one for one in found if len(one.windows)]
    audited, held_out = _of_side(searched, "audited"), _of_side(searched, "held_out")
    if not audited:
        say("No document was searched, so nothing is claimed.", claim_level=None, calibrated=False)
        return
    apart = sum(one.found.set_apart for one in audited)
    if apart:
        say(f"{apart:,} window(s) are set apart. {SET_APART_IN_WORDS}", set_apart=apart)
    claim = extraction_claim(sum(one.found.reproduced for one in audited))
    say(EXTRACTION_IN_WORDS[claim], claim_level=claim, claim=EXTRACTION_IN_WORDS[claim])
    if not all(one.windows.top_is_known for one in audited):
        say(LIKELIEST_UNKNOWN_IN_WORDS, drawn_from="whole distribution")
    if any(one.found.greedy is None for one in audited):
        say(FIRST_CHOICES_UNKNOWN_IN_WORDS, first_choices_known=False)
    if held_out:
        from audit_pipeline.evidence.conformal import MIN_COMPARED

        _show_held_out(held_out)
        if len(held_out) < MIN_COMPARED:
            least = f"With {len(held_out)} held-out documents no p-value can be below {1 / (len(held_out) + 1):.2f}."
            say(least, least_p_value=1 / (len(held_out) + 1))
    calibration = CALIBRATED_IN_WORDS if held_out else NOT_CALIBRATED_IN_WORDS
    say(calibration, calibrated=bool(held_out), calibration=calibration)


def _of_side(found: Sequence[Extracted], side: str) -> list[Extracted]:
    return [one for one in found if one.document.side == side]


def _show_held_out(held_out: Sequence[Extracted]) -> None:
    from audit_pipeline.extraction.rates import extraction_rates

    rows = [
        {
            **{"threshold": one.threshold, "reached": one.n_reached, "documents": one.documents},
            **{"low": one.reached_low, "high": one.reached_high},
        }
        for one in extraction_rates(held_out, "")
        if one.unit == "benchmark"
    ]
    show_table(
        "held_out",
        rows,
        [
            ("a window of", "threshold", lambda least: "first choices" if least is None else f"p ≥ {least}"),
            ("held-out documents with one", lambda row: f"{row['reached']} of {row['documents']}"),
            ("95% interval", lambda row: f"{row['low']:.1%} to {row['high']:.1%}"),
        ],
    )


def show_documents(found: Sequence[Extracted]) -> None:
    """How much of each audited document the model gives, the strongest first."""
    from audit_pipeline.extraction.conclude import THRESHOLDS
    from audit_pipeline.extraction.tables import compared_with_held_out

    tests = compared_with_held_out(found)
    rows = [
        _document_row(one, test)
        for one, test in zip(found, tests, strict=True)
        if len(one.windows) and one.document.side == "audited"
    ]
    rows.sort(key=lambda row: -math.inf if row["log_p"] is None else row["log_p"], reverse=True)
    short = [one.document.name for one in _of_side(found, "audited") if not len(one.windows)]
    if short:
        named = f"{', '.join(short[:5])}{', …' if len(short) > 5 else ''}"
        words = f"{len(short)} document(s) are shorter than a window, so nothing is known of them: {named}"
        say(words, shorter_than_a_window=short)
    compared = ("windows compared", lambda row: f"{row['windows_compared']} of {row['windows']:,}")
    tested: Columns = [compared, ("p-value", "p_value", probability), ("q-value", "q_value", probability)]
    shares = [(f"p ≥ {one}", f"covered_{one}", share) for one in THRESHOLDS]
    show_table(
        "documents",
        rows,
        [
            ("document", "document"),
            ("characters", "characters", thousands),
            ("windows", "windows", thousands),
            *shares,
            ("first choices alone", "greedy", share),
            *((("set apart", "covered_set_apart", share),) if any(row["set_apart"] for row in rows) else ()),
            ("longest run", "longest_run", thousands),
            (_DRAWS, "log_p", lambda log_p: DASH if log_p is None else draws_needed(log_p)),
            *(tested if any(test is not None for test in tests) else []),
        ],
    )


def _matches(row: Row) -> str:
    return "not known" if row["matches"] is None else f"{row['matches']} of {row['tokens']}"


def _get_strongest_log_p(one: Extracted) -> float:
    return float(one.windows.log_p[one.found.strongest[0]])


def _document_row(one: Extracted, test: Compared | None) -> dict[str, Any]:
    from audit_pipeline.extraction.conclude import THRESHOLDS

    shares = {f"covered_{threshold}": share for threshold, share in zip(THRESHOLDS, one.found.covered, strict=True)}
    return {
        "document": one.document.name,
        "characters": one.found.characters,
        "windows": one.found.windows,
        **shares,
        "greedy": one.found.greedy,
        **{"reproduced": one.found.reproduced, "set_apart": one.found.set_apart},
        "covered_set_apart": one.found.covered_set_apart,
        "longest_run": one.found.longest_run,
        "log_p": _get_strongest_log_p(one) if one.found.strongest else None,
        "p_value": test and test.p_value,
        "q_value": test and test.q_value,
        "windows_compared": test and test.windows,
        "held_out_compared": test and test.held_out,
    }


def _passages(one: Extracted, generated_of: Callable[[Extracted, int], Row], *, quoted: bool) -> list[Row]:
    from audit_pipeline.extraction.documents import excerpt

    windows, text = one.windows, one.document.text
    rows: list[Row] = []
    for number in one.found.strongest[:_SHOWN_PASSAGES]:
        start, begin, end = (int(places[number]) for places in (windows.start, windows.begin, windows.end))
        log_p_top = float(windows.log_p_top[number])
        rows.append(
            {
                "document": one.document.name,
                "start": start,
                "begin": begin,
                "end": end,
                "log_p": float(windows.log_p[number]),
                "log_p_top_40": log_p_top if windows.top_is_known and math.isfinite(log_p_top) else None,
                "matches": None if windows.matches is None else int(windows.matches[number]),
                "tokens": int(windows.tokens[number]),
                "prefix": excerpt(text[start:begin], last=True) if quoted else None,
                "suffix": excerpt(text[begin:end]) if quoted else None,
                **generated_of(one, number),
            }
        )
    return rows
