"""Small EPUBs, and a library on the loopback interface that serves books."""

from __future__ import annotations

import io
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from audit_pipeline.connectors.polite import PoliteClient, Politeness

CONTAINER = (
    '<?xml version="1.0"?><container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0">'
    '<rootfiles><rootfile full-path="OPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
)


def page(body: str, types: str = "bodymatter") -> str:
    """A chapter's XHTML."""
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html>\n'
        '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops">'
        f'<head><title>never read</title></head><body epub:type="{types}">{body}</body></html>'
    )


def package(items: str, spine: str, extra: str = "") -> str:
    """A package file of a novel that nobody wrote."""
    return (
        '<?xml version="1.0"?><package xmlns="http://www.idpf.org/2007/opf" version="3.0">'
        '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>The\n Lamp</dc:title>'
        "<dc:creator>Ada Miller</dc:creator><dc:creator>Bo Lind</dc:creator><dc:language>en-GB</dc:language>"
        "<dc:identifier>url:https://example.org/lamp</dc:identifier></metadata>"
        f"<manifest>{items}</manifest><spine>{spine}</spine>{extra}</package>"
    )


def item(identity: str, href: str, extra: str = "", media: str = "application/xhtml+xml") -> str:
    return f'<item id="{identity}" href="{href}" media-type="{media}" {extra}/>'


def packed(members: Mapping[str, str | bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip file as EPUBs are, whatever is in it."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", compression) as archive:
        archive.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        for name, content in members.items():
            archive.writestr(name, content)
    return target.getvalue()


def epub(chapters: Mapping[str, str | bytes], *, opf: str | None = None, **members: str | bytes) -> bytes:
    """An EPUB of ``chapters`` (path -> XHTML) in their order; other members by their paths."""
    items = "".join(item(f"c{number}", name) for number, name in enumerate(chapters))
    spine = "".join(f'<itemref idref="c{number}"/>' for number in range(len(chapters)))
    return packed(
        {
            "META-INF/container.xml": CONTAINER,
            "OPS/book.opf": opf or package(items, spine),
            **{f"OPS/{name}": content for name, content in chapters.items()},
            **members,
        }
    )


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
    politeness = Politeness("corpus-audit/test (ann@example.org)", seconds_between=0, attempts=2, timeout=5)
    return PoliteClient(folder, politeness, sleep=lambda _: None)
