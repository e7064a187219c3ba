"""The pipeline: one module per asset, in the order in which an audit makes them.

    documents ──> benchmark ──> split_quality ──────────────────────┐
        │             ├──> token_statistics ──> scores ──> evaluations ──> warehouse ──> contamination_report
        │             │     token_frequencies ────┘            └──> extraction, twins
        │             └──> corpus_overlap, chat_answers
        └──> controls (a benchmark and its models), token_frequencies

Each module holds the function that makes one partition. Its decorator declares what a Dagster user expects of an
asset: partitions, deps, group, kinds, checks, code version. The features that are optional (controls, extraction,
corpora, chat, twins) have their assets here too, so that the whole graph is in one folder; their algorithms are in
``audit_pipeline/extras``. The modules do not import Dagster (audit_pipeline/pipeline/stage.py has the reason);
``audit_pipeline/pipeline/dagster`` builds the Dagster definitions of the declarations.
"""

from assets import (
    benchmark,
    benchmark_entries,
    chat_answers,
    contamination_report,
    controls,
    corpus_overlap,
    documents,
    evaluations,
    extraction,
    model_files,
    scores,
    source_settings,
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
    contamination_report.contamination_report,
)
"""Every asset, each after those that it is made of."""

OBSERVED_INPUTS: tuple[ObservedInput, ...] = (
    source_settings.source_settings,
    benchmark_entries.benchmark_entries,
    model_files.model_files,
)
"""The inputs that people change outside Dagster and that Dagster observes."""
