"""The files that a build reads: which of them are as their lines in the ledger say, and their rows put into tables.

What belongs here: comparing files with their digests before DuckDB opens any; getting the content of files (Parquet,
JSON documents, rows of the configuration) into their tables, and naming a file where that cannot be. What does not:
which file a line explains (catalogue/ledger.py), the order of it all (fill.py), derived tables (schema.py).
"""

from __future__ import annotations

import glob
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from audit_pipeline.catalogue.bucket_folder import refresh
from audit_pipeline.catalogue.contracts import (
    BENCHMARKS,
    LINEAGE,
    MODELS,
    OUTCOMES,
    TABLES,
    canonical_json,
)
from audit_pipeline.catalogue.files import read_json
from audit_pipeline.catalogue.integrity import FileIdentity, file_identity, file_sha256
from audit_pipeline.catalogue.ledger import Entry, Ledger
from audit_pipeline.catalogue.paths import DataPaths, name_from_path_segment
from audit_pipeline.catalogue.sql import build_column_expressions, build_key_sql, quote_identifier, quote_literal
from audit_pipeline.catalogue.table import Table
from audit_pipeline.errors import AuditError
from audit_pipeline.token_statistics.cache import digest_in_name
from audit_pipeline.warehouse.configuration_rows import Configured
from audit_pipeline.warehouse.query import error_to_one_line

_NOT_AS_WRITTEN = "it is not as it was written: its sha256 is not the one in the ledger, or in its name"
_UNEXPLAINED = "no line of the ledger explains it"


@dataclass(frozen=True)
class UnreadableTableFile:
    """A file that was left out, and why."""

    path: Path
    reason: str


@dataclass
class VerifiedFiles:
    """The Parquet files of a data folder that are as they were written.

    ``by_table``: in path order. ``identities``: of the files that a run may replace, and of the cache's parts, as they
    were when they were compared. ``explained``: the entry of each file that the ledger explains. ``missing``: the
    entries whose file is not there or was left out.
    """

    by_table: dict[str, list[Path]] = field(default_factory=dict)
    identities: dict[Path, FileIdentity] = field(default_factory=dict)
    explained: list[Entry] = field(default_factory=list)
    missing: list[Entry] = field(default_factory=list)
    left_out: list[UnreadableTableFile] = field(default_factory=list)
    unexplained: list[Path] = field(default_factory=list)

    def find_replaced_file(self) -> Path | None:
        """A file that a run has replaced or taken away since it was compared."""
        return next((path for path, identity in self.identities.items() if _read_identity(path) != identity), None)


def verify_files(paths: DataPaths, ledger: Ledger) -> VerifiedFiles:
    """Compare every Parquet file with its digest: of the ledger, or of the name of a part of the cache."""
    found = VerifiedFiles()
    entries = _group_by_file(paths, ledger)
    for table in (table for table in TABLES.values() if table.in_warehouse):
        if table.kept == "cache":
            _verify_cache(paths, table, found)
        elif table.has_files:
            _verify_table(paths, table, entries.get(table.name, {}), found)
    return found


def _group_by_file(paths: DataPaths, ledger: Ledger) -> Mapping[str, Mapping[Path, Sequence[Entry]]]:
    """By table, the entries of every file in the order in which they were written."""
    found: dict[str, dict[Path, list[Entry]]] = {}
    for entry in ledger.entries:
        if (file := entry.file(paths)) is not None:
            found.setdefault(entry.table, {}).setdefault(file, []).append(entry)
    return found


def _verify_table(
    paths: DataPaths, table: Table, entries: Mapping[Path, Sequence[Entry]], found: VerifiedFiles
) -> None:
    whole = found.by_table.setdefault(table.name, [])
    files = sorted(paths.table(table.name).glob("*/*.parquet"))
    for path in files:
        identity = _read_identity(path)
        if identity is None:
            continue
        if path not in entries:
            found.left_out.append(UnreadableTableFile(path, _UNEXPLAINED))
            found.unexplained.append(path)
            continue
        # Which entry names it does not matter: a run that died on the way left the file of the run before.
        digest = _compute_digest(path)
        writing = next((entry for entry in reversed(entries[path]) if entry.file_sha256 == digest), None)
        if writing is None:
            found.left_out.append(UnreadableTableFile(path, _NOT_AS_WRITTEN))
            found.missing.append(entries[path][-1])
            continue
        whole.append(path)
        found.explained.append(writing)
        if not table.append_only:
            found.identities[path] = identity
    found.missing += [entries[path][-1] for path in sorted(entries.keys() - {*files})]


def _verify_cache(paths: DataPaths, table: Table, found: VerifiedFiles) -> None:
    folder = paths.token_statistics("base", "any").parent
    refresh(folder)
    for path in sorted(folder.glob("*/*.parquet")):
        identity, named = _read_identity(path), digest_in_name(path)
        if identity is None:
            continue
        if named is not None and not (_compute_digest(path) or "").startswith(named):
            found.left_out.append(UnreadableTableFile(path, _NOT_AS_WRITTEN))
            continue
        found.by_table.setdefault(table.name, []).append(path)
        found.identities[path] = identity


def _read_identity(path: Path) -> FileIdentity | None:
    try:
        return file_identity(path)
    except FileNotFoundError:
        return None


def _compute_digest(path: Path) -> str | None:
    """The sha256 of a file as it is read now; None where it cannot be read."""
    try:
        return file_sha256(path)
    except OSError:
        return None


def load_parquet(connection: duckdb.DuckDBPyConnection, table: Table, files: Sequence[Path]) -> None:
    """Insert the rows of Parquet files, all in one go; of a text in two parts of a model's cache, the first.

    Disjoint workers and a compaction can leave such parts.
    """
    if not files:
        return
    listed = ", ".join(quote_literal(glob.escape(str(file))) for file in files)
    filled = ", ".join(f"{sql} AS {quote_identifier(name)}" for name, sql in build_column_expressions(table).items())
    options = "hive_partitioning = false, union_by_name = false, file_row_number = true"
    rows = f"SELECT {filled}, filename, file_row_number FROM read_parquet([{listed}], {options})"  # noqa: S608 - declared names
    first = f"row_number() OVER (PARTITION BY {build_key_sql(table)} ORDER BY filename, file_row_number) = 1"
    connection.execute(
        f"INSERT INTO {table.name} BY NAME SELECT * EXCLUDE (filename, file_row_number) FROM ({rows})"  # noqa: S608 - declared names
        + (f" QUALIFY {first}" if table.kept == "cache" else "")
    )


def load_ledger(connection: duckdb.DuckDBPyConnection, ledger: Ledger) -> None:
    """Insert the entries and outcomes of the ledger; of an entry that its run wrote again, the last."""
    last = {(entry.table, entry.partition, entry.run_id): entry for entry in ledger.entries}
    insert_rows(connection, LINEAGE, pa.Table.from_pylist(list(map(build_lineage_row, last.values())), LINEAGE.schema))
    rows = [
        {
            "model": outcome.pair.model,
            "benchmark": outcome.pair.benchmark,
            "stage": outcome.stage,
            "status": outcome.status,
            "reason": outcome.reason,
            "run_id": outcome.run_id,
            "recorded_at": outcome.at,
        }
        for outcome in ledger.outcomes
    ]
    insert_rows(connection, OUTCOMES, pa.Table.from_pylist(rows) if rows else None)


def build_lineage_row(entry: Entry) -> Mapping[str, object]:
    """An entry as a row of the table lineage."""
    return {
        **{name: getattr(entry, name) for name in LINEAGE.names if hasattr(entry, name)},
        "upstream_data_versions": canonical_json(entry.upstream),
        "package_versions": canonical_json(entry.packages),
        "settings": canonical_json(entry.settings) if entry.settings else None,
        "row_sha256": entry.digest,
        "previous_sha256": entry.previous,
    }


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


def insert_rows(connection: duckdb.DuckDBPyConnection, table: Table, rows: pa.Table | None) -> None:
    """Rows that were made for the table, as they are."""
    if rows is None:
        return
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
