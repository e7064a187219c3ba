"""What an asset does once more by itself: the policy of http/retry.py, reported in a run's log."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import tenacity
from huggingface_hub.errors import OfflineModeIsEnabled

from audit_pipeline.errors import UnansweredError, to_one_line
from audit_pipeline.http.faults import is_transient_fault, iterate_causes
from audit_pipeline.http.retry import RetryPolicy, build_retryer

RETRY_POLICY = RetryPolicy(attempts=4, first_pause=2.0, max_pause=60.0, jitter=1.0)

T = TypeVar("T")


def is_transient(error: BaseException) -> bool:
    """Whether ``error``, or what caused it, is a fault that trying again may not meet: that of a server, a network or a
    disk, or a graphics card that had no memory left.
    """
    every = list(iterate_causes(error))
    # The hub's client calls it a connection error when the user has turned the hub off.
    if any(isinstance(cause, OfflineModeIsEnabled) for cause in every):
        return False
    # Not imported for this: the module that raised it has imported it.
    torch = sys.modules.get("torch")
    is_out_of_memory = torch is not None and any(isinstance(cause, torch.OutOfMemoryError) for cause in every)
    return is_out_of_memory or is_transient_fault(error)


def run_with_retries(
    run: Callable[[], T], label: str, log: logging.Logger, sleep: Callable[[float], None] = time.sleep
) -> T:
    """What ``run`` returns; a transient fault is tried again, up to four attempts, waiting 2, 4, 8 s and a little more.

    Raises the last attempt's error, and any other error at once; that of a server that did not answer too, since it
    was asked patiently (extras/servers/client.py).
    """

    def is_worth_repeating(error: BaseException) -> bool:
        # A model on a server has been asked several times by then, and each of these is paid for.
        return is_transient(error) and not any(isinstance(cause, UnansweredError) for cause in iterate_causes(error))

    def notify(state: tenacity.RetryCallState) -> None:
        assert state.outcome is not None
        log.warning(
            f"{label}: attempt {state.attempt_number} of {RETRY_POLICY.attempts} failed, trying again in "
            f"{state.upcoming_sleep:.1f} s: {to_one_line(state.outcome.exception() or '')}"
        )

    return build_retryer(RETRY_POLICY, is_worth_repeating, on_retry=notify, sleep=sleep)(run)
