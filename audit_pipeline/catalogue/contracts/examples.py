"""The labelled texts of the benchmarks, and how far their two sides differ without a model.

What belongs here: the declarations of both tables, and the values of a label and a split. What does not: drawing
examples (benchmarks/), measuring a split (separability/).
"""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from audit_pipeline.catalogue.contracts.common import BENCHMARK, CI_HIGH, CI_LOW, COLLECTION, GROUP, LANGUAGE, RUN_ID
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.sql import EXCERPT, EXCERPT_WORDS
from audit_pipeline.catalogue.table import Column, Table

Split = Literal["calibration", "evaluation"]

MEMBER = 1
NON_MEMBER = 0

EXAMPLES = Table(
    "examples",
    "the labelled texts of the benchmarks",
    key=("benchmark", "example_id"),
    per="benchmark",
    kept="rewritten",
    made_from=("documents", "control_texts"),
    holds_text=("context", "text"),
    manifest=DataPaths.benchmark_manifest,
    columns=(
        Column("example_id", pa.string(), "sha256(benchmark, document_id, text)[:16]"),
        BENCHMARK.with_changes("the benchmark, one partition of the asset"),
        Column("document_id", pa.string(), "the document that the text was taken from"),
        Column("text", pa.string(), "the audited text", file_only=True),
        Column(
            "context",
            pa.string(),
            "text that stands before it, which the model reads and no detector scores; null: none",
            null=True,
            file_only=True,
        ),
        Column(
            "excerpt",
            pa.string(),
            f"the first words of the text, {EXCERPT_WORDS} at most; null where the warehouse was built without text",
            null=True,
            sql=EXCERPT,
            quotes_text=True,
        ),
        Column(
            "text_sha256",
            pa.string(),
            "sha256 of what a model reads, context and text; joins to token_statistics.text_sha256",
            sql="sha256(coalesce(context, '') || text)",
        ),
        Column(
            "has_context",
            pa.bool_(),
            "whether text stands before it, which the model reads and no detector scores; that text stays in Parquet",
            sql="context IS NOT NULL",
        ),
        Column("label", pa.int8(), "1 member, 0 non-member, null unknown", null=True, ge=0, le=1),
        Column(
            "split",
            pa.string(),
            "calibration | evaluation; groups are never divided",
            one_of=("calibration", "evaluation"),
        ),
        Column("published", pa.date32(), "the document's date", null=True),
        Column("words", pa.int32(), "length in words (whitespace words; jieba words in Chinese)", ge=0),
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
    per="benchmark",
    kept="rewritten",
    made_from=("examples",),
    file=DataPaths.split_quality,
    columns=(
        BENCHMARK,
        Column(
            "measure",
            pa.string(),
            "what was measured: blind_auroc, worst_blind_auroc, ngram_overlap_*, near_duplicate_*, texts*, groups, "
            "uneven_collections, years_mentioned, latest_year_mentioned, length_*, language_*",
        ),
        Column(
            "part",
            pa.string(),
            "of which there are several: the control, n of the n-grams, the collection, year, unit or language; "
            "'all' where there is one only",
        ),
        Column(
            "side",
            pa.string(),
            "members | nonmembers | unlabelled | both | between (pairs of one text each); of a benchmark without known "
            "members in its evaluation split members means audited texts, and nonmembers those held out",
        ),
        Column("value", pa.float64(), "the measure; null where it was not read", null=True),
        CI_LOW,
        CI_HIGH,
        Column("n", pa.int64(), "texts that the value is of", ge=0),
        Column("method", pa.string(), "how the value was computed, or why it is null"),
        Column(
            "verdict",
            pa.string(),
            "of a blind control: the split verdict that its interval alone would give; null for other measures",
            null=True,
        ),
        Column(
            "split_verdict",
            pa.string(),
            "by the blind control of words, of all texts that are evaluated; the evaluations take it from here",
        ),
        RUN_ID,
    ),
)

BLIND_SCORES = Table(
    "blind_scores",
    "the score that the blind control of words gave each text that is evaluated",
    key=("benchmark", "example_id"),
    per="benchmark",
    kept="rewritten",
    in_warehouse=False,
    made_from=("examples",),
    columns=(
        BENCHMARK,
        Column("example_id", pa.string(), "the text, of those that are evaluated"),
        Column("score", pa.float64(), "out-of-fold log odds of being a member, or an audited text, by its words alone"),
        Column("method", pa.string(), "how the score was computed"),
        RUN_ID,
    ),
)


def build_model_inputs(examples: pa.Table) -> list[str]:
    """What a model reads of each example (schema EXAMPLES): its text, behind its context where it has one."""
    return EXAMPLES.texts(examples)
