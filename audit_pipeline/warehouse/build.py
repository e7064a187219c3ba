"""Builds data/audit.duckdb and swaps it in; says where its rows and the lineage do not go together.

What belongs here: one build at a time, in a folder of its own, taking the old one's place. What does not: filling the
file (fill.py), the tables' definitions (schema.py), reading the finished warehouse (query.py).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from audit_pipeline.catalogue.bucket_folder import publish_warehouse, refresh
from audit_pipeline.catalogue.ledger import read_ledger
from audit_pipeline.catalogue.locks import hold_lock
from audit_pipeline.catalogue.paths import DataPaths, config_dir, make_private
from audit_pipeline.errors import DataError
from audit_pipeline.warehouse.fill import Filled, Judge, Site, fill_warehouse
from audit_pipeline.warehouse.query import error_to_one_line

LOCK_SECONDS = 600.0
"""How long a build waits for another one to end."""


@dataclass(frozen=True)
class WarehouseReport:
    """What a build did; ``moved_wal``: where the .wal of another session was moved to, if any."""

    path: Path
    filled: Filled
    moved_wal: Path | None
    bytes: int
    seconds: float


@dataclass(frozen=True)
class LineageGap:
    """A lineage entry without its file, or with a damaged one; ``what`` says which."""

    table: str
    partition: str
    run_id: str
    is_left_out: bool
    what: str


def build_warehouse_file(
    judge: Judge, paths: DataPaths, *, include_text: bool = True, config: Path | None = None
) -> WarehouseReport:
    """Build the warehouse from what lies under the data folder and put it in the old one's place.

    Every file is compared with its digest; those that are not as they were written are left out and named. Readers that
    have the old file open keep their snapshot. After any error the old warehouse is still there.
    ``include_text=False`` leaves the excerpts out. ``config`` is the folder of the configuration where it is not the
    usual one; a file of it that cannot be read is named in the report, and its table stays empty. Raises DataError
    where another build does not end in time, or where the file cannot be written.
    """
    started = time.monotonic()
    make_private(paths.root)
    with _one_build_at_a_time(paths.warehouse), _building_folder(paths.warehouse) as folder:
        new = folder / paths.warehouse.name
        try:
            ledger = read_ledger(paths)
            version = f"{len(ledger.lines):06}-{ledger.forgotten:06}"
            filled = fill_warehouse(Site(paths, new, judge, config or config_dir()), include_text=include_text)
            size = new.stat().st_size
            moved_wal = publish_warehouse(new, paths.warehouse, version, lambda: _swap_in(new, paths.warehouse))
        except (duckdb.Error, OSError) as error:
            raise DataError(
                f"the warehouse could not be built, the earlier one is unchanged: {error_to_one_line(error)} "
                f"(is the disk full, or {paths.root} not writable?)"
            ) from error
    return WarehouseReport(paths.warehouse, filled, moved_wal, size, time.monotonic() - started)


def read_lineage_gaps(connection: duckdb.DuckDBPyConnection) -> list[LineageGap]:
    """Every lineage entry whose file is not there, or was left out; none is as it should be."""
    found = connection.sql("FROM lineage_gaps").fetchall()
    return [LineageGap(*row) for row in found]


@contextmanager
def _one_build_at_a_time(warehouse: Path) -> Iterator[None]:
    with hold_lock(warehouse.with_name(f"{warehouse.name}.lock"), LOCK_SECONDS):
        refresh(warehouse.parent)
        yield


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
