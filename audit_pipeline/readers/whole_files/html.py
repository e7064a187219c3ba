"""Reader of saved web pages."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from audit_pipeline.readers.charsets import decode_page_file
from audit_pipeline.readers.whole_files.document import MEBIBYTE, NO_LINES, WholeDocument, describe_unread
from audit_pipeline.readers.whole_files.xhtml_text import Page, Prose

_MOST_SHEET_BYTES = 4 * MEBIBYTE
_LEAST_SHARE = 0.1
"""A <main> with a smaller share of the page's text is a placeholder that a script fills."""


def read_html(path: Path) -> WholeDocument:
    """Read the running text of a web page.

    Style sheets in the page's folder decide which text is visible. Nothing is fetched.
    """
    page = Page(decode_page_file(path.read_bytes()), lambda address: _read_style_sheet(path, address))
    title = None
    if page.soup.title is not None:
        title = " ".join(page.soup.title.get_text(" ").split()) or None
    prose = _choose_prose(page)
    return WholeDocument(prose.text, title, describe_unread(prose.unread), NO_LINES)


def _choose_prose(page: Page) -> Prose:
    """Return the text of the page's only <main> element with text, or else the text of the whole page."""
    whole = page.extract_prose()
    filled: list[Prose] = []
    for main in page.soup.find_all("main"):
        if main.find_parent("main") is None:
            prose = page.extract_prose(main)
            if prose.text:
                filled.append(prose)
    if len(filled) == 1 and len(filled[0].text) >= _LEAST_SHARE * len(whole.text):
        return filled[0]
    return whole


def _read_style_sheet(page: Path, address: str) -> str | None:
    """Return a style sheet in the page's folder or below it, or None. Browsers save style sheets there."""
    try:
        parts = urlsplit(address.strip())
    except ValueError:
        return None
    if parts.scheme or parts.netloc or not parts.path:
        return None
    folder = page.parent.resolve()
    sheet = (folder / unquote(parts.path)).resolve()
    if not sheet.is_relative_to(folder) or not sheet.is_file() or sheet.stat().st_size > _MOST_SHEET_BYTES:
        return None
    return sheet.read_text("utf-8", errors="replace")
