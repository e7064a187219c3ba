"""A book as one document, without front and back matter: text in its file that is not the book.

A window that says "Project Gutenberg" or "Copyright 2024" tells a member from a non-member without any model. What is
dropped is dropped by whole lines; what stays, stays as it was. Where it cannot be told, the text stays: the rules look
only at pages before the first and after the last page of running text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import TypeAlias

from audit_pipeline.errors import DataError
from audit_pipeline.readers.whole_files.document import (
    NoTextError,
    Places,
    WholeDocument,
    describe_unread,
    format_chapter_label,
)
from audit_pipeline.readers.whole_files.epub import Chapter, Epub, EpubError, read_epub
from audit_pipeline.readers.whole_files.legible import explain_illegible
from audit_pipeline.readers.whole_files.xhtml_text import SECTION_GAP, Prose, extract_prose

Line: TypeAlias = tuple[int, str]
"""A line of a text, with its number in it."""

# Words of epub:type, of the guide of an EPUB 2, and (with a dot) classes that Project Gutenberg's books use. Prefaces
# and introductions are here too: they are often later than the work, and by another hand.
_TYPES = """
cover frontispiece titlepage halftitlepage halftitle title-page seriespage imprint copyright-page colophon imprimatur
dedication acknowledgments acknowledgements contributors other-credits errata publishing-credits
foreword preface introduction afterword uncopyright nav toc toc-brief landmarks loa loi lot lov page-list
index bibliography biblioentry glossary notes endnotes endnote footnotes footnote rearnotes rearnote
noteref backlink pagebreak
.pg-boilerplate .pgheader .pgfooter .transnote .footnotes .footnote .fnanchor .pagenum .pageno .toc
"""
# No "index": converters call the whole book so.
_FILES = """
cover title titlepage title-page halftitle halftitlepage half-title copyright copyright-page copyrightpage imprint
colophon uncopyright dedication acknowledgments acknowledgements foreword preface introduction afterword
toc nav contents tableofcontents table-of-contents loi bibliography glossary notes endnotes footnotes
about-the-author abouttheauthor about-the-publisher also-by alsoby newsletter praise credits license licence
"""
_HEADINGS = """
contents; table of contents; list of illustrations; illustrations; copyright; copyright page; colophon; imprint;
uncopyright; acknowledgments; acknowledgements; dedication; foreword; preface; introduction; afterword; index;
bibliography; notes; endnotes; footnotes; glossary; newsletter; transcriber's note; transcriber's notes;
transcriber’s note; transcriber’s notes; the full project gutenberg license
"""
MATTER_TYPES = frozenset(_TYPES.split())
_MATTER_FILES = frozenset(_FILES.split())
_MATTER_HEADINGS = frozenset(heading.strip() for heading in _HEADINGS.split(";"))
_ALSO_BY = re.compile(r"(also by|other books by|praise for|by the same author|about the (author|publisher))\b", re.I)

_GUTENBERG = r"(?:the |this |of )*(?:copyrighted )?project gutenberg"
_KIND = r"(?:'s|’s)?[ -]*(?:e-?books?|e-?texts?)?"
_START = re.compile(rf"\W*\*\*\*\s*start of {_GUTENBERG}{_KIND}\b", re.I)
_SMALL_PRINT_END = re.compile(r"\*\s*end\s*\*?\s*the small print!?", re.I)
_END = re.compile(
    rf"(?:\W*\*\*\*\s*end of {_GUTENBERG}{_KIND}\b"
    rf"|\s*(?:this is )?(?:the )?end of {_GUTENBERG}(?:'s|’s|\s+e-?books?|\s+e-?texts?)"
    r"|\W*\*\*\*\s*start: full licen[sc]e"
    r"|\s*(?:ende dieses|fin de ce|fin du|fine di questo) projec?k?t gutenberg)",
    re.I,
)
_MARK_END = "***"
_MARK_LINES = 5

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
_SENTENCE_END = re.compile(r"""[.!?…]["'”’»)_*\]]{0,4}\Z""")
_CLAUSE_END = re.compile(r"""[:;,—-]["'”’»)_*\]]{0,4}\Z""")
_ENTRY_END = re.compile(r"(?:[\s.·…_]|^)(?:\d{1,4}|[ivxlc]{1,7})\.?\Z")
_ENTRY_START = re.compile(
    r"\s*(?:chapter|book|part|volume|letter|canto|act|scene|[ivxlc]{1,7}|\d{1,3})\b[\s.:)—-]*", re.I
)

# A page of running text: matter is searched before the first and after the last.
_RUNNING_WORDS = 60
_NOTE_WORDS = 1500
_CREDITS_WORDS = 120
_COPYRIGHT_WORDS = 400
_MOST_CAPTION_LINES = 12
_NAMED = 3


def read_book(path: Path) -> WholeDocument:
    """The book without front and back matter, or all of it where nothing else is in it.

    Raises NoTextError where there is no text at all, and DataError where it cannot be read.
    """
    try:
        book = read_epub(path)
    except EpubError as error:
        raise DataError(f"{path}: {error}") from error
    whole = extract_book_text(book)
    if not whole.text:
        # What looks like nothing but matter may be a short text with a notice in it.
        chapters = [(chapter, extract_prose(chapter.markup, (), chapter.read_style_sheet)) for chapter in book.chapters]
        text, places = join_chapters(chapters, lambda lines: range(len(lines)))
        whole = replace(whole, text=text, places=places, problems=whole.problems + _describe_unread_text(chapters))
    if not whole.text.strip():
        raise NoTextError(f"{path}: no text in it, only pictures or nothing")
    return whole


def extract_book_text(book: Epub) -> WholeDocument:
    """The running text of a book: its chapters without those, and without elements, that are matter.

    Chapters are parted by three empty lines, paragraphs by one. Empty where nothing but matter is left. ``problems``
    are the chapters without text, by the reason, with their share of the reading order.
    """
    read = [
        (chapter, extract_prose(chapter.markup, MATTER_TYPES, chapter.read_style_sheet)) for chapter in book.chapters
    ]
    lost, pages = list(book.problems), []
    for chapter, page in read:
        reason = explain_illegible(page.text)
        if not page.text and not is_front_or_back_matter(chapter, page):
            reason = "no text in it, only pictures or nothing"
        if reason is None:
            pages.append((chapter, page))
        else:
            lost.append((chapter.path, reason))
    words = [len(page.text.split()) for _, page in pages]
    # A file with most of the book in it is the book, whatever its first heading says.
    kept = [
        (chapter, page)
        for (chapter, page), size in zip(pages, words, strict=True)
        if page.text and (2 * size > sum(words) or not is_front_or_back_matter(chapter, page))
    ]
    text, places = join_chapters(kept, find_book_lines)
    problems = _summarise_lost_chapters(lost, len(read) + len(book.problems)) + _describe_unread_text(kept)
    return WholeDocument(text, book.title, problems, places)


def _describe_unread_text(chapters: Sequence[tuple[Chapter, Prose]]) -> tuple[tuple[str, str], ...]:
    unread: Counter[str] = Counter()
    for _, page in chapters:
        unread.update(page.unread)
    return describe_unread(unread)


def _summarise_lost_chapters(lost: Sequence[tuple[str, str]], chapters: int) -> tuple[tuple[str, str], ...]:
    paths_of: dict[str, list[str]] = {}
    for path, reason in lost:
        paths_of.setdefault(reason, []).append(path)
    parts = []
    for reason, paths in paths_of.items():
        named = ", ".join(paths[:_NAMED]) + (", …" if len(paths) > _NAMED else "")
        parts.append((f"{len(paths):,} of {chapters:,} chapters ({named})", reason))
    return tuple(parts)


def join_chapters(
    chapters: Sequence[tuple[Chapter, Prose]], find_lines: Callable[[Sequence[str]], Sequence[int]]
) -> tuple[str, Places]:
    """Those lines of the chapters that ``find_lines`` finds (numbers, ascending), and where each chapter begins.

    A chapter begins with the first words of it that are kept. Chapters without any are not counted.
    """
    gap = [""] * (SECTION_GAP.count("\n") - 1)
    owned = [(number, line) for number, (_, page) in enumerate(chapters) for line in [*page.text.split("\n"), *gap]]
    owned = owned[: len(owned) - len(gap)]
    kept = [owned[line] for line in find_lines([line for _, line in owned])]
    places: list[tuple[int, str]] = []
    offset, last = 0, -1
    for number, line in kept:
        if line.strip() and number != last:
            last = number
            chapter, page = chapters[number]
            places.append((offset, format_chapter_label(len(places) + 1, page.heading, chapter.path, page.text)))
        offset += len(line) + 1
    return _join(kept), tuple(places)


def is_front_or_back_matter(chapter: Chapter, page: Prose) -> bool:
    """Whether a chapter of an EPUB is front or back matter: by its types, its file's name, or its heading."""
    stem = chapter.path.rpartition("/")[2].rpartition(".")[0].lower().replace("_", "-")
    names = {stem, stem.strip("0123456789-. ")}
    heading = page.heading.strip(" .:*").lower()
    return bool(
        (chapter.roles | page.types) & (MATTER_TYPES | {"non-linear"})
        or names & _MATTER_FILES
        or heading in _MATTER_HEADINGS
        or _ALSO_BY.match(heading)
    )


def remove_front_and_back_matter(text: str) -> str:
    """``text`` (lines end in \\n) without Project Gutenberg's frame and without matter before and after the book.

    The lines of the result are lines of ``text``, in its order. Done to its own result, it changes nothing.
    """
    lines = text.split("\n")
    return "\n".join(lines[number] for number in find_book_lines(lines))


def find_book_lines(lines: Sequence[str]) -> Sequence[int]:
    """The numbers of the lines that :func:`remove_front_and_back_matter` keeps."""
    kept: Sequence[Line] = list(enumerate(lines))
    while len(inner := _remove_matter_pages(find_gutenberg_body(kept))) < len(kept):
        kept = inner
    return [number for number, _ in kept]


def find_gutenberg_body(lines: Sequence[Line]) -> Sequence[Line]:
    """The lines between Project Gutenberg's marks, in any of their spellings since the 1990s; all without marks.

    The end is the first mark of the end after the first of the beginning. A file that holds several books gives the
    first of them.
    """
    starts = [last for _, last in _find_start_marks(lines)]
    starts += [place for place, (_, line) in enumerate(lines) if _SMALL_PRINT_END.search(line)]
    first_start = min(starts, default=-1)
    end = next((place for place in range(first_start + 1, len(lines)) if _END.match(lines[place][1])), len(lines))
    start = max((place for place in starts if place < end), default=-1)
    return _trim_empty_lines(lines[start + 1 : end])


def find_gutenberg_head(text: str) -> str:
    """The text before the first mark of the beginning; empty without one."""
    lines = list(enumerate(text.split("\n")))
    return next((_join(_trim_empty_lines(lines[:first])) for first, _ in _find_start_marks(lines)), "")


def _find_start_marks(lines: Sequence[Line]) -> list[tuple[int, int]]:
    """First and last line of each mark of the beginning: a long title runs over lines, until the closing asterisks."""
    found = []
    for place, (_, line) in enumerate(lines):
        if _START.match(line):
            texts = [line.split(_MARK_END, 1)[1], *(text for _, text in lines[place + 1 : place + _MARK_LINES])]
            closing = next((n for n, text in enumerate(texts) if _MARK_END in text or (n and not text.strip())), 0)
            found.append((place, place + closing if _MARK_END in texts[closing] else place))
    return found


def _remove_matter_pages(lines: Sequence[Line]) -> Sequence[Line]:
    """The lines that are not title page, credits, copyright page, contents or transcriber's notes.

    A page is the text between two gaps of two or more empty lines. Pages before the first page of running text
    (60 words or more that are none of these) are looked at, and those behind the last. Where there is no such page,
    as in a book of verse, only what names itself goes. Places of illustrations go everywhere.
    """
    pages = _split_pages(_remove_illustrations(lines))
    dropped = _find_front_matter(pages) | _find_back_matter(pages)
    kept = (page.whole for number, page in enumerate(pages) if number not in dropped)
    return _trim_empty_lines(list(chain.from_iterable(kept)))


def _remove_illustrations(lines: Sequence[Line]) -> list[Line]:
    """The lines without paragraphs such as [Illustration: a ship at sea]."""
    kept: list[Line] = []
    place = 0
    while place < len(lines):
        end = _find_caption_end(lines, place) if _ILLUSTRATION.match(lines[place][1]) else None
        if end is None:
            kept.append(lines[place])
            place += 1
            continue
        # The empty line after it goes along: two in a row would look like the end of a page.
        place = end + 1 if end < len(lines) and not lines[end][1].strip() else end
    return kept


def _find_caption_end(lines: Sequence[Line], place: int) -> int | None:
    """The line after a caption that begins at ``place``; None where no line of its paragraph closes the bracket."""
    for end, (_, line) in enumerate(lines[place : place + _MOST_CAPTION_LINES], place + 1):
        if line.rstrip().endswith("]"):
            return end
        if not line.strip():
            return None
    return None


@dataclass(frozen=True, eq=False)
class _Page:
    """A page: ``whole`` are its lines and the empty ones after it, so that the pages in a row are the lines again."""

    whole: Sequence[Line]

    @cached_property
    def lines(self) -> Sequence[str]:
        """The lines that hold something, without blanks at their ends."""
        return [stripped for _, line in self.whole if (stripped := line.strip())]

    @cached_property
    def words(self) -> int:
        return sum(len(line.split()) for line in self.lines)

    @cached_property
    def text(self) -> str:
        return _join(self.whole).strip()

    @property
    def heading(self) -> str:
        return self.lines[0] if self.lines else ""

    @property
    def is_blank(self) -> bool:
        return not any(character.isalnum() for character in self.text)

    @property
    def is_running_text(self) -> bool:
        """Whether it reads as running text: most of its lines are long."""
        long = sum(len(line.split()) >= 8 for line in self.lines)
        return long > 0.8 * len(self.lines) and len(self.lines) > 3

    @property
    def is_notice(self) -> bool:
        """Whether it is credits, a transcriber's note, or a copyright page."""
        return bool(
            (self.words <= _NOTE_WORDS and _TRANSCRIBER.match(self.text))
            or (self.words <= _CREDITS_WORDS and _CREDITS.match(self.text))
            or (self.words <= _COPYRIGHT_WORDS and _COPYRIGHT.search(self.text) and not self.is_running_text)
        )

    @property
    def is_contents(self) -> bool:
        below = _Page(list(enumerate(self.lines[1:])))
        return bool(_CONTENTS.match(self.heading)) and (len(self.lines) == 1 or below.is_numbered_list)

    @property
    def is_numbered_list(self) -> bool:
        """Whether the lines are entries: short, and numbered in front or at the end, or without a sentence's end."""
        entries, numbered = sum(map(_is_entry, self.lines)), sum(map(_is_numbered, self.lines))
        return len(self.lines) >= 2 and entries >= 0.8 * len(self.lines) and numbered >= 0.5 * len(self.lines)

    @property
    def is_title_page(self) -> bool:
        """Whether it has no sentences, or a publisher's imprint, and is not the heading of a chapter."""
        if _CHAPTER.match(self.heading):
            return False
        sentences = sum(bool(_SENTENCE_END.search(line[-8:])) for line in self.lines)
        clauses = sum(bool(_CLAUSE_END.search(line[-8:])) for line in self.lines)
        has_imprint = bool(_IMPRINT.search(self.text)) and not self.is_running_text
        return has_imprint or (not sentences and clauses <= len(self.lines) / 2)


def _is_numbered(line: str) -> bool:
    return bool(_ENTRY_START.match(line) or _ENTRY_END.search(line[-20:]))


def _is_entry(line: str) -> bool:
    return len(line) <= 90 and (_is_numbered(line) or not _SENTENCE_END.search(line[-8:]))


def _split_pages(lines: Sequence[Line]) -> list[_Page]:
    pages: list[list[Line]] = [[]]
    for line, (_, following) in pairwise([*lines, (-1, "")]):
        pages[-1].append(line)
        ends = following.strip() and len(pages[-1]) > 2 and not line[1].strip()
        if ends and not pages[-1][-2][1].strip():
            pages.append([])
    return [_Page(page) for page in pages if page]


def _find_front_matter(pages: Sequence[_Page]) -> set[int]:
    """The pages of front matter."""
    dropped: set[int] = set()
    unnamed: set[int] = set()
    in_contents = False
    for number, page in enumerate(pages):
        if page.is_blank:
            unnamed.add(number)
        elif page.is_notice:
            dropped.add(number)
        elif page.is_contents or (in_contents and page.is_numbered_list):
            dropped.add(number)
            in_contents = True
        elif page.words < _RUNNING_WORDS and page.is_title_page:
            unnamed.add(number)
            in_contents = False
        else:
            # Before verse a short page may be the first poem's title.
            begins = page.words >= _RUNNING_WORDS or _CHAPTER.match(page.heading)
            return dropped | unnamed if begins else dropped
    return dropped


def _find_back_matter(pages: Sequence[_Page]) -> set[int]:
    """The pages of notices at the end."""
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


def _trim_empty_lines(lines: Sequence[Line]) -> Sequence[Line]:
    """The lines without empty ones at either end."""
    full = [place for place, (_, line) in enumerate(lines) if line.strip()]
    return lines[full[0] : full[-1] + 1] if full else []


def _join(lines: Sequence[Line]) -> str:
    return "\n".join(line for _, line in lines)
