"""Changes of findings reach a webhook on the loopback interface in one request, and its address stays secret."""

from __future__ import annotations

import json
import socket
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from audit_pipeline.errors import DataError
from audit_pipeline.extras.maintenance import sensors
from audit_pipeline.extras.maintenance.sensors import WEBHOOK, post_changes

SECRET = "T00SECRETB00"
CHANGES = {("tiny", "notes_32"): "tiny on notes_32: \udcff", ("tiny", "notes_64"): "tiny on notes_64: changed"}


@dataclass
class Hook:
    """A webhook: its status, and the bodies of the requests."""

    url: str = ""
    status: int = 200
    received: list[dict[str, Any]] = field(default_factory=list)


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def hook() -> Iterator[Hook]:
    hook = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            hook.received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(hook.status)
            self.send_header("Location", f"{hook.url}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hook.url = f"http://127.0.0.1:{server.server_address[1]}/services/{SECRET}?token={SECRET}"
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield hook
        server.shutdown()


def test_all_changes_arrive_in_one_request(hook: Hook) -> None:
    post_changes(CHANGES, hook.url)
    assert hook.received == [
        {
            "text": "tiny on notes_32: \udcff\ntiny on notes_64: changed",
            "changes": [
                {"model": "tiny", "benchmark": "notes_32", "change": "tiny on notes_32: \udcff"},
                {"model": "tiny", "benchmark": "notes_64", "change": "tiny on notes_64: changed"},
            ],
        }
    ]


@pytest.mark.parametrize("status", [302, 404, 429, 503])
def test_a_request_that_is_not_accepted_is_an_error_and_not_repeated(hook: Hook, status: int) -> None:
    hook.status = status
    with pytest.raises(DataError, match=f"did not accept the changes .*{status}.* Check {WEBHOOK}"):
        post_changes(CHANGES, hook.url)
    assert len(hook.received) == 1


@pytest.mark.parametrize("address", ["http://user:{0}@localhost:{1}/{0}?a={0}", "ftp://localhost/{0}", "{0}"])
def test_an_address_that_cannot_be_reached_stays_secret(caplog: pytest.LogCaptureFixture, address: str) -> None:
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
