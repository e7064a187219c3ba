"""Detecting a changed byte: digests of files, of rows and of JSON documents, and comparing them with the content.

What belongs here: how a digest is computed, and the error of what is not as it was written. What does not: where a
file's digest is kept (in its lineage row: catalogue/lineage.py; in a cache part's name: token_statistics/cache.py), and
reading files (catalogue/files.py).

Three forms, each for what it can protect: a file by the sha256 of its bytes, kept where something else names the file;
a row that stands alone in its file by the sha256 of its other columns; a JSON document by the sha256 of the rest of it.
A row or document without a digest is of an earlier version, and read as it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from audit_pipeline.errors import DataError

ROW_SHA256 = "row_sha256"
"""The column of a row that protects itself."""

PREVIOUS_SHA256 = "previous_sha256"
"""The column of a row in a chain (lineage_chain.py): ROW_SHA256 of the row before."""

REST_SHA256 = "sha256_of_the_rest"
"""The last key of a JSON document that protects itself."""

FileIdentity = tuple[int, int, int]
"""Size, time of the last change and inode: as long as it stands, the file is taken to be the one that it was."""

_MICROSECOND = timedelta(microseconds=1)
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


def row_sha256(row: Mapping[str, object]) -> str:
    """sha256 (hex) of a row's columns of text and time, those without a value and the digest's own left out.

    Each is its name, the bytes of its value and the value, so a column that a later version adds changes nothing where
    it is null. :func:`row_sha256_sql` says the same to DuckDB.
    """
    values = {name: _as_text(row[name]) for name in sorted(row) if name != ROW_SHA256 and row[name] is not None}
    canonical = "".join(f"{name}:{len(value.encode())}:{value}" for name, value in values.items())
    return hashlib.sha256(canonical.encode()).hexdigest()


def row_sha256_sql(schema: pa.Schema) -> str:
    """An SQL expression for :func:`row_sha256` over the columns of ``schema``."""
    parts = []
    for field in sorted(schema, key=lambda field: field.name):
        if field.name != ROW_SHA256:
            value = f'epoch_us("{field.name}")::VARCHAR' if pa.types.is_timestamp(field.type) else f'"{field.name}"'
            parts.append(f"coalesce('{field.name}:' || strlen({value}) || ':' || {value}, '')")
    return f"sha256({' || '.join(parts)})"


def _row_sha256_of_anything(row: Mapping[str, object]) -> str | None:
    """As :func:`row_sha256`; None for a row with a value that this program does not write."""
    try:
        return row_sha256(row)
    except TypeError:
        return None


def with_row_sha256(row: Mapping[str, object]) -> dict[str, object]:
    """``row`` with its digest."""
    return {**row, ROW_SHA256: row_sha256(row)}


def is_row_as_written(row: Mapping[str, object]) -> bool:
    """Whether a row is the one that its digest was made of; a row without a digest counts as such."""
    return row.get(ROW_SHA256) in (None, _row_sha256_of_anything(row))


def require_row_digest(row: Mapping[str, object], path: Path) -> None:
    """Raise DamagedError where a row of the file at ``path`` is not the one that its digest was made of."""
    if not is_row_as_written(row):
        raise DamagedError(f"{path} is damaged: its row is not as it was written")


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


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return str((value - datetime.fromtimestamp(0, value.tzinfo)) // _MICROSECOND)
    raise TypeError(f"a row with a digest holds text and times, not {type(value).__name__}")
