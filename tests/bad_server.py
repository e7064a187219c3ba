"""A web server on the loopback interface that misbehaves on cue, for tests of everything that fetches.

    with BadServer() as server:
        server.serve("/robots.txt", robots("User-agent: *\\nDisallow: /private"))
        server.serve("/flaky", fault(500), fault(429, retry_after=2), Answer(b"fine"))   # in turn; the last repeats
        server.serve_by("/api", lambda request: Answer(request.query["page"].encode()))  # made for each request
        server.serve("/ring", redirect("/gnir")); server.serve("/gnir", redirect("/ring"))
        fetch(server.url + "/flaky")
        assert server.asked() == ["/flaky", "/flaky", "/flaky"]

Paths are given without a query. What is not served is a 404, or what ``otherwise`` makes of the request: a server of
another kind (hub_server.py). Every request is in ``server.requests``, in order.
"""

from __future__ import annotations

import gzip
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qsl, urlsplit

HTML = "text/html; charset=utf-8"


@dataclass(frozen=True)
class Answer:
    """What is sent: ``sent`` bytes of the body only, where set, and then the connection is closed.

    ``reset`` closes it as a machine does that has lost it: with a reset in place of an end. ``pause`` seconds pass
    before the first byte, ``drip`` seconds after each byte of the body.
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
    """A request as it came in: ``path`` with the query, ``at`` in seconds of time.monotonic; ``body`` of a POST."""

    path: str
    headers: Mapping[str, str]
    at: float
    method: str = "GET"
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """A header's value, however the client spells its name."""
        return {key.lower(): value for key, value in self.headers.items()}.get(name.lower())

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))


def fault(status: int, retry_after: float | str | None = None) -> Answer:
    """An error of the server's, with a Retry-After header where one is given."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return Answer(b"something is wrong here", status=status, headers=headers)


def truncated(body: bytes, sent: int | None = None) -> Answer:
    """An answer that ends in the middle (after ``sent`` bytes) though its header announces all of it."""
    return Answer(body, sent=len(body) // 2 if sent is None else sent)


def slow(body: bytes, pause: float = 60.0) -> Answer:
    """Nothing for ``pause`` seconds."""
    return Answer(body, pause=pause)


def redirect(to: str, status: int = 302) -> Answer:
    """A redirect; two that name each other are a loop."""
    return Answer(b"", status=status, headers={"Location": to})


def gzip_bomb(unpacked: int) -> Answer:
    """Some kilobytes that unpack to ``unpacked`` zero bytes."""
    return Answer(gzip.compress(bytes(unpacked)), headers={"Content-Encoding": "gzip"})


def robots(rules: str) -> Answer:
    """A robots.txt."""
    return Answer(rules.encode(), media_type="text/plain")


class BadServer:
    """The server, on a free port of 127.0.0.1; a context manager."""

    def __init__(self, otherwise: Callable[[Request], Answer] = lambda request: fault(404)) -> None:
        self.requests: list[Request] = []
        self._otherwise = otherwise
        self._answers: dict[str, Callable[[Request], Answer]] = {}
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def serve(self, path: str, *answers: Answer) -> None:
        """Answer requests for ``path`` with ``answers`` in turn; the last one repeats."""
        turns = iter(range(10**9))
        self._answers[path] = lambda request: answers[min(next(turns), len(answers) - 1)]

    def serve_by(self, path: str, make: Callable[[Request], Answer]) -> None:
        """Answer requests for ``path`` with what ``make`` makes of each."""
        self._answers[path] = make

    def asked(self, *, robots_too: bool = False) -> list[str]:
        """The paths, with queries, that were asked for, in order; robots.txt left out."""
        return [request.path for request in self.requests if robots_too or request.path != "/robots.txt"]

    def gaps(self) -> Sequence[float]:
        """Seconds between one request and the next, robots.txt included."""
        return [later.at - earlier.at for earlier, later in zip(self.requests[:-1], self.requests[1:], strict=True)]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """No more answers: connections are refused from now on."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def _answer(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
            return self._answers.get(urlsplit(request.path).path, self._otherwise)(request)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = Request(self.path, dict(self.headers.items()), time.monotonic(), self.command, body)
                answer = server._answer(request)
                if answer.pause and server._stopping.wait(answer.pause):
                    return
                headers = {"Content-Type": answer.media_type, "Content-Length": str(len(answer.body)), **answer.headers}
                try:
                    self.send_response(answer.status)
                    for name, value in headers.items():
                        if value:
                            self.send_header(name, value)
                    self.end_headers()
                    if self.command != "HEAD":
                        self._send(answer)
                except OSError:
                    return  # The client has hung up, which is what some tests want.

            do_HEAD = do_POST = do_GET  # noqa: N815 - so http.server calls them

            def _send(self, answer: Answer) -> None:
                body = answer.body[: answer.sent]
                if not answer.drip:
                    self.wfile.write(body)
                    if answer.reset:
                        self.wfile.flush()
                        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        self.connection.close()
                    return
                for byte in body:
                    if server._stopping.wait(answer.drip):
                        return
                    self.wfile.write(bytes([byte]))

            def log_message(self, format: str, *args: object) -> None:
                return

        return Handler
