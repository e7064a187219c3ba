"""Readers of files in source distributions (.tar.gz) and wheels. Nothing is extracted to disk."""

from __future__ import annotations

import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from audit_pipeline.errors import SourceError


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
        raise SourceError(f"{wheel.name} holds no file {name}") from None
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError) as error:
        # zipfile raises RuntimeError if a file needs a password. If the compression is not supported, it raises
        # NotImplementedError, which is a subclass of RuntimeError.
        raise SourceError(f"{wheel.name}: {name} cannot be read: {error}") from error


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
