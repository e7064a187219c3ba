"""What is tried again, how long is waited, and what is not tried again."""

from __future__ import annotations

import errno
import logging

import pytest
import requests
import torch

from audit_pipeline.endpoints.client import UnansweredError
from audit_pipeline.errors import ConfigError, DataError, ModelError, TransientError
from audit_pipeline.models.locate import HubUnreachableError
from audit_pipeline.operate.dagster.retries import RETRY_POLICY, is_transient, with_retries

LOG = logging.getLogger(__name__)


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        TransientError("the hub does not answer"),
        ConnectionResetError(),
        TimeoutError(),
        requests.ConnectionError(),
        requests.Timeout(),
        torch.OutOfMemoryError("CUDA out of memory"),
        OSError(errno.EIO, "input/output error"),
        OSError(errno.ESTALE, "stale file handle"),
        caused(ModelError("cannot be fetched"), requests.ConnectionError()),
        HubUnreachableError("the hub cannot be reached"),
    ],
)
def test_faults_of_the_surroundings_are_transient(error: Exception) -> None:
    assert is_transient(error)


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("no such key"),
        DataError("one class only"),
        ModelError("no model at /nowhere"),
        OSError(errno.ENOSPC, "no space left on device"),
        FileNotFoundError(errno.ENOENT, "no such file"),
        PermissionError(errno.EACCES, "permission denied"),
        ValueError("a bug"),
        requests.HTTPError("404"),
        requests.exceptions.SSLError("certificate verify failed"),
        caused(DataError("cannot be read"), ValueError("a bug")),
    ],
)
def test_bad_input_a_full_disk_and_bugs_are_not(error: Exception) -> None:
    assert not is_transient(error)


def test_waits_get_longer_and_the_value_comes_through(caplog: pytest.LogCaptureFixture) -> None:
    faults = iter([TimeoutError("one"), ConnectionResetError("two")])
    waits: list[float] = []

    def run() -> str:
        for fault in faults:
            raise fault
        return "done"

    with caplog.at_level(logging.WARNING):
        assert with_retries(run, "a pair", LOG, waits.append) == "done"
    assert len(waits) == 2
    assert 2 <= waits[0] <= 3
    assert 4 <= waits[1] <= 5
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [
        "a pair: attempt 1 of 4 failed",
        "a pair: attempt 2 of 4 failed",
    ]
    assert "one" in caplog.text


def test_a_fault_that_stays_is_raised_after_the_last_attempt() -> None:
    attempts: list[int] = []

    def run() -> None:
        attempts.append(len(attempts))
        raise TimeoutError(f"attempt {len(attempts)}")

    with pytest.raises(TimeoutError, match=f"attempt {RETRY_POLICY.attempts}"):
        with_retries(run, "a pair", LOG, lambda seconds: None)
    assert len(attempts) == RETRY_POLICY.attempts


def test_bad_input_is_raised_at_once() -> None:
    attempts: list[int] = []

    def run() -> None:
        attempts.append(1)
        raise DataError("one class only")

    with pytest.raises(DataError):
        with_retries(run, "a pair", LOG, lambda seconds: pytest.fail("waited"))
    assert attempts == [1]


def test_a_server_that_was_asked_patiently_is_not_asked_all_over_again() -> None:
    calls: list[int] = []

    def run() -> None:
        calls.append(1)
        raise UnansweredError("no answer (after 8 attempts)", 503)

    with pytest.raises(UnansweredError):
        with_retries(run, "a pair", LOG, lambda seconds: None)
    assert calls == [1]
    assert is_transient(UnansweredError("no answer", None)), "the pair failed, and is run again"
