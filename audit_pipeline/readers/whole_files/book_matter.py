"""The chapters of an EPUB as one text, without front and back matter.

Types of the EPUB say what a chapter is. Headings, file names and the guide are only evidence: a heading such as
"Chapter 3" outweighs them, and so does a place in the middle of the book. What is left out is named with its words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from audit_pipeline.errors import DataError
from audit_pipeline.readers.whole_files.document import (
    NoTextError,
    Places,
    WholeDocument,
    describe_unread,
    format_chapter_label,
)
from audit_pipeline.readers.whole_files.epub import Chapter, Epub, EpubError, read_epub
from audit_pipeline.readers.whole_files.gutenberg_frame import count_text_words
from audit_pipeline.readers.whole_files.legible import explain_illegible
from audit_pipeline.readers.whole_files.matter_pages import (
    RUNNING_WORDS,
    BookLines,
    TextPage,
    describe_left_out_matter,
    find_book_lines,
)
from audit_pipeline.readers.whole_files.xhtml_text import SECTION_GAP, Prose, extract_prose

_Part: TypeAlias = Literal["text", "perhaps matter", "matter"]

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
# Pages that are short in every book: with a chapter's words, a file of this name is a chapter.
_SHORT_FILES = frozenset(
    ("cover", "title", "titlepage", "title-page", "halftitle", "halftitlepage", "half-title", "dedication", "praise")
)
_SHORT_WORDS = 400
MATTER_TYPES = frozenset(_TYPES.split())
_MATTER_FILES = frozenset(_FILES.split())
_MATTER_HEADINGS = frozenset(heading.strip() for heading in _HEADINGS.split(";"))
_ALSO_BY = re.compile(r"(also by|other books by|praise for|by the same author|about the (author|publisher))\b", re.I)
_NAVIGATION = frozenset(("nav", "toc", "toc-brief", "landmarks", "page-list", "loi", "lot"))
_TEXT_TYPES = frozenset(("chapter", "part", "volume", "prologue", "epilogue", "subchapter", "division"))

_NUMBER_WORDS = (
    r"one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen"
    r"|eighteen|nineteen|twenty|thirty|forty|fifty|(?:the )?(?:first|second|third|fourth|fifth|sixth|last)"
    r"|premi[eè]re?|primer[oa]?|prim[oa]|erste[rsn]?|первая|первый"
)
_NUMBER = rf"(?:[ivxlcdm]{{1,8}}|\d{{1,3}}|(?:{_NUMBER_WORDS})(?:[ -]\w+)?)"
_CHAPTER_HEADING = re.compile(
    # Chapter in many languages, before the number or behind it. "Chapter notes" are notes.
    r"(?:chapter|kapitel|chapitre|cap[íi]tulo|cap[íi]tol|capitolo|capitolul|hoofdstuk|rozdzia[łl]|kapitola|poglavlje|kapittel"
    r"|kapitlet|глава|розділ|κεφάλαιο|chương|bab|الفصل|פרק|अध्याय|prologue|prolog|prologo|prólogo|epilogue|epilog|épilogue"
    r"|epílogo|epilogo|interlude|intermezzo|пролог|эпилог)"
    r"(?!\s*(?:notes|endnotes|footnotes|references|summar|list|sources))(?![^\W\d_])"
    rf"|(?:part|book|volume|vol\.|letter|act|scene|canto|stave|section|episode|teil|buch|band|akt|partie|livre|tome|acte"
    rf"|scène|parte|libro|atto|acto|часть|том|книга|письмо)\s+{_NUMBER}(?!\w)"
    rf"|{_NUMBER}\s*\.?\s*(?:chapter|kapitel|fejezet|bölüm|luku|kapittel|rozdział|kapitola|глава)(?!\w)"
    r"|\w+\s+(?:chapter|kapitel|fejezet|bölüm|luku)\Z"
    r"|第\s*[\d〇零一二三四五六七八九十百千两]{1,6}\s*[章回节節話话卷部幕]|제\s*\d{1,3}\s*[장부화]"
    # A number alone, or before a title.
    rf"|(?:[ivxlcdm]{{1,8}}|\d{{1,3}}|{_NUMBER_WORDS})(?:[ -](?:one|two|three|four|five|six|seven|eight|nine))?"
    r"[.):]?\s*\Z"
    r"|(?:[ivxlcdm]{1,8}|\d{1,3})\s*[.):–—-]\s+\S",
    re.IGNORECASE,
)
_LONGEST_HEADING = 80
_NAMED = 3


@dataclass(frozen=True)
class _ReadChapter:
    """A chapter of the reading order, its prose, and what it seems to be."""

    chapter: Chapter
    page: Prose
    part: _Part

    @property
    def words(self) -> int:
        """The number of words, elements of matter included."""
        return count_text_words(self.page.text) + self.page.unwanted_words

    @property
    def label(self) -> str:
        return self.page.heading or self.chapter.path.rpartition("/")[2]


def read_book(path: Path) -> WholeDocument:
    """Read an EPUB without front and back matter, or all of it if nothing else is in it.

    Raises:
        NoTextError: If there is no text at all.
        DataError: If the file cannot be read.
    """
    try:
        book = read_epub(path)
    except EpubError as error:
        raise DataError(f"{path}: {error}") from error
    whole = extract_book_text(book)
    if not whole.text:
        whole = _extract_whole_text(book)
    if not whole.text.strip():
        raise NoTextError(f"{path}: no text in it, only pictures or nothing")
    return whole


def extract_book_text(book: Epub) -> WholeDocument:
    """Return the running text of a book: its chapters without front and back matter.

    Chapters are parted by three empty lines, paragraphs by one. The text is empty if nothing but matter is left. The
    problems name chapters without text, matter with its words, and text that nobody sees.
    """
    lost = list(book.problems)
    readable: list[_ReadChapter] = []
    for chapter in book.chapters:
        page = extract_prose(chapter.markup, MATTER_TYPES, chapter.read_style_sheet)
        read = _ReadChapter(chapter, page, classify_chapter(chapter, page))
        reason = explain_illegible(page.text)
        if not page.text and read.part == "text":
            reason = "no text in it, only pictures or nothing"
        if reason is None:
            readable.append(read)
        else:
            lost.append((chapter.path, reason))
    is_kept = _choose_chapters(readable)
    kept = [read for read, keep in zip(readable, is_kept, strict=True) if keep]
    matter = [(read.label, read.words) for read, keep in zip(readable, is_kept, strict=True) if not keep]
    matter.append(("notes and page numbers within chapters", sum(read.page.unwanted_words for read in kept)))
    pages = [(read.chapter, read.page) for read in kept]
    text, places, found = join_chapters(pages, find_book_lines)
    problems = (
        *_summarise_lost_chapters(lost, len(book.chapters) + len(book.problems)),
        *describe_left_out_matter(found, matter),
        *_describe_unread_text(pages),
    )
    return WholeDocument(text, book.title, problems, places, book.edition)


def _extract_whole_text(book: Epub) -> WholeDocument:
    """Return all text of a book: what looks like nothing but matter may be a short text with a notice in it."""
    pages = [(chapter, extract_prose(chapter.markup, (), chapter.read_style_sheet)) for chapter in book.chapters]
    text, places, _ = join_chapters(pages, lambda lines: BookLines(range(len(lines))))
    lost = _summarise_lost_chapters(book.problems, len(book.chapters) + len(book.problems))
    return WholeDocument(text, book.title, lost + _describe_unread_text(pages), places, book.edition)


def _choose_chapters(chapters: Sequence[_ReadChapter]) -> list[bool]:
    """Return for each chapter whether it is kept.

    A chapter that is perhaps matter is kept between two chapters of the book if it reads as running text: a story
    called "Notes", an interlude outside the linear reading order. A file with most of the book in it is the book.
    """
    sizes = [count_text_words(read.page.text) for read in chapters]
    certain = [number for number, read in enumerate(chapters) if read.part == "text" and sizes[number] >= RUNNING_WORDS]
    kept = []
    for number, read in enumerate(chapters):
        is_inside = bool(certain) and certain[0] < number < certain[-1]
        is_story = read.part == "perhaps matter" and is_inside and _reads_as_story(read.page.text)
        is_most = 2 * sizes[number] > sum(sizes)
        kept.append(bool(read.page.text) and (read.part == "text" or is_story or is_most))
    return kept


def _has_chapter_heading(page: Prose) -> bool:
    """Return whether a chapter begins with the heading of a chapter, and is more than a list of chapters."""
    lines = TextPage(list(enumerate(page.text.split("\n"))))
    if lines.words < RUNNING_WORDS or lines.is_numbered_list or lines.is_contents:
        return False
    headings = [heading.strip(" *_") for heading in (page.heading, lines.heading)]
    return any(len(heading) <= _LONGEST_HEADING and _CHAPTER_HEADING.match(heading) for heading in headings)


def _reads_as_story(text: str) -> bool:
    page = TextPage(list(enumerate(text.split("\n"))))
    if page.words < RUNNING_WORDS or page.is_notice or page.is_contents or page.is_numbered_list:
        return False
    return page.has_sentences


def classify_chapter(chapter: Chapter, page: Prose) -> _Part:
    """Return whether a chapter of an EPUB is text, front or back matter, or perhaps matter.

    Types and navigation are certain. A heading of a chapter, or its type, outweighs the guide, the file's name, another
    heading and a place outside the linear reading order.
    """
    if page.types & MATTER_TYPES or chapter.roles & _NAVIGATION:
        return "matter"
    if page.types & _TEXT_TYPES or _has_chapter_heading(page):
        return "text"
    stem = chapter.path.rpartition("/")[2].rpartition(".")[0].lower().replace("_", "-")
    names = {stem, stem.strip("0123456789-. ")}
    if names & _SHORT_FILES and count_text_words(page.text) > _SHORT_WORDS:
        names = set()
    heading = page.heading.strip(" .:*").lower()
    is_matter = (
        chapter.roles & (MATTER_TYPES | {"non-linear"})
        or names & _MATTER_FILES
        or heading in _MATTER_HEADINGS
        or _ALSO_BY.match(heading)
    )
    return "perhaps matter" if is_matter else "text"


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
    chapters: Sequence[tuple[Chapter, Prose]], find_lines: Callable[[Sequence[str]], BookLines]
) -> tuple[str, Places, BookLines]:
    """Return the lines of the chapters that are the book, where each chapter begins, and what was found.

    A chapter begins with the first words of it that are kept. Chapters without any are not counted.
    """
    gap = [""] * (SECTION_GAP.count("\n") - 1)
    owned = [(number, line) for number, (_, page) in enumerate(chapters) for line in [*page.text.split("\n"), *gap]]
    owned = owned[: len(owned) - len(gap)]
    found = find_lines([line for _, line in owned])
    kept = [owned[line] for line in found.numbers]
    places: list[tuple[int, str]] = []
    offset, last = 0, -1
    for number, line in kept:
        if line.strip() and number != last:
            last = number
            chapter, page = chapters[number]
            places.append((offset, format_chapter_label(len(places) + 1, page.heading, chapter.path, page.text)))
        offset += len(line) + 1
    return "\n".join(line for _, line in kept), tuple(places), found
