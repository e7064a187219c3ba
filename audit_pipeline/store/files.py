"""Atomic writing and checked reading of Parquet tables and JSON files, and file locks.

Rows are compared with the declaration of their table, and Parquet pages with their checksums. Besides this module, only
the cache of token statistics reads and writes Parquet.
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

import filelock
import pyarrow as pa
import pyarrow.parquet as pq

from audit_pipeline.errors import DataError, RebuiltWarning, is_full_disk
from audit_pipeline.store.integrity import add_json_digest, format_json, verify_json_digest
from audit_pipeline.store.paths import explain_unwritable
from audit_pipeline.tables.table import Table

Columns: TypeAlias = Table | pa.Schema
"""The columns that rows must have: a declared table, or a schema."""


@contextmanager
def add_path_to_disk_error(path: Path) -> Iterator[None]:
    """Add a path to errors within the block that report a full disk or a file that is too large."""
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
    """Yield a temporary file next to ``path``, and move it to ``path`` at the end of the block.

    Readers see either the complete old file or the complete new file. After an error the old file is unchanged.
    """
    with add_path_to_disk_error(path), temporary_file(path.parent, path.name) as temporary:
        yield temporary
        move_into_place(temporary, path)


def move_into_place(temporary: Path, path: Path) -> None:
    """Flush a file of :func:`temporary_file` to disk, set the default permissions, and rename it to ``path``."""
    with temporary.open("rb+") as written:
        os.fsync(written.fileno())
    umask = os.umask(0)
    os.umask(umask)
    temporary.chmod(0o666 & ~umask)
    temporary.replace(path)


def require_usable_output(path: Path, *inputs: Path) -> None:
    """Raise DataError unless ``path`` is a writable .parquet file outside of the inputs."""
    if path.suffix != ".parquet":
        raise DataError(f"the output {path} must be a Parquet file. Choose a name that ends in .parquet.")
    output = path.resolve()
    for input_path in inputs:
        resolved_input = input_path.resolve()
        if output == resolved_input or resolved_input in output.parents:
            raise DataError(
                f"the output {path} would overwrite the input {input_path}, or be inside it. Choose another path."
            )
    if explain_unwritable(path.parent) is not None:
        raise DataError(f"the folder of the output {path} is not writable, so nothing was run. Choose another path.")


def write_table(path: Path, table: pa.Table) -> None:
    """Write a Parquet file atomically."""
    with write_atomically(path) as temporary:
        write_parquet(temporary, table)


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a Parquet file with zstd compression and page checksums, not atomically (see :func:`write_table`)."""
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)


def open_parquet(path: Path, *, buffer_size: int = 0) -> pq.ParquetFile:
    """Open a Parquet file for reading in pieces. A checksum mismatch of a page raises OSError.

    Args:
        path: The file.
        buffer_size: The size of the read buffer in bytes. With 0, a column chunk is read at once.
    """
    return pq.ParquetFile(path, pre_buffer=False, buffer_size=buffer_size, page_checksum_verification=True)


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read all or some columns of a Parquet file. A checksum mismatch of a page raises OSError.

    Footer and page headers have no checksum. If the sha256 of the file is known, compare it first (store/integrity.py).
    """
    names = None if columns is None else list(columns)
    return pq.read_table(path, columns=names, partitioning=None, page_checksum_verification=True)


def write_json(path: Path, value: object) -> None:
    """Write an indented JSON file atomically.

    An object gets its own digest as the last key. :func:`read_json` checks and removes it.
    """
    if isinstance(value, Mapping):
        value = add_json_digest(value)
    text = format_json(value)
    with write_atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_json(path: Path) -> Any:
    """Read the value of a JSON file, without its digest.

    Raises:
        FileNotFoundError: If the file is missing.
        json.JSONDecodeError: If the file is not JSON.
        DamagedError: If an object does not match its digest.
    """
    value = json.loads(path.read_text(encoding="utf-8"))
    return verify_json_digest(value, path) if isinstance(value, dict) else value


def read_json_if_whole(path: Path) -> dict[str, Any] | None:
    """Read the object of a JSON file that can be rebuilt.

    Returns:
        The object, or None if the file is missing, is corrupt, or holds no object. A corrupt file causes a warning.
    """
    try:
        value = read_json(path)
    except FileNotFoundError:
        return None
    except ValueError as error:
        warnings.warn(RebuiltWarning(f"{path} cannot be read, so it is rebuilt: {error}"), stacklevel=2)
        return None
    return value if isinstance(value, dict) else None


def table_from_rows(rows: Iterable[Mapping[str, object]], columns: Columns) -> pa.Table:
    """Build an Arrow table from rows.

    Raises:
        DataError: If a row lacks a column, has another column, or has a null in a column without nulls.
    """
    schema = _to_schema(columns)
    names = set(schema.names)
    dictionaries = [dict(row) for row in rows]
    for row in dictionaries:
        if set(row) != names:
            wrong = sorted(names.symmetric_difference(row))
            raise DataError(
                f"a row does not have exactly the columns of its table. These columns differ: {', '.join(wrong)}"
            )
    return cast_to_columns(pa.Table.from_pylist(dictionaries, schema=schema), schema)


def cast_to_columns(table: pa.Table, columns: Columns) -> pa.Table:
    """Cast a table to the declared columns, in their order.

    Raises:
        DataError: If a column is missing, has an unexpected null, or has a value beyond its limits.
    """
    schema = _to_schema(columns)
    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise DataError(f"columns are missing: {', '.join(missing)}")
    for field in schema:
        if not field.nullable and table.column(field.name).null_count:
            raise DataError(f"column {field.name} contains a null, but every row must have a value")
    if isinstance(columns, Table):
        _require_allowed_values(table, columns)
    return table.select(schema.names).cast(schema)


def _require_allowed_values(rows: pa.Table, table: Table) -> None:
    for column in table.columns:
        if column.sql:
            # The warehouse computes the column.
            continue
        fault = column.find_fault(rows.column(column.name))
        if fault is not None:
            raise DataError(f"{table.name}: {fault}")


def _to_schema(columns: Columns) -> pa.Schema:
    return columns.schema if isinstance(columns, Table) else columns


def read_table(path: Path, columns: Columns, *, label: str) -> pa.Table:
    """Read the declared columns of a Parquet file.

    Args:
        path: The file.
        columns: The columns.
        label: The name of the content in error messages.

    Raises:
        DataError: If the file is missing or unreadable.
    """
    if not path.exists():
        raise DataError(f"{label} has not been built yet: {path} is missing")
    try:
        return cast_to_columns(read_parquet(path), columns)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{label} cannot be read ({path}): {error}") from error


class HeldError(DataError):
    """An error for a lock that another process held until the end of the waiting time."""


@contextmanager
def hold_lock(lock: Path, seconds: float) -> Iterator[None]:
    """Hold a lock within the block.

    Args:
        lock: The lock file.
        seconds: The maximum time to wait for the lock.

    Raises:
        HeldError: If another process holds the lock for longer.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(lock, timeout=seconds):
            yield
    except filelock.Timeout as error:
        raise HeldError(
            f"another process has held the lock {lock} for {seconds:.0f} s. Wait until it ends, or end it. Then run "
            "the same command again."
        ) from error
