"""Detecting a changed byte: digests of files and of JSON documents, and comparing them with the content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from audit_pipeline.errors import DataError

REST_SHA256 = "sha256_of_the_rest"
"""The last key of a JSON document that protects itself."""

FileIdentity = tuple[int, int, int]
"""Size, time of the last change and inode: while it stays, the file counts as unchanged."""

_known: dict[Path, tuple[FileIdentity, str]] = {}


class DamagedError(DataError, ValueError):
    """A file, row or document that is not as it was written; a ValueError too, as JSON that cannot be parsed is."""


def file_sha256(path: Path) -> str:
    """sha256 (hex) of a file's bytes; raises OSError where it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_identity(path: Path) -> FileIdentity:
    """By what a file is known again; raises OSError where it is not there."""
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def find_file_identity(path: Path) -> FileIdentity | None:
    """As :func:`file_identity`; None where the file is not there."""
    with suppress(FileNotFoundError):
        return file_identity(path)
    return None


def cached_sha256(path: Path) -> str:
    """As :func:`file_sha256`, computed once per process for a file as it lies there."""
    identity = file_identity(path)
    known = _known.get(path)
    if known is None or known[0] != identity:
        known = _known[path] = (identity, file_sha256(path))
    return known[1]


def digests_of_folder(folder: Path) -> dict[str, str]:
    """sha256 of every file below ``folder``, by its path from there; hidden ones are temporary files."""
    files = sorted(path for path in folder.rglob("[!.]*") if path.is_file())
    return {path.relative_to(folder).as_posix(): file_sha256(path) for path in files}


def digest_of_files(folder: Path, files: Iterable[Path]) -> str:
    """sha256 (hex) of files below ``folder`` in the given order: of their names and their bytes."""
    known = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        known.update(f"{file.relative_to(folder)}:{len(content)}:".encode() + content)
    return known.hexdigest()


def require_matching_digests(folder: Path, digests: Mapping[str, str], label: str) -> None:
    """Raise DamagedError where a file that ``digests`` names is not there or not as it was written."""
    for name, expected in digests.items():
        path = folder / name
        if not path.is_file() or cached_sha256(path) != expected:
            raise DamagedError(f"{label} is damaged: {path} is missing or not as it was written")


def add_json_digest(document: Mapping[str, object]) -> dict[str, object]:
    """``document`` with the digest of it, last."""
    rest = {name: value for name, value in document.items() if name != REST_SHA256}
    return {**rest, REST_SHA256: _json_sha256(rest)}


def verify_json_digest(document: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """``document`` without its digest; raises DamagedError where it is not as it was written."""
    *rest, last = document.items() or [("", None)]
    content = dict(rest)
    expected = _json_sha256(content)
    if last == (REST_SHA256, expected):
        return content
    # The digest is there under another name: the byte that changed is one of the name's.
    if REST_SHA256 in document or last[1] == expected:
        raise DamagedError(f"{path} is damaged: it is not as it was written")
    return dict(document)


def format_json(value: object) -> str:
    """JSON for people: indented, keys in their given order."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"


def _json_sha256(document: Mapping[str, object]) -> str:
    # Of what a reader gets: dates are text by then.
    return hashlib.sha256(format_json(document).encode()).hexdigest()
