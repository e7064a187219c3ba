"""Audited texts against a list of what a corpus holds: members by identity, where the corpus itself is not at hand.

What belongs here: the identities of a text, normalising urls, and streaming a list past them. What does not: searching
a corpus for passages (search.py), and which files can be read (fetch/).

A text is known by its bytes in UTF-8 (their SHA-256, their SHA-1, and the SHA-1 that git gives a file of them) and by
its url. So a list of files identifies whole files, and no part of one. The identities of the texts are kept, those of
the list are read once and forgotten: memory depends on the texts alone. Whole identities are compared, not parts of
them, so that nothing matches by chance.

Urls are compared after these steps: http and https are one scheme; host in lower case, without `www.` and without the
ports 80 and 443; no fragment; no slashes at the end of the path; no empty query; characters beyond printable ASCII
percent-encoded (UTF-8), percent-encoded letters, digits and ``-._~`` decoded, other escapes in upper case. The order of
a query's parts, other slashes, and hosts that are written in Unicode or in Punycode stay as they are.
"""

from __future__ import annotations

import codecs
import hashlib
import itertools
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.errors import DataError
from audit_pipeline.fetch.file_bytes import LINE_LIMIT, open_bytes, refuse_utf16
from audit_pipeline.fetch.formats import open_rows
from audit_pipeline.fetch.rows import UnreadableFileError
from audit_pipeline.fetch.stream import RowStream

IdentityKind = Literal["sha256", "sha1", "git sha1", "url"]
"""Which of a text's identities the list holds, the surest first."""

_BATCH = 1 << 20
"""Rows of a list that are looked at together, at most."""
_BLOCK = 16 << 20
"""Bytes of a list of lines that are looked at together."""
_SHOWN = 80
"""Characters of a row that is no identity."""
_PREFIX = r"^(?:sha256:|sha1:|swh:1:cnt:)"
_URL = r"(?i)^https?://(?P<host>[^/?#]+?)(?::80|:443)?(?P<path>(?:/[^?#]*?)??)/*(?P<query>(?:\?[^#]+)?)\??(?:#.*)?$"
_IS_URL = "(?i)^https?://[^/?#]"
_ENCODED = re.compile("%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset(string.ascii_letters + string.digits + "-._~")

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class IdentityMatches:
    """Of every text in order, which of its identities the list holds, None: none.

    ``ids_read``: rows of the list that are an identity; ``unusable``: rows that are none, with the ``first_unusable``.
    """

    kinds: tuple[IdentityKind | None, ...]
    ids_read: int
    unusable: int
    first_unusable: str | None


def match_identities(
    texts: Sequence[str], urls: Sequence[str | None], ids: Path, column: str | None = None
) -> IdentityMatches:
    """Look every text up in the list ``ids``: a file with an identity a row, in any format that is read here.

    An identity is 64 hexadecimal digits (SHA-256), 40 (SHA-1, plain or git's; ``sha1:``, ``sha256:`` and
    ``swh:1:cnt:`` may precede) or a url with http or https. ``urls``: of every text, None where it has none. ``column``
    holds the identities where the file has several. Raises DataError where the list cannot be read to its end, has no
    such column, or holds no identity.
    """
    identities = [_Identities(kind, texts, urls) for kind in get_args(IdentityKind)]
    ids_read = unusable = 0
    first: str | None = None
    for batch, unreadable in _read_batches(open_rows(ids, unpacked_limit=None), column):
        found, others = _split_by_form(batch)
        for identity, values in itertools.product(identities, found):
            identity.look_up(values)
        if len(others) and first is None:
            first = others[0].as_py()[:_SHOWN]
        ids_read += len(batch) - len(others)
        unusable += len(others) + unreadable
    if not ids_read:
        what = f"; its first row: {first!r}" if first is not None else ""
        raise DataError(f"{ids}: no row is a url, a SHA-1 or a SHA-256{what}; give a file with one of these a row")
    return IdentityMatches(tuple(_choose_kinds(identities, len(texts))), ids_read, unusable, first)


class _Identities:
    """The identities of one kind of all texts, and which of them the list holds."""

    def __init__(self, kind: IdentityKind, texts: Sequence[str], urls: Sequence[str | None]) -> None:
        self.kind = kind
        if kind == "url":
            values = normalise_urls(pa.array(urls, pa.large_string()))
        else:
            values = pa.array([compute_digest(text, kind) for text in texts], pa.large_string())
        encoded = values.dictionary_encode()
        self._distinct: pa.Array = encoded.dictionary
        self._place_of_text = encoded.indices
        self._found = np.zeros(len(self._distinct), np.bool_)
        self._length = {"sha256": 64, "sha1": 40, "git sha1": 40, "url": None}[kind]

    def look_up(self, values: _Values) -> None:
        """Note which of the identities are among ``values``."""
        if values.length == self._length and len(values) and len(self._distinct):
            self._found |= pc.is_in(self._distinct, value_set=values.array).to_numpy(zero_copy_only=False)

    def are_found(self) -> Flags:
        """Of every text whether its identity is in the list."""
        found = pc.take(pa.array(self._found), self._place_of_text)
        flags: Flags = pc.fill_null(found, fill_value=False).to_numpy(zero_copy_only=False)
        return flags


@dataclass(frozen=True)
class _Values:
    """Identities of one form: hexadecimal ones of ``length`` digits, or (None) urls."""

    length: int | None
    array: pa.Array

    def __len__(self) -> int:
        return len(self.array)


def compute_digest(text: str, kind: IdentityKind) -> str:
    """A text's identity of this kind, in hexadecimal digits; raises ValueError where it is no digest."""
    content = text.encode()
    if kind == "sha256":
        return hashlib.sha256(content).hexdigest()
    if kind == "url":
        raise ValueError("a url is no digest of a text")
    # Identities that others have chosen; nothing is kept safe by them.
    header = b"blob %d\0" % len(content) if kind == "git sha1" else b""
    return hashlib.sha1(header + content, usedforsecurity=False).hexdigest()


def normalise_urls(urls: pa.Array) -> pa.Array:
    """The urls as they are compared; null for what is none. See the docstring of this module."""
    urls = pc.utf8_trim_whitespace(urls)
    odd = pc.fill_null(pc.match_substring_regex(urls, "[^!-$&-~]"), fill_value=False)
    if pc.any(odd).as_py():
        spelt = [normalise_escapes(url) for url in urls.filter(odd).to_pylist()]
        urls = pc.replace_with_mask(urls, odd, pa.array(spelt, urls.type))
    parts = pc.extract_regex(urls, _URL)
    host, path, query = (pc.struct_field(parts, name) for name in ("host", "path", "query"))
    host = pc.replace_substring_regex(pc.ascii_lower(host), r"^www\.", "")
    return pc.binary_join_element_wise(host, path, query, pa.scalar("", urls.type))


def normalise_escapes(url: str) -> str:
    """A url with what must be percent-encoded so, and nothing that need not be."""
    url = quote(url, safe=string.punctuation)
    return _ENCODED.sub(lambda match: _decode_unreserved(match.group()), url)


def _decode_unreserved(escape: str) -> str:
    character = chr(int(escape[1:], 16))
    return character if character in _UNRESERVED else escape.upper()


def _split_by_form(batch: pa.Array) -> tuple[list[_Values], pa.Array]:
    """The identities of a batch by their form, and the rows that are none."""
    digits = pc.replace_substring_regex(pc.ascii_lower(batch), _PREFIX, "")
    forms = {length: pc.match_substring_regex(digits, f"^[0-9a-f]{{{length}}}$") for length in (64, 40)}
    is_url = pc.match_substring_regex(batch, _IS_URL)
    values = [_Values(length, digits.filter(is_digest)) for length, is_digest in forms.items()]
    values.append(_Values(None, normalise_urls(batch.filter(is_url))))
    return values, batch.filter(pc.invert(pc.or_(is_url, pc.or_(*forms.values()))))


def _choose_kinds(identities: Sequence[_Identities], count: int) -> list[IdentityKind | None]:
    kinds: list[IdentityKind | None] = [None] * count
    for identity in reversed(identities):
        for place in np.flatnonzero(identity.are_found()):
            kinds[place] = identity.kind
    return kinds


def _read_batches(rows: RowStream, column: str | None) -> Iterator[tuple[pa.Array, int]]:
    """The values of a list that are text, trimmed, many at a time, and how many of the rows between are none."""
    batches = _read_lines(rows) if rows.file.kind == ".txt" else _read_column(rows, column)
    for values, unreadable in batches:
        trimmed = pc.utf8_trim_whitespace(values)
        yield trimmed.filter(pc.greater(pc.binary_length(trimmed), 0)), unreadable


def _read_lines(rows: RowStream) -> Iterator[tuple[pa.Array, int]]:
    """The lines of a file of text, block by block."""
    kept, empty = b"", True
    with open_bytes(rows.file) as binary:
        while block := binary.read(_BLOCK):
            if empty:
                refuse_utf16(rows.file, block)
                block, empty = block.removeprefix(codecs.BOM_UTF8), False
            whole, end, rest = (kept + block).rpartition(b"\n")
            kept = rest
            if len(kept) > LINE_LIMIT:
                raise UnreadableFileError(rows.file.path, "has a line of more than 64 MiB: is this a list of ids?")
            yield _split_lines(whole + end)
    if empty:
        raise UnreadableFileError(rows.file.path, "the file holds no rows")
    yield _split_lines(kept)


def _split_lines(block: bytes) -> tuple[pa.Array, int]:
    """The lines of a block, their ends included, and how many of them are not in UTF-8."""
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
    offsets = np.concatenate([[0], ends, [len(block)]]).astype(np.int64)
    lines = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(block)]
    )
    try:
        return lines.cast(pa.large_string()), 0
    except pa.ArrowInvalid:
        decoded = [_decode_or_none(line) for line in lines.to_pylist()]
        return pa.array([line for line in decoded if line is not None], pa.large_string()), decoded.count(None)


def _decode_or_none(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def _read_column(rows: RowStream, column: str | None) -> Iterator[tuple[pa.Array, int]]:
    """The cells of a column that are text."""
    path, known = rows.file.path, rows.columns
    chosen = None if known is None else _choose_column(path, known, column)
    pending: list[pa.Array] = []
    waiting = unreadable = 0
    found = False
    for piece in rows.pieces():
        if chosen is None:
            chosen = column or _choose_column(path, list(piece.columns), None)
        found = found or chosen in piece.columns
        values = _to_strings(piece.columns.get(chosen, []))
        pending.append(values)
        waiting += len(values)
        unreadable += len(piece) - len(values) + len(piece.skipped)
        if waiting >= _BATCH:
            yield pa.concat_arrays(pending), unreadable
            pending, waiting, unreadable = [], 0, 0
    if not found:
        raise UnreadableFileError(path, f"no row has a column '{chosen}'")
    if pending:
        yield pa.concat_arrays(pending), unreadable


def _choose_column(path: Path, columns: Sequence[str], column: str | None) -> str:
    if column is None and len(columns) == 1:
        return columns[0]
    if column is not None and column in columns:
        return column
    problem = "say which column holds the ids" if column is None else f"no column '{column}'"
    raise UnreadableFileError(path, f"{problem}; the columns are: {', '.join(columns) or 'none'}")


def _to_strings(cells: Any) -> pa.Array:
    """The cells that are strings."""
    if isinstance(cells, pa.Array):
        is_text = pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type)
        return cells.cast(pa.large_string()).drop_null() if is_text else pa.array([], pa.large_string())
    return pa.array([cell for cell in cells if isinstance(cell, str)], pa.large_string())
