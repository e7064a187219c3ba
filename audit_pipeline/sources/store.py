"""Storage of a source's documents: the documents table and its manifest.

A fetch replaces the stored documents. Only the documents of parts that could not be fetched stay unchanged, with their
earlier ``retrieved_at`` and ``run_id``. The manifest lists these missing parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from audit_pipeline.errors import DataError, SourceError
from audit_pipeline.sources.base import Document, FetchedDocuments, LeftOut, MissingPart, build_document_id, collect
from audit_pipeline.sources.config import SourceSettings, all_sources, require_source
from audit_pipeline.store import store
from audit_pipeline.store.files import read_json, table_from_rows, write_json
from audit_pipeline.store.ledger import LineageStep, is_latest_file_whole
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import compute_documents_version, read_documents
from audit_pipeline.tables import DOCUMENTS, canonical_json, text_sha256

_MAX_REASONS = 3


@dataclass(frozen=True)
class SourceReport:
    """The result of fetching a source and storing its documents.

    Attributes:
        source: The name of the source.
        documents: The number of documents.
        by_collection: The number of documents by collection.
        kept: The number of documents from earlier fetches that stayed, by collection.
        missing: The parts that could not be fetched.
        left_out: The documents and rows that cannot be used.
        data_version: The version of the documents, a digest of their content.
        retrieved_at: The time of the fetch.
        path: The file of the documents table.
        table: The documents table.
    """

    source: str
    documents: int
    by_collection: Mapping[str, int]
    kept: Mapping[str, int]
    missing: tuple[MissingPart, ...]
    left_out: tuple[LeftOut, ...]
    data_version: str
    retrieved_at: datetime
    path: Path
    table: pa.Table


def refresh_source(
    source: str,
    paths: DataPaths,
    run_id: str,
    settings: SourceSettings,
    code_version: str = "1",
) -> SourceReport:
    """Fetch a source, and store its documents with their lineage and a manifest.

    Raises:
        SourceError: If there are neither fetched nor earlier documents.
        ConfigError: If the source's section of the settings is broken.
    """
    known = require_source(source)
    step = LineageStep.now(run_id, f"documents/{source}", code_version)
    fetched = collect(known.fetch(settings.for_source(source), paths.downloads))
    return store_documents(source, fetched, paths, step, datetime.now(UTC), settings.digest_for(source), known.version)


def read_settings_digest(source: str, paths: DataPaths) -> str | None:
    """Return the digest of the settings and files that a source's stored documents were read with.

    :meth:`SourceSettings.digest_for` computes the digest of the current settings and files.

    Returns:
        The digest, or None if the documents are missing, damaged, or from another version of the source's code.
    """
    known = all_sources().get(source)
    if known is None or not paths.documents(source).exists() or not is_latest_file_whole(paths, "documents", source):
        return None
    try:
        written = read_json(paths.source_manifest(source))
    except (OSError, ValueError):
        return None
    return written["settings"] if written["source_version"] == known.version else None


def store_documents(
    source: str,
    fetched: FetchedDocuments,
    paths: DataPaths,
    step: LineageStep,
    retrieved_at: datetime,
    settings_digest: str | None = None,
    source_version: int = 1,
) -> SourceReport:
    """Store the fetched documents, and keep the earlier documents of missing parts. The manifest is written last.

    Raises:
        SourceError: If the table would have no documents. Then the earlier files stay unchanged.
    """
    documents, duplicates = _remove_duplicate_documents(source, fetched.documents)
    rows = [_build_row(source, document, retrieved_at, step.run_id) for document in documents]
    fresh = table_from_rows(rows, DOCUMENTS)
    earlier, unreadable = _read_earlier_documents(source, paths, fetched.missing)
    kept = _select_kept_rows(source, fresh, earlier, fetched.missing)
    table = pa.concat_tables([fresh, kept]).sort_by("document_id").combine_chunks()
    missing = (*fetched.missing, *unreadable)
    left_out = (*fetched.left_out, *duplicates)
    if not table.num_rows:
        raise SourceError(f"the source {source} has no usable document: {_summarise_reasons([*missing, *left_out])}")
    report = SourceReport(
        source=source,
        documents=table.num_rows,
        by_collection=_count_by_collection(table),
        kept=_count_by_collection(kept),
        missing=missing,
        left_out=left_out,
        data_version=compute_documents_version(table),
        retrieved_at=retrieved_at,
        path=paths.documents(source),
        table=table,
    )
    store.write(paths, step, DOCUMENTS, source, table, data_version=report.data_version, upstream={})
    missing_rows = [{"part": item.part, "reason": item.reason} for item in missing]
    left_out_rows = [asdict(item) for item in left_out]
    manifest = {
        "source": source,
        "data_version": report.data_version,
        "retrieved_at": retrieved_at.isoformat(),
        "documents": report.documents,
        "by_collection": report.by_collection,
        "kept_from_earlier": report.kept,
        "missing": missing_rows,
        "left_out": left_out_rows,
        "settings": settings_digest,
        "source_version": source_version,
    }
    write_json(paths.source_manifest(source), manifest)
    return report


def _summarise_reasons(unused: Sequence[MissingPart | LeftOut]) -> str:
    """Return a text with the first three reasons why there are no documents, and the number of further reasons."""
    reasons = [f"{item.part}: {item.reason}" for item in unused]
    if not reasons:
        return "the fetch returned nothing. Check its section in config/sources.yaml."
    summary = "; ".join(reasons[:_MAX_REASONS])
    if len(reasons) > _MAX_REASONS:
        summary += f" (and {len(reasons) - _MAX_REASONS} more)"
    return summary


def _build_row(source: str, document: Document, retrieved_at: datetime, run_id: str) -> dict[str, object]:
    identity = build_document_id(source, document)
    return {
        "document_id": identity,
        "source": source,
        "collection": document.collection,
        "group": document.group or identity,
        "title": document.title,
        "text": document.text,
        "published": document.published,
        "date_kind": document.date_kind,
        "earliest": document.earliest,
        "retrieved_at": retrieved_at,
        "language": document.language,
        "licence": document.licence,
        "url": document.url,
        "sha256": text_sha256(document.text),
        "places": canonical_json(document.places) if document.places else None,
        "run_id": run_id,
    }


def _remove_duplicate_documents(source: str, documents: Iterable[Document]) -> tuple[list[Document], list[LeftOut]]:
    """Return the first document of each identity, and the duplicates with the reason."""
    unique: dict[str, Document] = {}
    duplicates: list[LeftOut] = []
    for document in documents:
        identity = build_document_id(source, document)
        if identity in unique:
            duplicates.append(
                LeftOut(identity, "this document is skipped, because an earlier document has the same name")
            )
        else:
            unique[identity] = document
    return list(unique.values()), duplicates


def _read_earlier_documents(
    source: str, paths: DataPaths, missing: Iterable[MissingPart]
) -> tuple[pa.Table, tuple[MissingPart, ...]]:
    """Return the stored documents of earlier fetches, and a missing part if they are damaged.

    The table is empty if no missing part has earlier documents that stay.
    """
    if not paths.documents(source).exists() or all(item.collection is None for item in missing):
        return DOCUMENTS.empty_table(), ()
    try:
        return read_documents(paths, source), ()
    except DataError as error:
        return DOCUMENTS.empty_table(), (MissingPart("documents of earlier fetches", str(error)),)


def _select_kept_rows(source: str, fresh: pa.Table, earlier: pa.Table, missing: tuple[MissingPart, ...]) -> pa.Table:
    """Return the earlier rows that belong to missing parts, without documents that were fetched again."""
    fresh_identities = set(fresh.column("document_id").to_pylist())
    identities: list[str] = earlier.column("document_id").to_pylist()
    collections: list[str] = earlier.column("collection").to_pylist()
    mask: list[bool] = []
    for identity, collection in zip(identities, collections, strict=True):
        name = identity.removeprefix(f"{source}:{collection}:")
        is_missing = any(item.can_contain(collection, name) for item in missing)
        mask.append(is_missing and identity not in fresh_identities)
    return earlier.filter(pa.array(mask, pa.bool_()))


def _count_by_collection(table: pa.Table) -> dict[str, int]:
    return dict(sorted(Counter(table.column("collection").to_pylist()).items()))
