"""The running text of an EPUB: its chapters as one text, without front and back matter.

Each file of the reading order counts as a chapter. Front and back matter ("matter") is detected in three steps:

1. Certain evidence. A type such as ``epub:type="titlepage"``, and the table of contents, are matter.
2. Headings. A chapter heading such as "Chapter 3" marks running text. It outweighs weak evidence.
3. Weak evidence of matter: other headings, file names, the guide (EPUB 2's list of the types of files), and a position
   outside the linear reading order. A chapter with weak evidence is still text if it consists of sentences and is
   between two chapters of text.

The problems of the returned document list the skipped matter with its number of words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from audit_pipeline.errors import DataError
from audit_pipeline.readers.whole_files import matter_pages
from audit_pipeline.readers.whole_files.document import (
    NoTextError,
    Places,
    WholeDocument,
    describe_unread,
    format_chapter_label,
)
from audit_pipeline.readers.whole_files.epub import Chapter, Epub, EpubError, read_epub
from audit_pipeline.readers.whole_files.gutenberg_frame import count_text_words
from audit_pipeline.readers.whole_files.html import SECTION_GAP, Prose, extract_prose
from audit_pipeline.readers.whole_files.legibility import explain_illegible

ChapterKind: TypeAlias = Literal["text", "perhaps matter", "matter"]
_Problems: TypeAlias = tuple[tuple[str, str], ...]

_NO_TEXT = "there is no text, only pictures or nothing"

# Types of front and back matter in epub:type, in the guide of EPUB 2, and (with a dot) in the classes of Project
# Gutenberg. Prefaces and introductions are included: they are often later than the work and by another author.
_TYPES = """
cover frontispiece titlepage halftitlepage halftitle title-page seriespage imprint copyright-page colophon imprimatur
dedication acknowledgments acknowledgements contributors other-credits errata publishing-credits
foreword preface introduction afterword uncopyright nav toc toc-brief landmarks loa loi lot lov page-list
index bibliography biblioentry glossary notes endnotes endnote footnotes footnote rearnotes rearnote
noteref backlink pagebreak
.pg-boilerplate .pgheader .pgfooter .transnote .footnotes .footnote .fnanchor .pagenum .pageno .toc
"""
# "index" is missing because converters give this name to the file with the whole book.
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
# Pages with these file names are short in every book. A longer file with such a name is running text.
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
    # The word for a chapter in many languages, before or after the number. "Chapter notes" are notes.
    r"(?:chapter|kapitel|chapitre|cap[íi]tulo|cap[íi]tol|capitolo|capitolul|hoofdstuk|rozdzia[łl]|kapitola|poglavlje|kapittel"
    r"|kapitlet|глава|розділ|κεφάλαιο|chương|bab|الفصل|פרק|अध्याय|prologue|prolog|prologo|prólogo|epilogue|epilog|épilogue"
    r"|epílogo|epilogo|interlude|intermezzo|пролог|эпилог)"
    r"(?!\s*(?:notes|endnotes|footnotes|references|summar|list|sources))(?![^\W\d_])"
    rf"|(?:part|book|volume|vol\.|letter|act|scene|canto|stave|section|episode|teil|buch|band|akt|partie|livre|tome|acte"
    rf"|scène|parte|libro|atto|acto|часть|том|книга|письмо)\s+{_NUMBER}(?!\w)"
    rf"|{_NUMBER}\s*\.?\s*(?:chapter|kapitel|fejezet|bölüm|luku|kapittel|rozdział|kapitola|глава)(?!\w)"
    r"|\w+\s+(?:chapter|kapitel|fejezet|bölüm|luku)\Z"
    r"|第\s*[\d〇零一二三四五六七八九十百千两]{1,6}\s*[章回节節話话卷部幕]|제\s*\d{1,3}\s*[장부화]"
    # A number without a word, or a number before a title.
    rf"|(?:[ivxlcdm]{{1,8}}|\d{{1,3}}|{_NUMBER_WORDS})(?:[ -](?:one|two|three|four|five|six|seven|eight|nine))?"
    r"[.):]?\s*\Z"
    r"|(?:[ivxlcdm]{1,8}|\d{1,3})\s*[.):–—-]\s+\S",
    re.IGNORECASE,
)
_MAX_HEADING_LENGTH = 80
_MAX_NAMED_PATHS = 3


@dataclass(frozen=True)
class _ReadChapter:
    """A chapter (a file of the reading order), read and classified.

    Attributes:
        chapter: The chapter in the EPUB.
        prose: Its running text.
        kind: ``text``, ``matter`` (front or back matter), or ``perhaps matter``.
    """

    chapter: Chapter
    prose: Prose
    kind: ChapterKind

    @property
    def n_words(self) -> int:
        """Return the number of words, including notes and page numbers."""
        return count_text_words(self.prose.text) + self.prose.unwanted_words

    @property
    def label(self) -> str:
        """Return the heading, or the file name if the chapter has no heading."""
        return self.prose.heading or self.chapter.path.rpartition("/")[2]


def read_book(path: Path) -> WholeDocument:
    """Read the running text of an EPUB.

    If all chapters look like front and back matter, return the whole text, because it may be a short text with a
    notice.

    Raises:
        NoTextError: If the book has no text.
        DataError: If the file cannot be read.
    """
    try:
        book = read_epub(path)
    except EpubError as error:
        raise DataError(f"{path}: {error}") from error
    document = extract_book_text(book)
    if not document.text:
        document = _extract_whole_text(book)
    if not document.text.strip():
        raise NoTextError(f"{path}: {_NO_TEXT}")
    return document


def extract_book_text(book: Epub) -> WholeDocument:
    """Return the chapters of a book as one text, without front and back matter.

    Three empty lines separate chapters, one empty line separates paragraphs.

    Returns:
        The document. Its text is empty if the book has only front and back matter. Its problems list chapters without
        text, the skipped matter, and text that no reader sees.
    """
    chapters, lost = _read_chapters(book)
    selected: list[_ReadChapter] = []
    matter: list[tuple[str, int]] = []
    for chapter, is_text in zip(chapters, _detect_text(chapters), strict=True):
        if is_text:
            selected.append(chapter)
        else:
            matter.append((chapter.label, chapter.n_words))
    n_note_words = 0
    for chapter in selected:
        n_note_words += chapter.prose.unwanted_words
    matter.append(("notes and page numbers within chapters", n_note_words))
    lines = _list_lines(selected)
    book_lines = matter_pages.find_book_lines([line for _, line in lines])
    text, places = _join_lines(selected, lines, book_lines.numbers)
    problems = (
        *_summarise_lost_chapters(lost, _count_parts(book)),
        *matter_pages.describe_left_out_matter(book_lines, matter),
        *_describe_unread_text(selected),
    )
    return WholeDocument(text, book.title, problems, places, book.edition)


def classify_chapter(chapter: Chapter, prose: Prose) -> ChapterKind:
    """Classify a chapter of an EPUB as ``text``, ``matter`` (front or back matter) or ``perhaps matter``.

    The first rule that applies decides:

    1. A matter type in the markup, or a navigation role, means ``matter``.
    2. A text type such as "chapter", or a heading such as "Chapter 3", means ``text``.
    3. Weak evidence means ``perhaps matter``: the guide, the file name, another heading, or a place outside the linear
       reading order.

    Otherwise the chapter is ``text``.
    """
    if prose.types & MATTER_TYPES or chapter.roles & _NAVIGATION:
        return "matter"
    if prose.types & _TEXT_TYPES or _has_chapter_heading(prose):
        return "text"
    heading = prose.heading.strip(" .:*").lower()
    has_matter_role = chapter.roles & (MATTER_TYPES | {"non-linear"})
    has_matter_heading = heading in _MATTER_HEADINGS or _ALSO_BY.match(heading)
    if has_matter_role or has_matter_heading or _has_matter_file_name(chapter, prose):
        return "perhaps matter"
    return "text"


def _read_chapters(book: Epub) -> tuple[list[_ReadChapter], list[tuple[str, str]]]:
    """Return the readable chapters, and path and reason of each chapter that cannot be read."""
    chapters: list[_ReadChapter] = []
    lost = list(book.problems)
    for chapter in book.chapters:
        prose = extract_prose(chapter.markup, MATTER_TYPES, chapter.read_style_sheet)
        kind = classify_chapter(chapter, prose)
        reason = explain_illegible(prose.text)
        if not prose.text and kind == "text":
            reason = _NO_TEXT
        if reason is None:
            chapters.append(_ReadChapter(chapter, prose, kind))
        else:
            lost.append((chapter.path, reason))
    return chapters, lost


def _extract_whole_text(book: Epub) -> WholeDocument:
    """Return the text of all chapters, including front and back matter."""
    chapters: list[_ReadChapter] = []
    for chapter in book.chapters:
        prose = extract_prose(chapter.markup, (), chapter.read_style_sheet)
        chapters.append(_ReadChapter(chapter, prose, "text"))
    lines = _list_lines(chapters)
    text, places = _join_lines(chapters, lines, range(len(lines)))
    problems = _summarise_lost_chapters(book.problems, _count_parts(book)) + _describe_unread_text(chapters)
    return WholeDocument(text, book.title, problems, places, book.edition)


def _detect_text(chapters: Sequence[_ReadChapter]) -> list[bool]:
    """Decide for each chapter if it is running text.

    A chapter with more than half of the words is always text: some files contain the whole book. A chapter that is
    perhaps matter is text if it is between two chapters of text and consists of sentences. Examples are a story with
    the title "Notes" and an interlude outside the linear reading order.
    """
    n_words = [count_text_words(chapter.prose.text) for chapter in chapters]
    certain: list[int] = []
    for number, chapter in enumerate(chapters):
        if chapter.kind == "text" and n_words[number] >= matter_pages.RUNNING_WORDS:
            certain.append(number)
    decisions: list[bool] = []
    for number, chapter in enumerate(chapters):
        is_text = chapter.kind == "text" or 2 * n_words[number] > sum(n_words)
        if chapter.kind == "perhaps matter" and certain and certain[0] < number < certain[-1]:
            is_text = is_text or _is_story(chapter.prose)
        decisions.append(is_text and bool(chapter.prose.text))
    return decisions


def _has_matter_file_name(chapter: Chapter, prose: Prose) -> bool:
    """Return True if the file name, with or without its numbers, is usual for front or back matter, such as cover."""
    stem = chapter.path.rpartition("/")[2].rpartition(".")[0].lower().replace("_", "-")
    names = {stem, stem.strip("0123456789-. ")}
    if names & _SHORT_FILES and count_text_words(prose.text) > _SHORT_WORDS:
        return False
    return bool(names & _MATTER_FILES)


def _has_chapter_heading(prose: Prose) -> bool:
    """Return True if a chapter starts with a heading such as "Chapter 3" and is not a list of chapters."""
    page = _build_page(prose)
    if page.n_words < matter_pages.RUNNING_WORDS or page.is_numbered_list or page.is_contents:
        return False
    for heading in (prose.heading, page.heading):
        title = heading.strip(" *_")
        if len(title) <= _MAX_HEADING_LENGTH and _CHAPTER_HEADING.match(title):
            return True
    return False


def _is_story(prose: Prose) -> bool:
    page = _build_page(prose)
    if page.n_words < matter_pages.RUNNING_WORDS or page.is_notice or page.is_contents or page.is_numbered_list:
        return False
    return page.has_sentences


def _build_page(prose: Prose) -> matter_pages.TextPage:
    return matter_pages.TextPage(list(enumerate(prose.text.split("\n"))))


def _count_parts(book: Epub) -> int:
    return len(book.chapters) + len(book.problems)


def _describe_unread_text(chapters: Sequence[_ReadChapter]) -> _Problems:
    unread: Counter[str] = Counter()
    for chapter in chapters:
        unread.update(chapter.prose.unread)
    return describe_unread(unread)


def _summarise_lost_chapters(lost: Sequence[tuple[str, str]], n_chapters: int) -> _Problems:
    """Return one problem per reason: the number of chapters with their first paths, and the reason."""
    paths_by_reason: dict[str, list[str]] = {}
    for path, reason in lost:
        paths_by_reason.setdefault(reason, []).append(path)
    problems: list[tuple[str, str]] = []
    for reason, paths in paths_by_reason.items():
        listed = ", ".join(paths[:_MAX_NAMED_PATHS])
        if len(paths) > _MAX_NAMED_PATHS:
            listed += ", …"
        problems.append((f"{len(paths):,} of {n_chapters:,} chapters ({listed})", reason))
    return tuple(problems)


def _list_lines(chapters: Sequence[_ReadChapter]) -> list[tuple[int, str]]:
    """Return the lines of all chapters, each with the index of its chapter. Empty lines separate the chapters."""
    n_empty_lines = SECTION_GAP.count("\n") - 1
    lines: list[tuple[int, str]] = []
    for index, chapter in enumerate(chapters):
        if index > 0:
            lines += [(index, "")] * n_empty_lines
        lines += [(index, line) for line in chapter.prose.text.split("\n")]
    return lines


def _join_lines(
    chapters: Sequence[_ReadChapter], lines: Sequence[tuple[int, str]], line_numbers: Sequence[int]
) -> tuple[str, Places]:
    """Join the selected lines to the text of the book.

    Args:
        chapters: The chapters of the book.
        lines: All lines, each with the index of its chapter.
        line_numbers: Ascending indices of the selected lines.

    Returns:
        The text, and the places: character offset and label of each chapter. A chapter begins with its first selected
        line that is not blank. Chapters without such a line are not counted.
    """
    selected: list[str] = []
    places: list[tuple[int, str]] = []
    offset = 0
    last_index = -1
    for number in line_numbers:
        index, line = lines[number]
        selected.append(line)
        if line.strip() and index != last_index:
            last_index = index
            prose = chapters[index].prose
            path = chapters[index].chapter.path
            places.append((offset, format_chapter_label(len(places) + 1, prose.heading, path, prose.text)))
        offset += len(line) + 1
    return "\n".join(selected), tuple(places)
