"""Builders of small EPUBs."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

CONTAINER = (
    '<?xml version="1.0"?><container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0">'
    '<rootfiles><rootfile full-path="OPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
)


def page(body: str, types: str = "bodymatter") -> str:
    """Return the XHTML of a chapter."""
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html>\n'
        '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops">'
        f'<head><title>never read</title></head><body epub:type="{types}">{body}</body></html>'
    )


def package(items: str, spine: str, extra: str = "") -> str:
    """Return the package file of an invented novel."""
    return (
        '<?xml version="1.0"?><package xmlns="http://www.idpf.org/2007/opf" version="3.0">'
        '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>The\n Lamp</dc:title>'
        "<dc:creator>Ada Miller</dc:creator><dc:creator>Bo Lind</dc:creator><dc:language>en-GB</dc:language>"
        "<dc:identifier>url:https://example.org/lamp</dc:identifier></metadata>"
        f"<manifest>{items}</manifest><spine>{spine}</spine>{extra}</package>"
    )


def item(identity: str, href: str, extra: str = "", media: str = "application/xhtml+xml") -> str:
    return f'<item id="{identity}" href="{href}" media-type="{media}" {extra}/>'


def packed(members: Mapping[str, str | bytes]) -> bytes:
    """Return a zip file with ``members``."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return target.getvalue()


def epub(chapters: Mapping[str, str | bytes], *, opf: str | None = None, **members: str | bytes) -> bytes:
    """Return an EPUB of chapters (XHTML by path, in reading order) and other members by path."""
    items = "".join(item(f"c{number}", name) for number, name in enumerate(chapters))
    spine = "".join(f'<itemref idref="c{number}"/>' for number in range(len(chapters)))
    files = {f"OPS/{name}": content for name, content in chapters.items()}
    return packed(
        {"META-INF/container.xml": CONTAINER, "OPS/book.opf": opf or package(items, spine), **files, **members}
    )
