"""Digests of files and JSON documents, and checks that reveal changed bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from audit_pipeline.errors import DataError

REST_SHA256 = "sha256_of_the_rest"
"""The last key of a JSON document, which holds the digest of the other keys."""

FileIdentity = tuple[int, int, int]
"""Size, modification time and inode. A file with the same identity counts as unchanged."""

_known: dict[Path, tuple[FileIdentity, str]] = {}


class DamagedError(DataError, ValueError):
    """A corrupt file, row or document. It is also a ValueError, like the error for JSON that cannot be parsed."""


def file_sha256(path: Path) -> str:
    """Return the sha256 (hex) of a file's bytes. Raises OSError if the file is unreadable."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_identity(path: Path) -> FileIdentity:
    """Return the identity of a file. Raises OSError if the file is missing."""
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def find_file_identity(path: Path) -> FileIdentity | None:
    """Return the identity of a file, or None if the file is missing."""
    with suppress(FileNotFoundError):
        return file_identity(path)
    return None


def cached_sha256(path: Path) -> str:
    """Return the sha256 (hex) of a file's bytes. A process computes it once for an unchanged file."""
    identity = file_identity(path)
    known = _known.get(path)
    if known is not None and known[0] == identity:
        return known[1]
    sha256 = file_sha256(path)
    _known[path] = (identity, sha256)
    return sha256


def digests_of_folder(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file below a folder, by relative path. Hidden (temporary) files are skipped."""
    files = sorted(path for path in folder.rglob("[!.]*") if path.is_file())
    return {path.relative_to(folder).as_posix(): file_sha256(path) for path in files}


def digest_of_files(folder: Path, files: Iterable[Path]) -> str:
    """Return the sha256 (hex) of the names and bytes of files below a folder, in the given order."""
    sha256 = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        sha256.update(f"{file.relative_to(folder)}:{len(content)}:".encode() + content)
    return sha256.hexdigest()


def require_matching_digests(folder: Path, digests: Mapping[str, str], label: str) -> None:
    """Raise DamagedError if a file in ``digests`` is missing or has another sha256."""
    for name, expected in digests.items():
        path = folder / name
        if not path.is_file() or cached_sha256(path) != expected:
            raise DamagedError(f"{label} is damaged: {path} is missing or corrupt")


def add_json_digest(document: Mapping[str, object]) -> dict[str, object]:
    """Return a copy of the document with its digest as the last key."""
    rest = {name: value for name, value in document.items() if name != REST_SHA256}
    return {**rest, REST_SHA256: _json_sha256(rest)}


def verify_json_digest(document: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return a copy of the document without its digest. Raises DamagedError if the digest does not match."""
    *rest, last = document.items() or [("", None)]
    content = dict(rest)
    expected = _json_sha256(content)
    if last == (REST_SHA256, expected):
        return content
    # If the digest matches under another key, a byte of the key was changed.
    if REST_SHA256 in document or last[1] == expected:
        raise DamagedError(f"{path} is damaged: its content does not match its digest")
    return dict(document)


def format_json(value: object) -> str:
    """Format a value as indented JSON. Keys keep their order."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"


def _json_sha256(document: Mapping[str, object]) -> str:
    # The digest covers the formatted text. Dates are strings in it, as they are for a reader of the file.
    return hashlib.sha256(format_json(document).encode()).hexdigest()
