"""Front and back matter in the lines of a book: title page, credits, copyright page, contents, transcriber's notes.

A window that says "Project Gutenberg" or "Copyright 2024" tells a member from a non-member without any model. Matter is
dropped by whole lines, and only before the first and after the last page of running text. What cannot be told apart
stays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise

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

# A page of running text: matter is searched before the first and after the last.
RUNNING_WORDS = 60
_NOTE_WORDS = 1500
_CREDITS_WORDS = 120
_COPYRIGHT_WORDS = 400
_MOST_CAPTION_LINES = 12
_HEAD_WORDS = 600
_LEAST_FIELDS = 2
_NAMED = 5
_LONGEST_NAME = 40


@dataclass(frozen=True)
class BookLines:
    """The lines of a text that are the book, and what else is in it.

    Attributes:
        numbers: Numbers of the book's lines, ascending.
        matter: First words and number of words of each page that is left out.
        frame_words: Words of Project Gutenberg's header, licence and small print.
        other_books: Title and number of words of each further book in the file.
    """

    numbers: Sequence[int]
    matter: tuple[tuple[str, int], ...] = ()
    frame_words: int = 0
    other_books: tuple[tuple[str, int], ...] = ()


def remove_front_and_back_matter(text: str) -> WholeDocument:
    """Return a text without Project Gutenberg's frame and without matter before and after the book.

    Args:
        text: The text, its lines end in \\n. The lines of the result are lines of it, in its order.

    Returns:
        The book's text. Its problems name what is left out, with the number of words.
    """
    lines = text.split("\n")
    found = find_book_lines(lines)
    book = "\n".join(lines[number] for number in found.numbers)
    return WholeDocument(book, problems=describe_left_out_matter(found), places=NO_LINES)


def find_book_lines(lines: Sequence[str]) -> BookLines:
    """Find the lines of the book, and measure what else is in the text."""
    kept: Sequence[Line] = list(enumerate(lines))
    matter: list[tuple[str, int]] = []
    frame_words = 0
    other_books: tuple[tuple[str, int], ...] = ()
    while True:
        framed = split_gutenberg_file(kept)
        inner, pages = _remove_matter_pages(framed.body)
        frame_words += framed.frame_words
        other_books += framed.other_books
        matter += pages
        if len(inner) == len(kept):
            return BookLines([number for number, _ in kept], tuple(matter), frame_words, other_books)
        kept = inner


def describe_left_out_matter(found: BookLines, chapters: Sequence[tuple[str, int]] = ()) -> tuple[tuple[str, str], ...]:
    """Return the problems for what is not the book: the part and the reason, with the number of words.

    Args:
        found: The lines of the book.
        chapters: Name and number of words of each chapter that is front or back matter.
    """
    problems: list[tuple[str, str]] = []
    frame = ("frame of Project Gutenberg", found.frame_words)
    matter = [(name, words) for name, words in (*chapters, *found.matter, frame) if words]
    if matter:
        matter.sort(key=lambda part: -part[1])
        named = "; ".join(f"{name[:_LONGEST_NAME]} ({words:,})" for name, words in matter[:_NAMED])
        more = f"; {len(matter) - _NAMED:,} more" * (len(matter) > _NAMED)
        reason = f"{sum(words for _, words in matter):,} words are left out: {named}{more}"
        problems.append(("front and back matter", reason))
    for title, words in found.other_books:
        name = title or "without a title"
        reason = f"{name}, {words:,} words, is not read: save each book as a file of its own"
        problems.append(("another book in the same file", reason))
    return tuple(problems)


def _remove_matter_pages(lines: Sequence[Line]) -> tuple[Sequence[Line], list[tuple[str, int]]]:
    """Return the lines that are not matter, and first words and number of words of each page that is.

    A page is the text between two gaps of two or more empty lines. Pages before the first page of running text
    (60 words or more that are no matter) are looked at, and those behind the last. Without such a page, as in a book of
    verse, only what names itself goes. Places of illustrations go everywhere.
    """
    without_illustrations = _remove_illustrations(lines)
    pages = _split_pages(without_illustrations)
    dropped = _find_front_matter(pages) | _find_back_matter(pages)
    kept = (page.whole for number, page in enumerate(pages) if number not in dropped)
    matter = [(pages[number].heading, pages[number].words) for number in sorted(dropped)]
    captions = count_words(lines) - count_words(without_illustrations)
    if captions:
        matter.append(("places of illustrations", captions))
    return trim_empty_lines(list(chain.from_iterable(kept))), matter


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
class TextPage:
    """A page: ``whole`` are its lines and the empty ones after it, so that the pages in a row are the lines again."""

    whole: Sequence[Line]

    @cached_property
    def lines(self) -> Sequence[str]:
        """The lines that hold something, without blanks at their ends."""
        return [stripped for _, line in self.whole if (stripped := line.strip())]

    @cached_property
    def words(self) -> int:
        return sum(map(count_text_words, self.lines))

    @cached_property
    def text(self) -> str:
        return join_lines(self.whole).strip()

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
    def has_sentences(self) -> bool:
        """Whether half of its words are in lines that end as sentences do."""
        ended = sum(count_text_words(line) for line in self.lines if _SENTENCE_END.search(line[-8:]))
        return 2 * ended >= self.words

    @property
    def is_notice(self) -> bool:
        """Whether it is credits, a transcriber's note, or a copyright page."""
        return bool(
            (self.words <= _NOTE_WORDS and _TRANSCRIBER.match(self.text))
            or (self.words <= _CREDITS_WORDS and _CREDITS.match(self.text))
            or (self.words <= _COPYRIGHT_WORDS and _COPYRIGHT.search(self.text) and not self.is_running_text)
        )

    @property
    def is_gutenberg_head(self) -> bool:
        """Whether it is the header of Project Gutenberg, or its fields for title and author, without a mark."""
        fields = sum(bool(_GUTENBERG_FIELD.match(line)) for line in self.lines)
        is_named = bool(_GUTENBERG_HEAD.match(self.heading))
        return self.words <= _HEAD_WORDS and (is_named or fields >= _LEAST_FIELDS) and not self.is_running_text

    @property
    def is_contents(self) -> bool:
        below = TextPage(list(enumerate(self.lines[1:])))
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


def _split_pages(lines: Sequence[Line]) -> list[TextPage]:
    pages: list[list[Line]] = [[]]
    for line, (_, following) in pairwise([*lines, (-1, "")]):
        pages[-1].append(line)
        ends = following.strip() and len(pages[-1]) > 2 and not line[1].strip()
        if ends and not pages[-1][-2][1].strip():
            pages.append([])
    return [TextPage(page) for page in pages if page]


def _find_front_matter(pages: Sequence[TextPage]) -> set[int]:
    """The pages of front matter."""
    dropped: set[int] = set()
    unnamed: set[int] = set()
    in_contents = False
    for number, page in enumerate(pages):
        if page.is_blank:
            unnamed.add(number)
        elif page.is_notice or page.is_gutenberg_head:
            dropped.add(number)
        elif page.is_contents or (in_contents and page.is_numbered_list):
            dropped.add(number)
            in_contents = True
        elif page.words < RUNNING_WORDS and page.is_title_page:
            unnamed.add(number)
            in_contents = False
        else:
            # Before verse a short page may be the first poem's title.
            begins = page.words >= RUNNING_WORDS or _CHAPTER.match(page.heading)
            return dropped | unnamed if begins else dropped
    return dropped


def _find_back_matter(pages: Sequence[TextPage]) -> set[int]:
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
