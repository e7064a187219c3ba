"""The columns of the sections that Python fills: sentences, choices that take more than a comparison, curves, facts.

What belongs here: which columns of which section (or table of answers.sql and site.sql) are filled, and from what, and
nested JSON (manifests, versions, lists of inputs) as lines of names and values, for people who want to see all of it.
What does not: the rules and the words (summary.py, brief.py, vocabulary.py, answer_kinds.py and others), the queries
(sections/, sql/).

A query yields such a column as a NULL of its type, and what it is made from in other columns. One whose name begins
with an underscore is for this module alone: neither page nor JSON copy has it. Page and JSON copy show the same words,
for both are made of the filled rows.
"""

from __future__ import annotations

import json
import math
import shlex
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, get_args

import numpy as np

from audit_pipeline.catalogue.contracts import PAIR_STATES, AskClaim
from audit_pipeline.evidence.evaluate_options import build_evaluate_command, choose_headline_detector
from audit_pipeline.extraction.conclusions import log_cost_of_draws
from audit_pipeline.metrics.claims import WHOEVER_RAN_THIS, ExtractionClaim, find_claim_source, warn_of_few_texts
from audit_pipeline.metrics.roc import roc_points
from audit_pipeline.report.answer_kinds import LIMITS, SIGNS, Other, kind_of, not_shown, suggest_others
from audit_pipeline.report.ask_words import AskCounts, describe_asking, warn_of_versions
from audit_pipeline.report.attempt_words import describe_absence, describe_attempts, describe_plan
from audit_pipeline.report.brief import overall_brief, page_heading
from audit_pipeline.report.error_rates import describe_error_rates
from audit_pipeline.report.extraction_words import SearchCounts, compare_words, describe_extraction, log10_draws
from audit_pipeline.report.number_format import cut
from audit_pipeline.report.picture_data import build_study_panels, spread_of, thin_roc_curve
from audit_pipeline.report.summary import TestOutcome, describe_whole_set_test, instrument_words, summarise_results
from audit_pipeline.report.vocabulary import (
    Estimate,
    ScoreOrigin,
    describe_blind_control,
    describe_claim_level,
    describe_label_origin,
    describe_verdict,
    list_other_changes,
)
from audit_pipeline.unlearning.conclusion import Outcome, conclude_unlearning

MOST = 60
"""Facts of one thing, at most: a manifest can hold thousands."""


def list_facts(value: object) -> list[dict[str, str]]:
    """Nested JSON as names and values, 60 at most, each cut to a bounded length."""
    return [{"name": cut(name, 200), "value": cut(word, 1000)} for name, word in flatten_json(value)[:MOST]]


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


Row = dict[str, Any]

_ESTIMATE = "STRUCT(value DOUBLE, low DOUBLE, high DOUBLE, method VARCHAR)"


def _build_enum_type(values: Sequence[str]) -> str:
    return f"ENUM({', '.join(repr(value) for value in values)})"


TYPES: Mapping[str, str] = {
    "sign": _build_enum_type(SIGNS),
    "test_outcome": _build_enum_type(get_args(TestOutcome)),
    "unlearning_outcome": _build_enum_type(get_args(Outcome)),
    "search_words": (
        "STRUCT(outcome VARCHAR, sign VARCHAR, question VARCHAR, headline VARCHAR, how_sure VARCHAR,"
        f" what_would_change VARCHAR, claim {_build_enum_type(get_args(ExtractionClaim))}, claim_in_words VARCHAR,"
        " set_apart_in_words VARCHAR, calibration_in_words VARCHAR)"
    ),
    "ask_words": (
        "STRUCT(outcome VARCHAR, sign VARCHAR, question VARCHAR, headline VARCHAR, how_sure VARCHAR,"
        f" what_would_change VARCHAR, claim {_build_enum_type(get_args(AskClaim))}, claim_in_words VARCHAR,"
        " calibration_in_words VARCHAR, unanswered_in_words VARCHAR)"
    ),
    "fact": "STRUCT(name VARCHAR, value VARCHAR)",
    "part_of_page": "STRUCT(heading VARCHAR, sentences VARCHAR[])",
    "stretch": "STRUCT(text VARCHAR, is_common BOOLEAN)",
    "study": (
        "STRUCT(name VARCHAR, panels STRUCT(setting VARCHAR, places VARCHAR[], lines STRUCT(detector VARCHAR,"
        f" points STRUCT(place VARCHAR, auroc {_ESTIMATE})[])[])[])"
    ),
}
"""The types, by the names that the queries give them, of filled columns that are more than a word or a number."""


def fill_columns(name: str, rows: list[Row]) -> None:
    """Fill the columns of the rows of a section or table, where it has any that Python fills."""
    if name in _FILLED:
        _FILLED[name](rows)


def _fill_tests(tests: list[Row]) -> None:
    for test in tests:
        stated_by = test["claim_stated_by"] = _find_test_claim_source(test)
        test["outcome"], test["headline"] = describe_whole_set_test(
            test=test["test"],
            refusal=test["refused"],
            p_value=test["p_value"],
            p_values_so_far=test["p_values_so_far"],
            claim_level=test["claim_level"],
            n=test["n"],
            n_held_out=test["n_held_out"],
            detectable=test["detectable_auroc"],
            direction=test["direction"],
            origin=ScoreOrigin(test["_handed_over"], stated_by),
        )
        test["sign"] = kind_of(test["outcome"]).sign
        test["claim_in_words"] = describe_claim_level(test["claim_level"], stated_by)


def _find_test_claim_source(test: Row) -> str | None:
    """Whose word a test's claim level rests on: of a test set's order always that of whoever ran the test."""
    if test["test"] == "dataset_inference":
        return find_claim_source(test["claim_level"], test["_design_stated_by"], test["_blind"])
    return find_claim_source(
        test["claim_level"], WHOEVER_RAN_THIS if test["test"] == "sharded_permutation" else None, None
    )


def _fill_searches(searches: list[Row]) -> None:
    for search in searches:
        counted = SearchCounts(
            documents=search["documents"],
            without_window=search["_without_window"],
            reproduced=search["reproduced"],
            stand_out=search["_stand_out"],
            held_out=search["held_out"],
            held_out_reproduced=search["held_out_reproduced"],
            set_apart=search["set_apart"],
            window=search["prefix_tokens"] + search["suffix_tokens"],
            reason=search["reason"],
            grid=bool(search["grid_settings"]),
            asked=search["_asked"],
        )
        search["conclusion"] = asdict(describe_extraction(search["model_title"], search["benchmark_title"], counted))
        _fill_attempted(search)


def _fill_chats(chats: list[Row]) -> None:
    for row in chats:
        counts = AskCounts(**{name: row[name] for name in AskCounts.__dataclass_fields__})
        row["conclusion"] = asdict(describe_asking(row["model_title"], row["benchmark_title"], counts))


def _fill_asked(rows: list[Row]) -> None:
    for row in rows:
        row["warning"] = warn_of_versions([version["name"] for version in row["versions"]])


def _fill_strongest_answers(answers: list[Row]) -> None:
    for row in answers:
        if row["_original"] is not None and row["_given"] is not None:
            row["original"], row["given"] = compare_words(row["_original"], row["_given"])


def _fill_attempted(row: Row) -> None:
    row["tried"], row["planned"] = describe_attempts(row["_attempted"]), describe_plan(row["_attempted"])


def _fill_answers(answers: list[Row]) -> None:
    for answer in answers:
        level, verdict, stated_by = answer["claim_level"], answer["split_verdict"], answer["claim_stated_by"]
        answer["labels_by"] = describe_label_origin(answer["_builder"], answer["_origin"], answer["design_stated_by"])
        answer["claim_in_words"] = None if level is None else describe_claim_level(level, stated_by)
        answer["verdict_in_words"] = None if verdict is None else describe_verdict(verdict, stated_by)
        is_done: Mapping[Other, bool] = {"search": answer["_searched"], "canaries": answer["_canaries"]}
        done = {name for name, value in is_done.items() if value}
        changes = (answer["what_would_change"], suggest_others(answer["outcome"], done))
        answer["what_would_change"] = " ".join(filter(None, changes))
        _fill_attempted(answer)


def _fill_instrument(checks: list[Row]) -> None:
    detectors: dict[str, set[str]] = defaultdict(set)
    for check in checks:
        detectors[check["control"]].add(check["detector"])
    for check in checks:
        check["answers"] = check["detector"] == choose_headline_detector(detectors[check["control"]])


def _fill_first_screen(rows: list[Row]) -> None:
    for row in rows:
        models, benchmarks, answers = row["_models"], row["_benchmarks"], row["_answers"]
        if row["heading"] is None:
            row["heading"] = page_heading(models, benchmarks, row["_own_documents"])
        row.update(asdict(overall_brief(models, benchmarks, answers, row["_reproduced"])))
        row["summary"] = summarise_results(answers, row["_pairs"], row["_tests"], row["_searches"], row["_chats"])
        row["instrument_words"] = instrument_words(row["_checks"])


def _fill_detectors(detectors: list[Row]) -> None:
    for row in detectors:
        if row["auroc"]["value"] is not None:
            row["warning"] = warn_of_few_texts(row["n_members"], row["n_nonmembers"])


def _fill_curves(curves: list[Row]) -> None:
    """ROC curves, as fine as a picture shows them, the diagonal where one side has no scores; and spreads of scores."""
    for row in curves:
        members, others = (np.array(row[side] or [], dtype=np.float64) for side in ("_members", "_others"))
        fpr, tpr = np.array([0.0, 1.0]), np.array([0.0, 1.0])
        if len(members) and len(others):
            points = roc_points(np.concatenate([members, others]), np.repeat([1, 0], [len(members), len(others)]))
            fpr, tpr = thin_roc_curve(points.fpr, points.tpr)
        row["fpr"], row["tpr"] = np.round(fpr, 6).tolist(), np.round(tpr, 6).tolist()
        spread = spread_of(members, others)
        row["edges"] = [float(f"{edge:.9g}") for edge in spread.edges]
        row["members"] = np.round(spread.members, 5).tolist()
        row["nonmembers"] = np.round(spread.nonmembers, 5).tolist()


def _fill_draws(rows: list[Row]) -> None:
    for row in rows:
        row["log10_draws"] = log10_draws(row["log_p"])


def _fill_passages(passages: list[Row]) -> None:
    _fill_draws(passages)
    for row in passages:
        if row["_price"]:
            row["log10_cost"] = log_cost_of_draws(row["log_p"], row["_window"], row["_price"]) / math.log(10)
        if row["_given"] is not None:
            row["original"], row["given"] = compare_words(row["_original"], row["_given"])


def _fill_extraction(searches: list[Row]) -> None:
    for row in searches:
        controls = dict.fromkeys((point["control"], point["benchmark"]) for point in row["_doses"])
        row["absence"] = [
            describe_absence(row["reproduced"], [p for p in row["_doses"] if (p["control"], p["benchmark"]) == control])
            for control in controls
        ]


def _fill_error_rates(rows: list[Row]) -> None:
    for row in rows:
        row["parts"] = describe_error_rates(row["_facts"])


def _fill_unlearning(comparisons: list[Row]) -> None:
    for row in comparisons:
        row.update(asdict(conclude_unlearning(row["_compared"], before=row["before"], after=row["model"])))


def _fill_splits(splits: list[Row]) -> None:
    for split in splits:
        split["verdict_in_words"] = describe_verdict(split["split_verdict"])


def _fill_coverage(rows: list[Row]) -> None:
    for count in rows[0]["counts"]:
        count["meaning"] = PAIR_STATES.get(count["status"])


def _fill_changes(rows: list[Row]) -> None:
    for row in rows:
        for finding, changed in zip(row["findings"], row["_changed"], strict=True):
            finding["because"] = list_other_changes(**changed)


def _fill_studies(rows: list[Row]) -> None:
    for row in rows:
        row["studies"] = [_build_study(study["name"], study["results"]) for study in row["_results"]]


def _build_study(name: str, results: Sequence[Mapping[str, Any]]) -> Row:
    panels = [
        {
            "setting": panel.setting,
            "places": list(panel.values),
            "lines": [
                {
                    "detector": detector,
                    "points": [
                        {"place": point.label, "auroc": asdict(Estimate(point.value, point.low, point.high))}
                        for point in points
                    ],
                }
                for detector, points in panel.lines
            ],
        }
        for panel in build_study_panels(results)
    ]
    return {"name": name, "panels": panels}


def _fill_limits(limits: list[Row]) -> None:
    limits += [{"title": title, "text": text} for title, text in LIMITS]


def _fill_sheets(sheets: list[Row]) -> None:
    for sheet in sheets:
        sheet["not_shown"] = not_shown([answer["sign"] for answer in sheet["answers"]])
        sheet["labels_by"] = describe_label_origin(sheet["_builder"], sheet["_origin"], sheet["_design_stated_by"])
        sheet["words_alone"] = describe_blind_control(sheet["_blind"]) if sheet["_has_scores"] else None
        sheet["tried"] = [words for words in map(describe_attempts, sheet["_attempted"]) if words is not None]
        sheet["planned"] = [words for words in map(describe_plan, sheet["_attempted"]) if words is not None]


def _fill_benchmarks(benchmarks: list[Row]) -> None:
    for row in benchmarks:
        manifest = json.loads(row["_manifest"] or "{}")
        for check, made in zip(row["checks"], manifest.get("checks") or [], strict=False):
            check["counts"] = list_facts(made.get("counts"))
        left_out = ("benchmark", "digest", "design", "label_source", "description", "checks", "matched")
        row["manifest"] = list_facts({name: value for name, value in manifest.items() if name not in left_out})


def _fill_manifest(rows: list[Row]) -> None:
    for row in rows:
        # An evaluation of a user's own scores writes its report itself.
        report = ["corpus-audit report"] if row["_has_models"] else []
        row["commands"] = [_build_command(**pair) for pair in row["_pairs"]] + report
        for environment, versions in zip(row["environments"], row["_package_versions"], strict=True):
            environment["packages"] = list_facts(json.loads(versions or "null"))


def _build_command(model: str, benchmark: str, settings: str | None) -> str:
    """What is typed to have a pair's numbers again; ``settings``: the options that its scores were evaluated with."""
    if settings is not None:
        return shlex.join(build_evaluate_command(json.loads(settings)))
    return shlex.join(["corpus-audit", "audit", "--model", model, "--benchmark", benchmark])


def _fill_lineage(entries: list[Row]) -> None:
    for entry in entries:
        entry["inputs"] = list_facts(json.loads(entry["_upstream_data_versions"] or "null"))


_FILLED: Mapping[str, Callable[[list[Row]], None]] = {
    "tests": _fill_tests,
    "extraction_counts": _fill_searches,
    "chat_counts": _fill_chats,
    "instrument_checks": _fill_instrument,
    "answers": _fill_answers,
    "first_screen": _fill_first_screen,
    "detectors": _fill_detectors,
    "curves": _fill_curves,
    "reproduced_documents": _fill_draws,
    "extraction": _fill_extraction,
    "passages": _fill_passages,
    "asked": _fill_asked,
    "strongest_answers": _fill_strongest_answers,
    "error_rates": _fill_error_rates,
    "unlearning": _fill_unlearning,
    "splits": _fill_splits,
    "coverage": _fill_coverage,
    "changes": _fill_changes,
    "instrument": _fill_studies,
    "limits": _fill_limits,
    "sheets": _fill_sheets,
    "benchmarks": _fill_benchmarks,
    "manifest": _fill_manifest,
    "lineage": _fill_lineage,
}
