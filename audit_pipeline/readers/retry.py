"""Trying again: which faults of the surroundings may be gone in a moment, and how long to wait for that.

Files and pages are fetched by requests: dagster and pypi-simple bring it, and its raw stream lets
sources/web/polite_client.py limit what an answer unpacks to. huggingface_hub speaks httpx2, and so does
extras/servers/client.py, which has many requests under way at a time.
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import requests
import tenacity

from audit_pipeline.errors import TransientError

# Too early, too many requests, a time-out; then whatever is the server's own fault, but for what it will never do.
_PASSING_STATUS = frozenset((408, 425, 429))
_LASTING_SERVER_FAULTS = frozenset((501, 505))
# A full disk (ENOSPC, EDQUOT) is not among them: it does not empty itself, and the work resumes once it is emptied.
_PASSING_ERRNOS = frozenset(
    {errno.EAGAIN, errno.EBUSY, errno.EIO, errno.EINTR, errno.ESTALE, errno.ETIMEDOUT, errno.ENETUNREACH}
    | {errno.EHOSTUNREACH, errno.ECONNRESET, errno.ECONNREFUSED, errno.ECONNABORTED, errno.EPIPE, errno.ENETDOWN}
)
_PASSING_TYPES = (
    TransientError,
    ConnectionError,
    TimeoutError,
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
)


@dataclass(frozen=True)
class RetryPolicy:
    """How often something is tried, and how long is waited in between.

    The first pause is ``first`` seconds; each is twice the one before, and none longer than ``longest``. ``jitter`` is
    the most that chance adds to each.
    """

    attempts: int
    first: float
    longest: float = 60.0
    jitter: float = 0.0


class RetryableError(Exception):
    """A fault that another attempt may not meet; ``pause``: seconds that the server asks to wait before it."""

    def __init__(self, reason: str, status: int | None = None, pause: float | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.pause = pause


def build_retryer(
    policy: RetryPolicy,
    is_transient: Callable[[BaseException], bool],
    *,
    on_retry: Callable[[tenacity.RetryCallState], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> tenacity.Retrying:
    """A caller that calls a function again, as often as ``policy`` says, if its error ``is_transient``.

    The last attempt's error is raised, and any other at once. No pause is shorter than that of a PassingError.
    ``on_retry`` is called before each pause.
    """
    return tenacity.Retrying(**_build_retry_arguments(policy, is_transient, on_retry), sleep=sleep)


def build_async_retryer(
    policy: RetryPolicy,
    is_transient: Callable[[BaseException], bool],
    *,
    on_retry: Callable[[tenacity.RetryCallState], None] | None = None,
    sleep: Callable[[float], Awaitable[None]],
) -> tenacity.AsyncRetrying:
    """As :func:`build_retryer`, for a coroutine function."""
    return tenacity.AsyncRetrying(**_build_retry_arguments(policy, is_transient, on_retry), sleep=sleep)


def _build_retry_arguments(
    policy: RetryPolicy,
    is_transient: Callable[[BaseException], bool],
    on_retry: Callable[[tenacity.RetryCallState], None] | None,
) -> dict[str, Any]:
    growing = tenacity.wait_exponential(multiplier=policy.first, max=policy.longest)
    pause = growing + tenacity.wait_random(0, policy.jitter) if policy.jitter else growing

    def wait(state: tenacity.RetryCallState) -> float:
        fault = state.outcome.exception() if state.outcome is not None else None
        requested = fault.pause if isinstance(fault, RetryableError) else None
        return max(pause(state), requested or 0.0)

    return {
        "retry": tenacity.retry_if_exception(is_transient),
        "stop": tenacity.stop_after_attempt(policy.attempts),
        "wait": wait,
        "before_sleep": on_retry,
        "reraise": True,
    }


def is_transient_fault(error: BaseException) -> bool:
    """Whether ``error``, or what caused it, is a fault of the surroundings that trying again may not meet.

    A busy server, a connection that failed, a network disk that stumbled. Bad input, a certificate that is not trusted,
    a full disk and programming errors are not: they come again, and trying again only hides them longer.
    """
    return any(_is_transient_error(cause) for cause in iterate_causes(error))


def iterate_causes(error: BaseException, *, with_context: bool = False) -> Iterator[BaseException]:
    """``error``, what caused it, what caused that, and so on, each once: a cause that is raised again is in a ring.

    ``with_context``: also what was being handled then.
    """
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (link.__context__ if with_context else None)


def _is_transient_error(error: BaseException) -> bool:
    if isinstance(error, requests.HTTPError):
        return error.response is not None and is_transient_status(error.response.status_code)
    if isinstance(error, requests.exceptions.SSLError):
        return False
    return isinstance(error, _PASSING_TYPES) or (isinstance(error, OSError) and error.errno in _PASSING_ERRNOS)


def is_transient_status(status: int) -> bool:
    """Whether a server that answered with this status may answer otherwise in a moment."""
    return status in _PASSING_STATUS or (status >= 500 and status not in _LASTING_SERVER_FAULTS)


def parse_retry_after(retry_after: str | None) -> float | None:
    """Seconds to wait by a Retry-After header, in either of its forms; None without a readable one."""
    if retry_after is None:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after.strip())
    try:
        moment = parsedate_to_datetime(retry_after)
    except (ValueError, OverflowError):
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def format_request_error(error: requests.RequestException) -> str:
    """What happened to a request, in a few words."""
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.ConnectionError) and not isinstance(error, requests.exceptions.SSLError):
        return "the connection failed"
    return format_public_error(error)


def format_public_error(error: Exception) -> str:
    """The first line of an error's message, less any password in an address."""
    return redact_passwords(str(error).splitlines()[0]) if str(error) else type(error).__name__


def redact_passwords(text: str) -> str:
    """``text`` less the passwords of addresses in it."""
    return re.sub(r"//[^/@\s]+@", "//***@", text)
