"""Token statistics: the one asset that runs a model, partitioned by benchmark and model.

What belongs here: wiring. What does not: the forward pass and its cache (audit_pipeline/token_statistics).
"""

from dataclasses import asdict
from functools import partial

import dagster as dg
from pydantic import Field

from assets import OWNERS
from audit_pipeline.catalogue.contracts import TOKEN_STATISTICS, Pair
from audit_pipeline.catalogue.lineage import Step
from audit_pipeline.operate.dagster.metadata import rows, schema_metadata
from audit_pipeline.operate.dagster.pairs import Metadata, every_pair_ran_spec, for_each_pair
from audit_pipeline.operate.dagster.partitions import by_model, pair_partitions
from audit_pipeline.operate.dagster.resources import AuditData, Models, ProgressTeller
from audit_pipeline.operate.stages.token_statistics import run_reference, run_tokens
from audit_pipeline.token_statistics.run import DEFAULT_LOGITS_BUDGET, Kind

CODE_VERSION = "1"


class TokenStatisticsConfig(dg.Config):
    """What is cached of a pass besides the statistics of every token."""

    topk: bool = Field(default=False, description="also the 20 best tokens of every position")
    logits: bool = Field(default=False, description="also the logits of every position, whole vocabulary, float16")
    logits_budget_gb: float = Field(
        default=DEFAULT_LOGITS_BUDGET / 1e9, description="the most that the kind 'logits' may add in one partition"
    )

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of statistics to bring up to date."""
        wanted: dict[Kind, bool] = {"base": True, "topk": self.topk, "logits": self.logits}
        return [kind for kind, yes in wanted.items() if yes]


@dg.asset(
    group_name="token_statistics",
    description="One forward pass a text, cached by content: log-probability, mean, deviation, mode and rank of every "
    "scored token. A text cached for one benchmark serves all; a killed run resumes.",
    kinds={"torch", "transformers", "parquet"},
    owners=OWNERS,
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
    context: dg.AssetExecutionContext,
    config: TokenStatisticsConfig,
    data: AuditData,
    models: Models,
    progress: ProgressTeller,
) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Bring the cache up to the texts of every pair in the run, each model loaded at most once."""
    paths = data.paths
    unreadable: list[str] = []
    swept: set[str] = set()

    def run(pair: Pair) -> Metadata:
        model = models.tokenized(pair.model, paths)
        if model.entry.reference_model is not None and pair.model not in swept:
            # For all pairs of the model before the first: the two models would take turns otherwise.
            swept.add(pair.model)
            pairs = by_model(context.partition_keys)[pair.model]
            problem = run_reference(pairs, model, paths, partial(models.forward, paths=paths, log=context.log))
            if problem is not None:
                context.log.warning(f"{pair.model} goes without its reference model: {problem}")
        step = Step.now(context.run.run_id, "token_statistics", CODE_VERSION)
        with progress.telling(f"{pair.model} on {pair.benchmark}", context.log) as tell:
            summary = run_tokens(
                pair,
                model,
                paths,
                partial(models.forward, model, paths, context.log),
                step,
                kinds=config.kinds,
                logits_budget=int(config.logits_budget_gb * 1e9),
                on_progress=tell,
            )
        own = summary.own
        unreadable.extend(summary.unreadable_parts)
        context.log.info(
            f"{pair.partition}: {own.texts_from_cache} texts from the cache, {own.texts_computed} computed"
        )
        numbers = {key: value for key, value in asdict(own).items() if key != "unreadable_parts"}
        extra = {f"tokens_{what}": of.tokens_computed for what, of in summary.extra.items()}
        return {
            **rows(own.texts),
            **numbers,
            **extra,
            "status": "ok" if own.texts > own.texts_without_tokens else "not_applicable",
            "model_fingerprint": model.identity.model_fingerprint,
        }

    pairs = for_each_pair(context, paths, "token_statistics", run)
    return dg.MaterializeResult(
        check_results=[
            dg.AssetCheckResult(
                check_name="cache_intact",
                passed=not unreadable,
                severity=dg.AssetCheckSeverity.WARN,
                description=f"{len(unreadable)} set aside and their texts run again, the first {unreadable[0]}"
                if unreadable
                else None,
                metadata={"set aside": unreadable},
            ),
            pairs.check,
        ]
    )
