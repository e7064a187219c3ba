"""Reading and writing the Parquet tables: atomic, checked against the contracts, with page checksums.

No other module but the cache of token statistics reads or writes Parquet by itself.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from audit_pipeline.errors import DataError, RebuiltWarning, is_full_disk
from audit_pipeline.store.integrity import add_json_digest, format_json, verify_json_digest
from audit_pipeline.store.paths import explain_unwritable
from audit_pipeline.tables.table import Table

Columns: TypeAlias = Table | pa.Schema
"""The columns that rows must have: those of a declared table, or some put together of several."""


@contextmanager
def add_path_to_disk_error(path: Path) -> Iterator[None]:
    """Within the block an error that says that a disk is full, or a file too large, names ``path``."""
    try:
        yield
    except OSError as error:
        if not (is_full_disk(error) or error.errno == errno.EFBIG):
            raise
        number = error.errno or errno.ENOSPC
        raise OSError(number, os.strerror(number), str(path)) from error


@contextmanager
def temporary_file(folder: Path, prefix: str) -> Iterator[Path]:
    """Yield an empty file in ``folder`` whose name starts with a dot and ``prefix``. Remove it after the block."""
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=folder, prefix=f".{prefix}.", suffix=".tmp")
    os.close(handle)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """A temporary path next to ``path`` to write to; at the end of the block it is moved into place.

    A reader sees the old file or the new one, never a part of it; after an error the old one is still there.
    """
    with add_path_to_disk_error(path), temporary_file(path.parent, path.name) as temporary:
        yield temporary
        move_into_place(temporary, path)


def move_into_place(temporary: Path, path: Path) -> None:
    """Flush a file of :func:`temporary_file` to disk, then give it the permissions and the name of a finished one."""
    with temporary.open("rb+") as written:
        os.fsync(written.fileno())
    umask = os.umask(0)
    os.umask(umask)
    temporary.chmod(0o666 & ~umask)
    temporary.replace(path)


def require_usable_output(path: Path, *inputs: Path) -> None:
    """Raise DataError unless ``path`` is a .parquet file that can be written and overwrites none of the ``inputs``."""
    if path.suffix != ".parquet":
        raise DataError(f"{path}: the output is Parquet, so its name must end in .parquet")
    for given in (given.resolve() for given in inputs):
        if path.resolve() == given or given in path.resolve().parents:
            raise DataError(f"{path}: the output would overwrite the input, or lie among it; give another place")
    if explain_unwritable(path.parent) is not None:
        raise DataError(f"{path}: nothing can be written there, so nothing was run; give another place")


def write_table(path: Path, table: pa.Table) -> None:
    """Write a Parquet file atomically."""
    with write_atomically(path) as temporary:
        write_parquet(temporary, table)


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a Parquet file (zstd, with a checksum of every page) at its place: see :func:`write_table`."""
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)


def open_parquet(path: Path, *, buffer_size: int = 0) -> pq.ParquetFile:
    """A Parquet file to be read piece by piece; a page that is not what its checksum says raises OSError.

    ``buffer_size``: bytes that are read ahead; 0: a column chunk at a time.
    """
    return pq.ParquetFile(path, pre_buffer=False, buffer_size=buffer_size, page_checksum_verification=True)


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """A Parquet file, whole or in part; a page that is not what its checksum says raises OSError.

    Footer and page headers have no checksum: where a digest of the file is known, compare it first
    (store/integrity.py).
    """
    columns = None if columns is None else list(columns)
    return pq.read_table(path, columns=columns, partitioning=None, page_checksum_verification=True)


def write_json(path: Path, value: object) -> None:
    """Write a JSON file atomically, readable by people: indented, keys in their given order.

    An object gets the digest of itself as its last key; :func:`read_json` compares it and takes it away.
    """
    text = format_json(add_json_digest(value) if isinstance(value, Mapping) else value)
    with write_atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_json(path: Path) -> Any:
    """The value in a JSON file, without its digest.

    Raises FileNotFoundError, json.JSONDecodeError, and DamagedError where an object is not as it was written.
    """
    value = json.loads(path.read_text(encoding="utf-8"))
    return verify_json_digest(value, path) if isinstance(value, dict) else value


def read_json_if_whole(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file that is made again where it is lost: None where it is not there or damaged.

    A damaged file gives a warning.
    """
    try:
        value = read_json(path)
    except FileNotFoundError:
        return None
    except ValueError as error:
        warnings.warn(RebuiltWarning(f"{path} cannot be read, so it is made again: {error}"), stacklevel=2)
        return None
    return value if isinstance(value, dict) else None


def table_from_rows(rows: Iterable[Mapping[str, object]], columns: Columns) -> pa.Table:
    """Rows as a table of exactly ``columns``; raises DataError for a missing, extra or null column."""
    rows, schema = list(rows), _to_schema(columns)
    names = set(schema.names)
    for row in rows:
        if set(row) != names:
            wrong = sorted(names.symmetric_difference(row))
            raise DataError(f"a row does not have the columns of its table: {', '.join(wrong)}")
    return cast_to_columns(pa.Table.from_pylist([dict(row) for row in rows], schema=schema), schema)


def cast_to_columns(table: pa.Table, columns: Columns) -> pa.Table:
    """``table`` cast to ``columns``, in their order; raises DataError for a null where none may be, and for a value
    that the declaration of its column does not allow."""
    schema = _to_schema(columns)
    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise DataError(f"columns missing: {', '.join(missing)}")
    for field in schema:
        if not field.nullable and table.column(field.name).null_count:
            raise DataError(f"column {field.name} holds a null")
    if isinstance(columns, Table):
        faults = (column.find_fault(table.column(column.name)) for column in columns.columns if not column.sql)
        if (fault := next(filter(None, faults), None)) is not None:
            raise DataError(f"{columns.name}: {fault}")
    return table.select(schema.names).cast(schema)


def _to_schema(columns: Columns) -> pa.Schema:
    return columns.schema if isinstance(columns, Table) else columns


def read_table(path: Path, columns: Columns, *, label: str) -> pa.Table:
    """The Parquet file at ``path`` with just these ``columns``.

    Raises DataError, which names ``label``, where the file is missing or cannot be read.
    """
    if not path.exists():
        raise DataError(f"{label} has not been built yet: {path} is missing")
    try:
        return cast_to_columns(read_parquet(path), columns)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{label} cannot be read ({path}): {error}") from error
