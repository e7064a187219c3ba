"""Fixtures of the sources' tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from loopback_index import FakeIndex


@pytest.fixture
def fake_index() -> Iterator[FakeIndex]:
    fake = FakeIndex()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fake.requests.append(self.path)
            kind, data = "application/vnd.pypi.simple.v1+json", b""
            status = fake.faults[self.path].pop(0) if fake.faults.get(self.path) else 200
            name = self.path.strip("/").rpartition("/")[2]
            files = {name: data for project in fake.projects.values() for name, data in project.items()}
            if status == 200 and self.path.startswith("/files/") and name in files:
                kind, data = "application/octet-stream", files[name]
            elif status == 200 and self.path.startswith("/simple/") and name in fake.projects:
                data = fake.page(name)
            elif status == 200:
                status = 404
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if name in fake.cut_short else data)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    fake.endpoint = f"http://127.0.0.1:{server.server_address[1]}/simple/"
    running = True

    def stop() -> None:
        nonlocal running
        if running:
            running = False
            server.shutdown()
            server.server_close()
            thread.join()

    fake.stop = stop
    yield fake
    stop()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loopback server is reached directly, whatever proxy the machine is set up with."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
