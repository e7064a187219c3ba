"""The page on error rates: what a court asks of a method, in that order, in sentences that the data of a page carries.

What belongs here: the six parts and their sentences; each that states a fact is left out, or says that it is not known,
where there is no row. What does not: the rows (sections/63_error_rates.sql), sentences that other parts of the report
have, too (attempt_words.py, summary.py, answer_kinds.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from audit_pipeline.catalogue.control_roles import EXPOSED, TWIN
from audit_pipeline.metrics.claims import REPRODUCED_FROM
from audit_pipeline.report.answer_kinds import not_shown
from audit_pipeline.report.attempt_words import describe_attempts, describe_dose, describe_plan, format_interval
from audit_pipeline.report.number_format import count, cut, day, level, percent, things
from audit_pipeline.report.summary import instrument_words
from audit_pipeline.report.vocabulary import Q_LEVEL, describe_blind_control, describe_label_origin

Row = Mapping[str, Any]

OF_DETECTORS: Sequence[tuple[str, str]] = (
    (
        "Duan et al. 2024",
        "On pretrained language models such detectors mostly do little better than chance; where they seemed to work,"
        " the two sides often differed in more than training, for example in age ({}).",
    ),
    (
        "Meeus et al. 2024",
        "Benchmarks that were collected after the model was released, and not drawn by chance, make detectors look"
        " better than they are ({}).",
    ),
    (
        "Das et al. 2024",
        "Of eight published benchmarks, each could be separated better without the model than by the best detector"
        " that uses it ({}).",
    ),
)
OF_SEARCHES: Sequence[tuple[str, str]] = (
    (
        "Tiwari et al. 2026",
        "A sequence that a model gives with a high probability need not be memorised: one that is common is as likely"
        " after other words ({}).",
    ),
    (
        "Xu et al. 2025",
        "What a model gives depends on where in its context the passage begins: it gives less if the passage was not at"
        " the beginning of a sequence in training, and a longer prefix can bring out less ({}).",
    ),
    (
        "Cooper et al. 2025",
        "How much is given differs from book to book and from model to model; most models give little of most books"
        " ({}).",
    ),
)
"""What the literature says against a method, by the paper (docs/bibliography.md)."""


def describe_error_rates(page: Row) -> list[dict[str, Any]]:
    """The parts of the page, each with a heading and its sentences; a part without a sentence is left out."""
    parts = (
        ("What was done, and with what", _describe_work(page)),
        ("Whether the method was tested here", _describe_checks(page)),
        ("Known error rates", _describe_rates(page)),
        ("Standards and settings", _describe_standards(page)),
        ("What the literature says against it", _describe_literature(page)),
        ("What this does not show", iter(not_shown(page["signs"]))),
    )
    found: list[dict[str, Any]] = [{"heading": heading, "sentences": list(sentences)} for heading, sentences in parts]
    return [part for part in found if part["sentences"]]


def _describe_work(page: Row) -> Iterator[str]:
    if page["fingerprint"]:
        yield f"The model is {page['model_title']} (fingerprint {page['fingerprint'][:16]}…)."
    for search in page["searches"]:
        yield (
            f"Word for word: {page['model_title']} was given {things(search['prefix_tokens'], 'token', 'tokens')} at a"
            f" time of {things(search['documents'], 'document', 'documents')} of “{search['title']}”, and the"
            f" probability of the next {count(search['suffix_tokens'])} was computed (windows: {search['stride']}"
            f"{_describe_run(search)})."
        )
        yield from filter(None, [describe_attempts(search["attempted"])])
    for answer in page["answers"]:
        by = f" by the detector {answer['detector']}" if answer["detector"] else " by several detectors, none named"
        yield f"Scores: the texts of “{answer['title']}” were scored{by}{_describe_run(answer, '; ')}."
        said_by = describe_label_origin(answer["builder"], answer["origin"], answer["design_stated_by"])
        if said_by:
            yield f"What the model has read, or cannot have read, of “{answer['title']}” is known from {said_by}."
        yield from filter(None, [describe_attempts(answer["attempted"])])


def _describe_run(result: Row, first: str = "; ") -> str:
    if result["finished_at"] is None:
        return ""
    return f"{first}ready on {day(result['finished_at'])}, code version {result['code_version']}"


def _describe_checks(page: Row) -> Iterator[str]:
    if page["answers"]:
        when = (
            f"Checked on {day(page['checked_at'])}, by the record of this data folder: " if page["checked_at"] else ""
        )
        yield f"{when}{instrument_words(page['checks'])}"
    for answer in page["answers"]:
        yield f"The words of “{answer['title']}” alone, without the model: {describe_blind_control(answer['blind'])}."
    if not page["searches"]:
        return
    if not page["doses"]:
        yield "The search has not been checked here. Check it with corpus-audit control memorisation_check."
    for control, benchmark in dict.fromkeys((point["control"], point["benchmark"]) for point in page["doses"]):
        exposed, twin = (
            [p for p in page["doses"] if (p["control"], p["benchmark"], p["role"]) == (control, benchmark, role)]
            for role in (EXPOSED, TWIN)
        )
        texts, found = sum(point["documents"] for point in twin), sum(point["n_reached"] for point in twin)
        dates = [point["finished_at"] for point in exposed if point["finished_at"]]
        when = f"Checked on {day(max(dates))}, by the record of this data folder. " if dates else ""
        if exposed:
            yield f"{when}{describe_dose(exposed)}"
        if texts:
            yield (
                f"The control model of {control}, which read none of these texts, gives passages of"
                f" {count(found)} of {things(texts, 'text', 'texts')}."
            )


def _describe_rates(page: Row) -> Iterator[str]:
    for search in page["searches"]:
        if search["held_out"] and search["held_out_rate"]["value"] is not None:
            yield (
                f"False positives of the search on “{search['title']}”: {count(search['held_out_reached'])} of"
                f" {things(search['held_out'], 'held-out document', 'held-out documents')} have a passage with a"
                f" probability of at least {REPRODUCED_FROM:g} ({percent(search['held_out_rate']['value'])},"
                f" {format_interval(search['held_out_rate'])}, Clopper and Pearson)."
            )
        else:
            yield (
                f"False positives of the search on “{search['title']}”: not known, for no held-out document was"
                " searched."
            )
    for answer in page["answers"]:
        for found in answer["decisions"]:
            yield (
                f"False positives of {answer['detector']} on “{answer['title']}”, at a threshold for"
                f" {level(found['alpha'])} ({found['rule']}): {percent(found['fpr']['value'])} of"
                f" {things(found['n_nonmembers'], 'non-member', 'non-members')} ({format_interval(found['fpr'])})."
            )
        if not answer["decisions"]:
            yield f"False positives of a detector on “{answer['title']}”: not known, for there is no threshold."
    exposed = [point for point in page["doses"] if point["role"] == EXPOSED] if page["searches"] else []
    for control in dict.fromkeys(point["control"] for point in exposed):
        rates = "; ".join(
            f"{things(point['occurrences'], 'time', 'times')}: {count(point['n_reached'])} of"
            f" {count(point['documents'])} ({format_interval(point['reached'])})"
            for point in exposed
            if point["control"] == control
        )
        yield f"Texts that the search finds in the control {control}, by how many times its model read them: {rates}."


def _describe_standards(page: Row) -> Iterator[str]:
    if page["searches"]:
        yield (
            f"A passage counts where its probability is at least {REPRODUCED_FROM:g}, each token drawn from the 40"
            " likeliest, or where each of its tokens is the model’s first choice. Windows that are set apart do not"
            " count."
        )
    for result, of in [(row, "search") for row in page["searches"]] + [(row, "scores") for row in page["answers"]]:
        if planned := describe_plan(result["attempted"]):
            yield f"Plan of the {of} of “{result['title']}”: {planned}"
    for difference in page["deviations"]:
        expected, found = (cut(difference[name] or "nothing", 60) for name in ("planned", "found"))
        yield f"Deviation, “{difference['title']}”, {difference['item']}: planned {expected}, found {found}."
    for search in page["searches"]:
        if search["held_out"]:
            grid = (
                f"; the p-values of the grid allow for its {things(search['grid_settings'], 'setting', 'settings')}"
                if search["grid_settings"]
                else ""
            )
            yield (
                f"q-values of “{search['title']}” allow for {things(search['documents'], 'document', 'documents')}"
                f" (Benjamini and Hochberg){grid}."
            )
    for answer in page["answers"]:
        if answer["tests"]:
            yield (
                f"A document of “{answer['title']}” stands out where its q-value is at most {Q_LEVEL}: corrected for"
                f" {things(answer['tests'], 'p-value', 'p-values')}."
            )


def _describe_literature(page: Row) -> Iterator[str]:
    for rows, said in ((page["answers"], OF_DETECTORS), (page["searches"], OF_SEARCHES)):
        if rows:
            yield from (sentence.format(paper) for paper, sentence in said)
