"""Verification of a data folder's Parquet files against the ledger, before DuckDB opens them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from audit_pipeline.store.integrity import FileIdentity, file_sha256, find_file_identity
from audit_pipeline.store.ledger_records import Entry, Ledger
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import TABLES
from audit_pipeline.tables.table import Table
from audit_pipeline.token_statistics.cache import find_digest_in_name

_CORRUPT = "the file is corrupt: its sha256 differs from the ledger entry or from the file name"
_UNEXPLAINED = "the ledger has no entry for the file"


@dataclass(frozen=True)
class UnreadableFile:
    """A file that the build skips, and the reason."""

    path: Path
    reason: str


@dataclass
class VerifiedFiles:
    """The result of a verification.

    Attributes:
        by_table: The intact files by table, in path order.
        identities: The identities of files that a run may replace and of parts of the cache, at the time of their
            verification.
        explained: The ledger entries of the intact files. A part of the cache may have no entry.
        missing: The ledger entries whose file is missing or corrupt.
        left_out: The skipped files.
        unexplained: The files without a ledger entry.
    """

    by_table: dict[str, list[Path]] = field(default_factory=dict)
    identities: dict[Path, FileIdentity] = field(default_factory=dict)
    explained: list[Entry] = field(default_factory=list)
    missing: list[Entry] = field(default_factory=list)
    left_out: list[UnreadableFile] = field(default_factory=list)
    unexplained: list[Path] = field(default_factory=list)

    def add(self, table: Table, path: Path, identity: FileIdentity, digest: str, entries: Sequence[Entry]) -> None:
        """Check a file, and add it to the intact files or to the skipped files.

        Args:
            table: The table of the file.
            path: The file.
            identity: The identity of the file.
            digest: The sha256 of the file.
            entries: The ledger entries of the file.
        """
        reason = self._find_fault(table, path, digest, entries)
        if reason is not None:
            self.left_out.append(UnreadableFile(path, reason))
            return
        self.by_table.setdefault(table.name, []).append(path)
        if not table.append_only:
            self.identities[path] = identity

    def _find_fault(self, table: Table, path: Path, digest: str, entries: Sequence[Entry]) -> str | None:
        # All entries are compared, not only the last, because a killed run may leave the file of an earlier run.
        for entry in reversed(entries):
            if entry.file_sha256 == digest:
                self.explained.append(entry)
                return None
        if table.storage == "cache":
            if digest.startswith(find_digest_in_name(path) or ""):
                return None
            return _CORRUPT
        if entries:
            self.missing.append(entries[-1])
            return _CORRUPT
        self.unexplained.append(path)
        return _UNEXPLAINED

    def find_replaced_file(self) -> Path | None:
        """Return a file that a run replaced or removed after its verification, or None if there is no such file."""
        for path, identity in self.identities.items():
            if find_file_identity(path) != identity:
                return path
        return None


def verify_files(paths: DataPaths, ledger: Ledger) -> VerifiedFiles:
    """Compare every Parquet file with its sha256 in the ledger, and every part of the cache with its file name.

    The name of a part of the cache contains its sha256.
    """
    verified = VerifiedFiles()
    entries: dict[str, dict[Path, list[Entry]]] = {}
    for entry in ledger.entries:
        file = entry.file(paths)
        if file is not None:
            entries.setdefault(entry.table, {}).setdefault(file, []).append(entry)
    cache = paths.token_statistics("base", "any").parent
    for table in TABLES.values():
        if not table.in_warehouse or not (table.has_files or table.storage == "cache"):
            continue
        entries_by_file = entries.get(table.name, {})
        folder = paths.table(table.name)
        if table.storage == "cache":
            folder = cache
        files = sorted(folder.glob("*/*.parquet"))
        for path in files:
            identity = find_file_identity(path)
            if identity is not None:
                verified.add(table, path, identity, _compute_digest(path), entries_by_file.get(path, ()))
        for path in sorted(entries_by_file.keys() - set(files)):
            verified.missing.append(entries_by_file[path][-1])
    return verified


def _compute_digest(path: Path) -> str:
    """Return the sha256 of a file, or an empty string if it is unreadable."""
    try:
        return file_sha256(path)
    except OSError:
        return ""
