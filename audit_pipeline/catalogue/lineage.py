"""Where every number comes from: one lineage row for each table, partition and run, with the digest of its file.

What belongs here: composing and writing lineage rows and the files that they explain, and comparing a file with its
row before it is read. What does not: deciding what is run (assets/), lineage as a table (warehouse/).
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NotRequired, TypedDict, Unpack

import pyarrow as pa

from audit_pipeline.catalogue.contracts import LINEAGE, canonical_json, digest
from audit_pipeline.catalogue.integrity import DamagedError, file_sha256, known_sha256, with_row_sha256
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.tables import (
    read_rows,
    read_table,
    table_from_rows,
    write_atomically,
    write_parquet,
    write_table,
)
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


def package_versions() -> dict[str, str]:
    """The installed versions of the packages that can change a number."""
    return {name: importlib.metadata.version(name) for name in _PACKAGES}


def table_version(table: pa.Table, *, without: tuple[str, ...] = ("run_id",)) -> str:
    """A digest of a table's content; the order of rows and the columns ``without`` do not matter."""
    columns = [name for name in table.column_names if name not in without]
    return digest(sorted(canonical_json([_plain(row[name]) for name in columns]) for row in table.to_pylist()))[:16]


def _plain(value: object) -> object:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


@dataclass(frozen=True)
class Step:
    """What is known of a step when it starts."""

    run_id: str
    asset_key: str
    code_version: str
    started_at: datetime

    @classmethod
    def now(cls, run_id: str, asset_key: str, code_version: str) -> Step:
        return cls(run_id, asset_key, code_version, datetime.now(UTC))


class Origin(TypedDict):
    """Which rows a lineage row explains, and what they were made of; ``upstream`` are data versions by input,
    ``settings`` the options that a command was given."""

    table: str
    partition: str
    data_version: str
    upstream: Mapping[str, str]
    model_fingerprint: NotRequired[str | None]
    tokenizer_fingerprint: NotRequired[str | None]
    benchmark_digest: NotRequired[str | None]
    settings: NotRequired[Mapping[str, object] | None]


def keep(paths: DataPaths, step: Step, rows: pa.Table, **origin: Unpack[Origin]) -> None:
    """Write ``rows`` into their place, with the lineage row that explains them and names the file's digest.

    The entry is written before the file is moved into place: a run that is killed between the two leaves an entry
    without rows, never rows without an entry. Where the file cannot be moved, the entry is taken back.
    """
    path = _file_of(paths, origin["table"], origin["partition"], step.run_id)
    entry, digests = _entry_file(paths, origin, step.run_id), set[str]()

    def write(temporary: Path) -> None:
        write_parquet(temporary, rows)
        digests.add(file_sha256(temporary))
        record(paths, step, file_sha256=min(digests), **origin)

    there_before = entry.exists()
    try:
        write_atomically(path, write)
    except BaseException:
        moved = path.exists() and file_sha256(path) in digests
        if not there_before and not moved:
            entry.unlink(missing_ok=True)
        raise


def record(paths: DataPaths, step: Step, *, file_sha256: str | None = None, **origin: Unpack[Origin]) -> None:
    """Write the lineage row of what ``step`` has made, or is about to move into place: :func:`keep` does both."""
    settings = origin.get("settings")
    row = {
        "table": origin["table"],
        "partition": origin["partition"],
        "run_id": step.run_id,
        "asset_key": step.asset_key,
        "code_version": step.code_version,
        "data_version": origin["data_version"],
        "upstream_data_versions": canonical_json(dict(origin["upstream"])),
        "model_fingerprint": origin.get("model_fingerprint"),
        "tokenizer_fingerprint": origin.get("tokenizer_fingerprint"),
        "benchmark_digest": origin.get("benchmark_digest"),
        "started_at": step.started_at,
        "finished_at": datetime.now(UTC),
        "package_versions": canonical_json(package_versions()),
        "settings": None if settings is None else canonical_json(dict(settings)),
        "file_sha256": file_sha256,
    }
    write_table(_entry_file(paths, origin, step.run_id), table_from_rows([with_row_sha256(row)], LINEAGE))


@dataclass(frozen=True)
class Written:
    """What the lineage says of the rows that were written last for a partition."""

    run_id: str
    code_version: str
    data_version: str
    benchmark_digest: str | None
    upstream: Mapping[str, str]
    finished_at: datetime


def latest_run(paths: DataPaths, table: str, partition: str) -> Written:
    """The run whose rows of ``table`` were written last for a partition.

    Raises DataError where there are none, and where an entry is damaged.
    """
    entries = _entries(paths, table, partition)
    written = [entry for entry in entries if paths.run_file(table, partition, entry["run_id"]).exists()]
    if not written:
        raise DataError(f"there are no {table} of {partition} yet: run them first")
    return _written(_last(written))


def written_there(paths: DataPaths, table: str, partition: str) -> Written | None:
    """The run that wrote the file of a table that every run writes anew.

    None where there is no file, or no entry that names its digest. Raises DataError where an entry is damaged.
    """
    path = _file_of(paths, table, partition, "")
    if not path.exists():
        return None
    digest = known_sha256(path)
    named = [entry for entry in _entries(paths, table, partition) if entry.get("file_sha256") == digest]
    return _written(_last(named)) if named else None


def _last(entries: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    return max(entries, key=lambda entry: (entry["finished_at"], entry["run_id"]))


def _written(entry: Mapping[str, Any]) -> Written:
    return Written(
        entry["run_id"],
        entry["code_version"],
        entry["data_version"],
        entry["benchmark_digest"],
        json.loads(entry["upstream_data_versions"]),
        entry["finished_at"],
    )


def latest_is_whole(paths: DataPaths, table: str, partition: str) -> bool:
    """Whether the file that the last entry of a partition explains is there, as it was written; True without entries.

    An entry that is damaged itself, or that a run wrote before it died, counts as a file that is not whole.
    """
    try:
        entries = list(_entries(paths, table, partition))
        if not entries:
            return True
        last = _last(entries)
        path = _file_of(paths, table, partition, last["run_id"])
        return path.exists() and last["file_sha256"] in (None, known_sha256(path))
    except (DataError, OSError):
        return False


def read_kept(
    paths: DataPaths, schema: pa.Schema, *, table: str, partition: str, what: str, run_id: str = ""
) -> pa.Table:
    """What :func:`keep` wrote, compared with its lineage first; ``run_id`` where a table has a file a run.

    Raises DataError, naming ``what`` and the file, where it is missing, unreadable or not as it was written.
    """
    require_as_written(paths, table=table, partition=partition, what=what, run_id=run_id)
    return read_table(_file_of(paths, table, partition, run_id), schema, what=what)


def require_as_written(paths: DataPaths, *, table: str, partition: str, what: str, run_id: str = "") -> None:
    """Raise DamagedError where a file is none that the lineage of its partition names by its digest.

    Which entry names it does not matter: a run that died on the way left the file of the run before. A file that is
    not there, and one of which no entry has a digest (an earlier version wrote it), pass.
    """
    path = _file_of(paths, table, partition, run_id)
    try:
        digest, named = known_sha256(path), False
    except OSError:
        # Whoever reads it says why it cannot be had.
        return
    for entry in _entries(paths, table, partition):
        if entry.get("file_sha256") == digest:
            return
        named = named or entry.get("file_sha256") is not None
    if named:
        raise DamagedError(
            f"{what} is damaged: {path} is not as it was written (its sha256 is none that the lineage of "
            f"{table} {partition} names); delete the file and run the same again: it is made anew"
        )


def _file_of(paths: DataPaths, table: str, partition: str, run_id: str) -> Path:
    path = paths.file_of(table, partition, run_id)
    if path is None:
        raise TypeError(f"{table} have no file of their own")
    return path


def _entry_file(paths: DataPaths, origin: Origin, run_id: str) -> Path:
    return paths.run_file("lineage", f"{origin['table']}:{origin['partition']}", run_id)


def _entries(paths: DataPaths, table: str, partition: str) -> Iterator[dict[str, Any]]:
    """The entries of a partition, the file that was written last first; raises DataError for a damaged one."""
    folder = paths.run_file("lineage", f"{table}:{partition}", "any").parent
    for path in sorted(folder.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns, reverse=True):
        yield from read_rows(path, what=path.name)
