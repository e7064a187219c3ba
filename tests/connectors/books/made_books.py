"""A library on the loopback interface that serves books."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from audit_pipeline.connectors.polite_client import PoliteClient, Politeness


@dataclass
class Library:
    """What the server has: path (with query) -> content or a status; the requests it got, without robots.txt."""

    pages: dict[str, bytes | int] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    address: str = ""


@contextmanager
def library() -> Iterator[Library]:
    """A server that answers with the pages of its library, and 404 for all else."""
    shelf = Library()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = shelf.pages.get(self.path, 404)
            if self.path != "/robots.txt":
                shelf.requests.append(self.path)
            content = answer if isinstance(answer, bytes) else b""
            self.send_response(answer if isinstance(answer, int) else 200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    shelf.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield shelf
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def impatient_client(folder: Path) -> PoliteClient:
    """A client that does not wait."""
    politeness = Politeness("ann@example.org", seconds_between=0, attempts=2, timeout=5)
    return PoliteClient(folder, politeness, sleep=lambda _: None)
