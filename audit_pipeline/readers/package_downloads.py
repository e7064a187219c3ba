"""Distributions from the package index that pip is configured with: fetched and read, neither built nor installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import requests
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
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

from audit_pipeline.errors import SourceError
from audit_pipeline.readers.archives import Archive
from audit_pipeline.readers.pip_settings import Index
from audit_pipeline.readers.retry import (
    RetryPolicy,
    build_retryer,
    format_public_error,
    format_request_error,
    is_transient_fault,
)
from audit_pipeline.store.files import write_atomically
from audit_pipeline.store.integrity import file_sha256

Result = TypeVar("Result")


def fetch_sdist(project: str, index: Index, downloads: Path) -> Archive:
    """The newest final, non-yanked source distribution of ``project``, from the cache where it is there already.

    Where the index cannot be reached or the file cannot be fetched, the newest archive in the cache, with the fault
    said. Every archive is verified by the sha256 that the index gave for it, cached ones each time.

    Raises SourceError if none can be fetched.
    """
    return _fetch_newest(_SOURCE, project, index, downloads, None)


def fetch_wheel(project: str, index: Index, downloads: Path, version: str | None = None) -> Archive:
    """The wheel of ``project``'s newest final, non-yanked release, or of ``version``; as :func:`fetch_sdist`.

    Where a release has several wheels, one for every platform goes first, then the first by name. A wheel of a given
    version that is in the cache and intact is not fetched again: the index has no newer one of that version.

    Raises SourceError if none can be fetched.
    """
    return _fetch_newest(_WHEEL, project, index, downloads, version)


@dataclass(frozen=True)
class _Kind:
    """A kind of distribution: what it is called, how its names end, and how they are read."""

    name: str
    suffix: str
    parse: Callable[[str], tuple[Any, ...]]

    def find_version(self, filename: str, project: str, required: str | None) -> Version | None:
        """The version of a file of ``project``, where it is final, or the one that is required; else None."""
        try:
            name, version = self.parse(filename)[:2] if filename.endswith(self.suffix) else ("", Version("0"))
        except (InvalidSdistFilename, InvalidWheelFilename, InvalidVersion):
            return None
        is_wanted = not version.is_prerelease if required is None else version == Version(required)
        return version if is_wanted and name == canonicalize_name(project) else None


_SOURCE = _Kind(".tar.gz source distribution", ".tar.gz", parse_sdist_filename)
_WHEEL = _Kind("wheel", ".whl", parse_wheel_filename)


def _fetch_newest(kind: _Kind, project: str, index: Index, downloads: Path, required: str | None) -> Archive:
    folder = downloads / canonicalize_name(project)
    if required is not None and (pinned := _find_newest_cached(kind, project, folder, required)) is not None:
        return pinned
    try:
        with _client(index) as client:
            packages = _fetch_project_page(client, project, index).packages
            package, version = _choose_newest(kind, packages, project, required)
            return Archive(str(version), _fetch_distribution(client, package, folder, index))
    except _FetchError as error:
        cached = None if required is not None else _find_newest_cached(kind, project, folder, None)
        if cached is None:
            raise SourceError(f"{project}: {error}") from error
        return replace(cached, fault=f"newer version than {cached.version} not looked up: {error}")


def _choose_newest(
    kind: _Kind, packages: list[DistributionPackage], project: str, required: str | None
) -> tuple[DistributionPackage, Version]:
    """The distribution of the highest final version that is not yanked, or of the ``required`` version."""
    candidates = [
        (version, package)
        for package in packages
        if (version := kind.find_version(package.filename, project, required)) is not None
        and (required is not None or not package.is_yanked)
    ]
    if not candidates:
        what = "a final release" if required is None else f"version {required}"
        raise SourceError(f"{project}: the package index lists no {kind.name} of {what}")
    newest = max(version for version, _ in candidates)
    of_newest = [package for version, package in candidates if version == newest]
    return min(of_newest, key=lambda wheel: (not wheel.filename.endswith("-none-any.whl"), wheel.filename)), newest


def _find_newest_cached(kind: _Kind, project: str, folder: Path, required: str | None) -> Archive | None:
    """The newest distribution in the cache, or that of ``required``, if the file is still what was downloaded."""
    found: list[tuple[Version, Path]] = []
    for note in folder.glob(f"*{kind.suffix}.sha256"):
        file = note.with_suffix("")
        known = kind.find_version(file.name, project, required) if file.is_file() else None
        if known is not None and note.read_text(encoding="utf-8").split()[:1] == [file_sha256(file)]:
            found.append((known, file))
    version, path = max(found, default=(None, None))
    return None if path is None else Archive(str(version), path)


class _FetchError(Exception):
    """The index or the file could not be fetched this time; a cached archive may take its place."""


def _client(index: Index) -> PyPISimple:
    session = requests.Session()
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
    except (UnsupportedContentTypeError, UnsupportedRepoVersionError, ValidationError) as error:
        raise _FetchError(f"the index's answer is not a package list ({format_public_error(error)})") from error


def _fetch_distribution(client: PyPISimple, package: DistributionPackage, folder: Path, index: Index) -> Path:
    expected = package.digests.get("sha256", "").lower()
    if not expected:
        raise _FetchError(f"the index gives no sha256 for {package.filename}")
    path = folder / package.filename
    try:
        if not path.is_file() or file_sha256(path) != expected:
            with write_atomically(path) as temporary:
                download = partial(client.download_package, package, temporary, timeout=index.timeout)
                _call_with_retries(download, index)
        with write_atomically(path.with_name(f"{path.name}.sha256")) as temporary:
            temporary.write_text(f"{expected}  {path.name}\n", encoding="utf-8")
    except DigestMismatchError as error:
        raise _FetchError(f"{package.filename} is not the file that the index describes: wrong sha256") from error
    return path


def _call_with_retries(action: Callable[[], Result], index: Index) -> Result:
    """``action``, tried again after a pause where the fault may pass; raises _FetchError where it does not."""
    try:
        return build_retryer(RetryPolicy(index.attempts, index.pause), is_transient_fault)(action)
    except requests.RequestException as error:
        raise _FetchError(f"no usable answer from the package index ({format_request_error(error)})") from error
