"""The command `corpus-audit doctor`: is this installation fit to audit, and is what it has kept intact?

What belongs here: looking, and saying in one line what is wrong and what to do. What does not: the files that were kept
(operate/doctor_files.py), repairing, Dagster's own state (operate/dagster/health.py).
"""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import duckdb
from packaging.requirements import Requirement

from audit_pipeline.catalogue.bucket import Bucket, BucketError
from audit_pipeline.catalogue.data_folder import is_held, is_open_to_others, is_writable
from audit_pipeline.catalogue.lineage import package_versions
from audit_pipeline.catalogue.paths import OWN_CONFIGURATION, DataPaths, is_shipped
from audit_pipeline.catalogue.working_copy import copy_of
from audit_pipeline.errors import AuditError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.fingerprint import identify
from audit_pipeline.models.load import is_kept, load_tokenizer
from audit_pipeline.models.locate import locate
from audit_pipeline.models.weights import default_device
from audit_pipeline.operate.configuration import FILES, load_configuration
from audit_pipeline.operate.doctor_checks import DoctorCheck, HowEnded, Look, named
from audit_pipeline.operate.doctor_files import examine_files
from audit_pipeline.operate.removal import unfinished
from audit_pipeline.operate.removal_cache import DEAD_AFTER_SECONDS
from audit_pipeline.operate.removal_lots import stat_of
from audit_pipeline.warehouse.query import open_read_only

_DISTRIBUTION = "corpus-audit"
_LOW_DISK_BYTES = 2 << 30
_CLOCK_SECONDS = 300.0


def examine(
    paths: DataPaths,
    *,
    deep: bool = False,
    how_ended: HowEnded = lambda run_id: None,
    look: Look = lambda what: None,
) -> list[DoctorCheck]:
    """Everything that is looked at, in order; hub models are not fetched for it.

    ``deep`` compares every file that is kept with its digest. ``how_ended`` says of a run how it ended, ``look`` is
    told what is looked at now.
    """
    look("the installation")
    return [
        *_installation(),
        *_data_folder(paths),
        *_configuration(paths, look),
        *examine_files(paths, how_ended, look, deep=deep),
        *_check_leftovers(paths),
        *_locks(paths),
        *_warehouse(paths),
    ]


def _installation() -> Iterator[DoctorCheck]:
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


def _data_folder(paths: DataPaths) -> Iterator[DoctorCheck]:
    """The folder, or the one in which the first audit would make it."""
    there = next(folder for folder in (paths.root, *paths.root.parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        yield DoctorCheck(
            "data folder", ok=False, words=f"{paths.root} cannot be written: {error}; set CORPUS_AUDIT_DATA"
        )
        return
    if there != paths.root:
        words = f"{paths.root}, made by the first audit"
    elif is_open_to_others(paths.root):
        words = f"{paths.root}; others on this machine can read it, and it holds full texts: chmod 700 {paths.root}"
    else:
        words = str(paths.root)
    yield DoctorCheck("data folder", ok=True, words=words)
    if (copy := copy_of(paths.root)) is not None:
        yield _bucket(copy.bucket)
    free = shutil.disk_usage(there).free
    yield DoctorCheck("free disk", free >= _LOW_DISK_BYTES, f"{free / 1e9:.1f} GB")


def _bucket(bucket: Bucket) -> DoctorCheck:
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


def _configuration(paths: DataPaths, look: Look) -> Iterator[DoctorCheck]:
    """Every file, with all that is wrong in it and between it and the others; then the models that can be looked at."""
    look("the configuration")
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
            look(f"model {entry.name}")
            yield _model(entry, place)


def _model(entry: ModelEntry, paths: DataPaths) -> DoctorCheck:
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
        if located.gguf is None or is_kept(entry, paths):
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
        words = f"{len(temporary)} file(s), {size:,} bytes, {state}: {named([str(path) for path in dead or temporary])}"
        yield DoctorCheck("temporary files", not dead, words)
    for target in unfinished(paths):
        words = f"{target} is removed in part: end it with corpus-audit forget --{target.dimension} '{target.name}'"
        yield DoctorCheck("unfinished removal", ok=False, words=words)


def _locks(paths: DataPaths) -> Iterator[DoctorCheck]:
    """A lock is the operating system's: it is free as soon as its holder is gone, whatever became of it."""
    locks = sorted(path for path in paths.root.rglob("*.lock") if path.is_file())
    if locks and not is_writable(paths.root):
        yield DoctorCheck("locks", ok=True, words=f"{len(locks)}, none can be taken: the folder is read-only")
    elif locks:
        held = [str(path) for path in locks if is_held(path)]
        words = f"{len(locks)}, held by a living process: {named(held)}" if held else f"{len(locks)}, all free"
        yield DoctorCheck("locks", ok=True, words=words)


def _warehouse(paths: DataPaths) -> Iterator[DoctorCheck]:
    yield _opened(paths.warehouse)
    wal = paths.warehouse.with_name(f"{paths.warehouse.name}.wal")
    if wal.exists():
        words = f"{wal} is the log of somebody's read-write session: end it; the next rebuild moves the file aside"
        yield DoctorCheck("warehouse log", ok=False, words=words)


def _opened(warehouse: Path) -> DoctorCheck:
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
