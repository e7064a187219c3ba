"""The assets of the pipeline, one module per asset or family of assets.

    documents ──> benchmark ──> split_quality ──────────────────────┐
        │             ├──> token_statistics ──> scores ──> evaluations ──> warehouse ──> contamination_report
        │             │     token_frequencies ────┘            └──> extraction, twins
        │             └──> corpus_overlap, chat_answers
        └──> controls (a benchmark and its models), token_frequencies

Each module has the function that makes one partition. Its decorator declares the properties of the Dagster asset:
partitions, deps, group, kinds, checks, code version. A module also declares the inputs that people change outside
Dagster (source_settings, benchmark_entries, model_files), next to the asset that is made of them.

Optional features (controls, extraction, corpora, chat, twins) have their assets here, too, so that the whole graph is
in one folder. Their algorithms are in ``audit_pipeline/extras``. The modules do not import Dagster
(audit_pipeline/pipeline/stage.py gives the reason). ``audit_pipeline/pipeline/dagster`` builds the Dagster definitions.
"""

from assets import (
    benchmark,
    chat_answers,
    controls,
    corpus_overlap,
    documents,
    evaluations,
    extraction,
    scores,
    split_quality,
    token_frequencies,
    token_statistics,
    twins,
    warehouse,
)
from audit_pipeline.pipeline.stage import ObservedInput, Stage

ASSETS: tuple[Stage, ...] = (
    documents.documents,
    controls.controlled_contamination,
    benchmark.benchmark,
    split_quality.split_quality,
    token_frequencies.token_frequencies,
    token_statistics.token_statistics,
    scores.scores,
    evaluations.evaluations,
    chat_answers.chat_answers,
    controls.control_study,
    corpus_overlap.corpus_overlap,
    extraction.extraction,
    twins.twins,
    warehouse.warehouse,
    warehouse.contamination_report,
)
"""All assets. Each asset comes after the assets that it depends on."""

OBSERVED_INPUTS: tuple[ObservedInput, ...] = (
    documents.source_settings,
    benchmark.benchmark_entries,
    token_statistics.model_files,
)
"""All observed inputs: inputs that people change outside Dagster."""
