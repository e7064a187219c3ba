"""Scores and evaluations, partitioned by benchmark and model: computed from the cache, no model is loaded.

What belongs here: wiring and plots as metadata. What does not: detectors (audit_pipeline/detectors) and statistics
(audit_pipeline/evaluation).
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg
import pyarrow as pa

from assets import OWNERS
from audit_pipeline.catalogue.contracts import EVALUATIONS, SCORES, Pair
from audit_pipeline.catalogue.lineage import Step
from audit_pipeline.evidence.headline import headline_detector
from audit_pipeline.operate.dagster.automation import QUARTERLY
from audit_pipeline.operate.dagster.metadata import markdown_table, rows, schema_metadata
from audit_pipeline.operate.dagster.pairs import Metadata, every_pair_ran_spec, fail_for, for_each_pair
from audit_pipeline.operate.dagster.partitions import pair_partitions
from audit_pipeline.operate.dagster.resources import AuditData, Models
from audit_pipeline.operate.stages.evaluations import EVALUATIONS_VERSION, EvaluationReport, evaluate_pair
from audit_pipeline.operate.stages.scores import SCORES_VERSION, ScoreReport, score_pair
from audit_pipeline.report.pair_plots import (
    forest_markdown,
    histograms_markdown,
    rates_markdown,
    roc_log_markdown,
    roc_markdown,
)

_TOLD = 0.05
_SHOWN = 10


@dg.asset(
    group_name="scores",
    description="Every detector at every setting of its grid, as pure functions of the cached token statistics; "
    "higher means more likely a member. Append-only: one file per run.",
    kinds={"numpy", "parquet"},
    owners=OWNERS,
    code_version=SCORES_VERSION,
    partitions_def=pair_partitions,
    backfill_policy=dg.BackfillPolicy.single_run(),
    deps=[
        "benchmark",
        "token_statistics",
        # One table serves every benchmark; its corpus is the model's.
        dg.AssetDep("token_frequencies", partition_mapping=dg.AllPartitionMapping()),
    ],
    metadata=schema_metadata(SCORES),
    check_specs=[
        dg.AssetCheckSpec(
            "no_score_failed",
            asset="scores",
            description="No detector failed on a text; a text that a detector does not apply to is no failure.",
        ),
        every_pair_ran_spec("scores"),
    ],
)
def scores(context: dg.AssetExecutionContext, data: AuditData, models: Models) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Score every pair of the run."""
    failed: dict[str, int] = {}

    def run(pair: Pair) -> Metadata:
        step = Step.now(context.run.run_id, "scores", SCORES_VERSION)
        report = score_pair(pair, models.tokenized(pair.model, data.paths), data.paths, step)
        failed[pair.partition] = report.by_status.get("failed", 0)
        return _score_metadata(report)

    pairs = for_each_pair(context, data.paths, "scores", run)
    return dg.MaterializeResult(
        check_results=[
            dg.AssetCheckResult(
                check_name="no_score_failed", passed=not any(failed.values()), metadata={"failed": failed}
            ),
            pairs.check,
        ]
    )


def _score_metadata(report: ScoreReport) -> dict[str, Any]:
    plot = histograms_markdown(report.columns, report.pair.partition)
    return {
        **rows(report.rows),
        "status": "ok" if report.by_status.get("ok") else "not_applicable",
        **{f"scores {status}": count for status, count in sorted(report.by_status.items())},
        **(
            {"reasons": markdown_table(("reason", "scores"), list(report.reasons.items())[:20])}
            if report.reasons
            else {}
        ),
        **({"score histograms": dg.MetadataValue.md(plot)} if plot else {}),
        "data_version": report.data_version,
    }


@dg.asset(
    group_name="scores",
    description="What the scores allow to say: AUROC and TPR at low FPR of every detector with 95% intervals by group, "
    "the blind control, claim level; paired comparisons; thresholds of known error; p- and q-values per document; "
    "contamination rates; tests of the corpus. Append-only.",
    kinds={"scikitlearn", "parquet"},
    owners=OWNERS,
    code_version=EVALUATIONS_VERSION,
    partitions_def=pair_partitions,
    backfill_policy=dg.BackfillPolicy.single_run(),
    deps=["benchmark", "scores"],
    freshness_policy=QUARTERLY,
    metadata=schema_metadata(EVALUATIONS),
    check_specs=[
        dg.AssetCheckSpec(
            "metrics_in_range",
            asset="evaluations",
            description="Every metric and every end of an interval lies between 0 and 1 (a margin: -1 and 1).",
            blocking=True,
        ),
        every_pair_ran_spec("evaluations"),
    ],
)
def evaluations(context: dg.AssetExecutionContext, data: AuditData, models: Models) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Evaluate the latest scores of every pair of the run."""
    wrong: dict[str, int] = {}

    def run(pair: Pair) -> Metadata:
        step = Step.now(context.run.run_id, "evaluations", EVALUATIONS_VERSION)
        report = evaluate_pair(pair, models.tokenized(pair.model, data.paths), data.paths, step)
        wrong[pair.partition] = report.out_of_range
        return _evaluation_metadata(report)

    pairs = for_each_pair(context, data.paths, "evaluations", run)
    in_range = dg.AssetCheckResult(
        check_name="metrics_in_range", passed=not any(wrong.values()), metadata={"wrong": wrong}
    )
    fail_for(context, pairs, [in_range, pairs.check])
    return dg.MaterializeResult(check_results=[in_range, pairs.check])


def _evaluation_metadata(report: EvaluationReport) -> dict[str, Any]:
    what, found = report.pair.partition, report.evaluation
    pictures = {
        "AUROC with intervals": forest_markdown(found.table, what),
        "ROC curves": roc_markdown(found.columns, found.table, what),
        "ROC at low FPR": roc_log_markdown(found.columns, found.table, what),
        "rates by group": _rates_picture(report.findings.tables["contamination_rates"], what),
    }
    aurocs = {
        f"AUROC {row['detector']}": round(row["value"], 4)
        for row in found.table.to_pylist()
        if row["metric"] == "auroc" and row["is_default"] and row["value"] is not None
    }
    tables = report.findings.tables
    return {
        **rows(found.table.num_rows),
        "status": "ok" if aurocs else "not_applicable",
        **({"reason": found.reason} if found.reason else {}),
        **aurocs,
        **_decision_metadata(tables),
        **{f"rows of {name}": table.num_rows for name, table in tables.items() if name != "evaluations"},
        **{name: dg.MetadataValue.md(picture) for name, picture in pictures.items() if picture},
        "claim level": found.claim_level,
        "split verdict": found.split_verdict,
        "data_version": report.data_version,
    }


def _rates_picture(rates: pa.Table, what: str) -> str | None:
    detector = headline_detector(set(rates["detector"].to_pylist()))
    return None if detector is None else rates_markdown(rates, detector, what)


def _decision_metadata(tables: Mapping[str, pa.Table]) -> dict[str, Any]:
    """Thresholds, documents and rates by the detector that answers; nothing where it decided nothing."""
    detector = headline_detector(set(tables["decisions"]["detector"].to_pylist()))
    decisions, tests, rates = (
        [row for row in tables[name].to_pylist() if row["detector"] == detector]
        for name in ("decisions", "group_tests", "contamination_rates")
    )
    found: dict[str, Any] = {}
    if decisions:
        found["thresholds"] = markdown_table(
            ("rule", "alpha", "threshold", "FPR achieved", "TPR", "why not"),
            [
                (
                    row["rule"],
                    *(_short(row[name]) for name in ("alpha", "threshold", "fpr", "tpr")),
                    row["reason"] or "",
                )
                for row in decisions
            ],
        )
    if any(row["direction"] == "opposite" for row in tests):
        found["direction"] = "opposite: known members score lower than non-members, so no group is said to stand out"
    elif tests:
        found["groups with q <= 0.05"] = sum(row["q_bh"] <= _TOLD for row in tests)
    if tests:
        first = sorted(tests, key=lambda row: (row["p_value"], row["group"]))[:_SHOWN]
        found["most suspicious groups"] = markdown_table(
            ("group", "texts", "p", "q (Benjamini-Hochberg)"),
            [(row["group"], row["n_texts"], _short(row["p_value"]), _short(row["q_bh"])) for row in first],
        )
    whole = [row for row in rates if row["unit"] == "benchmark"]
    if whole:
        found["contamination rate"] = markdown_table(
            ("rule", "flagged", "corrected", "95% interval", "why not"),
            [
                (
                    row["rule"],
                    _short(row["flagged"]),
                    _short(row["corrected"]),
                    f"{_short(row['corrected_low'])} to {_short(row['corrected_high'])}",
                    row["reason"] or "",
                )
                for row in whole
            ],
        )
    return found


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"
