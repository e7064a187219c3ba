"""The policy of retries: transient faults, the pauses, and the Retry-After header."""

from __future__ import annotations

import errno
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from unittest.mock import Mock

import pytest
import requests

from audit_pipeline.http.faults import (
    RetryableError,
    RetryPolicy,
    build_retryer,
    format_public_error,
    is_transient_fault,
    iterate_causes,
    parse_retry_after,
)


def answered(status: int) -> requests.HTTPError:
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError(f"{status}", response=response)


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        *((answered(status), True) for status in (408, 425, 429, 500, 502, 503, 504, 520)),
        *((answered(status), False) for status in (400, 401, 404, 410, 501, 505)),
        (requests.HTTPError("no answer at all"), False),
        (requests.exceptions.ChunkedEncodingError(), True),
        (requests.exceptions.SSLError("certificate verify failed"), False),
        (OSError(errno.ECONNREFUSED, "refused"), True),
        (OSError(errno.ENOSPC, "no space left on device"), False),
    ],
)
def test_transient_faults_are_recognised(error: Exception, passes: bool) -> None:
    assert is_transient_fault(error) is passes
    around = RuntimeError("wrapper")
    around.__cause__ = error
    assert is_transient_fault(around) is passes


def test_pauses_double_up_to_the_maximum() -> None:
    waits: list[float] = []
    run = build_retryer(RetryPolicy(5, 1.0, max_pause=3.0), is_transient_fault, sleep=waits.append)
    assert run(Mock(side_effect=[*[TimeoutError()] * 4, "done"])) == "done"
    assert waits == [1, 2, 3, 3]


def test_jitter_only_lengthens_pauses() -> None:
    waits: list[float] = []
    build_retryer(RetryPolicy(30, 1.0, max_pause=1.0, jitter=0.5), is_transient_fault, sleep=waits.append)(
        Mock(side_effect=[*[TimeoutError()] * 29, "done"])
    )
    assert all(1 <= wait <= 1.5 for wait in waits)
    assert len(set(waits)) > 1


@pytest.mark.parametrize(("pause", "expected"), [(10.0, [10, 10, 10]), (1.5, [1.5, 2, 4]), (None, [1, 2, 4])])
def test_no_pause_is_shorter_than_the_server_requests(pause: float | None, expected: list[float]) -> None:
    waits: list[float] = []
    run = build_retryer(RetryPolicy(4, 1.0), lambda error: isinstance(error, RetryableError), sleep=waits.append)
    assert run(Mock(side_effect=[*[RetryableError("busy", pause_seconds=pause)] * 3, "done"])) == "done"
    assert waits == expected


def test_the_last_transient_error_is_raised_and_other_errors_at_once() -> None:
    waits: list[float] = []
    run = build_retryer(RetryPolicy(3, 1.0), is_transient_fault, sleep=waits.append)
    with pytest.raises(TimeoutError):
        run(Mock(side_effect=TimeoutError()))
    assert len(waits) == 2
    with pytest.raises(ValueError, match="a bug"):
        run(Mock(side_effect=ValueError("a bug")))
    assert len(waits) == 2


def test_retry_after_is_a_number_or_a_date() -> None:
    assert parse_retry_after(" 12 ") == 12
    assert parse_retry_after(None) is parse_retry_after("soon") is None
    assert parse_retry_after(f"Wed, 21 Oct {10**30} 07:28:00 GMT") is None
    in_a_minute = datetime.now(UTC) + timedelta(seconds=60)
    for given in (format_datetime(in_a_minute, usegmt=True), format_datetime(in_a_minute.replace(tzinfo=None))):
        assert 55 < (parse_retry_after(given) or 0) <= 60
    assert parse_retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0


def test_messages_contain_no_password() -> None:
    assert (
        format_public_error(ValueError("https://me:secret@example.org/a is lost\nand more"))
        == "https://***@example.org/a is lost"
    )
    assert format_public_error(TimeoutError()) == "TimeoutError"


def test_causes_in_a_circle_are_listed_once() -> None:
    first, wrapper = ValueError("first"), RuntimeError("wrapper")
    wrapper.__cause__, first.__cause__ = first, wrapper
    assert list(iterate_causes(first)) == [first, wrapper]
    assert list(iterate_causes(wrapper, with_context=True)) == [wrapper, first]
