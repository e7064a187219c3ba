"""Limits for the HTTP client of huggingface_hub, and messages for errors of the Hugging Face hub.

Importing this module replaces the HTTP client of huggingface_hub, which transformers and `datasets` use as well. The
new client has a timeout and a maximum length of responses. huggingface_hub itself repeats failed requests. The limits
do not apply to files in Xet storage, because hf_xet downloads them by a transport that cannot be replaced.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import httpx2
from huggingface_hub import constants, get_session, set_client_factory
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
from audit_pipeline.http.client import build_library_client
from audit_pipeline.http.faults import HttpError, RetryableError, is_transient_status, iterate_causes, parse_retry_after
from audit_pipeline.http.response_guard import LIMIT_EXTENSION

HUB_ERRORS = (httpx2.HTTPError, HttpError, HFValidationError, RevisionResolutionError, OSError)
"""The errors that a request to the hub can raise: errors of its clients, of the disk and of the network."""

_UNAUTHORISED = 401
_FORBIDDEN = 403
_FIRST_ERROR_STATUS = 400
_MAX_REASON_LENGTH = 300
# Timeout of a response, in seconds. The hub's own client has no timeout for listings.
_TIMEOUT = 60.0
# A listing of a million files has about 100 MB.
_MAX_LISTING_BYTES = 256 << 20
_Error = TypeVar("_Error", bound=BaseException)


class HubDataUnreachableError(DataError, TransientError):
    """An error for a data set of the hub that may be available later: the hub did not respond, or was too busy."""


@dataclass(frozen=True)
class HubFault:
    """A problem with a model or a data set of the hub.

    Attributes:
        reason: The end of a sentence that begins with the name of the model or data set.
        is_transient: True if the same request may succeed later.
    """

    reason: str
    is_transient: bool


def _limit_response(response: httpx2.Response) -> None:
    """Set the maximum length of a response with a listing or an error.

    Files have no maximum length. The clients of the hub verify the length of files themselves.
    """
    is_listing = response.request.url.path.startswith("/api/")
    limit = _MAX_LISTING_BYTES if is_listing or response.status_code >= _FIRST_ERROR_STATUS else None
    response.request.extensions = {**response.request.extensions, LIMIT_EXTENSION: limit}


def _install_client() -> None:
    # The hub's default client has hooks that block requests if HF_HUB_OFFLINE is set. The new client needs them, too.
    request_hooks = get_session().event_hooks["request"]
    set_client_factory(lambda: build_library_client(_TIMEOUT, request_hooks, _limit_response))


_install_client()


def classify_hub_error(error: BaseException, revision: str | None = None) -> HubFault | None:
    """Return the problem with the hub that caused an error, or None if the hub did not cause it.

    Args:
        error: The error. Its causes are examined as well.
        revision: The requested revision.
    """
    # `datasets` reports that a file was not found, and the actual error is only in the context of its error.
    errors = list(iterate_causes(error, with_context=True))
    is_network_error = isinstance(error, (ConnectionError, TimeoutError))
    if isinstance(error, OSError) and error.errno is not None and not is_network_error:
        # This is an error of the disk, not of the hub. Its context may be a network error that was already handled.
        return None
    # If HF_HUB_OFFLINE is set, some errors of `datasets` have no cause that shows it.
    is_unreached = _find_first_error(errors, ConnectionError, LocalEntryNotFoundError) is not None
    if _find_first_error(errors, OfflineModeIsEnabled) is not None or (is_unreached and constants.is_offline_mode()):
        is_partial = _find_first_error(errors, IncompleteSnapshotError) is not None
        partly = " complete" if is_partial else ""
        return HubFault(
            f"is not{partly} in the local hub cache, and HF_HUB_OFFLINE forbids requests: unset HF_HUB_OFFLINE",
            is_transient=False,
        )
    refusal = _find_first_error(errors, HfHubHTTPError) or _find_first_error(errors, httpx2.HTTPStatusError)
    if refusal is not None:
        return _classify_refusal(refusal, revision)
    network_error = _find_first_error(errors, httpx2.TransportError, RetryableError, ConnectionError, TimeoutError)
    if network_error is None:
        return None
    reason = _shorten_message(network_error) or type(network_error).__name__
    return HubFault(
        f"cannot be fetched now, because the hub cannot be reached or the connection failed ({reason}): try again "
        "later",
        True,
    )


@contextmanager
def convert_hub_errors(
    name: str, revision: str | None, remedy: str, lasting_error: type[AuditError], transient_error: type[AuditError]
) -> Iterator[None]:
    """Convert errors of the hub's clients that the block raises to errors of this project.

    Args:
        name: The beginning of the message: the model or data set.
        revision: The requested revision.
        remedy: The end of the message: what the user can do.
        lasting_error: The class to raise if the same request would fail again.
        transient_error: The class to raise if the same request may succeed later.
    """
    try:
        yield
    except (KeyError, TypeError, RecursionError, json.JSONDecodeError) as error:
        raise lasting_error(
            f"{name} cannot be fetched, because the response is unexpected: "
            f"check that HF_ENDPOINT is the hub's address, {remedy}"
        ) from error
    except HUB_ERRORS as error:
        fault = classify_hub_error(error, revision)
        if fault is None:
            fault = HubFault(f"cannot be fetched: {_shorten_message(error)}", is_transient=False)
        error_class = transient_error if fault.is_transient else lasting_error
        raise error_class(f"{name} {fault.reason}, {remedy}") from error


def _classify_refusal(error: HfHubHTTPError | httpx2.HTTPStatusError, revision: str | None) -> HubFault:
    status = error.response.status_code
    if isinstance(error, GatedRepoError):
        reason = "is gated: accept its terms on the hub, and set HF_TOKEN to a token of your account"
        if status == _FORBIDDEN:
            reason = (
                "is gated, and the account of HF_TOKEN has no access: accept its terms on the hub with this account"
            )
        return HubFault(reason, False)
    if isinstance(error, RevisionNotFoundError):
        return HubFault(f"has no revision {revision}: correct the revision", False)
    if isinstance(error, RemoteEntryNotFoundError):
        return HubFault("lacks the requested file on the hub: correct the name of the file", False)
    # The hub reports a private repository as missing if the token does not permit access.
    if isinstance(error, RepositoryNotFoundError) or status == _UNAUTHORISED:
        return HubFault("is not on the hub, or is private: correct the name, or set HF_TOKEN", False)
    if is_transient_status(status):
        pause = parse_retry_after(error.response.headers.get("Retry-After"))
        wait = f" and requests a pause of {pause:.0f} s" if pause is not None else ""
        return HubFault(
            f"cannot be fetched now, because the hub is busy (status {status}){wait}: try again later", True
        )
    return HubFault(f"cannot be fetched: {_shorten_message(error)}", False)


def _find_first_error(errors: list[BaseException], *kinds: type[_Error]) -> _Error | None:
    return next((error for error in errors if isinstance(error, kinds)), None)


def _shorten_message(error: BaseException) -> str:
    return to_one_line(error)[:_MAX_REASON_LENGTH]
