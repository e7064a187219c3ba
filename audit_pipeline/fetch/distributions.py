"""Distributions from the package index that pip is configured with: fetched and read, neither built nor installed.

What belongs here: which file of the index, and the cache of verified archives. What does not: which index
(package_index.py), and reading an archive's members (archives.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Self, TypeVar

import requests
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version
from pydantic import ValidationError
from pypi_simple import (
    PYPI_SIMPLE_ENDPOINT,
    DigestMismatchError,
    DistributionPackage,
    NoSuchProjectError,
    ProjectPage,
    PyPISimple,
    UnsupportedContentTypeError,
    UnsupportedRepoVersionError,
)

from audit_pipeline.catalogue.files import write_atomically
from audit_pipeline.catalogue.integrity import file_sha256
from audit_pipeline.errors import SourceError
from audit_pipeline.fetch.archives import Archive, ArchiveLimits
from audit_pipeline.fetch.package_index import Index
from audit_pipeline.fetch.retry import (
    RetryPolicy,
    build_retryer,
    format_public_error,
    format_request_error,
    is_transient_fault,
)
from audit_pipeline.fetch.server_answers import (
    ACCEPTED,
    MOST_JSON,
    DamagedAnswerError,
    GuardedAdapter,
    OversizedAnswerError,
)

_SUFFIX = ".tar.gz"

Result = TypeVar("Result")


def fetch_archive(project: str, index: Index, downloads: Path) -> Archive:
    """The newest final, non-yanked source distribution of ``project``, from the cache where it is there already.

    Where the index cannot be reached or the file cannot be fetched, the newest archive in the cache, with the fault
    said. Every archive is verified by the sha256 that the index gave for it, cached ones each time.

    Raises SourceError if none can be fetched.
    """
    folder = downloads / canonicalize_name(project)
    try:
        with _client(index) as client:
            page = _fetch_project_page(client, project, index)
            package, version = choose_source_distribution(page.packages, project)
            return Archive(str(version), _fetch_distribution(client, package, folder, index))
    except _FetchError as error:
        cached = _find_newest_cached_archive(project, folder)
        if cached is None:
            raise SourceError(f"{project}: {error}") from error
        version, path = cached
        return Archive(str(version), path, f"newer version than {version} not looked up: {error}")


def choose_source_distribution(
    packages: list[DistributionPackage], project: str
) -> tuple[DistributionPackage, Version]:
    """The .tar.gz source distribution of the highest final version that is not yanked; SourceError where none is."""
    candidates = [
        (version, package)
        for package in packages
        if package.package_type == "sdist" and package.filename.endswith(_SUFFIX) and not package.is_yanked
        for version in [_final_version(package.version)]
        if version is not None
    ]
    if not candidates:
        raise SourceError(f"{project}: the package index lists no {_SUFFIX} source distribution of a final release")
    version, package = max(candidates, key=lambda candidate: candidate[0])
    return package, version


def fetch_wheel(project: str, index: Index, downloads: Path, version: str | None = None) -> Archive:
    """The wheel of ``project``'s newest final, non-yanked release, or of ``version``; as :func:`fetch_archive`.

    Where a release has several wheels, one for every platform goes first, then the first by name. A wheel of a given
    version that is in the cache and intact is not fetched again: the index has no newer one of that version.

    Raises SourceError if none can be fetched.
    """
    folder = downloads / canonicalize_name(project)
    if version is not None and (pinned := _find_newest_cached_wheel(project, folder, version)) is not None:
        return Archive(str(pinned[0]), pinned[1])
    try:
        with _client(index) as client:
            package, found = choose_wheel(_fetch_project_page(client, project, index).packages, project, version)
            return Archive(str(found), _fetch_distribution(client, package, folder, index))
    except _FetchError as error:
        cached = None if version is not None else _find_newest_cached_wheel(project, folder, None)
        if cached is None:
            raise SourceError(f"{project}: {error}") from error
        return Archive(str(cached[0]), cached[1], f"newer version than {cached[0]} not looked up: {error}")


def choose_wheel(
    packages: list[DistributionPackage], project: str, version: str | None
) -> tuple[DistributionPackage, Version]:
    """The wheel of the highest final version that is not yanked, or of ``version``; SourceError where none is."""
    candidates = [
        (found, package)
        for package in packages
        if package.package_type == "wheel" and (version is not None or not package.is_yanked)
        for found in [_wheel_version(package.filename, version)]
        if found is not None
    ]
    if not candidates:
        what = "a final release" if version is None else f"version {version}"
        raise SourceError(f"{project}: the package index lists no wheel of {what}")
    newest = max(found for found, _ in candidates)
    of_newest = [package for found, package in candidates if found == newest]
    package = min(of_newest, key=lambda wheel: (not wheel.filename.endswith("-none-any.whl"), wheel.filename))
    return package, newest


class _FetchError(Exception):
    """The index or the file could not be fetched this time; a cached archive may take its place."""


def _final_version(text: str | None) -> Version | None:
    try:
        version = Version(text or "")
    except InvalidVersion:
        return None
    return None if version.is_prerelease else version


def _client(index: Index) -> PyPISimple:
    session = requests.Session()
    for scheme in ("https://", "http://"):
        session.mount(scheme, GuardedAdapter(MOST_JSON))
    session.headers["Accept-Encoding"] = ACCEPTED
    if index.certificates:
        if not Path(index.certificates).exists():
            raise _FetchError(f"the certificates that pip is configured with are missing: {index.certificates}")
        session.verify = index.certificates
    if index.proxy:
        session.proxies = {"http": index.proxy, "https": index.proxy}
    return PyPISimple(endpoint=index.endpoint or PYPI_SIMPLE_ENDPOINT, session=session)


def _fetch_project_page(client: PyPISimple, project: str, index: Index) -> ProjectPage:
    try:
        return _call_with_retries(lambda: client.get_project_page(project, timeout=index.timeout), index)
    except NoSuchProjectError:
        raise SourceError(f"{project}: the package index has no such project") from None
    except (OversizedAnswerError, DamagedAnswerError) as error:
        raise _FetchError(f"no usable answer from the package index ({error})") from error
    except (UnsupportedContentTypeError, UnsupportedRepoVersionError, ValidationError) as error:
        raise _FetchError(f"the index's answer is not a package list ({format_public_error(error)})") from error


def _fetch_distribution(client: PyPISimple, package: DistributionPackage, folder: Path, index: Index) -> Path:
    expected = package.digests.get("sha256", "").lower()
    if not expected:
        raise _FetchError(f"the index gives no sha256 for {package.filename}")
    if PurePosixPath(package.filename).name != package.filename or "\\" in package.filename:
        raise _FetchError(f"the index names a file that leads elsewhere: {package.filename!r}")
    path = folder / package.filename

    def download(temporary: Path) -> None:
        client.download_package(
            package, temporary, timeout=index.timeout, progress=lambda _: _DownloadLimit(ArchiveLimits().wanted)
        )

    try:
        if not path.is_file() or file_sha256(path) != expected:
            with write_atomically(path) as temporary:
                _call_with_retries(partial(download, temporary), index)
                if file_sha256(temporary) != expected:
                    raise _FetchError(f"{package.filename} is not the file that the index describes")
        with write_atomically(_digest_path(path)) as temporary:
            temporary.write_text(f"{expected}  {path.name}\n", encoding="utf-8")
    except DigestMismatchError as error:
        raise _FetchError(f"{package.filename} is not the file that the index describes: wrong sha256") from error
    return path


class _DownloadLimit:
    """Stops a download that is larger than any distribution that is read here should be."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        return None

    def update(self, increment: int, /) -> None:
        self._left -= increment
        if self._left < 0:
            raise _FetchError("the file is larger than a distribution should be")


def _call_with_retries(action: Callable[[], Result], index: Index) -> Result:
    """``action``, tried again after a pause where the fault may pass; raises _FetchError where it does not."""
    try:
        return build_retryer(RetryPolicy(index.attempts, index.pause), is_transient_fault)(action)
    except requests.RequestException as error:
        raise _FetchError(f"no usable answer from the package index ({format_request_error(error)})") from error


def _find_newest_cached_archive(project: str, folder: Path) -> tuple[Version, Path] | None:
    """The newest archive in the cache that is still what was downloaded."""
    found: list[tuple[Version, Path]] = []
    for path in folder.glob(f"*{_SUFFIX}"):
        stem = path.name.removesuffix(_SUFFIX)
        name, _, version_text = stem.rpartition("-")
        version = _final_version(version_text)
        if version is not None and canonicalize_name(name) == canonicalize_name(project) and _is_intact(path):
            found.append((version, path))
    return max(found, default=None)


def _wheel_version(filename: str, required_version: str | None) -> Version | None:
    """The version of a wheel by its name, where that is final, or the one that is required; else None."""
    try:
        _, version, _, _ = parse_wheel_filename(filename)
    except (InvalidWheelFilename, InvalidVersion):
        return None
    if required_version is None:
        return None if version.is_prerelease else version
    return version if version == Version(required_version) else None


def _find_newest_cached_wheel(project: str, folder: Path, required_version: str | None) -> tuple[Version, Path] | None:
    """The newest wheel in the cache, or that of ``required_version``, if the file is still what was downloaded."""
    found = [
        (version, path)
        for path in sorted(folder.glob("*.whl"))
        for version in [_wheel_version(path.name, required_version)]
        if version is not None and parse_wheel_filename(path.name)[0] == canonicalize_name(project) and _is_intact(path)
    ]
    return max(found, default=None)


def _is_intact(path: Path) -> bool:
    note = _digest_path(path)
    return note.is_file() and note.read_text(encoding="utf-8").split()[:1] == [file_sha256(path)]


def _digest_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")
