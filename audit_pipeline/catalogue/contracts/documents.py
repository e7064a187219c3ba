"""The documents of the sources.

What belongs here: the declaration of their table. What does not: fetching and keeping them (sources/).
"""

from __future__ import annotations

import pyarrow as pa

from audit_pipeline.catalogue.contracts.common import COLLECTION, LANGUAGE, RUN_ID, SHA256
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.sql import WORDS_OF_TEXT
from audit_pipeline.catalogue.table import Column, Table

DOCUMENTS = Table(
    "documents",
    "the dated documents of the sources, without their text",
    key=("document_id",),
    per="source",
    kept="rewritten",
    holds_text=("text",),
    manifest=DataPaths.source_manifest,
    columns=(
        Column("document_id", pa.string(), "unique within all sources: source:collection:name"),
        Column("source", pa.string(), "the source asset that yielded the document"),
        COLLECTION.with_changes("the project, series or folder within the source; splits are balanced over it"),
        Column(
            "group", pa.string(), "what intervals and calibration never divide: the book, patent, article or release"
        ),
        Column("title", pa.string(), "the document's title"),
        Column("text", pa.string(), "the full text, UTF-8", file_only=True),
        Column("published", pa.date32(), "date of first publication; null where unknown", null=True),
        Column(
            "date_kind", pa.string(), "what published is the date of: release, publication, first revision, delivery …"
        ),
        Column(
            "earliest",
            pa.date32(),
            "first day on which the text can have existed, where that is before published (a patent's priority date)",
            null=True,
        ),
        Column("retrieved_at", pa.timestamp("us", tz="UTC"), "when the text was fetched"),
        LANGUAGE,
        Column("licence", pa.string(), "SPDX identifier or the licence in words; 'unknown' where not stated"),
        Column("url", pa.string(), "where the text came from"),
        SHA256,
        Column(
            "places",
            pa.string(),
            "where pages or chapters begin in the text: JSON list of [character, label]; null where neither is known",
            null=True,
            file_only=True,
        ),
        Column("words", pa.int64(), "whitespace words in the text", sql=WORDS_OF_TEXT),
        RUN_ID,
    ),
)
