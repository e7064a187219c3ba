"""The checks of the command `corpus-audit doctor`: the installation, the configuration and the stored data.

Each check reports in one line what is wrong and what to do. The checks repair nothing. They only rename damaged part
files of the cache, so that no program reads them. Every audit does so, too.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import duckdb
import pyarrow as pa
from packaging.requirements import Requirement

from audit_pipeline.errors import AuditError, to_one_line
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.converted_files import list_stored_folders, read_intact_manifest
from audit_pipeline.models.fingerprint import find_unnoticed_changes, identify
from audit_pipeline.models.locate import locate
from audit_pipeline.models.tokenized_model import is_tokenizer_stored, load_tokenized
from audit_pipeline.models.weights import choose_default_device
from audit_pipeline.pipeline.dagster.instance import dagster_home, find_dead_runs, open_existing_instance
from audit_pipeline.pipeline.whole_configuration import FILES, load_configuration
from audit_pipeline.store.control_files import MANIFEST, require_intact_control
from audit_pipeline.store.files import read_json
from audit_pipeline.store.integrity import DamagedError, file_sha256, package_versions
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
from audit_pipeline.tables import TABLES
from audit_pipeline.token_statistics.cache import find_damaged_parts, list_parts, set_aside
from audit_pipeline.warehouse.query import find_block_damage, open_read_only

_DISTRIBUTION = "corpus-audit"
_LOW_DISK_BYTES = 2 << 30
_MAX_QUOTED_ITEMS = 5
# JSON documents in these folders have no digest.
_FOLDERS_WITHOUT_DIGESTS = ("claims", "dagster_home", "downloads", "logs", "reports")

OnCheck = Callable[[str], None]
"""A callback that receives the name of each check before it starts."""


@dataclass(frozen=True)
class DoctorCheck:
    """The result of one check of the command `corpus-audit doctor`.

    Attributes:
        what: The name of the checked part.
        ok: True if nothing is wrong.
        message: The state of the part if it is fine, else the problem and what to do.
        items: The files, packages or runs with the problem.
    """

    what: str
    ok: bool
    message: str
    items: Sequence[object] = ()

    def describe(self, *, names_all: bool = False) -> str:
        """Return the message with the first items, or with all items."""
        shown = self.items
        if not names_all:
            shown = self.items[:_MAX_QUOTED_ITEMS]
        if not shown:
            return self.message
        description = f"{self.message}: {', '.join(map(str, shown))}"
        n_more = len(self.items) - len(shown)
        if n_more:
            description += f" and {n_more} more (--all shows all)"
        return description


def _build_check(what: str, problems: Sequence[object], advice: str, state: str) -> DoctorCheck:
    """Return a check that reports the advice if there are problems, else the state."""
    return DoctorCheck(what, not problems, advice if problems else state, problems)


def run_checks(paths: DataPaths, *, deep: bool = False, on_check: OnCheck = lambda what: None) -> list[DoctorCheck]:
    """Run all checks except the check of Dagster, and return their results in order. Models are not downloaded.

    Args:
        paths: The data folder.
        deep: Compare every stored file with its digest.
        on_check: Receives the name of each check before it starts.
    """
    on_check("the installation")
    checks = [*_check_installation(), *_check_data_folder(paths)]
    if not os.access(find_nearest_existing(paths.root), os.R_OK | os.X_OK):
        return checks
    # Stored files are checked before models, because loading a tokenizer replaces its damaged copy.
    files = [*_check_ledger(paths, on_check), *_check_cache(paths, on_check, deep=deep)]
    if deep:
        files += _check_every_file(paths, on_check)
    return [*checks, *_check_configuration(paths, on_check), *files, _check_warehouse(paths.warehouse, deep=deep)]


def _check_installation() -> Iterator[DoctorCheck]:
    yield DoctorCheck("Python", sys.version_info >= (3, 11), f"{sys.version.split()[0]} (3.11 or newer is required)")
    unfit = _list_unfit_packages(importlib.metadata.requires(_DISTRIBUTION) or ())
    versions = ", ".join(f"{name} {version}" for name, version in package_versions().items())
    yield _build_check("packages", unfit, "Install the project again (in a checkout: make install)", versions)
    yield DoctorCheck("device", True, choose_default_device())


def _list_unfit_packages(requirements: Iterable[str]) -> list[str]:
    """Return descriptions of required packages that are missing or have an unsuitable version."""
    unfit: list[str] = []
    for requirement in map(Requirement, requirements):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            unfit.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            unfit.append(f"{requirement.name} is {version}, but must be {requirement.specifier}")
    return unfit


def _check_data_folder(paths: DataPaths) -> Iterator[DoctorCheck]:
    """Check the data folder, or the folder in which the first audit will create it."""
    root = paths.root
    nearest = find_nearest_existing(root)
    reason = explain_unwritable(root)
    if reason is not None:
        message = f"{root} is not writable: {reason}. Set CORPUS_AUDIT_DATA to another folder."
        yield DoctorCheck("data folder", False, message)
        return
    message = str(root)
    if nearest != root:
        message += ", which the first audit will create"
    elif is_open_to_others(root):
        message += f". Other users can read it, and it contains full texts. To prevent that: chmod 700 {root}"
    yield DoctorCheck("data folder", True, message)
    free = shutil.disk_usage(nearest).free
    message = f"{free / 1e9:.1f} GB on the disk of {nearest} (at least {_LOW_DISK_BYTES / 1e9:.1f} GB should be free)"
    yield DoctorCheck("free disk", free >= _LOW_DISK_BYTES, message)


def _check_configuration(paths: DataPaths, on_check: OnCheck) -> Iterator[DoctorCheck]:
    """Check each configuration file, its references to other files, and each model."""
    on_check("the configuration")
    config = load_configuration()
    message = str(config.folder)
    if is_shipped(config.folder):
        message += f"; {OWN_CONFIGURATION}"
    yield DoctorCheck("configuration", True, message)
    for file in FILES:
        problems = config.problems_of(file)
        for problem in problems:
            yield DoctorCheck(f"config/{file}", False, str(problem))
        if not problems and (config.folder / file).exists():
            yield DoctorCheck(f"config/{file}", True, "readable")
    try:
        models = config.models
    except AuditError:
        return
    with tempfile.TemporaryDirectory() as scratch:
        # Data derived from a model's files are stored in the data folder. A check does not create that folder.
        writable_paths = paths if paths.root.exists() else DataPaths(Path(scratch))
        for entry in models.values():
            on_check(f"model {entry.name}")
            yield _examine_model(entry, writable_paths)


def _examine_model(entry: ModelEntry, paths: DataPaths) -> DoctorCheck:
    what = f"model {entry.name}"
    if entry.hub is not None:
        message = f"on the hub as {entry.hub}; downloaded at first use"
        if not entry.host.is_here:
            message = f"{entry.host.described}; this check does not contact it; its tokenizer is {message}"
        return DoctorCheck(what, True, message)
    if entry.control is not None and not paths.control_pointer(entry.control.name).exists():
        return DoctorCheck(what, True, f"not trained yet; to train it: corpus-audit control {entry.control.name}")
    try:
        located = locate(entry, paths)
        identity = identify(located, paths)
        # Converting the tokenizer of a .gguf file takes long. It is checked only if an audit has converted it.
        if located.gguf is None or is_tokenizer_stored(entry, paths):
            load_tokenized(entry, paths)
    except (AuditError, OSError) as error:
        # An OSError means that data derived from the model's files cannot be stored.
        return DoctorCheck(what, False, str(error))
    return DoctorCheck(what, True, f"{located.resolved_from}, fingerprint {identity.model_fingerprint}")


def _check_ledger(paths: DataPaths, on_check: OnCheck) -> Iterator[DoctorCheck]:
    """Check the ledger's chain of digests, and compare the stored files with its lines."""
    on_check("the ledger")
    ledger = read_ledger(paths)
    files = _list_table_files(paths)
    advice = (
        f"The ledger was changed. Restore {paths.ledger} from a backup. Without a backup, mention the change with "
        "every finding of this data folder"
    )
    state = (
        f"{len(ledger.lines)} lines, {ledger.forgotten_count} of them emptied by `corpus-audit forget`; {len(files)} "
        "files of tables"
    )
    yield _build_check("ledger", ledger.problems, advice, state)
    unexplained = sorted(set(files) - {entry.file(paths) for entry in ledger.entries})
    if unexplained:
        message = "The ledger does not contain these files. Delete the files, and repeat the runs that wrote them"
        yield DoctorCheck("unexplained files", False, message, unexplained)
    # Only the last file of each partition must exist.
    latest: dict[tuple[str, str], Entry] = {(entry.table, entry.partition): entry for entry in ledger.entries}
    written = [entry.file(paths) for entry in latest.values()]
    missing = sorted(file for file in written if file is not None and not file.exists())
    if missing:
        message = "Files were deleted, or a killed run did not write them. Repeat the runs (corpus-audit audit --again)"
        yield DoctorCheck("missing files", False, message, missing)


def _list_table_files(paths: DataPaths) -> list[Path]:
    files: list[Path] = []
    for table in TABLES.values():
        if table.has_files:
            files += paths.table(table.name).glob("*/*.parquet")
    return sorted(files)


def _check_cache(paths: DataPaths, on_check: OnCheck, *, deep: bool) -> Iterator[DoctorCheck]:
    folders = list_cache_folders(paths)
    parts: list[Path] = []
    parts_set_aside: list[Path] = []
    for folder in folders:
        parts += list_parts(folder)
        parts_set_aside += sorted(folder.glob("part-*.unreadable"))
    size = f"{sum(part.stat().st_size for part in parts) / 1e6:,.0f} MB"
    damaged: list[Path] = []
    for folder in folders:
        on_check(f"cache, {folder.parent.name} ({size} in all)")
        damaged += find_damaged_parts(folder, whole=deep)
    comparison = "the digests were not compared (--deep compares them, and so does every read)"
    if deep:
        comparison = "all digests were compared"
    state = f"{len(parts)} part files, {size}; {comparison}"
    yield _build_check(
        "cache", damaged, "Part files are damaged. The next audit runs the model on their texts again", state
    )
    if explain_unwritable(paths.root) is None:
        for part in damaged:
            set_aside(part)
    if parts_set_aside:
        message = (
            "Damaged cache files were renamed to *.unreadable. Delete them. The next audit runs the model on their "
            "texts again"
        )
        yield DoctorCheck("damaged files", False, message, parts_set_aside)


def _check_every_file(paths: DataPaths, on_check: OnCheck) -> Iterator[DoctorCheck]:
    """Compare tables, JSON documents, controls, converted models and model files with their digests."""
    digests: dict[Path | None, set[str | None]] = {}
    for entry in read_ledger(paths).entries:
        digests.setdefault(entry.file(paths), set()).add(entry.file_sha256)

    def require_digest(file: Path) -> None:
        if file_sha256(file) not in digests.get(file, ()):
            raise DamagedError("The ledger does not contain the sha256 of the file.")

    documents = [
        path
        for path in sorted(paths.root.rglob("[!.]*.json"))
        if path.relative_to(paths.root).parts[0] not in _FOLDERS_WITHOUT_DIGESTS
    ]
    controls = [manifest.parent for manifest in paths.table("controls").glob(f"*/*/{MANIFEST}")]
    checks: list[tuple[Path, Callable[[Path], object]]] = []
    checks += zip(_list_table_files(paths), repeat(require_digest))
    checks += zip(documents, repeat(read_json))
    checks += zip(controls, repeat(require_intact_control))
    checks += zip(list_stored_folders(paths), repeat(read_intact_manifest))
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
    advice = "Files do not match their digests. Delete them, and repeat the runs that wrote them"
    state = f"{len(checks)} files match their digests; pages of the report have no digest"
    yield _build_check("every file", damaged, advice, state)


def _check_warehouse(warehouse: Path, *, deep: bool) -> DoctorCheck:
    if not warehouse.exists():
        return DoctorCheck("warehouse", True, "not built yet; the first audit will build it")
    try:
        with open_read_only(warehouse) as connection:
            (count,) = connection.execute("SELECT count(*) FROM evaluations").fetchone() or (0,)
        problem = find_block_damage(warehouse) if deep else None
    except (AuditError, duckdb.Error) as error:
        problem = to_one_line(error)
    if problem is not None:
        return DoctorCheck("warehouse", False, f"{warehouse}: {problem}; to rebuild it: corpus-audit report")
    return DoctorCheck("warehouse", True, f"{warehouse}, {count} evaluations")


def examine_dagster(paths: DataPaths) -> DoctorCheck:
    """Check Dagster's storage, and look for dead runs, which have no process. No Dagster home is created."""
    home = dagster_home(paths)
    reason = explain_unwritable(home)
    if reason is not None:
        message = f"{home} is not writable: {reason}. Set DAGSTER_HOME to another folder."
        return DoctorCheck("Dagster", False, message)
    if not (home / "dagster.yaml").exists():
        return DoctorCheck("Dagster", True, f"The first audit will create {home}.")
    try:
        with open_existing_instance(home) as instance:
            dead = [run.run_id for run in find_dead_runs(instance, paths)]
    except Exception as error:  # noqa: BLE001 - Each kind of storage has its own errors.
        reason = " ".join(str(error).split())[:300]
        message = f"The storage that {home / 'dagster.yaml'} configures is unusable: {reason}. Correct the file"
        return DoctorCheck("Dagster", False, message)
    if dead:
        message = "The processes of unfinished runs have ended. The next audit marks these runs as failed"
        return DoctorCheck("Dagster", False, message, dead)
    return DoctorCheck("Dagster", True, str(home))
