"""Reading what is in an archive, without extracting it: a source distribution (.tar.gz), or a wheel."""

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
    """A verified distribution on disk; ``fault`` says why a newer one was not looked up or not fetched."""

    version: str
    path: Path
    fault: str | None = None


def read_wheel_member(wheel: Path, name: str) -> bytes:
    """The bytes of the file called ``name`` in a wheel, read without extraction.

    Raises SourceError for a wheel that is broken, and a member that is not there.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(name)
    except KeyError:
        raise SourceError(f"{wheel.name} holds no file {name}") from None
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError) as error:
        # RuntimeError: a password, or a compression (NotImplementedError) that this Python cannot undo.
        raise SourceError(f"{wheel.name}: {name} cannot be read: {error}") from error


def read_members(archive: Path, is_selected: Callable[[str], bool]) -> dict[str, bytes]:
    """The regular files of a .tar.gz whose path below its top folder is selected, read without extraction.

    Raises SourceError for an archive that is broken.
    """
    files: dict[str, bytes] = {}
    try:
        with gzip.open(archive) as raw, tarfile.open(fileobj=raw, mode="r|") as tar:
            for member in tar:
                name = member.name.partition("/")[2]
                content = tar.extractfile(member) if member.isreg() and is_selected(name) else None
                if content is not None:
                    files[name] = content.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise SourceError(f"{archive.name}: the archive cannot be read: {error}") from error
    return files
