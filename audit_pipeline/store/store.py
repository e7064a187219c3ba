"""Rows of a declared table, written with their lineage and read as they were written; and the documents of a source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Unpack

import pyarrow as pa

from audit_pipeline.store.files import cast_to_columns, read_table, temporary_file, write_parquet
from audit_pipeline.store.integrity import DamagedError, cached_sha256, file_sha256
from audit_pipeline.store.ledger import (
    LineageStep,
    RowOrigin,
    file_of,
    find_writing_run,
    partition_of,
    read_ledger,
    record_entry,
)
from audit_pipeline.store.paths import DataPaths, name_from_path_segment
from audit_pipeline.store.versions import table_version
from audit_pipeline.tables import DOCUMENTS, TOKEN_STATISTICS, Pair, digest
from audit_pipeline.tables.table import Table


def write(
    paths: DataPaths,
    step: LineageStep,
    table: Table,
    partition_key: str | Pair,
    rows: pa.Table,
    *,
    upstream: Mapping[str, str],
    data_version: str | None = None,
    **origin: Unpack[RowOrigin],
) -> str:
    """Write the rows of a partition into their place, with the line of the ledger that names the file's digest.

    Returns the data version: the one given, else a digest of the rows. Raises DataError where the rows are not as the
    table is declared.
    """
    partition = partition_of(partition_key)
    path = file_of(paths, table, partition, step.run_id)
    version = table_version(rows) if data_version is None else data_version
    # What a table says of itself (metadata) is no part of its declaration, and stays.
    whole = cast_to_columns(rows, table).replace_schema_metadata(rows.schema.metadata)
    with temporary_file(path.parent, path.name) as temporary:
        write_parquet(temporary, whole)
        record_entry(
            paths,
            step,
            table,
            partition_key,
            data_version=version,
            upstream=upstream,
            rows=len(whole),
            file_sha256=file_sha256(temporary),
            written=(temporary, path),
            **origin,
        )
    return version


def read(paths: DataPaths, table: Table, partition_key: str | Pair, *, label: str, run_id: str = "") -> pa.Table:
    """The rows of a partition, compared with their lineage first; ``run_id`` where every run adds a file.

    Raises DataError, naming ``label`` and the file, where it is missing, unreadable or not as it was written.
    """
    require_intact_partition(paths, table, partition_key, label=label, run_id=run_id)
    return read_table(file_of(paths, table, partition_of(partition_key), run_id), table, label=label)


def require_intact_partition(
    paths: DataPaths, table: Table, partition_key: str | Pair, *, label: str, run_id: str = ""
) -> None:
    """Raise DamagedError where a file is none that the ledger's lines of its partition name by its digest.

    Which line names it does not matter: a run that died on the way left the file of the run before. A file that is
    not there passes.
    """
    partition = partition_of(partition_key)
    path = file_of(paths, table, partition, run_id)
    named = {entry.file_sha256 for entry in read_ledger(paths).list_entries(table.name, partition)}
    try:
        if cached_sha256(path) in named:
            return
    except OSError:
        # The reader reports why it cannot be read.
        return
    raise DamagedError(
        f"{label} is damaged: {path} is not as it was written (its sha256 is none that the ledger names for "
        f"{table.name} {partition}); delete the file and run the same again: it is made anew"
    )


def iterate_partitions(paths: DataPaths, table: Table) -> Iterator[tuple[str, Path]]:
    """Every partition of a table of which anything lies in a folder of its own, with that folder, in order."""
    prefix = "partition=" if table.append_only else f"{table.partitioned_by}="
    for folder in sorted(paths.table(table.name).glob(f"{prefix}*")):
        if any(folder.iterdir()):
            yield name_from_path_segment(folder.name.removeprefix(prefix)), folder


def list_cache_folders(paths: DataPaths) -> list[Path]:
    """The folder of every kind of token statistics and every model in the cache, in order."""
    folder = paths.table(TOKEN_STATISTICS.name)
    return sorted(path for path in folder.glob("kind=*/model=*") if path.is_dir())


def read_documents(paths: DataPaths, source: str) -> pa.Table:
    """The source's documents; raises DataError where they have not been fetched yet or cannot be read."""
    return read(paths, DOCUMENTS, source, label=f"the source {source}")


def compute_documents_version(table: pa.Table) -> str:
    """Digest of what a documents table says: the same whatever the order of rows, time of retrieval and run.

    It covers text and dates of each document, and what later stages sort by: its collection (within document_id),
    group and language.
    """
    columns = ("document_id", "sha256", "published", "earliest", "group", "language")
    rows = sorted(zip(*(table.column(name).to_pylist() for name in columns), strict=True), key=lambda row: str(row[0]))
    return digest([[str(value) if value is not None else None for value in row] for row in rows])


def read_documents_version(paths: DataPaths, source: str) -> str:
    """The version of the source's documents as they lie there now, from their lineage where that has it.

    Raises DataError where they have not been fetched or cannot be read.
    """
    known = find_writing_run(paths, DOCUMENTS, source)
    return known.data_version if known is not None else compute_documents_version(read_documents(paths, source))
