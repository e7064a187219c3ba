"""Token statistics: the one asset that runs a model, partitioned by benchmark and model.

What belongs here: wiring. What does not: the forward pass and its cache (audit_pipeline/token_statistics).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import dagster as dg
from pydantic import Field, create_model

from audit_pipeline.catalogue.contracts import KINDS, OPTIONAL_KINDS, TOKEN_STATISTICS, Kind, Pair
from audit_pipeline.catalogue.ledger import LineageStep
from audit_pipeline.operate.dagster.jobs import MODEL_RUNS
from audit_pipeline.operate.dagster.metadata import row_count_metadata, schema_metadata
from audit_pipeline.operate.dagster.pairs import Metadata, PairResults, every_pair_ran_spec, for_each_pair, pair_results
from audit_pipeline.operate.dagster.partitions import GRID_NOTE, group_by_model, pair_partitions
from audit_pipeline.operate.dagster.resources import AuditData, Models, ProgressReporter
from audit_pipeline.operate.stages.scores import OtherModels, run_tokens
from audit_pipeline.token_statistics.run import DEFAULT_LOGITS_BUDGET

CODE_VERSION = "1"


def _build_kinds_config() -> type[dg.Config]:
    """A switch for each kind that is cached on request, from its declaration."""
    fields: dict[str, Any] = {
        kind: (bool, Field(default=False, description=f"also {KINDS[kind].on_request}")) for kind in OPTIONAL_KINDS
    }
    return create_model("KindsOnRequest", __base__=dg.Config, **fields)


class PassConfig(_build_kinds_config()):  # type: ignore[misc]
    """What is cached of a pass besides the statistics of every token."""

    logits_budget_gb: float = Field(
        default=DEFAULT_LOGITS_BUDGET / 1e9, description="the most that the kind 'logits' may add in one partition"
    )

    @property
    def logits_budget(self) -> int:
        """The budget in bytes."""
        return int(self.logits_budget_gb * 1e9)

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of statistics to bring up to date."""
        return ["base", *(kind for kind in OPTIONAL_KINDS if getattr(self, kind))]


@dg.asset(
    group_name=MODEL_RUNS,
    description="What the model makes of every text: it reads each text once, and for every token is kept how "
    "likely it was, and what was likelier. A text that was read for one benchmark is never read "
    "again; a run that is stopped goes on where it was." + GRID_NOTE,
    kinds={"torch", "transformers", "parquet"},
    code_version=CODE_VERSION,
    partitions_def=pair_partitions,
    backfill_policy=dg.BackfillPolicy.single_run(),
    deps=["benchmark"],
    pool="gpu",
    metadata=schema_metadata(TOKEN_STATISTICS),
    check_specs=[
        dg.AssetCheckSpec(
            "cache_intact",
            asset="token_statistics",
            description="No part file of the cache was damaged; damaged ones are set aside and their texts run again.",
        ),
        every_pair_ran_spec("token_statistics"),
    ],
)
def token_statistics(
    context: dg.AssetExecutionContext, config: PassConfig, data: AuditData, models: Models, progress: ProgressReporter
) -> PairResults:
    """Bring the cache up to the texts of every pair in the run, each model loaded at most once."""
    paths, log, set_aside = data.paths, context.log, list[str]()
    backend_of = partial(models.backend, paths=paths, log=log)
    other_models = OtherModels(group_by_model(context.partition_keys), paths, backend_of, log.info)

    def run(pair: Pair) -> Metadata:
        model = models.load_for_run(pair.model, paths, log)
        with progress.report_progress(f"other models that detectors of {pair.model} need", log) as tell:
            other_models.run_for(pair.model, model, tell)
        step = LineageStep.now(context.run.run_id, "token_statistics", CODE_VERSION)
        backend, budget = partial(backend_of, model), config.logits_budget
        with progress.report_progress(f"{pair.model} on {pair.benchmark}", log) as tell:
            summary = run_tokens(
                pair, model, paths, backend, step, kinds=config.kinds, logits_budget=budget, on_progress=tell
            )
        set_aside.extend(summary.unreadable_parts)
        log.info(f"{pair.partition}: {summary.in_words}")
        counts = row_count_metadata(summary.own.texts)
        return {**counts, **summary.numbers, "model_fingerprint": model.identity.model_fingerprint}

    pairs = for_each_pair(context, paths, "token_statistics", run)
    yield from pair_results(context, pairs, unpartitioned_checks=[_check_cache_intact(set_aside)])


def _check_cache_intact(damaged_parts: Sequence[str]) -> dg.AssetCheckResult:
    first = (
        f"{len(damaged_parts)} set aside and their texts run again, the first {damaged_parts[0]}"
        if damaged_parts
        else None
    )
    return dg.AssetCheckResult(
        check_name="cache_intact",
        passed=not damaged_parts,
        severity=dg.AssetCheckSeverity.WARN,
        description=first,
        metadata={"parts set aside": len(damaged_parts), "set aside": list(damaged_parts)},
    )
