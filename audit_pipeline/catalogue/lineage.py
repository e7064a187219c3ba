"""Where every number comes from: one lineage row for each table, partition and run, with the digest of its file.

What belongs here: composing and reading lineage rows, and entries beside the files that they explain: which of
the two exists without the other, and what that can mean. What does not: the files themselves (store.py), the
link of each row to the one before (lineage_chain.py), deciding what is run (assets/), lineage as a table (warehouse/),
and what is said of a file that is missing (operate/doctor.py, the view lineage_gaps).

An entry is written before its file, so an entry without a file is either a run that died between the two, or a file
that was deleted. If the same step of the run wrote a later entry, the file existed: it was deleted. If it did not,
the run may have died at that point; callers that know how the run ended decide.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypedDict, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.catalogue.contracts import (
    LINEAGE,
    TABLES,
    Pair,
    canonical_json,
    digest_of_items,
    each_to_canonical_json,
)
from audit_pipeline.catalogue.files import read_rows
from audit_pipeline.catalogue.integrity import cached_sha256, digest_of_files
from audit_pipeline.catalogue.lineage_chain import append_to_chain
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.table import Table
from audit_pipeline.errors import DataError

_PACKAGES = (
    "corpus-audit",
    "dagster",
    "datasets",
    "duckdb",
    "numpy",
    "pyarrow",
    "scikit-learn",
    "tokenizers",
    "torch",
    "transformers",
)

_PACKAGE = Path(__file__).parents[1]
_OF_CODE = {".py", ".sql", ".j2", ".css", ".js"}
_ROWS_AT_ONCE = 4096


@functools.cache
def package_versions() -> Mapping[str, str]:
    """The installed versions of the packages that can change a number; read once a process."""
    return MappingProxyType({name: importlib.metadata.version(name) for name in _PACKAGES})


def code_digest() -> str:
    """A digest of this package's own files, as they lie there now."""
    return digest_of_files(_PACKAGE, sorted(path for path in _PACKAGE.rglob("*") if path.suffix in _OF_CODE))


def table_version(table: pa.Table, *, without: tuple[str, ...] = ("run_id",)) -> str:
    """A digest of a table's content; the order of rows and the columns ``without`` do not matter."""
    whole = table.select([name for name in table.column_names if name not in without])
    rows = pa.chunked_array(
        map(_rows_to_canonical_json, whole.to_batches(_ROWS_AT_ONCE)), pa.large_string()
    ).combine_chunks()
    order = pc.sort_indices(rows)
    pieces = (order.slice(start, _ROWS_AT_ONCE) for start in range(0, len(order), _ROWS_AT_ONCE))
    return digest_of_items(row for piece in pieces for row in rows.take(piece).to_pylist())[:16]


def _rows_to_canonical_json(batch: pa.RecordBatch) -> pa.Array:
    """Each row as canonical JSON: a list of its values."""
    opening, closing = (pa.scalar(bracket, pa.large_string()) for bracket in "[]")
    values = pc.binary_join_element_wise(
        *map(_values_to_canonical_json, batch.columns), pa.scalar(",", pa.large_string())
    )
    return pc.binary_join_element_wise(opening, values, closing, pa.scalar("", pa.large_string()))


def _values_to_canonical_json(column: pa.Array) -> pa.Array:
    """Each value as canonical JSON."""
    if pa.types.is_nested(column.type):
        return pa.array([canonical_json(_to_json_value(value)) for value in column.to_pylist()], pa.large_string())
    if any(is_kind(column.type) for is_kind in (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean)):
        return pa.array(each_to_canonical_json(column.to_pylist()), pa.large_string())
    distinct = column.dictionary_encode(null_encoding="encode")
    values = map(_to_json_value, distinct.dictionary.to_pylist())
    return pa.array(each_to_canonical_json(values), pa.large_string()).take(distinct.indices)


def _to_json_value(value: object) -> object:
    if value is None or isinstance(value, str | int | float):
        return value
    return [_to_json_value(item) for item in value] if isinstance(value, list) else str(value)


@dataclass(frozen=True)
class LineageStep:
    """What is known of a step when it starts."""

    run_id: str
    asset_key: str
    code_version: str
    started_at: datetime

    @classmethod
    def now(cls, run_id: str, asset_key: str, code_version: str) -> LineageStep:
        return cls(run_id, asset_key, code_version, datetime.now(UTC))


class RowOrigin(TypedDict, total=False):
    """What rows were computed with; ``settings`` are the options that a command was given."""

    model_fingerprint: str | None
    tokenizer_fingerprint: str | None
    benchmark_digest: str | None
    settings: Mapping[str, object] | None


def record_lineage(
    paths: DataPaths,
    step: LineageStep,
    table: Table,
    partition_key: str | Pair,
    *,
    data_version: str,
    upstream: Mapping[str, str],
    file_sha256: str | None = None,
    written: tuple[Path, Path] | None = None,
    **origin: Unpack[RowOrigin],
) -> None:
    """Write the lineage row of what ``step`` has made of a partition.

    ``written``: its file, which is moved from the first path to the second with the row; rows that lie in no file of
    their own have none. ``partition_key`` names the partition; ``upstream`` holds the data versions of its inputs, by
    input.
    """
    settings = origin.get("settings")
    partition = partition_of(partition_key)
    row = {
        "table": table.name,
        "partition": partition,
        "run_id": step.run_id,
        "asset_key": step.asset_key,
        "code_version": step.code_version,
        "data_version": data_version,
        "upstream_data_versions": canonical_json(dict(upstream)),
        "model_fingerprint": origin.get("model_fingerprint"),
        "tokenizer_fingerprint": origin.get("tokenizer_fingerprint"),
        "benchmark_digest": origin.get("benchmark_digest"),
        "started_at": step.started_at,
        "finished_at": datetime.now(UTC),
        "package_versions": canonical_json(package_versions()),
        "settings": None if settings is None else canonical_json(dict(settings)),
        "file_sha256": file_sha256,
    }
    append_to_chain(paths, row, entry_file(paths, table.name, partition, step.run_id), written)


def partition_of(partition_key: str | Pair) -> str:
    """The name of a partition."""
    return partition_key.partition if isinstance(partition_key, Pair) else partition_key


def entry_file(paths: DataPaths, table: str, partition: str, run_id: str) -> Path:
    """Where the lineage row of what a run wrote lies."""
    return paths.run_file(LINEAGE.name, f"{table}:{partition}", run_id)


@dataclass(frozen=True)
class LatestRun:
    """What the lineage says of the rows that were written last for a partition."""

    run_id: str
    code_version: str
    data_version: str
    benchmark_digest: str | None
    upstream: Mapping[str, str]
    finished_at: datetime
    model_fingerprint: str | None
    tokenizer_fingerprint: str | None
    settings: Mapping[str, Any] = field(default_factory=dict)


def read_latest_run(paths: DataPaths, table: str, partition: str) -> LatestRun:
    """The run whose rows of ``table`` were written last for a partition.

    Raises DataError where there are none, and where an entry is damaged.
    """
    entries = iterate_entries(paths, table, partition)
    written = [entry for entry in entries if paths.run_file(table, partition, entry["run_id"]).exists()]
    if not written:
        raise DataError(f"there are no {table} of {partition} yet: run them first")
    return _run_from_entry(_find_last_entry(written))


def find_writing_run(paths: DataPaths, table: Table, partition: str) -> LatestRun | None:
    """The run that wrote the file of a table that every run writes anew.

    None where there is no file, or no entry that names its digest. Raises DataError where an entry is damaged.
    """
    path = file_of(paths, table, partition, "")
    if not path.exists():
        return None
    digest = cached_sha256(path)
    named = [entry for entry in iterate_entries(paths, table.name, partition) if entry.get("file_sha256") == digest]
    return _run_from_entry(_find_last_entry(named)) if named else None


def _find_last_entry(entries: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    return max(entries, key=lambda entry: (entry["finished_at"], entry["run_id"]))


def _run_from_entry(entry: Mapping[str, Any]) -> LatestRun:
    return LatestRun(
        entry["run_id"],
        entry["code_version"],
        entry["data_version"],
        entry["benchmark_digest"],
        json.loads(entry["upstream_data_versions"]),
        entry["finished_at"],
        entry["model_fingerprint"],
        entry["tokenizer_fingerprint"],
        json.loads(entry.get("settings") or "{}"),
    )


def is_latest_file_whole(paths: DataPaths, table: str, partition: str) -> bool:
    """Whether the file that the last entry of a partition explains is there, as it was written; True without entries.

    An entry that is damaged itself, or that a run wrote before it died, counts as a file that is not whole.
    """
    try:
        entries = list(iterate_entries(paths, table, partition))
        if not entries:
            return True
        last = _find_last_entry(entries)
        path = file_of(paths, TABLES[table], partition, last["run_id"])
        return path.exists() and last.get("file_sha256") in (None, cached_sha256(path))
    except (DataError, OSError):
        return False


def file_of(paths: DataPaths, table: Table, partition: str, run_id: str) -> Path:
    """The file that a lineage row explains; raises TypeError where such rows explain no file."""
    path = table.file_of(paths, partition, run_id)
    if path is None:
        raise TypeError(f"{table.name} have no file of their own")
    return path


def iterate_entries(paths: DataPaths, table: str, partition: str) -> Iterator[dict[str, Any]]:
    """The entries of a partition, the file that was written last first; raises DataError for a damaged one."""
    folder = entry_file(paths, table, partition, "any").parent
    for path in sorted(folder.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns, reverse=True):
        yield from read_rows(path, label=path.name)


REWRITTEN = tuple(table.name for table in TABLES.values() if table.kept == "rewritten")
"""Tables of which a partition has one file, which every run writes anew: the last entry is the one that explains it."""


@dataclass(frozen=True)
class LineageEntry:
    """What of a lineage row says which file it explains, and what that was made of."""

    table: str
    partition: str
    run_id: str
    asset_key: str
    finished_at: datetime
    file_sha256: str | None = None
    code_version: str = ""
    data_version: str = ""
    upstream_data_versions: str = "{}"
    model_fingerprint: str | None = None
    benchmark_digest: str | None = None
    settings: str | None = None

    @property
    def upstream(self) -> dict[str, str]:
        """The data versions of what it was made of, by table/partition or the input's name."""
        return dict(json.loads(self.upstream_data_versions))

    @property
    def options(self) -> dict[str, Any]:
        """The options that the command was given that wrote it; none where none are kept."""
        return dict(json.loads(self.settings or "{}"))


@dataclass(frozen=True)
class MissingFile:
    """A file that its entry explains and that is not there; ``run_went_on``: its run wrote more after it;
    ``superseded``: the file of a later run, which counts now, is there."""

    entry: LineageEntry
    path: Path
    run_went_on: bool
    superseded: bool


def pair_entries_with_files(entries: Iterable[LineageEntry], paths: DataPaths) -> list[tuple[LineageEntry, Path]]:
    """Each entry with the file that it explains; those of the cache, which have none of their own, left out."""
    found = ((entry, _file_of_entry(entry, paths)) for entry in entries)
    return [(entry, path) for entry, path in found if path is not None]


def find_missing_files(
    entries: Sequence[tuple[LineageEntry, Path]], is_there: Callable[[Path], bool]
) -> list[MissingFile]:
    """The entries whose file is gone, in order; of a partition that is written anew by every run, the last entry's."""
    latest: dict[Path, LineageEntry] = {}
    last_of_step: dict[tuple[str, str], datetime] = {}
    last_there: dict[tuple[str, str], datetime] = {}
    for entry, path in sorted(entries, key=lambda pair: (pair[0].finished_at, pair[0].run_id)):
        latest[path] = entry
        last_of_step[entry.run_id, entry.asset_key] = entry.finished_at
    gone = {path for path in latest if not is_there(path)}
    for path, entry in latest.items():
        of = entry.table, entry.partition
        if path not in gone and (of not in last_there or last_there[of] < entry.finished_at):
            last_there[of] = entry.finished_at
    found = [
        MissingFile(
            entry,
            path,
            last_of_step[entry.run_id, entry.asset_key] > entry.finished_at,
            (entry.table, entry.partition) in last_there
            and last_there[entry.table, entry.partition] > entry.finished_at,
        )
        for path, entry in latest.items()
        if path in gone
    ]
    return sorted(found, key=lambda missing: (missing.entry.table, missing.entry.partition, missing.entry.run_id))


def digests_by_file(entries: Iterable[tuple[LineageEntry, Path]]) -> dict[Path, set[str]]:
    """The digests that a file may have, by its path; none where all its entries are of earlier versions."""
    found: dict[Path, set[str]] = {}
    for entry, path in entries:
        found.setdefault(path, set()).update([entry.file_sha256] if entry.file_sha256 else [])
    return found


def list_files_needing_entries(paths: DataPaths) -> list[Path]:
    """Every Parquet file that is there and that a lineage entry should explain, in order."""
    tables = [table for table in TABLES.values() if table.has_files and not table.is_record]
    return sorted(file for table in tables for file in paths.table(table.name).glob("*/*.parquet"))


def _file_of_entry(entry: LineageEntry, paths: DataPaths) -> Path | None:
    # A table that this version does not know is a later version's, which adds a file per run to each as a rule.
    table = TABLES.get(entry.table)
    if table is None:
        return paths.run_file(entry.table, entry.partition, entry.run_id)
    return table.file_of(paths, entry.partition, entry.run_id)
