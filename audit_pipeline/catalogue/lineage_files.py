"""Lineage entries and the files that they explain, side by side: which of the two is there without the other.

What belongs here: telling what is missing, and what that can mean. What does not: reading entries
(catalogue/lineage.py, the warehouse's build), comparing a file's bytes with its entry (catalogue/lineage.py), what is
said of it (operate/doctor.py, the view lineage_gaps).

An entry is written before its file, so an entry without a file is either a run that died between the two, or a file
that somebody deleted. Where the same step of the run went on to write a later entry, the file was there: it was
deleted. Where it did not, the run may have died there; whoever knows how the run ended can tell.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from audit_pipeline.catalogue.contracts import TABLES
from audit_pipeline.catalogue.paths import DataPaths

REWRITTEN = tuple(table.name for table in TABLES.values() if table.kept == "rewritten")
"""Tables of which a partition has one file, which every run writes anew: the last entry is the one that explains it."""


@dataclass(frozen=True)
class LineageEntry:
    """What of a lineage row says which file it explains, and what that was made of."""

    table: str
    partition: str
    run_id: str
    asset_key: str
    finished_at: datetime
    file_sha256: str | None = None
    code_version: str = ""
    data_version: str = ""
    upstream_data_versions: str = "{}"
    model_fingerprint: str | None = None
    benchmark_digest: str | None = None
    settings: str | None = None

    @property
    def upstream(self) -> dict[str, str]:
        """The data versions of what it was made of, by table/partition or the input's name."""
        return dict(json.loads(self.upstream_data_versions))

    @property
    def options(self) -> dict[str, Any]:
        """The options that the command was given that wrote it; none where none are kept."""
        return dict(json.loads(self.settings or "{}"))


@dataclass(frozen=True)
class MissingFile:
    """A file that its entry explains and that is not there; ``run_went_on``: its run wrote more after it;
    ``superseded``: the file of a later run, which counts now, is there."""

    entry: LineageEntry
    path: Path
    run_went_on: bool
    superseded: bool


def pair_entries_with_files(entries: Iterable[LineageEntry], paths: DataPaths) -> list[tuple[LineageEntry, Path]]:
    """Each entry with the file that it explains; those of the cache, which have none of their own, left out."""
    found = ((entry, _file_of(entry, paths)) for entry in entries)
    return [(entry, path) for entry, path in found if path is not None]


def missing_files(entries: Sequence[tuple[LineageEntry, Path]], is_there: Callable[[Path], bool]) -> list[MissingFile]:
    """The entries whose file is gone, in order; of a partition that is written anew by every run, the last entry's."""
    latest: dict[Path, LineageEntry] = {}
    last_of_step: dict[tuple[str, str], datetime] = {}
    last_there: dict[tuple[str, str], datetime] = {}
    for entry, path in sorted(entries, key=lambda one: (one[0].finished_at, one[0].run_id)):
        latest[path] = entry
        last_of_step[entry.run_id, entry.asset_key] = entry.finished_at
    gone = {path for path in latest if not is_there(path)}
    for path, entry in latest.items():
        of = entry.table, entry.partition
        if path not in gone and (of not in last_there or last_there[of] < entry.finished_at):
            last_there[of] = entry.finished_at
    found = [
        MissingFile(
            entry,
            path,
            last_of_step[entry.run_id, entry.asset_key] > entry.finished_at,
            (entry.table, entry.partition) in last_there
            and last_there[entry.table, entry.partition] > entry.finished_at,
        )
        for path, entry in latest.items()
        if path in gone
    ]
    return sorted(found, key=lambda one: (one.entry.table, one.entry.partition, one.entry.run_id))


def digests_by_file(entries: Iterable[tuple[LineageEntry, Path]]) -> dict[Path, set[str]]:
    """The digests that a file may have, by its path; none where all its entries are of earlier versions."""
    found: dict[Path, set[str]] = {}
    for entry, path in entries:
        found.setdefault(path, set()).update([entry.file_sha256] if entry.file_sha256 else [])
    return found


def files_with_entries(paths: DataPaths) -> list[Path]:
    """Every Parquet file that is there and that a lineage entry should explain, in order."""
    tables = [table for table in TABLES.values() if table.has_files and not table.is_record]
    return sorted(file for table in tables for file in paths.table(table.name).glob("*/*.parquet"))


def _file_of(entry: LineageEntry, paths: DataPaths) -> Path | None:
    # A table that this version does not know is a later version's, which adds a file per run to each as a rule.
    table = TABLES.get(entry.table)
    if table is None:
        return paths.run_file(entry.table, entry.partition, entry.run_id)
    return table.file_of(paths, entry.partition, entry.run_id)
