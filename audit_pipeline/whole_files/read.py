"""Every format by its suffix.

What belongs here: which there are, and reading a file with the right one. What does not: any format. A format's parser
is imported when a file of it is read.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from audit_pipeline.errors import DataError
from audit_pipeline.whole_files.document import MOST_FILE_BYTES, WholeDocument, usable_title

_READERS = {
    ".txt": "plain.read_plain",
    ".md": "plain.read_plain",
    ".html": "html.read_html",
    ".htm": "html.read_html",
    ".xhtml": "html.read_html",
    ".epub": "book.read_book",
    ".pdf": "pdf.read_pdf",
    ".docx": "docx.read_docx",
}
WHOLE_FILES = tuple(_READERS)


def is_whole_file(path: Path) -> bool:
    """Whether the file, by its name, is one document."""
    return path.suffix.lower() in _READERS


def read_whole(path: Path) -> WholeDocument:
    """The document that the file at ``path`` is; :func:`is_whole_file` says that it is one.

    Raises NoTextError where the file is whole and no text is to be had of it, and DataError where it cannot be read.
    """
    module, name = _READERS[path.suffix.lower()].split(".")
    reader: Callable[[Path], WholeDocument] = getattr(importlib.import_module(f"{__package__}.{module}"), name)
    try:
        if path.stat().st_size > MOST_FILE_BYTES:
            raise DataError(f"{path}: more than {MOST_FILE_BYTES:,} bytes")
        whole = reader(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    return replace(whole, title=usable_title(whole.title))
