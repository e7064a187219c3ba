"""Builds data/audit.duckdb from the Parquet tables and the configuration and swaps it in.

What belongs here: filling a new DuckDB file, taking the old one's place, and the check that every row has its lineage.
What does not: the tables' definitions (schema.py), making them (define.py), reading the finished warehouse (query.py).
"""

from __future__ import annotations

import glob
import json
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
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from audit_pipeline.benchmarks.config import FILE_NAME as BENCHMARKS_FILE
from audit_pipeline.contracts import LATER_COLUMNS, RUN_TABLES
from audit_pipeline.errors import AuditError, DataError
from audit_pipeline.models.config import FILE_NAME as MODELS_FILE
from audit_pipeline.paths import DataPaths, config_dir, unsegment
from audit_pipeline.tables import read_json
from audit_pipeline.warehouse.configured import Configured, configured_benchmarks, configured_models
from audit_pipeline.warehouse.define import WrittenFile, check_keys, create_tables, create_views, fill_derived
from audit_pipeline.warehouse.query import one_line
from audit_pipeline.warehouse.schema import PARQUET_TABLES, Table, literal, quoted, tables

LOCK_SECONDS = 600.0
"""How long a build waits for another one to end."""


@dataclass(frozen=True)
class Unreadable:
    """A file that was left out, and why."""

    path: Path
    reason: str


@dataclass(frozen=True)
class BuildReport:
    """What a build did: rows by table, files left out, and where a .wal of somebody's session was moved to, if any.

    ``doubled``: by table, how many rows have a key that another row has too; none is as it should be.
    """

    path: Path
    rows: Mapping[str, int]
    doubled: Mapping[str, int]
    unreadable: tuple[Unreadable, ...]
    moved_wal: Path | None
    bytes: int
    seconds: float


@dataclass(frozen=True)
class LineageGap:
    """Rows of one table, partition and run that do not join to exactly one lineage row."""

    table: str
    partition: str
    run_id: str
    rows: int
    lineage_rows: int


def build_warehouse(paths: DataPaths, *, include_text: bool = True, config: Path | None = None) -> BuildReport:
    """Build the warehouse from what lies under the data folder and put it in the old one's place.

    Readers that have the old file open keep their snapshot. After any error the old warehouse is still there.
    ``include_text=False`` leaves the excerpts out. ``config`` is the folder of the configuration where it is not the
    usual one; a file of it that cannot be read is named in the report, and its table stays empty.
    Raises DataError where another build does not end in time, or where the file cannot be written.
    """
    started = time.monotonic()
    paths.root.mkdir(parents=True, exist_ok=True)
    with _one_build_at_a_time(paths.warehouse), _building_folder(paths.warehouse) as folder:
        new = folder / paths.warehouse.name
        try:
            filled = _fill(new, paths, config or config_dir(), include_text=include_text)
            size = new.stat().st_size
            moved_wal = _swap_in(new, paths.warehouse)
        except (duckdb.Error, OSError) as error:
            raise DataError(
                f"the warehouse could not be built, the earlier one is unchanged: {one_line(error)} "
                f"(is the disk full, or {paths.root} not writable?)"
            ) from error
    return BuildReport(
        paths.warehouse,
        filled.rows,
        filled.doubled,
        tuple(filled.unreadable),
        moved_wal,
        size,
        time.monotonic() - started,
    )


def lineage_gaps(connection: duckdb.DuckDBPyConnection) -> list[LineageGap]:
    """Every (table, partition, run) whose rows join to no lineage row, or to several; none is as it should be."""
    found = connection.sql("FROM lineage_gaps").fetchall()
    return [LineageGap(*row) for row in found]


def _without_query(error: duckdb.Error) -> str:
    """What DuckDB says is wrong with a file, without the piece of our own query that it points at."""
    return " ".join(str(error).split("\n\nLINE ")[0].split())


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
    unreadable: list[Unreadable]


def _fill(new: Path, paths: DataPaths, config: Path, *, include_text: bool) -> _Filled:
    unreadable: list[Unreadable] = []
    read: list[WrittenFile] = []
    with duckdb.connect(str(new)) as connection:
        # It would be drawn on standard output, into a pipe too.
        connection.execute("SET enable_progress_bar = false")
        defined = tables(include_text=include_text)
        create_tables(connection, defined)
        for table in defined:
            if table.name in PARQUET_TABLES:
                files = _parquet_files(paths, table.name)
                left_out = _load_parquet(connection, table, files)
                unreadable += left_out
                if table.name in RUN_TABLES:
                    read += _written(table.name, set(files) - {one.path for one in left_out})
        unreadable += _load_json(connection, "models", _model_cards(paths), _model_row)
        unreadable += _load_json(connection, "benchmarks", _benchmark_manifests(paths), _benchmark_row)
        models, benchmarks = config / MODELS_FILE, config / BENCHMARKS_FILE
        unreadable += _load_rows(connection, "configured_models", models, lambda: configured_models(config))
        unreadable += _load_rows(
            connection, "configured_benchmarks", benchmarks, lambda: configured_benchmarks(config, paths)
        )
        _keep_one_row_a_key(connection)
        fill_derived(connection, read)
        doubled = check_keys(connection, defined)
        create_views(connection)
        rows = {table.name: _count(connection, table.name) for table in defined}
        connection.execute("CHECKPOINT")
    return _Filled(rows, doubled, unreadable)


_OF_RUN = re.compile(r"partition=(?P<partition>.+)/run_id=(?P<run_id>.+)\.parquet")


def _written(table: str, files: Iterable[Path]) -> list[WrittenFile]:
    """The partition and run that each file's name tells; files that somebody named otherwise tell none."""
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
    counted = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - a name from schema.py
    return int(counted[0]) if counted else 0


def _parquet_files(paths: DataPaths, table: str) -> list[Path]:
    folder = paths.table(table) if table != "token_statistics" else paths.token_statistics("base", "any").parent
    return sorted(folder.rglob("*.parquet"))


def _load_parquet(connection: duckdb.DuckDBPyConnection, table: Table, files: list[Path]) -> list[Unreadable]:
    """Load all files in one go; where that fails, those of each version together, and where that fails one by one.

    So files of earlier versions, which lack columns, are loaded, and those that cannot be read are left out and named.
    """
    try:
        _insert(connection, table, files)
    except duckdb.Error:
        by_version: dict[frozenset[str], list[Path]] = {}
        for file in files:
            by_version.setdefault(_not_there_yet(table, file), []).append(file)
        return [
            one for lacking, version in by_version.items() for one in _load_version(connection, table, version, lacking)
        ]
    return []


def _load_version(
    connection: duckdb.DuckDBPyConnection, table: Table, files: list[Path], lacking: frozenset[str]
) -> list[Unreadable]:
    try:
        _insert(connection, table, files, lacking)
    except duckdb.Error:
        unreadable = []
        for file in files:
            try:
                _insert(connection, table, [file], lacking)
            except duckdb.Error as error:
                unreadable.append(Unreadable(file, _without_query(error)))
        return unreadable
    return []


def _not_there_yet(table: Table, file: Path) -> frozenset[str]:
    """The columns that came after the version that wrote the file; none of a file that cannot be read."""
    try:
        return LATER_COLUMNS.get(table.name, frozenset()) - set(pq.read_schema(file).names)
    except (pa.ArrowException, OSError):
        return frozenset()


def _insert(
    connection: duckdb.DuckDBPyConnection, table: Table, files: list[Path], lacking: frozenset[str] = frozenset()
) -> None:
    if not files:
        return
    columns = [name for name in connection.table(table.name).columns if name not in lacking]
    expressions = ", ".join(f"{table.expressions.get(name, quoted(name))} AS {quoted(name)}" for name in columns)
    names = ", ".join(literal(glob.escape(str(file))) for file in files)
    connection.execute(
        f"INSERT INTO {table.name} BY NAME SELECT {expressions}"  # noqa: S608 - names from schema.py, paths quoted
        f" FROM read_parquet([{names}], hive_partitioning = false, union_by_name = false, filename = true)"
    )


def _keep_one_row_a_key(connection: duckdb.DuckDBPyConnection) -> None:
    """Disjoint workers and a compaction can leave the same text in two part files of the cache."""
    connection.execute(
        "DELETE FROM token_statistics WHERE rowid NOT IN"
        " (SELECT min(rowid) FROM token_statistics GROUP BY model_fingerprint, key)"
    )


def _model_cards(paths: DataPaths) -> list[Path]:
    folder = paths.model_card("any").parent
    return [path for path in sorted(folder.glob("*.json")) if path != paths.digest_cache]


def _benchmark_manifests(paths: DataPaths) -> list[Path]:
    manifest = paths.benchmark_manifest("any")
    return sorted(manifest.parent.parent.glob(f"*/{manifest.name}"))


def _load_json(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    files: list[Path],
    row_of: Callable[[Path, Mapping[str, Any]], Mapping[str, object]],
) -> list[Unreadable]:
    """One row a JSON file; a value that does not fit its column stays in the whole document and is null beside it."""
    relation = connection.table(table)
    names = relation.columns
    values = ", ".join(f"TRY_CAST(? AS {sql_type})" for sql_type in relation.types)
    unreadable = []
    for file in files:
        try:
            document = read_json(file)
            if not isinstance(document, Mapping):
                raise ValueError("not a JSON object")
            row = row_of(file, document)
            cells = [_cell(row.get(name)) for name in names]
            connection.execute(f"INSERT INTO {table} VALUES ({values})", cells)  # noqa: S608 - a name from schema.py
        except (OSError, ValueError, duckdb.ConstraintException) as error:
            unreadable.append(Unreadable(file, one_line(error)))
    return unreadable


def _load_rows(
    connection: duckdb.DuckDBPyConnection, table: str, file: Path, read: Callable[[], Configured]
) -> list[Unreadable]:
    """The rows that a file of the configuration gives; where it cannot be read, it is named and there are none."""
    try:
        configured = read()
    except (AuditError, OSError) as error:
        return [Unreadable(file, one_line(error))]
    if configured.rows:
        names = connection.table(table).columns
        marks = ", ".join("?" for _ in names)
        cells = [[row[name] for name in names] for row in configured.rows]
        connection.executemany(f"INSERT INTO {table} VALUES ({marks})", cells)  # noqa: S608 - a name from schema.py
    return [Unreadable(problem.path, str(problem)) for problem in configured.problems]


def _model_row(file: Path, card: Mapping[str, Any]) -> Mapping[str, object]:
    return {**card, "fingerprint": card.get("fingerprint") or file.stem, "card": dict(card)}


def _benchmark_row(file: Path, manifest: Mapping[str, Any]) -> Mapping[str, object]:
    spec = manifest.get("spec")
    spec = spec if isinstance(spec, Mapping) else {}
    return {
        "benchmark": manifest.get("benchmark") or unsegment(file.parent.name.removeprefix("benchmark=")),
        "digest": manifest.get("digest"),
        "design": manifest.get("design", spec.get("design")),
        "design_stated_by": manifest.get("design_stated_by"),
        "words": manifest.get("words", spec.get("words")),
        "counts": _as_json(manifest.get("counts")),
        "manifest": dict(manifest),
    }


def _as_json(value: object) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


def _cell(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else _as_json(value)
