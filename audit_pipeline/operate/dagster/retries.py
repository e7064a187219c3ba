"""Trying again: which faults may be gone in a moment, and how long to wait for that.

What belongs here: telling transient faults from bad input, and waiting longer each time. What does not: what is tried
(pairs.py, assets/), and the downloads' own retries (fetch/pypi.py).
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import requests
import tenacity
import torch
from huggingface_hub.errors import OfflineModeIsEnabled

from audit_pipeline.errors import TransientError

ATTEMPTS = 4
_FIRST_WAIT_SECONDS = 2.0
_LONGEST_WAIT_SECONDS = 60.0

# A full disk (ENOSPC, EDQUOT) is not among them: it does not empty itself, and the work resumes when somebody has.
_TRANSIENT_ERRNOS = frozenset(
    {errno.EAGAIN, errno.EBUSY, errno.EIO, errno.EINTR, errno.ESTALE, errno.ETIMEDOUT, errno.ENETUNREACH}
    | {errno.EHOSTUNREACH, errno.ECONNRESET, errno.ECONNREFUSED, errno.ECONNABORTED, errno.EPIPE, errno.ENETDOWN}
)
_TRANSIENT_TYPES = (
    TransientError,
    ConnectionError,
    TimeoutError,
    requests.ConnectionError,
    requests.Timeout,
    torch.OutOfMemoryError,
)

T = TypeVar("T")


def is_transient(error: BaseException) -> bool:
    """Whether ``error``, or what caused it, is a fault of the surroundings that trying again may not meet.

    Bad input, a full disk and programming errors are not: they come again, and trying again only hides them longer.
    """
    causes = list(_causes(error))
    # The hub's client calls it a connection error when somebody has turned the hub off.
    if any(isinstance(one, OfflineModeIsEnabled) for one in causes):
        return False
    return any(
        isinstance(one, _TRANSIENT_TYPES) or (isinstance(one, OSError) and one.errno in _TRANSIENT_ERRNOS)
        for one in causes
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__


def with_retries(
    run: Callable[[], T], what: str, log: logging.Logger, sleep: Callable[[float], None] = time.sleep
) -> T:
    """What ``run`` returns; a transient fault is tried again, up to four attempts, waiting 2, 4, 8 s and a little more.

    Raises the last attempt's error, and any other error at once.
    """

    def tell(state: tenacity.RetryCallState) -> None:
        assert state.outcome is not None
        assert state.next_action is not None
        error = " ".join(str(state.outcome.exception()).split())
        log.warning(
            f"{what}: attempt {state.attempt_number} of {ATTEMPTS} failed, "
            f"trying again in {state.next_action.sleep:.1f} s: {error}"
        )

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(is_transient),
        stop=tenacity.stop_after_attempt(ATTEMPTS),
        wait=tenacity.wait_exponential_jitter(multiplier=_FIRST_WAIT_SECONDS, max=_LONGEST_WAIT_SECONDS),
        before_sleep=tell,
        sleep=sleep,
        reraise=True,
    )
    return retrying(run)
