"""The command `corpus-audit doctor`: is this installation fit to audit, and is what it has kept intact?

Each finding says in one line what is wrong and what to do. Nothing is repaired, but damaged parts of the cache are set
aside, as every audit does.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
from packaging.requirements import Requirement

from audit_pipeline.errors import AuditError, to_one_line
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.converted_files import list_kept_folders, read_intact_manifest
from audit_pipeline.models.fingerprint import find_unnoticed_changes, identify
from audit_pipeline.models.locate import locate
from audit_pipeline.models.tokenized_model import is_tokenizer_kept, load_tokenized
from audit_pipeline.models.weights import choose_default_device
from audit_pipeline.pipeline.dagster.instance import dagster_home, find_dead_runs, open_existing_instance
from audit_pipeline.pipeline.whole_configuration import FILES, load_configuration
from audit_pipeline.store.control_files import MANIFEST, require_intact_control
from audit_pipeline.store.files import read_json
from audit_pipeline.store.integrity import DamagedError, file_sha256
from audit_pipeline.store.ledger import read_ledger
from audit_pipeline.store.ledger_records import Entry
from audit_pipeline.store.paths import (
    OWN_CONFIGURATION,
    DataPaths,
    explain_unwritable,
    find_nearest_existing,
    is_open_to_others,
    is_shipped,
)
from audit_pipeline.store.store import list_cache_folders
from audit_pipeline.store.versions import package_versions
from audit_pipeline.tables import TABLES
from audit_pipeline.token_statistics.cache import find_damaged_parts, list_parts, set_aside
from audit_pipeline.warehouse.query import find_block_damage, open_read_only

_DISTRIBUTION = "corpus-audit"
_LOW_DISK_BYTES = 2 << 30
_NAMED_ITEMS = 5
_WITHOUT_DIGESTS = ("claims", "dagster_home", "downloads", "logs", "reports")

OnCheck = Callable[[str], None]
"""A callback with the name of the current check."""


@dataclass(frozen=True)
class DoctorCheck:
    """What was found: whether it is well, and in ``words`` what it is and what to do, of each of the ``items``."""

    what: str
    ok: bool
    words: str
    items: Sequence[object] = ()

    def describe(self, *, names_all: bool = False) -> str:
        """The words, with the first items, or all."""
        shown = self.items if names_all else self.items[:_NAMED_ITEMS]
        more = f" and {len(self.items) - len(shown)} more (--all names them)" if len(self.items) > len(shown) else ""
        return f"{self.words}: {', '.join(map(str, shown))}{more}" if shown else self.words


def _build_check(what: str, problems: Sequence[object], advice: str, fine: str) -> DoctorCheck:
    """Return a check that is well, in the words of ``fine``, where there are no ``problems``."""
    return DoctorCheck(what, not problems, advice if problems else fine, problems)


def run_checks(paths: DataPaths, *, deep: bool = False, on_check: OnCheck = lambda what: None) -> list[DoctorCheck]:
    """Everything that is looked at, in order; models on a hub are not fetched for it.

    ``deep`` compares every file that is kept with its digest.
    """
    on_check("the installation")
    checks = [*_check_installation(), *_check_data_folder(paths)]
    if not os.access(find_nearest_existing(paths.root), os.R_OK | os.X_OK):
        return checks
    # Before models are looked at: reading a tokenizer makes what is damaged of it again.
    files = [*_check_ledger(paths, on_check), *_check_cache(paths, on_check, deep=deep)]
    if deep:
        files += _check_every_file(paths, on_check)
    return [*checks, *_check_configuration(paths, on_check), *files, _check_warehouse(paths.warehouse, deep=deep)]


def _check_installation() -> Iterator[DoctorCheck]:
    yield DoctorCheck("Python", sys.version_info >= (3, 11), sys.version.split()[0])
    unfit = _list_unfit_packages(importlib.metadata.requires(_DISTRIBUTION) or ())
    versions = ", ".join(f"{name} {version}" for name, version in package_versions().items())
    yield _build_check("packages", unfit, "install the project again (in a checkout: make install)", versions)
    yield DoctorCheck("device", True, choose_default_device())


def _list_unfit_packages(requirements: Iterable[str]) -> list[str]:
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
    """Look at the folder, or at the one in which the first audit would make it."""
    root, nearest = paths.root, find_nearest_existing(paths.root)
    if (reason := explain_unwritable(root)) is not None:
        words = f"{root} cannot be written ({reason}); set CORPUS_AUDIT_DATA to a folder of yours"
        yield DoctorCheck("data folder", False, words)
        return
    words = str(root)
    if nearest != root:
        words += ", made by the first audit"
    elif is_open_to_others(root):
        words += f"; others on this machine can read it, and it holds full texts: chmod 700 {root}"
    yield DoctorCheck("data folder", True, words)
    free = shutil.disk_usage(nearest).free
    yield DoctorCheck("free disk", free >= _LOW_DISK_BYTES, f"{free / 1e9:.1f} GB")


def _check_configuration(paths: DataPaths, on_check: OnCheck) -> Iterator[DoctorCheck]:
    """Read every file, with all that is wrong in it and between it and the others; then look at the models."""
    on_check("the configuration")
    config = load_configuration()
    words = f"{config.folder}; {OWN_CONFIGURATION}" if is_shipped(config.folder) else str(config.folder)
    yield DoctorCheck("configuration", True, words)
    for file in FILES:
        problems = config.problems_of(file)
        yield from (DoctorCheck(f"config/{file}", False, str(problem)) for problem in problems)
        if not problems and (config.folder / file).exists():
            yield DoctorCheck(f"config/{file}", True, "readable")
    try:
        models = config.models
    except AuditError:
        return
    with tempfile.TemporaryDirectory() as scratch:
        # What is derived of a model's files is kept in the data folder, which is not made for a look.
        place = paths if paths.root.exists() else DataPaths(Path(scratch))
        for entry in models.values():
            on_check(f"model {entry.name}")
            yield DoctorCheck(f"model {entry.name}", *_examine_model(entry, place))


def _examine_model(entry: ModelEntry, paths: DataPaths) -> tuple[bool, str]:
    if entry.hub is not None:
        words = f"on the hub as {entry.hub}; fetched when it is first used"
        return True, words if entry.host.is_here else f"{entry.host.described}, not asked now; its tokenizer is {words}"
    if entry.control is not None and not paths.control_pointer(entry.control.name).exists():
        return True, f"trained when it is first asked for: corpus-audit control {entry.control.name}"
    try:
        located = locate(entry, paths)
        identity = identify(located, paths)
        # Reading one out of a .gguf takes long: it is looked at once it is kept.
        if located.gguf is None or is_tokenizer_kept(entry, paths):
            load_tokenized(entry, paths)
    except (AuditError, OSError) as error:
        # OSError: what is derived of its files is kept in a data folder that cannot be written.
        return False, str(error)
    return True, f"{located.resolved_from}, fingerprint {identity.model_fingerprint}"


def _check_ledger(paths: DataPaths, on_check: OnCheck) -> Iterator[DoctorCheck]:
    """Follow the chain, and compare the names of files with those that its lines explain."""
    on_check("the ledger")
    ledger, files = read_ledger(paths), _list_table_files(paths)
    advice = f"put {paths.ledger} back from a backup; without a backup, say so with every finding of this data folder"
    fine = f"{len(ledger.lines)} lines, {ledger.forgotten_count} of them forgotten; {len(files)} files of tables"
    yield _build_check("ledger", ledger.problems, advice, fine)
    if unexplained := sorted(set(files) - {entry.file(paths) for entry in ledger.entries}):
        words = "no line of the ledger explains them: delete them, and run again what made them"
        yield DoctorCheck("unexplained files", False, words, unexplained)
    # Of what was written last to each partition.
    latest: dict[tuple[str, str], Entry] = {(entry.table, entry.partition): entry for entry in ledger.entries}
    written = (entry.file(paths) for entry in latest.values())
    if missing := sorted(file for file in written if file is not None and not file.exists()):
        words = "deleted, or never written because the run was killed: run again what made them (audit --again)"
        yield DoctorCheck("missing files", False, words, missing)


def _list_table_files(paths: DataPaths) -> list[Path]:
    """The Parquet files of every declared table that has files of its own."""
    tables = [table for table in TABLES.values() if table.has_files]
    return sorted(file for table in tables for file in paths.table(table.name).glob("*/*.parquet"))


def _check_cache(paths: DataPaths, on_check: OnCheck, *, deep: bool) -> Iterator[DoctorCheck]:
    folders = list_cache_folders(paths)
    aside = [path for folder in folders for path in sorted(folder.glob("part-*.unreadable"))]
    sizes = [part.stat().st_size for folder in folders for part in list_parts(folder)]
    damaged: list[Path] = []
    for folder in folders:
        on_check(f"cache, {folder.parent.name} ({sum(sizes) / 1e6:,.0f} MB in all)")
        damaged += find_damaged_parts(folder, whole=deep)
    compared = "every byte compared" if deep else "bytes are compared by doctor --deep, and whenever they are read"
    fine = f"{len(sizes)} part files, {sum(sizes) / 1e6:,.0f} MB; {compared}"
    yield _build_check("cache", damaged, "damaged; the next audit runs their texts again", fine)
    if explain_unwritable(paths.root) is None:
        for part in damaged:
            set_aside(part)
    if aside:
        yield DoctorCheck("set aside", False, "damaged parts, whose texts are run again: delete them", aside)


def _check_every_file(paths: DataPaths, on_check: OnCheck) -> Iterator[DoctorCheck]:
    """Compare every file with its digest: tables, JSON documents, controls, what is kept of models, model files."""
    digests: dict[Path | None, set[str | None]] = {}
    for entry in read_ledger(paths).entries:
        digests.setdefault(entry.file(paths), set()).add(entry.file_sha256)

    def require_digest(file: Path) -> None:
        if file_sha256(file) not in digests.get(file, ()):
            raise DamagedError("its sha256 is none that the ledger names")

    documents = [
        path
        for path in sorted(paths.root.rglob("[!.]*.json"))
        if path.relative_to(paths.root).parts[0] not in _WITHOUT_DIGESTS
    ]
    checks: list[tuple[Path, Callable[[Path], object]]] = [
        *((path, require_digest) for path in _list_table_files(paths)),
        *((path, read_json) for path in documents),
        *((path.parent, require_intact_control) for path in paths.table("controls").glob(f"*/*/{MANIFEST}")),
        *((path, read_intact_manifest) for path in list_kept_folders(paths)),
    ]
    damaged: list[object] = []
    for number, (path, check) in enumerate(checks, 1):
        on_check(f"file {number} of {len(checks)}")
        try:
            check(path)
        except FileNotFoundError:
            continue
        except (AuditError, ValueError, OSError, pa.ArrowException, AttributeError, LookupError, TypeError) as error:
            damaged.append(f"{path} ({error})" if path.is_dir() else path)
    damaged += find_unnoticed_changes(paths, on_check)
    advice = "not as they were written: delete them, and run again what made them"
    yield _build_check(
        "every file", damaged, advice, f"{len(checks)} as they were written; pages of the report have no digest"
    )


def _check_warehouse(warehouse: Path, *, deep: bool) -> DoctorCheck:
    if not warehouse.exists():
        return DoctorCheck("warehouse", True, "not built yet; the first audit builds it")
    try:
        with open_read_only(warehouse) as connection:
            (count,) = connection.execute("SELECT count(*) FROM evaluations").fetchone() or (0,)
        problem = find_block_damage(warehouse) if deep else None
    except (AuditError, duckdb.Error) as error:
        problem = to_one_line(error)
    if problem is not None:
        return DoctorCheck("warehouse", False, f"{warehouse}: {problem}; build it again: corpus-audit report")
    return DoctorCheck("warehouse", True, f"{warehouse}, {count} evaluations")


def examine_dagster(paths: DataPaths) -> DoctorCheck:
    """Say whether Dagster's storage can be opened, and which of its runs are dead. It makes no Dagster home."""
    home = dagster_home(paths)
    if (reason := explain_unwritable(home)) is not None:
        return DoctorCheck(
            "Dagster", False, f"{home} cannot be written ({reason}); set DAGSTER_HOME to a folder of yours"
        )
    if not (home / "dagster.yaml").exists():
        return DoctorCheck("Dagster", True, f"{home} is made by the first audit")
    try:
        with open_existing_instance(home) as instance:
            dead = [run.run_id for run in find_dead_runs(instance, paths)]
    except Exception as error:  # noqa: BLE001 - each storage has errors of its own
        words = f"the storage that {home / 'dagster.yaml'} names cannot be opened: {' '.join(str(error).split())[:300]}"
        return DoctorCheck("Dagster", False, words)
    if dead:
        return DoctorCheck("Dagster", False, "runs whose process is gone; the next audit marks them failed", dead)
    return DoctorCheck("Dagster", True, str(home))
