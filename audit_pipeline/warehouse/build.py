"""The build of the warehouse data/audit.duckdb.

Its rows come from the ledger, the Parquet files that the ledger lists, JSON documents and the configuration.
"""

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
from operator import attrgetter
from pathlib import Path

import duckdb
import pyarrow as pa

from audit_pipeline.errors import DataError, to_one_line
from audit_pipeline.store.duckdb_connections import hide_progress_bar, open_in_memory
from audit_pipeline.store.files import hold_lock
from audit_pipeline.store.ledger import read_ledger
from audit_pipeline.store.paths import DataPaths, config_dir, make_private
from audit_pipeline.tables import COVERAGE, KEYS
from audit_pipeline.tables.sql import build_column_expressions, build_key_sql, quote_identifier, quote_literal
from audit_pipeline.tables.table import Table
from audit_pipeline.warehouse.non_parquet_rows import UpToDate, insert_rows, load_json_and_config_rows, load_ledger
from audit_pipeline.warehouse.schema import create_schema, fill_derived_tables, fill_keys_table, list_tables
from audit_pipeline.warehouse.verified_files import UnreadableFile, verify_files

LOCK_SECONDS = 600.0
"""The maximum time that a build waits for another build."""
MAX_ATTEMPTS = 3
"""The maximum number of attempts of a build. An attempt fails if a run replaces a file meanwhile."""
STORAGE_VERSION = "v1.3.0"
"""The oldest DuckDB version that can open the file. Other programs can use an older version than ours (docs/sql.md)."""

# The type is quoted, because a Callable with a type of duckdb is never freed, and duckdb warns about it at exit.
DataFolderState = tuple[UpToDate, Callable[["duckdb.DuckDBPyConnection"], pa.Table]]
"""The state of a data folder, as pipeline/coverage.py reads it.

It consists of the states of the benchmarks (:data:`UpToDate`), and a function that computes the rows of the
table coverage from the other tables.
"""
StateReader = Callable[[Path, DataPaths], DataFolderState]
"""A function of a configuration folder and a data folder that returns the state of the data folder."""


@dataclass
class WarehouseReport:
    """The result of a build.

    Attributes:
        path: The warehouse file.
        rows: The number of rows by table.
        doubled: The number of duplicate rows by table.
        files: The number of loaded Parquet files.
        left_out: The skipped files.
        unexplained: The skipped files without a ledger entry.
        moved_wal: The new path of a write-ahead log (.wal) that another program left, or None if there was no such log.
        bytes: The size of the warehouse.
        seconds: The duration of the build.
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
    read_state: StateReader, paths: DataPaths, *, include_text: bool = True, config: Path | None = None
) -> WarehouseReport:
    """Build the warehouse from a data folder and replace the old warehouse.

    Corrupt files are skipped and reported. Readers with the old file open keep their snapshot. After an error the old
    warehouse is unchanged.

    Args:
        read_state: The function that returns the state of the data folder.
        paths: The data folder.
        include_text: Include excerpts of audited texts.
        config: The folder of the configuration. By default the workspace's. An unreadable file is reported, and its
            table stays empty.

    Raises:
        DataError: If another build takes too long, if the file cannot be written, or if runs keep replacing files
            during the build.
    """
    started = time.monotonic()
    make_private(paths.root)
    with _make_building_folder(paths.warehouse) as folder:
        new = folder / paths.warehouse.name
        try:
            report = _fill_file(new, read_state, paths, config or config_dir(), list_tables(include_text=include_text))
            report.moved_wal = _replace_warehouse(new, paths.warehouse)
        except (duckdb.Error, OSError) as error:
            raise DataError(
                f"the warehouse could not be built: {to_one_line(error)}. The earlier warehouse is unchanged. Check "
                f"that the disk is not full and that {paths.root} is writable."
            ) from error
    report.bytes = paths.warehouse.stat().st_size
    report.seconds = time.monotonic() - started
    return report


@contextmanager
def _make_building_folder(warehouse: Path) -> Iterator[Path]:
    """Yield a temporary folder next to the warehouse for the files of a build, and hold the lock of builds meanwhile.

    Folders of killed builds are deleted first.
    """
    with hold_lock(warehouse.with_name(f"{warehouse.name}.lock"), LOCK_SECONDS):
        for old_folder in warehouse.parent.glob(f"{warehouse.name}.*.building"):
            shutil.rmtree(old_folder)
        with tempfile.TemporaryDirectory(".building", f"{warehouse.name}.", warehouse.parent) as folder:
            yield Path(folder)


def _fill_file(
    new: Path, read_state: StateReader, paths: DataPaths, config: Path, tables: tuple[Table, ...]
) -> WarehouseReport:
    """Fill a new warehouse file.

    If a run replaces a Parquet file meanwhile, start again, because the rows would not match the ledger's entries.
    """
    for _ in range(MAX_ATTEMPTS):
        new.write_bytes(_build_empty_database(tables))
        ledger = read_ledger(paths)
        files = verify_files(paths, ledger)
        with duckdb.connect(str(new)) as connection:
            hide_progress_bar(connection)
            up_to_date, build_coverage = read_state(config, paths)
            load_ledger(connection, ledger)
            for table in tables:
                if table.name in files.by_table:
                    load_parquet(connection, table, files.by_table[table.name])
            left_out = [*files.left_out, *load_json_and_config_rows(connection, paths, config, up_to_date)]
            reasons = dict(map(attrgetter("path", "reason"), left_out))
            fill_derived_tables(connection, files.explained, files.missing, ledger.entries, reasons, paths)
            insert_rows(connection, COVERAGE, build_coverage(connection))
            rows = {}
            for table in tables:
                rows[table.name] = len(connection.table(table.name))
            doubled = fill_keys_table(connection, tables, rows)
            rows[KEYS.name] = len(tables)
            connection.execute("CHECKPOINT")
        replaced = files.find_replaced_file()
        if replaced is None:
            return WarehouseReport(
                path=paths.warehouse,
                rows=rows,
                doubled=doubled,
                files=sum(map(len, files.by_table.values())),
                left_out=tuple(sorted(left_out, key=lambda file: file.path)),
                unexplained=tuple(files.unexplained),
            )
        new.unlink()
    raise DataError(
        f"the warehouse could not be built: runs replaced {replaced} during each of {MAX_ATTEMPTS} attempts. Wait "
        "until the runs have ended, and run: corpus-audit report"
    )


@cache
def _build_empty_database(tables: tuple[Table, ...]) -> bytes:
    """Return the bytes of a database file with empty tables, views and macros, in the format of STORAGE_VERSION.

    Creating the file takes most of the time of a small build, so the result is cached.
    """
    with tempfile.TemporaryDirectory() as folder, open_in_memory() as connection:
        file = Path(folder) / "empty.duckdb"
        connection.execute(f"ATTACH {quote_literal(str(file))} AS made (STORAGE_VERSION '{STORAGE_VERSION}')")
        connection.execute("USE made")
        create_schema(connection, tables)
        connection.execute("USE memory; DETACH made")
        return file.read_bytes()


def load_parquet(connection: duckdb.DuckDBPyConnection, table: Table, files: Sequence[Path]) -> None:
    """Insert the rows of Parquet files. If several files of a cache have rows with the same key, the first is used."""
    listed = ", ".join(quote_literal(glob.escape(str(file))) for file in files)
    columns = []
    for name, sql in build_column_expressions(table).items():
        columns.append(f"{sql} AS {quote_identifier(name)}")
    options = "hive_partitioning = false, union_by_name = false, file_row_number = true"
    rows = f"SELECT {', '.join(columns)}, file_index, file_row_number FROM read_parquet([{listed}], {options})"  # noqa: S608 - declared names
    position = "file_index, file_row_number"
    order = ""
    if table.storage == "cache":
        order = f" QUALIFY row_number() OVER (PARTITION BY {build_key_sql(table)} ORDER BY {position}) = 1"
    elif table.append_only and table.order == "sorted":
        # For a thousand small files, sorting takes half of the time of preserving the order.
        order = f" ORDER BY {position}"
    connection.execute(f"SET preserve_insertion_order = {table.order != 'any'}")
    connection.execute(f"INSERT INTO {table.name} BY NAME SELECT * EXCLUDE ({position}) FROM ({rows}){order}")  # noqa: S608 - declared names
    connection.execute("RESET preserve_insertion_order")


def _replace_warehouse(new_file: Path, warehouse: Path) -> Path | None:
    """Replace the warehouse by the new file.

    A write-ahead log (.wal) of the old warehouse would make the new warehouse unreadable, so it is renamed.

    Returns:
        The new path of the write-ahead log, or None if there was no such log.
    """
    with new_file.open("rb+") as written:
        os.fsync(written.fileno())
    wal = warehouse.with_name(f"{warehouse.name}.wal")
    aside: Path | None = None
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
