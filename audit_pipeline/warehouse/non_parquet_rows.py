"""Rows of the warehouse that come from the ledger, from JSON documents and from the configuration."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from audit_pipeline import tables
from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.config import FILE_NAME as BENCHMARKS_FILE
from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.config.problems import Problem
from audit_pipeline.errors import AuditError, DataError, to_one_line
from audit_pipeline.models.config import FILE_NAME as MODELS_FILE
from audit_pipeline.models.config import ModelEntry, load_models
from audit_pipeline.models.display_title import format_title_by_card, read_latest_cards
from audit_pipeline.store.files import read_json
from audit_pipeline.store.ledger_records import Entry, Ledger
from audit_pipeline.store.paths import DataPaths, name_from_path_segment
from audit_pipeline.tables.table import Table
from audit_pipeline.warehouse.verified_files import UnreadableFile

Row = Mapping[str, object]
UpToDate = Mapping[str, bool | None]
"""The states of benchmarks by name.

The value is True if the benchmark is built from its current entry and sources, and False if it is not. If the state is
unknown, the value is None, or the name is missing.
"""


def insert_rows(connection: duckdb.DuckDBPyConnection, table: Table, rows: pa.Table) -> None:
    """Insert rows that have the columns of the table."""
    connection.register("given", rows)
    connection.execute(f"INSERT INTO {table.name} BY NAME FROM given")
    connection.unregister("given")


def load_ledger(connection: duckdb.DuckDBPyConnection, ledger: Ledger) -> None:
    """Insert the entries and outcomes of the ledger. If a run wrote a partition twice, only its last entry is used."""
    last_entries = {}
    for entry in ledger.entries:
        last_entries[entry.table, entry.partition, entry.run_id] = entry
    lineage = list(map(build_lineage_row, last_entries.values()))
    insert_rows(connection, tables.LINEAGE, pa.Table.from_pylist(lineage, tables.LINEAGE.schema))
    outcomes = [{**vars(outcome), **vars(outcome.pair)} for outcome in ledger.outcomes]
    rows = pa.Table.from_pylist(outcomes, tables.OUTCOMES.schema).rename_columns({"at": "recorded_at"})
    insert_rows(connection, tables.OUTCOMES, rows)


def build_lineage_row(entry: Entry) -> Row:
    """Return an entry of the ledger as a row of the table lineage."""
    row = {name: getattr(entry, name) for name in tables.LINEAGE.names if hasattr(entry, name)}
    row["upstream_data_versions"] = tables.canonical_json(entry.upstream)
    row["package_versions"] = tables.canonical_json(entry.packages)
    row["settings"] = None
    if entry.settings:
        row["settings"] = tables.canonical_json(entry.settings)
    row["row_sha256"] = entry.digest
    row["previous_sha256"] = entry.previous
    return row


def load_json_and_config_rows(
    connection: duckdb.DuckDBPyConnection, paths: DataPaths, config: Path, up_to_date: UpToDate
) -> Iterator[UnreadableFile]:
    """Insert one row per model card, benchmark manifest and entry of the configuration.

    Yields:
        The files that cannot be read, and the problems of broken entries.
    """
    cards = sorted(set(paths.model_card("any").parent.glob("*.json")) - {paths.digest_cache})
    yield from _load_json_rows(
        connection,
        tables.MODELS,
        cards,
        lambda file, card: {**card, "fingerprint": card.get("fingerprint") or file.stem, "card": card},
    )
    yield from _load_json_rows(connection, tables.BENCHMARKS, _list_manifests(paths), _build_benchmark_row)
    for table, file, read in (
        (tables.CONFIGURED_MODELS, MODELS_FILE, partial(_read_models, config, paths)),
        (tables.CONFIGURED_BENCHMARKS, BENCHMARKS_FILE, partial(_read_benchmarks, config, paths, up_to_date)),
    ):
        try:
            rows, problems = read()
        except (AuditError, OSError) as error:
            yield UnreadableFile(config / file, to_one_line(error))
            continue
        for row in rows:
            _insert_row(connection, table, row)
        for problem in problems:
            yield UnreadableFile(problem.path, str(problem))


def _load_json_rows(
    connection: duckdb.DuckDBPyConnection,
    table: Table,
    files: Iterable[Path],
    build_row: Callable[[Path, Mapping[str, Any]], Row],
) -> Iterator[UnreadableFile]:
    for file in files:
        try:
            document = read_json(file)
            if not isinstance(document, Mapping):
                raise ValueError("the file contains no JSON object")
            _insert_row(connection, table, build_row(file, document))
        except (OSError, ValueError, duckdb.ConstraintException) as error:
            yield UnreadableFile(file, to_one_line(error))


def _insert_row(connection: duckdb.DuckDBPyConnection, table: Table, row: Row) -> None:
    """Insert a row. A value that cannot be converted to the type of its column becomes null."""
    relation = connection.table(table.name)
    values = ", ".join(f"TRY_CAST(? AS {sql_type})" for sql_type in relation.types)
    cells = [_to_cell(row.get(name)) for name in relation.columns]
    connection.execute(f"INSERT INTO {table.name} VALUES ({values})", cells)  # noqa: S608 - a declared name


def _to_cell(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, date):
        return value.isoformat()
    return json.dumps(value, ensure_ascii=False)


def _build_benchmark_row(file: Path, manifest: Mapping[str, Any]) -> Row:
    spec = manifest.get("spec")
    if not isinstance(spec, Mapping):
        spec = {}
    return {
        "design": spec.get("design"),
        "words": spec.get("words"),
        **manifest,
        "benchmark": manifest.get("benchmark") or _parse_benchmark_name(file),
        "manifest": manifest,
    }


def _list_manifests(paths: DataPaths) -> list[Path]:
    manifest = paths.benchmark_manifest("any")
    return sorted(manifest.parent.parent.glob(f"*/{manifest.name}"))


def _parse_benchmark_name(manifest: Path) -> str:
    return name_from_path_segment(manifest.parent.name.removeprefix("benchmark="))


def _read_models(folder: Path, paths: DataPaths) -> tuple[list[Row], Iterable[Problem]]:
    """Build one row per model of models.yaml. Raises ConfigError if the file cannot be read."""
    models = load_models(folder)
    cards = read_latest_cards(paths)
    rows: list[Row] = []
    for entry in models.values():
        row = dict(vars(entry))
        if entry.checkpoint is not None:
            row.update(vars(entry.checkpoint))
        row["title"] = format_title_by_card(entry, cards)
        row["origin"] = format_model_origin(entry)
        row["on_request"] = entry.control is not None
        rows.append(row)
    for name in filter(models.is_broken, models.names):
        rows.append({"name": name, "origin": "unknown: its entry in models.yaml is broken", "on_request": False})
    return rows, models.problems


def _read_benchmarks(folder: Path, paths: DataPaths, up_to_date: UpToDate) -> tuple[list[Row], Iterable[Problem]]:
    """Build one row per benchmark of benchmarks.yaml. The row of a broken entry describes the built benchmark, if any.

    Raises:
        AuditError: If the file cannot be read.
    """
    specs = load_benchmarks(folder)
    rows: list[Row] = []
    for name, spec in specs.items():
        rows.append(
            {
                "benchmark": name,
                "title": spec.title,
                "family": spec.family,
                "words": spec.words,
                "design": spec.design,
                "description": spec.settings.description,
                "is_up_to_date": up_to_date.get(name),
                "on_request": spec.settings.on_request,
            }
        )
    for name in filter(specs.is_broken, map(_parse_benchmark_name, _list_manifests(paths))):
        try:
            manifest = read_built(paths, name).manifest
            built = {key: manifest[key] for key in ("family", "words", "design", "description")}
            on_request = bool(manifest["spec"].get("on_request", False))
        except (DataError, KeyError, AttributeError):
            # ``load_json_and_config_rows`` reports the unreadable manifest already.
            continue
        rows.append({"benchmark": name, **built, "on_request": on_request})
    return rows, specs.problems


def format_model_origin(entry: ModelEntry) -> str:
    """Describe the location of a model's files in its entry."""
    files = f"path {entry.path}"
    if entry.package is not None:
        files = f"package {entry.package.distribution}: {entry.package.file}"
    elif entry.hub is not None:
        files = f"hub {entry.hub}"
        if entry.revision is not None:
            files += f" at {entry.revision}"
    elif entry.control is not None:
        files = f"control {entry.control.name}: {entry.control.role}"
    if entry.adapter is not None:
        files += f" with the adapter ({entry.adapter})"
    return entry.host.describe_location(files)
