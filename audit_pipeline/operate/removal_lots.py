"""Files that a removal takes away: in lots, counted, weighed, and unlinked one after the other.

What belongs here: files and folders, whatever they hold. What does not: which of them belong to a name (removal.py).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from audit_pipeline.catalogue.tables import open_parquet
from audit_pipeline.catalogue.working_copy import remove

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
        unlink([path for path in self.files if path.exists()], on_removed)
        for folder in self.folders:
            remove_if_empty(folder)


def files_below(folder: Path) -> tuple[Path, ...]:
    """Every file in a folder and in those inside of it, in order."""
    return tuple(sorted(path for path in folder.rglob("*") if path.is_file()))


def unlink(files: Iterable[Path], on_removed: OnRemoved) -> None:
    """Remove files; those that are gone already count as removed."""
    for path in files:
        remove(path)
        on_removed(path)


def remove_if_empty(folder: Path) -> None:
    """Remove a folder unless somebody has put something into it meanwhile."""
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


def summed(found: Sequence[Gone]) -> list[Gone]:
    """One entry a sort, in order; sorts of which there is nothing are left out."""
    files, rows, size = Counter[str](), Counter[str](), Counter[str]()
    for one in found:
        files[one.what] += one.files
        rows[one.what] += one.rows
        size[one.what] += one.bytes
    return [Gone(what, files[what], rows[what], size[what]) for what in files if files[what] or rows[what]]
