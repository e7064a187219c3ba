"""The cache of token statistics: Parquet part files that only ever gain rows.

What belongs here: part files, their keys, flushing, compaction, damaged files, taking texts away again. What does not:
what a row means (contracts.py), what a key is made of (encode.py).

Safe without a server: a part is written aside and moved into place, so it is whole or absent; two runs write different
parts; a row that stands in two parts is the same row, and readers take the first. Compaction writes the merged part
before it removes the old ones, under a lock that other compactions (not readers or writers) respect. Taking texts away
does the same: whatever moment it is stopped at, no row of another text is missing.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from audit_pipeline.errors import DataError
from audit_pipeline.tables import checked, write_table

COMPACTION_LOCK = ".compaction.lock"
LOCK_SECONDS = 600.0
"""How long those who take rows away wait for a compaction to end."""

_SMALL_PART_BYTES = 128 << 20
# Of a key's 64 hexadecimal digits: 96 bits tell any number of keys apart, in less than half the memory.
_KEPT_CHARACTERS = 24
# A part is read a piece at a time: decoded it takes several times its size on disk, and few of its rows are wanted.
_READ_ROWS, _READ_BYTES = 4096, 1 << 20

_Take = Callable[[Any], Any]
"""What is wanted of a record batch."""


@dataclass(frozen=True)
class Weight:
    """Rows, and about how many bytes of part files they take."""

    rows: int
    bytes: int


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
        self._pending: list[Mapping[str, object]] = []
        self._pending_bytes = 0
        self._next_part: Path | None = None
        self._last_flush = time.monotonic()
        # Of the parts that have been looked through or written here: asked chunk after chunk, none is read again.
        self._keys_of: dict[Path, pa.ChunkedArray] = {}
        self._values: dict[tuple[str, Path], frozenset[Any]] = {}

    def known(self, keys: Iterable[str]) -> set[str]:
        """Those of ``keys`` that are on disk and can be read.

        Every column of a part is read, once: a part that is damaged anywhere is set aside then, so that its texts count
        as missing and are run again.
        """
        for path, table in self._parts_as(_keys_in, lambda path: path not in self._keys_of):
            self._keys_of[path] = _beginnings(table.column("key"))
        by_beginning = {key[:_KEPT_CHARACTERS]: key for key in keys}
        wanted = pa.array(list(by_beginning), pa.string())
        there = (self._keys_of[path] for path in _parts(self.folder) if path in self._keys_of)
        return {by_beginning[key] for kept in there for key in kept.filter(pc.is_in(kept, wanted)).to_pylist()}

    def values_of(self, column: str) -> set[Any]:
        """The different values in ``column``, of all rows on disk; a part is read once for them."""
        unread = self._parts_as(_column_in(column), lambda path: (column, path) not in self._values)
        for path, table in unread:
            self._values[column, path] = frozenset(pc.unique(table.column(column)).to_pylist())
        return {value for (name, _), found in self._values.items() if name == column for value in found}

    def read(self, keys: Iterable[str]) -> pa.Table:
        """The rows of ``keys`` that are on disk, each once, in no particular order."""
        wanted = pa.array(sorted(set(keys)), pa.string())
        beginnings = _beginnings(wanted)

        def may_hold_one(path: Path) -> bool:
            return path not in self._keys_of or bool(pc.any(pc.is_in(self._keys_of[path], beginnings)).as_py())

        tables = [table for _, table in self._parts_as(_rows_in(wanted), may_hold_one)]
        return _first_of_each_key(pa.concat_tables([self.schema.empty_table(), *tables]))

    def add(self, row: Mapping[str, object], size: int) -> None:
        """Take a row of about ``size`` bytes; flushed to disk by time or by bytes, whichever comes first."""
        self._pending.append(row)
        self._pending_bytes += size
        if self._pending_bytes >= self._flush_bytes or time.monotonic() - self._last_flush >= self._flush_seconds:
            self.flush()

    def flush(self) -> None:
        """Write what is pending as one new part. After an error (a full disk) the rows are still pending."""
        if self._pending:
            # One name until the rows are no longer pending: an interrupt in between writes them again in place.
            self._next_part = self._next_part or _new_part(self.folder)
            self._write(pa.Table.from_pylist(list(self._pending), schema=self.schema), self._next_part)
            self._pending, self._pending_bytes = [], 0
            self._next_part = None
        self._last_flush = time.monotonic()

    def compact(self) -> None:
        """Merge small parts into larger ones; leaves it to the other process where one is at it."""
        try:
            with filelock.FileLock(self.folder / COMPACTION_LOCK, timeout=0):
                for parts in _piles(_parts(self.folder)):
                    if len(parts) > 1:
                        self._merge(parts)
        except filelock.Timeout:
            return

    def _merge(self, parts: Sequence[Path]) -> None:
        tables = {path: table for path in parts if (table := self._part_as(_all_rows, path)) is not None}
        if len(tables) > 1:
            self._write(_first_of_each_key(pa.concat_tables(tables.values())), _new_part(self.folder))
            for path in tables:
                path.unlink()
                self._keys_of.pop(path, None)

    def _write(self, table: pa.Table, part: Path) -> None:
        write_table(part, checked(table, self.schema))
        self._keys_of[part] = _beginnings(table.column("key"))

    def _parts_as(self, take: _Take, of: Callable[[Path], bool]) -> Iterator[tuple[Path, pa.Table]]:
        """What ``take`` takes of every part that ``of`` wants, those included that another process's compaction puts in
        the place of parts being read.
        """
        seen: set[Path] = set()
        while new := [path for path in _parts(self.folder) if path not in seen]:
            for path in new:
                seen.add(path)
                # One that is gone was merged meanwhile: its rows stand in a part that the next look finds.
                with suppress(FileNotFoundError):
                    table = self._part_as(take, path) if of(path) else None
                    if table is not None:
                        yield path, table

    def _part_as(self, take: _Take, path: Path) -> pa.Table | None:
        """What ``take`` takes of a part; None where it is damaged: it is set aside then."""
        try:
            with pq.ParquetFile(path, pre_buffer=False, buffer_size=_READ_BYTES) as part:
                taken = map(take, part.iter_batches(_READ_ROWS, columns=self.schema.names))
                schema = take(self.schema.empty_table()).schema
                return pa.Table.from_batches([batch for batch in taken if len(batch)], schema)
        except (pa.ArrowInvalid, OSError) as error:
            if not _is_damage(error):
                raise
            self.unreadable.append(_set_aside(path))
            return None


@contextmanager
def no_compaction(folder: Path) -> Iterator[None]:
    """No other process merges the parts of ``folder`` meanwhile; raises DataError where one does not end in time."""
    try:
        with filelock.FileLock(folder / COMPACTION_LOCK, timeout=LOCK_SECONDS):
            yield
    except filelock.Timeout as error:
        raise DataError(
            f"another process has been merging the parts of {folder} for {LOCK_SECONDS:.0f} s: "
            "wait for it, or end it and try again"
        ) from error


def weigh(folder: Path, text_sha256: Collection[str]) -> Weight:
    """What the rows of these texts come to in the parts of ``folder``, of whatever kind; damaged parts count nothing.

    A part's bytes are shared out by its rows.
    """
    wanted = pa.array(sorted(text_sha256), pa.string())
    rows, size = 0, 0.0
    for part in _parts(folder):
        try:
            texts = pq.read_table(part, columns=["text_sha256"], partitioning=None).column("text_sha256")
            part_size = part.stat().st_size
        except (pa.ArrowInvalid, OSError) as error:
            if not _is_damage(error) and not isinstance(error, FileNotFoundError):
                raise
            continue
        found = int(pc.sum(pc.is_in(texts, wanted)).as_py() or 0)
        rows += found
        size += part_size * found / max(len(texts), 1)
    return Weight(rows, round(size))


def discard(folder: Path, text_sha256: Collection[str]) -> Weight:
    """Take the rows of these texts out of the parts of ``folder``, of whatever kind; what went, in bytes on disk.

    A part is replaced by one without them: the new one stands before the old one goes, so a kill in between costs no
    row and the next call ends it. Damaged parts are set aside. Raises DataError where another process's compaction does
    not end in time.
    """
    unwanted = pa.array(sorted(text_sha256), pa.string())
    rows, size = 0, 0
    with no_compaction(folder):
        for part in _parts(folder):
            try:
                texts = pq.read_table(part, columns=["text_sha256"], partitioning=None).column("text_sha256")
                keep = pc.invert(pc.is_in(texts, unwanted))
                if pc.all(keep).as_py():
                    continue
                kept = pq.read_table(part, partitioning=None).filter(keep)
            except (pa.ArrowInvalid, OSError) as error:
                if not _is_damage(error):
                    raise
                _set_aside(part)
                continue
            size += part.stat().st_size
            if len(kept):
                replacement = _new_part(folder)
                write_table(replacement, kept)
                size -= replacement.stat().st_size
            part.unlink()
            rows += len(texts) - len(kept)
    return Weight(rows, size)


def set_aside_damaged(folder: Path, schema: pa.Schema | None) -> list[Path]:
    """Read every part of ``folder`` to its end and set those aside that cannot be read; their new names.

    ``schema`` is that of the parts' kind; None reads the columns that a part has.
    """
    damaged = []
    for part in _parts(folder):
        try:
            pq.read_table(part, columns=None if schema is None else schema.names, partitioning=None)
        except (pa.ArrowInvalid, OSError) as error:
            if isinstance(error, FileNotFoundError):
                continue
            if not _is_damage(error):
                raise
            damaged.append(_set_aside(part))
    return damaged


def _all_rows(batch: Any) -> Any:
    return batch


def _rows_in(keys: pa.Array) -> _Take:
    return lambda batch: batch.filter(pc.is_in(batch.column("key"), keys))


def _column_in(name: str) -> _Take:
    return lambda batch: batch.select([name])


_keys_in = _column_in("key")


def _beginnings(keys: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    """The keys cut to what is kept of them, in memory of their own."""
    cut = pc.utf8_slice_codeunits(keys, 0, _KEPT_CHARACTERS)
    return cut if isinstance(cut, pa.ChunkedArray) else pa.chunked_array([cut])


def _new_part(folder: Path) -> Path:
    return folder / f"part-{time.time_ns()}-{uuid.uuid4().hex[:8]}.parquet"


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*.parquet"))


def _is_damage(error: Exception) -> bool:
    """Whether a part is damaged; else it could not be reached (gone, no permission, no descriptors)."""
    return not isinstance(error, FileNotFoundError) and getattr(error, "errno", None) is None


def _set_aside(part: Path) -> Path:
    aside = part.with_suffix(".unreadable")
    part.replace(aside)
    return aside


def _piles(parts: Iterable[Path]) -> list[list[Path]]:
    """Small parts in piles that are small enough to be in memory at once."""
    piles: list[list[Path]] = []
    height = _SMALL_PART_BYTES
    for path in parts:
        size = path.stat().st_size
        if size >= _SMALL_PART_BYTES:
            continue
        if height + size > _SMALL_PART_BYTES:
            piles.append([])
            height = 0
        piles[-1].append(path)
        height += size
    return piles


def _first_of_each_key(table: pa.Table) -> pa.Table:
    seen: set[str] = set()
    keep = [not (key in seen or seen.add(key)) for key in table.column("key").to_pylist()]  # type: ignore[func-returns-value]
    return table if all(keep) else table.filter(pa.array(keep))
