"""Packages from the registry that npm is configured with, fetched without npm's installing anything.

What belongs here: which registry, which versions, the cache of verified archives. What does not: reading an archive's
members (pypi.py, whose archives are packed alike) and what the members say (chinese_changelogs.py).

Only public packages: a registry that asks for a login is not supported.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import requests
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from audit_pipeline.catalogue.tables import write_atomically
from audit_pipeline.errors import SourceError
from audit_pipeline.fetch.pypi import MEBIBYTE, Archive
from audit_pipeline.sources.registry_faults import cause, may_pass, public

Version = tuple[int, int, int]

_DOCUMENT_LIMIT = 100 * MEBIBYTE
_ARCHIVE_LIMIT = 200 * MEBIBYTE
_CHUNK = 256 * 1024
# The short form of a package's document where a registry has one: versions and files, but no readmes.
_SHORT = {"Accept": "application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8"}
_PACKAGE = re.compile(r"(?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*")
_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)", re.ASCII)
_SETTING = re.compile(r"(registry|cafile|https-proxy)\s*=\s*(.*)")


@dataclass(frozen=True)
class Registry:
    """A package registry: its address, the certificates to trust, and how patient to be with it (seconds)."""

    address: str
    certificates: str | None = None
    proxy: str | None = None
    timeout: float = 60.0
    attempts: int = 3
    pause: float = 1.0


@dataclass(frozen=True)
class Release:
    """One version that the registry offers: where its archive is, and what it must hash to."""

    version: Version
    address: str
    sha512: bytes

    @property
    def text(self) -> str:
        """The version as it is written."""
        return ".".join(map(str, self.version))


def configured_registry(environment: Mapping[str, str] | None = None) -> Registry:
    """The registry, certificates and proxy that npm is configured with.

    Raises SourceError where npm is not installed and neither the environment nor .npmrc names a registry.
    """
    environment = os.environ if environment is None else environment
    listing = _npm_config()
    if listing is None:
        listing = _text_of(Path(environment.get("NPM_CONFIG_USERCONFIG") or Path.home() / ".npmrc"))
    return registry_from(npm_settings(listing, environment), environment)


def registry_from(settings: Mapping[str, str], environment: Mapping[str, str]) -> Registry:
    """The registry named by npm's settings and by NPM_CONFIG_REGISTRY, _CAFILE and _HTTPS_PROXY, which go first.

    Raises SourceError where none is named.
    """
    said = {key.lower(): value for key, value in environment.items() if value}
    address = said.get("npm_config_registry") or settings.get("registry")
    if not address:
        raise SourceError(
            "npm is not installed and no registry is configured: install npm, or set NPM_CONFIG_REGISTRY to its address"
        )
    return Registry(
        address=address if address.endswith("/") else f"{address}/",
        certificates=said.get("npm_config_cafile") or settings.get("cafile"),
        proxy=said.get("npm_config_https_proxy") or settings.get("https-proxy"),
    )


def npm_settings(listing: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The settings in an .npmrc, or in what ``npm config get`` prints; ``${NAME}`` is taken from ``environment``."""
    found: dict[str, str] = {}
    for line in listing.splitlines():
        match = _SETTING.fullmatch(line.strip())
        if match:
            value = re.sub(r"\$\{(\w+)\}", lambda name: environment.get(name.group(1), ""), match.group(2)).strip(
                "\"' "
            )
            if value and value not in ("null", "undefined"):
                found[match.group(1)] = value
    return found


def fetch_archive(package: str, registry: Registry, downloads: Path) -> Archive:
    """The archive of the newest final version of ``package`` that is not deprecated; as :func:`fetch_each_major`."""
    return fetch_each_major(package, registry, downloads)[0]


def fetch_each_major(package: str, registry: Registry, downloads: Path) -> tuple[Archive, ...]:
    """The newest final, non-deprecated version of each major version, newest first; from the cache where it is there.

    Where the registry cannot be reached or a file cannot be fetched, what the cache under ``downloads``/npm has of it,
    with the fault said. Every archive is verified by the sha512 that the registry gave for it, cached ones each time.

    Raises SourceError where there is none at all to be had, or where ``package`` is no package's name.
    """
    if not _PACKAGE.fullmatch(package):
        raise SourceError(f"{package!r} is not the name of an npm package")
    folder = downloads / "npm" / package.replace("/", "+")
    try:
        with _session(registry) as session:
            offered = newest_of_each_major(releases_in(_document(session, package, registry), package), package)
            return tuple(_archive(session, package, release, registry, folder) for release in offered)
    except _FetchError as error:
        cached = newest_of_each_major(_cached(package, folder), None)
        if not cached:
            raise SourceError(f"{package}: {error}") from error
        fault = f"only what was fetched earlier ({', '.join(release.text for release in cached)}): {error}"
        return tuple(
            Archive(package, release.text, _path(package, release, folder), None if place else fault)
            for place, release in enumerate(cached)
        )


def newest_of_each_major(releases: Iterable[Release], package: str | None) -> list[Release]:
    """The highest version of each major version, the highest first; SourceError of a ``package`` that has none."""
    newest: dict[int, Release] = {}
    for release in releases:
        held = newest.setdefault(release.version[0], release)
        if release.version > held.version:
            newest[release.version[0]] = release
    if package is not None and not newest:
        raise SourceError(f"{package}: the registry lists no final version that is not deprecated")
    return [newest[major] for major in sorted(newest, reverse=True)]


def releases_in(document: Mapping[str, Any], package: str) -> list[Release]:
    """The final, non-deprecated versions in a package's document that say where their file is and its sha512.

    Raises SourceError where the document describes no versions.
    """
    versions = document.get("versions")
    if not isinstance(versions, dict):
        raise SourceError(f"{package}: the registry's answer describes no versions")
    found: list[Release] = []
    for text, description in versions.items():
        version = final_version(text)
        if version is None or not isinstance(description, dict) or description.get("deprecated"):
            continue
        dist = description.get("dist")
        address = dist.get("tarball") if isinstance(dist, dict) else None
        sha512 = sha512_of(dist.get("integrity")) if isinstance(dist, dict) else None
        if isinstance(address, str) and sha512 is not None:
            found.append(Release(version, address, sha512))
    return found


def final_version(text: str) -> Version | None:
    """The three numbers of a final version; None for a pre-release and for anything else."""
    match = _VERSION.fullmatch(text)
    return (int(match.group(1)), int(match.group(2)), int(match.group(3))) if match else None


def sha512_of(integrity: object) -> bytes | None:
    """The sha512 in an integrity line (hashes such as ``sha512-<base64>``, with blanks between); None without one."""
    if not isinstance(integrity, str):
        return None
    for entry in integrity.split():
        kind, _, rest = entry.partition("-")
        if kind == "sha512":
            try:
                digest = base64.b64decode(rest.partition("?")[0], validate=True)
            except binascii.Error:
                continue
            if len(digest) == hashlib.sha512().digest_size:
                return digest
    return None


class _FetchError(Exception):
    """The registry or a file could not be had this time; a cached archive may stand in."""


def _npm_config() -> str | None:
    """What npm says of its configuration, npmrc files and defaults included; None without npm."""
    command = ["npm", "config", "get", "registry", "cafile", "https-proxy"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path} cannot be read: {error}") from error


def _session(registry: Registry) -> requests.Session:
    session = requests.Session()
    if registry.certificates:
        if not Path(registry.certificates).exists():
            raise _FetchError(f"the certificates that npm is configured with are missing: {registry.certificates}")
        session.verify = registry.certificates
    if registry.proxy:
        session.proxies = {"http": registry.proxy, "https": registry.proxy}
    return session


def _document(session: requests.Session, package: str, registry: Registry) -> Mapping[str, Any]:
    with tempfile.TemporaryFile() as file:
        try:
            _download(session, registry.address + quote(package, safe="@"), file, _DOCUMENT_LIMIT, registry)
        except requests.HTTPError as error:
            if error.response is not None and error.response.status_code == requests.codes.not_found:
                raise SourceError(f"{package}: the registry has no such package") from None
            raise _FetchError(f"no usable answer from the registry ({public(error)})") from error
        file.seek(0)
        try:
            document = json.load(file)
        except (ValueError, RecursionError) as error:
            raise _FetchError("the registry's answer is not JSON") from error
    if not isinstance(document, dict):
        raise _FetchError("the registry's answer is not a package's document")
    return document


def _archive(session: requests.Session, package: str, release: Release, registry: Registry, folder: Path) -> Archive:
    path = _path(package, release, folder)

    def download(temporary: Path) -> None:
        with temporary.open("w+b") as file:
            try:
                _download(session, release.address, file, _ARCHIVE_LIMIT, registry)
            except requests.HTTPError as error:
                raise _FetchError(f"{path.name} cannot be fetched ({public(error)})") from error
        if _sha512(temporary) != release.sha512:
            raise _FetchError(f"{path.name} is not the file that the registry describes: wrong sha512")

    if not path.is_file() or _sha512(path) != release.sha512:
        write_atomically(path, download)
    note = f"{release.sha512.hex()}  {path.name}\n"
    write_atomically(_digest_file(path), lambda temporary: temporary.write_text(note, encoding="utf-8"))
    return Archive(package, release.text, path)


def _download(session: requests.Session, address: str, file: IO[bytes], limit: int, registry: Registry) -> None:
    """Write what is at ``address`` to ``file``, asking again where the fault may pass.

    Raises HTTPError where the registry refuses, and _FetchError for every other fault.
    """
    retrying = Retrying(
        stop=stop_after_attempt(registry.attempts),
        wait=wait_exponential(multiplier=registry.pause),
        retry=retry_if_exception(may_pass),
        reraise=True,
    )
    try:
        for attempt in retrying:
            with attempt:
                _download_once(session, address, file, limit, registry)
    except requests.HTTPError:
        raise
    except requests.RequestException as error:
        raise _FetchError(f"no usable answer from the registry ({cause(error)})") from error


def _download_once(session: requests.Session, address: str, file: IO[bytes], limit: int, registry: Registry) -> None:
    file.seek(0)
    file.truncate()
    with session.get(address, headers=_SHORT, timeout=registry.timeout, stream=True) as response:
        response.raise_for_status()
        length = 0
        for chunk in response.iter_content(_CHUNK):
            length += len(chunk)
            if length > limit:
                raise _FetchError(f"an answer of more than {limit} bytes, larger than a package should be")
            file.write(chunk)


def _path(package: str, release: Release, folder: Path) -> Path:
    return folder / f"{package.rpartition('/')[2]}-{release.text}.tgz"


def _cached(package: str, folder: Path) -> list[Release]:
    """The archives in the cache that are still what was downloaded."""
    found: list[Release] = []
    start = f"{package.rpartition('/')[2]}-"
    for path in folder.glob("*.tgz"):
        version = final_version(path.name.removeprefix(start).removesuffix(".tgz"))
        digest = _noted_digest(path)
        if version is not None and digest is not None and _sha512(path) == digest:
            found.append(Release(version, path.as_uri(), digest))
    return found


def _noted_digest(path: Path) -> bytes | None:
    try:
        words = _digest_file(path).read_text(encoding="utf-8").split()
        return bytes.fromhex(words[0]) if words else None
    except (FileNotFoundError, ValueError):
        return None


def _digest_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha512")


def _sha512(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha512").digest()
