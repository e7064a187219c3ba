"""Writing and reading of declared tables together with their ledger entries, and the documents of a source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Unpack

import pyarrow as pa

from audit_pipeline.store import ledger
from audit_pipeline.store.files import cast_to_columns, read_table, temporary_file, write_parquet
from audit_pipeline.store.integrity import DamagedError, cached_sha256, file_sha256, table_version
from audit_pipeline.store.ledger import LineageStep, RowOrigin
from audit_pipeline.store.paths import DataPaths, name_from_path_segment
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
    """Write the rows of a partition and their line in the ledger.

    Args:
        paths: The data folder.
        step: The step that computed the rows.
        table: The table.
        partition_key: The partition.
        rows: The rows.
        upstream: The data versions of the inputs, by input.
        data_version: The version of the rows. By default a digest of their content.
        origin: The model, the benchmark and the settings of the rows.

    Returns:
        The data version.

    Raises:
        DataError: If the rows do not match the declaration of the table.
    """
    partition = ledger.partition_of(partition_key)
    path = ledger.file_of(paths, table, partition, step.run_id)
    version = table_version(rows) if data_version is None else data_version
    # Casting drops the schema metadata of the rows, because it is not declared. So it is added again.
    declared_rows = cast_to_columns(rows, table).replace_schema_metadata(rows.schema.metadata)
    with temporary_file(path.parent, path.name) as temporary:
        write_parquet(temporary, declared_rows)
        ledger.record_entry(
            paths,
            step,
            table,
            partition_key,
            data_version=version,
            upstream=upstream,
            rows=len(declared_rows),
            file_sha256=file_sha256(temporary),
            written=(temporary, path),
            **origin,
        )
    return version


def read(paths: DataPaths, table: Table, partition_key: str | Pair, *, label: str, run_id: str = "") -> pa.Table:
    """Read the rows of a partition after comparing the file with the ledger.

    Args:
        paths: The data folder.
        table: The table.
        partition_key: The partition.
        label: The name of the rows in error messages.
        run_id: The id of the run, if every run adds a file.

    Raises:
        DataError: If the file is missing, unreadable or corrupt.
    """
    require_intact_partition(paths, table, partition_key, label=label, run_id=run_id)
    return read_table(ledger.file_of(paths, table, ledger.partition_of(partition_key), run_id), table, label=label)


def require_intact_partition(
    paths: DataPaths, table: Table, partition_key: str | Pair, *, label: str, run_id: str = ""
) -> None:
    """Raise DamagedError if no ledger entry of the partition has the sha256 of its file.

    The entry may be of an earlier run, because a killed run leaves the file of the previous run. A missing file is no
    error here, because the code that reads the file reports it.
    """
    partition = ledger.partition_of(partition_key)
    path = ledger.file_of(paths, table, partition, run_id)
    known_digests = {entry.file_sha256 for entry in ledger.read_ledger(paths).list_entries(table.name, partition)}
    try:
        if cached_sha256(path) in known_digests:
            return
    except OSError:
        # The code that reads the file reports the missing or unreadable file.
        return
    raise DamagedError(
        f"{label} is damaged: {path} is corrupt (the ledger has no entry of {table.name} {partition} with its sha256). "
        "Delete the file and run the same command again, which rebuilds it."
    )


def iterate_partitions(paths: DataPaths, table: Table) -> Iterator[tuple[str, Path]]:
    """Yield the name and the folder of every partition that has a folder with files, in order."""
    prefix = "partition=" if table.append_only else f"{table.partitioned_by}="
    for folder in sorted(paths.table(table.name).glob(f"{prefix}*")):
        if any(folder.iterdir()):
            yield name_from_path_segment(folder.name.removeprefix(prefix)), folder


def list_cache_folders(paths: DataPaths) -> list[Path]:
    """List the folders of the cache of token statistics, one per kind and model, in order."""
    folder = paths.table(TOKEN_STATISTICS.name)
    return sorted(path for path in folder.glob("kind=*/model=*") if path.is_dir())


def read_documents(paths: DataPaths, source: str) -> pa.Table:
    """Read the documents of a source.

    Raises:
        DataError: If the documents were not fetched, or the file is unreadable or corrupt.
    """
    return read(paths, DOCUMENTS, source, label=f"the source {source}")


def compute_documents_version(table: pa.Table) -> str:
    """Compute a digest of the documents that does not depend on row order, retrieval time and run.

    It covers text and dates of each document, and the columns that later stages sort by: collection (as part of
    document_id), group and language.
    """
    names = ("document_id", "sha256", "published", "earliest", "group", "language")
    columns = [table.column(name).to_pylist() for name in names]
    rows = sorted(zip(*columns, strict=True), key=lambda row: str(row[0]))
    return digest(list(map(_to_strings, rows)))


def _to_strings(values: Iterable[object]) -> list[str | None]:
    strings: list[str | None] = []
    for value in values:
        strings.append(None if value is None else str(value))
    return strings


def read_documents_version(paths: DataPaths, source: str) -> str:
    """Return the version of a source's current documents. It is computed if the ledger has no entry of the file.

    Raises:
        DataError: If the documents were not fetched, or the file is unreadable.
    """
    entry = ledger.find_writing_run(paths, DOCUMENTS, source)
    if entry is not None:
        return entry.data_version
    return compute_documents_version(read_documents(paths, source))
