"""The doctor's look at what was kept: lineage beside files, the cache, and, where it is asked for, every byte.

What belongs here: which file is unexplained or damaged, in one line each. What does not: what is gone
(operate/doctor_missing.py), the installation, the configuration, models and locks (operate/doctor.py), what a digest is
(catalogue/integrity.py), how a run ended (operate/dagster/health.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from audit_pipeline.catalogue.contracts import KINDS, OUTCOMES, TABLES
from audit_pipeline.catalogue.data_folder import is_writable
from audit_pipeline.catalogue.integrity import DamagedError, file_sha256
from audit_pipeline.catalogue.lineage_files import (
    LineageEntry,
    digests_by_file,
    files_with_entries,
    pair_entries_with_files,
)
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.store import cache_folders
from audit_pipeline.catalogue.tables import read_json, read_parquet, read_rows
from audit_pipeline.controls.kept import MANIFEST, require_whole
from audit_pipeline.errors import AuditError
from audit_pipeline.models.fingerprint import find_unnoticed_changes
from audit_pipeline.models.kept import kept_folders, require_kept
from audit_pipeline.operate.doctor_checks import DoctorCheck, HowEnded, Look, named
from audit_pipeline.operate.doctor_missing import examine_missing
from audit_pipeline.token_statistics.cache import damaged_parts, digest_in_name, parts_of, set_aside
from audit_pipeline.warehouse.build import read_lineage
from audit_pipeline.warehouse.query import read_every_block

Explained = Sequence[tuple[LineageEntry, Path]]
_AGAIN = "delete them, and run again what made them"


def examine_files(paths: DataPaths, how_ended: HowEnded, look: Look, *, deep: bool) -> Iterator[DoctorCheck]:
    """Lineage and files, the cache; with ``deep`` every file to its end.

    Damaged parts of the cache are set aside, where something can be written: every run does so.
    """
    look("lineage")
    entries, damaged = read_lineage(paths)
    explained = pair_entries_with_files(entries, paths)
    yield from _lineage(paths, explained, [one.path for one in damaged])
    yield from _cache(paths, look, deep=deep)
    yield from _kept_of_models(paths)
    yield from _without_digest(paths, explained)
    if deep:
        yield from _every_file(paths, explained, look)
    yield from examine_missing(paths, entries, how_ended, look, deep=deep)


def _lineage(paths: DataPaths, explained: Explained, damaged: Sequence[Path]) -> Iterator[DoctorCheck]:
    there = files_with_entries(paths)
    yield DoctorCheck("lineage", ok=True, words=f"{len(explained)} entries of files, {len(there)} files of tables")
    if damaged:
        words = f"not as they were written: {named(damaged)}: delete them, and run again what they explain"
        yield DoctorCheck("damaged entries", ok=False, words=words)
    unexplained = sorted(set(there) - {path for _, path in explained})
    if unexplained:
        words = f"no lineage entry says where {named(unexplained)} came from: delete them, or run again what made them"
        yield DoctorCheck("files without lineage", ok=False, words=words)


def _cache(paths: DataPaths, look: Look, *, deep: bool) -> Iterator[DoctorCheck]:
    folders = cache_folders(paths)
    earlier = [path for folder in folders for path in sorted(folder.glob("part-*.unreadable"))]
    total = sum(part.stat().st_size for folder in folders for part in parts_of(folder))
    damaged = []
    for folder in folders:
        look(f"cache, {folder.parent.name} ({total / 1e6:,.0f} MB in all)")
        damaged += list(damaged_parts(folder, _schema_of(folder), whole=deep))
    if damaged and is_writable(paths.root):
        words = f"damaged: {named(damaged)}: set aside as .unreadable; their texts are run again by the next audit"
        for part in damaged:
            set_aside(part)
    elif damaged:
        words = f"damaged: {named(damaged)}: the next audit sets them aside and runs their texts again"
    else:
        compared = "every byte compared" if deep else "bytes are compared by doctor --deep, and whenever they are read"
        parts = sum(len(parts_of(folder)) for folder in folders)
        words = f"{parts} part files, {total / 1e6:,.0f} MB; {compared}"
    yield DoctorCheck("cache", not damaged, words)
    if earlier:
        words = f"{len(earlier)} damaged part file(s), the first {earlier[0]}: their texts are run again; delete them"
        yield DoctorCheck("set aside", ok=False, words=words)


def _schema_of(folder: Path) -> pa.Schema | None:
    """The columns of the folder's kind; None where a later version made it."""
    kind = folder.parent.name.partition("=")[2]
    return KINDS[kind].table.schema if kind in KINDS else None


def _kept_of_models(paths: DataPaths) -> Iterator[DoctorCheck]:
    """What was made of models' files, so that they load at once: how much room it takes."""
    folders = kept_folders(paths)
    if folders:
        size = sum(file.stat().st_size for folder in folders for file in folder.iterdir())
        words = (
            f"{len(folders)} tokenizers and converted weights, {size / 1e6:,.0f} MB; a model's own go with "
            "corpus-audit forget --model NAME, and are made again when they are needed"
        )
        yield DoctorCheck("kept of models", ok=True, words=words)


def _without_digest(paths: DataPaths, explained: Explained) -> Iterator[DoctorCheck]:
    """What an earlier version wrote: a changed byte would not be noticed there."""
    digests = digests_by_file(explained)
    files = sum(_is_table(path) and path.exists() for path, known in digests.items() if not known)
    parts = sum(digest_in_name(part) is None for folder in cache_folders(paths) for part in parts_of(folder))
    if files or parts:
        words = (
            f"{files} file(s) and {parts} part(s) of the cache, by an earlier version: nobody would notice a changed "
            "byte; parts get one with the next audit of their model, files when they are made again"
        )
        yield DoctorCheck("without a digest", ok=True, words=words)


def _every_file(paths: DataPaths, explained: Explained, look: Look) -> Iterator[DoctorCheck]:
    """Every file compared with its digest: tables, documents in JSON, controls, converted and large model files."""
    digests = digests_by_file(explained)
    checks: list[tuple[Path, Callable[[Path], object]]] = [
        *((path, lambda file: _require(file, digests.get(file))) for path in files_with_entries(paths)),
        *((path, _read_rows) for path in _below(paths.table(OUTCOMES.name), "*/*.parquet")),
        *((path, read_json) for path in _json_files(paths)),
        *((path.parent, require_whole) for path in _below(paths.table("controls"), f"*/*/{MANIFEST}")),
        *((path, require_kept) for path in kept_folders(paths)),
    ]
    damaged = [*_find_damaged_files(checks, look), *find_unnoticed_changes(paths, look)]
    look("warehouse")
    if paths.warehouse.exists() and (problem := read_every_block(paths.warehouse)) is not None:
        yield DoctorCheck("warehouse, every block", ok=False, words=f"{problem}; build it again: corpus-audit report")
    words = f"{len(checks)} as they were written"
    if damaged:
        words = f"not as they were written: {named(damaged)}: {_AGAIN}"
    yield DoctorCheck("every file", not damaged, words)


def _find_damaged_files(checks: Sequence[tuple[Path, Callable[[Path], object]]], look: Look) -> Iterator[Path]:
    for number, (path, check) in enumerate(checks, 1):
        look(f"file {number} of {len(checks)}")
        try:
            check(path)
        except FileNotFoundError:
            # Gone since it was listed, or it never was there: the look at the lineage says so.
            continue
        except (AuditError, ValueError, OSError, pa.ArrowException):
            yield path


def _require(path: Path, digests: Collection[str] | None) -> None:
    if not digests:
        # Of an earlier version, or explained by nobody: it can be read to its end, and that is all that can be said.
        read_parquet(path)
    elif file_sha256(path) not in digests:
        raise DamagedError(str(path))


def _read_rows(path: Path) -> None:
    read_rows(path, what=path.name)


def _is_table(path: Path) -> bool:
    return path.suffix == ".parquet"


def _below(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern))


def _json_files(paths: DataPaths) -> list[Path]:
    """Every document in JSON that a number, or what is told of it, comes from."""
    manifests = [table.manifest(paths, "any") for table in TABLES.values() if table.manifest is not None]
    found = [file for one in manifests for file in _below(one.parent.parent, f"*/{one.name}")]
    found += _below(paths.digest_cache.parent, "*.json")
    found += _below(paths.endpoint("any").parent, "*.json")
    found += _below(paths.table("controls"), f"*/{paths.control_pointer('any').name}")
    found += [file for file in (paths.rolled_day, paths.findings_told) if file.exists()]
    return found
