"""Retries of assets after transient errors, by the policy of http/faults.py. The log of the run shows them."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import tenacity
from huggingface_hub.errors import OfflineModeIsEnabled

from audit_pipeline.errors import UnansweredError, to_one_line
from audit_pipeline.http.faults import RetryPolicy, build_retryer, is_transient_fault, iterate_causes

RETRY_POLICY = RetryPolicy(attempts=4, first_pause=2.0, max_pause=60.0, jitter=1.0)

T = TypeVar("T")


def is_transient(error: BaseException) -> bool:
    """Return whether an error, or one of its causes, is transient.

    Errors of a server, a network or a disk are transient, and so is exhausted GPU memory.
    """
    causes = list(iterate_causes(error))
    # If the user has disabled the hub, its client raises a connection error, which no retry would cure.
    if any(isinstance(cause, OfflineModeIsEnabled) for cause in causes):
        return False
    # torch is not imported here. If it raised the error, it is already imported.
    torch = sys.modules.get("torch")
    is_out_of_memory = torch is not None and any(isinstance(cause, torch.OutOfMemoryError) for cause in causes)
    return is_out_of_memory or is_transient_fault(error)


def run_with_retries(
    run: Callable[[], T], label: str, log: logging.Logger, sleep: Callable[[float], None] = time.sleep
) -> T:
    """Run a function, with up to four attempts if an error is transient. Waits are 2, 4 and 8 s plus jitter.

    Args:
        run: The function.
        label: The name of the function in log lines.
        log: The log of the run.
        sleep: Replaces the waits in tests.

    Returns:
        The result of the function.

    Raises:
        Exception: The error of the last attempt. Errors that are not transient are raised at once.
    """

    def is_worth_repeating(error: BaseException) -> bool:
        # The client of a server has already repeated its request (extras/servers/client.py), and requests cost money.
        return is_transient(error) and not any(isinstance(cause, UnansweredError) for cause in iterate_causes(error))

    def notify(state: tenacity.RetryCallState) -> None:
        assert state.outcome is not None
        log.warning(
            f"{label}: attempt {state.attempt_number} of {RETRY_POLICY.attempts} failed, trying again in "
            f"{state.upcoming_sleep:.1f} s: {to_one_line(state.outcome.exception() or '')}"
        )

    return build_retryer(RETRY_POLICY, is_worth_repeating, on_retry=notify, sleep=sleep)(run)
