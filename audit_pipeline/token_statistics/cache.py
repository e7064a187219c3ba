"""The cache of token statistics: Parquet part files that only ever gain rows.

Safe without a server: a part is written aside and moved into place, so it is whole or absent; two runs write different
parts; a row that is in two parts is the same row, and readers take the first. A part's name holds the sha256 of its
bytes, and readers compare the two. A part without such a name, or without a column, is refused.
Parts are never merged: a thousand of them cost a run less than a second. Taking texts away writes the new part before
it removes the old one: whatever moment it is stopped at, no row of another text is missing.
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
# Of a key's 64 hexadecimal digits: 96 bits distinguish any number of keys, in less than half the memory.
_KEPT_CHARACTERS = 24
# A part is read a piece at a time: decoded it takes several times its size on disk, and few of its rows are wanted.
_READ_ROWS, _READ_BYTES = 4096, 1 << 20

_Take = Callable[[Any], Any]
"""What is wanted of a record batch."""


class PartCache:
    """Rows of one kind of statistics of one model, in ``folder``, keyed by the column ``key``."""

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
        # Of the parts that have been looked through or written here: asked chunk after chunk, none is read again.
        self._keys_of: dict[Path, pa.ChunkedArray] = {}
        self._values: dict[tuple[str, Path], frozenset[Any]] = {}

    def missing(self, keys: Iterable[str]) -> set[str]:
        """Those of ``keys`` that are not on disk, or cannot be read.

        A part that is damaged anywhere is set aside now, so that its texts are run again: each is compared with the
        digest in its name, once.
        """
        for path, table in self._read_columns_by_part(["key"], lambda path: path not in self._keys_of):
            self._keys_of[path] = _shorten_keys(table.column("key"))
        wanted, known = {*keys}, set[str]()
        beginnings = pa.array({key[:_KEPT_CHARACTERS] for key in wanted}, pa.string())
        for path in list_parts(self.folder):
            if (own := self._keys_of.get(path)) is not None:
                known.update(own.filter(pc.is_in(own, beginnings)).to_pylist())
        return {key for key in wanted if key[:_KEPT_CHARACTERS] not in known}

    def values_of(self, column: str) -> set[Any]:
        """The different values in ``column``, of all rows on disk; a part is read once for them."""
        for path, table in self._read_columns_by_part([column], lambda path: (column, path) not in self._values):
            self._values[column, path] = frozenset(pc.unique(table.column(column)).to_pylist())
        return {value for (name, _), found in self._values.items() if name == column for value in found}

    def read(self, keys: Iterable[str]) -> pa.Table:
        """The rows of ``keys`` that are on disk, each once, in no particular order."""
        return _drop_duplicate_keys(pa.concat_tables([self.schema.empty_table(), *self.read_by_part(keys)]))

    def read_by_part(self, keys: Iterable[str]) -> Iterator[pa.Table]:
        """As :meth:`read`, those of one part at a time: for rows that are not in memory together.

        A row that is in two parts comes twice.
        """
        wanted_keys = pa.array(sorted(set(keys)), pa.string())
        beginnings = _shorten_keys(wanted_keys)

        def may_hold_wanted(path: Path) -> bool:
            return path not in self._keys_of or bool(pc.any(pc.is_in(self._keys_of[path], beginnings)).as_py())

        def take_wanted(batch: Any) -> Any:
            return batch.filter(pc.is_in(batch.column("key"), wanted_keys))

        for _, table in self._read_columns_by_part(self.schema.names, may_hold_wanted, take_wanted):
            yield table

    def append(self, rows: pa.Table) -> None:
        """Take rows; flushed to disk by time or by bytes, whichever comes first."""
        self._pending.append(rows)
        self._pending_bytes += rows.nbytes
        if self._pending_bytes >= self._flush_bytes or time.monotonic() - self._last_flush >= self._flush_seconds:
            self.flush()

    def flush(self) -> None:
        """Write what is pending as one new part. After an error (a full disk) the rows are still pending."""
        if self._pending:
            # One name until the rows are no longer pending: an interrupt in between writes them again in place.
            self._next_part = self._next_part or time.time_ns()
            rows = cast_to_columns(pa.concat_tables(self._pending), self.schema)
            part = write_part(self.folder, rows, self._next_part)
            self._keys_of[part] = _shorten_keys(rows.column("key"))
            self._pending, self._pending_bytes = [], 0
            self._next_part = None
        self._last_flush = time.monotonic()

    def _read_columns_by_part(
        self,
        columns: Sequence[str],
        is_wanted: Callable[[Path], bool] = lambda path: True,
        take: _Take = lambda batch: batch,
    ) -> Iterator[tuple[Path, pa.Table]]:
        """``columns`` of what ``take`` takes of every part that ``is_wanted``.

        Parts are included that a removal puts in the place of parts being read.
        """
        read: set[Path] = set()
        while new := [path for path in list_parts(self.folder) if path not in read]:
            for path in new:
                read.add(path)
                # A part that is gone was replaced meanwhile: the next look finds its rows in another part.
                with suppress(FileNotFoundError):
                    table = self._read_part_columns(path, columns, take) if is_wanted(path) else None
                    if table is not None:
                        yield path, table

    def _read_part_columns(self, path: Path, columns: Sequence[str], take: _Take) -> pa.Table | None:
        """``columns`` of what ``take`` takes of a part; None where it is damaged: it is set aside then."""
        with suppress(DamagedError):
            return read_part(path, columns, take)
        self.unreadable.append(set_aside(path))
        return None


def read_part(path: Path, columns: Sequence[str] | None = None, take: _Take = lambda batch: batch) -> pa.Table:
    """What ``take`` takes of a part, whole or some columns, compared with the digest in its name.

    Raises DamagedError where it is not as it was written, and OSError where it cannot be reached.
    """
    require_intact_part(path)
    with _translate_damage_errors(path), open_parquet(path, buffer_size=_READ_BYTES) as part:
        if not set(columns or ()) <= set(part.schema_arrow.names):
            raise DataError(f"{path} was {OTHER_VERSION}")
        taken = map(take, part.iter_batches(_READ_ROWS, columns=None if columns is None else list(columns)))
        schema = (
            part.schema_arrow if columns is None else pa.schema([part.schema_arrow.field(name) for name in columns])
        )
        return pa.Table.from_batches([batch for batch in taken if len(batch)], schema.remove_metadata())


def require_intact_part(path: Path) -> None:
    """Raise DamagedError where a part's bytes do not match the checksum in its name, DataError where it has none."""
    named = digest_in_name(path)
    if named is None:
        raise DataError(f"{path} was {OTHER_VERSION}")
    if cached_sha256(path)[:_DIGITS] != named:
        raise DamagedError(f"{path} is damaged: it is not as it was written (its sha256 is not that in its name)")


def digest_in_name(path: Path) -> str | None:
    """The first digits of the sha256 in a part's name; None where the name has none."""
    found = _SELF_NAMED.fullmatch(path.name)
    return found.group(1) if found else None


def discard_rows(folder: Path, text_sha256: Collection[str]) -> None:
    """Take the rows of these texts out of the parts of ``folder``, of whatever kind.

    A part is replaced by one without them: the new one is written before the old one goes: a kill in between costs no
    row and the next call ends it. Damaged parts are set aside.
    """
    unwanted = pa.array(sorted(text_sha256), pa.string())
    for part in list_parts(folder):
        # One that is not there was set aside by another process.
        with suppress(FileNotFoundError):
            try:
                found = pc.is_in(read_part(part, ["text_sha256"]).column("text_sha256"), unwanted)
                if pc.any(found).as_py():
                    if len(remaining := read_part(part).filter(pc.invert(found))):
                        write_part(folder, remaining, time.time_ns())
                    part.unlink(missing_ok=True)
            except DamagedError:
                set_aside(part)


def find_damaged_parts(folder: Path, *, whole: bool) -> Iterator[Path]:
    """The parts of ``folder`` that are damaged: with ``whole`` anywhere, else where their footers are."""
    for part in list_parts(folder):
        try:
            if not whole:
                with _translate_damage_errors(part), open_parquet(part):
                    pass
            else:
                require_intact_part(part)
        except FileNotFoundError:
            # Removed meanwhile.
            continue
        except DamagedError:
            yield part


def set_aside(part: Path) -> Path:
    """Rename a damaged part so that it is never read; its new name. Another process may be faster."""
    aside = part.with_suffix(".unreadable")
    with suppress(FileNotFoundError):
        part.replace(aside)
    return aside


def _shorten_keys(keys: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    """The keys cut to what is kept of them, in memory of their own."""
    cut = pc.utf8_slice_codeunits(keys, 0, _KEPT_CHARACTERS)
    return cut if isinstance(cut, pa.ChunkedArray) else pa.chunked_array([cut])


@contextmanager
def _translate_damage_errors(part: Path) -> Iterator[None]:
    """What is wrong with a part that is read within the block becomes DamagedError."""
    try:
        yield
    except (pa.ArrowException, OSError, KeyError) as error:
        if isinstance(error, FileNotFoundError) or getattr(error, "errno", None) is not None:
            # It could not be reached: gone, no permission, no descriptors.
            raise
        raise DamagedError(f"{part} is damaged: {error}") from error


def write_part(folder: Path, table: pa.Table, number: int) -> Path:
    """Write a part, whose name is made of its bytes: it never changes. ``number`` (nanoseconds) puts it in order."""
    with temporary_file(folder, f"part-{number}") as temporary:
        write_parquet(temporary, table)
        part = folder / f"part-{number}-{file_sha256(temporary)[:_DIGITS]}.parquet"
        move_into_place(temporary, part)
        return part


def list_parts(folder: Path) -> list[Path]:
    """The parts of ``folder``, oldest first."""
    return sorted(folder.glob("part-*.parquet"))


def _drop_duplicate_keys(table: pa.Table) -> pa.Table:
    keys: set[str] = set()
    keep = [not (key in keys or keys.add(key)) for key in table.column("key").to_pylist()]  # type: ignore[func-returns-value]
    return table if all(keep) else table.filter(pa.array(keep))
