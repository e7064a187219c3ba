"""What a build takes over from the earlier warehouse: the rows of files that have not changed since they were loaded.

What belongs here: knowing the earlier warehouse again, and telling which files' rows are carried over, which go and
which files are loaded. What does not: loading files (table_files.py), the order of it all (fill.py), comparing a file
that is carried over byte for byte: only a build of everything and `corpus-audit doctor --deep` do that.

A file is recognised by size, time and inode. Rows are assigned to files by their partition columns
(Table.partition_columns). Where two files gave rows with the same values of these columns, both are loaded again as
soon as one of them changes.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from audit_pipeline.catalogue.contracts import LOADED_FILES
from audit_pipeline.catalogue.files import read_json_if_whole, write_json
from audit_pipeline.catalogue.integrity import FileIdentity
from audit_pipeline.catalogue.lineage import code_digest, package_versions
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.table import Table
from audit_pipeline.warehouse.table_files import FileRows, ListedFiles

MOST_TAKEN_OUT = 0.25
"""When more than this share of the rows has been taken out since the last build of everything, all is built again:
DuckDB uses the room of rows that are gone for others, but gives none of it back."""

_SETTLED_NS = 2_000_000_000
"""A file whose last change is as near as this may change again without a trace: file systems count time in steps of up
to two seconds."""

_AT_ONCE = 1 << 23


@dataclass(frozen=True)
class BuildRecord:
    """What is kept beside a warehouse: what it was made with, a checksum by which it is known again, and what the build
    did. ``rows_taken_out``: since the last build of everything."""

    made_with: Mapping[str, Any]
    crc32: int
    files_loaded: int
    files_carried_over: int
    rows_taken_out: int


@dataclass(frozen=True)
class LoadedFile:
    """A file as the build found it that loaded it, and what it gave; ``identity`` is None where its last change was too
    near to tell a later one."""

    path: Path
    identity: FileIdentity | None
    sha256: str | None
    gave: FileRows


LoadedFiles = Mapping[str, Mapping[Path, LoadedFile]]
"""The loaded files by table and path."""


@dataclass(frozen=True)
class Earlier:
    """The earlier warehouse, of which a copy is to be brought up to date."""

    files: LoadedFiles
    rows_taken_out: int


@dataclass(frozen=True)
class ReloadPlan:
    """What becomes of the files of one table: those whose rows stay, those that are loaded, in path order, and of what
    the rows are that are taken out before."""

    carried: Mapping[Path, LoadedFile]
    load: Sequence[Path]
    out: Set[tuple[str, ...]]
    rows_out: int


def describe_build_environment(*, include_text: bool) -> Mapping[str, Any]:
    """What a warehouse is made with besides the data folder: where it differs, everything is built again."""
    return {"code": code_digest(), "packages": dict(package_versions()), "include_text": include_text}


def read_last_build(paths: DataPaths) -> BuildRecord | None:
    """What was kept of the last build; None where nothing was, or it is damaged."""
    kept = read_json_if_whole(paths.warehouse_record)
    try:
        return None if kept is None else BuildRecord(**kept)
    except TypeError:
        # Of another version.
        return None


def write_build_record(paths: DataPaths, record: BuildRecord) -> None:
    """Keep what a build did, beside the warehouse that it put in place."""
    write_json(paths.warehouse_record, vars(record))


def compute_crc32(warehouse: Path) -> int:
    """The CRC-32 of a warehouse: it shows damage and later writes, in half the time of a digest."""
    found = 0
    with warehouse.open("rb") as file:
        while chunk := file.read(_AT_ONCE):
            found = zlib.crc32(chunk, found)
    return found


def copy_earlier_warehouse(
    paths: DataPaths, new_file: Path, build_environment: Mapping[str, Any], listed_files: Iterable[ListedFiles]
) -> Earlier | None:
    """Copy the earlier warehouse to ``new_file``, and say what is in it.

    None, and no copy, where everything is to be built: there is no earlier one, it was made with other code, packages
    or settings, it is not as its build left it, or too many of its rows are gone.
    """
    record = read_last_build(paths)
    if record is None or record.made_with != build_environment or not paths.warehouse.exists():
        return None
    if _copy_and_checksum(paths.warehouse, new_file) == record.crc32:
        earlier = Earlier(_read_loaded(new_file, paths), record.rows_taken_out)
        if _compute_removed_share(earlier, listed_files) <= MOST_TAKEN_OUT:
            return earlier
    new_file.unlink()
    return None


def plan_reload(
    listed_files: ListedFiles, loaded_files: Mapping[Path, LoadedFile], digests: Mapping[Path, Collection[str]]
) -> ReloadPlan:
    """What becomes of the files of a table, by what was loaded of it and by the digests that they may have now."""
    same = {
        path
        for path in listed_files.identities.keys() & loaded_files.keys()
        if _is_same(loaded_files[path], listed_files, digests)
    }
    changed = set(loaded_files.keys() - same)
    if listed_files.table.kept == "cache":
        # One row a text and model, from the first of its model's parts that holds it: the others matter, too.
        models = {path.parent for path in changed | (listed_files.identities.keys() - same)}
        changed |= {path for path in same if path.parent in models}
    changed, out = _add_indistinguishable(changed, loaded_files)
    return ReloadPlan(
        {path: loaded_files[path] for path in loaded_files if path not in changed},
        [path for path in listed_files.paths if path not in loaded_files or path in changed],
        out,
        sum(loaded_files[path].gave.rows for path in changed),
    )


def record_loaded_files(
    listed_files: ListedFiles, file_rows: Mapping[Path, FileRows], sha256: Mapping[Path, str], settled_before_ns: int
) -> dict[Path, LoadedFile]:
    """The files that a build has just loaded. ``settled_before_ns``: what changed later may have changed once more."""
    return {
        path: LoadedFile(
            path, _keep_if_settled(listed_files.identities[path], settled_before_ns), sha256.get(path), rows
        )
        for path, rows in file_rows.items()
    }


def compute_settled_cutoff(folder: Path) -> int:
    """The moment (ns) before which a file's last change must lie, by the clock of the file system on which ``folder``
    has just been made."""
    return folder.stat().st_mtime_ns - _SETTLED_NS


def loaded_files_to_rows(loaded_files: LoadedFiles, paths: DataPaths) -> pa.Table:
    """The loaded files as rows of their table."""
    start = len(str(paths.root)) + 1
    rows = [
        {
            "table": table,
            "path": file.path.as_posix()[start:],
            "rows": file.gave.rows,
            "bytes": file.identity[0] if file.identity else None,
            "changed_ns": file.identity[1] if file.identity else None,
            "inode": str(file.identity[2]) if file.identity else None,
            "sha256": file.sha256,
            "holds": sorted(map(list, file.gave.holds)),
        }
        for table, files in loaded_files.items()
        for file in files.values()
    ]
    return pa.Table.from_pylist(rows, schema=LOADED_FILES.schema)


def partition_values_to_rows(table: Table, values: Iterable[tuple[str, ...]]) -> pa.Table:
    """Values of the partition columns, as rows."""
    schema = pa.schema([(name, pa.string()) for name in table.partition_columns])
    return pa.Table.from_pylist(
        [dict(zip(table.partition_columns, value, strict=True)) for value in sorted(values)], schema=schema
    )


def _copy_and_checksum(warehouse: Path, new_file: Path) -> int:
    """Copy a file; the CRC-32 of what was copied."""
    found = 0
    with warehouse.open("rb") as source, new_file.open("wb") as target:
        while chunk := source.read(_AT_ONCE):
            found = zlib.crc32(chunk, found)
            target.write(chunk)
    return found


def _read_loaded(warehouse: Path, paths: DataPaths) -> LoadedFiles:
    with duckdb.connect(str(warehouse), read_only=True) as connection:
        rows = connection.table(LOADED_FILES.name).to_arrow_table().to_pylist()
    files: dict[str, dict[Path, LoadedFile]] = {}
    for row in rows:
        path = paths.root / row["path"]
        identity = None if row["inode"] is None else (row["bytes"], row["changed_ns"], int(row["inode"]))
        gave = FileRows(row["rows"], frozenset(map(tuple, row["holds"])))
        files.setdefault(row["table"], {})[path] = LoadedFile(path, identity, row["sha256"], gave)
    return files


def _compute_removed_share(earlier_warehouse: Earlier, listed_files: Iterable[ListedFiles]) -> float:
    """The share of the rows that will have been taken out since the last build of everything."""
    out = earlier_warehouse.rows_taken_out
    rows = 0
    for files in listed_files:
        loaded = earlier_warehouse.files.get(files.table.name, {})
        rows += sum(file.gave.rows for file in loaded.values())
        out += plan_reload(files, loaded, {}).rows_out
    return out / max(rows, 1)


def _is_same(loaded_file: LoadedFile, listed_files: ListedFiles, digests: Mapping[Path, Collection[str]]) -> bool:
    expected = digests.get(loaded_file.path, ())
    return loaded_file.identity == listed_files.identities[loaded_file.path] and (
        not expected or loaded_file.sha256 in expected
    )


def _add_indistinguishable(
    changed_paths: Set[Path], loaded_files: Mapping[Path, LoadedFile]
) -> tuple[set[Path], set[tuple[str, ...]]]:
    """The files that have to go with the changed ones, and the partition columns of their rows."""
    of_value: dict[tuple[str, ...], list[Path]] = {}
    for path, file in loaded_files.items() if changed_paths else ():
        for value in file.gave.holds:
            of_value.setdefault(value, []).append(path)
    gone, out, waiting = set(changed_paths), set[tuple[str, ...]](), list(changed_paths)
    while waiting:
        for value in loaded_files[waiting.pop()].gave.holds - out:
            out.add(value)
            further = [path for path in of_value[value] if path not in gone]
            gone.update(further)
            waiting += further
    return gone, out


def _keep_if_settled(identity: FileIdentity, before_ns: int) -> FileIdentity | None:
    return identity if identity[1] < before_ns else None
