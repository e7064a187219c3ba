"""Errors on their way from a worker to the process that asks.

What belongs here: keeping what caused an error, which pickling loses, and which says whether trying again may help.
What does not: what is done about an error (dispatch.py, and who asked).
"""

from __future__ import annotations

import pickle
from collections.abc import Generator
from contextlib import contextmanager
from itertools import pairwise

from audit_pipeline.errors import AuditError, TransientError, one_line
from audit_pipeline.fetch.retry import causes, may_pass


class WorkerError(Exception):
    """An error in a worker, with what caused it, and what caused that: one after the other in ``args``."""


@contextmanager
def raise_picklable_errors() -> Generator[None]:
    """Raise a WorkerError in the place of any error, in a form that pickling keeps."""
    try:
        yield
    except Exception as error:
        raise WorkerError(*map(_sendable, causes(error))) from error


def restore_worker_error(error: Exception, raised: Exception | None = None) -> Exception:
    """The error that a worker met, with its causes.

    ``raised`` is what arrived, which shows the worker's traceback: the cause of the last, but where the error says all
    that a user needs.
    """
    chain = list(error.args) if isinstance(error, WorkerError) else [error]
    for one, cause in pairwise(chain):
        one.__cause__ = cause
    if raised is not None and not isinstance(chain[0], AuditError):
        chain[-1].__cause__ = raised
    return chain[0]


def _sendable(error: BaseException) -> BaseException:
    """The error itself where pickling keeps it, else one that says the same, and whether it may pass."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301  (made a moment ago)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError):
        words = f"{type(error).__name__}: {one_line(str(error))}"
        return TransientError(words) if may_pass(error) else RuntimeError(words)
    return error
