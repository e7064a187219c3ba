"""A library on the loopback interface that serves books."""

from __future__ import annotations

from pathlib import Path

from bad_server import Answer, BadServer, Request

from audit_pipeline.sources.web.polite_client import PoliteClient, Politeness


class Library(BadServer):
    """Answers with its pages, by path with query: content, or a status; 404 for all else."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes | int] = {}
        super().__init__(self._serve)

    def _serve(self, request: Request) -> Answer:
        page = self.pages.get(request.path, 404)
        content, status = (b"", page) if isinstance(page, int) else (page, 200)
        return Answer(content, "application/octet-stream", status)


def impatient_client(folder: Path) -> PoliteClient:
    """A client that does not wait."""
    politeness = Politeness("ann@example.org", seconds_between=0, attempts=2, timeout=5)
    return PoliteClient(folder, politeness, sleep=lambda _: None)
