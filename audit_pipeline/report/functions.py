"""The report's rules and words as functions of SQL, so that queries have them beside their numbers.

What belongs here: which function goes by which name, with the types of its arguments and of what it yields. What does
not: the rules themselves (answer.py, summary.py, words.py, choice.py, metrics/claims.py, evidence/headline.py).

A sentence, a level in words or a choice that takes more than a comparison is made here, in Python, and tested there; a
query only says what it is made of. Page and JSON copy then show the same words, for both are made of the query's rows.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, get_args

import duckdb
import numpy as np
from duckdb.func import SPECIAL

from audit_pipeline.evidence.headline import headline_detector
from audit_pipeline.evidence.options import command_of
from audit_pipeline.metrics.claims import WHOEVER_RAN_THIS, ExtractionClaim, few_texts, rests_on
from audit_pipeline.metrics.metrics import roc_points
from audit_pipeline.report.brief import overall_brief
from audit_pipeline.report.choice import rule_place
from audit_pipeline.report.extraction_words import SearchCounts, extraction_words, log10_draws
from audit_pipeline.report.facts import facts
from audit_pipeline.report.headings import page_heading
from audit_pipeline.report.kinds import SIGNS, kind_of
from audit_pipeline.report.known import Estimate
from audit_pipeline.report.limits import LIMITS, not_shown
from audit_pipeline.report.picture_data import as_fine_as_seen, spread_of
from audit_pipeline.report.studies import panels_of
from audit_pipeline.report.summary import TestOutcome, instrument_words, summary_of, whole_set_words
from audit_pipeline.report.words import (
    STATUS_IN_WORDS,
    ScoreOrigin,
    claim_words,
    labels_words,
    verdict_words,
    what_else_changed,
)
from audit_pipeline.unlearning.compared import metric_place
from audit_pipeline.unlearning.conclusion import Outcome, conclude

Row = Mapping[str, Any]

_MACROS = (
    "finite(x) AS CASE WHEN isfinite(x::DOUBLE) THEN x::DOUBLE END",
    "estimate(x, low_end, high_end, how := NULL) AS {'value': finite(x), 'low': finite(low_end),"
    " 'high': finite(high_end), 'method': how::VARCHAR}",
    "cut(words, most) AS CASE WHEN length(words) > most THEN left(words, most - 1) || '…' ELSE words END",
    "model_title(of_model) AS coalesce((SELECT title FROM configured_models WHERE name = of_model),"
    " CASE WHEN starts_with(of_model, '/') THEN parse_filename(rtrim(of_model, '/')) ELSE of_model END)",
    "benchmark_title(of_benchmark) AS coalesce("
    "(SELECT title FROM configured_benchmarks WHERE benchmark = of_benchmark), of_benchmark)",
    "refused(status, reason) AS CASE WHEN status <> 'ok' THEN coalesce(nullif(reason, ''), 'refused') END",
)


class Function(NamedTuple):
    """A function of Python, the SQL types of its arguments and of its result."""

    python: Callable[..., Any]
    arguments: Sequence[str]
    result: str


def _enum(values: Sequence[str]) -> str:
    return f"ENUM({', '.join(repr(value) for value in values)})"


_ESTIMATE = "STRUCT(value DOUBLE, low DOUBLE, high DOUBLE, method VARCHAR)"
_FACTS = "STRUCT(name VARCHAR, value VARCHAR)[]"
_BRIEF = "STRUCT(question VARCHAR, how_sure VARCHAR, what_would_change VARCHAR)"
_TEST = "STRUCT(test VARCHAR, design VARCHAR, outcome VARCHAR, claim_level VARCHAR, headline VARCHAR)"
_STUDY_ROW = "STRUCT(setting VARCHAR, value VARCHAR, detector VARCHAR, auroc DOUBLE, ci_low DOUBLE, ci_high DOUBLE)"
_COMPARED = (
    "STRUCT(metric VARCHAR, role VARCHAR, side VARCHAR, value DOUBLE, ci_low DOUBLE, ci_high DOUBLE, n BIGINT,"
    " method VARCHAR, reason VARCHAR, documents VARCHAR[])"
)
_PANEL = (
    "STRUCT(setting VARCHAR, places VARCHAR[],"
    f" lines STRUCT(detector VARCHAR, points STRUCT(place VARCHAR, auroc {_ESTIMATE})[])[])"
)


def register(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the functions known to a connection, for as long as it is open."""
    for name, function in FUNCTIONS.items():
        arguments: list[Any] = list(function.arguments)
        connection.create_function(name, function.python, arguments, function.result, null_handling=SPECIAL)
    for macro in _MACROS:
        connection.execute(f"CREATE TEMP MACRO {macro}")


def _headline(detectors: Sequence[str], named: str | None) -> str | None:
    return headline_detector(set(detectors), named)


def _whole_set(
    test: str,
    refused: str | None,
    p_value: float | None,
    p_values_so_far: int,
    claim_level: str,
    direction: str | None,
    handed_over: bool,
    stated_by: str | None,
) -> Row:
    outcome, headline = whole_set_words(
        test=test,
        refused=refused,
        p_value=p_value,
        p_values_so_far=p_values_so_far,
        claim_level=claim_level,
        direction=direction,
        origin=ScoreOrigin(handed_over, stated_by),
    )
    return {"outcome": outcome, "sign": kind_of(outcome).sign, "headline": headline}


def _extraction(
    model: str,
    benchmark: str,
    documents: int,
    reproduced: int,
    held_out: int,
    held_out_reproduced: int,
    set_apart: int,
    window: int,
    reason: str | None,
) -> Row:
    counted = SearchCounts(documents, reproduced, held_out, held_out_reproduced, set_apart, window, reason)
    return asdict(extraction_words(model, benchmark, counted))


def _unlearning(rows: Sequence[Row], before: str, after: str) -> Row:
    return asdict(conclude(rows, before=before, after=after))


def _test_rests_on(test: str, level: str, stated_by: str | None, blind: float | None) -> str | None:
    """Whose word a test's claim level rests on: of a test set's order always that of whoever ran the test."""
    if test != "dataset_inference":
        return rests_on(level, WHOEVER_RAN_THIS if test == "sharded_permutation" else None, None)
    return rests_on(level, stated_by, blind)


def _command(model: str, benchmark: str, settings: str | None, handed_over: bool) -> str:
    """What is typed to have a pair's numbers again; ``settings``: the options that its scores were evaluated with."""
    if settings is not None:
        return shlex.join(command_of(json.loads(settings)))
    if handed_over:
        name = " ".join(f"{model} on {benchmark}".split())
        return f"# {name}: evaluated by an earlier version, which did not keep how"
    return shlex.join(["corpus-audit", "audit", "--model", model, "--benchmark", benchmark])


def _roc(members: Sequence[float] | None, nonmembers: Sequence[float] | None) -> Row:
    """The ROC curve, as fine as a picture shows it; the diagonal where one side has no scores."""
    fpr, tpr = np.array([0.0, 1.0]), np.array([0.0, 1.0])
    if members and nonmembers:
        labels = np.repeat([1, 0], [len(members), len(nonmembers)])
        points = roc_points(np.array([*members, *nonmembers]), labels)
        fpr, tpr = as_fine_as_seen(points.fpr, points.tpr)
    return {"fpr": np.round(fpr, 6).tolist(), "tpr": np.round(tpr, 6).tolist()}


def _spread(members: Sequence[float] | None, nonmembers: Sequence[float] | None) -> Row:
    spread = spread_of(np.array(members or [], dtype=np.float64), np.array(nonmembers or [], dtype=np.float64))
    return {
        "edges": [float(f"{edge:.9g}") for edge in spread.edges],
        "members": np.round(spread.members, 5).tolist(),
        "nonmembers": np.round(spread.nonmembers, 5).tolist(),
    }


def _panels(rows: Sequence[Row]) -> list[Row]:
    return [
        {
            "setting": panel.setting,
            "places": list(panel.values),
            "lines": [
                {
                    "detector": detector,
                    "points": [
                        {"place": one.label, "auroc": asdict(Estimate(one.value, one.low, one.high))} for one in points
                    ],
                }
                for detector, points in panel.lines
            ],
        }
        for panel in panels_of(rows)
    ]


def _status_words(status: str) -> str | None:
    return STATUS_IN_WORDS.get(status)


def _status_place(status: str) -> int:
    """Worst first; a status of another version before all."""
    known = list(STATUS_IN_WORDS)
    return known.index(status) if status in known else -1


FUNCTIONS: Mapping[str, Function] = {
    "headline_detector": Function(_headline, ["VARCHAR[]", "VARCHAR"], "VARCHAR"),
    "rule_place": Function(rule_place, ["VARCHAR", "DOUBLE"], "INTEGER"),
    "test_rests_on": Function(_test_rests_on, ["VARCHAR", "VARCHAR", "VARCHAR", "DOUBLE"], "VARCHAR"),
    "few_texts": Function(few_texts, ["BIGINT", "BIGINT"], "VARCHAR"),
    "claim_words": Function(claim_words, ["VARCHAR", "VARCHAR"], "VARCHAR"),
    "verdict_words": Function(verdict_words, ["VARCHAR", "VARCHAR"], "VARCHAR"),
    "labels_words": Function(labels_words, ["VARCHAR", "VARCHAR"], "VARCHAR"),
    "overall_brief": Function(
        lambda models, benchmarks, answers, reproduced: asdict(overall_brief(models, benchmarks, answers, reproduced)),
        ["VARCHAR[]", "VARCHAR[]", "STRUCT(outcome VARCHAR, claim_level VARCHAR, searched BOOLEAN)[]", "BIGINT"],
        _BRIEF,
    ),
    "page_heading": Function(page_heading, ["VARCHAR[]", "VARCHAR[]", "BIGINT"], "VARCHAR"),
    "not_shown": Function(not_shown, ["VARCHAR[]"], "VARCHAR[]"),
    "whole_set_words": Function(
        _whole_set,
        [*("VARCHAR", "VARCHAR", "DOUBLE", "BIGINT", "VARCHAR", "VARCHAR", "BOOLEAN", "VARCHAR")],
        f"STRUCT(outcome {_enum(get_args(TestOutcome))}, sign {_enum(SIGNS)}, headline VARCHAR)",
    ),
    "unlearning_words": Function(
        _unlearning,
        [f"{_COMPARED}[]", "VARCHAR", "VARCHAR"],
        f"STRUCT(outcome {_enum(get_args(Outcome))}, headline VARCHAR, explanation VARCHAR[])",
    ),
    "unlearning_place": Function(metric_place, ["VARCHAR"], "INTEGER"),
    "summary_of": Function(
        summary_of,
        [
            *("STRUCT(outcome VARCHAR, claim_level VARCHAR, headline VARCHAR)[]", "BIGINT", f"{_TEST}[]"),
            "STRUCT(outcome VARCHAR, headline VARCHAR)[]",
        ],
        "VARCHAR",
    ),
    "instrument_words": Function(
        instrument_words,
        [f"STRUCT(detector VARCHAR, exposed {_ESTIMATE}, twin {_ESTIMATE}, answers BOOLEAN)[]"],
        "VARCHAR",
    ),
    "log10_draws": Function(log10_draws, ["DOUBLE"], "DOUBLE"),
    "extraction_words": Function(
        _extraction,
        [*("VARCHAR", "VARCHAR", "BIGINT", "BIGINT", "BIGINT", "BIGINT", "BIGINT", "BIGINT", "VARCHAR")],
        "STRUCT(outcome VARCHAR, sign VARCHAR, question VARCHAR, headline VARCHAR, how_sure VARCHAR,"
        " what_would_change VARCHAR,"
        f" claim {_enum(get_args(ExtractionClaim))}, claim_in_words VARCHAR,"
        " set_apart_in_words VARCHAR, calibration_in_words VARCHAR)",
    ),
    "status_words": Function(_status_words, ["VARCHAR"], "VARCHAR"),
    "status_place": Function(_status_place, ["VARCHAR"], "INTEGER"),
    "what_else_changed": Function(
        what_else_changed, ["BOOLEAN", "BOOLEAN", "BOOLEAN", "VARCHAR[]", "VARCHAR[]"], "VARCHAR[]"
    ),
    "limits": Function(
        lambda: [{"title": title, "text": text} for title, text in LIMITS], [], "STRUCT(title VARCHAR, text VARCHAR)[]"
    ),
    "facts": Function(facts, ["VARCHAR", "VARCHAR[]"], _FACTS),
    "command_again": Function(_command, ["VARCHAR", "VARCHAR", "VARCHAR", "BOOLEAN"], "VARCHAR"),
    "roc_curve": Function(_roc, ["DOUBLE[]", "DOUBLE[]"], "STRUCT(fpr DOUBLE[], tpr DOUBLE[])"),
    "spread_of": Function(
        _spread, ["DOUBLE[]", "DOUBLE[]"], "STRUCT(edges DOUBLE[], members DOUBLE[], nonmembers DOUBLE[])"
    ),
    "study_panels": Function(_panels, [f"{_STUDY_ROW}[]"], f"{_PANEL}[]"),
}
