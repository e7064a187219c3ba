"""Answers of the web: what a page says in which charset, and the store that keeps every answer.

What belongs here: one answer as text, and the SQLite file that answers are kept in. What does not: asking
(polite_client.py).

The store is ours, and not requests-cache, because it keeps more than answers (when each host was last asked, for pauses
that hold across processes and restarts), never keeps a failure, and is asked before robots.txt and any pause.
"""

from __future__ import annotations

import codecs
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bs4.dammit import EncodingDetector
from charset_normalizer import from_bytes

from audit_pipeline.errors import SourceError
from audit_pipeline.fetch.file_bytes import MEBIBYTE
from audit_pipeline.fetch.retry import format_public_error, redact_passwords

_WIDER_CHARSETS = {"gb2312": "gb18030", "gbk": "gb18030", "iso8859-1": "cp1252", "ascii": "cp1252"}


@dataclass(frozen=True)
class FetchedPage:
    """An answer: ``url`` after redirects, ``content`` decompressed, ``media_type`` in lower case without parameters."""

    url: str
    status: int
    content: bytes
    media_type: str
    fetched_at: datetime
    from_cache: bool
    charset: str | None = None

    def text(self) -> str:
        """The content as text, in the charset of its byte-order mark, its HTTP header, or its own first lines.

        Where none is declared, UTF-8 if that fits, else what charset-normalizer makes of it. Latin-1, which servers
        declare without looking, gives way to UTF-8 that fits. Raises SourceError, naming the page, where it is in
        none of the charsets that it declares.
        """
        if self.content.startswith(codecs.BOM_UTF8):
            declared = ["utf-8-sig"]
        elif self.content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            declared = ["utf-16"]
        else:
            inside = EncodingDetector.find_declared_encoding(self.content, is_html="html" in self.media_type)
            declared = [known for known in map(_resolve_charset, (self.charset, inside)) if known is not None]
        if not declared or declared[0] == "cp1252":
            declared.insert(0, "utf-8")
            guess = from_bytes(self.content[:MEBIBYTE]).best() if len(declared) == 1 else None
            declared += [guess.encoding] if guess is not None else []
        for charset in declared:
            try:
                return self.content.decode(charset)
            except (UnicodeError, LookupError):
                continue
        raise SourceError(f"{redact_passwords(self.url)}: cannot be decoded as {' or '.join(dict.fromkeys(declared))}")


class ResponseStore:
    """Answers by address, and when each host was last asked, in one SQLite file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._readable():
            self._connection = sqlite3.connect(path, timeout=60, check_same_thread=False)
            with self._connection:
                self._connection.execute(
                    "CREATE TABLE IF NOT EXISTS pages (address TEXT PRIMARY KEY, url TEXT, status INTEGER,"
                    " media_type TEXT, charset TEXT, fetched_at TEXT, content BLOB)"
                )
                self._connection.execute("CREATE TABLE IF NOT EXISTS hosts (host TEXT PRIMARY KEY, asked REAL)")

    def close(self) -> None:
        self._connection.close()

    def page(self, address: str, max_age: timedelta | None) -> FetchedPage | None:
        """The kept answer, unless it is older than ``max_age``; raises SourceError where the store is damaged."""
        query = "SELECT url, status, content, media_type, charset, fetched_at FROM pages WHERE address = ?"
        with self._readable():
            row = self._connection.execute(query, (address,)).fetchone()
            if row is None:
                return None
            url, status, packed, media_type, charset, fetched = row
            content, fetched_at = zlib.decompress(packed), datetime.fromisoformat(fetched)
        if max_age is not None and datetime.now(UTC) - fetched_at > max_age:
            return None
        return FetchedPage(url, status, content, media_type, fetched_at, from_cache=True, charset=charset)

    def keep(self, address: str, page: FetchedPage) -> None:
        packed = zlib.compress(page.content)
        values = (address, page.url, page.status, page.media_type, page.charset, page.fetched_at.isoformat(), packed)
        with self._readable(), self._connection:
            self._connection.execute(
                "INSERT OR REPLACE INTO pages (address, url, status, media_type, charset, fetched_at, content)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                values,
            )

    def last_request_time(self, host: str) -> float | None:
        with self._readable():
            row = self._connection.execute("SELECT asked FROM hosts WHERE host = ?", (host,)).fetchone()
        return float(row[0]) if row is not None else None

    def record_request_time(self, host: str, moment: float) -> None:
        with self._readable(), self._connection:
            self._connection.execute("INSERT OR REPLACE INTO hosts (host, asked) VALUES (?, ?)", (host, moment))

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError:
            # A full disk or a lock: nothing is wrong with the file.
            raise
        except (sqlite3.DatabaseError, zlib.error) as error:
            raise SourceError(
                f"{self._path}: the store of answers is damaged ({format_public_error(error)}); delete the file"
            ) from error


def _resolve_charset(name: str | None) -> str | None:
    """Python's name of a charset, or of the wider one that browsers read it as; None for one that it does not know."""
    if not name:
        return None
    try:
        found = codecs.lookup(name).name
        bytes(4).decode(found)  # "hex" and its like are codecs, but not of text
    except (LookupError, UnicodeError, ValueError):
        return None
    return _WIDER_CHARSETS.get(found, found)
