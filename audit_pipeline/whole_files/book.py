"""An EPUB as one document.

What belongs here: its chapters as one text. What does not: the inside of an EPUB (epub.py), and which chapters are
front and back matter (book_matter.py).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from audit_pipeline.errors import DataError
from audit_pipeline.whole_files.book_matter import epub_text, join_chapters
from audit_pipeline.whole_files.document import NoTextError, WholeDocument
from audit_pipeline.whole_files.epub import EpubError, read_epub
from audit_pipeline.whole_files.prose import prose


def read_book(path: Path) -> WholeDocument:
    """The book without front and back matter, or all of it where nothing else is in it.

    Raises NoTextError where there is no text at all, and DataError where it cannot be read.
    """
    try:
        book = read_epub(path)
    except EpubError as error:
        raise DataError(f"{path}: {error}") from error
    whole = epub_text(book)
    if not whole.text:
        # What looks like nothing but matter may be a short text with a notice in it.
        chapters = [(chapter, prose(chapter.markup)) for chapter in book.chapters]
        text, places = join_chapters(chapters, lambda lines: range(len(lines)))
        whole = replace(whole, text=text, places=places)
    if not whole.text.strip():
        raise NoTextError(f"{path}: no text in it, only pictures or nothing")
    return whole
