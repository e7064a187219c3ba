"""What the hub's clients raise, in plain words: which of their errors may pass, and what to do about each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import httpx2
from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    IncompleteSnapshotError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    RevisionResolutionError,
)

from audit_pipeline.errors import AuditError, DataError, TransientError, to_one_line
from audit_pipeline.readers.retry import is_transient_status, iterate_causes, parse_retry_after

_UNAUTHORISED, _FORBIDDEN = 401, 403
_LONGEST_REASON = 300
_Error = TypeVar("_Error", bound=BaseException)


class HubDataUnreachableError(DataError, TransientError):
    """The hub did not answer, or was too busy to: the same data may be had later."""


@dataclass(frozen=True)
class HubFault:
    """What is wrong with a model or a data set of the hub, as the end of a sentence that begins with its name.

    ``passing``: the same request may be answered later.
    """

    why: str
    passing: bool


def classify_hub_error(error: BaseException, revision: str | None = None) -> HubFault | None:
    """What an error of the hub's clients, or its cause, means; None for any other error."""
    # `datasets` hides causes, and says that it found no file.
    every = list(iterate_causes(error, with_context=True))
    if (
        isinstance(error, OSError)
        and error.errno is not None
        and not isinstance(error, (ConnectionError, TimeoutError))
    ):
        # The disk's: the client goes on with a download while it handles the fault that it met before.
        return None
    # `datasets` does not always say that it is offline by choice: its error then has no cause.
    is_unreached = _find_first_error(every, ConnectionError, LocalEntryNotFoundError) is not None
    if _find_first_error(every, OfflineModeIsEnabled) is not None or (is_unreached and constants.is_offline_mode()):
        partly = " whole" if _find_first_error(every, IncompleteSnapshotError) is not None else ""
        return HubFault(f"is not{partly} in the local hub cache, and HF_HUB_OFFLINE is set: go online", passing=False)
    refused = _find_first_error(every, HfHubHTTPError) or _find_first_error(every, httpx2.HTTPStatusError)
    if refused is not None:
        return _fault_from_refusal(refused, revision)
    lost = _find_first_error(every, httpx2.TransportError, ConnectionError, TimeoutError)
    if lost is None:
        return None
    reason = to_one_line(lost)[:_LONGEST_REASON] or type(lost).__name__
    return HubFault(f"cannot be fetched now: the hub cannot be reached, or broke off ({reason}); try again later", True)


@contextmanager
def hub_faults_as_errors(
    name: str, revision: str | None, remedy: str, lasting_error: type[AuditError], transient_error: type[AuditError]
) -> Iterator[None]:
    """Turn an error of the hub's clients into one of ours: ``transient_error`` if it may pass, else ``lasting_error``.

    The message begins with ``name`` and ends with the ``remedy``: what to do.
    """
    try:
        yield
    except (KeyError, TypeError, RecursionError, json.JSONDecodeError) as error:
        raise lasting_error(
            f"{name} cannot be fetched: unexpected answer: check that HF_ENDPOINT is the hub's address, {remedy}"
        ) from error
    except (httpx2.HTTPError, HFValidationError, RevisionResolutionError, OSError) as error:
        fault = classify_hub_error(error, revision) or HubFault(
            f"cannot be fetched: {to_one_line(error)[:_LONGEST_REASON]}", False
        )
        raise (transient_error if fault.passing else lasting_error)(f"{name} {fault.why}, {remedy}") from error


def _fault_from_refusal(error: HfHubHTTPError | httpx2.HTTPStatusError, revision: str | None) -> HubFault:
    status = error.response.status_code
    if isinstance(error, GatedRepoError):
        refused = "is gated, and HF_TOKEN may not read it: accept its terms with that account"
        unknown = "is gated: accept its terms on the hub and set HF_TOKEN in the environment"
        return HubFault(refused if status == _FORBIDDEN else unknown, False)
    if isinstance(error, RevisionNotFoundError):
        return HubFault(f"has no revision {revision}: correct it", False)
    if isinstance(error, RemoteEntryNotFoundError):
        return HubFault("has no such file: correct its name", False)
    # Without the right token the hub hides what is private.
    if isinstance(error, RepositoryNotFoundError) or status == _UNAUTHORISED:
        return HubFault("is not on the hub, or is private: check the name, or set HF_TOKEN", False)
    if is_transient_status(status):
        pause = parse_retry_after(error.response.headers.get("Retry-After"))
        wait = f" and asks to wait {pause:.0f} s" if pause is not None else ""
        return HubFault(f"cannot be fetched now: the hub is busy (status {status}){wait}; try again later", True)
    return HubFault(f"cannot be fetched: {to_one_line(error)[:_LONGEST_REASON]}", False)


def _find_first_error(errors: list[BaseException], *kinds: type[_Error]) -> _Error | None:
    return next((error for error in errors if isinstance(error, kinds)), None)
