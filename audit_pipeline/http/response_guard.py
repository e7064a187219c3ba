"""Guards on responses: they limit the length of bodies, and remove the keys that the request contained.

The guard is a hook for responses of httpx2 that runs before a body is read. So it also guards redirects, and any client
that is built on httpx2, such as the client of huggingface_hub. The guard decompresses gzip and deflate itself, because
httpx2 would decompress a whole chunk at once, without a limit for its size.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, quote_plus, urlsplit

from audit_pipeline.http.faults import DamagedResponseError, OversizedResponseError

if TYPE_CHECKING:
    import httpx2

ACCEPTED_ENCODING = "gzip"
"""Value of the Accept-Encoding header."""
MAX_JSON_BYTES = 32 << 20
"""Default of the maximum length of a response, in bytes. Parsed JSON can take 25 times as much memory."""
LIMIT_EXTENSION = "max_bytes"
"""Key of the maximum length in ``request.extensions``. If it is None, the caller reads the body without a guard."""

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
# Shorter keys are placeholders ("EMPTY", "no-key") that texts contain by chance.
_MIN_KEY_LENGTH = 8
_BODY_HEADERS = ("Content-Encoding", "Content-Length", "Transfer-Encoding")


class Unpacker:
    """A decompressor that receives a body chunk by chunk and limits its length.

    Attributes:
        limit: Maximum length of the body in bytes, as sent and decompressed.
        body: Bytes decompressed so far.
    """

    def __init__(self, encoding: str, limit: int) -> None:
        encoding = encoding.strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise DamagedResponseError(
                f"the response is compressed as {encoding[:40]}, which the request did not accept"
            )
        self.limit = limit
        self.body = bytearray()
        self._n_received = 0
        self._is_compressed = encoding not in ("", "identity")
        self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)

    def feed(self, chunk: bytes) -> None:
        """Add the next bytes of the body as they were sent.

        Raises:
            OversizedResponseError: If the body exceeds the limit.
            DamagedResponseError: If the bytes cannot be decompressed.
        """
        self._n_received += len(chunk)
        if self._is_compressed:
            self._decompress(chunk)
        else:
            self.body += chunk
        if max(len(self.body), self._n_received) > self.limit:
            raise OversizedResponseError(f"the response is longer than the limit of {self.limit:,} bytes")

    def _decompress(self, chunk: bytes) -> None:
        while chunk and len(self.body) <= self.limit:
            if self._stream.eof:
                # A gzip body may consist of several members.
                self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)
            try:
                self.body += self._stream.decompress(chunk, self.limit + 1 - len(self.body))
            except zlib.error as error:
                raise DamagedResponseError("the compressed response is truncated or corrupt") from error
            chunk = self._stream.unconsumed_tail or self._stream.unused_data

    def finish(self) -> bytes:
        """Return the whole body.

        Raises:
            DamagedResponseError: If the compressed body is truncated.
        """
        if self._is_compressed and not self._stream.eof and self._n_received:
            raise DamagedResponseError("the compressed response is truncated or corrupt")
        return bytes(self.body)


def guard_response(response: httpx2.Response) -> None:
    """Read the body of a response within its limit and redact it: a hook for ``httpx2.Client``.

    Raises:
        OversizedResponseError: If the body exceeds the limit.
        DamagedResponseError: If the body cannot be decompressed.
    """
    unpacker = _build_unpacker(response)
    if unpacker is None:
        return
    for chunk in response.stream:  # type: ignore[union-attr]
        unpacker.feed(chunk)
    response.stream.close()  # type: ignore[union-attr]
    _replace_body(response, unpacker.finish())


async def guard_async_response(response: httpx2.Response) -> None:
    """Read and redact the body of a response as :func:`guard_response` does: a hook for ``httpx2.AsyncClient``."""
    unpacker = _build_unpacker(response)
    if unpacker is None:
        return
    async for chunk in response.stream:  # type: ignore[union-attr]
        unpacker.feed(chunk)
    await response.stream.aclose()  # type: ignore[union-attr]
    _replace_body(response, unpacker.finish())


def _build_unpacker(response: httpx2.Response) -> Unpacker | None:
    limit = response.request.extensions.get(LIMIT_EXTENSION, MAX_JSON_BYTES)
    if limit is None and response.has_redirect_location:
        # httpx2 reads the body of a redirect that it follows.
        limit = MAX_JSON_BYTES
    if limit is None or response.request.method == "HEAD":
        return None
    return Unpacker(response.headers.get("Content-Encoding", ""), limit)


def _replace_body(response: httpx2.Response, body: bytes) -> None:
    secrets = list_secrets(str(response.request.url), response.request.headers)
    for name, value in list(response.headers.items()):
        response.headers[name] = redact(value, secrets)
    for name in _BODY_HEADERS:
        response.headers.pop(name, None)
    redacted = redact(body.decode("latin-1"), secrets).encode("latin-1")
    # A response of httpx2 accepts only a stream of httpx2.
    response.stream = type(response)(response.status_code, content=redacted).stream


def list_secrets(url: str, headers: Mapping[str, Any]) -> list[str]:
    """Return the keys in the address and the headers of a request."""
    authorization = headers.get("authorization", headers.get("Authorization", ""))
    scheme, _, credentials = authorization.rpartition(" ")
    secrets = [credentials]
    if scheme.lower() == "basic":
        with suppress(ValueError):
            secrets.append(base64.b64decode(credentials).decode("latin-1").partition(":")[2])
    secrets += parse_qs(urlsplit(url).query).get("key", [])
    return [key for key in dict.fromkeys(secrets) if len(key) >= _MIN_KEY_LENGTH]


def redact(text: str, secrets: Iterable[str]) -> str:
    """Replace each key by ``***``, also in the escaped forms that addresses and JSON contain."""
    for key in secrets:
        in_json = json.dumps(key)[1:-1]
        for form in (key, quote(key, safe=""), quote_plus(key), in_json, in_json.replace("/", "\\/")):
            text = text.replace(form, "***")
    return text
