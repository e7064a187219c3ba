"""Digests of files, JSON documents, tables and this package's code, and checks that reveal changed bytes."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.errors import DataError
from audit_pipeline.tables import canonical_json, digest_of_items, each_to_canonical_json

REST_SHA256 = "sha256_of_the_rest"
"""The last key of a JSON document. Its value is the digest of the other keys and their values."""

FileIdentity = tuple[int, int, int]
"""Size, modification time and inode. A file with the same identity counts as unchanged."""

_known: dict[Path, tuple[FileIdentity, str]] = {}


class DamagedError(DataError, ValueError):
    """An error for a corrupt file, row or document.

    It is also a ValueError, so that callers catch it together with the error for JSON that cannot be parsed.
    """


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
    # The digest covers the formatted text, in which dates are strings. Readers of the file get the same strings.
    return hashlib.sha256(format_json(document).encode()).hexdigest()


_PACKAGES = (
    "corpus-audit",
    "dagster",
    "datasets",
    "duckdb",
    "numpy",
    "pyarrow",
    "scikit-learn",
    "tokenizers",
    "torch",
    "transformers",
)

_PACKAGE = Path(__file__).parents[1]
_CODE_SUFFIXES = {".py", ".sql", ".j2", ".css", ".js"}
_ROWS_AT_ONCE = 4096


@functools.cache
def package_versions() -> Mapping[str, str]:
    """Return the installed versions of the packages that can change a number. They are read once per process."""
    return MappingProxyType({name: importlib.metadata.version(name) for name in _PACKAGES})


def code_digest() -> str:
    """Return a digest of the current files of this package."""
    files = [path for path in _PACKAGE.rglob("*") if path.suffix in _CODE_SUFFIXES]
    return digest_of_files(_PACKAGE, sorted(files))


def table_version(table: pa.Table) -> str:
    """Return a digest of a table's content that does not depend on the row order and the column ``run_id``."""
    content = table.select([name for name in table.column_names if name != "run_id"])
    batches = content.to_batches(_ROWS_AT_ONCE)
    rows = pa.chunked_array(map(_rows_to_canonical_json, batches), pa.large_string()).combine_chunks()
    return digest_of_items(_iterate_sorted(rows))[:16]


def _iterate_sorted(rows: pa.Array) -> Iterator[str]:
    """Yield the rows in sorted order. Only a part of them is converted to Python strings at a time."""
    order = pc.sort_indices(rows)
    for start in range(0, len(order), _ROWS_AT_ONCE):
        yield from rows.take(order.slice(start, _ROWS_AT_ONCE)).to_pylist()


def _rows_to_canonical_json(batch: pa.RecordBatch) -> pa.Array:
    """Convert each row to canonical JSON, a list of its values."""
    opening = pa.scalar("[", pa.large_string())
    closing = pa.scalar("]", pa.large_string())
    values = pc.binary_join_element_wise(
        *map(_values_to_canonical_json, batch.columns), pa.scalar(",", pa.large_string())
    )
    return pc.binary_join_element_wise(opening, values, closing, pa.scalar("", pa.large_string()))


def _values_to_canonical_json(column: pa.Array) -> pa.Array:
    """Convert each value to canonical JSON. Repeated texts and dates are converted once."""
    if pa.types.is_nested(column.type):
        return pa.array([canonical_json(_to_json_value(value)) for value in column.to_pylist()], pa.large_string())
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        # JSON and Arrow write whole numbers, true and false alike.
        return pc.fill_null(column.cast(pa.large_string()), "null")
    if pa.types.is_floating(column.type):
        return pa.array(each_to_canonical_json(column.to_pylist()), pa.large_string())
    distinct = column.dictionary_encode(null_encoding="encode")
    values: Iterable[object] = distinct.dictionary.to_pylist()
    if not pa.types.is_string(column.type):
        values = map(_to_json_value, values)
    return pa.array(each_to_canonical_json(values), pa.large_string()).take(distinct.indices)


def _to_json_value(value: object) -> object:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list):
        return [_to_json_value(item) for item in value]
    return str(value)
