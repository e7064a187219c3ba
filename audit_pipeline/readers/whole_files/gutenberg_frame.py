"""The frame of Project Gutenberg around a book: its header, licence and small print, in the spellings since the 1990s.

Marks such as "End of the Project Gutenberg EBook" divide a file into segments. The words of a segment decide if it
belongs to the book or to the frame. The mark alone is not enough: a book may quote it, and the small print stands
before or after the book.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Line: TypeAlias = tuple[int, str]
"""A line with its number in the text."""

_Kind: TypeAlias = Literal["start", "end", "small print begins", "small print ends"]

_GUTENBERG = r"(?:the |this |of )*(?:copyrighted )?project gutenberg"
_SUFFIX = r"(?:'s|’s)?[ -]*(?:e-?books?|e-?texts?)?"
_LANGUAGES = r"\b.{0,60}\bproje[ck]?t[oe]? gutenberg"
_MARKS: tuple[tuple[_Kind, re.Pattern[str]], ...] = (
    (
        "start",
        re.compile(
            rf"\W*\*\*\*\s*(?:start of {_GUTENBERG}{_SUFFIX}\b"
            rf"|(?:d[ée]but|beginn?|anfang|inizio|in[ií]cio|comienzo){_LANGUAGES})",
            re.I,
        ),
    ),
    (
        "end",
        re.compile(
            rf"(?:\W*\*\*\*\s*end of {_GUTENBERG}{_SUFFIX}\b"
            rf"|\s*(?:this is )?(?:the )?end of {_GUTENBERG}(?:'s|’s|\s+e-?books?|\s+e-?texts?)"
            r"|\W*\*\*\*\s*start: full licen[sc]e"
            rf"|\W*\*\*\*\s*(?:fin|ende|fine|fim|einde)\b{_LANGUAGES}"
            r"|\s*(?:ende dieses|fin de ce|fin du|fine di questo|fim deste) proje[ck]?to? gutenberg)",
            re.I,
        ),
    ),
    ("small print begins", re.compile(r"\W*\*\s*start\s*\*+\s*the small print", re.I)),
    ("small print ends", re.compile(r".*\*\s*end\s*\*?\s*the small print!?", re.I)),
)
_TITLE = re.compile(rf".*?{_GUTENBERG}{_SUFFIX},?\s*(.*?)[\s*]*\Z", re.I | re.S)
_WITHOUT_BLANKS = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
_MARK_END = "***"
_MARK_LINES = 5
_FRAME_WORD = re.compile(
    r"gutenberg|\be-?(?:text|book)s?\b|small print|\bdonat|licen[sc]e|copyright|public domain", re.I
)
# A match of _FRAME_WORD is a frame word. In Project Gutenberg's own texts 1 of 20 words is one, in books fewer than 1
# of 1,000.
_WORDS_PER_FRAME_WORD = 150
_BEGINNINGS = ("start", "small print ends")
_SHORT_WORDS = 200
_REMAINDER_WORDS = 20


@dataclass(frozen=True)
class _Mark:
    """A mark of the frame.

    Attributes:
        kind: The kind of mark.
        first: Index of its first line.
        last: Index of its last line.
        title: The title of the book in the mark, or "".
    """

    kind: _Kind
    first: int
    last: int
    title: str = ""


@dataclass(frozen=True)
class FramedText:
    """The parts of a file of Project Gutenberg.

    Attributes:
        body: Lines of the first book. All lines if the file has no frame.
        frame_words: Words of headers, licences and small print.
        other_books: Title and number of words of each further book in the file.
    """

    body: Sequence[Line]
    frame_words: int = 0
    other_books: tuple[tuple[str, int], ...] = ()


def split_gutenberg_file(lines: Sequence[Line]) -> FramedText:
    """Return the first book between Project Gutenberg's marks, and the size of everything else."""
    marks = _find_marks(lines)
    if not marks:
        return FramedText(trim_empty_lines(lines))
    # For each book the indices of its first line and of the line after its last line, and the title in the mark.
    books: list[tuple[int, int]] = []
    titles: list[str] = []
    is_open = False
    before: _Mark | None = None
    for following in (*marks, None):
        begin = 0
        title = ""
        stop = len(lines)
        if before is not None:
            begin = before.last + 1
            title = before.title
        if following is not None:
            stop = following.first
        is_body = _is_body(lines[begin:stop], before, following, has_book=bool(books))
        if is_body and books and before is not None and (is_open or before.kind not in _BEGINNINGS):
            # The same book continues after the mark, so the book only quotes the mark.
            books[-1] = (books[-1][0], stop)
        elif is_body:
            books.append((begin, stop))
            titles.append(title)
        is_open = is_body
        before = following
    filled: list[tuple[str, Sequence[Line]]] = []
    for title, (begin, stop) in zip(titles, books, strict=True):
        if count_words(lines[begin:stop]):
            filled.append((title, lines[begin:stop]))
    if not filled:
        # The only text is before the first mark, and nothing but small print follows.
        filled = [("", lines[: marks[0].first])]
    body = filled[0][1]
    other_books = tuple((title, count_words(other)) for title, other in filled[1:])
    frame_words = count_words(lines) - count_words(body) - sum(n_words for _, n_words in other_books)
    return FramedText(trim_empty_lines(body), frame_words, other_books)


def find_gutenberg_head(text: str) -> str:
    """Return the text before the first start mark, or an empty text if there is no start mark."""
    lines = list(enumerate(text.split("\n")))
    for mark in _find_marks(lines):
        if mark.kind == "start":
            return join_lines(trim_empty_lines(lines[: mark.first]))
    return ""


def count_text_words(text: str) -> int:
    """Return the number of words. Two characters of Chinese or Japanese, which has no blanks, count as one word."""
    return len(text.split()) + len(_WITHOUT_BLANKS.findall(text)) // 2


def count_words(lines: Sequence[Line]) -> int:
    """Return the number of words in lines."""
    return sum(count_text_words(line) for _, line in lines)


def trim_empty_lines(lines: Sequence[Line]) -> Sequence[Line]:
    """Return the lines without empty lines at either end."""
    begin = 0
    end = len(lines)
    while begin < end and not lines[begin][1].strip():
        begin += 1
    while begin < end and not lines[end - 1][1].strip():
        end -= 1
    return lines[begin:end]


def join_lines(lines: Sequence[Line]) -> str:
    """Return the lines as one text."""
    return "\n".join(line for _, line in lines)


def _is_body(segment: Sequence[Line], before: _Mark | None, following: _Mark | None, *, has_book: bool) -> bool:
    """Return True if a segment between two marks is text of a book. ``has_book``: an earlier segment was one."""
    kind_before = before.kind if before is not None else None
    kind_after = following.kind if following is not None else None
    if kind_before == "small print begins" and kind_after == "small print ends":
        return False
    if kind_before == "small print ends" and has_book and count_words(segment) < _REMAINDER_WORDS:
        return False
    if kind_before in (None, "start", "small print ends") and kind_after in (None, "end"):
        return True
    return not _is_frame(segment)


def _is_frame(segment: Sequence[Line]) -> bool:
    """Return True if a segment is short, or if many of its words are typical of the frame."""
    n_words = count_words(segment)
    if n_words < _SHORT_WORDS:
        return True
    return len(_FRAME_WORD.findall(join_lines(segment))) * _WORDS_PER_FRAME_WORD >= n_words


def _find_marks(lines: Sequence[Line]) -> list[_Mark]:
    marks = []
    for index, (_, line) in enumerate(lines):
        for kind, pattern in _MARKS:
            if pattern.match(line):
                if kind == "start":
                    marks.append(_read_start_mark(lines, index))
                else:
                    marks.append(_Mark(kind, index, index))
                break
    return marks


def _read_start_mark(lines: Sequence[Line], index: int) -> _Mark:
    """Read a start mark. A long title continues on the next lines until the closing asterisks."""
    texts = [lines[index][1].split(_MARK_END, 1)[1]]
    for _, line in lines[index + 1 : index + _MARK_LINES]:
        if _MARK_END in texts[-1] or not line.strip():
            break
        texts.append(line)
    if _MARK_END not in texts[-1]:
        texts = texts[:1]
    title = _TITLE.fullmatch(" ".join(texts))
    last = index + len(texts) - 1
    if title is None:
        return _Mark("start", index, last)
    return _Mark("start", index, last, title[1])
