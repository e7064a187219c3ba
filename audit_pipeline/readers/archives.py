"""Reading what is in an archive, without extracting it: a source distribution (.tar.gz), or a wheel."""

from __future__ import annotations

import gzip
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from audit_pipeline.errors import SourceError
from audit_pipeline.readers.file_bytes import MEBIBYTE

_MOST_MEMBER_BYTES, _MOST_BYTES = 5 * MEBIBYTE, 200 * MEBIBYTE
"""The most that is read of one file in an archive, and of all of them."""


@dataclass(frozen=True)
class Archive:
    """A verified distribution on disk; ``fault`` says why a newer one was not looked up or not fetched."""

    version: str
    path: Path
    fault: str | None = None


def read_wheel_member(wheel: Path, name: str, limit: int = _MOST_BYTES) -> bytes:
    """The bytes of the file called ``name`` in a wheel, read without extraction, at most ``limit`` of them.

    Raises SourceError for a wheel that is broken, a member that is not there or no plain file, and one that unpacks
    to more than the limit, whatever size the wheel gives for it.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            try:
                member = archive.getinfo(name)
            except KeyError:
                raise SourceError(f"{wheel.name} holds no file {name}") from None
            if member.is_dir() or stat.S_ISLNK(member.external_attr >> 16):
                raise SourceError(f"{wheel.name}: {name} is not a plain file")
            with archive.open(member) as file:
                content = file.read(limit + 1)
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError) as error:
        # RuntimeError: a password, or a compression (NotImplementedError) that this Python cannot undo.
        raise SourceError(f"{wheel.name}: {name} cannot be read: {error}") from error
    if len(content) > limit:
        raise SourceError(f"{wheel.name}: {name} unpacks to more than {limit} bytes")
    return content


def read_members(archive: Path, is_selected: Callable[[str], bool]) -> tuple[dict[str, bytes], list[tuple[str, str]]]:
    """The regular files of a .tar.gz whose path below its top folder is selected, and those refused, with the reason.

    Nothing is extracted. Links, devices, sparse files and files above 5 MiB are refused. Raises SourceError for an
    archive that is broken, or of which more than 200 MiB are selected.
    """
    files: dict[str, bytes] = {}
    refused: list[tuple[str, str]] = []
    try:
        with gzip.open(archive) as raw, tarfile.open(fileobj=raw, mode="r|") as tar:
            for member in tar:
                name = member.name.partition("/")[2]
                if not is_selected(name) or member.isdir():
                    continue
                if not member.isreg() or member.issparse():
                    refused.append((name, "not a regular file"))
                elif member.size > _MOST_MEMBER_BYTES:
                    refused.append((name, f"{member.size} bytes, the limit is {_MOST_MEMBER_BYTES}"))
                elif sum(map(len, files.values())) + member.size > _MOST_BYTES:
                    raise SourceError(f"{archive.name}: what is wanted of it exceeds {_MOST_BYTES} bytes")
                else:
                    content = tar.extractfile(member)
                    files[name] = content.read() if content else b""
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise SourceError(f"{archive.name}: the archive cannot be read: {error}") from error
    return files, refused
