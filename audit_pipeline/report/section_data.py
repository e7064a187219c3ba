"""Columns of section rows that SQL cannot compute: sentences, ROC curves, facts of nested JSON.

A section (page_data.py) is a query and a template. If the query is not enough, it also has a function of this module.
The function takes a row of the query and the results of the page, and returns the row that the template formats.
Columns named ``raw_…`` are inputs of the function. Neither the page nor its JSON copy contains them.

The rules and sentences are in summary.py, answer_rules.py and answers.yaml, the queries in sections/ and sql/.
"""

from __future__ import annotations

import json
import math
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from audit_pipeline import extras
from audit_pipeline.report import document_answers, picture_data, sentences, summary
from audit_pipeline.report.number_format import cut, format_yes_or_no
from audit_pipeline.report.pair_results import MAX_ANSWERS, Pair, Results, Row
from audit_pipeline.statistics.claims import warn_of_few_texts
from audit_pipeline.statistics.evaluate_options import build_evaluate_command
from audit_pipeline.statistics.power import compute_log_cost_of_draws
from audit_pipeline.statistics.roc import compute_roc_points
from audit_pipeline.tables import PAIR_STATES

RAW_PREFIX = "raw_"
"""Prefix of the query columns that only a section's function reads."""
MAX_FACTS = 60
"""Maximum number of facts listed from one JSON document. A manifest can hold thousands."""
MAX_SEARCHES = 12
"""Maximum number of searches, and of models asked in words, on the first screen."""
ANSWER_COLUMNS = (
    "outcome",
    "sign",
    "question",
    "headline",
    "explanation",
    "how_sure",
    "what_would_change",
    "claim",
    "brief",
)
_COUNT_COLUMNS = ("model", "benchmark", "model_title", "benchmark_title", "documents", "reproduced", "held_out")


def list_facts(value: object) -> list[dict[str, str]]:
    """Return nested JSON as at most 60 names and values of bounded length."""
    facts = []
    for name, text in flatten_json(value)[:MAX_FACTS]:
        facts.append({"name": cut(name, 200), "value": cut(text, 1000)})
    return facts


def flatten_json(value: object, *, key: str = "") -> list[tuple[str, str]]:
    """Return nested JSON as (key, value) pairs.

    Nested keys are joined by " › ". A list of plain values is one pair. Empty values are skipped.
    """
    prefix = f"{key} › " if key else ""
    pairs: list[tuple[str, str]] = []
    if isinstance(value, Mapping):
        for name, item in value.items():
            pairs += flatten_json(item, key=f"{prefix}{name}")
        return pairs
    if isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        for position, item in enumerate(value, start=1):
            pairs += flatten_json(item, key=f"{key} › {position}")
        return pairs
    if isinstance(value, list):
        value = ", ".join(map(_format_value, value))
    if value is None or value == "":
        return []
    return [(key, _format_value(value))]


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return format_yes_or_no(value)
    return str(value)


def _complete_first_screen(row: Row, results: Results) -> Row:
    every_result = [*results.answers, *results.tests_done, *results.searches, *results.chats]
    pairs = set(map(itemgetter("model", "benchmark"), every_result))
    model_titles = set(map(itemgetter("model_title"), every_result))
    benchmark_titles = set(map(itemgetter("benchmark_title"), every_result))
    n_models = len(set(map(itemgetter("model"), every_result)))
    n_benchmarks = len(set(map(itemgetter("benchmark"), every_result)))
    finish_times = list(map(itemgetter("audited_at"), results.answers))
    finish_times += map(itemgetter("finished_at"), results.tests_done)
    known_times = list(filter(None, finish_times))
    texts = summary.render_page_summary(
        sorted(model_titles),
        benchmarks=sorted(benchmark_titles),
        subjects=summary.group_by_subject(
            results.answers[:MAX_ANSWERS], results.tests, results.searches, results.chats
        ),
        pairs=len(results.answers),
        refused=len(results.tests) - len(results.tests_done),
        own_documents=row["raw_own_documents"],
    )
    return {
        **row,
        **texts,
        "heading": row["heading"] or texts["heading"],
        "instrument_words": summary.describe_instrument(results.checks),
        "tests": len(results.tests_done),
        "models": n_models,
        "benchmarks": n_benchmarks,
        "pairs": len(pairs),
        "first_audited": min(known_times, default=None),
        "last_audited": max(known_times, default=None),
        **_list_strongest("word_for_word", results.searches, ("held_out_reproduced", "tried", "planned")),
        **_list_strongest("in_answers", results.chats, ("held_out_reproduced",)),
    }


def _list_strongest(name: str, results: Sequence[Row], more_columns: Sequence[str]) -> Row:
    """Return the results with the most reproduced documents as the column ``name``.

    The column ``more_NAME`` is the number of other results.
    """
    ordered = sorted(results, key=lambda result: (-result["reproduced"], result["model"], result["benchmark"]))
    columns = (*_COUNT_COLUMNS, *more_columns, *ANSWER_COLUMNS)
    return {
        f"more_{name}": max(0, len(ordered) - MAX_SEARCHES),
        name: [select_columns(result, columns) for result in ordered[:MAX_SEARCHES]],
    }


def select_columns(row: Mapping[str, Any], columns: Iterable[str]) -> Row:
    """Return the row with these columns only."""
    return {name: row[name] for name in columns}


def select_test_columns(test: Row) -> Row:
    """Return the columns of a test of a whole set that pages show."""
    shown_test = dict(test)
    shown_test.pop("run_id", None)
    shown_test.pop("place", None)
    return shown_test


def _complete_answers(row: Row, results: Results) -> Row:
    return {**row, **_find_pair(results.answers, row)}


def _find_pair(results: Iterable[Row], row: Row) -> Row:
    """Return the result of the row's model and benchmark."""
    pair = (row["model"], row["benchmark"])
    return next(result for result in results if (result["model"], result["benchmark"]) == pair)


def _complete_corpus_tests(row: Row, results: Results) -> Row:
    test = next(test for test in results.tests if test["place"] == row["raw_place"])
    return {**row, **select_test_columns(test)}


def _complete_extraction(row: Row, results: Results) -> Row:
    points_by_control: dict[Pair, list[Row]] = defaultdict(list)
    for point in row["raw_doses"]:
        points_by_control[point["control"], point["benchmark"]].append(point)
    columns = ("headline", "explanation", "claim", "claim_in_words", "set_apart_in_words", "calibration_in_words")
    return {
        **row,
        **select_columns(_find_pair(results.searches, row), (*columns, "tried", "planned")),
        "absence": [sentences.describe_dose(points, row["reproduced"]) for points in points_by_control.values()],
    }


def _complete_reproduced_documents(row: Row, results: Results) -> Row:
    return {**row, "log10_draws": document_answers.compute_log10_draws(row["log_p"])}


def _complete_passages(row: Row, results: Results) -> Row:
    log10_cost = None
    if row["raw_price"]:
        log10_cost = compute_log_cost_of_draws(row["log_p"], row["raw_window"], row["raw_price"]) / math.log(10)
    completed = {**_complete_reproduced_documents(row, results), "log10_cost": log10_cost}
    return _complete_strongest_answers(completed, results)


def _complete_strongest_answers(row: Row, results: Results) -> Row:
    """Add the words of the document and of the model's answer, and mark the words that both have in common."""
    if row["raw_original"] is None or row["raw_given"] is None:
        return {**row, "original": [], "given": []}
    original, given = document_answers.compare_words(row["raw_original"], row["raw_given"])
    return {**row, "original": original, "given": given}


def _complete_asked(row: Row, results: Results) -> Row:
    columns = ("headline", "explanation", "claim", "claim_in_words", "calibration_in_words", "unanswered_in_words")
    warning = sentences.render_phrase("versions", {"versions": len(row["versions"])})
    return {**row, **select_columns(_find_pair(results.chats, row), columns), "warning": warning or None}


def _add_warning_of_few_texts(row: Row, results: Results) -> Row:
    warning = None
    if row["auroc"]["value"] is not None:
        warning = warn_of_few_texts(row["n_members"], row["n_nonmembers"])
    return {**row, "warning": warning}


def _complete_curves(row: Row, results: Results) -> Row:
    """Add the ROC curve and the score histograms of one detector.

    The curve has the resolution of the picture. It is the diagonal if one side has no scores.
    """
    members = np.array(row["raw_members"] or [], dtype=np.float64)
    nonmembers = np.array(row["raw_others"] or [], dtype=np.float64)
    fpr = np.array([0.0, 1.0])
    tpr = np.array([0.0, 1.0])
    if len(members) and len(nonmembers):
        labels = np.repeat([1, 0], [len(members), len(nonmembers)])
        points = compute_roc_points(np.concatenate([members, nonmembers]), labels)
        fpr, tpr = picture_data.thin_roc_curve(points.fpr, points.tpr)
    bins = picture_data.bin_scores(members, nonmembers)
    return {
        **row,
        "fpr": np.round(fpr, 6).tolist(),
        "tpr": np.round(tpr, 6).tolist(),
        "edges": [float(f"{edge:.9g}") for edge in bins["edges"]],
        "members": np.round(bins["members"], 5).tolist(),
        "nonmembers": np.round(bins["nonmembers"], 5).tolist(),
    }


def _complete_error_rates(row: Row, results: Results) -> Row:
    shown_results = (*results.searches, *results.answers[:MAX_ANSWERS])
    facts = {
        **row["raw_facts"],
        "signs": list(map(itemgetter("sign"), shown_results)),
        "instrument": summary.describe_instrument(results.checks),
    }
    return {**row, "parts": sentences.describe_error_rates(facts)}


def _complete_series(row: Row, results: Results) -> Row:
    documents = []
    for document in row["found"]:
        documents.append({**document, "words": sentences.render_phrase("along_series", document)})
    series_summary = sentences.render_phrase("series_summary", {"points": row["points"]})
    return {**row, "summary": series_summary, "found": documents}


def _complete_splits(row: Row, results: Results) -> Row:
    return {**row, "verdict_in_words": sentences.describe_verdict(row["split_verdict"])}


def _complete_coverage(row: Row, results: Results) -> Row:
    counts = []
    for count in row["counts"]:
        counts.append({**count, "meaning": PAIR_STATES[count["status"]]})
    return {**row, "counts": counts}


def _complete_changes(row: Row, results: Results) -> Row:
    findings = []
    for finding, other_changes in zip(row["findings"], row["raw_changed"], strict=True):
        findings.append({**finding, "because": sentences.render_list("other_changes", other_changes)})
    return {**row, "findings": findings}


def _complete_instrument(row: Row, results: Results) -> Row:
    columns = ("control", "benchmark", "detector", "parameters", "exposed", "twin", "blind", "answers")
    studies = []
    for study in row["raw_results"]:
        studies.append({"name": study["name"], "panels": picture_data.build_study_panels(study["results"])})
    return {**row, "checks": [select_columns(check, columns) for check in results.checks], "studies": studies}


def _complete_sheets(row: Row, results: Results) -> Row:
    """Add the columns of the printed sheet of one model and benchmark, for a third party such as a court."""
    pair_results = results.by_pair[row["model"], row["benchmark"]]
    signs = list(map(itemgetter("sign"), pair_results))
    words_alone = None
    if row["raw_has_scores"]:
        words_alone = sentences.describe_blind_control(row["raw_blind"])
    builder = row["raw_builder"]
    stated_by = row["raw_design_stated_by"]
    return {
        **row,
        "question": sentences.address_third_party(pair_results[-1]["question"]),
        "held_out_by": sentences.describe_design(row["raw_design"], builder, stated_by, phrase="held_out_by"),
        "answers": list(map(_address_answer_to_third_party, summary.sort_by_display_place(pair_results))),
        "not_shown": sentences.render_list("not_shown", {"signs": signs}),
        "labels_by": sentences.describe_label_origin(builder, row["raw_origin"], stated_by),
        "words_alone": words_alone,
        "tried": list(filter(None, map(sentences.describe_attempts, row["raw_attempted"]))),
        "planned": list(filter(None, map(sentences.describe_plan, row["raw_attempted"]))),
    }


def _address_answer_to_third_party(answer: Mapping[str, Any]) -> Row:
    how_sure = answer["how_sure"]
    # The claim of a test of a whole set limits what its answer may state.
    if "test" in answer:
        how_sure = answer["claim_in_words"]
    return {
        "sign": answer["sign"],
        "headline": answer["headline"],
        "brief": answer["brief"],
        "explanation": sentences.address_third_party(answer["explanation"]),
        "how_sure": sentences.address_third_party(how_sure),
        "claim_level": answer.get("claim_level"),
    }


def _complete_benchmarks(row: Row, results: Results) -> Row:
    """Add the counts of each check and the facts of the benchmark's manifest."""
    manifest = json.loads(row["raw_manifest"] or "{}")
    manifest_checks = manifest.get("checks") or []
    checks = []
    for position, check in enumerate(row["checks"]):
        counts: list[dict[str, str]] = []
        if position < len(manifest_checks):
            counts = list_facts(manifest_checks[position].get("counts"))
        checks.append({**check, "counts": counts})
    shown_elsewhere = {"benchmark", "digest", "design", "label_source", "description", "checks", "matched"}
    facts = {name: value for name, value in manifest.items() if name not in shown_elsewhere}
    return {**row, "checks": checks, "manifest": list_facts(facts)}


def _complete_manifest(row: Row, results: Results) -> Row:
    commands = [_build_command(**pair) for pair in row["raw_pairs"]]
    # Pairs of audited models also need the command report. `corpus-audit evaluate` writes the report itself.
    if row["raw_has_models"]:
        commands.append("corpus-audit report")
    environments = []
    for environment in row["environments"]:
        packages = json.loads(environment["packages"] or "null")
        environments.append({**environment, "packages": list_facts(packages)})
    return {**row, "commands": commands, "environments": environments}


def _build_command(model: str, benchmark: str, settings: str | None) -> str:
    """Return the command that computes a pair's numbers again.

    ``settings`` are the options of an evaluation of external scores as JSON, or None if the pair was audited.
    """
    if settings is not None:
        return shlex.join(build_evaluate_command(json.loads(settings)))
    return shlex.join(["corpus-audit", "audit", "--model", model, "--benchmark", benchmark])


def _complete_lineage(row: Row, results: Results) -> Row:
    return {**row, "inputs": list_facts(json.loads(row["raw_upstream_data_versions"] or "null"))}


RowFunction = Callable[[Row, Results], Row]

ROW_FUNCTIONS: dict[str, RowFunction] = {
    "first_screen": _complete_first_screen,
    "answers": _complete_answers,
    "extraction": _complete_extraction,
    "reproduced_documents": _complete_reproduced_documents,
    "passages": _complete_passages,
    "asked": _complete_asked,
    "strongest_answers": _complete_strongest_answers,
    "corpus_tests": _complete_corpus_tests,
    "detectors": _add_warning_of_few_texts,
    "curves": _complete_curves,
    "error_rates": _complete_error_rates,
    "series": _complete_series,
    "splits": _complete_splits,
    "coverage": _complete_coverage,
    "changes": _complete_changes,
    "instrument": _complete_instrument,
    "sheets": _complete_sheets,
    "benchmarks": _complete_benchmarks,
    "manifest": _complete_manifest,
    "lineage": _complete_lineage,
}
"""The function that completes a row, by the section's name."""

for _module in extras.find_modules("section"):
    ROW_FUNCTIONS.update(_module.COMPLETED_BY)
