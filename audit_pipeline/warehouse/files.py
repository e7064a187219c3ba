"""The Parquet files that a build reads, each compared with its lineage entry or its own name before it is loaded.

What belongs here: which files there are, and which of them are not as they were written. What does not: loading them
(load.py), what a digest is (catalogue/integrity.py), which file an entry explains (catalogue/lineage_files.py).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from audit_pipeline.catalogue.integrity import DamagedError, FileIdentity, file_identity, file_sha256
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.table import Table
from audit_pipeline.catalogue.working_copy import bring
from audit_pipeline.token_statistics.cache import digest_in_name


@dataclass(frozen=True)
class UnreadableTableFile:
    """A file that was left out, and why."""

    path: Path
    reason: str


@dataclass(frozen=True)
class ListedFiles:
    """The files of a table as they were found before the lineage was read: by then each had its entry."""

    table: Table
    identities: Mapping[Path, FileIdentity]

    @property
    def paths(self) -> list[Path]:
        return list(self.identities)

    @property
    def may_change(self) -> bool:
        """Whether a run replaces such files, or a compaction merges them; the others are only ever added."""
        return not self.table.append_only


def list_files(paths: DataPaths, table: Table) -> ListedFiles:
    """Every Parquet file of a table, in path order; of the cache those of the kind that the warehouse holds."""
    folder = paths.table(table.name) if table.kept != "cache" else paths.token_statistics("base", "any").parent
    if table.kept == "cache":
        bring(folder)
    # Not rglob: a folder of ten thousand files is listed, and put in order, in a fifth of the time.
    names = [os.path.join(place, name) for place, _, names in os.walk(folder) for name in names]
    found = {}
    for path in map(Path, sorted(name for name in names if name.endswith(".parquet"))):
        try:
            found[path] = file_identity(path)
        except FileNotFoundError:
            # Merged or forgotten between the two looks.
            continue
    return ListedFiles(table, found)


@dataclass(frozen=True)
class ComparedFiles:
    """The files whose bytes are not those in their entry, or in their name; the sha256 of the whole ones that have an
    entry with a digest."""

    damaged: Sequence[UnreadableTableFile]
    sha256: Mapping[Path, str]


def compare_files(table: Table, files: Iterable[Path], digests: Mapping[Path, Collection[str]]) -> ComparedFiles:
    """Read files of a table and compare each with its digest; unknown digests damage nothing."""
    damaged, known = [], {}
    for path in files:
        try:
            found = _verify_digest(path, table, digests.get(path, ()))
        except (DamagedError, OSError) as error:
            damaged.append(UnreadableTableFile(path, str(error)))
        else:
            known.update({path: found} if found else {})
    return ComparedFiles(damaged, known)


def changed_since(listed: Iterable[ListedFiles]) -> list[Path]:
    """The files that were replaced or taken away since they were listed."""
    return [
        path
        for one in listed
        if one.may_change
        for path, identity in one.identities.items()
        if not _has_identity(path, identity)
    ]


def _verify_digest(path: Path, table: Table, digests: Collection[str]) -> str | None:
    """The sha256 of a file; None where there is nothing to compare it with. Raises DamagedError."""
    if table.kept == "cache":
        named = digest_in_name(path)
        digests = [named] if named else []
    if not digests:
        return None
    # Not known_sha256: what is read now is compared now, however long this process has been running.
    found = file_sha256(path)
    if not found.startswith(tuple(digests)):
        raise DamagedError("it is not as it was written: its sha256 is not the one in its entry, or in its name")
    return found


def _has_identity(path: Path, identity: FileIdentity) -> bool:
    try:
        return file_identity(path) == identity
    except FileNotFoundError:
        return False
