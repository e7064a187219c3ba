"""Scores and evaluations, partitioned by benchmark and model: computed from the cache, no model is loaded.

What belongs here: wiring. What does not: the stages, and what is shown of them (audit_pipeline/operate/stages).
"""

from collections.abc import Mapping

import dagster as dg

from audit_pipeline.catalogue.contracts import EVALUATIONS, SCORES, Pair
from audit_pipeline.catalogue.ledger import LineageStep
from audit_pipeline.operate.dagster.jobs import FINDINGS, QUARTERLY
from audit_pipeline.operate.dagster.metadata import metadata_of, schema_metadata
from audit_pipeline.operate.dagster.pairs import (
    Metadata,
    PairCheck,
    PairResults,
    every_pair_ran_spec,
    for_each_pair,
    pair_check_spec,
    pair_results,
)
from audit_pipeline.operate.dagster.partitions import GRID_NOTE, pair_partitions
from audit_pipeline.operate.dagster.resources import AuditData, Models
from audit_pipeline.operate.stages.evaluations import EVALUATIONS_VERSION, evaluate_pair
from audit_pipeline.operate.stages.scores import SCORES_VERSION, score_pair


@dg.asset(
    group_name=FINDINGS,
    description="The score of every text by every detector, at every setting. The higher, the likelier the model "
    "has read the text. No model is run: scores are computed from the token statistics. Earlier "
    "scores are kept." + GRID_NOTE,
    kinds={"numpy", "parquet"},
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
        pair_check_spec(
            "no_score_failed",
            "scores",
            "No detector failed on a text; a text that a detector does not apply to is no failure.",
        ),
        every_pair_ran_spec("scores"),
    ],
)
def scores(context: dg.AssetExecutionContext, data: AuditData, models: Models) -> PairResults:
    """Score every pair of the run."""
    from audit_pipeline.operate.stages.pair_ui_summaries import summarise_scores  # noqa: PLC0415 - it imports matplotlib

    failed: dict[str, int] = {}

    def run(pair: Pair) -> Metadata:
        step = LineageStep.now(context.run.run_id, "scores", SCORES_VERSION)
        report = score_pair(pair, models.tokenized(pair.model, data.paths), data.paths, step)
        failed[pair.partition] = report.by_status.get("failed", 0)
        return metadata_of(summarise_scores(report))

    pairs = for_each_pair(context, data.paths, "scores", run)
    yield from pair_results(context, pairs, {"no_score_failed": _build_zero_check(failed, "scores failed")})


def _build_zero_check(counts: Mapping[str, int], label: str) -> PairCheck:
    """The check that a count is 0, by partition; a pair that was left out has none."""
    return lambda partition: dg.AssetCheckResult(
        passed=not counts.get(partition), metadata={label: counts[partition]} if partition in counts else {}
    )


@dg.asset(
    group_name=FINDINGS,
    description="What the scores allow to say of one model on one benchmark: the answer, how sure it is, and what "
    "would change it; behind it the numbers with 95% intervals, the control that never sees the "
    "model, thresholds, and p-values of documents. Earlier findings are kept." + GRID_NOTE,
    kinds={"scikitlearn", "parquet"},
    code_version=EVALUATIONS_VERSION,
    partitions_def=pair_partitions,
    backfill_policy=dg.BackfillPolicy.single_run(),
    deps=["benchmark", "split_quality", "scores"],
    freshness_policy=QUARTERLY,
    metadata=schema_metadata(EVALUATIONS),
    check_specs=[
        pair_check_spec(
            "metrics_in_range",
            "evaluations",
            "Every metric and every end of an interval lies between 0 and 1 (a margin: -1 and 1).",
            blocking=True,
        ),
        every_pair_ran_spec("evaluations"),
    ],
)
def evaluations(context: dg.AssetExecutionContext, data: AuditData, models: Models) -> PairResults:
    """Evaluate the latest scores of every pair of the run."""
    from audit_pipeline.operate.stages.pair_ui_summaries import summarise_findings  # noqa: PLC0415 - it imports matplotlib

    wrong: dict[str, int] = {}

    def run(pair: Pair) -> Metadata:
        step = LineageStep.now(context.run.run_id, "evaluations", EVALUATIONS_VERSION)
        report = evaluate_pair(pair, models.tokenized(pair.model, data.paths), data.paths, step)
        wrong[pair.partition] = report.out_of_range
        return metadata_of(summarise_findings(report, data.paths))

    pairs = for_each_pair(context, data.paths, "evaluations", run)
    yield from pair_results(
        context, pairs, {"metrics_in_range": _build_zero_check(wrong, "out of range")}, is_last=True
    )
