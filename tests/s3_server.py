"""A real S3 server, moto's, in this process: it can be made to answer otherwise, or to do something, at any request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server


class _Silent(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        """Log nothing."""


class S3Server:
    """moto's server. ``before`` is called ahead of every request, and ``after`` before its answer is sent: either may
    return a status that is sent instead."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.before: Callable[[str, str], int | None] = lambda method, path: None
        self.after: Callable[[str, str], int | None] = lambda method, path: None
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=_Silent)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self.requests.append((method, path))
        answer: list[tuple[Any, ...]] = []
        done = [b""]
        status = self.before(method, path)
        if status is None:
            done = list(self._app(environ, lambda *given: answer.append(given)))
            status = self.after(method, path)
        if status is not None:
            start_response(f"{status} Made for a test", [("Content-Length", "0")])
            return [b""]
        start_response(*answer[-1])
        return done

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
