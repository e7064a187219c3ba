"""Messages for errors of the hub: whether they are transient, and what to do. Their cause may be hidden."""

from __future__ import annotations

import httpx2
import pytest
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from audit_pipeline.errors import DataError
from audit_pipeline.pipeline.dagster.partition_step import is_transient
from audit_pipeline.readers.hub_faults import HubDataUnreachableError, classify_hub_error, convert_hub_errors


def refused(status: int, kind: type[HfHubHTTPError] = HfHubHTTPError, **headers: str) -> HfHubHTTPError:
    request = httpx2.Request("GET", "http://127.0.0.1/")
    return kind(
        "what the hub said\n\nover two lines", response=httpx2.Response(status, headers=headers, request=request)
    )


def chained(error: Exception, cause: Exception, *, is_hidden: bool = False) -> Exception:
    """Return the error with a cause, or with a hidden context as in errors of `datasets` about missing files."""
    if is_hidden:
        error.__context__ = cause
        error.__suppress_context__ = True
    else:
        error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "why", "passing"),
    [
        (refused(401, GatedRepoError), "is gated: accept its terms on the hub, and set HF_TOKEN", False),
        (refused(403, GatedRepoError), "is gated, and the account of HF_TOKEN has no access", False),
        (refused(404, RevisionNotFoundError), "has no revision v1", False),
        (refused(404, RepositoryNotFoundError), "is not on the hub, or is private", False),
        (refused(401), "is not on the hub, or is private", False),
        (refused(403), "cannot be fetched: what the hub said over two lines", False),
        (
            refused(429, **{"Retry-After": "7"}),
            r"the hub is busy \(status 429\) and requests a pause of 7 s: try again",
            True,
        ),
        (refused(500), r"the hub is busy \(status 500\): try again later", True),
        (refused(501), "cannot be fetched: ", False),
        (chained(LocalEntryNotFoundError("none here"), refused(503)), r"the hub is busy \(status 503\)", True),
        (
            chained(FileNotFoundError("no data file"), refused(503), is_hidden=True),
            r"the hub is busy \(status 503\)",
            True,
        ),
        (
            chained(LocalEntryNotFoundError("none here"), httpx2.ConnectError("refused")),
            "the connection failed .refused.",
            True,
        ),
        (httpx2.ReadError(""), r"cannot be reached or the connection failed \(ReadError\)", True),
        (ConnectionError("Couldn't reach it"), "the connection failed .Couldn't reach it.", True),
        (TimeoutError("timed out"), "the connection failed .timed out.", True),
        (
            OfflineModeIsEnabled("off"),
            "is not in the local hub cache, and HF_HUB_OFFLINE forbids requests: unset",
            False,
        ),
    ],
)
def test_errors_of_the_hub_are_classified_and_explained(error: Exception, why: str, passing: bool) -> None:
    fault = classify_hub_error(error, "v1")
    assert fault is not None
    assert fault.is_transient is passing
    with (
        pytest.raises(DataError, match=f"^x/y .*{why}.*, or do without$") as raised,
        convert_hub_errors("x/y", "v1", "or do without", DataError, HubDataUnreachableError),
    ):
        raise error
    assert "\n" not in str(raised.value)
    assert is_transient(raised.value) is passing
