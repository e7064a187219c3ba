"""Builds data/audit.duckdb from the ledger, the files that it explains, documents and configuration; swaps it in."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa

from audit_pipeline.errors import DataError, to_one_line
from audit_pipeline.store.duckdb_connections import hide_progress_bar, open_in_memory
from audit_pipeline.store.ledger import read_ledger
from audit_pipeline.store.locks import hold_lock
from audit_pipeline.store.paths import DataPaths, config_dir, make_private
from audit_pipeline.tables import COVERAGE
from audit_pipeline.tables.sql import build_column_expressions, build_key_sql, quote_identifier, quote_literal
from audit_pipeline.tables.table import Table
from audit_pipeline.warehouse.non_parquet_rows import UpToDate, insert_rows, load_ledger, load_other_rows
from audit_pipeline.warehouse.schema import create_schema, fill_derived_tables, fill_keys_table, list_tables
from audit_pipeline.warehouse.verified_files import UnreadableFile, verify_files

LOCK_SECONDS = 600.0
"""How long a build waits for another build to end."""
STORAGE_VERSION = "v1.3.0"
"""The oldest DuckDB that opens the file: other programs come with older versions than ours (docs/sql.md names them)."""

# In quotes: a Callable of one of duckdb's types is never freed, and duckdb complains of it when the process ends.
Judgement = tuple[UpToDate, Callable[["duckdb.DuckDBPyConnection"], pa.Table]]
"""The planner's judgement of a data folder: of its benchmarks, and what makes the rows of the table coverage of the
other tables when they are filled."""
Judge = Callable[[Path, DataPaths], Judgement]
"""What judges, by the configuration in a folder, what a data folder holds (pipeline/coverage.py)."""


@dataclass
class WarehouseReport:
    """What a build did: rows and rows too many by table, how many Parquet ``files`` were loaded, the files that were
    left out, and those among them that no line of the ledger explains.

    ``moved_wal``: where the .wal of another session was moved to, if any.
    """

    path: Path
    rows: Mapping[str, int]
    doubled: Mapping[str, int]
    files: int
    left_out: tuple[UnreadableFile, ...]
    unexplained: tuple[Path, ...]
    moved_wal: Path | None = None
    bytes: int = 0
    seconds: float = 0.0


def build_warehouse_file(
    judge: Judge, paths: DataPaths, *, include_text: bool = True, config: Path | None = None
) -> WarehouseReport:
    """Build the warehouse from what lies under the data folder and put it in the old one's place.

    Every file is compared with its digest; those that are not as they were written are left out and named. Readers that
    have the old file open keep their snapshot. After any error the old warehouse is still there.
    ``include_text=False`` leaves the excerpts out. ``config`` is the folder of the configuration where it is not the
    usual one; a file of it that cannot be read is named in the report, and its table stays empty. Raises DataError
    where another build does not end in time, where the file cannot be written, or where a run writes a file that is
    read again and again.
    """
    started = time.monotonic()
    make_private(paths.root)
    with _building_folder(paths.warehouse) as folder:
        new = folder / paths.warehouse.name
        try:
            report = _fill_file(new, judge, paths, config or config_dir(), list_tables(include_text=include_text))
            report.moved_wal = _swap_in(new, paths.warehouse)
        except (duckdb.Error, OSError) as error:
            raise DataError(
                f"the warehouse could not be built, the earlier warehouse is unchanged: {to_one_line(error)} "
                f"(is the disk full, or {paths.root} not writable?)"
            ) from error
    report.bytes, report.seconds = paths.warehouse.stat().st_size, time.monotonic() - started
    return report


@contextmanager
def _building_folder(warehouse: Path) -> Iterator[Path]:
    """Give a folder, next to the warehouse, for everything that a build writes; one build at a time. What killed builds
    left is deleted first."""
    with hold_lock(warehouse.with_name(f"{warehouse.name}.lock"), LOCK_SECONDS):
        for left_over in warehouse.parent.glob(f"{warehouse.name}.*.building"):
            shutil.rmtree(left_over)
        with tempfile.TemporaryDirectory(".building", f"{warehouse.name}.", warehouse.parent) as folder:
            yield Path(folder)


def _fill_file(new: Path, judge: Judge, paths: DataPaths, config: Path, tables: tuple[Table, ...]) -> WarehouseReport:
    """Fill a new file; again where a run replaced a file while it was read, so that no row is of another file than its
    entry."""
    for _ in range(3):
        new.write_bytes(_build_empty_database(tables))
        # Files after the ledger: whatever file is there that no line explains was there before.
        ledger = read_ledger(paths)
        files = verify_files(paths, ledger)
        with duckdb.connect(str(new)) as connection:
            hide_progress_bar(connection)
            up_to_date, build_coverage = judge(config, paths)
            load_ledger(connection, ledger)
            for table in tables:
                if table.name in files.by_table:
                    load_parquet(connection, table, files.by_table[table.name])
            left_out = [*files.left_out, *load_other_rows(connection, paths, config, up_to_date)]
            reasons = {file.path: file.reason for file in left_out}
            fill_derived_tables(connection, files.explained, files.missing, ledger.entries, reasons, paths)
            insert_rows(connection, COVERAGE, build_coverage(connection))
            doubled = fill_keys_table(connection, tables)
            rows = {table.name: len(connection.table(table.name)) for table in tables}
            connection.execute("CHECKPOINT")
        replaced = files.find_replaced_file()
        if replaced is None:
            loaded, by_path = sum(map(len, files.by_table.values())), sorted(left_out, key=lambda file: file.path)
            return WarehouseReport(paths.warehouse, rows, doubled, loaded, tuple(by_path), tuple(files.unexplained))
        new.unlink()
    raise DataError(f"{replaced} is being written again and again: build the warehouse when the run that does it ends")


@cache
def _build_empty_database(tables: tuple[Table, ...]) -> bytes:
    """The file of a database with the empty tables, views and macros, which DuckDB from STORAGE_VERSION on opens.

    Making it takes most of the time that a small warehouse takes, so a process makes it once.
    """
    with tempfile.TemporaryDirectory() as folder, open_in_memory() as connection:
        file = Path(folder) / "empty.duckdb"
        connection.execute(f"ATTACH {quote_literal(str(file))} AS made (STORAGE_VERSION '{STORAGE_VERSION}')")
        connection.execute("USE made")
        create_schema(connection, tables)
        connection.execute("USE memory; DETACH made")
        return file.read_bytes()


def load_parquet(connection: duckdb.DuckDBPyConnection, table: Table, files: Sequence[Path]) -> None:
    """Insert the rows of Parquet files, all in one go; of a text in two parts of a model's cache, the first."""
    listed = ", ".join(quote_literal(glob.escape(str(file))) for file in files)
    filled = ", ".join(f"{sql} AS {quote_identifier(name)}" for name, sql in build_column_expressions(table).items())
    options = "hive_partitioning = false, union_by_name = false, file_row_number = true"
    rows = f"SELECT {filled}, file_index, file_row_number FROM read_parquet([{listed}], {options})"  # noqa: S608 - declared names
    place, order = "file_index, file_row_number", ""
    if table.storage == "cache":
        order = f" QUALIFY row_number() OVER (PARTITION BY {build_key_sql(table)} ORDER BY {place}) = 1"
    elif table.append_only and table.order == "sorted":
        # Of a thousand small files, sorting their rows takes half of the time that keeping their order takes.
        order = f" ORDER BY {place}"
    connection.execute(f"SET preserve_insertion_order = {table.order != 'any'}")
    connection.execute(f"INSERT INTO {table.name} BY NAME SELECT * EXCLUDE ({place}) FROM ({rows}){order}")  # noqa: S608 - declared names
    connection.execute("RESET preserve_insertion_order")


def _swap_in(new_file: Path, warehouse: Path) -> Path | None:
    """Move the finished file into place; a .wal of the old one would make it unreadable, and goes aside."""
    with new_file.open("rb+") as written:
        os.fsync(written.fileno())
    wal, aside = warehouse.with_name(f"{warehouse.name}.wal"), None
    if wal.exists():
        aside = wal.replace(wal.with_name(f"{wal.name}.{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}.aside"))
    new_file.replace(warehouse)
    if os.name == "posix":
        folder = os.open(warehouse.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return aside
