"""The documents of the sources."""

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
    holds_text=("text",),
    manifest=DataPaths.source_manifest,
    columns=(
        string("document_id", "unique within all sources: source:collection:name"),
        string("source", "the source asset that yielded the document"),
        COLLECTION.with_changes("the project, series or folder within the source; splits are balanced over it"),
        string("group", "what intervals and calibration never divide: the book, patent, article or release"),
        string("title", "the document's title"),
        string("text", "the full text, UTF-8", file_only=True),
        day("published", "date of first publication; null where unknown", null=True),
        string("date_kind", "what published is the date of: release, publication, first revision, delivery …"),
        day(
            "earliest",
            "first day on which the text can have existed, where that is before published (a patent's priority date)",
            null=True,
        ),
        moment("retrieved_at", "when the text was fetched"),
        LANGUAGE,
        string("licence", "SPDX identifier or the licence in words; 'unknown' where not stated"),
        string("url", "where the text came from"),
        SHA256,
        string(
            "places",
            "where pages or chapters begin in the text: JSON list of [character, label]; null where neither is known",
            null=True,
            file_only=True,
        ),
        int64("words", "whitespace words in the text", sql=WORDS_OF_TEXT),
        RUN_ID,
    ),
)
