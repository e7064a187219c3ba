"""The Parquet files of a data folder that are as their lines in the ledger say, found before DuckDB opens any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from audit_pipeline.store.integrity import FileIdentity, file_sha256, find_file_identity
from audit_pipeline.store.ledger_records import Entry, Ledger
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import TABLES
from audit_pipeline.tables.table import Table
from audit_pipeline.token_statistics.cache import digest_in_name

_NOT_AS_WRITTEN = "it is not as it was written: its sha256 is not that in the ledger, or in its name"
_UNEXPLAINED = "no line of the ledger explains it"


@dataclass(frozen=True)
class UnreadableFile:
    """A file that was left out, and why."""

    path: Path
    reason: str


@dataclass
class VerifiedFiles:
    """The files that are as they were written, in path order, and those that are not.

    ``identities``: of the files that a run may replace, and of the cache's parts, as they were when they were compared.
    ``explained``: the entry of each file that the ledger explains. ``missing``: the entries whose file is not there or
    was left out.
    """

    by_table: dict[str, list[Path]] = field(default_factory=dict)
    identities: dict[Path, FileIdentity] = field(default_factory=dict)
    explained: list[Entry] = field(default_factory=list)
    missing: list[Entry] = field(default_factory=list)
    left_out: list[UnreadableFile] = field(default_factory=list)
    unexplained: list[Path] = field(default_factory=list)

    def add(self, table: Table, path: Path, identity: FileIdentity, digest: str, entries: Sequence[Entry]) -> None:
        """Take in a file, whose bytes have that digest; ``entries`` are those of it in the ledger."""
        # Which entry names it does not matter: a run that died on the way left the file of the run before.
        writing = next((entry for entry in reversed(entries) if entry.file_sha256 == digest), None)
        reason = None
        if writing is not None:
            self.explained.append(writing)
        elif table.storage == "cache":
            reason = None if digest.startswith(digest_in_name(path) or "") else _NOT_AS_WRITTEN
        elif entries:
            self.missing.append(entries[-1])
            reason = _NOT_AS_WRITTEN
        else:
            self.unexplained.append(path)
            reason = _UNEXPLAINED
        if reason is not None:
            self.left_out.append(UnreadableFile(path, reason))
            return
        self.by_table.setdefault(table.name, []).append(path)
        if not table.append_only:
            self.identities[path] = identity

    def find_replaced_file(self) -> Path | None:
        """Return a file that a run has replaced or taken away since it was compared."""
        return next((path for path, identity in self.identities.items() if find_file_identity(path) != identity), None)


def verify_files(paths: DataPaths, ledger: Ledger) -> VerifiedFiles:
    """Compare every Parquet file with its digest: of the ledger, or of the name of a part of the cache."""
    found = VerifiedFiles()
    entries: dict[str, dict[Path, list[Entry]]] = {}
    for entry in ledger.entries:
        if (file := entry.file(paths)) is not None:
            entries.setdefault(entry.table, {}).setdefault(file, []).append(entry)
    cache = paths.token_statistics("base", "any").parent
    for table in TABLES.values():
        if not table.in_warehouse or not (table.has_files or table.storage == "cache"):
            continue
        of_table = entries.get(table.name, {})
        files = sorted((cache if table.storage == "cache" else paths.table(table.name)).glob("*/*.parquet"))
        for path in files:
            if (identity := find_file_identity(path)) is not None:
                found.add(table, path, identity, _compute_digest(path), of_table.get(path, ()))
        found.missing += [of_table[path][-1] for path in sorted(of_table.keys() - {*files})]
    return found


def _compute_digest(path: Path) -> str:
    """The sha256 of a file as it is read now; empty where it cannot be read."""
    try:
        return file_sha256(path)
    except OSError:
        return ""
