"""The ledger of a data folder: one line of JSON for every file that a run wrote, and for every pair that it gave up.

A line is ``{"digest": …, "previous": …, "table": …, "partition": …, OTHER FIELDS}``: ``digest`` is the sha256 of
``previous`` and the bytes of all that follows, ``previous`` the digest of the line before. So a line that was changed,
removed, put in or moved is found. The line is written first, then its file moves to its place: a run that is killed
between the two leaves a line without a file, never a file without a line. A forgotten line keeps its digest and its
link, and nothing else. Reading compares every line with its digest; the fields of a line are parsed when asked for.

All lines are in one file. Writers take turns by a lock of the file system.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple, TypedDict, Unpack

from audit_pipeline.errors import OTHER_VERSION, DataError
from audit_pipeline.store.files import move_into_place, write_atomically
from audit_pipeline.store.integrity import DamagedError, FileIdentity, cached_sha256, find_file_identity
from audit_pipeline.store.locks import hold_lock
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.versions import package_versions
from audit_pipeline.tables import OUTCOMES, TABLES, Pair, PairStatus
from audit_pipeline.tables.table import Table

START = "0" * 64
"""What the first line names as the digest of the line before it."""

MAX_REASON = 500
_LOCK_SECONDS = 600.0
_LINE = re.compile(
    rb'\{"digest": "([0-9a-f]{64})", "previous": "([0-9a-f]{64})"'
    rb'(?:, ("table": "[^"]*", "partition": "(?:[^"\\]|\\.)*").*)?\}'
)


@dataclass(frozen=True)
class LineageStep:
    """What is known of a step when it starts."""

    run_id: str
    asset_key: str
    code_version: str
    started_at: datetime

    @classmethod
    def now(cls, run_id: str, asset_key: str, code_version: str) -> LineageStep:
        return cls(run_id, asset_key, code_version, datetime.now(UTC))


class RowOrigin(TypedDict, total=False):
    """What rows were computed with; ``settings`` are the options that a command was given."""

    model_fingerprint: str | None
    tokenizer_fingerprint: str | None
    benchmark_digest: str | None
    settings: Mapping[str, object] | None


@dataclass(frozen=True)
class Entry:
    """What a line says of the rows that a run wrote to a partition of a table.

    ``upstream``: the data versions of what they were made of, by table/partition or the input's name. ``rows`` and
    ``file_sha256`` are None where the rows are in no file of their own. ``place``: the line's place in the ledger.
    """

    table: str
    partition: str
    run_id: str
    asset_key: str
    code_version: str
    data_version: str
    started_at: datetime
    finished_at: datetime
    upstream: Mapping[str, str]
    packages: Mapping[str, str]
    model_fingerprint: str | None = None
    tokenizer_fingerprint: str | None = None
    benchmark_digest: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    rows: int | None = None
    file_sha256: str | None = None
    digest: str = ""
    previous: str = ""
    place: int = 0

    def file(self, paths: DataPaths) -> Path | None:
        """The file that the line explains; None where the rows are in no file of their own."""
        table = TABLES.get(self.table)
        return None if table is None else table.file_of(paths, self.partition, self.run_id)


@dataclass(frozen=True)
class PairOutcome:
    """Why a run gave a pair up, and at which stage; ``at`` is in UTC.

    Of the states of a pair (tables/lineage.py) it is ``not_applicable`` where the benchmark was made for other
    models, and ``failed`` after any other error. A pair that was done has no outcome: its findings say so.
    """

    pair: Pair
    stage: str
    status: PairStatus
    reason: str
    run_id: str
    at: datetime


class Line(NamedTuple):
    """A line as it was read.

    ``content``: the bytes of its fields; empty where it is forgotten, None where it is not as it was written.
    ``names``: those of them that name table and partition.
    """

    digest: str
    previous: str
    content: bytes | None
    names: bytes = b""

    @property
    def fields(self) -> Mapping[str, Any] | None:
        """Its fields by name; None where it is not as it was written."""
        return None if self.content is None else json.loads(b"{%b}" % self.content)

    @property
    def is_outcome(self) -> bool:
        return self.names.startswith(_OF_OUTCOMES)


@dataclass
class Ledger:
    """What all lines of a data folder say, in their order; ``problems`` names the lines that are not as they were
    written, or not where they were written."""

    lines: list[Line] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _places: dict[bytes, list[int]] = field(default_factory=dict)
    _entries: dict[int, Entry] = field(default_factory=dict)
    _outcomes: list[PairOutcome] = field(default_factory=list)
    _outcome_lines: list[Line] = field(default_factory=list)

    @property
    def head(self) -> str:
        """The digest of the last line; START where there is none."""
        return self.lines[-1].digest if self.lines else START

    @property
    def forgotten(self) -> int:
        """How many lines were forgotten."""
        return sum(line.content == b"" for line in self.lines)

    @property
    def entries(self) -> list[Entry]:
        """Every entry, in the order in which they were written."""
        return [
            self._read_entry(place) for place, line in enumerate(self.lines, 1) if line.names and not line.is_outcome
        ]

    @property
    def outcomes(self) -> list[PairOutcome]:
        """Every outcome, in the order in which they were written."""
        for line in self._outcome_lines[len(self._outcomes) :]:
            self._outcomes.append(_outcome_from_fields(line.fields or {}))
        return self._outcomes

    def list_entries(self, table: str, partition: str) -> Sequence[Entry]:
        """The entries of a partition, in the order in which they were written."""
        return [self._read_entry(place) for place in self._places.get(_format_names(table, partition), ())]

    def extend(self, lines: Iterable[Line]) -> None:
        """Take in lines that come after those that are there."""
        before = self.lines[-1] if self.lines else Line(START, "", b"")
        for place, line in enumerate(lines, len(self.lines) + 1):
            self.lines.append(line)
            if line.content is None:
                self.problems.append(f"line {place} of the ledger is not as it was written")
            elif line.previous != before.digest and before.content is not None:
                self.problems.append(
                    f"line {place} of the ledger does not follow the line before it: a line was removed, put in "
                    "or moved"
                )
            if line.names:
                self._places.setdefault(line.names, []).append(place)
            if line.is_outcome:
                self._outcome_lines.append(line)
            before = line

    def _read_entry(self, place: int) -> Entry:
        if place not in self._entries:
            line = self.lines[place - 1]
            fields = dict(line.fields or {})
            for name in ("started_at", "finished_at"):
                fields[name] = datetime.fromisoformat(fields[name])
            self._entries[place] = Entry(**fields, digest=line.digest, previous=line.previous, place=place)
        return self._entries[place]


def parse_lines(content: bytes) -> list[Line]:
    """The whole lines of a ledger file; a torn last one, of a writer that was killed, is left out."""
    return [_parse_and_verify_line(line) for line in content.split(b"\n")[:-1]]


def format_line(previous: str, fields: Mapping[str, Any]) -> bytes:
    """The line of these fields after the line whose digest is ``previous``; times are written in ISO format."""
    named = {"table": fields["table"], "partition": fields["partition"], **fields}
    content = json.dumps(named, allow_nan=False, default=datetime.isoformat)[1:-1].encode()
    digest = hashlib.sha256(previous.encode() + content).hexdigest()
    return b'{"digest": "%b", "previous": "%b", %b}\n' % (digest.encode(), previous.encode(), content)


def _format_names(table: str, partition: str) -> bytes:
    return json.dumps({"table": table, "partition": partition})[1:-1].encode()


_OF_OUTCOMES = _format_names(OUTCOMES.name, "")[:-1]
"""How the names of the line of an outcome begin."""


def _parse_and_verify_line(line: bytes) -> Line:
    match = _LINE.fullmatch(line)
    if match is None:
        return Line(hashlib.sha256(line).hexdigest(), "", None)
    digest, previous, names = match.groups()
    if names is None:
        return Line(digest.decode(), previous.decode(), b"")
    content = line[match.start(3) : -1]
    if hashlib.sha256(previous + content).hexdigest().encode() != digest:
        return Line(digest.decode(), previous.decode(), None)
    return Line(digest.decode(), previous.decode(), content, names)


def _outcome_from_fields(fields: Mapping[str, Any]) -> PairOutcome:
    benchmark, _, model = fields["partition"].partition("|")
    at = datetime.fromisoformat(fields["at"])
    return PairOutcome(
        Pair(benchmark, model), fields["stage"], fields["status"], fields["reason"], fields["run_id"], at
    )


class _Reader:
    """The lines of one ledger file as this process has read them.

    Lines that another process appends are read on. A file that was rewritten is read from the start.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._identity: FileIdentity | None = None
        self._consumed_bytes = 0
        self._ledger = Ledger()
        self._lock = threading.Lock()

    def read(self) -> Ledger:
        with self._lock:
            identity = find_file_identity(self._file)
            if identity is None:
                self._reset()
            elif identity != self._identity:
                if not self._is_extension(identity):
                    self._reset()
                # After an error the next call reads from the start.
                self._identity = None
                self._read_appended_lines()
                self._identity = identity
            return self._ledger

    def _reset(self) -> None:
        self._identity = None
        self._consumed_bytes = 0
        self._ledger = Ledger()

    def _is_extension(self, identity: FileIdentity) -> bool:
        if self._identity is None:
            return False
        size, _, inode = identity
        known_size, _, known_inode = self._identity
        return inode == known_inode and size > known_size

    def _read_appended_lines(self) -> None:
        with self._file.open("rb") as opened:
            opened.seek(self._consumed_bytes)
            content = opened.read()
        self._consumed_bytes += content.rfind(b"\n") + 1
        self._ledger.extend(parse_lines(content))


_readers: dict[Path, _Reader] = {}


def read_ledger(paths: DataPaths) -> Ledger:
    """All lines of a data folder, as they are now. Each is compared with its digest; see ``problems``.

    Raises DataError where the data folder is of another layout.
    """
    _require_layout(paths)
    return _readers.setdefault(paths.ledger_file, _Reader(paths.ledger_file)).read()


def _require_layout(paths: DataPaths) -> None:
    if not paths.ledger.exists() and (paths.root / "lineage").exists():
        raise DataError(f"{paths.root} was {OTHER_VERSION}")


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
    """Append the line of what ``step`` has made of a partition, then move its file into place.

    ``written``: the finished temporary file and its place; None where the rows are in no file of their own.
    ``upstream``: the data versions of its inputs, by input. Where the file cannot be moved, the line is taken back.
    Raises DataError where another process keeps the ledger.
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
    _append(paths, {name: value for name, value in fields.items() if value is not None}, written)


def record_outcome(
    paths: DataPaths, pair: Pair, stage: str, status: PairStatus, reason: str, run_id: str
) -> PairOutcome:
    """Append why ``run_id`` could not do the pair, in one line of at most 500 characters; returns what is on record.

    The first outcome of a run stays: the later stages, which merely follow, add none.
    """
    if (first := find_run_outcome(paths, pair, run_id)) is not None:
        return first
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
    return _outcome_from_fields(fields)


def find_run_outcome(paths: DataPaths, pair: Pair, run_id: str) -> PairOutcome | None:
    """The outcome that a run recorded for the pair; None where it recorded none."""
    outcomes = read_ledger(paths).outcomes
    return next((outcome for outcome in outcomes if (outcome.pair, outcome.run_id) == (pair, run_id)), None)


def _clean_reason(reason: str) -> str:
    """``reason`` without line breaks and without characters that a terminal would obey or Parquet cannot hold."""
    flat = " ".join(reason.split()) or "no reason was given"
    printable = "".join(character if character.isprintable() else "\ufffd" for character in flat)
    return printable if len(printable) <= MAX_REASON else printable[: MAX_REASON - 1] + "…"


def erase_lines(paths: DataPaths, digests: Collection[str]) -> None:
    """Empty lines; their digests and links stay. Raises DataError where another process keeps the ledger."""
    with _hold(paths):
        if not paths.ledger_file.exists():
            return
        content = paths.ledger_file.read_bytes()
        remaining = _erase_lines(content, lambda line: line.digest not in digests)
        if remaining != content:
            with write_atomically(paths.ledger_file) as temporary:
                temporary.write_bytes(remaining)


def copy_ledger(paths: DataPaths, to: DataPaths, is_kept: Callable[[Mapping[str, Any]], bool]) -> None:
    """Write the ledger of another data folder: the lines whose fields are kept as they are, the others emptied."""
    content = paths.ledger_file.read_bytes() if paths.ledger_file.exists() else b""
    lines = _erase_lines(content, lambda line: line.fields is None or is_kept(line.fields))
    with write_atomically(to.ledger_file) as temporary:
        temporary.write_bytes(lines)


def _erase_lines(content: bytes, is_kept: Callable[[Line], bool]) -> bytes:
    """The lines of a ledger file, those that are not kept without their fields."""
    link = b'{"digest": "%b", "previous": "%b"}\n'
    lines = zip(parse_lines(content), content.splitlines(keepends=True), strict=False)
    return b"".join(
        raw if is_kept(line) else link % (line.digest.encode(), line.previous.encode()) for line, raw in lines
    )


def _hold(paths: DataPaths) -> AbstractContextManager[None]:
    return hold_lock(paths.ledger / "ledger.lock", _LOCK_SECONDS)


def _append(paths: DataPaths, fields: Mapping[str, Any], written: tuple[Path, Path] | None = None) -> None:
    _require_layout(paths)
    with _hold(paths):
        _append_to_file(paths.ledger_file, fields, written)


def _append_to_file(file: Path, fields: Mapping[str, Any], written: tuple[Path, Path] | None) -> None:
    with file.open("ab+") as opened:
        previous, size = _read_end(opened)
        opened.truncate(size)
        try:
            opened.write(format_line(previous, fields))
            opened.flush()
            os.fsync(opened.fileno())
            if written is not None:
                move_into_place(*written)
        except BaseException:
            # Where the file took its place before the error, the line is its only explanation.
            if written is None or written[0].exists():
                opened.truncate(size)
            raise


def _read_end(opened: IO[bytes]) -> tuple[str, int]:
    """The digest of the last whole line of the open ledger file, and where that line ends; only its end is read."""
    if opened.seek(0, os.SEEK_END) == 0:
        return START, 0
    with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        end = content.rfind(b"\n")
        begin = content.rfind(b"\n", 0, max(end, 0)) + 1
        return (_parse_and_verify_line(content[begin:end]).digest, end + 1) if end >= 0 else (START, 0)


def partition_of(partition_key: str | Pair) -> str:
    """The name of a partition."""
    return partition_key.partition if isinstance(partition_key, Pair) else partition_key


def file_of(paths: DataPaths, table: Table, partition: str, run_id: str) -> Path:
    """The file of a partition, and of a run; raises TypeError where rows are in no file of their own."""
    path = table.file_of(paths, partition, run_id)
    if path is None:
        raise TypeError(f"{table.name} have no file of their own")
    return path


def read_latest_run(paths: DataPaths, table: str, partition: str) -> Entry:
    """Return the entry of the rows that were written last for a partition of a table.

    Raises:
        DataError: If there are no rows.
        DamagedError: If a file is there that no whole line explains: a damaged line may be the last.
    """
    if not TABLES[table].append_only:
        return _read_writing_run(paths, TABLES[table], partition)
    entries = {entry.file(paths): entry for entry in read_ledger(paths).list_entries(table, partition)}
    files = set(paths.run_file(table, partition, "any").parent.glob("*.parquet"))
    if unexplained := sorted(files - entries.keys()):
        raise DamagedError(f"no whole line of the ledger explains {unexplained[0]}: corpus-audit doctor says more")
    if not files:
        raise DataError(_format_missing_rows(table, partition))
    return max((entries[file] for file in files), key=lambda entry: entry.place)


def _format_missing_rows(table: str, partition: str) -> str:
    return f"there are no {table} of {partition} yet: audit it first (in the UI, select {table} and what they need too)"


def has_entries(paths: DataPaths, table: Table, partition_key: str | Pair) -> bool:
    """Whether any run wrote rows of a partition."""
    return bool(read_ledger(paths).list_entries(table.name, partition_of(partition_key)))


def find_writing_run(paths: DataPaths, table: Table, partition: str) -> Entry | None:
    """The entry of the file of a table that every run writes anew; None where there is no file, or no line names it."""
    path = file_of(paths, table, partition, "")
    if not path.exists():
        return None
    digest = cached_sha256(path)
    entries = reversed(read_ledger(paths).list_entries(table.name, partition))
    return next((entry for entry in entries if entry.file_sha256 == digest), None)


def _read_writing_run(paths: DataPaths, table: Table, partition: str) -> Entry:
    """Return the entry of the file of a table whose file every run writes again. Raises as `read_latest_run` does."""
    file = file_of(paths, table, partition, "")
    if not file.exists():
        raise DataError(_format_missing_rows(table.name, partition))
    entry = find_writing_run(paths, table, partition)
    if entry is None:
        raise DamagedError(f"no whole line of the ledger explains {file}: corpus-audit doctor says more")
    return entry


def is_latest_file_whole(paths: DataPaths, table: str, partition: str) -> bool:
    """Whether the file that the last entry of a partition explains is there, as it was written; True without entries.

    A file that a run explained before it died counts as one that is not whole, as one that no line explains.
    """
    if entries := read_ledger(paths).list_entries(table, partition):
        file = entries[-1].file(paths)
        with suppress(OSError):
            return file is not None and cached_sha256(file) == entries[-1].file_sha256
        return False
    file = TABLES[table].file_of(paths, partition, "any")
    return file is None or not any(file.parent.glob("*.parquet" if TABLES[table].append_only else file.name))
