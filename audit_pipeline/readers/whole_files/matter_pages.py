"""Front and back matter in the lines of a book: title page, credits, copyright page, contents, transcriber's notes.

A text window with "Project Gutenberg" or "Copyright 2024" separates members from non-members without any model. So
front and back matter ("matter") is removed: only whole lines, and only before the first and after the last page of
running text. If a page can be matter or running text, it stays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from audit_pipeline.readers.whole_files.document import NO_LINES, WholeDocument
from audit_pipeline.readers.whole_files.gutenberg_frame import (
    Line,
    count_text_words,
    count_words,
    join_lines,
    split_gutenberg_file,
    trim_empty_lines,
)

_CREDITS = re.compile(
    r"\s*\[?_?(?:this )?(?:(?:produced|prepared|transcribed|scanned|digitized|updated) (?:from .{0,80} )?by\b"
    r"|(?:this )?(?:project gutenberg )?(?:e-?text|e-?book|html version|file|edition) "
    r"(?:was |is )?(?:produced|prepared|transcribed|scanned|created)\b"
    r"|(?:e-?text|transcription) (?:produced |prepared )?by\b|credits?:|html version by\b)"
    r"|.{0,200}\b(?:distributed proofread|pgdp\.net|gutenberg\.(?:org|net))",
    re.I | re.S,
)
_TRANSCRIBER = re.compile(r"[\s\[_*=+|-]*transcrib(?:er|or)(?:'s|’s|s'|s’|s)?[ -]*(?:end)?notes?\b", re.I)
_CONTENTS = re.compile(
    r"[\s_*]*(?:table of contents|contents|list of (?:illustrations|plates|maps)|illustrations)[\s_*.:]*\Z", re.I
)
_ILLUSTRATION = re.compile(r"\s*\[(?:illustrations?|blank page|frontispiece)\b", re.I)
_COPYRIGHT = re.compile(
    r"\bcopyright(?:ed)?\b[\s,]*(?:©|\(c\)|by|in|\d{4})|©|\ball rights reserved\b|\bisbn\b|\blibrary of congress\b"
    r"|\b(?:first|originally) (?:published|printed|edition|impression)\b|\bprinted (?:and bound )?in (?:the|great|u)\b"
    r"|\bprinted by\b|\bwork of fiction\b.{0,200}\bcoincidental\b|\bregistered (?:at|in) the (?:library|office)\b",
    re.I | re.S,
)
_IMPRINT = re.compile(
    r"\b(?:publish(?:ers?|ing|ed)|press|printers?|company|& co|and co|& sons?|and sons?|limited|ltd|edition|verlag"
    r"|[mdclx]{4,}[ivxlcdm]*|1[5-9]\d\d|20\d\d)\b",
    re.I,
)
_CHAPTER = re.compile(
    r"[\s_*]*(?:(?:chapter|book|part|volume|vol\.|letter|canto|act|scene|stave|section|prologue|preface|introduction"
    r"|foreword|chapitre|kapitel|capítulo|capitolo|[ivxlc]{1,7}|\d{1,3})\b)",
    re.I,
)
_GUTENBERG_HEAD = re.compile(
    r"\W*(?:this is )?(?:the )?project gutenberg(?:'s|’s)?\b.{0,20}\b(?:e-?texts?|e-?books?)\b"
    r"|\W*project gutenberg(?:'s|’s) .{1,120}, by ",
    re.I,
)
_GUTENBERG_FIELD = re.compile(
    r"\s*(?:(?:title|author|editor|translator|illustrator|posting date|release date|language|character set encoding"
    r"|credits)\s*:|\[?(?:e-?text|e-?book) #\s*\d)",
    re.I,
)
_SENTENCE_END = re.compile(r"""[.!?…。！？।؟]["'”’»)_*\]」』]{0,4}\Z""")
_CLAUSE_END = re.compile(r"""[:;,—-]["'”’»)_*\]]{0,4}\Z""")
_ENTRY_END = re.compile(r"(?:[\s.·…_]|^)(?:\d{1,4}|[ivxlc]{1,7})\.?\Z")
_ENTRY_START = re.compile(
    r"\s*(?:chapter|book|part|volume|letter|canto|act|scene|[ivxlc]{1,7}|\d{1,3})\b[\s.:)—-]*", re.I
)

RUNNING_WORDS = 60
"""Minimum words of a page of running text. Matter is searched before the first and after the last such page."""

_NOTE_WORDS = 1500
_CREDITS_WORDS = 120
_COPYRIGHT_WORDS = 400
_MAX_CAPTION_LINES = 12
_HEAD_WORDS = 600
_MIN_FIELDS = 2
_MAX_NAMED_PARTS = 5
_MAX_NAME_LENGTH = 40
_LONG_LINE_WORDS = 8
_MAX_ENTRY_LENGTH = 90


@dataclass(frozen=True)
class BookLines:
    """The lines of a text that belong to the book, and the size of everything else.

    Attributes:
        numbers: Ascending numbers of the book's lines, from 0.
        matter: First line and number of words of each removed page.
        frame_words: Words of Project Gutenberg's header, licence and small print.
        other_books: Title and number of words of each further book in the file.
    """

    numbers: Sequence[int]
    matter: tuple[tuple[str, int], ...] = ()
    frame_words: int = 0
    other_books: tuple[tuple[str, int], ...] = ()


def remove_front_and_back_matter(text: str) -> WholeDocument:
    """Return a text without front and back matter, and without Project Gutenberg's header, licence and small print.

    Args:
        text: The text. Its lines end in line feeds.

    Returns:
        The document with the remaining lines, unchanged and in the same order. Its problems list the removed parts
        with their number of words.
    """
    lines = text.split("\n")
    book_lines = find_book_lines(lines)
    book = "\n".join(lines[number] for number in book_lines.numbers)
    return WholeDocument(book, problems=describe_left_out_matter(book_lines), places=NO_LINES)


def find_book_lines(lines: Sequence[str]) -> BookLines:
    """Find the lines of the book, and measure everything else in the text.

    Project Gutenberg's frame (header, licence, small print) and the front and back matter are removed repeatedly until
    nothing changes. So a second call removes nothing.
    """
    remaining: Sequence[Line] = list(enumerate(lines))
    matter: list[tuple[str, int]] = []
    frame_words = 0
    other_books: tuple[tuple[str, int], ...] = ()
    while True:
        framed = split_gutenberg_file(remaining)
        inner, pages = _remove_matter_pages(framed.body)
        frame_words += framed.frame_words
        other_books += framed.other_books
        matter += pages
        if len(inner) == len(remaining):
            return BookLines([number for number, _ in remaining], tuple(matter), frame_words, other_books)
        remaining = inner


def describe_left_out_matter(
    book_lines: BookLines, chapters: Sequence[tuple[str, int]] = ()
) -> tuple[tuple[str, str], ...]:
    """Return the problems for everything that is not the book: each part with a reason and a number of words.

    Args:
        book_lines: The lines of the book.
        chapters: Name and number of words of each chapter that is front or back matter.
    """
    problems: list[tuple[str, str]] = []
    frame = ("header and licence of Project Gutenberg", book_lines.frame_words)
    matter: list[tuple[str, int]] = []
    total = 0
    for name, n_words in (*chapters, *book_lines.matter, frame):
        if n_words:
            matter.append((name, n_words))
            total += n_words
    if matter:
        matter.sort(key=lambda part: -part[1])
        listed = "; ".join(f"{name[:_MAX_NAME_LENGTH]} ({n_words:,})" for name, n_words in matter[:_MAX_NAMED_PARTS])
        if len(matter) > _MAX_NAMED_PARTS:
            listed += f"; {len(matter) - _MAX_NAMED_PARTS:,} more"
        problems.append(("front and back matter", f"{total:,} words are skipped: {listed}"))
    for title, n_words in book_lines.other_books:
        name = title or "a book without a title"
        reason = f"{name}, {n_words:,} words, is skipped. Save each book as a separate file."
        problems.append(("another book in the same file", reason))
    return tuple(problems)


def _remove_matter_pages(lines: Sequence[Line]) -> tuple[Sequence[Line], list[tuple[str, int]]]:
    """Return the lines without front and back matter, and first line and number of words of each removed page.

    Two or more empty lines separate pages. Only pages before the first and after the last page of running text are
    examined. A page of running text has at least 60 words and does not look like matter. A book of verse may have no
    such page: then only pages with a telling heading, such as "Contents", are removed. Captions of illustrations are
    removed everywhere.
    """
    without_illustrations = _remove_illustrations(lines)
    pages = _split_pages(without_illustrations)
    dropped = _find_front_matter(pages) | _find_back_matter(pages)
    remaining: list[Line] = []
    matter: list[tuple[str, int]] = []
    for number, page in enumerate(pages):
        if number in dropped:
            matter.append((page.heading, page.n_words))
        else:
            remaining += page.whole
    captions = count_words(lines) - count_words(without_illustrations)
    if captions:
        matter.append(("captions of illustrations", captions))
    return trim_empty_lines(remaining), matter


def _remove_illustrations(lines: Sequence[Line]) -> list[Line]:
    """Return the lines without paragraphs such as [Illustration: a ship at sea]."""
    remaining: list[Line] = []
    position = 0
    while position < len(lines):
        end = _find_caption_end(lines, position)
        if end is None:
            remaining.append(lines[position])
            position += 1
            continue
        position = end
        if end < len(lines) and not lines[end][1].strip():
            # The empty line after the caption is removed too: two empty lines would look like the end of a page.
            position += 1
    return remaining


def _find_caption_end(lines: Sequence[Line], position: int) -> int | None:
    """Return the position of the line after a caption of an illustration.

    Returns:
        The position, or None if no caption begins at ``position`` or if its paragraph does not close the bracket.
    """
    if not _ILLUSTRATION.match(lines[position][1]):
        return None
    for end, (_, line) in enumerate(lines[position : position + _MAX_CAPTION_LINES], position + 1):
        if line.rstrip().endswith("]"):
            return end
        if not line.strip():
            return None
    return None


@dataclass(frozen=True, eq=False)
class TextPage:
    """A page of a text.

    Attributes:
        whole: The page's lines, and the empty lines after the page.
    """

    whole: Sequence[Line]

    @cached_property
    def lines(self) -> Sequence[str]:
        """Return the lines that are not empty, stripped."""
        lines = []
        for _, line in self.whole:
            stripped = line.strip()
            if stripped:
                lines.append(stripped)
        return lines

    @cached_property
    def n_words(self) -> int:
        """Return the number of words."""
        return sum(map(count_text_words, self.lines))

    @cached_property
    def text(self) -> str:
        """Return the lines as one text."""
        return join_lines(self.whole).strip()

    @property
    def heading(self) -> str:
        """Return the first line that is not empty."""
        if not self.lines:
            return ""
        return self.lines[0]

    @property
    def is_blank(self) -> bool:
        """Return True if the page has no letter and no digit."""
        return not any(map(str.isalnum, self.text))

    @property
    def is_running_text(self) -> bool:
        """Return True if the page has more than 3 lines, and more than 80% of them have at least 8 words."""
        n_long = sum(len(line.split()) >= _LONG_LINE_WORDS for line in self.lines)
        return n_long > 0.8 * len(self.lines) and len(self.lines) > 3

    @property
    def has_sentences(self) -> bool:
        """Return True if at least half of the words are in lines that end with the end of a sentence."""
        n_words = sum(map(count_text_words, filter(_ends_sentence, self.lines)))
        return 2 * n_words >= self.n_words

    @property
    def is_notice(self) -> bool:
        """Return True for credits, a transcriber's note, or a copyright page."""
        if self.n_words <= _NOTE_WORDS and _TRANSCRIBER.match(self.text):
            return True
        if self.n_words <= _CREDITS_WORDS and _CREDITS.match(self.text):
            return True
        has_copyright = self.n_words <= _COPYRIGHT_WORDS and _COPYRIGHT.search(self.text) is not None
        return has_copyright and not self.is_running_text

    @property
    def is_gutenberg_head(self) -> bool:
        """Return True for a header of Project Gutenberg, or its fields such as title and author.

        Such a page remains in a file in which no start mark ends the header.
        """
        if self.n_words > _HEAD_WORDS or self.is_running_text:
            return False
        n_fields = sum(_GUTENBERG_FIELD.match(line) is not None for line in self.lines)
        return n_fields >= _MIN_FIELDS or _GUTENBERG_HEAD.match(self.heading) is not None

    @property
    def is_contents(self) -> bool:
        """Return True for a page with a heading such as "Contents", alone or above a numbered list."""
        if not _CONTENTS.match(self.heading):
            return False
        below = TextPage(list(enumerate(self.lines[1:])))
        return len(self.lines) == 1 or below.is_numbered_list

    @property
    def is_numbered_list(self) -> bool:
        """Return True if at least 80% of the lines are like entries of a list, and 50% have a number at either end."""
        n_entries = sum(map(_is_entry, self.lines))
        n_numbered = sum(map(_is_numbered, self.lines))
        return len(self.lines) >= 2 and n_entries >= 0.8 * len(self.lines) and n_numbered >= 0.5 * len(self.lines)

    @property
    def is_title_page(self) -> bool:
        """Return True for a page without sentences or with a publisher's imprint, unless it starts a chapter."""
        if _CHAPTER.match(self.heading):
            return False
        if _IMPRINT.search(self.text) and not self.is_running_text:
            return True
        n_clauses = sum(_CLAUSE_END.search(line[-8:]) is not None for line in self.lines)
        return not any(map(_ends_sentence, self.lines)) and n_clauses <= len(self.lines) / 2


def _ends_sentence(line: str) -> bool:
    return _SENTENCE_END.search(line[-8:]) is not None


def _is_numbered(line: str) -> bool:
    return bool(_ENTRY_START.match(line) or _ENTRY_END.search(line[-20:]))


def _is_entry(line: str) -> bool:
    """Return True for a short line that has a number at either end, or that does not end a sentence."""
    return len(line) <= _MAX_ENTRY_LENGTH and (_is_numbered(line) or not _ends_sentence(line))


def _split_pages(lines: Sequence[Line]) -> list[TextPage]:
    pages: list[list[Line]] = [[]]
    for line, (_, following) in pairwise([*lines, (-1, "")]):
        page = pages[-1]
        page.append(line)
        is_in_gap = len(page) > 2 and not line[1].strip() and not page[-2][1].strip()
        if is_in_gap and following.strip():
            pages.append([])
    return [TextPage(page) for page in pages if page]


def _find_front_matter(pages: Sequence[TextPage]) -> set[int]:
    """Return the numbers of the pages of front matter, counted from 0."""
    named: set[int] = set()
    unnamed: set[int] = set()
    is_in_contents = False
    for number, page in enumerate(pages):
        if page.is_blank:
            unnamed.add(number)
        elif page.is_notice or page.is_gutenberg_head:
            named.add(number)
        elif page.is_contents or (is_in_contents and page.is_numbered_list):
            named.add(number)
            is_in_contents = True
        elif page.n_words < RUNNING_WORDS and page.is_title_page:
            unnamed.add(number)
            is_in_contents = False
        elif page.n_words >= RUNNING_WORDS or _CHAPTER.match(page.heading):
            return named | unnamed
        else:
            # This short page is text, such as verse. Title pages before it may be titles of poems, so they stay.
            return named
    return named


def _find_back_matter(pages: Sequence[TextPage]) -> set[int]:
    """Return the numbers of the notices at the end of the book, and of the blank pages after them, counted from 0."""
    dropped: set[int] = set()
    blank: set[int] = set()
    for number in reversed(range(len(pages))):
        if pages[number].is_notice:
            dropped |= blank | {number}
            blank = set()
        elif pages[number].is_blank:
            blank.add(number)
        else:
            break
    return dropped
