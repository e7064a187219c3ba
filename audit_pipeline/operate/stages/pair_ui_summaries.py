"""What the UI shows of a pair's scores and findings: numbers, the ROC curves, and the page of the report."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from audit_pipeline.catalogue.paths import DataPaths, model_page_path
from audit_pipeline.evidence.evaluate_options import choose_headline_detector
from audit_pipeline.operate.stages.evaluations import EvaluationReport
from audit_pipeline.operate.stages.scores import ScoreReport
from audit_pipeline.operate.ui_summary import Shown
from audit_pipeline.report.pair_plots import draw_roc_markdown
from audit_pipeline.report.vocabulary import OPPOSITE, Q_LEVEL

_REASONS = 20


def summarise_scores(report: ScoreReport) -> Shown:
    """Of a pair's scores: how many of each status, and why there are none."""
    reasons = list(report.reasons.items())[:_REASONS]
    return Shown(
        report.rows,
        {
            **{f"scores {status}": count for status, count in sorted(report.by_status.items())},
            "data_version": report.data_version,
        },
        {"reasons": (("reason", "scores"), reasons)} if reasons else {},
    )


def summarise_findings(report: EvaluationReport, paths: DataPaths) -> Shown:
    """Of a pair's findings: the answer, AUROC of every detector, what the headline detector decided, ROC curves."""
    found, tables, answer = report.evaluation, report.findings.tables, report.answer
    aurocs = {
        row["detector"]: round(row["value"], 4)
        for row in found.table.to_pylist()
        if row["metric"] == "auroc" and row["is_default"] and row["value"] is not None
    }
    of = ", audited against held-out" if answer["sides"] == "audited against held-out" else ""
    values = {
        "answer": f"{answer['headline']} {answer['explanation']}",
        **({"reason": found.reason} if found.reason else {}),
        **{f"AUROC {detector}{of}": value for detector, value in aurocs.items()},
        **summarise_decisions(tables),
        **{f"rows of {name}": table.num_rows for name, table in tables.items() if name != "evaluations"},
        "claim level": found.claim_level,
        "split verdict": found.split_verdict,
        "data_version": report.data_version,
    }
    picture = draw_roc_markdown(found.columns, found.table, report.pair.partition)
    pictures = {"ROC curves": picture} if picture else {}
    return Shown(
        found.table.num_rows, values, pictures=pictures, page=model_page_path(paths.reports, report.pair.model)
    )


def summarise_decisions(tables: Mapping[str, pa.Table]) -> dict[str, object]:
    """How many groups stand out by the detector that the thresholds name, or why none is said to."""
    detector = choose_headline_detector(set(tables["decisions"]["detector"].to_pylist()))
    tests = [row for row in tables["group_tests"].to_pylist() if row["detector"] == detector]
    if any(row["direction"] == OPPOSITE for row in tests):
        return {"direction": "opposite: known members score lower than non-members, so no group is said to stand out"}
    return {f"groups with q <= {Q_LEVEL}": sum(row["q_bh"] <= Q_LEVEL for row in tests)} if tests else {}
