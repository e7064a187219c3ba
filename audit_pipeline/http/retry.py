"""The policy of retries: how many attempts, and how long the pauses between them are.

tenacity repeats the calls. Which faults are worth a retry is in faults.py.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import tenacity

from audit_pipeline.http.faults import RetryableError


@dataclass(frozen=True)
class RetryPolicy:
    """Number of attempts, and pauses that double from one attempt to the next.

    Attributes:
        attempts: Maximum number of attempts, the first one included.
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
    """Return whether the error is a RetryableError."""
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
        is_transient: Function that returns whether an error is transient.
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


def _build_retry_arguments(
    policy: RetryPolicy,
    is_transient: Callable[[BaseException], bool],
    on_retry: Callable[[tenacity.RetryCallState], None] | None,
) -> dict[str, Any]:
    own_pause: Callable[[tenacity.RetryCallState], float]
    own_pause = growing_pause = tenacity.wait_exponential(multiplier=policy.first_pause, max=policy.max_pause)
    if policy.jitter:
        own_pause = growing_pause + tenacity.wait_random(0, policy.jitter)

    def compute_pause(state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        requested_pause = 0.0
        if isinstance(error, RetryableError):
            requested_pause = error.pause_seconds or 0.0
        return max(own_pause(state), requested_pause)

    return {
        "retry": tenacity.retry_if_exception(is_transient),
        "stop": tenacity.stop_after_attempt(policy.attempts),
        "wait": compute_pause,
        "before_sleep": on_retry,
        "reraise": True,
    }


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
