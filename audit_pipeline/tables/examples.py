"""The labelled texts of the benchmarks, and how far their two sides differ without a model."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables.common import BENCHMARK, CI_HIGH, CI_LOW, COLLECTION, GROUP, LANGUAGE, RUN_ID
from audit_pipeline.tables.sql import EXCERPT, EXCERPT_WORDS
from audit_pipeline.tables.table import Table, boolean, count, day, double, int8, int64, string

Split = Literal["calibration", "evaluation"]

MEMBER = 1
NON_MEMBER = 0

EXAMPLES = Table(
    "examples",
    "the labelled texts of the benchmarks",
    key=("benchmark", "example_id"),
    partitioned_by="benchmark",
    storage="rewritten",
    made_from=("documents", "control_texts"),
    holds_text=("context", "text"),
    manifest=DataPaths.benchmark_manifest,
    columns=(
        string("example_id", "sha256(benchmark, document_id, text)[:16]"),
        BENCHMARK.with_changes("the benchmark, one partition of the asset"),
        string("document_id", "the document that the text was taken from"),
        string("text", "the audited text", file_only=True),
        string(
            "context",
            "text in front of it, which the model reads and no detector scores; null: none",
            null=True,
            file_only=True,
        ),
        string(
            "excerpt",
            f"the first words of the text, {EXCERPT_WORDS} at most; null where the warehouse was built without text",
            null=True,
            sql=EXCERPT,
            quotes_text=True,
        ),
        string(
            "text_sha256",
            "sha256 of what a model reads, context and text; joins to token_statistics.text_sha256",
            sql="sha256(coalesce(context, '') || text)",
        ),
        boolean(
            "has_context",
            "whether text is in front of it, which the model reads and no detector scores; that text stays in Parquet",
            sql="context IS NOT NULL",
        ),
        int8("label", "1 member, 0 non-member, null unknown", null=True, ge=0, le=1),
        string("split", "calibration | evaluation; groups are never divided", one_of=("calibration", "evaluation")),
        day("published", "the document's date", null=True),
        count("words", "length in words (whitespace words; jieba words in Chinese)"),
        LANGUAGE,
        COLLECTION,
        GROUP,
        RUN_ID,
    ),
)

SPLIT_QUALITY = Table(
    "split_quality",
    "how far the two sides of a benchmark differ without any model; split_summary has one row per benchmark",
    key=("benchmark", "measure", "part", "side"),
    partitioned_by="benchmark",
    storage="rewritten",
    made_from=("examples",),
    file=DataPaths.split_quality,
    columns=(
        BENCHMARK,
        string(
            "measure",
            "what was measured: blind_auroc, worst_blind_auroc, ngram_overlap_*, near_duplicate_*, texts*, groups, "
            "uneven_collections, years_mentioned, latest_year_mentioned, length_*, language_*",
        ),
        string(
            "part",
            "of which there are several: the control, n of the n-grams, the collection, year, unit or language; "
            "'all' where there is only one",
        ),
        string(
            "side",
            "members | nonmembers | unlabelled | both | between (pairs of one text each); of a benchmark without known "
            "members in its evaluation split members means audited texts, and nonmembers those held out",
        ),
        double("value", "the measure; null where it was not read", null=True),
        CI_LOW,
        CI_HIGH,
        int64("n", "texts that the value is of", ge=0),
        string("method", "how the value was computed, or why it is null"),
        string(
            "verdict",
            "of a blind control: the split verdict that its interval alone would give; null for other measures",
            null=True,
        ),
        string(
            "split_verdict",
            "by the blind control of words, of all texts that are evaluated; the evaluations take it from here",
        ),
        RUN_ID,
    ),
)

BLIND_SCORES = Table(
    "blind_scores",
    "the score that the blind control of words gave each text that is evaluated",
    key=("benchmark", "example_id"),
    partitioned_by="benchmark",
    storage="rewritten",
    in_warehouse=False,
    made_from=("examples",),
    columns=(
        BENCHMARK,
        string("example_id", "the text, of those that are evaluated"),
        double("score", "out-of-fold log odds of being a member, or an audited text, by its words alone"),
        string("method", "how the score was computed"),
        RUN_ID,
    ),
)


def build_model_inputs(examples: pa.Table) -> list[str]:
    """What a model reads of each example (schema EXAMPLES): its text, after its context where it has one."""
    return EXAMPLES.texts(examples)
