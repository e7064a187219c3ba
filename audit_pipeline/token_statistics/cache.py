"""The cache of token statistics: Parquet part files that are written once.

The cache needs no server. A part is written under a temporary name and then renamed, so it is complete or absent. Two
runs write different parts. Rows with the same key are equal, and readers use the first. A part's name contains the
sha256 of its bytes, which readers verify. Parts without such a name, or without an expected column, are refused.

Parts are never merged: a thousand of them cost a run less than a second. Removing texts writes the new part before it
deletes the old one. So an interruption loses no row of other texts.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.errors import OTHER_VERSION, DataError
from audit_pipeline.store.files import cast_to_columns, move_into_place, open_parquet, temporary_file, write_parquet
from audit_pipeline.store.integrity import DamagedError, cached_sha256, file_sha256

_DIGITS = 32
_SELF_NAMED = re.compile(rf"part-\d+-([0-9a-f]{{{_DIGITS}}})\.parquet")
# Number of a key's 64 hexadecimal digits that are held in memory. These 96 bits suffice to distinguish all keys.
_KEY_PREFIX_LENGTH = 24
# A part is read in pieces: decoded it takes several times its size on disk, and few of its rows are needed.
_READ_ROWS = 4096
_READ_BYTES = 1 << 20

_Select = Callable[[Any], Any]
"""Function that selects the rows of a record batch that are needed."""


class PartCache:
    """The cached rows of one model and one kind of statistics, in ``folder``. The column ``key`` identifies a row."""

    def __init__(
        self, folder: Path, schema: pa.Schema, *, flush_seconds: float = 10.0, flush_bytes: int = 64 << 20
    ) -> None:
        self.folder = folder
        self.schema = schema
        self.unreadable: list[Path] = []
        self._flush_seconds = flush_seconds
        self._flush_bytes = flush_bytes
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._next_part: int | None = None
        self._last_flush = time.monotonic()
        # Keys of parts that were read or written here: later requests do not read these parts again.
        self._keys_by_part: dict[Path, pa.ChunkedArray] = {}
        self._values: dict[tuple[str, Path], frozenset[Any]] = {}

    def missing(self, keys: Iterable[str]) -> set[str]:
        """Return the keys that are not on disk, or whose rows cannot be read.

        Each part is compared once with the digest in its name. A damaged part is renamed and not read any more, so that
        its texts run again.
        """
        for path, table in self._read_columns_by_part(["key"], lambda path: path not in self._keys_by_part):
            self._keys_by_part[path] = _shorten_keys(table.column("key"))
        requested = set(keys)
        prefixes = pa.array({key[:_KEY_PREFIX_LENGTH] for key in requested}, pa.string())
        known: set[str] = set()
        for path in list_parts(self.folder):
            part_keys = self._keys_by_part.get(path)
            if part_keys is not None:
                known.update(part_keys.filter(pc.is_in(part_keys, prefixes)).to_pylist())
        return {key for key in requested if key[:_KEY_PREFIX_LENGTH] not in known}

    def values_of(self, column: str) -> set[Any]:
        """Return the distinct values in ``column`` of all rows on disk. Each part is read once."""
        for path, table in self._read_columns_by_part([column], lambda path: (column, path) not in self._values):
            self._values[column, path] = frozenset(pc.unique(table.column(column)).to_pylist())
        distinct: set[Any] = set()
        for (name, _), values in self._values.items():
            if name == column:
                distinct |= values
        return distinct

    def read(self, keys: Iterable[str]) -> pa.Table:
        """Return the rows of ``keys`` that are on disk, each once, in no particular order."""
        return _drop_duplicate_keys(pa.concat_tables([self.schema.empty_table(), *self.read_by_part(keys)]))

    def read_by_part(self, keys: Iterable[str]) -> Iterator[pa.Table]:
        """Yield the rows of :meth:`read` one part at a time, for rows that do not fit into memory together.

        A row that is in two parts is yielded twice.
        """
        requested = pa.array(sorted(set(keys)), pa.string())
        prefixes = _shorten_keys(requested)

        def may_hold_requested(path: Path) -> bool:
            part_keys = self._keys_by_part.get(path)
            return part_keys is None or bool(pc.any(pc.is_in(part_keys, prefixes)).as_py())

        def select_requested(batch: Any) -> Any:
            return batch.filter(pc.is_in(batch.column("key"), requested))

        for _, table in self._read_columns_by_part(self.schema.names, may_hold_requested, select_requested):
            yield table

    def append(self, rows: pa.Table) -> None:
        """Add rows to the pending rows. These are written after ``flush_seconds``, or at ``flush_bytes``."""
        self._pending.append(rows)
        self._pending_bytes += rows.nbytes
        if self._pending_bytes >= self._flush_bytes or time.monotonic() - self._last_flush >= self._flush_seconds:
            self.flush()

    def flush(self) -> None:
        """Write the pending rows as a new part. After an error, such as a full disk, the rows stay pending."""
        if self._pending:
            # The number of the part is kept until its rows are written. If writing is repeated, it replaces the same
            # part.
            self._next_part = self._next_part or time.time_ns()
            rows = cast_to_columns(pa.concat_tables(self._pending), self.schema)
            part = write_part(self.folder, rows, self._next_part)
            self._keys_by_part[part] = _shorten_keys(rows.column("key"))
            self._pending = []
            self._pending_bytes = 0
            self._next_part = None
        self._last_flush = time.monotonic()

    def _read_columns_by_part(
        self,
        columns: Sequence[str],
        is_wanted: Callable[[Path], bool] = lambda path: True,
        select: _Select = lambda batch: batch,
    ) -> Iterator[tuple[Path, pa.Table]]:
        """Yield each part that ``is_wanted`` accepts, with the ``columns`` of the rows that ``select`` selects.

        If another process replaces parts meanwhile, the new parts are included.
        """
        read: set[Path] = set()
        while new_parts := [path for path in list_parts(self.folder) if path not in read]:
            for path in new_parts:
                read.add(path)
                # A missing part was replaced meanwhile. The next listing finds its rows in another part.
                with suppress(FileNotFoundError):
                    table = self._read_part_columns(path, columns, select) if is_wanted(path) else None
                    if table is not None:
                        yield path, table

    def _read_part_columns(self, path: Path, columns: Sequence[str], select: _Select) -> pa.Table | None:
        """Return the ``columns`` of the selected rows of a part. If it is damaged, rename it and return None."""
        with suppress(DamagedError):
            return read_part(path, columns, select)
        self.unreadable.append(set_aside(path))
        return None


def read_part(path: Path, columns: Sequence[str] | None = None, select: _Select = lambda batch: batch) -> pa.Table:
    """Return rows of a part after a check of its digest.

    Args:
        path: The part.
        columns: Names of the columns. The default is all columns.
        select: Function that selects rows of each record batch.

    Raises:
        DamagedError: If the part does not match its checksum.
        OSError: If the part cannot be reached.
    """
    require_intact_part(path)
    with _translate_damage_errors(path), open_parquet(path, buffer_size=_READ_BYTES) as part:
        if not set(columns or ()) <= set(part.schema_arrow.names):
            raise DataError(f"{path} was {OTHER_VERSION}")
        schema = part.schema_arrow
        if columns is not None:
            columns = list(columns)
            schema = pa.schema([schema.field(name) for name in columns])
        selected = map(select, part.iter_batches(_READ_ROWS, columns=columns))
        return pa.Table.from_batches([batch for batch in selected if len(batch)], schema.remove_metadata())


def require_intact_part(path: Path) -> None:
    """Check that the bytes of a part match the checksum in its name.

    Raises:
        DamagedError: If they do not match.
        DataError: If the name has no checksum.
    """
    named = find_digest_in_name(path)
    if named is None:
        raise DataError(f"{path} was {OTHER_VERSION}")
    if cached_sha256(path)[:_DIGITS] != named:
        raise DamagedError(f"{path} is damaged: its sha256 does not match the checksum in its name")


def find_digest_in_name(path: Path) -> str | None:
    """Return the first digits of the sha256 in a part's name, or None if the name has no checksum."""
    match = _SELF_NAMED.fullmatch(path.name)
    return match.group(1) if match else None


def discard_rows(folder: Path, text_sha256: Collection[str]) -> None:
    """Remove the rows of these texts from the parts of ``folder``.

    A part is replaced by one without these rows. The new part is written before the old one is deleted. If the process
    is killed in between, no row is lost, and the next call completes the removal. Damaged parts are renamed
    (:func:`set_aside`).
    """
    unwanted = pa.array(sorted(text_sha256), pa.string())
    for part in list_parts(folder):
        # A missing part was renamed or removed by another process.
        with suppress(FileNotFoundError):
            try:
                is_unwanted = pc.is_in(read_part(part, ["text_sha256"]).column("text_sha256"), unwanted)
                if pc.any(is_unwanted).as_py():
                    remaining = read_part(part).filter(pc.invert(is_unwanted))
                    if len(remaining):
                        write_part(folder, remaining, time.time_ns())
                    part.unlink(missing_ok=True)
            except DamagedError:
                set_aside(part)


def find_damaged_parts(folder: Path, *, whole: bool) -> Iterator[Path]:
    """Yield the damaged parts of ``folder``. If ``whole`` is True, check all bytes, else only the footers."""
    for part in list_parts(folder):
        try:
            if not whole:
                with _translate_damage_errors(part), open_parquet(part):
                    pass
            else:
                require_intact_part(part)
        except FileNotFoundError:
            # The part was removed meanwhile.
            continue
        except DamagedError:
            yield part


def set_aside(part: Path) -> Path:
    """Rename a damaged part so that it is never read, and return its new path. Another process may also do so."""
    aside = part.with_suffix(".unreadable")
    with suppress(FileNotFoundError):
        part.replace(aside)
    return aside


def _shorten_keys(keys: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the first characters of the keys, as a copy that does not keep the whole keys in memory."""
    prefixes = pc.utf8_slice_codeunits(keys, 0, _KEY_PREFIX_LENGTH)
    return prefixes if isinstance(prefixes, pa.ChunkedArray) else pa.chunked_array([prefixes])


@contextmanager
def _translate_damage_errors(part: Path) -> Iterator[None]:
    """Raise DamagedError for errors inside this block that come from the content of a part."""
    try:
        yield
    except (pa.ArrowException, OSError, KeyError) as error:
        if isinstance(error, FileNotFoundError) or getattr(error, "errno", None) is not None:
            # The file could not be reached: it is missing, or permissions or file descriptors are lacking.
            raise
        raise DamagedError(f"{part} is damaged: {error}") from error


def write_part(folder: Path, table: pa.Table, number: int) -> Path:
    """Write a part and return its path. ``number`` (nanoseconds) orders parts. The name also contains the checksum."""
    with temporary_file(folder, f"part-{number}") as temporary:
        write_parquet(temporary, table)
        part = folder / f"part-{number}-{file_sha256(temporary)[:_DIGITS]}.parquet"
        move_into_place(temporary, part)
        return part


def list_parts(folder: Path) -> list[Path]:
    """Return the parts of ``folder``, oldest first."""
    return sorted(folder.glob("part-*.parquet"))


def _drop_duplicate_keys(table: pa.Table) -> pa.Table:
    seen: set[str] = set()
    is_new = []
    for key in table.column("key").to_pylist():
        is_new.append(key not in seen)
        seen.add(key)
    return table if all(is_new) else table.filter(pa.array(is_new))
