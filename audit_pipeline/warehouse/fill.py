"""Fills a new warehouse from the ledger, the Parquet files that it explains, the documents and the configuration.

What belongs here: the order in which tables are filled, and that no row is of another file than its lineage entry. What
does not: comparing and loading files (table_files.py), the tables that follow from others (schema.py), where the
finished file goes (build.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from audit_pipeline.benchmarks.config import FILE_NAME as BENCHMARKS_FILE
from audit_pipeline.catalogue.contracts import CONFIGURED_BENCHMARKS, CONFIGURED_MODELS, COVERAGE
from audit_pipeline.catalogue.duckdb_connections import hide_progress_bar, open_in_memory
from audit_pipeline.catalogue.ledger import Ledger, read_ledger
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.sql import quote_literal
from audit_pipeline.catalogue.table import Table
from audit_pipeline.errors import DataError
from audit_pipeline.models.config import FILE_NAME as MODELS_FILE
from audit_pipeline.warehouse.configuration_rows import read_configured_benchmarks, read_configured_models
from audit_pipeline.warehouse.schema import (
    OF_FILES,
    check_keys,
    create_tables,
    create_views,
    fill_derived_tables,
    list_tables,
)
from audit_pipeline.warehouse.table_files import (
    UnreadableTableFile,
    VerifiedFiles,
    insert_rows,
    load_benchmark_manifests,
    load_configuration_rows,
    load_ledger,
    load_model_cards,
    load_parquet,
    verify_files,
)

_ATTEMPTS = 3
STORAGE_VERSION = "v1.3.0"
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
    """What was filled: rows and rows too many by table, how many Parquet files were loaded, the files that were left
    out, and those among them that no line of the ledger explains."""

    rows: Mapping[str, int]
    doubled: Mapping[str, int]
    files: int
    left_out: tuple[UnreadableTableFile, ...]
    unexplained: tuple[Path, ...]


@dataclass(frozen=True)
class Site:
    """What a warehouse is built from, and where."""

    paths: DataPaths
    new: Path
    judge: Judge
    config: Path


def fill_warehouse(site: Site, *, include_text: bool) -> Filled:
    """Fill a new file; again where a run replaced a file while it was read, so that no row is of another file than its
    entry.

    Raises DataError where a run writes the same file again and again.
    """
    tables = list_tables(include_text=include_text)
    for _ in range(_ATTEMPTS):
        create_database(site.new, tables)
        # Files after the ledger: whatever file is there that no line explains was there before.
        ledger = read_ledger(site.paths)
        files = verify_files(site.paths, ledger)
        with duckdb.connect(str(site.new)) as connection:
            hide_progress_bar(connection)
            filled = _fill_tables(connection, files, ledger, site, tables)
        replaced = files.find_replaced_file()
        if replaced is None:
            return filled
        site.new.unlink()
    raise DataError(f"{replaced} is being written again and again: build the warehouse when the run that does it ends")


def create_database(file: Path, tables: Sequence[Table]) -> None:
    """Make the empty tables, views and macros, in a file that DuckDB from STORAGE_VERSION on opens."""
    with open_in_memory() as connection:
        connection.execute(f"ATTACH {quote_literal(str(file))} AS made (STORAGE_VERSION '{STORAGE_VERSION}')")
        connection.execute("USE made")
        create_tables(connection, tables)
        create_views(connection)


def _fill_tables(
    connection: duckdb.DuckDBPyConnection, files: VerifiedFiles, ledger: Ledger, site: Site, tables: Sequence[Table]
) -> Filled:
    judgement = site.judge(site.config, site.paths)
    load_ledger(connection, ledger)
    of_files = {table.name for table in OF_FILES}
    for table in tables:
        if table.name in of_files:
            load_parquet(connection, table, files.by_table.get(table.name, ()))
    left_out = [*files.left_out, *_load_given(connection, site, judgement)]
    reasons = {file.path: file.reason for file in left_out}
    fill_derived_tables(connection, files.explained, files.missing, ledger.entries, reasons, site.paths)
    insert_rows(connection, COVERAGE, judgement.coverage(connection))
    doubled = check_keys(connection, tables)
    rows = {table.name: _count_rows(connection, table.name) for table in tables}
    connection.execute("CHECKPOINT")
    loaded = sum(map(len, files.by_table.values()))
    return Filled(rows, doubled, loaded, tuple(sorted(left_out, key=lambda file: file.path)), tuple(files.unexplained))


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


def _count_rows(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    counted = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - a declared name
    return int(counted[0]) if counted else 0
