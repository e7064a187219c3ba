"""Extraction: what models give word for word of whole documents, partitioned by benchmark and model.

What belongs here: wiring. What does not: the stage (audit_pipeline/operate/stages), the search
(audit_pipeline/extraction).
"""

from functools import partial

import dagster as dg
from pydantic import Field

from audit_pipeline.benchmarks.settings import ExtractionSettings
from audit_pipeline.catalogue.contracts import DOCUMENT_MEMORISATION, Pair
from audit_pipeline.catalogue.ledger import LineageStep
from audit_pipeline.extraction.defaults import COARSE_TO_FINE, PREFIX, SUFFIX
from audit_pipeline.operate.dagster.jobs import FINDINGS
from audit_pipeline.operate.dagster.metadata import metadata_of, schema_metadata
from audit_pipeline.operate.dagster.pairs import Metadata, PairResults, every_pair_ran_spec, for_each_pair, pair_results
from audit_pipeline.operate.dagster.partitions import GRID_NOTE, pair_partitions
from audit_pipeline.operate.dagster.resources import AuditData, Models, ProgressReporter
from audit_pipeline.operate.stages.extraction import (
    EXTRACTION_VERSION,
    build_search_version,
    extract_pair,
    search_options_from_settings,
    settings_of,
    summarise_extraction,
)


class ExtractionConfig(dg.Config):
    """Which documents are searched, and how."""

    every_pair: bool = Field(
        default=False,
        description="search the documents of every pair; else only where the benchmark says extraction: true",
    )
    prefix: int | None = Field(
        default=None, description=f"tokens that the model is given; null: as the benchmark says, else {PREFIX}"
    )
    suffix: int | None = Field(
        default=None, description=f"tokens that it has to give; null: as the benchmark says, else {SUFFIX}"
    )
    stride: str | None = Field(
        default=None,
        description="where windows begin: coarse-to-fine | tiled | chars:N; null: as the benchmark says, else "
        f"{COARSE_TO_FINE}",
    )
    grid: bool = Field(
        default=False, description="ask for suffixes at every setting of a grid; else only where the benchmark says so"
    )


@dg.asset(
    group_name=FINDINGS,
    description="The passages of a benchmark's documents that the model gives word for word, and how likely it is "
    "to do so, beside documents that it cannot have read. Every audit looks for them where the "
    "benchmark says extraction: true; else the job extract does." + GRID_NOTE,
    kinds={"torch", "transformers", "parquet"},
    code_version=EXTRACTION_VERSION,
    partitions_def=pair_partitions,
    backfill_policy=dg.BackfillPolicy.single_run(),
    # Behind the findings: what fails here leaves them as they are, and the model is still in memory.
    deps=["benchmark", "evaluations"],
    pool="gpu",
    metadata=schema_metadata(DOCUMENT_MEMORISATION),
    check_specs=[every_pair_ran_spec("extraction")],
)
def extraction(
    context: dg.AssetExecutionContext,
    config: ExtractionConfig,
    data: AuditData,
    models: Models,
    progress: ProgressReporter,
) -> PairResults:
    """Search the documents of every pair of the run that asks for it."""
    paths, log = data.paths, context.log
    backend_of = partial(models.backend, paths=paths, log=log)

    def run(pair: Pair) -> Metadata:
        settings = settings_of(pair.benchmark)
        if settings is None and not config.every_pair:
            return {"status": "not_requested", "reason": "the benchmark does not say extraction: true"}
        asked = search_options_from_settings(
            settings or ExtractionSettings(), config.prefix, config.suffix, config.stride, grid=config.grid
        )
        model = models.load_for_run(pair.model, paths, log)
        step = LineageStep.now(context.run.run_id, "extraction", build_search_version(asked))
        with progress.report_progress(f"documents of {pair.benchmark}, {pair.model}", log) as tell:
            return metadata_of(summarise_extraction(extract_pair(pair, model, paths, backend_of, step, asked, tell)))

    pairs = for_each_pair(context, paths, "extraction", run)
    yield from pair_results(context, pairs, is_last=True)
