"""Fills a new warehouse, or the copy of an earlier one, from the Parquet files, the documents and the configuration.

What belongs here: the order in which tables are brought up to date, and that no row is of another file than its lineage
entry. What does not: what is carried over (carried_over_rows.py), loading files (table_files.py), the tables that
follow from others (schema.py), where the finished file goes (build.py).
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from audit_pipeline.benchmarks.config import FILE_NAME as BENCHMARKS_FILE
from audit_pipeline.catalogue.contracts import (
    CONFIGURED_BENCHMARKS,
    CONFIGURED_MODELS,
    COVERAGE,
    LOADED_FILES,
    RUN_TABLES,
    TOKEN_STATISTICS,
)
from audit_pipeline.catalogue.duckdb_connections import hide_progress_bar
from audit_pipeline.catalogue.lineage import LineageEntry, digests_by_file, find_missing_files, pair_entries_with_files
from audit_pipeline.catalogue.paths import DataPaths, name_from_path_segment
from audit_pipeline.catalogue.sql import quote_identifier, quote_literal
from audit_pipeline.catalogue.table import Table
from audit_pipeline.errors import DataError, MadeAgainWarning
from audit_pipeline.models.config import FILE_NAME as MODELS_FILE
from audit_pipeline.warehouse.carried_over_rows import (
    Earlier,
    LoadedFile,
    copy_earlier_warehouse,
    loaded_files_to_rows,
    partition_values_to_rows,
    plan_reload,
    record_loaded_files,
)
from audit_pipeline.warehouse.configuration_rows import read_configured_benchmarks, read_configured_models
from audit_pipeline.warehouse.query import error_to_one_line
from audit_pipeline.warehouse.schema import (
    OF_FILES,
    WrittenFile,
    changed_relation_name,
    check_keys,
    create_tables,
    create_views,
    fill_derived_tables,
    list_tables,
    read_duplicate_counts,
    recreate_tables,
)
from audit_pipeline.warehouse.table_files import (
    ListedFiles,
    UnreadableTableFile,
    compare_files,
    delete_changed_rows,
    find_changed_files,
    insert_rows,
    list_files,
    load_benchmark_manifests,
    load_configuration_rows,
    load_model_cards,
    load_parquet,
    load_self_digested,
    remove_duplicate_rows,
)

_ATTEMPTS = 3
STORAGE_VERSION = "v1.1.0"
"""The oldest DuckDB that opens the file: other programs come with older versions than ours (docs/sql.md names them)."""


@dataclass(frozen=True)
class Judgement:
    """The planner's judgement of the data folder: ``up_to_date``, whether each benchmark of the configuration is built
    as its entry says (None: unknown), and ``coverage``, the rows of that table, read
    from the others when they are filled."""

    up_to_date: Mapping[str, bool | None]
    coverage: Callable[[duckdb.DuckDBPyConnection], pa.Table]


Judge = Callable[[Path, DataPaths], Judgement]
"""What judges, by the configuration in a folder, what a data folder holds (operate/coverage.py)."""


@dataclass(frozen=True)
class Filled:
    """What was filled: rows and rows too many by table, files left out, files loaded and carried over, rows taken out
    since the last build of everything."""

    rows: Mapping[str, int]
    doubled: Mapping[str, int]
    unreadable: Sequence[UnreadableTableFile]
    files_loaded: int
    files_carried_over: int
    rows_taken_out: int


@dataclass(frozen=True)
class Site:
    """What a warehouse is built from, and where; ``settled_ns``: see compute_settled_cutoff."""

    paths: DataPaths
    new: Path
    judge: Judge
    config: Path
    settled_ns: int


def fill_warehouse(site: Site, build_environment: Mapping[str, Any], *, include_text: bool, everything: bool) -> Filled:
    """Fill a new file; again where a run replaced a file while it was read.

    So no row is of another file than its entry. ``build_environment`` says what the warehouse is made with: an earlier
    one is carried over only if it was made with the same.

    Raises DataError where a run writes the same file again and again.
    """
    for _ in range(_ATTEMPTS):
        # Before the lineage is read: whatever file is there then has its entry.
        listed = {table.name: list_files(site.paths, table) for table in OF_FILES}
        defined = list_tables(include_text=include_text)
        earlier = (
            None if everything else copy_earlier_warehouse(site.paths, site.new, build_environment, listed.values())
        )
        try:
            filled = _fill_from(listed, site, earlier, defined)
        except duckdb.Error as error:
            if earlier is None:
                raise
            warnings.warn(
                MadeAgainWarning(f"the whole warehouse is built again: {error_to_one_line(error)}"), stacklevel=2
            )
            site.new.unlink()
            filled = _fill_from(listed, site, None, defined)
        changed = find_changed_files(listed.values())
        if not changed:
            return filled
        site.new.unlink()
    raise DataError(
        f"{changed[0]} is being written again and again: build the warehouse when the run that does it ends"
    )


def _fill_from(
    listed_files: Mapping[str, ListedFiles],
    site: Site,
    earlier_warehouse: Earlier | None,
    defined_tables: Sequence[Table],
) -> Filled:
    if not site.new.exists():
        create_database(site.new)
    with duckdb.connect(str(site.new)) as connection:
        hide_progress_bar(connection)
        return _fill_tables(connection, listed_files, site, earlier_warehouse, defined_tables)


def create_database(file: Path) -> None:
    """Make an empty database that DuckDB from STORAGE_VERSION on opens; later writes keep that version."""
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH {quote_literal(str(file))} AS made (STORAGE_VERSION '{STORAGE_VERSION}')")


def _fill_tables(
    connection: duckdb.DuckDBPyConnection,
    listed_files: Mapping[str, ListedFiles],
    site: Site,
    earlier_warehouse: Earlier | None,
    defined_tables: Sequence[Table],
) -> Filled:
    judgement = site.judge(site.config, site.paths)
    before: Mapping[str, int] = {}
    if earlier_warehouse is None:
        create_tables(connection, defined_tables)
    else:
        before = read_duplicate_counts(connection)
        recreate_tables(connection, (table for table in defined_tables if table.kept == "given"))
    loader = _Loader(connection, listed_files, earlier_warehouse, site.settled_ns)
    of_files = [table for table in defined_tables if table.name in listed_files]
    for table in (table for table in of_files if table.is_record):
        loader.load(table, {})
    entries = pair_entries_with_files(read_lineage_entries(connection), site.paths)
    digests = digests_by_file(entries)
    for table in (table for table in of_files if not table.is_record):
        loader.load(table, digests)
    remove_duplicate_rows(connection, changed_relation_name(TOKEN_STATISTICS.name))
    unreadable = [*loader.unreadable, *_load_given(connection, site, judgement)]
    insert_rows(connection, LOADED_FILES, loaded_files_to_rows(loader.loaded, site.paths))
    left_out = {file.path: file.reason for file in unreadable}
    read = [
        file
        for name in RUN_TABLES
        for file in _parse_written_files(name, listed_files[name].identities.keys() - left_out.keys())
    ]
    gone = find_missing_files(entries, lambda file: file not in left_out and _is_there(file, listed_files))
    fill_derived_tables(connection, read, gone, left_out)
    if earlier_warehouse is None:
        create_views(connection)
    insert_rows(connection, COVERAGE, judgement.coverage(connection))
    doubled = check_keys(connection, defined_tables, before)
    rows = {table.name: _count_rows(connection, table.name) for table in defined_tables}
    connection.execute("CHECKPOINT")
    return Filled(
        rows,
        doubled,
        sorted(unreadable, key=lambda file: file.path),
        loader.files_loaded,
        loader.files_carried_over,
        loader.rows_taken_out,
    )


class _Loader:
    """Brings the tables of files up to date, one after the other, and keeps what it did."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        listed_files: Mapping[str, ListedFiles],
        earlier_warehouse: Earlier | None,
        settled_ns: int,
    ) -> None:
        self._connection, self._listed, self._settled_ns = connection, listed_files, settled_ns
        self._earlier = earlier_warehouse.files if earlier_warehouse else {}
        self.rows_taken_out = earlier_warehouse.rows_taken_out if earlier_warehouse else 0
        self.loaded: dict[str, Mapping[Path, LoadedFile]] = {}
        self.unreadable: list[UnreadableTableFile] = []
        self.files_loaded = self.files_carried_over = 0

    def load(self, table: Table, digests: Mapping[Path, Collection[str]]) -> None:
        """Take out the rows of files that are gone or have changed, and load those that are new or have changed."""
        listed = self._listed[table.name]
        part = plan_reload(listed, self._earlier.get(table.name, {}), digests)
        if part.out:
            self._connection.register("out", partition_values_to_rows(table, part.out))
            delete_changed_rows(self._connection, table, "out")
            self._connection.unregister("out")
        sha256: Mapping[Path, str] = {}
        if table.is_record:
            found = load_self_digested(self._connection, table, part.load)
        else:
            compared = compare_files(table, part.load, digests)
            damaged = {file.path for file in compared.damaged}
            self.unreadable += compared.damaged
            whole = [path for path in part.load if path not in damaged]
            sha256, found = compared.sha256, load_parquet(self._connection, table, whole)
        self.unreadable += found.unreadable
        now = record_loaded_files(listed, found.files, sha256, self._settled_ns)
        self.loaded[table.name] = {**part.carried, **now}
        self.files_loaded += len(now)
        self.files_carried_over += len(part.carried)
        self.rows_taken_out += part.rows_out
        holds = frozenset(part.out).union(*(rows.holds for rows in found.files.values()))
        self._connection.register("changed", partition_values_to_rows(table, holds))
        self._connection.execute(f"CREATE TEMP TABLE {changed_relation_name(table.name)} AS FROM changed")
        self._connection.unregister("changed")


def _load_given(
    connection: duckdb.DuckDBPyConnection, site: Site, judgement: Judgement
) -> Iterator[UnreadableTableFile]:
    """Fill the tables of JSON documents and of the configuration; what of them cannot be read."""
    yield from load_model_cards(connection, site.paths)
    yield from load_benchmark_manifests(connection, site.paths)
    models, benchmarks = site.config / MODELS_FILE, site.config / BENCHMARKS_FILE
    yield from load_configuration_rows(
        connection, CONFIGURED_MODELS, models, lambda: read_configured_models(site.config)
    )
    yield from load_configuration_rows(
        connection,
        CONFIGURED_BENCHMARKS,
        benchmarks,
        lambda: read_configured_benchmarks(site.config, site.paths, judgement.up_to_date),
    )


def read_lineage_entries(connection: duckdb.DuckDBPyConnection) -> list[LineageEntry]:
    """What every row of the table lineage says of its file."""
    names = [field.name for field in dataclasses.fields(LineageEntry)]
    rows = connection.execute(f"SELECT {', '.join(map(quote_identifier, names))} FROM lineage").fetchall()  # noqa: S608 - names of a dataclass
    return [LineageEntry(*row) for row in rows]


def _is_there(file: Path, listed_files: Mapping[str, ListedFiles]) -> bool:
    return any(file in files.identities for files in listed_files.values()) or file.exists()


_OF_RUN = re.compile(r"partition=(?P<partition>.+)/run_id=(?P<run_id>.+)\.parquet")


def _parse_written_files(table: str, files: Iterable[Path]) -> list[WrittenFile]:
    """The partition and run in each file's name; files with other names have none."""
    found = (_OF_RUN.fullmatch(f"{file.parent.name}/{file.name}") for file in files)
    return [
        (table, name_from_path_segment(match["partition"]), name_from_path_segment(match["run_id"]))
        for match in found
        if match
    ]


def _count_rows(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    counted = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - a declared name
    return int(counted[0]) if counted else 0
