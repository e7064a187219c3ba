"""Files, and rows of the cache, that a removal takes away: counted, weighed, and removed one after the other.

What belongs here: files and folders in lots, whatever they hold; and the cache of token statistics, which is no file a
partition, as tables are: rows of texts in parts that stay, damaged parts that may hold them, whole folders. What does
not: which texts, models and files belong to a name (removal.py), part files (token_statistics/cache.py).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from audit_pipeline.catalogue.files import open_parquet
from audit_pipeline.catalogue.working_copy import remove
from audit_pipeline.token_statistics.cache import (
    COMPACTION_LOCK,
    Weight,
    discard_rows,
    list_parts,
    measure_rows,
    no_compaction,
)

OnRemoved = Callable[[Path], None]
"""Is told of every file and folder as it goes."""


@dataclass(frozen=True)
class Gone:
    """What goes, or went, of one sort: whole files and rows of files that stay, with their bytes on disk."""

    what: str
    files: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class Lot:
    """Files of one sort that go whole, and the folders that go where that leaves them empty."""

    what: str
    files: tuple[Path, ...]
    folders: tuple[Path, ...] = ()

    @classmethod
    def of(cls, what: str, folders: Iterable[Path]) -> Lot:
        """Everything below ``folders``, and they themselves."""
        given = tuple(folders)
        inner = [path for folder in given for path in sorted(folder.rglob("*"), reverse=True) if path.is_dir()]
        return cls(what, tuple(path for folder in given for path in files_below(folder)), (*inner, *given))

    def weight(self) -> Gone:
        """What of it is there now."""
        present = [path for path in self.files if path.exists()]
        return Gone(self.what, len(present), sum(map(rows_in, present)), bytes_of(present))

    def remove(self, on_removed: OnRemoved) -> None:
        remove_files([path for path in self.files if path.exists()], on_removed)
        for folder in self.folders:
            remove_if_empty(folder)


def files_below(folder: Path) -> tuple[Path, ...]:
    """Every file in a folder and in those inside of it, in order."""
    return tuple(sorted(path for path in folder.rglob("*") if path.is_file()))


def remove_files(files: Iterable[Path], on_removed: OnRemoved) -> None:
    """Remove files; those that are gone already count as removed."""
    for path in files:
        remove(path)
        on_removed(path)


def remove_if_empty(folder: Path) -> None:
    """Remove a folder unless something was put into it meanwhile."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def stat_of(path: Path) -> os.stat_result | None:
    """Size and time of a file; None where its writer has moved it into place meanwhile."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def bytes_of(files: Iterable[Path]) -> int:
    """Their bytes on disk, those that are gone meanwhile left out."""
    return sum(stat.st_size for path in files if (stat := stat_of(path)) is not None)


def rows_in(path: Path) -> int:
    """The rows of a Parquet file; none in a damaged one, in one that was merged meanwhile, or in another file."""
    if path.suffix != ".parquet":
        return 0
    try:
        with open_parquet(path) as file:
            return int(file.metadata.num_rows)
    except (pa.ArrowException, FileNotFoundError):
        return 0


def sum_by_kind(entries: Sequence[Gone]) -> list[Gone]:
    """One entry a sort, in order; sorts of which there is nothing are left out."""
    files, rows, size = Counter[str](), Counter[str](), Counter[str]()
    for one in entries:
        files[one.what] += one.files
        rows[one.what] += one.rows
        size[one.what] += one.bytes
    return [Gone(what, files[what], rows[what], size[what]) for what in files if files[what] or rows[what]]


DEAD_AFTER_SECONDS = 3600.0
"""A temporary file that is older is no living writer's."""

_CACHED = "token statistics"
_DAMAGED = "damaged parts of the cache, which may hold its texts"


def weight_of_folder(folder: Path) -> Gone:
    """What a model's folder of one kind holds."""
    files = files_below(folder)
    return Gone(_CACHED, len(files), sum(map(rows_in, files)), bytes_of(files))


def weight_of_texts(folder: Path, texts: Collection[str]) -> list[Gone]:
    """What :func:`remove_texts` would take; the bytes of rows in parts that stay are shared out by rows."""
    return _gone_from_weight(measure_rows(folder, texts), _leftovers(folder))


def remove_folder(folder: Path, on_removed: OnRemoved) -> None:
    """Take a model's folder of one kind away, when no compaction is at work in it."""
    with no_compaction(folder):
        remove_files((path for path in files_below(folder) if path.name != COMPACTION_LOCK), on_removed)
    remove_files([folder / COMPACTION_LOCK], on_removed)
    remove_if_empty(folder)


def remove_texts(folder: Path, texts: Collection[str], on_removed: OnRemoved) -> list[Gone]:
    """Remove the rows of texts (by their sha256), and parts that cannot be read any more; returns what went."""
    weight, leftovers = discard_rows(folder, texts), _leftovers(folder)
    gone = _gone_from_weight(weight, leftovers)
    remove_files(leftovers, on_removed)
    on_removed(folder)
    return gone


def rows_of_others(folders: Iterable[Path], texts: Collection[str]) -> int:
    """How many cached rows are of none of these texts."""
    return sum(sum(map(rows_in, list_parts(folder))) - measure_rows(folder, texts).rows for folder in folders)


def _gone_from_weight(weight: Weight, leftovers: list[Path]) -> list[Gone]:
    return [Gone(_CACHED, 0, weight.rows, weight.bytes), Gone(_DAMAGED, len(leftovers), 0, bytes_of(leftovers))]


def _leftovers(folder: Path) -> list[Path]:
    """Parts that were set aside, and what killed writers left behind; not what a living one may be writing."""
    born_before = time.time() - DEAD_AFTER_SECONDS
    temporary = [
        path
        for path in folder.glob(".part-*.tmp")
        if (stat := stat_of(path)) is not None and stat.st_mtime < born_before
    ]
    return sorted([*folder.glob("part-*.unreadable"), *temporary])
