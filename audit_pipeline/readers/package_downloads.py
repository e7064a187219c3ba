"""Downloads of distributions from a package index, with a cache. Nothing is built or installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version
from pypi_simple import (
    ACCEPT_ANY,
    PYPI_SIMPLE_ENDPOINT,
    DistributionPackage,
    ProjectPage,
    UnsupportedContentTypeError,
    UnsupportedRepoVersionError,
)

from audit_pipeline.errors import SourceError
from audit_pipeline.http.client import HttpClient
from audit_pipeline.http.faults import HttpError, RetryPolicy, format_public_error
from audit_pipeline.readers.distributions import Archive, Index
from audit_pipeline.store.files import write_atomically
from audit_pipeline.store.integrity import file_sha256

if TYPE_CHECKING:
    import httpx2

# The largest pages of PyPI have about 30 MB.
_MAX_PAGE_BYTES = 256 << 20
_NOT_FOUND = 404


def fetch_sdist(project: str, index: Index, downloads: Path) -> Archive:
    """Return the newest source distribution of a project. Pre-releases and yanked releases are ignored.

    A cached file is not downloaded again. If the index is unreachable, the newest cached archive is returned, and its
    ``fault`` has the reason. Downloaded and cached archives are verified by the sha256 that the index publishes.

    Args:
        project: Name of the project.
        index: Package index.
        downloads: Folder of the cache.

    Raises:
        SourceError: If neither the index nor the cache has a usable distribution.
    """
    return _fetch_newest(_SOURCE, project, index, downloads, None)


def fetch_wheel(project: str, index: Index, downloads: Path, version: str | None = None) -> Archive:
    """Return a wheel of a project: of the newest release, or of a given version.

    Cache, verification and ignored releases are the same as in :func:`fetch_sdist`. If a release has several wheels,
    the wheel for all platforms is preferred, otherwise the first wheel by name.

    Args:
        project: Name of the project.
        index: Package index.
        downloads: Folder of the cache.
        version: The version of the wheel, or None for the newest release. If the cache has an intact wheel of this
            version, no request is sent.

    Raises:
        SourceError: If neither the index nor the cache has a usable wheel.
    """
    return _fetch_newest(_WHEEL, project, index, downloads, version)


@dataclass(frozen=True)
class _Kind:
    """A kind of distribution.

    Attributes:
        name: Name in messages.
        suffix: End of the file names.
        parse: Function that returns a tuple for a file name. Its first two items are project and version.
    """

    name: str
    suffix: str
    parse: Callable[[str], tuple[Any, ...]]

    def find_version(self, filename: str, project: str, required: str | None) -> Version | None:
        """Return the version of a file, or None if the file is not usable.

        A file is usable if it is of this kind and of the project, and has the required version. If no version is
        required, every final version is usable, but no pre-release.
        """
        if not filename.endswith(self.suffix):
            return None
        try:
            name, version = self.parse(filename)[:2]
        except (InvalidSdistFilename, InvalidWheelFilename, InvalidVersion):
            return None
        if name != canonicalize_name(project):
            return None
        is_usable = not version.is_prerelease if required is None else version == Version(required)
        return version if is_usable else None


_SOURCE = _Kind(".tar.gz source distribution", ".tar.gz", parse_sdist_filename)
_WHEEL = _Kind("wheel", ".whl", parse_wheel_filename)


def _fetch_newest(kind: _Kind, project: str, index: Index, downloads: Path, required: str | None) -> Archive:
    folder = downloads / canonicalize_name(project)
    if required is not None:
        pinned = _find_newest_cached(kind, project, folder, required)
        if pinned is not None:
            return pinned
    try:
        with _IndexClient(index) as client:
            packages = client.fetch_project_page(project).packages
            package, version = _choose_newest(kind, packages, project, required)
            return Archive(str(version), client.fetch_distribution(package, folder))
    except _FetchError as error:
        cached = None
        if required is None:
            cached = _find_newest_cached(kind, project, folder, None)
        if cached is None:
            raise SourceError(f"{project}: {error}") from error
        return replace(
            cached, fault=f"the package index could not be searched for versions newer than {cached.version}: {error}"
        )


def _choose_newest(
    kind: _Kind, packages: list[DistributionPackage], project: str, required: str | None
) -> tuple[DistributionPackage, Version]:
    """Return the distribution of the newest version that is not yanked, or of the required version, with its version.

    Raises:
        SourceError: If there is no such distribution.
    """
    candidates: list[tuple[Version, DistributionPackage]] = []
    for package in packages:
        version = kind.find_version(package.filename, project, required)
        # A version that is named explicitly may be yanked (PEP 592).
        if version is not None and (required is not None or not package.is_yanked):
            candidates.append((version, package))
    if not candidates:
        release = "a final release" if required is None else f"version {required}"
        raise SourceError(f"{project}: the package index lists no {kind.name} of {release}")
    newest = max(version for version, _ in candidates)
    files = [package for version, package in candidates if version == newest]
    return min(files, key=lambda file: (not file.filename.endswith("-none-any.whl"), file.filename)), newest


def _find_newest_cached(kind: _Kind, project: str, folder: Path, required: str | None) -> Archive | None:
    """Return the newest intact distribution in the cache, or None if there is none.

    If a version is required, only distributions of that version are considered.
    """
    intact: list[tuple[Version, Path]] = []
    for digest_file in folder.glob(f"*{kind.suffix}.sha256"):
        file = digest_file.with_suffix("")
        if not file.is_file():
            continue
        version = kind.find_version(file.name, project, required)
        if version is not None and digest_file.read_text(encoding="utf-8").split()[:1] == [file_sha256(file)]:
            intact.append((version, file))
    if not intact:
        return None
    newest, path = max(intact)
    return Archive(str(newest), path)


class _FetchError(Exception):
    """An error for a failed request to the package index. The caller may then use a cached archive."""


class _IndexClient:
    """A client of a package index; a context manager.

    The package pypi-simple parses the pages of the index. Its HTTP client is not used, because it works only with
    sessions of the package `requests`.
    """

    def __init__(self, index: Index) -> None:
        self._endpoint = (index.endpoint or PYPI_SIMPLE_ENDPOINT).rstrip("/")
        self._policy = RetryPolicy(index.attempts, index.pause)
        if index.certificates and not Path(index.certificates).exists():
            raise _FetchError(
                f"the certificates in pip's configuration do not exist: {index.certificates}. Correct the setting cert "
                "or PIP_CERT."
            )
        try:
            self._http = HttpClient(
                timeout_seconds=index.timeout,
                max_bytes=_MAX_PAGE_BYTES,
                follow_redirects=True,
                certificates=index.certificates,
                proxy=index.proxy,
            )
        except HttpError as error:
            raise _build_fetch_error(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._http.close()

    def fetch_project_page(self, project: str) -> ProjectPage:
        """Return the page of a project: its distributions with their digests."""
        url = f"{self._endpoint}/{canonicalize_name(project)}/"
        try:
            response = self._http.request("GET", url, headers={"Accept": ACCEPT_ANY}, policy=self._policy)
            return _parse_project_page(project, response)
        except HttpError as error:
            if error.status == _NOT_FOUND:
                raise SourceError(f"{project}: the package index has no project with this name") from None
            raise _build_fetch_error(error) from error
        except (UnsupportedContentTypeError, UnsupportedRepoVersionError, ValueError, RecursionError) as error:
            raise _FetchError(
                f"the response of the package index is not a list of packages ({format_public_error(error)})"
            ) from error

    def fetch_distribution(self, package: DistributionPackage, folder: Path) -> Path:
        """Return the path of a distribution in the folder. Download it if it is missing there or has a wrong sha256."""
        expected = package.digests.get("sha256", "").lower()
        if not expected:
            raise _FetchError(
                f"the package index has no sha256 for {package.filename}, so that the file cannot be verified"
            )
        path = folder / package.filename
        if not path.is_file() or file_sha256(path) != expected:
            with write_atomically(path) as temporary:
                try:
                    self._http.download(package.url, temporary, policy=self._policy)
                except HttpError as error:
                    raise _build_fetch_error(error) from error
                if file_sha256(temporary) != expected:
                    raise _FetchError(f"the sha256 of {package.filename} is not the sha256 in the package index")
        with write_atomically(path.with_name(f"{path.name}.sha256")) as temporary:
            temporary.write_text(f"{expected}  {path.name}\n", encoding="utf-8")
        return path


def _parse_project_page(project: str, response: httpx2.Response) -> ProjectPage:
    url = str(response.url)
    media_type = response.headers.get("Content-Type", "text/html").partition(";")[0].strip().lower()
    if media_type == "application/vnd.pypi.simple.v1+json":
        return ProjectPage.from_json_data(response.json(), url)
    if media_type in ("application/vnd.pypi.simple.v1+html", "text/html"):
        return ProjectPage.from_html(project, response.content, url, response.charset_encoding)
    raise UnsupportedContentTypeError(url, media_type)


def _build_fetch_error(error: HttpError) -> _FetchError:
    return _FetchError(f"the package index returned no usable response ({error})")
