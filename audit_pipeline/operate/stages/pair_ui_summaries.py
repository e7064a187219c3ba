"""What the UI shows of a pair's scores and findings: a few numbers, small tables, pictures.

What belongs here: choosing and rounding them. What does not: the numbers themselves (evidence/), drawing (report/), and
Dagster's own types (operate/dagster/metadata.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from audit_pipeline.evidence.evaluate_options import choose_headline_detector
from audit_pipeline.operate.stages.evaluations import EvaluationReport
from audit_pipeline.operate.stages.scores import ScoreReport
from audit_pipeline.operate.ui_summary import Body, Shown
from audit_pipeline.report.pair_answer import PairAnswer
from audit_pipeline.report.pair_plots import (
    draw_forest_markdown,
    draw_histograms_markdown,
    draw_low_fpr_roc_markdown,
    draw_rates_markdown,
    draw_roc_markdown,
)

_NOTABLE_Q = 0.05
_REASONS = 20
_GROUPS = 10


def summarise_scores(report: ScoreReport) -> Shown:
    """Of a pair's scores: how many of each status, why there are none, and how they spread."""
    plot = draw_histograms_markdown(report.columns, report.pair.partition)
    reasons = list(report.reasons.items())[:_REASONS]
    return Shown(
        report.rows,
        {
            **{f"scores {status}": count for status, count in sorted(report.by_status.items())},
            "data_version": report.data_version,
        },
        {"reasons": (("reason", "scores"), reasons)} if reasons else {},
        {"score histograms": plot} if plot else {},
    )


def summarise_findings(report: EvaluationReport) -> Shown:
    """Of a pair's findings: AUROC of every detector, what the headline detector decided, and pictures."""
    found, tables = report.evaluation, report.findings.tables
    aurocs = {
        row["detector"]: round(row["value"], 4)
        for row in found.table.to_pylist()
        if row["metric"] == "auroc" and row["is_default"] and row["value"] is not None
    }
    shown_tables, named = decision_tables(tables), report.answer.row["detector"]
    values = {f"AUROC {detector}": value for detector, value in aurocs.items()}
    if report.answer.row["sides"] == "audited against held-out":
        values = {f"AUROC {named}, audited against held-out": aurocs.pop(named)} if named in aurocs else {}
        shown_tables = {"tried beside it": (("detector", "AUROC"), list(aurocs.items())), **shown_tables}
    values = {
        **({"reason": found.reason} if found.reason else {}),
        **values,
        **summarise_decisions(tables),
        **_explain_refusals(tables),
        **{f"rows of {name}": table.num_rows for name, table in tables.items() if name != "evaluations"},
        "claim level": found.claim_level,
        "split verdict": found.split_verdict,
        "data_version": report.data_version,
    }
    answer = report.answer.row
    folded = {"how sure": answer["how_sure"], "what would change it": answer["what_would_change"]}
    return Shown(
        found.table.num_rows, values, shown_tables, _pictures(report), leads=_build_leads(report.answer), folded=folded
    )


def _build_leads(answer: PairAnswer) -> dict[str, str]:
    """The answer in the words of the report, and its picture."""
    picture = answer.picture()
    return {
        "answer": f"**{answer.row['headline']}** {answer.row['explanation']}",
        **({"picture": picture} if picture else {}),
    }


def summarise_decisions(tables: Mapping[str, pa.Table]) -> dict[str, object]:
    """How many groups stand out by the headline detector, or why none is said to; nothing where it tested none."""
    tests = _select_headline_rows(tables, "group_tests")
    if any(row["direction"] == "opposite" for row in tests):
        return {"direction": "opposite: known members score lower than non-members, so no group is said to stand out"}
    return {"groups with q <= 0.05": sum(row["q_bh"] <= _NOTABLE_Q for row in tests)} if tests else {}


def decision_tables(tables: Mapping[str, pa.Table]) -> dict[str, tuple[tuple[str, ...], Body]]:
    """Thresholds, most suspicious groups and rates by the headline detector; nothing where it decided nothing."""
    tests = sorted(_select_headline_rows(tables, "group_tests"), key=lambda row: (row["p_value"], row["group"]))[
        :_GROUPS
    ]
    rates = [row for row in _select_headline_rows(tables, "contamination_rates") if row["unit"] == "benchmark"]
    found = {
        "thresholds": (
            ("rule", "aim", "score", "FPR", "TPR"),
            [
                (row["rule"].replace("_", " "), *_format_numbers(row, "alpha"), "refused", "–", "–")
                if row["status"] == "refused"
                else (row["rule"].replace("_", " "), *_format_numbers(row, "alpha", "threshold", "fpr", "tpr"))
                for row in _select_headline_rows(tables, "decisions")
            ],
        ),
        "most suspicious groups": (
            ("group", "texts", "p", "q (Benjamini-Hochberg)"),
            [(row["group"], row["n_texts"], *_format_numbers(row, "p_value", "q_bh")) for row in tests],
        ),
        "contamination rate": (
            ("rule", "flagged", "corrected", "95% interval"),
            [
                (
                    row["rule"].replace("_", " "),
                    *_format_numbers(row, "flagged", "corrected"),
                    " to ".join(_format_numbers(row, "corrected_low", "corrected_high")),
                )
                for row in rates
            ],
        ),
    }
    return {name: (header, body) for name, (header, body) in found.items() if body}


def _explain_refusals(tables: Mapping[str, pa.Table]) -> dict[str, str]:
    """Why thresholds and rates are refused, in one line each: a reason has no room in a table's cell."""
    reasons = {
        "thresholds refused": [
            f"{row['rule']} at {row['alpha']:.3g}: {row['reason']}" if row["alpha"] is not None else str(row["reason"])
            for row in _select_headline_rows(tables, "decisions")
            if row["reason"]
        ],
        "rates refused": [
            str(row["reason"])
            for row in _select_headline_rows(tables, "contamination_rates")
            if row["unit"] == "benchmark" and row["reason"]
        ],
    }
    return {name: "; ".join(dict.fromkeys(told)) for name, told in reasons.items() if told}


def _select_headline_rows(tables: Mapping[str, pa.Table], name: str) -> list[dict[str, Any]]:
    """The rows of the headline detector: the one that the thresholds name."""
    detector = choose_headline_detector(set(tables["decisions"]["detector"].to_pylist()))
    return [row for row in tables[name].to_pylist() if row["detector"] == detector]


def _pictures(report: EvaluationReport) -> dict[str, str]:
    what, found = report.pair.partition, report.evaluation
    rates = report.findings.tables["contamination_rates"]
    detector = choose_headline_detector(set(rates["detector"].to_pylist()))
    pictures = {
        "AUROC with intervals": draw_forest_markdown(found.table, what),
        "ROC curves": draw_roc_markdown(found.columns, found.table, what),
        "ROC at low FPR": draw_low_fpr_roc_markdown(found.columns, found.table, what),
        "rates by group": None if detector is None else draw_rates_markdown(rates, detector, what),
    }
    return {name: picture for name, picture in pictures.items() if picture}


def _format_numbers(row: Mapping[str, Any], *names: str) -> list[str]:
    return ["–" if row[name] is None else f"{row[name]:z.3g}" for name in names]
