"""Reading what is in an archive, without extracting it: a source distribution (.tar.gz), or a wheel."""

from __future__ import annotations

import gzip
import io
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from audit_pipeline.errors import SourceError
from audit_pipeline.readers.file_bytes import MEBIBYTE, BoundedReader


@dataclass(frozen=True)
class Archive:
    """A verified distribution on disk; ``fault`` says why a newer one was not looked up or not fetched."""

    version: str
    path: Path
    fault: str | None = None


@dataclass(frozen=True)
class ArchiveLimits:
    """The most that is read of an archive, in bytes: of one member, of all that are wanted, of the whole stream."""

    member: int = 5 * MEBIBYTE
    wanted: int = 200 * MEBIBYTE
    stream: int = 2048 * MEBIBYTE


@dataclass(frozen=True)
class ArchiveMembers:
    """What was read of an archive: path below its top folder -> bytes; and members refused, with the reason."""

    files: Mapping[str, bytes]
    refused: tuple[tuple[str, str], ...]


def read_wheel_member(wheel: Path, name: str, limit: int = 200 * MEBIBYTE) -> bytes:
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


def read_members(
    archive: Path, is_selected: Callable[[str], bool], limits: ArchiveLimits = ArchiveLimits()
) -> ArchiveMembers:
    """The regular files of a .tar.gz whose path below the top folder is selected, read without extraction.

    Links, devices, sparse files, absolute paths, paths with ``..`` and files above the limit are refused and named.
    Raises SourceError for an archive that is broken, or larger than the limits.
    """
    files: dict[str, bytes] = {}
    refused: list[tuple[str, str]] = []
    try:
        with (
            gzip.open(archive) as raw,
            tarfile.open(fileobj=_limit_unpacked_size(raw, limits.stream), mode="r|") as tar,
        ):
            for member in tar:
                name = _strip_top_folder(member.name)
                if name is None:
                    refused.append((member.name, "not a path inside the archive's folder"))
                elif not is_selected(name) or member.isdir():
                    continue
                elif not member.isreg() or member.issparse():
                    refused.append((name, "not a regular file"))
                elif member.size > limits.member:
                    refused.append((name, f"{member.size} bytes, the limit is {limits.member}"))
                elif sum(map(len, files.values())) + member.size > limits.wanted:
                    raise SourceError(f"{archive.name}: what is wanted of it exceeds {limits.wanted} bytes")
                else:
                    content = tar.extractfile(member)
                    files[name] = content.read() if content else b""
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise SourceError(f"{archive.name}: the archive cannot be read: {error}") from error
    return ArchiveMembers(files, tuple(refused))


def _limit_unpacked_size(raw: gzip.GzipFile, limit: int) -> io.BufferedReader[Any]:
    error = tarfile.ReadError("it unpacks to more than the limit")
    return io.BufferedReader(BoundedReader(cast(IO[bytes], raw), limit, error))


def _strip_top_folder(name: str) -> str | None:
    """The member's path below the archive's one top folder; None for a path that leads elsewhere."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        return None
    return "/".join(path.parts[1:])
