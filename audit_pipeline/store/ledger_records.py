"""The lines of the ledger, and the records in them: entries of written rows and outcomes of failed pairs.

A line is ``{"digest": …, "previous": …, "table": …, "partition": …, OTHER FIELDS}``. ``previous`` is the digest of the
previous line. ``digest`` is the sha256 of ``previous`` and of the bytes of all fields that follow. So a line that was
changed, removed, inserted or moved is detected. The command `forget` erases all fields except ``digest`` and
``previous``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import OUTCOMES, TABLES, Pair, PairStatus

START = "0" * 64
"""The value of ``previous`` in the first line."""

_LINE = re.compile(
    rb'\{"digest": "([0-9a-f]{64})", "previous": "([0-9a-f]{64})"'
    rb'(?:, ("table": "[^"]*", "partition": "(?:[^"\\]|\\.)*").*)?\}'
)


class Line(NamedTuple):
    """A line of the ledger, after its digest was checked.

    Attributes:
        digest: The digest in the line, or the sha256 of the whole line if it is corrupt beyond parsing.
        previous: The digest of the previous line, or empty if the line is corrupt beyond parsing.
        content: The bytes of the fields. Empty if the line is forgotten, None if it is corrupt.
        key: The bytes of the fields ``table`` and ``partition``. Empty if ``content`` is empty or None.
    """

    digest: str
    previous: str
    content: bytes | None
    key: bytes = b""

    @property
    def is_damaged(self) -> bool:
        """Return True if the line is corrupt."""
        return self.content is None

    @property
    def is_forgotten(self) -> bool:
        """Return True if the fields were erased."""
        return self.content == b""

    @property
    def fields(self) -> Mapping[str, Any] | None:
        """Return the fields by name, or None if the line is corrupt."""
        return None if self.content is None else json.loads(b"{%b}" % self.content)


def format_line(previous: str, fields: Mapping[str, Any]) -> bytes:
    """Format the line that follows the line with the digest ``previous``. Times are written in ISO format."""
    ordered = {"table": fields["table"], "partition": fields["partition"], **fields}
    content = json.dumps(ordered, allow_nan=False, default=datetime.isoformat)[1:-1].encode()
    digest = hashlib.sha256(previous.encode() + content).hexdigest()
    return b'{"digest": "%b", "previous": "%b", %b}\n' % (digest.encode(), previous.encode(), content)


def format_key(table: str, partition: str) -> bytes:
    """Format the fields ``table`` and ``partition`` as they are in a line."""
    return json.dumps({"table": table, "partition": partition})[1:-1].encode()


def parse_lines(content: bytes) -> list[Line]:
    """Parse all complete lines. A killed writer can leave an incomplete last line, which is skipped."""
    return [parse_line(line) for line in _split_lines(content)]


def parse_line(line: bytes) -> Line:
    """Parse a line and compare it with its digest."""
    match = _LINE.fullmatch(line)
    if match is None:
        return Line(hashlib.sha256(line).hexdigest(), "", None)
    digest, previous, key = match.groups()
    if key is None:
        return Line(digest.decode(), previous.decode(), b"")
    content = line[match.start(3) : -1]
    if hashlib.sha256(previous + content).hexdigest().encode() != digest:
        return Line(digest.decode(), previous.decode(), None)
    return Line(digest.decode(), previous.decode(), content, key)


def erase_fields(content: bytes, is_erased: Callable[[Line], bool]) -> bytes:
    """Return all complete lines of ``content``, without the fields of the lines for which ``is_erased`` is true."""
    remaining: list[bytes] = []
    for raw_line in _split_lines(content):
        line = parse_line(raw_line)
        if is_erased(line):
            remaining.append(b'{"digest": "%b", "previous": "%b"}\n' % (line.digest.encode(), line.previous.encode()))
        else:
            remaining.append(raw_line + b"\n")
    return b"".join(remaining)


def _split_lines(content: bytes) -> list[bytes]:
    # The method splitlines would also split at a carriage return, which a corrupt line may contain.
    return content.split(b"\n")[:-1]


_OUTCOME_KEY = format_key(OUTCOMES.name, "")[:-1]
"""The start of the key of every outcome's line."""


@dataclass(frozen=True)
class Entry:
    """The record of the rows that a run wrote to a partition of a table.

    Attributes:
        table: The name of the table.
        partition: The name of the partition.
        run_id: The id of the run.
        asset_key: The name of the asset.
        code_version: The version of the asset's code.
        data_version: The version of the rows, usually a digest of their content.
        started_at: The start of the step, in UTC.
        finished_at: The time when the line was written, in UTC.
        upstream: The data versions of the inputs, by table/partition or by the name of the input.
        packages: The versions of the installed packages that can change a number.
        model_fingerprint: The fingerprint of the model, if there is one.
        tokenizer_fingerprint: The fingerprint of the tokenizer, if there is one.
        benchmark_digest: The digest of the benchmark's examples, if there is one.
        settings: The options of the command.
        rows: The number of rows, or None if the rows are not in a file of this partition.
        file_sha256: The sha256 of the file, or None if there is no file.
        digest: The digest of the line.
        previous: The digest of the previous line.
        line_number: The number of the line in the ledger, from 1.
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
    line_number: int = 0

    def file(self, paths: DataPaths) -> Path | None:
        """Return the path of the file, or None if the table has no files."""
        table = TABLES.get(self.table)
        return None if table is None else table.file_of(paths, self.partition, self.run_id)


@dataclass(frozen=True)
class PairOutcome:
    """The reason why a run could not finish a pair. A finished pair has findings and no outcome.

    Attributes:
        pair: The benchmark and the model.
        stage: The stage that failed.
        status: ``not_applicable`` if model and benchmark belong to different controls, ``failed`` after another error.
        reason: The message of the error.
        run_id: The id of the run.
        at: The time of the error, in UTC.
    """

    pair: Pair
    stage: str
    status: PairStatus
    reason: str
    run_id: str
    at: datetime


@dataclass
class Ledger:
    """All lines of a data folder.

    Attributes:
        lines: The lines in file order.
        problems: A message for every line that is corrupt or does not follow the line before it.
    """

    lines: list[Line] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    # Line numbers by the key of the line.
    _numbers_by_key: dict[bytes, list[int]] = field(default_factory=dict)
    # Entries that were parsed, by line number.
    _parsed_entries: dict[int, Entry] = field(default_factory=dict)
    _outcome_lines: list[Line] = field(default_factory=list)
    # The outcomes of the first lines of _outcome_lines.
    _parsed_outcomes: list[PairOutcome] = field(default_factory=list)

    @property
    def head(self) -> str:
        """Return the digest of the last line, or START if there are no lines."""
        return self.lines[-1].digest if self.lines else START

    @property
    def forgotten_count(self) -> int:
        """Return the number of forgotten lines."""
        return sum(line.is_forgotten for line in self.lines)

    @property
    def entries(self) -> list[Entry]:
        """Return all entries in file order."""
        entries: list[Entry] = []
        for number, line in enumerate(self.lines, 1):
            if line.key and not _is_outcome(line):
                entries.append(self._get_entry(number))
        return entries

    @property
    def outcomes(self) -> list[PairOutcome]:
        """Return all outcomes in file order."""
        for line in self._outcome_lines[len(self._parsed_outcomes) :]:
            self._parsed_outcomes.append(parse_outcome(line.fields or {}))
        return self._parsed_outcomes

    def list_entries(self, table: str, partition: str) -> Sequence[Entry]:
        """Return the entries of a partition in file order."""
        numbers = self._numbers_by_key.get(format_key(table, partition), ())
        return [self._get_entry(number) for number in numbers]

    def extend(self, lines: Iterable[Line]) -> None:
        """Append lines that follow the known lines, and add a message to ``problems`` for every damaged line."""
        before = self.lines[-1] if self.lines else Line(START, "", b"")
        for number, line in enumerate(lines, len(self.lines) + 1):
            self.lines.append(line)
            if line.is_damaged:
                self.problems.append(f"line {number} of the ledger is corrupt: its digest does not match its content")
            elif line.previous != before.digest and not before.is_damaged:
                self.problems.append(
                    f"line {number} of the ledger does not follow the line before it: a line was removed, inserted or "
                    "moved"
                )
            if line.key:
                self._numbers_by_key.setdefault(line.key, []).append(number)
            if _is_outcome(line):
                self._outcome_lines.append(line)
            before = line

    def _get_entry(self, number: int) -> Entry:
        entry = self._parsed_entries.get(number)
        if entry is None:
            entry = _parse_entry(self.lines[number - 1], number)
            self._parsed_entries[number] = entry
        return entry


def _is_outcome(line: Line) -> bool:
    return line.key.startswith(_OUTCOME_KEY)


def _parse_entry(line: Line, number: int) -> Entry:
    fields = dict(line.fields or {})
    for name in ("started_at", "finished_at"):
        fields[name] = datetime.fromisoformat(fields[name])
    return Entry(**fields, digest=line.digest, previous=line.previous, line_number=number)


def parse_outcome(fields: Mapping[str, Any]) -> PairOutcome:
    """Build an outcome from the fields of its line."""
    benchmark, _, model = fields["partition"].partition("|")
    return PairOutcome(
        pair=Pair(benchmark, model),
        stage=fields["stage"],
        status=fields["status"],
        reason=fields["reason"],
        run_id=fields["run_id"],
        at=datetime.fromisoformat(fields["at"]),
    )
