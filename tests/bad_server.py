"""A web server on the loopback interface that misbehaves as a test tells it to.

    with BadServer() as server:
        server.serve("/flaky", fault(500), fault(429, retry_after=2), Answer(b"fine"))  # in turn, the last one repeats
        server.serve_by("/api", lambda request: Answer(request.query["page"].encode()))  # a function of the request
        assert server.asked() == ["/flaky", "/api?page=2"]

Paths have no query. ``otherwise`` answers the other requests. By default the answer is 404.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qsl, urlsplit

HTML = "text/html; charset=utf-8"


@dataclass(frozen=True)
class Answer:
    """A response.

    Attributes:
        sent: Number of bytes of the body to send before the connection is closed. None sends the whole body.
        pause: Pause before the first byte, in seconds.
        drip: Pause before each byte of the body, in seconds.
        reset: Reset the connection at the end, as a crashed machine does.
    """

    body: bytes = b""
    media_type: str = HTML
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    sent: int | None = None
    pause: float = 0.0
    drip: float = 0.0
    reset: bool = False


@dataclass(frozen=True)
class Request:
    """A received request. ``path`` includes the query. ``at`` is a time of time.monotonic, in seconds."""

    path: str
    headers: Mapping[str, str]
    at: float
    method: str = "GET"
    body: bytes = b""

    def header(self, name: str) -> str | None:
        return {key.lower(): value for key, value in self.headers.items()}.get(name.lower())

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))


def json_answer(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    body = json.dumps(content).encode()
    return Answer(body, "application/json; charset=utf-8", status, headers or {})


def fault(status: int, retry_after: float | str | None = None) -> Answer:
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return Answer(b"something is wrong here", status=status, headers=headers)


def truncated(body: bytes, sent: int | None = None) -> Answer:
    """Return an answer that ends early (by default in the middle), although its header announces the whole body."""
    return Answer(body, sent=len(body) // 2 if sent is None else sent)


def slow(body: bytes, pause: float = 60.0) -> Answer:
    return Answer(body, pause=pause)


def redirect(to: str, status: int = 302) -> Answer:
    return Answer(b"", status=status, headers={"Location": to})


def robots(rules: str) -> Answer:
    return Answer(rules.encode(), media_type="text/plain")


class BadServer(ThreadingHTTPServer):
    """The server, on a free port of 127.0.0.1; a context manager. ``requests`` contains all requests in order."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, otherwise: Callable[[Request], Answer] = lambda request: fault(404)) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.requests: list[Request] = []
        self.stopping = threading.Event()
        self.otherwise = otherwise
        self.answers: dict[str, Callable[[Request], Answer]] = {}
        self.lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def serve(self, path: str, *answers: Answer) -> None:
        """Answer requests for ``path`` with ``answers`` in turn. The last one repeats."""
        turns = iter(range(10**9))
        self.answers[path] = lambda request: answers[min(next(turns), len(answers) - 1)]

    def serve_by(self, path: str, make: Callable[[Request], Answer]) -> None:
        """Answer each request for ``path`` with the result of ``make``."""
        self.answers[path] = make

    def asked(self, *, robots_too: bool = False) -> list[str]:
        """Return the requested paths with their queries, in order. robots.txt is omitted by default."""
        return [request.path for request in self.requests if robots_too or request.path != "/robots.txt"]

    def gaps(self) -> Sequence[float]:
        """Return the seconds between consecutive requests, including those for robots.txt."""
        return [later.at - earlier.at for earlier, later in zip(self.requests[:-1], self.requests[1:], strict=True)]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the server, so that later connections are refused."""
        if not self.stopping.is_set():
            self.stopping.set()
            self.shutdown()
            self.server_close()
            self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: BadServer

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = Request(self.path, dict(self.headers.items()), time.monotonic(), self.command, body)
        with self.server.lock:
            self.server.requests.append(request)
            find_answer = self.server.answers.get(urlsplit(request.path).path, self.server.otherwise)
            answer = find_answer(request)
        if answer.pause and self.server.stopping.wait(answer.pause):
            return
        headers = {"Content-Type": answer.media_type, "Content-Length": str(len(answer.body)), **answer.headers}
        try:
            self.send_response(answer.status)
            for name, value in headers.items():
                if value:
                    self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self._send_body(answer)
        except OSError:
            return  # Some tests let the client close the connection.

    do_HEAD = do_POST = do_GET  # noqa: N815 - http.server requires these names

    def _send_body(self, answer: Answer) -> None:
        body = answer.body[: answer.sent]
        if answer.drip:
            for byte in body:
                if self.server.stopping.wait(answer.drip):
                    return
                self.wfile.write(bytes([byte]))
            return
        self.wfile.write(body)
        if answer.reset:
            self.wfile.flush()
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def log_message(self, format: str, *args: object) -> None:
        return
