"""The table of the documents that are fetched from sources."""

from __future__ import annotations

from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables.common import COLLECTION, LANGUAGE, RUN_ID, SHA256
from audit_pipeline.tables.sql import WORDS_OF_TEXT
from audit_pipeline.tables.table import Table, day, int64, moment, string

DOCUMENTS = Table(
    "documents",
    "the dated documents of the sources, without their text",
    key=("document_id",),
    partitioned_by="source",
    storage="rewritten",
    text_columns=("text",),
    manifest=DataPaths.source_manifest,
    columns=(
        string("document_id", "unique within all sources: source:collection:name"),
        string("source", "the source of the document"),
        COLLECTION.with_changes("the project, series or folder within the source; splits are balanced over it"),
        string("group", "the book, patent, article or release; intervals and calibration never split a group"),
        string("title", "the document's title"),
        string("text", "the full text, UTF-8", file_only=True),
        day("published", "date of first publication; null if unknown", null=True),
        string("date_kind", "event that published is the date of: release, publication, first revision, delivery …"),
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
