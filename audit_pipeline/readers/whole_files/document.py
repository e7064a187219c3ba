"""A file that is one document: what reading it gives, and reading it with the reader for its suffix.

A format's parser is imported when a file of it is read. Marks within a text file are text: Markdown is read as it is
written.
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
from audit_pipeline.readers.regular_files import read_regular_file, require_regular_file
from audit_pipeline.readers.whole_files.legible import (
    REPAIRS,
    describe_unknown_characters,
    explain_illegible,
    format_count,
)

Places: TypeAlias = tuple[tuple[int, str], ...]
"""The character of a text at which each page or chapter begins, with its label, in order; none where the lines of the
text are the file's."""

NO_LINES: Places = ((0, ""),)
"""The places of a text whose file has neither pages nor chapters, and other lines than the text: a web page."""

_PAGE = "page "
_LONGEST_HEADING = 80
_EMPTY_LINES = re.compile(r"\n\s*\n")


def format_page_label(number: int) -> str:
    """What a page is called; ``number`` counts the file's pages from 1, whatever is printed on them."""
    return f"{_PAGE}{number}"


def format_chapter_label(number: int, heading: str, path: str, text: str) -> str:
    """What a chapter is called: ``number`` with its heading; with its ``path`` in the book where the heading is empty
    or long, or none of the words of ``text``."""
    is_findable = 0 < len(heading) <= _LONGEST_HEADING and heading in " ".join(text.split())
    return f"chapter {number} ({heading if is_findable else path})"


def describe_place(text: str, offset: int, places: Places) -> str:
    """Where the first word of ``text`` at or after the character ``offset`` is: ``page 12``, ``chapter 3 (The Hill),
    paragraph 5`` or ``line 240``, all counted from 1.

    Paragraphs are parted by empty lines and counted within the chapter. Before the first of the ``places`` lines are
    counted, which end in \\n.
    """
    word = next((place for place in range(offset, len(text)) if not text[place].isspace()), offset)
    number = bisect_right(places, word, key=itemgetter(0))
    if not number:
        return f"line {text.count(chr(10), 0, word) + 1}"
    begin, label = places[number - 1]
    if label.startswith(_PAGE):
        return label
    paragraph = f"paragraph {len(_EMPTY_LINES.findall(text, begin, word)) + 1}"
    return f"{label}, {paragraph}" if label else paragraph


UNSEEN = "text that nobody sees: hidden, as small as a dot, or in the colour of its background"
"""Why text is left out that no reader of the page sees."""


def describe_unread(
    unread: Mapping[str, int], units: Mapping[str, str] = MappingProxyType({})
) -> tuple[tuple[str, str], ...]:
    """Return the problems for what a reader left out: its size and the reason.

    Args:
        unread: Sizes by reason: characters, white space excluded.
        units: What is counted instead, by reason.
    """
    sizes = [(format_count(size, units.get(reason, "character")), reason) for reason, size in unread.items() if size]
    return tuple(sizes)


MEBIBYTE = 1024 * 1024
MOST_FILE_BYTES = 256 * MEBIBYTE

_LONGEST_TITLE = 300
# What programs write without a title, and names of files.
_NO_TITLE = re.compile(
    r"(?:untitled|document|unbenannt|ohne titel|sans titre|powerpoint presentation|title|unknown)\W*\d*"
    r"|microsoft (?:word|powerpoint|excel)\b.*"
    r"|\S+\.(?:docx?|dotx?|rtf|odt|pdf|indd|qxd|tex|dvi|ps|txt|md|html?|epub|pages|pptx?)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class WholeDocument:
    """The running text of a file; ``title`` is what the file calls itself, where that can be relied on.

    ``problems`` are parts of it that could not be read, each with the reason; ``places`` where its pages or chapters
    begin. ``edition`` is the date that the file gives of this
    edition. It does not date the first publication.
    """

    text: str
    title: str | None = None
    problems: tuple[tuple[str, str], ...] = ()
    places: Places = ()
    edition: Dating | None = None


def clean_title(raw_title: str | None) -> str | None:
    """``raw_title`` with single blanks; None where it is empty, the name of a file, or a program's own default."""
    title = " ".join((raw_title or "").split())
    if not title or len(title) > _LONGEST_TITLE or not title.isprintable() or _NO_TITLE.fullmatch(title):
        return None
    return title


class NoTextError(DataError):
    """The file is whole, but no text can be extracted: locked, a scan, letters of an unknown font. The message says
    which."""


def read_plain(path: Path) -> WholeDocument:
    """Read the file's text as it is, except for ligatures and line ends, which become \\n.

    Raises:
        DataError: If the file is not UTF-8.
    """
    try:
        text = read_regular_file(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: invalid UTF-8 at byte {error.start}; save it as UTF-8") from error
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
    """Whether the file, by its name, is one document."""
    return path.suffix.lower() in _READERS


def read_document(path: Path) -> WholeDocument:
    """The document that the file at ``path`` is; :func:`is_single_document` says that it is one.

    Raises NoTextError if the file is whole but no text can be extracted, and DataError if it cannot be read.
    """
    module, name = _READERS[path.suffix.lower()].split(".")
    reader: Callable[[Path], WholeDocument] = getattr(importlib.import_module(f"{__package__}.{module}"), name)
    try:
        require_regular_file(path)
        if path.stat().st_size > MOST_FILE_BYTES:
            raise DataError(f"{path}: more than {MOST_FILE_BYTES:,} bytes")
        whole = reader(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    if (reason := explain_illegible(whole.text)) is not None:
        raise NoTextError(f"{path}: no text can be extracted ({reason}): use another copy")
    problems = whole.problems + describe_unknown_characters(whole.text)
    return replace(whole, title=clean_title(whole.title), problems=problems)
