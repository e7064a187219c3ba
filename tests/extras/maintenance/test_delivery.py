"""The POST request with changed findings to a webhook, whose address stays secret."""

from __future__ import annotations

import json
import socket
import traceback

import pytest
from pytest_httpserver import HTTPServer

from audit_pipeline.errors import DataError
from audit_pipeline.extras.maintenance import sensors
from audit_pipeline.extras.maintenance.sensors import WEBHOOK, post_changes

SECRET = "T00SECRETB00"
PATH = f"/services/{SECRET}"
CHANGES = {("tiny", "notes_32"): "tiny on notes_32: \udcff", ("tiny", "notes_64"): "tiny on notes_64: changed"}


def test_all_changes_arrive_in_one_request(httpserver: HTTPServer) -> None:
    httpserver.expect_request(PATH, method="POST", query_string=f"token={SECRET}").respond_with_data("")
    post_changes(CHANGES, httpserver.url_for(f"{PATH}?token={SECRET}"))
    [(request, _)] = httpserver.log
    assert json.loads(request.data) == {
        "text": "tiny on notes_32: \udcff\ntiny on notes_64: changed",
        "changes": [
            {"model": "tiny", "benchmark": "notes_32", "change": "tiny on notes_32: \udcff"},
            {"model": "tiny", "benchmark": "notes_64", "change": "tiny on notes_64: changed"},
        ],
    }


@pytest.mark.parametrize("status", [302, 404, 429, 503])
def test_a_refused_request_is_an_error_and_not_repeated(httpserver: HTTPServer, status: int) -> None:
    headers = {"Location": httpserver.url_for("/elsewhere")}
    httpserver.expect_request(PATH).respond_with_data("", status, headers)
    with pytest.raises(DataError, match=f"did not accept the changes .*{status}.* Check the address in .* {WEBHOOK}"):
        post_changes(CHANGES, httpserver.url_for(PATH))
    assert len(httpserver.log) == 1


@pytest.mark.parametrize("address", ["http://user:{0}@localhost:{1}/{0}?a={0}", "ftp://localhost/{0}", "{0}"])
def test_an_unreachable_address_stays_secret(caplog: pytest.LogCaptureFixture, address: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DataError, match="did not accept the changes") as raised:
        post_changes(CHANGES, address.format(SECRET, port))
    assert SECRET not in "".join(traceback.format_exception_only(raised.value))
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__, "no trace shows the address"
    assert SECRET not in caplog.text


def test_a_silent_webhook_ends_after_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensors, "_TIMEOUT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(DataError, match="did not accept"):
        post_changes(CHANGES, f"http://127.0.0.1:{silent.getsockname()[1]}/{SECRET}")
