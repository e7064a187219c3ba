"""The files that a build reads, each compared with its lineage entry or its own name, and their rows put into tables.

What belongs here: which Parquet files there are, and which of them are not as they were written; getting the content of
a file (Parquet, JSON documents, rows of the configuration) into its table, and naming the file where that cannot be.
What does not: what a digest is (catalogue/integrity.py), which file an entry explains (catalogue/lineage.py), the
order of it all (fill.py), tables that are derived from others (schema.py).
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from audit_pipeline.catalogue.contracts import BENCHMARKS, MODELS
from audit_pipeline.catalogue.duckdb_connections import open_in_memory
from audit_pipeline.catalogue.files import read_json
from audit_pipeline.catalogue.integrity import (
    ROW_SHA256,
    DamagedError,
    FileIdentity,
    file_identity,
    file_sha256,
    row_sha256_sql,
)
from audit_pipeline.catalogue.paths import DataPaths, name_from_path_segment
from audit_pipeline.catalogue.sql import (
    build_column_expressions,
    build_later_columns_sql,
    quote_identifier,
    quote_literal,
)
from audit_pipeline.catalogue.table import Table
from audit_pipeline.catalogue.working_copy import fetch_folder_on_demand
from audit_pipeline.errors import AuditError
from audit_pipeline.token_statistics.cache import digest_in_name
from audit_pipeline.warehouse.configuration_rows import Configured
from audit_pipeline.warehouse.query import error_to_one_line


@dataclass(frozen=True)
class UnreadableTableFile:
    """A file that was left out, and why."""

    path: Path
    reason: str


@dataclass(frozen=True)
class ListedFiles:
    """The files of a table as they were found before the lineage was read: by then each had its entry."""

    table: Table
    identities: Mapping[Path, FileIdentity]

    @property
    def paths(self) -> list[Path]:
        return list(self.identities)

    @property
    def may_change(self) -> bool:
        """Whether a run replaces such files, or a compaction merges them; the others are only ever added."""
        return not self.table.append_only


def list_files(paths: DataPaths, table: Table) -> ListedFiles:
    """Every Parquet file of a table, in path order; of the cache those of the kind that the warehouse holds."""
    folder = paths.table(table.name) if table.kept != "cache" else paths.token_statistics("base", "any").parent
    if table.kept == "cache":
        fetch_folder_on_demand(folder)
    # Not rglob: a folder of ten thousand files is listed, and put in order, in a fifth of the time.
    names = [os.path.join(place, name) for place, _, names in os.walk(folder) for name in names]
    found = {}
    for path in map(Path, sorted(name for name in names if name.endswith(".parquet"))):
        try:
            found[path] = file_identity(path)
        except FileNotFoundError:
            # Merged or forgotten between the two looks.
            continue
    return ListedFiles(table, found)


@dataclass(frozen=True)
class ComparedFiles:
    """The files whose bytes are not those in their entry, or in their name; the sha256 of the whole ones that have an
    entry with a digest."""

    damaged: Sequence[UnreadableTableFile]
    sha256: Mapping[Path, str]


def compare_files(table: Table, files: Iterable[Path], digests: Mapping[Path, Collection[str]]) -> ComparedFiles:
    """Read files of a table and compare each with its digest; unknown digests damage nothing."""
    damaged, known = [], {}
    for path in files:
        try:
            found = _verify_digest(path, table, digests.get(path, ()))
        except (DamagedError, OSError) as error:
            damaged.append(UnreadableTableFile(path, str(error)))
        else:
            known.update({path: found} if found else {})
    return ComparedFiles(damaged, known)


def find_changed_files(listed_files: Iterable[ListedFiles]) -> list[Path]:
    """The files that were replaced or taken away since they were listed."""
    return [
        path
        for files in listed_files
        if files.may_change
        for path, identity in files.identities.items()
        if not _has_identity(path, identity)
    ]


def _verify_digest(path: Path, table: Table, digests: Collection[str]) -> str | None:
    """The sha256 of a file; None where there is nothing to compare it with. Raises DamagedError."""
    if table.kept == "cache":
        named = digest_in_name(path)
        digests = [named] if named else []
    if not digests:
        return None
    # Not known_sha256: what is read now is compared now, however long this process has been running.
    found = file_sha256(path)
    if not found.startswith(tuple(digests)):
        raise DamagedError("it is not as it was written: its sha256 is not the one in its entry, or in its name")
    return found


def _has_identity(path: Path, identity: FileIdentity) -> bool:
    try:
        return file_identity(path) == identity
    except FileNotFoundError:
        return False


# The second: what DuckDB says of a damaged file may quote bytes that are no text.
_LOAD_ERRORS = (duckdb.Error, UnicodeDecodeError)


@dataclass(frozen=True)
class FileRows:
    """What a file gave: how many rows, and its values in the partition columns."""

    rows: int = 0
    holds: frozenset[tuple[str, ...]] = frozenset()


@dataclass(frozen=True)
class Loaded:
    """The files that were loaded, with what each gave, and those that could not be."""

    files: Mapping[Path, FileRows]
    unreadable: Sequence[UnreadableTableFile]


def load_parquet(connection: duckdb.DuckDBPyConnection, table: Table, files: Sequence[Path]) -> Loaded:
    """Load all files in one go; those that cannot be read are left out and named."""
    loaded: dict[Path, FileRows] = {}
    unreadable = _load_or_bisect(
        table, files, lambda rows, part: loaded.update(_insert_file_rows(connection, table, rows, part))
    )
    return Loaded(loaded, unreadable)


def load_self_digested(connection: duckdb.DuckDBPyConnection, table: Table, files: Sequence[Path]) -> Loaded:
    """As :func:`load_parquet`, for a table of one row per file that carries its own digest, which is compared."""
    loaded: dict[Path, FileRows] = {}
    wrong: dict[Path, str] = {}

    def load(rows: str, part: Sequence[Path]) -> None:
        whole, not_whole = _verify_rows(table, rows, part)
        connection.register("whole", whole)
        try:
            loaded.update(
                _insert_file_rows(connection, table, "whole", [path for path in part if path not in not_whole])
            )
        finally:
            connection.unregister("whole")
        wrong.update(not_whole)

    unreadable = _load_or_bisect(table, files, load)
    if len(files) == 1:
        return Loaded(loaded, [*unreadable, *(UnreadableTableFile(*item) for item in wrong.items())])
    # Halves, down to each for itself: how one damaged file is read may change how all of them are.
    again = [load_self_digested(connection, table, half) for half in _split_in_halves(list(wrong))]
    for half in again:
        loaded.update(half.files)
    return Loaded(loaded, [*unreadable, *(file for half in again for file in half.unreadable)])


def _load_or_bisect(
    table: Table, files: Sequence[Path], load: Callable[[str, Sequence[Path]], None]
) -> list[UnreadableTableFile]:
    """Call ``load`` with SQL for the rows of Parquet files, and their column filename, and with the files.

    All in one go; where that fails those of each version together, for files of earlier versions lack the columns that
    came later, which are null then; where that fails halves of them, to name those that cannot be read.
    """
    if not files:
        return []
    try:
        load(_build_rows_sql(files), files)
    except _LOAD_ERRORS:
        versions = _group_by_columns(files)
    else:
        return []
    if len(versions) > 1:
        return [file for version in versions for file in _load_or_bisect(table, version, load)]
    try:
        load(_build_padded_rows_sql(table, files), files)
    except _LOAD_ERRORS as error:
        if len(files) == 1:
            return [UnreadableTableFile(files[0], _strip_query(error))]
        return [file for half in _split_in_halves(files) for file in _load_or_bisect(table, half, load)]
    return []


def _build_rows_sql(files: Sequence[Path]) -> str:
    return (
        f"read_parquet({_build_path_list_sql(files)}, hive_partitioning = false, filename = true, union_by_name = "
        "false)"
    )


def _build_padded_rows_sql(table: Table, files: Sequence[Path]) -> str:
    """The rows, with a null in every column that came later and that the files, which are all of one version, lack."""
    later = build_later_columns_sql(table)
    if not later:
        return _build_rows_sql(files)
    return f"(SELECT {later} WHERE false UNION ALL BY NAME SELECT * FROM {_build_rows_sql(files)})"  # noqa: S608 - declared names


def _group_by_columns(files: Sequence[Path]) -> list[Sequence[Path]]:
    """The files by the columns that they have; all together where one cannot be read."""
    query = (
        f"SELECT file_name, list_sort(list(name)) FROM parquet_schema({_build_path_list_sql(files)}) GROUP BY file_name"  # noqa: S608 - paths, quoted
    )
    try:
        with open_in_memory() as aside:
            columns = {name: tuple(names) for name, names in aside.execute(query).fetchall()}
    except _LOAD_ERRORS:
        return [files]
    versions: dict[tuple[str, ...] | None, list[Path]] = {}
    for file in files:
        versions.setdefault(columns.get(str(file)), []).append(file)
    return list(versions.values())


def _build_path_list_sql(files: Sequence[Path]) -> str:
    return f"[{', '.join(quote_literal(glob.escape(str(file))) for file in files)}]"


def _split_in_halves(files: Sequence[Path]) -> list[Sequence[Path]]:
    middle = (len(files) + 1) // 2
    return [half for half in (files[:middle], files[middle:]) if half]


def _verify_rows(table: Table, rows: str, files: Sequence[Path]) -> tuple[pa.Table, dict[Path, str]]:
    """The rows that are as they were written; the files whose row is not, and why."""
    holds = f"{ROW_SHA256} IS NULL OR {ROW_SHA256} = {row_sha256_sql(table.schema)}"
    # A database of its own: a footer that makes no sense can bring DuckDB to declare all of a database invalid.
    with open_in_memory() as aside:
        aside.execute(f"CREATE TABLE compared AS SELECT *, {holds} AS holds FROM {rows}")  # noqa: S608 - declared names
        whole = aside.sql("SELECT * EXCLUDE holds FROM compared WHERE holds").to_arrow_table()
        found = dict(aside.sql("SELECT filename, bool_and(holds) FROM compared GROUP BY filename").fetchall())
    wrong = {file: "its row is not as it was written" for file in files if found.get(str(file)) is False}
    return whole, wrong | {file: "it holds no row" for file in files if str(file) not in found}


def _insert_file_rows(
    connection: duckdb.DuckDBPyConnection, table: Table, rows: str, files: Sequence[Path]
) -> dict[Path, FileRows]:
    """Insert the rows of files; what each of them gave. Where this fails, nothing is inserted."""
    of_columns = build_column_expressions(table)
    partition_columns = ", ".join(of_columns[name] for name in table.partition_columns)
    counted = f"SELECT filename, count(*), {partition_columns} FROM {rows} GROUP BY ALL"  # noqa: S608 - declared names
    gave: dict[str, list[tuple[int, tuple[str, ...]]]] = {}
    for file, count, *values in connection.execute(counted).fetchall():
        gave.setdefault(file, []).append((count, tuple(values)))
    filled = ", ".join(f"{sql} AS {quote_identifier(name)}" for name, sql in of_columns.items())
    connection.execute(f"INSERT INTO {table.name} BY NAME SELECT {filled} FROM {rows}")  # noqa: S608 - declared names
    return {file: _sum_file_rows(gave.get(str(file), ())) for file in files}


def _sum_file_rows(counted_values: Sequence[tuple[int, tuple[str, ...]]]) -> FileRows:
    return FileRows(sum(count for count, _ in counted_values), frozenset(values for _, values in counted_values))


def delete_changed_rows(connection: duckdb.DuckDBPyConnection, table: Table, relation: str) -> None:
    """Delete the rows of a table whose partition columns have values of this ``relation``."""
    connection.execute(f"DELETE FROM {table.name} USING {relation} WHERE {_build_match_sql(table, relation)}")  # noqa: S608 - declared names


def _build_match_sql(table: Table, relation: str) -> str:
    return " AND ".join(
        f"{table.name}.{quote_identifier(name)} = {relation}.{quote_identifier(name)}"
        for name in table.partition_columns
    )


def _strip_query(error: Exception) -> str:
    """What DuckDB says is wrong with a file, without the piece of our own query that it points at."""
    return " ".join(str(error).split("\n\nLINE ")[0].split())


def remove_duplicate_rows(connection: duckdb.DuckDBPyConnection, relation: str) -> None:
    """Delete all but the first row of a text that is in two part files of a model's cache.

    Disjoint workers and a compaction can leave such files. The ``relation`` holds the models whose parts were loaded.
    """
    connection.execute(
        "DELETE FROM token_statistics USING (SELECT model_fingerprint, key, min(rowid) AS first FROM token_statistics"  # noqa: S608 - a name of ours
        f" SEMI JOIN {relation} USING (model_fingerprint) GROUP BY ALL HAVING count(*) > 1) AS twice"
        " WHERE token_statistics.model_fingerprint = twice.model_fingerprint AND token_statistics.key = twice.key"
        " AND token_statistics.rowid > twice.first"
    )


def load_model_cards(connection: duckdb.DuckDBPyConnection, paths: DataPaths) -> list[UnreadableTableFile]:
    """One row per card of a model."""
    folder = paths.model_card("any").parent
    cards = [path for path in sorted(folder.glob("*.json")) if path != paths.digest_cache]
    return _load_json(connection, MODELS, cards, _build_model_row)


def load_benchmark_manifests(connection: duckdb.DuckDBPyConnection, paths: DataPaths) -> list[UnreadableTableFile]:
    """One row per manifest of a benchmark."""
    manifest = paths.benchmark_manifest("any")
    manifests = sorted(manifest.parent.parent.glob(f"*/{manifest.name}"))
    return _load_json(connection, BENCHMARKS, manifests, _build_benchmark_row)


def _load_json(
    connection: duckdb.DuckDBPyConnection,
    table: Table,
    files: list[Path],
    row_of: Callable[[Path, Mapping[str, Any]], Mapping[str, object]],
) -> list[UnreadableTableFile]:
    """One row a JSON file; a value that does not fit its column stays in the whole document and is null beside it."""
    relation = connection.table(table.name)
    names = relation.columns
    values = ", ".join(f"TRY_CAST(? AS {sql_type})" for sql_type in relation.types)
    unreadable = []
    for file in files:
        try:
            document = read_json(file)
            if not isinstance(document, Mapping):
                raise ValueError("not a JSON object")
            row = row_of(file, document)
            cells = [_to_cell(row.get(name)) for name in names]
            connection.execute(f"INSERT INTO {table.name} VALUES ({values})", cells)  # noqa: S608 - a declared name
        except (OSError, ValueError, duckdb.ConstraintException) as error:
            unreadable.append(UnreadableTableFile(file, error_to_one_line(error)))
    return unreadable


def insert_rows(connection: duckdb.DuckDBPyConnection, table: Table, rows: pa.Table) -> None:
    """Rows that were made for the table, as they are."""
    connection.register("given", rows)
    connection.execute(f"INSERT INTO {table.name} BY NAME FROM given")
    connection.unregister("given")


def load_configuration_rows(
    connection: duckdb.DuckDBPyConnection, table: Table, file: Path, read: Callable[[], Configured]
) -> list[UnreadableTableFile]:
    """The rows that a file of the configuration gives; where it cannot be read, it is named and there are none."""
    try:
        configured = read()
    except (AuditError, OSError) as error:
        return [UnreadableTableFile(file, error_to_one_line(error))]
    if configured.rows:
        names = [column.name for column in table.stored]
        marks = ", ".join("?" for _ in names)
        cells = [[row[name] for name in names] for row in configured.rows]
        connection.executemany(f"INSERT INTO {table.name} VALUES ({marks})", cells)  # noqa: S608 - a declared name
    return [UnreadableTableFile(problem.path, str(problem)) for problem in configured.problems]


def _build_model_row(file: Path, card: Mapping[str, Any]) -> Mapping[str, object]:
    return {**card, "fingerprint": card.get("fingerprint") or file.stem, "card": dict(card)}


def _build_benchmark_row(file: Path, manifest: Mapping[str, Any]) -> Mapping[str, object]:
    spec = manifest.get("spec")
    spec = spec if isinstance(spec, Mapping) else {}
    return {
        "benchmark": manifest.get("benchmark") or name_from_path_segment(file.parent.name.removeprefix("benchmark=")),
        "digest": manifest.get("digest"),
        "design": manifest.get("design", spec.get("design")),
        "design_stated_by": manifest.get("design_stated_by"),
        "words": manifest.get("words", spec.get("words")),
        "counts": _to_json(manifest.get("counts")),
        "manifest": dict(manifest),
    }


def _to_json(value: object) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


def _to_cell(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else _to_json(value)
