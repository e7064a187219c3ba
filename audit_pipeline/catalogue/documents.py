"""The documents of a source as they are kept, and the version that they have.

What belongs here: reading a source's documents table. What does not: fetching and keeping them (sources/), and what is
made of them (benchmarks/, controls/).
"""

from __future__ import annotations

import pyarrow as pa

from audit_pipeline.catalogue.contracts import DOCUMENTS, digest
from audit_pipeline.catalogue.lineage import find_writing_run
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.store import read


def read_documents(paths: DataPaths, source: str) -> pa.Table:
    """The source's documents; raises DataError where they have not been fetched yet or cannot be read."""
    return read(paths, DOCUMENTS, source, what=f"the source {source}")


def documents_version(table: pa.Table) -> str:
    """Digest of what a documents table says: the same whatever the order of rows, time of retrieval and run.

    It covers text and dates of each document, and what later stages sort by: its collection (within document_id),
    group and language.
    """
    columns = ("document_id", "sha256", "published", "earliest", "group", "language")
    rows = sorted(zip(*(table.column(name).to_pylist() for name in columns), strict=True), key=lambda row: str(row[0]))
    return digest([[str(value) if value is not None else None for value in row] for row in rows])


def version_of_documents(paths: DataPaths, source: str) -> str:
    """The version of the source's documents as they lie there now, from their lineage where that has it.

    Raises DataError where they have not been fetched or cannot be read.
    """
    known = find_writing_run(paths, DOCUMENTS, source)
    return known.data_version if known is not None else documents_version(read_documents(paths, source))
