"""Answers of servers as they may be kept: no longer than they can be, and without the keys that they were asked with.

Our clients use it, for model servers, chat, timestamps, webhooks and crawls; those of hub and package index do not.
A client of httpx or httpx2 calls :func:`read_redacted_response` before the body is read, as in its hook for responses;
a session of requests has a :class:`GuardedAdapter`. gzip and deflate are taken, which zlib unpacks in bounded steps,
and nothing else is asked for.
"""

from __future__ import annotations

import base64
import io
import json
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any
from urllib.parse import parse_qs, quote, quote_plus, urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter

from audit_pipeline.errors import AuditError

ACCEPTED = "gzip"
"""What is to be sent as Accept-Encoding."""
MOST_JSON = 32 << 20
"""The most bytes of an answer whose length nothing else says. Parsed, JSON can take some 25 times as many of memory."""

_CHUNK = 1 << 16
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
# Shorter ones are placeholders ("EMPTY", "no-key"), which are in texts by chance.
_SHORTEST_KEY = 8
_OF_THE_BODY = ("Content-Encoding", "Content-Length", "Transfer-Encoding")


class OversizedAnswerError(AuditError):
    """An answer that is longer than it can be, or that unpacks to more."""


class DamagedAnswerError(AuditError):
    """A compressed answer that is cut short, damaged, or compressed in a way that was not asked for."""


class Unpacker:
    """Unpacks a body chunk by chunk; raises OversizedAnswerError once there are more than ``limit`` bytes of it."""

    def __init__(self, encoding: str, limit: int) -> None:
        encoding = encoding.strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise DamagedAnswerError(f"its answer is compressed as {encoding[:40]}, which was not asked for")
        self.limit = limit
        self.body = bytearray()
        self._received = 0
        self._is_packed = encoding not in ("", "identity")
        self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes as they were sent."""
        self._received += len(chunk)
        if self._is_packed:
            self._unpack(chunk)
        else:
            self.body += chunk
        if max(len(self.body), self._received) > self.limit:
            raise OversizedAnswerError(f"its answer is longer than the {self.limit:,} bytes that are taken")

    def _unpack(self, chunk: bytes) -> None:
        while chunk and len(self.body) <= self.limit:
            if self._stream.eof:
                self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)
            try:
                self.body += self._stream.decompress(chunk, self.limit + 1 - len(self.body))
            except zlib.error as error:
                raise DamagedAnswerError("its compressed answer is cut short or damaged") from error
            chunk = self._stream.unconsumed_tail or self._stream.unused_data

    def finish(self) -> bytes:
        """The whole body; raises DamagedAnswerError where it ends too early."""
        if self._is_packed and not self._stream.eof and self._received:
            raise DamagedAnswerError("its compressed answer is cut short or damaged")
        return bytes(self.body)


def list_secrets(url: str, headers: Mapping[str, Any]) -> list[str]:
    """The keys that a request was sent with, by its address and headers."""
    scheme, _, authorization = headers.get("authorization", headers.get("Authorization", "")).rpartition(" ")
    found = [authorization]
    if scheme.lower() == "basic":
        with suppress(ValueError):
            found.append(base64.b64decode(authorization).decode("latin-1").partition(":")[2])
    found += chain.from_iterable(value for name, value in parse_qs(urlsplit(url).query).items() if name == "key")
    return [key for key in dict.fromkeys(found) if len(key) >= _SHORTEST_KEY]


def redact(text: str, secrets: Iterable[str]) -> str:
    """``text`` with *** in the place of each key, as it is written plainly, in an address, or in JSON."""
    for key in secrets:
        in_json = json.dumps(key)[1:-1]
        for form in (key, quote(key, safe=""), quote_plus(key), in_json, in_json.replace("/", "\\/")):
            text = text.replace(form, "***")
    return text


async def read_redacted_response(response: Any, limit: int) -> None:
    """Read a response (of httpx or httpx2, not read yet) whole, and put what may be kept of it in its place.

    Raises OversizedAnswerError and DamagedAnswerError.
    """
    unpacker = Unpacker(response.headers.get("Content-Encoding", ""), limit)
    async for chunk in response.stream:
        unpacker.feed(chunk)
    await response.stream.aclose()
    clean = _redact_response(response.headers, unpacker.finish(), str(response.request.url), response.request.headers)
    # Each library takes a stream of its own alone.
    response.stream = type(response)(response.status_code, content=clean).stream


def _redact_response(headers: Any, body: bytes, url: str, sent: Mapping[str, Any]) -> bytes:
    """The body without the keys that the request was ``sent`` with, which go out of ``headers`` too."""
    secrets = list_secrets(url, sent)
    for name, value in list(headers.items()):
        headers[name] = redact(value, secrets)
    for name in _OF_THE_BODY:
        headers.pop(name, None)
    return redact(body.decode("latin-1"), secrets).encode("latin-1")


class GuardedAdapter(HTTPAdapter):
    """As its base class, with answers of at most ``limit`` bytes and without keys, but for those read as a stream.

    Raises OversizedAnswerError and DamagedAnswerError too.
    """

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def send(
        self, request: requests.PreparedRequest, stream: bool = False, *options: Any, **named: Any
    ) -> requests.Response:
        """See the base class."""
        response = super().send(request, True, *options, **named)
        if stream or request.method == "HEAD":
            return response
        unpacker = Unpacker(response.headers.get("Content-Encoding", ""), self._limit)
        try:
            for chunk in response.raw.stream(_CHUNK, decode_content=False):
                unpacker.feed(chunk)
        except urllib3.exceptions.ProtocolError as error:
            raise requests.exceptions.ChunkedEncodingError(error) from error
        except urllib3.exceptions.TimeoutError as error:
            raise requests.exceptions.ReadTimeout(error) from error
        finally:
            response.close()
        body = _redact_response(response.headers, unpacker.finish(), request.url or "", request.headers)
        # requests-cache takes no other stream.
        response.raw = urllib3.HTTPResponse(
            io.BytesIO(body), status=response.status_code, preload_content=False, request_url=request.url
        )
        return response
