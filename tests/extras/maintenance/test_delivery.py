"""Alerts reach a webhook on the loopback interface, or the file; none is lost, and the address stays secret."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from audit_pipeline.extras.maintenance import alerts as module
from audit_pipeline.extras.maintenance.alerts import WEBHOOK, Alert, build_payload, deliver
from audit_pipeline.http.retry import RetryPolicy
from audit_pipeline.store.paths import DataPaths

SECRET = "T00SECRETB00"
SHIPPED = module.RETRY_POLICY
ALERT = Alert("run_failed", "the run\nfailed", ("step scores: \udcff",), {"run_id": "r1"}, "2026-11-21T09:30:00+00:00")
CONTENT = {
    "text": "the run\nfailed\nstep scores: \udcff",
    "kind": "run_failed",
    "title": "the run\nfailed",
    "lines": ["step scores: \udcff"],
    "details": {"run_id": "r1"},
    "at": "2026-11-21T09:30:00+00:00",
}


@dataclass
class Hook:
    """A webhook: the statuses that it answers with first, and what arrived."""

    port: int = 0
    statuses: list[int] = field(default_factory=list)
    received: list[dict[str, Any]] = field(default_factory=list)


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WEBHOOK, raising=False)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(module, "RETRY_POLICY", RetryPolicy(SHIPPED.attempts, first_pause=0.001))


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    hook = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            hook.received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(hook.statuses.pop(0) if hook.statuses else 200)
            self.send_header("Location", f"http://127.0.0.1:{hook.port}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hook.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        monkeypatch.setenv(WEBHOOK, f"http://127.0.0.1:{hook.port}/services/{SECRET}?token={SECRET}")
        yield hook
        server.shutdown()


@pytest.fixture
def paths(tmp_path: Path) -> DataPaths:
    return DataPaths(tmp_path / "data")


def kept(paths: DataPaths) -> list[dict[str, Any]]:
    return [json.loads(line) for line in paths.alerts.read_text(encoding="utf-8").splitlines()]


def test_a_chat_service_is_shown_thirty_lines_and_a_program_gets_all() -> None:
    long = build_payload(Alert("finding_changed", "many", tuple(f"pair {number}" for number in range(100)), {}))
    assert str(long["text"]).splitlines() == ["many", *(f"pair {number}" for number in range(30)), "... and 70 more"]
    assert len(long["lines"]) == 100  # type: ignore[arg-type]


@pytest.mark.parametrize("statuses", [[], [429], [503]])
def test_an_alert_is_posted_until_it_arrives(hook: Hook, paths: DataPaths, statuses: list[int]) -> None:
    expected = len(statuses) + 1
    hook.statuses = statuses
    assert deliver(ALERT, paths) == "sent to 127.0.0.1"
    assert hook.received == [CONTENT] * expected
    assert not paths.alerts.exists()


@pytest.mark.parametrize(("status", "tries"), [(503, 2), (302, 1), (404, 1)])
def test_a_refused_alert_is_kept_in_the_file(hook: Hook, paths: DataPaths, status: int, tries: int) -> None:
    hook.statuses = [status] * tries
    reason = f"127.0.0.1 answered with status {status}: check CORPUS_AUDIT_WEBHOOK"
    assert deliver(ALERT, paths) == f"written to {paths.alerts}: {reason}"
    assert len(hook.received) == tries
    assert kept(paths) == [{**CONTENT, "not_delivered": reason}]


def test_the_runs_of_a_tick_are_reported_within_a_minute() -> None:
    assert 5 * (SHIPPED.attempts * module.TIMEOUT + SHIPPED.first_pause) < 60


@pytest.mark.parametrize("address", ["http://user:{0}@localhost:{1}/{0}?a={0}", "ftp://localhost/{0}", "{0}"])
def test_an_address_that_cannot_be_reached_stays_secret(
    paths: DataPaths, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, address: str
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv(WEBHOOK, address.format(SECRET, port))
    delivered = deliver(ALERT, paths)
    assert "failed (" in delivered
    [line] = kept(paths)
    assert delivered.endswith(line["not_delivered"])
    for text in (delivered, caplog.text, paths.alerts.read_text()):
        assert SECRET not in text


def test_a_silent_webhook_keeps_the_alert(paths: DataPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv(WEBHOOK, f"http://127.0.0.1:{silent.getsockname()[1]}/{SECRET}")
        assert "the request to 127.0.0.1 failed (ReadTimeout)" in deliver(ALERT, paths)
    assert len(kept(paths)) == 1


def test_without_a_webhook_alerts_go_to_the_file(paths: DataPaths) -> None:
    reason = "CORPUS_AUDIT_WEBHOOK is not set"
    for _ in range(2):
        assert deliver(ALERT, paths) == f"written to {paths.alerts}: {reason}"
    assert kept(paths) == [{**CONTENT, "not_delivered": reason}] * 2
