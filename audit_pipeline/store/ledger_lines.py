"""The format of a line of the ledger.

A line is ``{"digest": …, "previous": …, "table": …, "partition": …, OTHER FIELDS}``. ``previous`` is the digest of the
line before. ``digest`` is the sha256 of ``previous`` and of the bytes of all fields that follow. So a line that was
changed, removed, inserted or moved is detected. A forgotten line keeps ``digest`` and ``previous`` only.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

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
        previous: The digest of the line before, or empty if the line is corrupt beyond parsing.
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
    # Not splitlines: a corrupt line may hold a carriage return.
    return content.split(b"\n")[:-1]
