"""Retries: the errors that are repeated, and the waits."""

from __future__ import annotations

import logging

import pytest
import requests
import torch
from huggingface_hub.errors import OfflineModeIsEnabled

from audit_pipeline.errors import DataError, ModelError, UnansweredError
from audit_pipeline.models.locate import HubUnreachableError
from audit_pipeline.pipeline.dagster.partition_step import is_transient, run_with_retries

LOG = logging.getLogger(__name__)


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (caused(ModelError("cannot be run"), torch.OutOfMemoryError("CUDA out of memory")), True),
        (HubUnreachableError("the hub cannot be reached"), True),
        (caused(ModelError("cannot be fetched"), requests.ConnectionError()), True),
        (caused(ModelError("cannot be fetched"), OfflineModeIsEnabled("the hub is turned off")), False),
        (DataError("one class only"), False),
        (caused(DataError("cannot be read"), ValueError("a bug")), False),
    ],
)
def test_a_full_graphics_card_is_a_fault_that_passes_and_a_hub_that_is_turned_off_is_none(
    error: Exception, expected: bool
) -> None:
    """tests/readers/test_retry.py has the other transient errors."""
    assert is_transient(error) is expected


def test_waits_get_longer_and_the_value_comes_through(caplog: pytest.LogCaptureFixture) -> None:
    faults = iter([TimeoutError("one"), ConnectionResetError("two")])
    waits: list[float] = []

    def run() -> str:
        for fault in faults:
            raise fault
        return "done"

    with caplog.at_level(logging.WARNING):
        assert run_with_retries(run, "a pair", LOG, waits.append) == "done"
    assert len(waits) == 2
    assert 2 <= waits[0] <= 3
    assert 4 <= waits[1] <= 5
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [
        "a pair: attempt 1 of 4 failed",
        "a pair: attempt 2 of 4 failed",
    ]
    assert "one" in caplog.text


@pytest.mark.parametrize("error", [DataError("one class only"), UnansweredError("no answer (after 8 attempts)", 503)])
def test_bad_input_and_a_server_that_was_asked_patiently_are_raised_at_once(error: Exception) -> None:
    attempts: list[int] = []

    def run() -> None:
        attempts.append(1)
        raise error

    with pytest.raises(type(error)):
        run_with_retries(run, "a pair", LOG, lambda seconds: pytest.fail("waited"))
    assert attempts == [1]
    assert is_transient(UnansweredError("no answer", None)), "the pair failed, and is run again"
