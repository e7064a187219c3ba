"""Files that are one document each: the result of reading, and the reader for each suffix.

The parser of a format is imported when the first file of this format is read. Text files are read with their markup:
Markdown stays unchanged.
"""

from __future__ import annotations

import importlib
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from audit_pipeline.errors import DataError
from audit_pipeline.readers.dates import Dating
from audit_pipeline.readers.file_bytes import describe_invalid_bytes, read_regular_file, require_regular_file
from audit_pipeline.readers.whole_files.legibility import (
    REPAIRS,
    explain_illegible,
    find_unknown_characters,
    format_count,
)

Places: TypeAlias = tuple[tuple[int, str], ...]
"""The character offset and the label of each page or chapter, in order. Empty if line numbers locate a passage."""

NO_LINES: Places = ((0, ""),)
"""The places of a text without pages or chapters whose lines are not the lines of its file, such as a web page."""

_PAGE = "page "
_MAX_HEADING_LENGTH = 80
_EMPTY_LINES = re.compile(r"\n\s*\n")


def format_page_label(number: int) -> str:
    """Return the label of a page. ``number`` counts the pages of the file from 1, regardless of printed numbers."""
    return f"{_PAGE}{number}"


def format_chapter_label(number: int, heading: str, path: str, text: str) -> str:
    """Return the label of a chapter: its number with its heading or its path.

    Args:
        number: Number of the chapter, from 1.
        heading: The heading of the chapter. Not used if it is empty or long, or if it is not part of the text.
        path: Path of the chapter in the book.
        text: Text of the chapter.
    """
    is_findable = 0 < len(heading) <= _MAX_HEADING_LENGTH and heading in " ".join(text.split())
    return f"chapter {number} ({heading if is_findable else path})"


def describe_place(text: str, offset: int, places: Places) -> str:
    """Return the position of the first word at or after a character offset.

    Returns:
        ``page 12``, ``chapter 3 (The Hill), paragraph 5`` or ``line 240``, counted from 1. Empty lines separate
        paragraphs, which are counted within the chapter. Before the first of the ``places``, lines are counted.
    """
    word = next((position for position in range(offset, len(text)) if not text[position].isspace()), offset)
    number = bisect_right(places, word, key=itemgetter(0))
    if not number:
        return f"line {text.count(chr(10), 0, word) + 1}"
    begin, label = places[number - 1]
    if label.startswith(_PAGE):
        return label
    paragraph = f"paragraph {len(_EMPTY_LINES.findall(text, begin, word)) + 1}"
    return f"{label}, {paragraph}" if label else paragraph


UNSEEN = "text that no reader sees is skipped: it is hidden, as small as a dot, or in the colour of its background"
"""The reason for skipping text that no reader of the page sees."""


def describe_unread(
    unread: Mapping[str, int], units: Mapping[str, str] = MappingProxyType({})
) -> tuple[tuple[str, str], ...]:
    """Return the problems for the parts that a reader skipped: size and reason.

    Args:
        unread: The size of the skipped parts by reason, in characters without white space.
        units: The unit of the size by reason, such as "byte". By default "character".
    """
    sizes = [(format_count(size, units.get(reason, "character")), reason) for reason, size in unread.items() if size]
    return tuple(sizes)


MEBIBYTE = 1024 * 1024
MAX_FILE_BYTES = 256 * MEBIBYTE

_MAX_TITLE_LENGTH = 300
# Default titles of programs, and file names.
_DEFAULT_TITLE = re.compile(
    r"(?:untitled|document|unbenannt|ohne titel|sans titre|powerpoint presentation|title|unknown)\W*\d*"
    r"|microsoft (?:word|powerpoint|excel)\b.*"
    r"|\S+\.(?:docx?|dotx?|rtf|odt|pdf|indd|qxd|tex|dvi|ps|txt|md|html?|epub|pages|pptx?)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class WholeDocument:
    """The running text of a file.

    Attributes:
        text: The text.
        title: The title in the file, or None if it is missing or a default of a program.
        problems: Each part that was skipped or could not be read, with the reason.
        places: The character offset and label of each page or chapter.
        edition: The date of the edition in the file's metadata, or None. The first publication may be earlier.
    """

    text: str
    title: str | None = None
    problems: tuple[tuple[str, str], ...] = ()
    places: Places = ()
    edition: Dating | None = None


def clean_title(raw_title: str | None) -> str | None:
    """Return a title with single blanks, or None if it is empty, long, a file name, or a default of a program."""
    title = " ".join((raw_title or "").split())
    if not title or len(title) > _MAX_TITLE_LENGTH or not title.isprintable() or _DEFAULT_TITLE.fullmatch(title):
        return None
    return title


class NoTextError(DataError):
    """An error for an intact file without extractable text. The message contains the reason, such as a password."""


def read_plain(path: Path) -> WholeDocument:
    """Read the text of a file. Ligatures become letters, and line ends become line feeds.

    Raises:
        DataError: If the file is not UTF-8.
    """
    try:
        text = read_regular_file(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: the file contains {describe_invalid_bytes(error)}. Save the file as UTF-8."
        ) from error
    return WholeDocument(text.replace("\r\n", "\n").translate(REPAIRS))


_READERS = {
    ".txt": "document.read_plain",
    ".md": "document.read_plain",
    ".html": "html.read_html",
    ".htm": "html.read_html",
    ".xhtml": "html.read_html",
    ".epub": "book_matter.read_book",
    ".pdf": "pdf.read_pdf",
    ".docx": "docx.read_docx",
}
WHOLE_FILES = tuple(_READERS)


def is_single_document(path: Path) -> bool:
    """Return True if the file's suffix belongs to a format with one document per file."""
    return path.suffix.lower() in _READERS


def read_document(path: Path) -> WholeDocument:
    """Read a file that is one document (see :func:`is_single_document`).

    Raises:
        NoTextError: If the file is intact but no text can be extracted.
        DataError: If the file cannot be read.
    """
    module, name = _READERS[path.suffix.lower()].split(".")
    reader: Callable[[Path], WholeDocument] = getattr(importlib.import_module(f"{__package__}.{module}"), name)
    try:
        require_regular_file(path)
        if path.stat().st_size > MAX_FILE_BYTES:
            raise DataError(f"{path}: the file is larger than {MAX_FILE_BYTES:,} bytes. Split the file.")
        whole = reader(path)
    except OSError as error:
        raise DataError(f"{path}: the file cannot be read ({error.strerror or error})") from error
    reason = explain_illegible(whole.text)
    if reason is not None:
        raise NoTextError(f"{path}: no text can be extracted ({reason}). Use another copy.")
    problems = whole.problems + find_unknown_characters(whole.text)
    return replace(whole, title=clean_title(whole.title), problems=problems)
