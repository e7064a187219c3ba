"""Overlap: what open corpora hold of benchmarks' texts, word for word, partitioned by benchmark and corpus.

What belongs here: wiring. What does not: the stage (audit_pipeline/operate/stages), the search
(audit_pipeline/overlap).
"""

from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from assets.references import CORPUS, list_corpora
from audit_pipeline.catalogue.contracts import CORPUS_OVERLAP
from audit_pipeline.operate.dagster.jobs import BENCHMARKS
from audit_pipeline.operate.dagster.metadata import metadata_of, schema_metadata
from audit_pipeline.operate.dagster.partitions import BENCHMARK, PairPartitions, benchmark_partitions
from audit_pipeline.operate.dagster.resources import AuditData
from audit_pipeline.operate.progress import progress_logger

if TYPE_CHECKING:
    from audit_pipeline.operate.stages.overlap import OverlapReport

overlap_partitions = PairPartitions(
    {BENCHMARK: benchmark_partitions, CORPUS: dg.StaticPartitionsDefinition(list_corpora())}
)


class OverlapConfig(dg.Config):
    """What is looked for, and how much of the corpus is read."""

    rule: str = Field(
        default="gpt-3", description="gpt-3 | palm | llama-2 | tulu-3: when a text counts as contaminated"
    )
    n: int | None = Field(default=None, description="words on end that are looked for; null: as the rule says")
    shards: str | None = Field(default=None, description="only shards whose names match this pattern; null: all")
    processes: int = Field(default=1, ge=1, description="how many processes read shards")


def _spec(name: str, description: str) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(name, asset="corpus_overlap", description=description, partitions_def=overlap_partitions)


@dg.asset(
    group_name=BENCHMARKS,
    description="The passages of a benchmark's texts that stand word for word in an open corpus "
    "(config/references.yaml), and where. Every audit looks for them where the benchmark's entry names corpora; a "
    "search that is stopped goes on at the next shard.",
    kinds={"numpy", "parquet"},
    code_version="1",
    partitions_def=overlap_partitions,
    deps=[
        dg.AssetDep(
            "benchmark",
            partition_mapping=dg.MultiToSingleDimensionPartitionMapping(partition_dimension_name=BENCHMARK),
        )
    ],
    pool="references",
    metadata=schema_metadata(CORPUS_OVERLAP),
    check_specs=[
        _spec("whole_corpus_read", "Every shard was read to its end, every row used: what was not found is not there."),
        _spec("no_text_contaminated", "No text of the benchmark counts as contaminated by the rule."),
    ],
)
def corpus_overlap(context: dg.AssetExecutionContext, config: OverlapConfig, data: AuditData) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Look for the texts of one benchmark in one corpus."""
    # Here and not above: definitions load without the search.
    from audit_pipeline.operate.stages.overlap import search_named_corpus, summarise_overlap  # noqa: PLC0415

    benchmark, _, corpus = context.partition_key.partition("|")
    tell = progress_logger(context.log)
    report = search_named_corpus(
        benchmark,
        corpus,
        data.paths,
        context.run.run_id,
        on_progress=lambda progress: tell(f"{corpus}: {progress.in_words}"),
        **config.model_dump(),
    )
    return dg.MaterializeResult(
        data_version=dg.DataVersion(report.data_version),
        metadata=metadata_of(summarise_overlap(report)),
        check_results=_build_check_results(report),
    )


def _build_check_results(report: "OverlapReport") -> list[dg.AssetCheckResult]:
    result, contaminated = report.result, report.contaminated
    return [
        dg.AssetCheckResult(
            check_name="whole_corpus_read",
            passed=result.is_complete,
            severity=dg.AssetCheckSeverity.WARN,
            metadata={"shards read": result.whole_shards, "shards": len(result.corpus.shards)},
        ),
        dg.AssetCheckResult(
            check_name="no_text_contaminated",
            passed=not contaminated,
            severity=dg.AssetCheckSeverity.WARN,
            metadata={"contaminated": contaminated, "texts": report.texts.num_rows},
        ),
    ]
