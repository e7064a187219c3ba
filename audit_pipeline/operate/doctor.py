"""The command `corpus-audit doctor`: is this installation fit to audit, and is what it has kept intact?

What belongs here: looking at the installation, the configuration, models, locks, and at what was kept (lineage beside
files, the cache, and, where it is asked for, every byte), and saying in one line what is wrong and what to do. What
does not: what is gone (operate/doctor_missing.py), what a digest is (catalogue/integrity.py), repairing, Dagster's own
state and how a run ended (operate/dagster/health.py).
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import duckdb
import pyarrow as pa
from packaging.requirements import Requirement

from audit_pipeline.catalogue.contracts import LINEAGE, OUTCOMES, TABLES
from audit_pipeline.catalogue.control_files import MANIFEST, require_intact_control
from audit_pipeline.catalogue.files import read_json, read_parquet, read_rows
from audit_pipeline.catalogue.integrity import DamagedError, file_sha256
from audit_pipeline.catalogue.lineage import (
    LineageEntry,
    digests_by_file,
    list_files_needing_entries,
    package_versions,
    pair_entries_with_files,
)
from audit_pipeline.catalogue.lineage_chain import Withdrawal, follow_chain
from audit_pipeline.catalogue.object_store import Bucket, BucketError
from audit_pipeline.catalogue.paths import (
    OWN_CONFIGURATION,
    DataPaths,
    explain_unwritable,
    find_nearest,
    is_held,
    is_open_to_others,
    is_shipped,
    is_writable,
)
from audit_pipeline.catalogue.store import list_cache_folders
from audit_pipeline.catalogue.working_copy import copy_of
from audit_pipeline.errors import AuditError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.fingerprint import find_unnoticed_changes, identify
from audit_pipeline.models.kept_files import KEPT_MANIFEST, list_kept_folders, read_intact_manifest
from audit_pipeline.models.locate import locate
from audit_pipeline.models.tokenized_model import is_tokenizer_kept, load_tokenizer
from audit_pipeline.models.weights import default_device
from audit_pipeline.operate.doctor_checks import DoctorCheck, HowEnded, Look, abbreviate_names
from audit_pipeline.operate.doctor_missing import examine_missing
from audit_pipeline.operate.removal import list_unfinished_removals
from audit_pipeline.operate.removal_files import DEAD_AFTER_SECONDS, stat_of
from audit_pipeline.operate.whole_configuration import FILES, load_configuration
from audit_pipeline.token_statistics.cache import find_damaged_parts, list_parts, set_aside
from audit_pipeline.warehouse.build import read_lineage, read_lineage_chain
from audit_pipeline.warehouse.query import find_block_damage, open_read_only

Explained = Sequence[tuple[LineageEntry, Path]]
_AGAIN = "delete them, and run again what made them"


def examine_files(paths: DataPaths, how_ended: HowEnded, on_check: Look, *, deep: bool) -> Iterator[DoctorCheck]:
    """Lineage and files, the cache; with ``deep`` every file to its end.

    Damaged parts of the cache are set aside, where something can be written: every run does so.
    """
    on_check("lineage")
    entries, damaged = read_lineage(paths)
    explained = pair_entries_with_files(entries, paths)
    yield from _check_lineage(paths, explained, [one.path for one in damaged])
    yield from _check_cache(paths, on_check, deep=deep)
    yield from _check_kept_model_files(paths)
    if deep:
        yield from _check_every_file(paths, explained, on_check)
        yield from _check_chain(paths, on_check)
    yield from examine_missing(paths, entries, how_ended, on_check, deep=deep)


def _check_lineage(
    paths: DataPaths, explained_files: Explained, damaged_files: Sequence[Path]
) -> Iterator[DoctorCheck]:
    there = list_files_needing_entries(paths)
    yield DoctorCheck(
        "lineage", ok=True, words=f"{len(explained_files)} entries of files, {len(there)} files of tables"
    )
    if damaged_files:
        words = (
            f"not as they were written: {abbreviate_names(damaged_files)}: put them back from a backup; without a "
            "backup, delete them, and run again what they explain"
        )
        yield DoctorCheck("damaged entries", ok=False, words=words)
    unexplained = sorted(set(there) - {path for _, path in explained_files})
    if unexplained:
        words = (
            f"no lineage entry says where {abbreviate_names(unexplained)} came from: delete them, or run again "
            "what made them"
        )
        yield DoctorCheck("files without lineage", ok=False, words=words)


def _check_cache(paths: DataPaths, on_check: Look, *, deep: bool) -> Iterator[DoctorCheck]:
    folders = list_cache_folders(paths)
    earlier = [path for folder in folders for path in sorted(folder.glob("part-*.unreadable"))]
    total = sum(part.stat().st_size for folder in folders for part in list_parts(folder))
    damaged = []
    for folder in folders:
        on_check(f"cache, {folder.parent.name} ({total / 1e6:,.0f} MB in all)")
        damaged += list(find_damaged_parts(folder, whole=deep))
    if damaged and is_writable(paths.root):
        words = (
            f"damaged: {abbreviate_names(damaged)}: set aside as .unreadable; their texts are run again by the "
            "next audit"
        )
        for part in damaged:
            set_aside(part)
    elif damaged:
        words = f"damaged: {abbreviate_names(damaged)}: the next audit sets them aside and runs their texts again"
    else:
        compared = "every byte compared" if deep else "bytes are compared by doctor --deep, and whenever they are read"
        parts = sum(len(list_parts(folder)) for folder in folders)
        words = f"{parts} part files, {total / 1e6:,.0f} MB; {compared}"
    yield DoctorCheck("cache", not damaged, words)
    if earlier:
        words = f"{len(earlier)} damaged part file(s), the first {earlier[0]}: their texts are run again; delete them"
        yield DoctorCheck("set aside", ok=False, words=words)


def _check_kept_model_files(paths: DataPaths) -> Iterator[DoctorCheck]:
    """What was made of models' files, so that they load at once: how much room it takes."""
    folders = list_kept_folders(paths)
    if folders:
        size = sum(file.stat().st_size for folder in folders for file in folder.iterdir())
        words = (
            f"{len(folders)} tokenizers and converted weights, {size / 1e6:,.0f} MB; a model's own go with "
            "corpus-audit forget --model NAME, and are made again when they are needed"
        )
        yield DoctorCheck("kept of models", ok=True, words=words)


def _check_every_file(paths: DataPaths, explained_files: Explained, on_check: Look) -> Iterator[DoctorCheck]:
    """Every file compared with its digest: tables, documents in JSON, controls, converted and large model files.

    A folder whose files a manifest names is one check, and its error names the file.
    """
    digests = digests_by_file(explained_files)
    checks: list[tuple[Path, Callable[[Path], object]]] = [
        *((path, lambda file: _require_digest(file, digests.get(file))) for path in list_files_needing_entries(paths)),
        *((path, _read_rows) for path in _list_files(paths.table(OUTCOMES.name), "*/*.parquet")),
        *((path, read_json) for path in _json_files(paths)),
        *((path.parent, require_intact_control) for path in _list_files(paths.table("controls"), f"*/*/{MANIFEST}")),
        *((path, read_intact_manifest) for path in list_kept_folders(paths)),
    ]
    damaged = [*_find_damaged_files(checks, on_check), *find_unnoticed_changes(paths, on_check)]
    on_check("warehouse")
    if paths.warehouse.exists() and (problem := find_block_damage(paths.warehouse)) is not None:
        yield DoctorCheck("warehouse, every block", ok=False, words=f"{problem}; build it again: corpus-audit report")
    words = f"{len(checks)} as they were written; pages of the report have no digest"
    if damaged:
        words = f"not as they were written: {abbreviate_names(damaged)}: {_AGAIN}"
    yield DoctorCheck("every file", not damaged, words)


def _check_chain(paths: DataPaths, on_check: Look) -> Iterator[DoctorCheck]:
    """Whether every lineage row follows the one before it, and none is gone but those that were withdrawn."""
    on_check("the chain of the lineage")
    found = follow_chain(*read_lineage_chain(paths))
    forgotten, replaced = (found.withdrawn.get(reason, 0) for reason in get_args(Withdrawal))
    words = (
        f"{found.linked} rows, each with the digest of the one before; removed by forget: {forgotten}, replaced or "
        f"taken back by their own run: {replaced}; of earlier versions, without a link: {found.earlier}"
    )
    if found.problems:
        words = (
            f"{abbreviate_names(found.problems, '; ')}: put the files back from a backup of "
            f"{paths.table(LINEAGE.name)}; without a backup, say so with every finding of this data folder"
        )
    yield DoctorCheck("chain of the lineage", not found.problems, words)


def _find_damaged_files(
    checks: Sequence[tuple[Path, Callable[[Path], object]]], on_check: Look
) -> Iterator[Path | str]:
    for number, (path, check) in enumerate(checks, 1):
        on_check(f"file {number} of {len(checks)}")
        try:
            check(path)
        except FileNotFoundError:
            # Gone since it was listed, or it never was there: the look at the lineage says so.
            continue
        except (AuditError, ValueError, OSError, pa.ArrowException, AttributeError, LookupError, TypeError) as error:
            yield f"{path} ({error})" if path.is_dir() else path


def _require_digest(path: Path, digests: Collection[str] | None) -> None:
    if not digests:
        # Of an earlier version, or without a lineage entry: all that is known is that it can be read to its end.
        read_parquet(path)
    elif file_sha256(path) not in digests:
        raise DamagedError(str(path))


def _read_rows(path: Path) -> None:
    read_rows(path, label=path.name)


def _list_files(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern))


def _json_files(paths: DataPaths) -> list[Path]:
    """Every document in JSON that a number, or what is told of it, comes from."""
    manifests = [table.manifest(paths, "any") for table in TABLES.values() if table.manifest is not None]
    found = [file for one in manifests for file in _list_files(one.parent.parent, f"*/{one.name}")]
    for folder in (paths.digest_cache.parent, paths.load_check("any").parent, paths.endpoint("any").parent):
        found += _list_files(folder, "*.json")
    found += _list_files(paths.table("controls"), f"*/{paths.control_pointer('any').name}")
    found += _list_files(paths.table("controls"), f"*/*/{MANIFEST}")
    found += [folder / KEPT_MANIFEST for folder in list_kept_folders(paths)]
    single = [paths.rolled_day, paths.findings_told, paths.lineage_head, paths.withdrawn_lineage]
    single += [paths.warehouse_record, paths.published]
    found += [file for file in single if file.exists()]
    return found


_DISTRIBUTION = "corpus-audit"
_LOW_DISK_BYTES = 2 << 30
_CLOCK_SECONDS = 300.0


def examine(
    paths: DataPaths,
    *,
    deep: bool = False,
    how_ended: HowEnded = lambda run_id: None,
    on_check: Look = lambda what: None,
) -> list[DoctorCheck]:
    """Everything that is looked at, in order; hub models are not fetched for it.

    ``deep`` compares every file that is kept with its digest. ``how_ended`` says of a run how it ended, ``on_check`` is
    told what is looked at now.
    """
    on_check("the installation")
    checks = [*_check_installation(), *_check_data_folder(paths)]
    if not os.access(find_nearest(paths.root), os.R_OK | os.X_OK):
        return checks
    # Before models are looked at: reading a tokenizer makes what is damaged of it again.
    files = [*examine_files(paths, how_ended, on_check, deep=deep)]
    return [
        *checks,
        *_check_configuration(paths, on_check),
        *files,
        *_check_leftovers(paths),
        *_check_locks(paths),
        *_check_warehouse(paths),
    ]


def _check_installation() -> Iterator[DoctorCheck]:
    yield DoctorCheck("Python", sys.version_info >= (3, 11), sys.version.split()[0])
    unfit = _unfit_packages(importlib.metadata.requires(_DISTRIBUTION) or ())
    versions = ", ".join(f"{name} {version}" for name, version in package_versions().items())
    words = f"{'; '.join(unfit)}; install the project again (in a checkout: make install)" if unfit else versions
    yield DoctorCheck("packages", not unfit, words)
    yield DoctorCheck("device", ok=True, words=default_device())


def _unfit_packages(requirements: Iterable[str]) -> list[str]:
    """The packages that the project needs and that are missing or of another version."""
    unfit = []
    for requirement in map(Requirement, requirements):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            unfit.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            unfit.append(f"{requirement.name} is {version}, needed is {requirement.specifier}")
    return unfit


def _check_data_folder(paths: DataPaths) -> Iterator[DoctorCheck]:
    """The folder, or the one in which the first audit would make it."""
    if (why := explain_unwritable(paths.root)) is not None:
        words = f"{paths.root} cannot be written ({why}); set CORPUS_AUDIT_DATA to a folder of yours"
        yield DoctorCheck("data folder", ok=False, words=words)
        return
    there = find_nearest(paths.root)
    if there != paths.root:
        words = f"{paths.root}, made by the first audit"
    elif is_open_to_others(paths.root):
        words = f"{paths.root}; others on this machine can read it, and it holds full texts: chmod 700 {paths.root}"
    else:
        words = str(paths.root)
    yield DoctorCheck("data folder", ok=True, words=words)
    if (copy := copy_of(paths.root)) is not None:
        yield _check_bucket(copy.bucket)
    free = shutil.disk_usage(there).free
    yield DoctorCheck("free disk", free >= _LOW_DISK_BYTES, f"{free / 1e9:.1f} GB")


def _check_bucket(bucket: Bucket) -> DoctorCheck:
    """Whether it can be written, and keeps two machines apart; the working copy was brought up to date before."""
    try:
        bucket.require_conditional_put()
        ahead = (bucket.now() - datetime.now(UTC)).total_seconds()
    except BucketError as error:
        return DoctorCheck("bucket", ok=False, words=str(error))
    words = f"{bucket.url}, of which the data folder is this machine's working copy"
    if abs(ahead) > _CLOCK_SECONDS:
        words += f"; this machine's clock is {abs(ahead):.0f} s {'behind' if ahead > 0 else 'ahead of'} the store's"
    return DoctorCheck("bucket", abs(ahead) <= _CLOCK_SECONDS, words)


def _check_configuration(paths: DataPaths, on_check: Look) -> Iterator[DoctorCheck]:
    """Every file, with all that is wrong in it and between it and the others; then the models that can be looked at."""
    on_check("the configuration")
    config = load_configuration()
    folder = str(config.folder)
    if is_shipped(config.folder):
        folder += f"; {OWN_CONFIGURATION}"
    yield DoctorCheck("configuration", ok=True, words=folder)
    for file in FILES:
        problems = config.problems_of(file)
        for problem in problems:
            yield DoctorCheck(f"config/{file}", ok=False, words=str(problem))
        if not problems and (config.folder / file).exists():
            yield DoctorCheck(f"config/{file}", ok=True, words="readable")
    try:
        models = config.models
    except AuditError:
        return
    with tempfile.TemporaryDirectory() as folder_for_a_look:
        # What is derived of a model's files is kept in the data folder, which is not made for a look.
        place = paths if paths.root.exists() else DataPaths(Path(folder_for_a_look))
        for entry in models.values():
            on_check(f"model {entry.name}")
            yield _check_model(entry, place)


def _check_model(entry: ModelEntry, paths: DataPaths) -> DoctorCheck:
    what = f"model {entry.name}"
    if entry.hub is not None:
        where = f"on the hub as {entry.hub}; fetched when it is first used"
        host = entry.host
        words = where if host.is_here else f"{host.described}, not asked for a look; its tokenizer is {where}"
        return DoctorCheck(what, ok=True, words=words)
    if entry.control is not None and not paths.control_pointer(entry.control.name).exists():
        words = f"trained when it is first asked for: corpus-audit control {entry.control.name}"
        return DoctorCheck(what, ok=True, words=words)
    try:
        located = locate(entry, paths)
        identity = identify(located, paths)
        # Reading one out of a .gguf takes long: it is looked at once it is kept.
        if located.gguf is None or is_tokenizer_kept(entry, paths):
            load_tokenizer(entry, paths)
    except (AuditError, OSError) as error:
        # OSError: what is derived of its files is kept in a data folder that cannot be written.
        return DoctorCheck(what, ok=False, words=str(error))
    return DoctorCheck(what, ok=True, words=f"{located.resolved_from}, fingerprint {identity.model_fingerprint}")


def _check_leftovers(paths: DataPaths) -> Iterator[DoctorCheck]:
    """What killed writers left: temporary files, half a removal."""
    temporary = {path: stat for path in sorted(paths.root.rglob(".*.tmp")) if (stat := stat_of(path)) is not None}
    if temporary:
        size = sum(stat.st_size for stat in temporary.values())
        dead = [path for path, stat in temporary.items() if time.time() - stat.st_mtime > DEAD_AFTER_SECONDS]
        state = f"{len(dead)} older than an hour: delete those" if dead else "being written just now, or soon dead"
        words = (
            f"{len(temporary)} file(s), {size:,} bytes, {state}: "
            f"{abbreviate_names([str(path) for path in dead or temporary])}"
        )
        yield DoctorCheck("temporary files", not dead, words)
    for target in list_unfinished_removals(paths):
        words = f"{target} is removed in part: end it with corpus-audit forget --{target.dimension} '{target.name}'"
        yield DoctorCheck("unfinished removal", ok=False, words=words)


def _check_locks(paths: DataPaths) -> Iterator[DoctorCheck]:
    """A lock is the operating system's: it is free as soon as its holder is gone, whatever became of it."""
    locks = sorted(path for path in paths.root.rglob("*.lock") if path.is_file())
    if locks and not is_writable(paths.root):
        yield DoctorCheck("locks", ok=True, words=f"{len(locks)}, none can be taken: the folder is read-only")
    elif locks:
        held = [str(path) for path in locks if is_held(path)]
        words = (
            f"{len(locks)}, held by a living process: {abbreviate_names(held)}" if held else f"{len(locks)}, all free"
        )
        yield DoctorCheck("locks", ok=True, words=words)


def _check_warehouse(paths: DataPaths) -> Iterator[DoctorCheck]:
    yield _check_warehouse_opens(paths.warehouse)
    wal = paths.warehouse.with_name(f"{paths.warehouse.name}.wal")
    if wal.exists():
        words = f"{wal} is the log of somebody's read-write session: end it; the next rebuild moves the file aside"
        yield DoctorCheck("warehouse log", ok=False, words=words)


def _check_warehouse_opens(warehouse: Path) -> DoctorCheck:
    if not warehouse.exists():
        return DoctorCheck("warehouse", ok=True, words="not built yet; the first audit builds it")
    try:
        with open_read_only(warehouse) as connection:
            (count,) = connection.execute("SELECT count(*) FROM evaluations").fetchone() or (0,)
    except AuditError as error:
        return DoctorCheck("warehouse", ok=False, words=str(error))
    except duckdb.Error as error:
        words = f"{warehouse}: {' '.join(str(error).split())}; build it again: corpus-audit report"
        return DoctorCheck("warehouse", ok=False, words=words)
    return DoctorCheck("warehouse", ok=True, words=f"{warehouse}, {count} evaluations")
