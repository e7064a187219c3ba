"""A book as one document, without front and back matter: text in its file that is not the book.

A window that says "Project Gutenberg" or "Copyright 2024" separates the two sides without any model. What is
dropped is dropped by whole lines; what stays, stays as it was. Where that is not clear, the text stays: the rules look
only at pages before the first and after the last page of running text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import TypeVar

from audit_pipeline.errors import DataError
from audit_pipeline.readers.whole_files.document import NoTextError, WholeDocument
from audit_pipeline.readers.whole_files.epub import Chapter, Epub, EpubError, read_epub
from audit_pipeline.readers.whole_files.legible import explain_illegible
from audit_pipeline.readers.whole_files.places import Places, chapter_label
from audit_pipeline.readers.whole_files.prose import SECTION_GAP, Prose, prose

_T = TypeVar("_T")

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
_INDEX = re.compile(r"[\s_*]*(?:general |alphabetical )?index[\s_*.:]*\Z", re.I)
_NOTES = re.compile(r"[\s_*]*(?:foot|end)notes?[\s_*.:]*\Z", re.I)
_NOTE = re.compile(r"\s*\[(?:footnote\s*)?(?:\d+|[a-z*])\b[\]:]?", re.I)
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
_INDEX_ENTRY = re.compile(
    r",\s(?:[^,]{0,40}\s)?\d{1,4}(?:[-–]\d{1,4})?(?:ff?\.?|n\.?)?[.;]?\Z|\bsee\s[^.]{1,60}\.?\Z", re.I
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
    whole = epub_text(book)
    if not whole.text:
        # What looks like nothing but matter may be a short text with a notice in it.
        chapters = [(chapter, prose(chapter.markup)) for chapter in book.chapters]
        text, places = join_chapters(chapters, lambda lines: range(len(lines)))
        whole = replace(whole, text=text, places=places)
    if not whole.text.strip():
        raise NoTextError(f"{path}: no text in it, only pictures or nothing")
    return whole


def epub_text(book: Epub) -> WholeDocument:
    """The running text of a book: its chapters without those, and without elements, that are matter.

    Chapters are parted by three empty lines, paragraphs by one. Empty where nothing but matter is left. ``problems``
    are the chapters without text, by the reason, with their share of the reading order.
    """
    read = [(chapter, prose(chapter.markup, MATTER_TYPES)) for chapter in book.chapters]
    lost, pages = list(book.problems), []
    for chapter, page in read:
        reason = explain_illegible(page.text)
        if not page.text and not is_matter(chapter, page):
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
        if page.text and (2 * size > sum(words) or not is_matter(chapter, page))
    ]
    text, places = join_chapters(kept, find_book_lines)
    return WholeDocument(text, book.title, _count_lost_chapters(lost, len(read) + len(book.problems)), places)


def _count_lost_chapters(lost: Sequence[tuple[str, str]], chapters: int) -> tuple[tuple[str, str], ...]:
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
    own_lines = [[*page.text.split("\n"), *gap] for _, page in chapters]
    chapter_of_line = [number for number, own in enumerate(own_lines) for _ in own]
    lines = [line for own in own_lines for line in own][: -len(gap)]
    kept = find_lines(lines)
    places: list[tuple[int, str]] = []
    offset, last = 0, -1
    for line in kept:
        if lines[line].strip() and chapter_of_line[line] != last:
            last = chapter_of_line[line]
            chapter, page = chapters[last]
            places.append((offset, chapter_label(len(places) + 1, page.heading, chapter.path, page.text)))
        offset += len(lines[line]) + 1
    return _join_lines(lines, kept), tuple(places)


def is_matter(chapter: Chapter, page: Prose) -> bool:
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


def remove_book_matter(text: str) -> str:
    """``text`` (lines end in \\n) without Project Gutenberg's frame and without matter before and after the book.

    The lines of the result are lines of ``text``, in its order. Done to its own result, it changes nothing.
    """
    lines = text.split("\n")
    return _join_lines(lines, find_book_lines(lines))


def find_book_lines(lines: Sequence[str]) -> Sequence[int]:
    """The numbers of the lines that :func:`remove_book_matter` keeps."""
    kept: Sequence[int] = range(len(lines))
    while True:
        body = _choose(kept, find_gutenberg_body(_choose(lines, kept)))
        inner = _choose(body, _find_inner_pages(_choose(lines, body)))
        if len(inner) == len(kept):
            return inner
        kept = inner


def find_gutenberg_body(lines: Sequence[str]) -> Sequence[int]:
    """The numbers of the lines between Project Gutenberg's marks, in any of their spellings since the 1990s; of all
    without marks.

    The end is the first mark of the end after the first of the beginning. A file that holds several books gives the
    first of them.
    """
    starts = [last for first, last in _find_marks(lines, _START)]
    starts += [number for number, line in enumerate(lines) if _SMALL_PRINT_END.search(line)]
    first_start = min(starts, default=-1)
    end = next((number for number in range(first_start + 1, len(lines)) if _END.match(lines[number])), len(lines))
    start = max((number for number in starts if number < end), default=-1)
    return _trim_empty_lines(lines, range(start + 1, end))


def gutenberg_head(text: str) -> str:
    """The text before the first mark of the beginning; empty without a mark."""
    lines = text.split("\n")
    starts = [first for first, last in _find_marks(lines, _START)]
    return _join_lines(lines, _trim_empty_lines(lines, range(min(starts)))) if starts else ""


def _find_marks(lines: Sequence[str], mark: re.Pattern[str]) -> list[tuple[int, int]]:
    """First and last line of each mark: a long title runs over lines, until the closing asterisks."""
    found = []
    for number, line in enumerate(lines):
        if mark.match(line):
            last = number
            opened = line.split(_MARK_END, 1)[1]
            while _MARK_END not in opened and last + 1 < min(len(lines), number + _MARK_LINES):
                if not lines[last + 1].strip():
                    break
                last += 1
                opened = lines[last]
            found.append((number, last if _MARK_END in opened else number))
    return found


def _find_inner_pages(lines: Sequence[str]) -> Sequence[int]:
    """The numbers of the lines that are not title page, credits, copyright page, contents, transcriber's notes, notes
    or index.

    A page is the text between two gaps of two or more empty lines. Pages before the first page of running text
    (60 words or more that are none of these) are looked at, and those after the last. Where there is no such page,
    as in a book of verse, only what names itself goes. Places of illustrations go everywhere.
    """
    unillustrated = _find_lines_without_illustrations(lines)
    pages = _split_pages(_choose(lines, unillustrated))
    dropped = _find_front_matter(pages) | _find_back_matter(pages)
    numbers = iter(unillustrated)
    own_lines = [list(islice(numbers, len(page))) for page in pages]
    return _trim_empty_lines(lines, [line for page, own in enumerate(own_lines) if page not in dropped for line in own])


def _find_lines_without_illustrations(lines: Sequence[str]) -> list[int]:
    kept: list[int] = []
    number = 0
    while number < len(lines):
        end = _illustration_end(lines, number)
        if end is None:
            kept.append(number)
            number += 1
            continue
        number = end
        # The empty line after it goes along: two in a row would look like the end of a page.
        if number < len(lines) and not lines[number].strip():
            number += 1
    return kept


def _illustration_end(lines: Sequence[str], number: int) -> int | None:
    """The line after a paragraph such as [Illustration: a ship at sea]; None where none begins here."""
    if not _ILLUSTRATION.match(lines[number]):
        return None
    for last in range(number, min(number + _MOST_CAPTION_LINES, len(lines))):
        if lines[last].rstrip().endswith("]"):
            return last + 1
        if not lines[last].strip():
            return None
    return None


def _find_front_matter(pages: Sequence[Sequence[str]]) -> set[int]:
    """The pages of front matter."""
    dropped: set[int] = set()
    unnamed: set[int] = set()
    in_contents = False
    for number, page in enumerate(pages):
        if _is_blank(page):
            unnamed.add(number)
        elif _is_notice(page):
            dropped.add(number)
        elif _is_contents(page) or (in_contents and _is_listing(page)):
            dropped.add(number)
            in_contents = True
        elif _count_words(page) < _RUNNING_WORDS and _is_title_page(page):
            unnamed.add(number)
            in_contents = False
        else:
            # Before verse a short page may be the first poem's title.
            begins = _count_words(page) >= _RUNNING_WORDS or _CHAPTER.match(_first_line(page))
            return dropped | unnamed if begins else dropped
    return dropped


def _find_back_matter(pages: Sequence[Sequence[str]]) -> set[int]:
    """The pages of back matter: from the end, as long as they are some."""
    dropped: set[int] = set()
    tail: set[int] = set()
    for number in range(len(pages) - 1, -1, -1):
        page = pages[number]
        head = _first_line(page)
        if _is_notice(page) or (_INDEX.match(head) and (tail or _is_index(page[1:]))) or _is_notes(page):
            dropped |= tail | {number}
            tail = set()
        elif _is_index(page) or _is_blank(page) or (_count_words(page) <= 2 and _is_heading_above_index(pages, number)):
            # Only pages under an index' heading are an index.
            tail.add(number)
        else:
            break
    return dropped


def _is_heading_above_index(pages: Sequence[Sequence[str]], number: int) -> bool:
    return number + 1 < len(pages) and _is_index(pages[number + 1])


def _is_notice(page: Sequence[str]) -> bool:
    """Credits, a transcriber's note, a copyright page."""
    text = "\n".join(page).strip()
    words = _count_words(page)
    return bool(
        (words <= _NOTE_WORDS and _TRANSCRIBER.match(text))
        or (words <= _CREDITS_WORDS and _CREDITS.match(text))
        or (words <= _COPYRIGHT_WORDS and _COPYRIGHT.search(text) and not _is_running_text(page))
    )


def _is_running_text(page: Sequence[str]) -> bool:
    """Whether a page reads as running text: most of its lines are long."""
    lines = [line for line in page if line.strip()]
    return sum(len(line.split()) >= 8 for line in lines) > 0.8 * len(lines) and len(lines) > 3


def _is_contents(page: Sequence[str]) -> bool:
    return bool(_CONTENTS.match(_first_line(page))) and (
        _is_heading_alone(page) or _is_listing(_remove_first_line(page))
    )


def _is_listing(page: Sequence[str]) -> bool:
    """Whether the lines are entries: short, and numbered in front or at the end, or without the end of a sentence."""
    lines = [line.strip() for line in page if line.strip()]
    numbered = [bool(_ENTRY_START.match(line) or _ENTRY_END.search(line[-20:])) for line in lines]
    entries = [
        len(line) <= 90 and (has_number or not _SENTENCE_END.search(line[-8:]))
        for line, has_number in zip(lines, numbered, strict=True)
    ]
    return len(lines) >= 2 and sum(entries) >= 0.8 * len(lines) and sum(numbered) >= 0.5 * len(lines)


def _is_index(page: Sequence[str]) -> bool:
    # A letter by itself heads its entries.
    lines = [line.strip() for line in page if len(line.strip()) > 1]
    return bool(lines) and sum(bool(_INDEX_ENTRY.search(line[-100:])) for line in lines) >= 0.6 * len(lines)


def _is_notes(page: Sequence[str]) -> bool:
    """A page of notes: under its heading, every paragraph begins with its number in brackets."""
    paragraphs = _split_paragraphs(page)
    if paragraphs and _NOTES.match("\n".join(paragraphs[0])):
        paragraphs = paragraphs[1:]
        return not paragraphs or all(_NOTE.match(paragraph[0]) for paragraph in paragraphs)
    return False


def _is_title_page(page: Sequence[str]) -> bool:
    """Whether a short page has no sentences, or a publisher's imprint, and is not the heading of a chapter."""
    lines = [line.strip() for line in page if line.strip()]
    if _CHAPTER.match(lines[0]):
        return False
    sentences = sum(bool(_SENTENCE_END.search(line[-8:])) for line in lines)
    clauses = sum(bool(_CLAUSE_END.search(line[-8:])) for line in lines)
    return (not sentences and clauses <= len(lines) / 2) or (
        bool(_IMPRINT.search("\n".join(page))) and not _is_running_text(page)
    )


def _is_blank(page: Sequence[str]) -> bool:
    return not any(any(character.isalnum() for character in line) for line in page)


def _is_heading_alone(page: Sequence[str]) -> bool:
    return not any(line.strip() for line in _remove_first_line(page))


def _first_line(page: Sequence[str]) -> str:
    return next((line for line in page if line.strip()), "")


def _remove_first_line(page: Sequence[str]) -> Sequence[str]:
    first = next((number for number, line in enumerate(page) if line.strip()), len(page))
    return page[first + 1 :]


def _count_words(page: Sequence[str]) -> int:
    return sum(len(line.split()) for line in page)


def _split_paragraphs(page: Sequence[str]) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for line in page:
        if line.strip():
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return [paragraph for paragraph in found if paragraph]


def _split_pages(lines: Sequence[str]) -> list[list[str]]:
    """Lines as pages, each with the empty lines after it, so that the pages in a row are the lines again."""
    pages: list[list[str]] = [[]]
    for line, following in pairwise([*lines, ""]):
        pages[-1].append(line)
        if following.strip() and len(pages[-1]) > 2 and not line.strip() and not pages[-1][-2].strip():
            pages.append([])
    return [page for page in pages if page]


def _trim_empty_lines(lines: Sequence[str], numbers: Sequence[int]) -> Sequence[int]:
    """The ``numbers`` without those of empty lines at either end."""
    full = [place for place, number in enumerate(numbers) if lines[number].strip()]
    return numbers[full[0] : full[-1] + 1] if full else []


def _choose(values: Sequence[_T], numbers: Sequence[int]) -> Sequence[_T]:
    return [values[number] for number in numbers]


def _join_lines(lines: Sequence[str], numbers: Sequence[int]) -> str:
    return "\n".join(_choose(lines, numbers))
