"""Web pages."""

from __future__ import annotations

from pathlib import Path

from bs4 import BeautifulSoup

from audit_pipeline.readers.whole_files.document import NO_LINES, WholeDocument
from audit_pipeline.readers.whole_files.xhtml_text import extract_element_prose


def read_html(path: Path) -> WholeDocument:
    """The page's running text: that of its one <main> element if any, else of its body.

    The encoding is the one that the page declares, else the one that its bytes look like.
    """
    soup = BeautifulSoup(path.read_bytes(), "html.parser")
    main = soup.find_all("main")
    title = " ".join(soup.title.get_text(" ").split()) if soup.title is not None else ""
    text = extract_element_prose(main[0] if len(main) == 1 else soup.body or soup).text
    return WholeDocument(text, title or None, places=NO_LINES)
