"""Builds data/audit.duckdb and swaps it in; says where its rows and the lineage do not go together.

What belongs here: one build at a time, in a folder of its own, taking the old one's place. What does not: filling the
file (fill.py), the tables' definitions (schema.py), reading the finished warehouse (query.py).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from audit_pipeline.catalogue.contracts import LINEAGE
from audit_pipeline.catalogue.duckdb_connections import open_in_memory
from audit_pipeline.catalogue.files import read_table
from audit_pipeline.catalogue.integrity import FileIdentity
from audit_pipeline.catalogue.lineage import LineageEntry
from audit_pipeline.catalogue.lineage_chain import ChainRecord, read_chain_record
from audit_pipeline.catalogue.locks import HeldError, hold_lock
from audit_pipeline.catalogue.paths import DataPaths, config_dir, make_private
from audit_pipeline.catalogue.working_copy import fetch_folder_on_demand, refresh
from audit_pipeline.errors import DataError
from audit_pipeline.warehouse.bucket_copy import publish_warehouse
from audit_pipeline.warehouse.carried_over_rows import (
    BuildRecord,
    compute_crc32,
    compute_settled_cutoff,
    describe_build_environment,
    write_build_record,
)
from audit_pipeline.warehouse.fill import Judge, Site, fill_warehouse, read_lineage_entries
from audit_pipeline.warehouse.query import error_to_one_line
from audit_pipeline.warehouse.schema import create_tables
from audit_pipeline.warehouse.table_files import UnreadableTableFile, list_files, load_self_digested

LOCK_SECONDS = 600.0
"""How long a build waits for another one to end."""


@dataclass(frozen=True)
class WarehouseReport:
    """What a build did: rows by table, files left out, and where the .wal of another session was moved to, if any.

    ``doubled``: by table, how many rows have a key that another row has too; none is as it should be.
    ``files_loaded``: Parquet files whose rows were read; ``files_carried_over``: those whose rows the earlier warehouse
    held already.
    """

    path: Path
    rows: Mapping[str, int]
    doubled: Mapping[str, int]
    unreadable: tuple[UnreadableTableFile, ...]
    files_loaded: int
    files_carried_over: int
    moved_wal: Path | None
    bytes: int
    seconds: float


@dataclass(frozen=True)
class LineageGap:
    """Rows of one table, partition and run that do not join to exactly one lineage row, or an entry without its file;
    ``what`` says which."""

    table: str
    partition: str
    run_id: str
    rows: int
    lineage_rows: int
    what: str


def build_warehouse_file(
    judge: Judge,
    paths: DataPaths,
    *,
    include_text: bool = True,
    config: Path | None = None,
    everything: bool = False,
) -> WarehouseReport:
    """Build the warehouse from what lies under the data folder and put it in the old one's place.

    A copy of the old one is brought up to date: only files that have changed since they were loaded are loaded again.
    With ``everything``, and where there is no old one that can be relied on (carried_over_rows.py), every file is
    loaded, and compared with its digest. Readers that have the old file open keep their snapshot. After any error the
    old warehouse is still there. ``include_text=False`` leaves the excerpts out. ``config`` is the folder of the
    configuration where it is not the usual one; a file of it that cannot be read is named in the report, and its table
    stays empty. Raises DataError where another build does not end in time, or where the file cannot be written.
    """
    started = time.monotonic()
    make_private(paths.root)
    made = describe_build_environment(include_text=include_text)
    with _one_build_at_a_time(paths.warehouse), _building_folder(paths.warehouse) as folder:
        settled_ns = compute_settled_cutoff(folder)
        new = folder / paths.warehouse.name
        try:
            site = Site(paths, new, judge, config or config_dir(), settled_ns)
            filled = fill_warehouse(site, made, include_text=include_text, everything=everything)
            record = BuildRecord(
                made, compute_crc32(new), filled.files_loaded, filled.files_carried_over, filled.rows_taken_out
            )
            size = new.stat().st_size
            moved_wal = publish_warehouse(new, paths.warehouse, lambda: _swap_in(new, paths.warehouse))
            write_build_record(paths, record)
        except (duckdb.Error, OSError) as error:
            raise DataError(
                f"the warehouse could not be built, the earlier one is unchanged: {error_to_one_line(error)} "
                f"(is the disk full, or {paths.root} not writable?)"
            ) from error
    return WarehouseReport(
        paths.warehouse,
        filled.rows,
        filled.doubled,
        tuple(filled.unreadable),
        filled.files_loaded,
        filled.files_carried_over,
        moved_wal,
        size,
        time.monotonic() - started,
    )


def read_lineage(paths: DataPaths) -> tuple[list[LineageEntry], list[UnreadableTableFile]]:
    """What every lineage entry says of its file, and the entries that are damaged; no warehouse is built for it."""
    with open_in_memory() as connection:
        create_tables(connection, [LINEAGE])
        loaded = load_self_digested(connection, LINEAGE, list_files(paths, LINEAGE).paths)
        return read_lineage_entries(connection), list(loaded.unreadable)


def read_lineage_chain(paths: DataPaths) -> tuple[list[dict[str, Any]], ChainRecord]:
    """Every lineage row with all its columns, and the record of their chain as it was when the last one was written.

    What is written meanwhile is read as well. A row that is not as it was written is among them; one that cannot be
    read at all is not.
    """
    rows: list[dict[str, Any]] = []
    known: Mapping[Path, FileIdentity] = {}
    while True:
        record = read_chain_record(paths)
        fetch_folder_on_demand(paths.table(LINEAGE.name))
        listed = list_files(paths, LINEAGE).identities
        rows += _read_rows_of_lineage([file for file, identity in listed.items() if known.get(file) != identity])
        known = listed
        if read_chain_record(paths) == record:
            return rows, record


def _read_rows_of_lineage(files: Sequence[Path]) -> list[dict[str, Any]]:
    with open_in_memory() as connection:
        create_tables(connection, [LINEAGE])
        damaged = load_self_digested(connection, LINEAGE, files).unreadable
        rows: list[dict[str, Any]] = connection.table(LINEAGE.name).to_arrow_table().to_pylist()
    for file in damaged:
        # What cannot be read at all is missing from the chain, which says so.
        with suppress(DataError, pa.ArrowException, ValueError):
            rows += read_table(file.path, LINEAGE, label=file.path.name).to_pylist()
    return rows


def read_lineage_gaps(connection: duckdb.DuckDBPyConnection) -> list[LineageGap]:
    """Every (table, partition, run) where rows and lineage entries do not go together; none is as it should be."""
    found = connection.sql("FROM lineage_gaps").fetchall()
    return [LineageGap(*row) for row in found]


@contextmanager
def _one_build_at_a_time(warehouse: Path) -> Iterator[None]:
    try:
        with hold_lock(warehouse.with_name(f"{warehouse.name}.lock"), LOCK_SECONDS):
            refresh(warehouse)
            yield
    except HeldError as error:
        raise DataError(
            f"another build of {warehouse} has not ended in {LOCK_SECONDS:.0f} s: wait for it, or end it and try again"
        ) from error


@contextmanager
def _building_folder(warehouse: Path) -> Iterator[Path]:
    """A folder beside the warehouse that holds everything a build writes; the leftovers of killed builds go first."""
    for left_over in warehouse.parent.glob(f"{warehouse.name}.*.building"):
        shutil.rmtree(left_over)
    with tempfile.TemporaryDirectory(prefix=f"{warehouse.name}.", suffix=".building", dir=warehouse.parent) as folder:
        yield Path(folder)


def _swap_in(new_file: Path, warehouse: Path) -> Path | None:
    """Move the finished file into place; a .wal of the old one would make it unreadable, and goes aside."""
    with new_file.open("rb+") as written:
        os.fsync(written.fileno())
    moved = _move_wal_aside(warehouse)
    new_file.replace(warehouse)
    if os.name == "posix":
        folder = os.open(warehouse.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return moved


def _move_wal_aside(warehouse: Path) -> Path | None:
    wal = warehouse.with_name(f"{warehouse.name}.wal")
    if not wal.exists():
        return None
    aside = wal.with_name(f"{wal.name}.{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}.aside")
    wal.replace(aside)
    return aside
