"""Asking: what models that answer in words give of documents, partitioned by benchmark and entry of chat_models.yaml.

What belongs here: wiring. What does not: the stage (audit_pipeline/operate/stages), asking (audit_pipeline/asking).
"""

import dagster as dg
from pydantic import Field

from audit_pipeline.asking.config import load_chat_models
from audit_pipeline.asking.defaults import DRAWS, PASSAGES
from audit_pipeline.asking.ladder import LADDER
from audit_pipeline.catalogue.contracts import CHAT_DOCUMENTS
from audit_pipeline.catalogue.paths import texts_are_quoted
from audit_pipeline.endpoints.budget import Limits
from audit_pipeline.errors import ConfigError
from audit_pipeline.operate.dagster.jobs import FINDINGS
from audit_pipeline.operate.dagster.metadata import metadata_of, schema_metadata
from audit_pipeline.operate.dagster.partitions import BENCHMARK, CHAT_MODEL, PairPartitions, benchmark_partitions
from audit_pipeline.operate.dagster.resources import AuditData


def list_chat_models() -> list[str]:
    """The entries of chat_models.yaml, those that are broken, too; none where it cannot be read.

    So everything else still loads. A run of the asset reads the file again, and says what is wrong with it.
    """
    try:
        return list(load_chat_models().names)
    except ConfigError:
        return []


chat_partitions = PairPartitions(
    {BENCHMARK: benchmark_partitions, CHAT_MODEL: dg.StaticPartitionsDefinition(list_chat_models())}
)


class AskingConfig(dg.Config):
    """How a model is asked, and the most that one run may take; the entry's own limits hold besides."""

    rungs: list[str] = Field(default=[*LADDER], description="how it is asked (docs/ask.md)")
    headline: str | None = Field(
        default=None,
        description="the rung whose numbers answer; null: instruction, or prefix for interface: completions",
    )
    draws: int = Field(default=DRAWS, ge=0, description="drawn answers besides the likeliest one")
    passages: int = Field(default=PASSAGES, ge=1, description="the most passages of a document")
    max_requests: int | None = Field(default=None, ge=1, description="the most requests; null: as the entry says")
    max_tokens: int | None = Field(default=None, ge=1, description="the most tokens, of prompts and answers")
    max_cost: float | None = Field(default=None, gt=0, description="the most that it may cost, by the entry's prices")


@dg.asset(
    group_name=FINDINGS,
    description="What a model that answers in words (config/chat_models.yaml) gives of a benchmark's documents, beside "
    "documents that it cannot have read. It is asked when somebody starts it, and every week where the entry says so; "
    "what is answered is not asked again.",
    kinds={"parquet"},
    code_version="1",
    partitions_def=chat_partitions,
    deps=[
        dg.AssetDep(
            "benchmark",
            partition_mapping=dg.MultiToSingleDimensionPartitionMapping(partition_dimension_name=BENCHMARK),
        )
    ],
    pool="chat",
    metadata=schema_metadata(CHAT_DOCUMENTS),
    check_specs=[
        dg.AssetCheckSpec(
            "every_request_measured",
            asset="chat_answers",
            description="No request was refused, filtered or cut: nothing is unknown.",
            partitions_def=chat_partitions,
        )
    ],
)
def chat_answers(context: dg.AssetExecutionContext, config: AskingConfig, data: AuditData) -> dg.MaterializeResult:  # type: ignore[type-arg]  # as in every asset: its value is None
    """Ask one model about the documents of one benchmark."""
    # Here and not above: definitions load without the library that asks.
    from audit_pipeline.operate.stages.asking import ask_about_benchmark, summarise_asking  # noqa: PLC0415

    benchmark, _, model = context.partition_key.partition("|")
    report = ask_about_benchmark(
        benchmark,
        model,
        data.paths,
        context.run.run_id,
        limits=Limits(config.max_tokens, config.max_cost, config.max_requests),
        keeps_text=texts_are_quoted(),
        tell=context.log.info,
        rungs=config.rungs,
        headline=config.headline,
        draws=config.draws,
        passages=config.passages,
    )
    return dg.MaterializeResult(
        data_version=dg.DataVersion(report.data_version),
        metadata=metadata_of(summarise_asking(report)),
        check_results=[_check_measured(report.unmeasured)],
    )


def _check_measured(unmeasured: int) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        check_name="every_request_measured",
        passed=not unmeasured,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"requests without a measure": unmeasured},
    )
