"""Tables of the sources' documents, of the labelled texts of benchmarks, and of the quality of their two sides."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables.common import BENCHMARK, CI_HIGH, CI_LOW, COLLECTION, GROUP, LANGUAGE, RUN_ID, SHA256
from audit_pipeline.tables.sql import EXCERPT, EXCERPT_WORDS, WORDS_OF_TEXT
from audit_pipeline.tables.table import Table, boolean, count, day, double, int8, int64, moment, string

DOCUMENTS = Table(
    "documents",
    "the dated documents of the sources, without their text",
    key=("document_id",),
    partitioned_by="source",
    storage="rewritten",
    text_columns=("text",),
    manifest=DataPaths.source_manifest,
    columns=(
        string("document_id", "id of the document, unique over all sources: source:collection:name"),
        string("source", "the source of the document"),
        COLLECTION.with_changes("the project, series or folder within the source; splits are balanced over it"),
        string("group", "the book, patent, article or release; intervals and calibration never split a group"),
        string("title", "the document's title"),
        string("text", "the full text, UTF-8", file_only=True),
        day("published", "date of first publication; null if unknown", null=True),
        string(
            "date_kind",
            "event on the date in the column published: release, publication, first revision, delivery …",
        ),
        day(
            "earliest",
            "first day on which the text can have existed, if it is earlier than published (a patent's priority date)",
            null=True,
        ),
        moment("retrieved_at", "time when the text was fetched"),
        LANGUAGE,
        string("licence", "SPDX identifier, or description of the licence; 'unknown' if not stated"),
        string("url", "address of the text"),
        SHA256,
        string(
            "places",
            "starts of pages or chapters in the text: JSON list of [character, label]; null if unknown",
            null=True,
            file_only=True,
        ),
        int64("words", "number of whitespace-separated words", sql=WORDS_OF_TEXT),
        RUN_ID,
    ),
)


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
    text_columns=("context", "text"),
    manifest=DataPaths.benchmark_manifest,
    columns=(
        string(
            "example_id",
            "id of the example: 16 hex digits of the digest of benchmark, document_id and text, or messages if it is a "
            "conversation",
        ),
        BENCHMARK.with_changes("the benchmark"),
        string("document_id", "document that the text was taken from"),
        string("text", "the audited text", file_only=True),
        string(
            "context",
            "text before the audited text, which the model reads and no detector scores; null without context",
            null=True,
            file_only=True,
        ),
        string(
            "excerpt",
            f"the first words of the text, at most {EXCERPT_WORDS}; null if the warehouse was built without text",
            null=True,
            sql=EXCERPT,
            quotes_text=True,
        ),
        string(
            "text_sha256",
            "sha256 of context and text, which the model reads; joins to token_statistics.text_sha256, except for "
            "conversations, if the model's chat template changes them",
            sql="sha256(coalesce(context, '') || text)",
        ),
        string(
            "messages",
            "the conversation up to its last answer, as a JSON list of objects with role and content; null for plain "
            "texts",
            null=True,
            file_only=True,
        ),
        string(
            "scored_part",
            "the scored part of a conversation: response (all answers), last_response (the last answer) or all (the "
            "whole text); null: the example is a plain text",
            null=True,
            one_of=("response", "last_response", "all"),
        ),
        boolean(
            "has_context",
            "whether the text has a context, which the model reads and no detector scores; contexts stay in Parquet",
            sql="context IS NOT NULL",
        ),
        int8("label", "1 for a member, 0 for a non-member, null if unknown", null=True, ge=0, le=1),
        string(
            "split",
            "calibration | evaluation; a group is never split between them",
            one_of=("calibration", "evaluation"),
        ),
        day("published", "publication date of the document", null=True),
        count("words", "length in words (separated by whitespace; by jieba in Chinese)"),
        LANGUAGE,
        COLLECTION,
        GROUP,
        RUN_ID,
    ),
)

SPLIT_QUALITY = Table(
    "split_quality",
    "differences between the two sides of a benchmark, measured without a model; split_summary has one row per "
    "benchmark",
    key=("benchmark", "measure", "part", "side"),
    partitioned_by="benchmark",
    storage="rewritten",
    made_from=("examples",),
    file=DataPaths.split_quality,
    columns=(
        BENCHMARK,
        string(
            "measure",
            "the measure: blind_auroc, worst_blind_auroc, ngram_overlap_*, near_duplicate_*, texts*, groups, "
            "uneven_collections, years_mentioned, latest_year_mentioned, length_*, language_*",
        ),
        string(
            "part",
            "part of the measure: the control, n of the n-grams, the collection, year, unit or language; 'all' if the "
            "measure has one part",
        ),
        string(
            "side",
            "members | nonmembers | unlabelled | both | between (pairs with one text of each side); if the evaluation "
            "split has no known members, members are the audited texts and nonmembers the held-out texts",
        ),
        double("value", "value of the measure; null if it was not measured", null=True),
        CI_LOW,
        CI_HIGH,
        int64("n", "number of texts that the value is computed from", ge=0),
        string("method", "how the value was computed, or why it is null"),
        string(
            "verdict",
            "split verdict by the interval of this blind control alone; null for other measures",
            null=True,
        ),
        string(
            "split_verdict",
            "split verdict by the blind control of words over all evaluated texts; evaluations use this verdict",
        ),
        RUN_ID,
    ),
)

BLIND_SCORES = Table(
    "blind_scores",
    "score of each evaluated text by the blind control of words",
    key=("benchmark", "example_id"),
    partitioned_by="benchmark",
    storage="rewritten",
    in_warehouse=False,
    made_from=("examples",),
    columns=(
        BENCHMARK,
        string("example_id", "the evaluated text"),
        double("score", "out-of-fold log odds of being a member, or an audited text, from the words alone"),
        string("method", "how the score was computed"),
        RUN_ID,
    ),
)


def locate_scored_spans(examples: pa.Table) -> list[list[tuple[int, int]] | None]:
    """Return the scored part of each model input (:func:`build_model_inputs`), or None if the whole input is scored."""
    return [
        locate_after_context(context, text)
        for context, text in zip(examples["context"].to_pylist(), examples["text"].to_pylist(), strict=True)
    ]


def locate_after_context(context: str | None, text: str) -> list[tuple[int, int]] | None:
    """Return the characters of a text in the string that consists of its context and the text.

    None means that there is no context, so the whole string is the text.
    """
    if not context:
        return None
    return [(len(context), len(context) + len(text))]


def build_model_inputs(examples: pa.Table) -> list[str]:
    """Return the text that a model reads for each example: its context, if it has one, and its text."""
    return EXAMPLES.texts(examples)
