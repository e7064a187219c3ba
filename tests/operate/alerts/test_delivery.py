"""Alerts reach a webhook on the loopback interface, or the file; none is lost, and the address stays secret."""

from __future__ import annotations

import json
import logging
import socket
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import ConfigError, TransientError
from audit_pipeline.fetch.retry import RetryPolicy
from audit_pipeline.operate import alerts as module
from audit_pipeline.operate.alerts import INSECURE, WEBHOOK, Alert, NotKeptError, deliver, payload

SECRET = "T00SECRETB00"
SHIPPED = module.RETRY_POLICY
AT = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
ALERT = Alert("run_failed", "the run failed", ("step scores: no memory",), {"run_id": "r1", "at": AT}, AT)


@dataclass
class Hook:
    """A webhook: the statuses that it answers with first, and what arrived."""

    port: int = 0
    statuses: list[int] = field(default_factory=list)
    got: list[dict[str, Any]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/services/{SECRET}?token={SECRET}"


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (WEBHOOK, INSECURE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(module, "RETRY_POLICY", RetryPolicy(SHIPPED.attempts, first=0.001, longest=0.01))


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    made = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            logging.getLogger("urllib3.connectionpool").warning("of another thread")
            made.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            made.headers |= dict(self.headers)
            status = made.statuses.pop(0) if made.statuses else 200
            self.send_response(status)
            if status in (301, 302):
                self.send_header("Location", f"http://127.0.0.1:{made.port}/elsewhere")
            if status == 429:
                self.send_header("Retry-After", "3600")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    monkeypatch.setenv(WEBHOOK, made.url)
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def paths(tmp_path: Path) -> DataPaths:
    return DataPaths(tmp_path / "data")


def kept(paths: DataPaths) -> list[dict[str, Any]]:
    if not paths.alerts.exists():
        return []
    return [json.loads(line) for line in paths.alerts.read_text(encoding="utf-8").splitlines()]


def test_the_payload_has_text_for_people_and_fields_for_programs() -> None:
    assert payload(ALERT) == {
        "text": "the run failed\nstep scores: no memory",
        "kind": "run_failed",
        "title": "the run failed",
        "lines": ["step scores: no memory"],
        "details": {"run_id": "r1", "at": AT},
        "at": "2026-11-21T09:30:00+00:00",
    }
    long = payload(Alert("finding_changed", "many", tuple(f"pair {number}" for number in range(100))))
    assert str(long["text"]).splitlines() == ["many", *(f"pair {number}" for number in range(30)), "... and 70 more"]
    assert len(long["lines"]) == 100  # type: ignore[arg-type]


def test_an_alert_is_posted_once(hook: Hook, paths: DataPaths) -> None:
    assert deliver(ALERT, paths) == "sent to 127.0.0.1"
    assert hook.got == [json.loads(json.dumps(payload(ALERT), default=str))]
    assert hook.headers["Content-Type"] == "application/json"
    assert kept(paths) == []


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_busy_webhook_is_asked_again(hook: Hook, paths: DataPaths, status: int) -> None:
    hook.statuses = [status, status]
    assert deliver(ALERT, paths) == "sent to 127.0.0.1"
    assert len(hook.got) == 3
    assert kept(paths) == []


def test_a_webhook_that_stays_busy_keeps_the_alert_in_the_file(hook: Hook, paths: DataPaths) -> None:
    hook.statuses = [503] * 50
    with pytest.raises(TransientError, match=r"127.0.0.1 answered with status 503; it is kept in .*alerts.jsonl"):
        deliver(ALERT, paths)
    assert len(hook.got) == 4
    assert [(line["title"], line["not_delivered"]) for line in kept(paths)] == [
        ("the run failed", "127.0.0.1 answered with status 503")
    ]


@pytest.mark.parametrize("status", [301, 302, 400, 404, 410])
def test_an_address_that_its_host_refuses_is_not_asked_again(hook: Hook, paths: DataPaths, status: int) -> None:
    hook.statuses = [status]
    with pytest.raises(ConfigError, match=rf"127.0.0.1 answered with status {status}: check CORPUS_AUDIT_WEBHOOK"):
        deliver(ALERT, paths)
    assert len(hook.got) == 1
    assert len(kept(paths)) == 1


def test_all_tries_end_within_a_tick_of_a_minute() -> None:
    assert SHIPPED.attempts == 4
    assert SHIPPED.attempts * module.TIMEOUT + (SHIPPED.attempts - 1) * SHIPPED.longest < 60


def dead_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_a_dead_port_keeps_the_alert_and_tells_no_secret(
    paths: DataPaths,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv(WEBHOOK, f"http://user:{SECRET}@localhost:{dead_port()}/{SECRET}?a={SECRET}")
    with pytest.raises(TransientError, match="localhost cannot be reached") as caught:
        deliver(ALERT, paths)
    shown = "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    captured = capfd.readouterr()
    for text in (shown, caplog.text, captured.out, captured.err, paths.alerts.read_text()):
        assert SECRET not in text
    assert len(kept(paths)) == 1


def test_nothing_logged_names_the_address(hook: Hook, paths: DataPaths, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    hook.statuses = [500]
    deliver(ALERT, paths)
    assert SECRET not in caplog.text
    assert "of another thread" in caplog.text
    caplog.clear()
    logging.getLogger("urllib3.connectionpool").warning("of this thread, later")
    assert "of this thread, later" in caplog.text


def test_a_silent_webhook_is_a_passing_fault(paths: DataPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.1)
    monkeypatch.setattr(module, "RETRY_POLICY", RetryPolicy(attempts=2, first=0.001))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv(WEBHOOK, f"http://127.0.0.1:{silent.getsockname()[1]}/{SECRET}")
        with pytest.raises(TransientError, match=r"127.0.0.1 (cannot be reached, or does not|did not) answer"):
            deliver(ALERT, paths)
    assert len(kept(paths)) == 1


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (f"http://hooks.invalid/{SECRET}", "names hooks.invalid without encryption: use https, or set"),
        (f"http://127.0.0.1.invalid/{SECRET}", "names 127.0.0.1.invalid without encryption"),
        (f"ftp://127.0.0.1/{SECRET}", "is not an address"),
        (f"file:///{SECRET}", "is not an address"),
        (SECRET, "is not an address"),
        (f"https://[::1/{SECRET}", "is not an address"),
        (f"https://127.0.0.1:port/{SECRET}", "is not an address"),
        (f"https://a..b/{SECRET}", "cannot be reached|the request to a..b failed"),
    ],
)
def test_an_address_that_may_not_be_used_keeps_the_alert(
    paths: DataPaths, monkeypatch: pytest.MonkeyPatch, url: str, told: str
) -> None:
    monkeypatch.setenv(WEBHOOK, url)
    with pytest.raises((ConfigError, TransientError), match=told) as caught:
        deliver(ALERT, paths)
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert SECRET not in paths.alerts.read_text()
    assert len(kept(paths)) == 1


def test_a_trusted_network_can_be_named(hook: Hook, paths: DataPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    # A name that resolves to this machine but is not known to.
    monkeypatch.setenv(WEBHOOK, hook.url.replace("127.0.0.1", socket.gethostname()))
    with pytest.raises(ConfigError, match="without encryption"):
        deliver(ALERT, paths)
    monkeypatch.setenv(INSECURE, "1")
    monkeypatch.setattr(socket, "getaddrinfo", _to_loopback(socket.getaddrinfo))
    assert deliver(ALERT, paths) == f"sent to {socket.gethostname().lower()}"
    assert len(hook.got) == 1


def _to_loopback(resolve: Any) -> Any:
    return lambda host, *rest, **named: resolve("127.0.0.1", *rest, **named)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]"])
def test_every_loopback_address_may_go_without_encryption(
    paths: DataPaths, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv(WEBHOOK, f"http://{host}:{dead_port()}/x")
    with pytest.raises(TransientError, match="cannot be reached"):
        deliver(ALERT, paths)


@pytest.mark.parametrize("host", ["10.0.0.1", "localhost.example", "0.0.0.0", "[::2]", "127.0.0.1.example"])
def test_no_other_address_may(paths: DataPaths, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv(WEBHOOK, f"http://{host}:{dead_port()}/x")
    with pytest.raises(ConfigError, match="without encryption"):
        deliver(ALERT, paths)


@pytest.mark.parametrize("value", [None, "", "  "])
def test_without_a_webhook_the_alert_goes_to_the_file(
    paths: DataPaths, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    if value is not None:
        monkeypatch.setenv(WEBHOOK, value)
    assert deliver(ALERT, paths) == f"written to {paths.alerts} (CORPUS_AUDIT_WEBHOOK is not set)"
    deliver(Alert("finding_changed", "a title\nof two lines", ("line\u2028 \udcff",)), paths)
    assert [line["title"] for line in kept(paths)] == ["the run failed", "a title\nof two lines"]
    assert kept(paths)[0] == json.loads(json.dumps(payload(ALERT), default=str))


def test_ten_threads_lose_no_alert(paths: DataPaths) -> None:
    def tell(number: int) -> None:
        for turn in range(5):
            deliver(Alert("run_failed", f"{number}-{turn}", ("x" * 20_000,)), paths)

    with ThreadPoolExecutor(10) as threads:
        list(threads.map(tell, range(10)))
    assert sorted(line["title"] for line in kept(paths)) == sorted(
        f"{n}-{turn}" for n in range(10) for turn in range(5)
    )


def test_a_line_without_an_end_swallows_no_alert(paths: DataPaths) -> None:
    paths.root.mkdir()
    paths.alerts.write_bytes(b'{"title": "cut sho')
    deliver(ALERT, paths)
    deliver(ALERT, paths)
    lines = paths.alerts.read_text().splitlines()
    assert lines[0] == '{"title": "cut sho'
    assert [json.loads(line)["title"] for line in lines[1:]] == ["the run failed"] * 2


def test_a_file_that_cannot_be_written_says_what_was_to_be_told(
    paths: DataPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths.alerts.mkdir(parents=True)
    with pytest.raises(NotKeptError, match=r"cannot be written to .*alerts.jsonl \(.*directory.*\): the run failed"):
        deliver(ALERT, paths)
    paths.alerts.rmdir()
    monkeypatch.setattr(module, "LOCK_TIMEOUT", 0.05)
    with (
        FileLock(paths.alerts.with_name("alerts.jsonl.lock")),
        pytest.raises(NotKeptError, match="cannot be written"),
    ):
        deliver(ALERT, paths)


def test_an_alert_that_is_neither_sent_nor_kept_is_told_apart(hook: Hook, paths: DataPaths) -> None:
    hook.statuses = [404]
    paths.alerts.mkdir(parents=True)
    with pytest.raises(NotKeptError):
        deliver(ALERT, paths)
    hook.statuses = [404]
    paths.alerts.rmdir()
    with pytest.raises(ConfigError):
        deliver(ALERT, paths)
