"""The evidence on one model and one benchmark, read from the warehouse.

What belongs here: queries on one pair, and their rows as the parts of a section. What does not: which pairs get a
section (report_choice.py), what is said of all of them (report_data.py, report_background.py), pictures and HTML.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from audit_pipeline.catalogue.contracts import MEMBER, NON_MEMBER
from audit_pipeline.metrics.claims import few_texts
from audit_pipeline.metrics.declared import METRICS
from audit_pipeline.metrics.metrics import roc_points
from audit_pipeline.report.document import (
    CalibrationCheck,
    Comparison,
    Curve,
    Decision,
    Detector,
    DocumentResult,
    Estimate,
    Excerpt,
    GroupScore,
    Highlight,
    Ledger,
    Rate,
    Section,
    Setting,
    Shelf,
    Sides,
    Spread,
    Token,
    Unscored,
)
from audit_pipeline.report.picture_data import as_fine_as_seen, spread_of
from audit_pipeline.report.rows import Row, cut, estimate, finite, rows
from audit_pipeline.report.words import OPPOSITE, Q_LEVEL
from audit_pipeline.warehouse.schema import BLIND_CONTROL

Floats = npt.NDArray[np.float64]
Connection = duckdb.DuckDBPyConnection

TOP_TEXTS = 10
MAX_DOCUMENTS = 150
MAX_RATES = 40
MAX_COMPARISONS = 40
MAX_SETTINGS = 120
MAX_UNSCORED = 40
ANOTHER_BUILD = "the benchmark was built anew since, so scores and texts may be of different builds: audit it again"
CHOSEN_RULES = (("marginal", 0.05), ("certified", 0.05), ("largest_accuracy", None), ("marginal", 0.01))
"""The threshold that the first screen quotes a rate of: the first of these that there is."""


@dataclass(frozen=True)
class Chosen:
    """A pair, and the detector that was named beforehand; None where none of several was, or it has no score.

    ``is_current``: whether the benchmark is still the build that was audited.
    """

    model: str
    benchmark: str
    sides: Sides
    detector: str | None
    parameters: str | None
    is_current: bool = True

    @property
    def where(self) -> dict[str, object]:
        return {"model": self.model, "benchmark": self.benchmark}


def read_section(connection: Connection, number: int, chosen: Chosen, *, include_text: bool) -> Section:
    """The evidence on a pair, from the views and from the temporary table section_scores of its current scores."""
    connection.execute(_SECTION_SCORES, chosen.where)
    evaluations = rows(connection, _EVALUATIONS, **chosen.where)
    detectors = _detectors(evaluations, chosen)
    scored = {
        (detector.detector, detector.parameters): _labelled_scores(connection, chosen, detector)
        for detector in detectors
        if detector.auroc.value is not None and chosen.is_current
    }
    include_text = include_text and chosen.is_current
    settings, comparisons, unscored = (
        _settings(evaluations),
        _comparisons(connection, chosen),
        rows(connection, _UNSCORED),
    )
    top_detector, top_parameters = chosen.detector, chosen.parameters
    shelf = _shelf(connection, chosen)
    highlights = _highlights(connection, chosen) if include_text else []
    if highlights:
        top_detector, top_parameters = highlights[0][0], highlights[0][1]
    return Section(
        number=number,
        model=chosen.model,
        benchmark=chosen.benchmark,
        sides=chosen.sides,
        without_texts=None if chosen.is_current else ANOTHER_BUILD,
        blind=_blind(evaluations),
        detectors=detectors,
        settings=settings[:MAX_SETTINGS],
        more_settings=max(0, len(settings) - MAX_SETTINGS),
        comparisons=comparisons[:MAX_COMPARISONS],
        more_comparisons=max(0, len(comparisons) - MAX_COMPARISONS),
        curves=[
            _curve(detector, *scored[detector.detector, detector.parameters][:2])
            for detector in detectors
            if (detector.detector, detector.parameters) in scored
        ],
        smallest_fpr=max((1 / groups for _, _, groups in scored.values() if groups), default=None),
        spreads=[
            _spread(detector, *scored[detector.detector, detector.parameters][:2])
            for detector in detectors
            if (detector.detector, detector.parameters) in scored
        ],
        decisions=_decisions(connection, chosen),
        calibration_checks=_calibration_checks(connection, chosen),
        shelf=shelf,
        group_scores=_group_scores(connection, chosen) if shelf is None and not scored and chosen.is_current else [],
        highlighted_by=top_detector,
        highlighted_parameters=top_parameters,
        highlights=[highlight for _, _, highlight in highlights],
        excerpts=_excerpts(connection, chosen) if include_text and not highlights else [],
        unscored=[
            Unscored(detector=row["detector"], status=row["status"], reason=row["reason"], texts=row["texts"])
            for row in unscored[:MAX_UNSCORED]
        ],
        more_unscored=max(0, len(unscored) - MAX_UNSCORED),
        ledger=_ledger(connection, chosen),
        methods=list(
            dict.fromkeys(row["method"] for row in evaluations if row["is_default"] and row["value"] is not None)
        ),
    )


_SECTION_SCORES = """
CREATE OR REPLACE TEMP TABLE section_scores AS
SELECT * FROM scores_with_examples WHERE model = $model AND benchmark = $benchmark
"""

_EVALUATIONS = """
SELECT detector, parameters, is_default, metric, value, ci_low, ci_high, method, n_members, n_nonmembers, n_groups,
    n_not_scored
FROM current_evaluations WHERE model = $model AND benchmark = $benchmark
ORDER BY detector, TRY_CAST(parameters ->> '$.k' AS DOUBLE), parameters, metric
"""

# As the AUROC compares them: labelled texts of the evaluation split, or audited texts with those held out.
_SCORES = """
SELECT score, label::TINYINT AS label, "group" FROM section_scores
WHERE detector = $detector AND parameters = $parameters AND status = 'ok' AND split = 'evaluation'
    AND label IN (0, 1) AND isfinite(score)
ORDER BY example_id
"""

_AUDITED_SCORES = """
SELECT score, (split = 'evaluation')::TINYINT AS label, "group" FROM section_scores
WHERE detector = $detector AND parameters = $parameters AND status = 'ok' AND isfinite(score)
    AND (split = 'evaluation' OR (split = 'calibration' AND label = 0))
ORDER BY example_id
"""

_UNSCORED = """
SELECT detector, status, reason, count(DISTINCT example_id) AS texts
FROM section_scores WHERE status <> 'ok' GROUP BY ALL ORDER BY detector, texts DESC, reason
"""

_COMPARISONS = """
SELECT * FROM current_comparisons WHERE model = $model AND benchmark = $benchmark
ORDER BY (detector = $detector AND parameters = $parameters) DESC, detector, parameters, other, other_parameters
"""

_DECISIONS = """
SELECT * FROM current_decisions WHERE model = $model AND benchmark = $benchmark AND is_default
ORDER BY (detector = $detector AND parameters = $parameters) DESC, detector, parameters,
    list_position(['marginal', 'certified', 'largest_accuracy'], rule), alpha DESC NULLS LAST
"""

_CALIBRATION_CHECKS = """
SELECT * FROM current_calibration_checks WHERE model = $model AND benchmark = $benchmark
ORDER BY (detector = $detector AND parameters = $parameters) DESC, detector, parameters, rule DESC, alpha DESC
"""

_RULES = """
SELECT DISTINCT rule, alpha FROM current_contamination_rates
WHERE model = $model AND benchmark = $benchmark AND detector = $detector AND parameters = $parameters
ORDER BY rule DESC, alpha DESC
"""

_GROUPS = """
SELECT tests.* FROM current_group_tests AS tests
WHERE model = $model AND benchmark = $benchmark AND detector = $detector AND parameters = $parameters
"""

# Where no detector was named: of each group that of the smallest p-value, whose scores do not run against training.
_GROUPS_OF_ALL = """
SELECT * FROM current_group_tests WHERE model = $model AND benchmark = $benchmark AND is_default
QUALIFY row_number() OVER (
    PARTITION BY "group" ORDER BY direction IS NOT DISTINCT FROM 'opposite', p_value, detector, parameters
) = 1
"""

_ALL_CALIBRATION_GROUPS = """
SELECT max(n_calibration_groups) AS groups FROM current_decisions
WHERE model = $model AND benchmark = $benchmark AND is_default
    AND ($detector IS NULL OR (detector = $detector AND parameters = $parameters))
"""

_RATES = """
SELECT * FROM current_contamination_rates
WHERE model = $model AND benchmark = $benchmark AND detector = $detector AND parameters = $parameters
    AND rule = $rule AND alpha IS NOT DISTINCT FROM $alpha
ORDER BY list_position(['benchmark', 'collection', 'group'], unit), flagged DESC, name
"""

_TITLES = """
SELECT DISTINCT name, title FROM book_contamination
WHERE model = $model AND benchmark = $benchmark AND detector = $detector AND parameters = $parameters
    AND unit = 'group' AND title IS NOT NULL
"""

_GROUP_SCORES = f"""
SELECT * FROM group_scores WHERE model = $model AND benchmark = $benchmark
    AND detector = $detector AND parameters = $parameters
ORDER BY mean_score DESC, "group" LIMIT {MAX_RATES}
"""  # noqa: S608 - a number of this module

_HIGHLIGHTS = f"""
SELECT lit.*, examples.label, examples.published, examples."group", examples.collection, examples.language
FROM current_highlights AS lit LEFT JOIN examples
    ON examples.benchmark = lit.benchmark AND examples.example_id = lit.example_id
WHERE lit.model = $model AND lit.benchmark = $benchmark
ORDER BY lit.detector, lit.parameters, lit.place LIMIT {TOP_TEXTS}
"""  # noqa: S608 - a number of this module

_EXCERPTS = f"""
SELECT example_id, score, label, published, "group", collection, language, excerpt FROM section_scores
WHERE detector = $detector AND parameters = $parameters AND status = 'ok' AND split IS DISTINCT FROM 'calibration'
ORDER BY score DESC, example_id LIMIT {TOP_TEXTS}
"""  # noqa: S608 - a number of this module

_LEDGER = "SELECT * FROM multiplicity_ledger WHERE model = $model AND benchmark = $benchmark"


def _is_blind(row: Row) -> bool:
    return bool(row["detector"] == BLIND_CONTROL)


def _metric(measured: Sequence[Row], *names: str) -> Estimate:
    row = next((row for row in measured if row["metric"] in names), None)
    if row is None:
        return Estimate(value=None)
    return Estimate(value=row["value"], low=row["ci_low"], high=row["ci_high"], method=row["method"])


def _by_setting(evaluations: Sequence[Row]) -> Mapping[tuple[str, str], list[Row]]:
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in evaluations:
        if not _is_blind(row):
            found[row["detector"], row["parameters"]].append(row)
    return found


_TPR = {metric.at_fpr: name for name, metric in METRICS.items() if metric.at_fpr is not None}


def _detectors(evaluations: Sequence[Row], chosen: Chosen) -> list[Detector]:
    """The detectors at their default setting: the one that answers first, the others by name, not by result."""
    found = [
        _detector(measured, answers=setting == (chosen.detector, chosen.parameters))
        for setting, measured in _by_setting(evaluations).items()
        if measured[0]["is_default"]
    ]
    return sorted(found, key=lambda one: (not one.answers, one.detector, one.parameters))


def _blind(evaluations: Sequence[Row]) -> Detector | None:
    """The blind control; None where it was not evaluated."""
    measured = [row for row in evaluations if _is_blind(row)]
    return _detector(measured, answers=False) if measured else None


def _detector(measured: Sequence[Row], *, answers: bool) -> Detector:
    first, auroc = measured[0], _metric(measured, "auroc")
    counts = {name: first[name] for name in ("n_members", "n_nonmembers", "n_groups", "n_not_scored")}
    return Detector(
        detector=first["detector"],
        parameters=first["parameters"],
        answers=answers,
        **counts,
        auroc=auroc,
        tpr_at_5_fpr=_metric(measured, _TPR[0.05]),
        tpr_at_1_fpr=_metric(measured, _TPR[0.01]),
        tpr_at_01_fpr=_metric(measured, _TPR[0.001]),
        fpr_at_95_tpr=_metric(measured, "fpr_at_95_tpr"),
        margin=_metric(measured, "auroc_margin"),
        warning=None if auroc.value is None else few_texts(counts["n_members"], counts["n_nonmembers"]),
    )


def _settings(evaluations: Sequence[Row]) -> list[Setting]:
    """Every setting of the detectors that have several."""
    settings = _by_setting(evaluations)
    several = {detector for detector, _ in settings if sum(detector == other for other, _ in settings) > 1}
    return [
        Setting(
            detector=detector,
            parameters=parameters,
            is_default=measured[0]["is_default"],
            n=measured[0]["n_members"] + measured[0]["n_nonmembers"],
            auroc=_metric(measured, "auroc"),
            tpr_at_5_fpr=_metric(measured, _TPR[0.05]).value,
            fpr_at_95_tpr=_metric(measured, "fpr_at_95_tpr").value,
        )
        for (detector, parameters), measured in settings.items()
        if detector in several
    ]


def _labelled_scores(
    connection: Connection, chosen: Chosen, detector: Detector
) -> tuple[Floats, npt.NDArray[np.int8], int]:
    """Scores and labels as the AUROC compares them, and how many groups of non-members there are."""
    sql = _SCORES if chosen.sides == "labelled" else _AUDITED_SCORES
    by = {"detector": detector.detector, "parameters": detector.parameters}
    table = connection.sql(sql, params=by).to_arrow_table()
    labels = table.column("label").to_numpy().astype(np.int8)
    groups = {group for group, label in zip(table.column("group").to_pylist(), labels, strict=True) if label == 0}
    return table.column("score").to_numpy().astype(np.float64), labels, len(groups)


def _curve(detector: Detector, scores: Floats, labels: npt.NDArray[np.int8]) -> Curve:
    fpr, tpr = np.array([0.0, 1.0]), np.array([0.0, 1.0])
    if {MEMBER, NON_MEMBER} <= set(labels.tolist()):
        points = roc_points(scores, labels)
        fpr, tpr = as_fine_as_seen(points.fpr, points.tpr)
    return Curve(
        detector=detector.detector,
        parameters=detector.parameters,
        auroc=detector.auroc.value,
        fpr=np.round(fpr, 6).tolist(),
        tpr=np.round(tpr, 6).tolist(),
    )


def _spread(detector: Detector, scores: Floats, labels: npt.NDArray[np.int8]) -> Spread:
    spread = spread_of(scores[labels == MEMBER], scores[labels == NON_MEMBER])
    return Spread(
        detector=detector.detector,
        parameters=detector.parameters,
        edges=[float(f"{edge:.9g}") for edge in spread.edges],
        members=np.round(spread.members, 5).tolist(),
        nonmembers=np.round(spread.nonmembers, 5).tolist(),
    )


def _by(chosen: Chosen) -> dict[str, object]:
    return {**chosen.where, "detector": chosen.detector, "parameters": chosen.parameters}


def _comparisons(connection: Connection, chosen: Chosen) -> list[Comparison]:
    return [
        Comparison(
            **{name: row[name] for name in ("detector", "parameters", "other", "other_parameters")},
            **{name: row[name] for name in ("n_members", "n_nonmembers", "n_groups", "standard_error", "p_value")},
            difference=Estimate(value=row["difference"], low=row["ci_low"], high=row["ci_high"], method=row["method"]),
        )
        for row in rows(connection, _COMPARISONS, **_by(chosen))
    ]


def _decisions(connection: Connection, chosen: Chosen) -> list[Decision]:
    names = (
        "detector",
        "parameters",
        "is_default",
        "rule",
        "alpha",
        "threshold",
        "method",
        "n_members",
        "n_nonmembers",
    )
    counts = ("n_calibration_groups", "n_calibration_nonmembers", "n_calibration_members")
    return [
        Decision(
            **{name: row[name] for name in (*names, *counts)},
            refused=_refused(row),
            fpr=estimate(row, "fpr"),
            tpr=estimate(row, "tpr"),
        )
        for row in rows(connection, _DECISIONS, **_by(chosen))
    ]


def _refused(row: Row) -> str | None:
    return None if row["status"] == "ok" else row["reason"] or "refused"


def _calibration_checks(connection: Connection, chosen: Chosen) -> list[CalibrationCheck]:
    names = (
        "detector",
        "parameters",
        "rule",
        "alpha",
        "splits",
        "n_groups",
        "mean_fpr",
        "standard_error",
        "over_alpha",
    )
    return [
        CalibrationCheck(**{name: row[name] for name in names}, refused=row["reason"])
        for row in rows(connection, _CALIBRATION_CHECKS, **_by(chosen))
    ]


def chosen_rule(known: Sequence[tuple[str, float | None]]) -> tuple[str, float | None] | None:
    """The rule whose rates are quoted, of those that there are; None where there is none."""
    return next((rule for rule in CHOSEN_RULES if rule in known), next(iter(known), None))


def _shelf(connection: Connection, chosen: Chosen) -> Shelf | None:
    """The documents by the detector that answers; by every one where none was named."""
    is_named = chosen.detector is not None
    rules = [(row["rule"], row["alpha"]) for row in rows(connection, _RULES, **_by(chosen))] if is_named else []
    rule = chosen_rule(rules)
    tests = rows(connection, _GROUPS, **_by(chosen)) if is_named else rows(connection, _GROUPS_OF_ALL, **chosen.where)
    rates = rows(connection, _RATES, **_by(chosen), rule=rule[0], alpha=rule[1]) if rule else []
    if not tests and not rates:
        return None
    tested = {row["group"]: row for row in tests}
    rated = {row["name"]: row for row in rates if row["unit"] == "group"}
    titles = {row["name"]: row["title"] for row in rows(connection, _TITLES, **_by(chosen))} if is_named else {}
    documents = sorted(
        (
            _document(name, titles.get(name), tested.get(name), rated.get(name), is_named=is_named)
            for name in dict.fromkeys([*tested, *rated])
        ),
        key=lambda one: (
            1.0 if one.p_value is None else one.p_value,
            -(one.flagged.value or 0.0) if one.flagged else 0.0,
            -(one.statistic or 0.0),
            one.name,
        ),
    )
    first = tests[0] if tests else None
    directions = {row["direction"] for row in tests}
    whole = [row for row in rates if row["unit"] != "group"]
    return Shelf(
        detector=chosen.detector,
        parameters=chosen.parameters,
        direction=directions.pop() if len(directions) == 1 else None,
        rule=rule[0] if rule else None,
        alpha=rule[1] if rule else None,
        n_calibration_groups=min(row["n_calibration_groups"] for row in tests) if tests else None,
        n_calibration_groups_in_all=rows(connection, _ALL_CALIBRATION_GROUPS, **_by(chosen))[0]["groups"],
        n_tests=first["n_tests"] if first else None,
        n_ledger=first["n_ledger"] if first else None,
        method=first["method"] if first else None,
        assumption=whole[0]["assumption"] if whole else None,
        document_assumption=next((row["assumption"] for row in rates if row["unit"] == "group"), None),
        documents=documents[:MAX_DOCUMENTS],
        more=max(0, len(documents) - MAX_DOCUMENTS),
        rates=[_rate(row) for row in whole[:MAX_RATES]],
        more_rates=max(0, len(whole) - MAX_RATES),
    )


def _document(name: str, title: str | None, test: Row | None, rate: Row | None, *, is_named: bool) -> DocumentResult:
    return DocumentResult(
        name=cut(name, 300),
        title=None if title is None else cut(title, 300),
        detector=test["detector"] if test and not is_named else None,
        stands_out=bool(test and test["q_bh" if is_named else "q_ledger"] <= Q_LEVEL and test["direction"] != OPPOSITE),
        collection=test["collection"] if test else None,
        label=test["label"] if test else None,
        n_texts=test["n_texts"] if test else rate["n_texts"] if rate else 0,
        statistic=test["statistic"] if test else None,
        p_value=test["p_value"] if test else None,
        q_bh=test["q_bh"] if test else None,
        q_by=test["q_by"] if test else None,
        q_ledger=test["q_ledger"] if test else None,
        n_flagged=rate["n_flagged"] if rate else None,
        flagged=estimate(rate, "flagged") if rate else None,
        corrected=estimate(rate, "corrected") if rate else None,
        refused=_refused(rate) if rate else None,
    )


def _rate(row: Row) -> Rate:
    names = ("unit", "name", "n_texts", "n_groups", "n_flagged", "assumption")
    return Rate(
        **{name: row[name] for name in names},
        flagged=estimate(row, "flagged"),
        fpr=estimate(row, "fpr"),
        tpr=estimate(row, "tpr"),
        corrected=estimate(row, "corrected"),
        refused=_refused(row),
    )


def _group_scores(connection: Connection, chosen: Chosen) -> list[GroupScore]:
    return [
        GroupScore(
            name=cut(row["group"], 300),
            place=row["rank_in_benchmark"],
            n_texts=row["texts"],
            mean=row["mean_score"],
            median=row["median_score"],
            lowest=row["lowest_score"],
            highest=row["highest_score"],
        )
        for row in rows(connection, _GROUP_SCORES, **_by(chosen))
        if all(row[name] is not None for name in ("mean_score", "median_score", "lowest_score", "highest_score"))
    ]


def _known(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in ("label", "published", "group", "collection", "language")}


def _highlights(connection: Connection, chosen: Chosen) -> list[tuple[str, str, Highlight]]:
    return [
        (
            row["detector"],
            row["parameters"],
            Highlight(
                place=row["place"],
                example_id=row["example_id"],
                score=row["score"],
                n_tokens=row["n_tokens"],
                tokens=[
                    Token(text=piece, score=_short(value), counted=counted)
                    for piece, value, counted in zip(row["pieces"], row["token_scores"], row["counted"], strict=True)
                ],
                **_known(row),
            ),
        )
        for row in rows(connection, _HIGHLIGHTS, **chosen.where)
        if row["score"] is not None and any(row["pieces"])
    ]


def _short(value: float | None) -> float | None:
    known = finite(value)
    return None if known is None else float(f"{known:.4g}")


def _excerpts(connection: Connection, chosen: Chosen) -> list[Excerpt]:
    return [
        Excerpt(example_id=row["example_id"], score=row["score"], text=row["excerpt"], **_known(row))
        for row in rows(connection, _EXCERPTS, detector=chosen.detector, parameters=chosen.parameters)
        if row["score"] is not None and row["excerpt"]
    ]


def _ledger(connection: Connection, chosen: Chosen) -> Ledger | None:
    found = rows(connection, _LEDGER, **chosen.where)
    return Ledger(**{name: found[0][name] for name in Ledger.model_fields}) if found else None
