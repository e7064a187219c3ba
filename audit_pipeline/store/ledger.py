"""The ledger of a data folder: one line for every file that a run wrote, and for every pair that failed.

A run writes the line first and then moves its file into place. So a run that is killed in between leaves a line without
a file, but never a file without a line. A lock file lets one writer at a time append. Readers need no lock, because
lines are only appended. Only the command `forget` replaces the ledger as a whole.

The lines form a chain of digests (store/ledger_records.py). Reading checks the digest of every line. The fields of a
line are parsed when they are needed.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, TypedDict, Unpack

from audit_pipeline.errors import OTHER_VERSION, DataError
from audit_pipeline.store import ledger_records
from audit_pipeline.store.files import hold_lock, move_into_place, write_atomically
from audit_pipeline.store.integrity import (
    DamagedError,
    FileIdentity,
    cached_sha256,
    find_file_identity,
    package_versions,
)
from audit_pipeline.store.ledger_records import START, Entry, Ledger, Line, PairOutcome, parse_outcome
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import OUTCOMES, TABLES, Pair, PairStatus
from audit_pipeline.tables.table import Table

MAX_REASON = 500
"""The maximum length of the reason of an outcome, in characters."""

_LOCK_SECONDS = 600.0


@dataclass(frozen=True)
class LineageStep:
    """A step of a run, as the ledger records it.

    Attributes:
        run_id: The id of the run.
        asset_key: The name of the asset that the step makes.
        code_version: The version of the asset's code.
        started_at: The start of the step, in UTC.
    """

    run_id: str
    asset_key: str
    code_version: str
    started_at: datetime

    @classmethod
    def now(cls, run_id: str, asset_key: str, code_version: str) -> LineageStep:
        """Return a step that starts now."""
        return cls(run_id, asset_key, code_version, datetime.now(UTC))


class RowOrigin(TypedDict, total=False):
    """The model, the benchmark and the command options that rows were computed with."""

    model_fingerprint: str | None
    tokenizer_fingerprint: str | None
    benchmark_digest: str | None
    settings: Mapping[str, object] | None


# Reading.


def read_ledger(paths: DataPaths) -> Ledger:
    """Read all lines of a data folder. A process parses only the lines that were added since its last call.

    Raises:
        DataError: If the data folder was written by an incompatible version.
    """
    _require_layout(paths)
    reader = _readers.setdefault(paths.ledger_file, _Reader(paths.ledger_file))
    return reader.read()


def _require_layout(paths: DataPaths) -> None:
    if not paths.ledger.exists() and (paths.root / "lineage").exists():
        raise DataError(f"{paths.root} was {OTHER_VERSION}")


class _Reader:
    """The lines of one ledger file that this process has read."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._identity: FileIdentity | None = None
        self._consumed_bytes = 0
        self._ledger = Ledger()
        self._lock = threading.Lock()

    def read(self) -> Ledger:
        """Return the ledger with all lines of the file."""
        with self._lock:
            identity = find_file_identity(self._file)
            if identity is None:
                self._reset()
            elif identity != self._identity:
                if not self._is_extended(identity):
                    self._reset()
                # If reading fails, the next call starts at the first line.
                self._identity = None
                self._read_appended_lines()
                self._identity = identity
            return self._ledger

    def _reset(self) -> None:
        self._identity = None
        self._consumed_bytes = 0
        self._ledger = Ledger()

    def _is_extended(self, identity: FileIdentity) -> bool:
        """Return True if the known file only became longer. A rewritten file has another inode."""
        if self._identity is None:
            return False
        size, _, inode = identity
        known_size, _, known_inode = self._identity
        return inode == known_inode and size > known_size

    def _read_appended_lines(self) -> None:
        with self._file.open("rb") as opened:
            opened.seek(self._consumed_bytes)
            content = opened.read()
        # An incomplete last line is read again by the next call.
        self._consumed_bytes += content.rfind(b"\n") + 1
        self._ledger.extend(ledger_records.parse_lines(content))


_readers: dict[Path, _Reader] = {}


# Writing.


def record_entry(
    paths: DataPaths,
    step: LineageStep,
    table: Table,
    partition_key: str | Pair,
    *,
    data_version: str,
    upstream: Mapping[str, str],
    rows: int | None = None,
    file_sha256: str | None = None,
    written: tuple[Path, Path] | None = None,
    **origin: Unpack[RowOrigin],
) -> None:
    """Append the line of a partition that a step made, then move its file into place.

    Args:
        paths: The data folder.
        step: The step that made the partition.
        table: The table.
        partition_key: The partition.
        data_version: The version of the rows.
        upstream: The data versions of the inputs, by input.
        rows: The number of rows, if they are in a file.
        file_sha256: The sha256 of the file.
        written: The finished temporary file and its final path, or None if there is no file. If the file cannot be
            moved, the line is removed again.
        origin: The model, the benchmark and the settings of the rows.

    Raises:
        DataError: If another process holds the lock of the ledger for too long.
    """
    fields = {
        "table": table.name,
        "partition": partition_of(partition_key),
        **vars(step),
        "data_version": data_version,
        "upstream": dict(upstream),
        "packages": dict(package_versions()),
        "finished_at": datetime.now(UTC),
        "rows": rows,
        "file_sha256": file_sha256,
        **origin,
    }
    known_fields = {name: value for name, value in fields.items() if value is not None}
    _append(paths, known_fields, written)


def record_outcome(
    paths: DataPaths, pair: Pair, stage: str, status: PairStatus, reason: str, run_id: str
) -> PairOutcome:
    """Append the reason why a run could not finish a pair.

    Only the first outcome of a run is appended, because the failures of later stages are its consequence.

    Returns:
        The recorded outcome. Its reason is one line of at most 500 characters.
    """
    recorded = find_run_outcome(paths, pair, run_id)
    if recorded is not None:
        return recorded
    fields = {
        "table": OUTCOMES.name,
        "partition": pair.partition,
        "run_id": run_id,
        "stage": stage,
        "status": status,
        "reason": _clean_reason(reason),
        "at": datetime.now(UTC).isoformat(),
    }
    _append(paths, fields)
    return parse_outcome(fields)


def find_run_outcome(paths: DataPaths, pair: Pair, run_id: str) -> PairOutcome | None:
    """Return the outcome that a run recorded for a pair, or None if there is none."""
    for outcome in read_ledger(paths).outcomes:
        if outcome.pair == pair and outcome.run_id == run_id:
            return outcome
    return None


def _clean_reason(reason: str) -> str:
    """Return the reason in one line of limited length.

    Characters that a terminal would interpret, or that Parquet cannot store, are replaced.
    """
    flat = " ".join(reason.split()) or "no reason was given"
    printable = ""
    for character in flat:
        printable += character if character.isprintable() else "\ufffd"
    if len(printable) <= MAX_REASON:
        return printable
    return printable[: MAX_REASON - 1] + "…"


def erase_lines(paths: DataPaths, digests: Collection[str]) -> None:
    """Remove the fields of the lines with these digests. The digests are kept, so the chain of digests remains valid.

    Raises:
        DataError: If another process holds the lock of the ledger for too long.
    """
    with _hold_ledger(paths):
        content = _read_content(paths)
        remaining = ledger_records.erase_fields(content, lambda line: line.digest in digests)
        if remaining != content:
            with write_atomically(paths.ledger_file) as temporary:
                temporary.write_bytes(remaining)


def copy_ledger(paths: DataPaths, to: DataPaths, is_kept: Callable[[Mapping[str, Any]], bool]) -> None:
    """Copy the ledger to another data folder, and erase the fields of all lines for which ``is_kept`` is false."""

    def is_erased(line: Line) -> bool:
        return line.fields is not None and not is_kept(line.fields)

    remaining = ledger_records.erase_fields(_read_content(paths), is_erased)
    with write_atomically(to.ledger_file) as temporary:
        temporary.write_bytes(remaining)


def _read_content(paths: DataPaths) -> bytes:
    return paths.ledger_file.read_bytes() if paths.ledger_file.exists() else b""


def _hold_ledger(paths: DataPaths) -> AbstractContextManager[None]:
    return hold_lock(paths.ledger / "ledger.lock", _LOCK_SECONDS)


def _append(paths: DataPaths, fields: Mapping[str, Any], written: tuple[Path, Path] | None = None) -> None:
    """Append a line, then move the file that it explains into place (see :func:`record_entry`)."""
    _require_layout(paths)
    with _hold_ledger(paths), paths.ledger_file.open("ab+") as opened:
        previous, end = _find_last_line(opened)
        # A killed writer may have left an incomplete line.
        opened.truncate(end)
        try:
            opened.write(ledger_records.format_line(previous, fields))
            opened.flush()
            os.fsync(opened.fileno())
            if written is not None:
                move_into_place(*written)
        except BaseException:
            # If the file was moved before the error, the line stays, because every file needs a line.
            is_moved = written is not None and not written[0].exists()
            if not is_moved:
                opened.truncate(end)
            raise


def _find_last_line(opened: IO[bytes]) -> tuple[str, int]:
    """Return the digest of the last complete line and the offset of its end. Only the end of the file is read."""
    if opened.seek(0, os.SEEK_END) == 0:
        return START, 0
    with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        end = content.rfind(b"\n")
        if end < 0:
            return START, 0
        begin = content.rfind(b"\n", 0, end) + 1
        return ledger_records.parse_line(content[begin:end]).digest, end + 1


# The files that the ledger explains.


def partition_of(partition_key: str | Pair) -> str:
    """Return the name of a partition, which is ``benchmark|model`` for a pair."""
    return partition_key.partition if isinstance(partition_key, Pair) else partition_key


def file_of(paths: DataPaths, table: Table, partition: str, run_id: str) -> Path:
    """Return the path of a partition's file. If each run adds a file, return the file of the run.

    Raises:
        TypeError: If the table has no files.
    """
    path = table.file_of(paths, partition, run_id)
    if path is None:
        raise TypeError(f"the table {table.name} has no files")
    return path


def read_latest_run(paths: DataPaths, table: str, partition: str) -> Entry:
    """Return the entry of the latest rows of a partition.

    Raises:
        DataError: If there are no rows.
        DamagedError: If a file has no intact line. The latest entry is then unknown, because the damaged line may be
            the latest.
    """
    if not TABLES[table].append_only:
        return _read_writing_run(paths, TABLES[table], partition)
    entries = {entry.file(paths): entry for entry in read_ledger(paths).list_entries(table, partition)}
    files = set(paths.run_file(table, partition, "any").parent.glob("*.parquet"))
    unexplained = sorted(files - entries.keys())
    if unexplained:
        raise DamagedError(_format_unexplained_file(unexplained[0]))
    if not files:
        raise DataError(_format_missing_rows(table, partition))
    return max((entries[file] for file in files), key=lambda entry: entry.line_number)


def _read_writing_run(paths: DataPaths, table: Table, partition: str) -> Entry:
    """Return the entry of the partition's file, for a table whose file every run replaces."""
    file = file_of(paths, table, partition, "")
    if not file.exists():
        raise DataError(_format_missing_rows(table.name, partition))
    entry = find_writing_run(paths, table, partition)
    if entry is None:
        raise DamagedError(_format_unexplained_file(file))
    return entry


def _format_missing_rows(table: str, partition: str) -> str:
    return (
        f"there are no {table} of {partition} yet. Run the audit first: corpus-audit audit, or in the UI the asset "
        f"{table} with all its upstream assets."
    )


def _format_unexplained_file(file: Path) -> str:
    return f"the ledger has no intact line for {file}. To see what is damaged: corpus-audit doctor"


def find_writing_run(paths: DataPaths, table: Table, partition: str) -> Entry | None:
    """Return the ledger entry of the run that wrote the partition's current file.

    Args:
        paths: The data folder.
        table: A table with one file per partition, which every run replaces.
        partition: The partition.

    Returns:
        The entry, or None if the file is missing or no entry has its sha256.
    """
    path = file_of(paths, table, partition, "")
    if not path.exists():
        return None
    digest = cached_sha256(path)
    for entry in reversed(read_ledger(paths).list_entries(table.name, partition)):
        if entry.file_sha256 == digest:
            return entry
    return None


def has_entries(paths: DataPaths, table: Table, partition_key: str | Pair) -> bool:
    """Return True if any run wrote rows of a partition."""
    return bool(read_ledger(paths).list_entries(table.name, partition_of(partition_key)))


def is_latest_file_whole(paths: DataPaths, table: str, partition: str) -> bool:
    """Return True if the latest file of a partition is intact.

    The file must exist and have the sha256 of the partition's last entry. Without entries, no file may exist, because
    nothing would explain it.
    """
    entries = read_ledger(paths).list_entries(table, partition)
    if not entries:
        return not _has_files(paths, TABLES[table], partition)
    file = entries[-1].file(paths)
    if file is None:
        return False
    try:
        return cached_sha256(file) == entries[-1].file_sha256
    except OSError:
        return False


def _has_files(paths: DataPaths, table: Table, partition: str) -> bool:
    file = table.file_of(paths, partition, "any")
    if file is None:
        return False
    pattern = "*.parquet" if table.append_only else file.name
    return any(file.parent.glob(pattern))
