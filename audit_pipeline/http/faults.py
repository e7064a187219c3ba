"""Errors of HTTP requests, and retries: the transient errors, the number of attempts, and the pauses between them.

tenacity repeats the calls. Each module that uses the client converts these errors to its own errors, such as the error
for an unreachable model.
"""

from __future__ import annotations

import errno
import re
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import tenacity

from audit_pipeline.errors import AuditError, TransientError

# 408 timeout, 425 too early, 429 too many requests.
_RETRYABLE_STATUSES = frozenset((408, 425, 429))
# 501 not implemented, 505 HTTP version not supported. Such a server would not support the request later, either.
_LASTING_SERVER_STATUSES = frozenset((501, 505))
# A full disk (ENOSPC, EDQUOT) is not transient, because only the user can free space on it.
_TRANSIENT_ERRNOS = frozenset(
    {errno.EAGAIN, errno.EBUSY, errno.EIO, errno.EINTR, errno.ESTALE, errno.ETIMEDOUT, errno.ENETUNREACH}
    | {errno.EHOSTUNREACH, errno.ECONNRESET, errno.ECONNREFUSED, errno.ECONNABORTED, errno.EPIPE, errno.ENETDOWN}
)


class HttpError(AuditError):
    """An error for a request without a usable response.

    The message contains neither the address nor a key, so that callers can include it in their own messages.

    Attributes:
        status: HTTP status of the response, or None without a response.
    """

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


class RetryableError(HttpError):
    """An error for a request that may succeed in another attempt.

    Attributes:
        pause_seconds: Pause that the server requests before the next attempt, or None.
    """

    def __init__(self, reason: str, status: int | None = None, pause_seconds: float | None = None) -> None:
        super().__init__(reason, status)
        self.pause_seconds = pause_seconds


class DamagedResponseError(RetryableError):
    """An error for a compressed response that is truncated, corrupt, or in an encoding that was not requested."""


class OversizedResponseError(HttpError):
    """An error for a response that is longer than its limit, as sent or decompressed."""


class CertificateError(HttpError):
    """An error for a server whose certificate is not trusted."""


class StatusError(HttpError):
    """An error for a response with an error status that another attempt would also get."""


def is_transient_status(status: int) -> bool:
    """Return True if the server may respond to the same request with another status later."""
    return status in _RETRYABLE_STATUSES or (status >= 500 and status not in _LASTING_SERVER_STATUSES)


def is_transient_fault(error: BaseException) -> bool:
    """Return True if the error or one of its causes is a transient fault of the environment.

    Transient faults are a busy server, a failed connection and a short failure of a network disk. Bad input, an
    untrusted certificate, a full disk and programming errors are not transient: they would occur in every attempt.
    """
    return any(_is_transient_cause(cause) for cause in iterate_causes(error))


def iterate_causes(error: BaseException, *, with_context: bool = False) -> Iterator[BaseException]:
    """Yield the error, its cause, the cause of its cause and so on.

    Each error is yielded once. Without this rule, an error that is its own cause would lead to an endless loop.

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


def is_certificate_fault(error: BaseException) -> bool:
    """Return True if the connection failed because the server's certificate is not trusted."""
    return any(isinstance(cause, ssl.SSLCertVerificationError) for cause in iterate_causes(error))


def format_public_error(error: Exception) -> str:
    """Return the first line of an error's message without passwords in addresses."""
    lines = str(error).splitlines()
    return redact_passwords(lines[0]) if lines else type(error).__name__


def redact_passwords(text: str) -> str:
    """Replace the user name and password of each address in a text by ``***``."""
    return re.sub(r"//[^/@\s]+@", "//***@", text)


@dataclass(frozen=True)
class RetryPolicy:
    """Number of attempts, and pauses that double from one attempt to the next.

    Attributes:
        attempts: Maximum number of attempts, including the first attempt.
        first_pause: Pause after the first attempt, in seconds.
        max_pause: Maximum pause, in seconds.
        jitter: Maximum random addition to each pause, in seconds.
    """

    attempts: int
    first_pause: float
    max_pause: float = 60.0
    jitter: float = 0.0


NO_RETRY = RetryPolicy(attempts=1, first_pause=0.0)


def is_retryable(error: BaseException) -> bool:
    """Return True if the error is a RetryableError."""
    return isinstance(error, RetryableError)


def build_retryer(
    policy: RetryPolicy,
    is_transient: Callable[[BaseException], bool] = is_retryable,
    *,
    on_retry: Callable[[tenacity.RetryCallState], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> tenacity.Retrying:
    """Return an object that calls a function, and repeats the call if it raises a transient error.

    The object raises the error of the last attempt, and any other error at once. No pause is shorter than
    ``RetryableError.pause_seconds``.

    Args:
        policy: Number of attempts and pauses.
        is_transient: Function that returns True for a transient error.
        on_retry: Function that is called before each pause.
        sleep: Function that pauses. Tests replace it.
    """
    return tenacity.Retrying(**_build_retry_arguments(policy, is_transient, on_retry), sleep=sleep)


def build_async_retryer(
    policy: RetryPolicy,
    is_transient: Callable[[BaseException], bool] = is_retryable,
    *,
    on_retry: Callable[[tenacity.RetryCallState], None] | None = None,
    sleep: Callable[[float], Awaitable[None]],
) -> tenacity.AsyncRetrying:
    """Return an object that calls a coroutine function and repeats it as :func:`build_retryer` describes."""
    return tenacity.AsyncRetrying(**_build_retry_arguments(policy, is_transient, on_retry), sleep=sleep)


def parse_retry_after(retry_after: str | None) -> float | None:
    """Return the pause in seconds that a Retry-After header requests.

    The header holds a number of seconds or a date (RFC 9110, section 10.2.3). The result is None if the header is
    missing or unreadable.
    """
    if retry_after is None:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after.strip())
    try:
        moment = parsedate_to_datetime(retry_after)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


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


def _build_retry_arguments(
    policy: RetryPolicy,
    is_transient: Callable[[BaseException], bool],
    on_retry: Callable[[tenacity.RetryCallState], None] | None,
) -> dict[str, Any]:
    usual_pause: Callable[[tenacity.RetryCallState], float]
    usual_pause = growing_pause = tenacity.wait_exponential(multiplier=policy.first_pause, max=policy.max_pause)
    if policy.jitter:
        usual_pause = growing_pause + tenacity.wait_random(0, policy.jitter)

    def compute_pause(state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        requested_pause = 0.0
        if isinstance(error, RetryableError):
            requested_pause = error.pause_seconds or 0.0
        return max(usual_pause(state), requested_pause)

    return {
        "retry": tenacity.retry_if_exception(is_transient),
        "stop": tenacity.stop_after_attempt(policy.attempts),
        "wait": compute_pause,
        "before_sleep": on_retry,
        "reraise": True,
    }
