"""Errors of HTTP requests, and functions that decide whether a retry may succeed.

Each module that uses the client converts these errors into its own errors, such as an unreachable model.
"""

from __future__ import annotations

import errno
import re
import ssl
import sys
from collections.abc import Iterator

from audit_pipeline.errors import AuditError, TransientError

# 408 timeout, 425 too early, 429 too many requests.
_RETRYABLE_STATUSES = frozenset((408, 425, 429))
# 501 not implemented, 505 HTTP version not supported: the server never supports the request.
_LASTING_SERVER_STATUSES = frozenset((501, 505))
# A full disk (ENOSPC, EDQUOT) is missing here: only the user can empty it, and the work resumes afterwards.
_TRANSIENT_ERRNOS = frozenset(
    {errno.EAGAIN, errno.EBUSY, errno.EIO, errno.EINTR, errno.ESTALE, errno.ETIMEDOUT, errno.ENETUNREACH}
    | {errno.EHOSTUNREACH, errno.ECONNRESET, errno.ECONNREFUSED, errno.ECONNABORTED, errno.EPIPE, errno.ENETDOWN}
)


class HttpError(AuditError):
    """A request without a usable response.

    The message names neither the address nor a key, so that callers can put it into messages of their own.

    Attributes:
        status: HTTP status of the response, or None without a response.
    """

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


class RetryableError(HttpError):
    """A fault that may not occur in another attempt.

    Attributes:
        pause_seconds: Pause that the server requests before the next attempt, or None.
    """

    def __init__(self, reason: str, status: int | None = None, pause_seconds: float | None = None) -> None:
        super().__init__(reason, status)
        self.pause_seconds = pause_seconds


class DamagedResponseError(RetryableError):
    """A compressed response that is truncated, corrupt, or in an encoding that the client did not accept."""


class OversizedResponseError(HttpError):
    """A response that is longer than its limit, as sent or decompressed."""


class CertificateError(HttpError):
    """A server whose certificate is not trusted."""


class StatusError(HttpError):
    """A response with an error status that another attempt would also get."""


def is_transient_status(status: int) -> bool:
    """Return whether the server may respond to the same request with another status later."""
    return status in _RETRYABLE_STATUSES or (status >= 500 and status not in _LASTING_SERVER_STATUSES)


def is_transient_fault(error: BaseException) -> bool:
    """Return whether the error or one of its causes is a transient fault of the environment.

    Transient faults are a busy server, a failed connection and a short failure of a network disk. Bad input, an
    untrusted certificate, a full disk and programming errors are not transient: they would occur in every attempt.
    """
    return any(_is_transient_cause(cause) for cause in iterate_causes(error))


def iterate_causes(error: BaseException, *, with_context: bool = False) -> Iterator[BaseException]:
    """Yield the error, its cause, the cause of its cause and so on.

    Each error is yielded once: an error that is raised again from its own wrapper would loop.

    Args:
        error: Last error of the chain.
        with_context: Continue with ``__context__`` if an error has no ``__cause__``.
    """
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (link.__context__ if with_context else None)


def _is_transient_cause(error: BaseException) -> bool:
    if isinstance(error, (TransientError, ConnectionError, TimeoutError)):
        return True
    if isinstance(error, OSError) and error.errno in _TRANSIENT_ERRNOS:
        return True
    # An error of a library exists only after the library was imported. So nothing is imported for this check.
    if "httpx2" in sys.modules and _is_transient_httpx_error(error):
        return True
    return "requests" in sys.modules and _is_transient_requests_error(error)


def _is_transient_httpx_error(error: BaseException) -> bool:
    import httpx2  # noqa: PLC0415

    retryable = (httpx2.TimeoutException, httpx2.NetworkError, httpx2.RemoteProtocolError, httpx2.ProxyError)
    return isinstance(error, retryable) and not is_certificate_fault(error)


def _is_transient_requests_error(error: BaseException) -> bool:
    # Plug-ins that add a source may use requests. The client of this package does not.
    import requests  # noqa: PLC0415

    if isinstance(error, requests.HTTPError):
        return error.response is not None and is_transient_status(error.response.status_code)
    if isinstance(error, requests.exceptions.SSLError):
        return False
    return isinstance(error, (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError))


def is_certificate_fault(error: BaseException) -> bool:
    """Return whether the connection failed because the server's certificate is not trusted."""
    return any(isinstance(cause, ssl.SSLCertVerificationError) for cause in iterate_causes(error))


def format_public_error(error: Exception) -> str:
    """Return the first line of an error's message without passwords in addresses."""
    lines = str(error).splitlines()
    return redact_passwords(lines[0]) if lines else type(error).__name__


def redact_passwords(text: str) -> str:
    """Replace the user name and password of each address in a text by ``***``."""
    return re.sub(r"//[^/@\s]+@", "//***@", text)
