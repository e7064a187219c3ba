"""The columns of the sections that Python makes: sentences, curves, facts of nested JSON. One function a section.

What belongs here: results with their sentences, and for each section (or part) that needs more than its query the
function that completes its rows. What does not: the rules and sentences (summary.py, answer_rules.py, answers.yaml),
the queries (sections/, sql/).

A function is named as its section, and gets its rows and the results of the page. A column of a query whose name begins
with an underscore is for its function alone: neither page nor JSON copy has it.
"""

from __future__ import annotations

import json
import math
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from audit_pipeline import extras
from audit_pipeline.report.display_priority import MAX_ANSWERS
from audit_pipeline.report.document_answers import compare_words, compute_log10_draws, describe_asking, describe_search
from audit_pipeline.report.notes import (
    describe_attempts,
    describe_blind_control,
    describe_claim_level,
    describe_design,
    describe_dose,
    describe_error_rates,
    describe_label_origin,
    describe_plan,
    describe_verdict,
)
from audit_pipeline.report.number_format import cut
from audit_pipeline.report.picture_data import bin_scores, build_study_panels, thin_roc_curve
from audit_pipeline.report.sentences import (
    address_third_party,
    list_limits,
    render_list,
    render_phrase,
    suggest_methods,
)
from audit_pipeline.report.summary import (
    describe_instrument,
    describe_set_test,
    find_test_claim_source,
    group_by_subject,
    render_page_summary,
    sort_by_display_place,
)
from audit_pipeline.statistics.claims import warn_of_few_texts
from audit_pipeline.statistics.draw_cost import compute_log_cost_of_draws
from audit_pipeline.statistics.evaluate_options import build_evaluate_command, choose_headline_detector
from audit_pipeline.statistics.roc import roc_points
from audit_pipeline.tables import PAIR_STATES

Row = dict[str, Any]

MOST_FACTS = 60
"""Facts of one thing, at most: a manifest can hold thousands."""
MOST_SEARCHES = 12
"""Searches, and models that were asked in words, that the first screen lists."""
_ANSWER = ("outcome", "sign", "question", "headline", "explanation", "how_sure", "what_would_change", "claim", "brief")


@dataclass(frozen=True)
class Results:
    """Answers, tests of whole sets, searches for passages, and what was asked in words, with their sentences: of all
    models, or of one page. ``checks``: the rows of the instrument check."""

    answers: Sequence[Row]
    tests: Sequence[Row]
    searches: Sequence[Row]
    chats: Sequence[Row]
    checks: Sequence[Row]

    def select(self, is_shown: Callable[[str], bool]) -> Results:
        """Those of models that a page shows."""
        results = (self.answers, self.tests, self.searches, self.chats)
        answers, tests, searches, chats = ([row for row in rows if is_shown(row["model"])] for rows in results)
        return Results(answers, tests, searches, chats, self.checks)

    @cached_property
    def models(self) -> list[str]:
        """Every model with a result."""
        rows = (*self.answers, *self.tests, *self.searches, *self.chats)
        return sorted({row["model"] for row in rows})


def describe_results(
    answers: Iterable[Row], tests: Iterable[Row], searches: Iterable[Row], chats: Iterable[Row], checks: Sequence[Row]
) -> Results:
    """Add the sentences to rows of the tables of these names (sql/answers.sql)."""
    headlines: dict[str, set[str]] = defaultdict(set)
    for check in checks:
        headlines[check["control"]].add(check["detector"])
    return Results(
        [_describe_answer(row) for row in answers],
        [_describe_test(row) for row in tests],
        [_describe_search(row) for row in searches],
        [{**row, **describe_asking(row["model_title"], row["benchmark_title"], row)} for row in chats],
        [{**row, "answers": row["detector"] == choose_headline_detector(headlines[row["control"]])} for row in checks],
    )


def _describe_answer(row: Row) -> Row:
    level, verdict, stated_by = row["claim_level"], row["split_verdict"], row["claim_stated_by"]
    done = [name for name, is_done in (("search", row["_searched"]), ("twins", row["_twins"])) if is_done]
    changes = (row["what_would_change"], suggest_methods(row["outcome"], done))  # type: ignore[arg-type]
    return {
        **row,
        **_describe_attempted(row),
        "labels_by": describe_label_origin(row["_builder"], row["_origin"], row["design_stated_by"]),
        "claim_in_words": None if level is None else describe_claim_level(level, stated_by),
        "verdict_in_words": None if verdict is None else describe_verdict(verdict, stated_by),
        "what_would_change": " ".join(filter(None, changes)),
        "brief": render_phrase("brief_of_scores", row),
        "design_in_words": describe_design(row["design"], row["_builder"], row["design_stated_by"]),
    }


def _describe_test(row: Row) -> Row:
    stated_by = find_test_claim_source(row, row["_design_stated_by"], row["_blind"])
    return {**row, **describe_set_test(row, handed_over=row["_handed_over"], stated_by=stated_by)}


def _describe_search(row: Row) -> Row:
    counts = {
        **row,
        "without_window": row["_without_window"],
        "stand_out": row["_stand_out"],
        "window": row["prefix_tokens"] + row["suffix_tokens"],
        "grid": bool(row["grid_settings"]),
        "asked": row["_asked"],
        "design_stated_by": row["_design_stated_by"],
    }
    return {**row, **describe_search(row["model_title"], row["benchmark_title"], counts), **_describe_attempted(row)}


def _describe_attempted(row: Row) -> Row:
    return {"tried": describe_attempts(row["_attempted"]), "planned": describe_plan(row["_attempted"])}


def list_facts(value: object) -> list[dict[str, str]]:
    """Nested JSON as names and values, 60 at most, each cut to a bounded length."""
    return [{"name": cut(name, 200), "value": cut(word, 1000)} for name, word in flatten_json(value)[:MOST_FACTS]]


def flatten_json(value: object, *, key: str = "") -> list[tuple[str, str]]:
    """Nested JSON as lines of (key, value): keys joined with ›, plain lists on one line, empty values left out."""
    if isinstance(value, Mapping):
        lines = [flatten_json(item, key=f"{key} › {name}" if key else str(name)) for name, item in value.items()]
        return [line for group in lines for line in group]
    if isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        lines = [flatten_json(item, key=f"{key} › {position}") for position, item in enumerate(value, start=1)]
        return [line for group in lines for line in group]
    if isinstance(value, list):
        value = ", ".join(_format_value(item) for item in value)
    return [] if value is None or value == "" else [(key, _format_value(value))]


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _first_screen(rows: list[Row], results: Results) -> None:
    (row,) = rows
    shown, tests = results.answers[:MAX_ANSWERS], results.tests
    made = [test for test in tests if test["refused"] is None]
    every = [*results.answers, *made, *results.searches, *results.chats]
    pairs = {(result["model"], result["benchmark"]) for result in every}
    models, titles = (sorted({result[name] for result in every}) for name in ("model_title", "benchmark_title"))
    dates = [when for when in (*(r["audited_at"] for r in results.answers), *(r["finished_at"] for r in made)) if when]
    summary = render_page_summary(
        models,
        titles,
        group_by_subject(shown, tests, results.searches, results.chats),
        len(results.answers),
        refused=len(tests) - len(made),
        own_documents=row["_own_documents"],
    )
    heading = row["heading"] or summary["heading"]
    row.update(summary, heading=heading, instrument_words=describe_instrument(results.checks), tests=len(made))
    row.update(models=len({model for model, _ in pairs}), benchmarks=len({name for _, name in pairs}), pairs=len(pairs))
    row.update(first_audited=min(dates, default=None), last_audited=max(dates, default=None))
    counts = ("model", "benchmark", "model_title", "benchmark_title", "documents", "reproduced", "held_out")
    for name, found, more in (
        ("word_for_word", results.searches, ("held_out_reproduced", "tried", "planned")),
        ("in_answers", results.chats, ("held_out_reproduced",)),
    ):
        ordered = sorted(found, key=lambda result: (-result["reproduced"], result["model"], result["benchmark"]))
        row[f"more_{name}"] = max(0, len(ordered) - MOST_SEARCHES)
        row[name] = [{key: result[key] for key in (*counts, *more, *_ANSWER)} for result in ordered[:MOST_SEARCHES]]


def _answers(rows: list[Row], results: Results) -> None:
    _join(rows, results.answers)


def _corpus_tests(rows: list[Row], results: Results) -> None:
    by_place = {test["place"]: test for test in results.tests}
    for row in rows:
        test = by_place[row.pop("_place")]
        row.update({name: value for name, value in test.items() if name not in ("run_id", "place")})


def _join(rows: list[Row], results: Sequence[Row], columns: Sequence[str] | None = None) -> None:
    """Add the results of the same model and benchmark to rows, or some of their ``columns``."""
    by_pair = {(result["model"], result["benchmark"]): result for result in results}
    for row in rows:
        result = by_pair[row["model"], row["benchmark"]]
        row.update(result if columns is None else {name: result[name] for name in columns})


def _extraction(rows: list[Row], results: Results) -> None:
    words = ("claim_in_words", "set_apart_in_words", "calibration_in_words", "tried", "planned")
    _join(rows, results.searches, ("headline", "explanation", "claim", *words))
    for row in rows:
        doses: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for point in row["_doses"]:
            doses[point["control"], point["benchmark"]].append(point)
        row["absence"] = [describe_dose(points, row["reproduced"]) for points in doses.values()]


def _reproduced_documents(rows: list[Row], results: Results) -> None:
    for row in rows:
        row["log10_draws"] = compute_log10_draws(row["log_p"])


def _passages(rows: list[Row], results: Results) -> None:
    _reproduced_documents(rows, results)
    for row in rows:
        cost = compute_log_cost_of_draws(row["log_p"], row["_window"], row["_price"]) if row["_price"] else None
        row["log10_cost"] = None if cost is None else cost / math.log(10)
    _strongest_answers(rows, results)


def _strongest_answers(rows: list[Row], results: Results) -> None:
    for row in rows:
        is_known = row["_original"] is not None and row["_given"] is not None
        row["original"], row["given"] = compare_words(row["_original"], row["_given"]) if is_known else ([], [])


def _asked(rows: list[Row], results: Results) -> None:
    words = ("claim_in_words", "calibration_in_words", "unanswered_in_words")
    _join(rows, results.chats, ("headline", "explanation", "claim", *words))
    for row in rows:
        row["warning"] = render_phrase("versions", {"versions": len(row["versions"])}) or None


def _detectors(rows: list[Row], results: Results) -> None:
    for row in rows:
        known = row["auroc"]["value"] is not None
        row["warning"] = warn_of_few_texts(row["n_members"], row["n_nonmembers"]) if known else None


def _curves(rows: list[Row], results: Results) -> None:
    """ROC curves, as fine as a picture shows them, the diagonal where one side has no scores; and spreads of scores."""
    for row in rows:
        members, others = (np.array(row[side] or [], dtype=np.float64) for side in ("_members", "_others"))
        fpr, tpr = np.array([0.0, 1.0]), np.array([0.0, 1.0])
        if len(members) and len(others):
            points = roc_points(np.concatenate([members, others]), np.repeat([1, 0], [len(members), len(others)]))
            fpr, tpr = thin_roc_curve(points.fpr, points.tpr)
        row["fpr"], row["tpr"] = np.round(fpr, 6).tolist(), np.round(tpr, 6).tolist()
        spread = bin_scores(members, others)
        row["edges"] = [float(f"{edge:.9g}") for edge in spread["edges"]]
        for side in ("members", "nonmembers"):
            row[side] = np.round(spread[side], 5).tolist()


def _error_rates(rows: list[Row], results: Results) -> None:
    for row in rows:
        signs = [result["sign"] for result in (*results.searches, *results.answers[:MAX_ANSWERS])]
        facts = {**row["_facts"], "signs": signs, "instrument": describe_instrument(results.checks)}
        row["parts"] = describe_error_rates(facts)


def _series(rows: list[Row], results: Results) -> None:
    for row in rows:
        row["summary"] = render_phrase("series_summary", {"points": row["points"]})
        for document in row["found"]:
            document["words"] = render_phrase("along_series", document)


def _splits(rows: list[Row], results: Results) -> None:
    for row in rows:
        row["verdict_in_words"] = describe_verdict(row["split_verdict"])


def _coverage(rows: list[Row], results: Results) -> None:
    for count in rows[0]["counts"]:
        count["meaning"] = PAIR_STATES[count["status"]]


def _changes(rows: list[Row], results: Results) -> None:
    for row in rows:
        for finding, changed in zip(row["findings"], row["_changed"], strict=True):
            finding["because"] = render_list("other_changes", changed)


def _instrument(rows: list[Row], results: Results) -> None:
    shown = ("control", "benchmark", "detector", "parameters", "exposed", "twin", "blind", "answers")
    for row in rows:
        row["checks"] = [{name: check[name] for name in shown} for check in results.checks]
        row["studies"] = [
            {"name": study["name"], "panels": build_study_panels(study["results"])} for study in row["_results"]
        ]


def _limits(rows: list[Row], results: Results) -> None:
    rows[:] = list_limits()


def _sheets(rows: list[Row], results: Results) -> None:
    by_pair: dict[tuple[str, str], list[Row]] = defaultdict(list)
    made = [{**test, "how_sure": test["claim_in_words"]} for test in results.tests if test["refused"] is None]
    for result in (*results.chats, *results.searches, *made, *results.answers):
        by_pair[result["model"], result["benchmark"]].append(result)
    for row in rows:
        own = by_pair[row["model"], row["benchmark"]]
        row["question"] = address_third_party(own[-1]["question"])
        row["held_out_by"] = describe_design(
            row["_design"], row["_builder"], row["_design_stated_by"], phrase="held_out_by"
        )
        row["answers"] = [
            {
                **{name: answer[name] for name in ("sign", "headline", "brief")},
                **{name: address_third_party(answer[name]) for name in ("explanation", "how_sure")},
                "claim_level": answer.get("claim_level"),
            }
            for answer in sort_by_display_place(own)
        ]
        row["not_shown"] = render_list("not_shown", {"signs": [answer["sign"] for answer in own]})
        row["labels_by"] = describe_label_origin(row["_builder"], row["_origin"], row["_design_stated_by"])
        row["words_alone"] = describe_blind_control(row["_blind"]) if row["_has_scores"] else None
        row["tried"] = [words for words in map(describe_attempts, row["_attempted"]) if words is not None]
        row["planned"] = [words for words in map(describe_plan, row["_attempted"]) if words is not None]


def _benchmarks(rows: list[Row], results: Results) -> None:
    for row in rows:
        manifest = json.loads(row["_manifest"] or "{}")
        for check in row["checks"]:
            check["counts"] = []
        for check, made in zip(row["checks"], manifest.get("checks") or [], strict=False):
            check["counts"] = list_facts(made.get("counts"))
        left_out = ("benchmark", "digest", "design", "label_source", "description", "checks", "matched")
        row["manifest"] = list_facts({name: value for name, value in manifest.items() if name not in left_out})


def _manifest(rows: list[Row], results: Results) -> None:
    for row in rows:
        # An evaluation of a user's own scores writes its report itself.
        report = ["corpus-audit report"] if row["_has_models"] else []
        row["commands"] = [_build_command(**pair) for pair in row["_pairs"]] + report
        for environment in row["environments"]:
            environment["packages"] = list_facts(json.loads(environment["packages"] or "null"))


def _build_command(model: str, benchmark: str, settings: str | None) -> str:
    """What is typed to have a pair's numbers again; ``settings``: the options that its scores were evaluated with."""
    if settings is not None:
        return shlex.join(build_evaluate_command(json.loads(settings)))
    return shlex.join(["corpus-audit", "audit", "--model", model, "--benchmark", benchmark])


def _lineage(rows: list[Row], results: Results) -> None:
    for row in rows:
        row["inputs"] = list_facts(json.loads(row["_upstream_data_versions"] or "null"))


SECTION_FUNCTIONS: Mapping[str, Callable[[list[Row], Results], None]] = {
    "first_screen": _first_screen,
    "answers": _answers,
    "extraction": _extraction,
    "reproduced_documents": _reproduced_documents,
    "passages": _passages,
    "asked": _asked,
    "strongest_answers": _strongest_answers,
    "corpus_tests": _corpus_tests,
    "detectors": _detectors,
    "curves": _curves,
    "error_rates": _error_rates,
    "series": _series,
    "splits": _splits,
    "coverage": _coverage,
    "changes": _changes,
    "instrument": _instrument,
    "limits": _limits,
    "sheets": _sheets,
    "benchmarks": _benchmarks,
    "manifest": _manifest,
    "lineage": _lineage,
    **{name: complete for module in extras.find_modules("section") for name, complete in module.COMPLETED_BY.items()},
}
