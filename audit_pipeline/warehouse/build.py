"""Builds data/audit.duckdb from the Parquet tables and the configuration and swaps it in.

What belongs here: filling a new DuckDB file, taking the old one's place, and the check that every row has its lineage.
What does not: the tables' definitions (schema.py), making them (define.py), reading the finished warehouse (query.py).
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
from filelock import FileLock, Timeout

from audit_pipeline.benchmarks.config import FILE_NAME as BENCHMARKS_FILE
from audit_pipeline.catalogue.contracts import CONFIGURED_BENCHMARKS, CONFIGURED_MODELS, COVERAGE, LINEAGE, RUN_TABLES
from audit_pipeline.catalogue.data_folder import make_private
from audit_pipeline.catalogue.lineage_files import LineageEntry, digests_by_file, missing_files, with_files
from audit_pipeline.catalogue.paths import DataPaths, config_dir, unsegment
from audit_pipeline.catalogue.sql import quoted
from audit_pipeline.errors import DataError
from audit_pipeline.models.config import FILE_NAME as MODELS_FILE
from audit_pipeline.warehouse.configured import configured_benchmarks, configured_models
from audit_pipeline.warehouse.define import WrittenFile, check_keys, create_tables, create_views, fill_derived
from audit_pipeline.warehouse.files import ListedFiles, UnreadableTableFile, changed_since, damaged_files, list_files
from audit_pipeline.warehouse.load import (
    insert,
    keep_one_row_a_key,
    load_benchmark_manifests,
    load_model_cards,
    load_parquet,
    load_rows,
    load_self_digested,
)
from audit_pipeline.warehouse.query import one_line
from audit_pipeline.warehouse.schema import OF_FILES, tables

LOCK_SECONDS = 600.0
"""How long a build waits for another one to end."""

_ATTEMPTS = 3


@dataclass(frozen=True)
class WarehouseReport:
    """What a build did: rows by table, files left out, and where a .wal of somebody's session was moved to, if any.

    ``doubled``: by table, how many rows have a key that another row has too; none is as it should be.
    """

    path: Path
    rows: Mapping[str, int]
    doubled: Mapping[str, int]
    unreadable: tuple[UnreadableTableFile, ...]
    moved_wal: Path | None
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Judgement:
    """What whoever operates the audits makes of what there is: ``up_to_date``, whether each benchmark of the
    configuration is built as its entry says (None: nobody can tell), and ``coverage``, the rows of that table, read
    from the others when they are filled."""

    up_to_date: Mapping[str, bool | None]
    coverage: Callable[[duckdb.DuckDBPyConnection], pa.Table]


Judge = Callable[[Path, DataPaths], Judgement]
"""What judges, by the configuration in a folder, what a data folder holds (operate/coverage.py)."""


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


def build_with(
    judge: Judge, paths: DataPaths, *, include_text: bool = True, config: Path | None = None
) -> WarehouseReport:
    """Build the warehouse from what lies under the data folder and put it in the old one's place.

    Readers that have the old file open keep their snapshot. After any error the old warehouse is still there.
    ``include_text=False`` leaves the excerpts out. ``config`` is the folder of the configuration where it is not the
    usual one; a file of it that cannot be read is named in the report, and its table stays empty.
    Raises DataError where another build does not end in time, or where the file cannot be written.
    """
    started = time.monotonic()
    make_private(paths.root)
    with _one_build_at_a_time(paths.warehouse), _building_folder(paths.warehouse) as folder:
        new = folder / paths.warehouse.name
        try:
            filled = _fill(new, judge, paths, config or config_dir(), include_text=include_text)
            size = new.stat().st_size
            moved_wal = _swap_in(new, paths.warehouse)
        except (duckdb.Error, OSError) as error:
            raise DataError(
                f"the warehouse could not be built, the earlier one is unchanged: {one_line(error)} "
                f"(is the disk full, or {paths.root} not writable?)"
            ) from error
    return WarehouseReport(
        paths.warehouse,
        filled.rows,
        filled.doubled,
        tuple(filled.unreadable),
        moved_wal,
        size,
        time.monotonic() - started,
    )


def read_lineage(paths: DataPaths) -> tuple[list[LineageEntry], list[UnreadableTableFile]]:
    """What every lineage entry says of its file, and the entries that are damaged; no warehouse is built for it."""
    with duckdb.connect() as connection:
        create_tables(connection, [LINEAGE])
        damaged = load_self_digested(connection, LINEAGE, list_files(paths, LINEAGE).paths)
        return _entries(connection), damaged


def lineage_gaps(connection: duckdb.DuckDBPyConnection) -> list[LineageGap]:
    """Every (table, partition, run) where rows and lineage entries do not go together; none is as it should be."""
    found = connection.sql("FROM lineage_gaps").fetchall()
    return [LineageGap(*row) for row in found]


@contextmanager
def _one_build_at_a_time(warehouse: Path) -> Iterator[None]:
    lock = FileLock(warehouse.with_name(f"{warehouse.name}.lock"))
    try:
        with lock.acquire(timeout=LOCK_SECONDS):
            yield
    except Timeout as error:
        raise DataError(
            f"another build of {warehouse} has not ended in {LOCK_SECONDS:.0f} s: wait for it, or end it and try again"
        ) from error


@contextmanager
def _building_folder(warehouse: Path) -> Iterator[Path]:
    """A folder beside the warehouse that holds everything a build writes; what killed builds left behind goes first."""
    for left_over in warehouse.parent.glob(f"{warehouse.name}.*.building"):
        shutil.rmtree(left_over)
    with tempfile.TemporaryDirectory(prefix=f"{warehouse.name}.", suffix=".building", dir=warehouse.parent) as folder:
        yield Path(folder)


@dataclass(frozen=True)
class _Filled:
    rows: Mapping[str, int]
    doubled: Mapping[str, int]
    unreadable: list[UnreadableTableFile]


def _fill(new: Path, judge: Judge, paths: DataPaths, config: Path, *, include_text: bool) -> _Filled:
    """Fill a new file; again where a run replaced a file while it was read, so that no row is of another than its
    entry."""
    for _ in range(_ATTEMPTS):
        # Before the lineage is read: whatever file is there then has its entry.
        listed = {table.name: list_files(paths, table) for table in OF_FILES}
        filled = _fill_from(listed, new, judge(config, paths), paths, config, include_text=include_text)
        changed = changed_since(listed.values())
        if not changed:
            return filled
        new.unlink()
    raise DataError(
        f"{changed[0]} is being written again and again: build the warehouse when the run that does it ends"
    )


def _fill_from(
    listed: Mapping[str, ListedFiles],
    new: Path,
    judgement: Judgement,
    paths: DataPaths,
    config: Path,
    *,
    include_text: bool,
) -> _Filled:
    unreadable: list[UnreadableTableFile] = []
    with duckdb.connect(str(new)) as connection:
        # It would be drawn on standard output, into a pipe too.
        connection.execute("SET enable_progress_bar = false")
        defined = tables(include_text=include_text)
        create_tables(connection, defined)
        of_files = [table for table in defined if table.name in listed]
        for table in (table for table in of_files if table.is_record):
            unreadable += load_self_digested(connection, table, listed[table.name].paths)
        entries = with_files(_entries(connection), paths)
        digests = digests_by_file(entries)
        for table in (table for table in of_files if not table.is_record):
            damaged = damaged_files(listed[table.name], digests)
            whole = listed[table.name].identities.keys() - {one.path for one in damaged}
            unreadable += [*damaged, *load_parquet(connection, table, sorted(whole))]
        unreadable += load_model_cards(connection, paths)
        unreadable += load_benchmark_manifests(connection, paths)
        models, benchmarks = config / MODELS_FILE, config / BENCHMARKS_FILE
        unreadable += load_rows(connection, CONFIGURED_MODELS, models, lambda: configured_models(config))
        unreadable += load_rows(
            connection,
            CONFIGURED_BENCHMARKS,
            benchmarks,
            lambda: configured_benchmarks(config, paths, judgement.up_to_date),
        )
        keep_one_row_a_key(connection)
        left_out = {one.path: one.reason for one in unreadable}
        read = [one for name in RUN_TABLES for one in _written(name, listed[name].identities.keys() - left_out.keys())]
        gone = missing_files(entries, lambda file: file not in left_out and _is_there(file, listed))
        fill_derived(connection, read, gone, left_out)
        insert(connection, COVERAGE, judgement.coverage(connection))
        doubled = check_keys(connection, defined)
        create_views(connection)
        rows = {table.name: _count(connection, table.name) for table in defined}
        connection.execute("CHECKPOINT")
    return _Filled(rows, doubled, sorted(unreadable, key=lambda one: one.path))


def _entries(connection: duckdb.DuckDBPyConnection) -> list[LineageEntry]:
    names = [field.name for field in dataclasses.fields(LineageEntry)]
    rows = connection.execute(f"SELECT {', '.join(map(quoted, names))} FROM lineage").fetchall()  # noqa: S608 - names of a dataclass
    return [LineageEntry(*row) for row in rows]


def _is_there(file: Path, listed: Mapping[str, ListedFiles]) -> bool:
    return any(file in one.identities for one in listed.values()) or file.exists()


_OF_RUN = re.compile(r"partition=(?P<partition>.+)/run_id=(?P<run_id>.+)\.parquet")


def _written(table: str, files: Iterable[Path]) -> list[WrittenFile]:
    """The partition and run in each file's name; files that somebody named otherwise have none."""
    found = (_OF_RUN.fullmatch(f"{file.parent.name}/{file.name}") for file in files)
    return [(table, unsegment(one["partition"]), unsegment(one["run_id"])) for one in found if one]


def _swap_in(new: Path, warehouse: Path) -> Path | None:
    """Move the finished file into place; a .wal of the old one would make it unreadable, and goes aside."""
    with new.open("rb+") as written:
        os.fsync(written.fileno())
    moved = _move_wal_aside(warehouse)
    new.replace(warehouse)
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


def _count(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    counted = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - a declared name
    return int(counted[0]) if counted else 0
